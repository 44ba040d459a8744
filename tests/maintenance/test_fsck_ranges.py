"""A long session whose rows other processes go over in ranges is told of as one that nobody helps with."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.packformat import Space
from agentsession_cas.effects.host import real_host
from agentsession_cas.effects.workers import Lost, Worker, no_workers, start_workers
from agentsession_cas.maintenance import fsck_ranges
from agentsession_cas.maintenance.findings import FsckReport
from agentsession_cas.maintenance.fsck_crew import Crew
from agentsession_cas.maintenance.fsck_ranges import Looked, Range
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.rowmaker import digest_of
from tests.helpers.damage import Bench, flip
from tests.helpers.damages import DAMAGE
from tests.helpers.fsck import checked, without_threads
from tests.maintenance.test_fsck_plain import BODIES, ROW_CHANGES, reseal

LIMIT_S = 60


@pytest.fixture(autouse=True)
def _short_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsck_ranges, "LONG_ROWS", 1)
    monkeypatch.setattr(fsck_ranges, "_RANGE_ROWS", 7)


class Ranger:
    """A worker in this process that looks at ranges and at no whole session; ``told`` is what all of them said."""

    told: list[Looked | None]

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer

    def ask(self, question: Any) -> Any:
        if not isinstance(question, Range):
            raise Lost("another will")
        answer = self._answer(pickle.loads(pickle.dumps(question)))
        self.told.append(answer)
        return pickle.loads(pickle.dumps(answer))

    def end(self) -> None:
        pass


class Stops(Ranger):
    """One that looks at a single range."""

    def ask(self, question: Any) -> Any:
        if self.told:
            raise Lost("gone")
        return super().ask(question)


class Doubtful(Ranger):
    """One that can never tell."""

    def ask(self, question: Any) -> Any:
        super().ask(question)


def check(root: Path, kind: type[Ranger] | None) -> tuple[FsckReport, list[Looked | None]]:
    """The store checked with a worker of that kind for ranges, None for nobody; and what the workers said."""
    told: list[Looked | None] = []

    def start(make: Callable[..., Callable[[Any], Any]], given: tuple[Any, ...]) -> list[Worker]:
        assert kind is not None
        worker = kind(make(*pickle.loads(pickle.dumps(given))))
        worker.told = told
        return [worker]

    with pytest.MonkeyPatch.context() as patch:
        if kind is Ranger:  # leave all of them to it
            patch.setattr(Crew, "_next_range", lambda _, looked: looked.get(timeout=LIMIT_S))
        return checked(root, no_workers if kind is None else start), told


@pytest.mark.heavy
@pytest.mark.parametrize("code", DAMAGE)
def test_every_damage_is_told_as_without_help(bench: Bench, code: str) -> None:
    DAMAGE[code](bench)
    alone, _ = check(bench.root, None)
    assert check(bench.root, Ranger)[0] == alone


@pytest.mark.parametrize("kind", [Stops, Doubtful])
def test_whatever_becomes_of_who_helps(bench: Bench, kind: type[Ranger]) -> None:
    flip(bench.session("alpha") / "journal", 9000)
    assert check(bench.root, kind)[0] == check(bench.root, None)[0]


def test_all_of_a_sound_log_passes_elsewhere(bench: Bench) -> None:
    report, told = check(bench.root, Ranger)
    assert report == check(bench.root, None)[0]
    assert [each for each in told if each is None] == []
    assert sum(len(each.assumed) // 32 for each in told if each is not None) == 96  # whole blocks of rows


def test_a_process_looks_at_ranges(bench: Bench) -> None:
    reseal(bench, "beta", 30, {"call": 3})
    alone = checked(bench.root, no_workers)
    assert not alone.ok
    assert checked(bench.root, lambda make, given: start_workers(1, make, given)) == alone


def test_an_envelope_that_is_not_there_is_missed(bench: Bench) -> None:
    """A worker takes it to be sound, by its row; that it is among those that were read is known here alone."""
    gone = digest_of(bench.beta[20])
    with ObjectDatabase(real_host(), str(bench.root)) as objects:
        held = [(space, digest) for pack in objects.packs() for space, digest, _ in pack.locations()]
        kept = [(space, digest, objects.get(space, digest)) for space, digest in held if digest != gone]
        for path in (bench.root / "objects" / "pack").iterdir():
            path.unlink()
    with ObjectDatabase(real_host(), str(bench.root)) as objects:
        objects.publish(kept, loose_below=0)
    report, told = check(bench.root, Ranger)
    assert any(gone in each.assumed for each in told if each is not None)
    assert "missing_entry" in {each.code for each in report.findings}
    assert report == check(bench.root, None)[0]


def test_where_no_thread_can_be_had_nobody_helps(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    reseal(bench, "beta", 30, {"call": 3})
    alone = checked(bench.root, no_workers)
    refused = without_threads(monkeypatch)
    assert checked(bench.root, lambda make, given: start_workers(1, make, given)) == alone
    assert refused


@pytest.fixture(scope="module")
def copied(pristine: Bench, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Bench]:
    """Makes copies to damage."""

    def copy() -> Bench:
        root = tmp_path_factory.mktemp("copy") / "store"
        shutil.copytree(pristine.root, root)
        return pristine.at(root)

    return copy


@pytest.mark.heavy
@settings(max_examples=40, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 60), ROW_CHANGES), min_size=1, max_size=3))
def test_forged_rows_are_told_as_without_help(
    copied: Callable[[], Bench], changes: list[tuple[int, dict[str, Any]]]
) -> None:
    bench = copied()
    for at, change in changes:
        reseal(bench, "beta", at, change)
    assert check(bench.root, Ranger)[0] == check(bench.root, None)[0]
    shutil.rmtree(bench.root)


@pytest.mark.heavy
@settings(max_examples=40, deadline=None)
@given(where=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), bit=st.sampled_from([1, 16, 128]))
def test_a_flip_anywhere_is_told_as_without_help(
    copied: Callable[[], Bench], where: tuple[int, int], bit: int
) -> None:
    bench = copied()
    files = sorted(path for path in bench.root.rglob("*") if path.is_file() and path.stat().st_size)
    path = files[where[0] % len(files)]
    flip(path, where[1] % path.stat().st_size, bit)
    assert check(bench.root, Ranger)[0] == check(bench.root, None)[0]
    shutil.rmtree(bench.root)


@pytest.mark.parametrize(("type_", "body"), BODIES)
def test_forged_bodies_are_told_as_without_help(bench: Bench, type_: str, body: bytes) -> None:
    """Every hash is right, and held; what the bytes say is not."""
    with bench.store() as store:
        last = store.read("beta").entry(bench.beta[95])
    forged = Entry.of_content(body, type_, {}, last.parent, last.ts, [])
    names = digest_of(forged.id), digest_of(forged.content_hash)
    with ObjectDatabase(real_host(), str(bench.root)) as objects:
        objects.publish([(Space.ENTRIES, names[0], forged.envelope), (Space.CONTENTS, names[1], forged.content)])
    reseal(bench, "beta", 95, {"entry": names[0], "content": names[1]})
    report, told = check(bench.root, Ranger)
    assert report == check(bench.root, None)[0]
    assert {tuple(each.left) for each in told if each is not None and each.left} == {(95,)}
