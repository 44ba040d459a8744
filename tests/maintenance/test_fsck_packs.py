"""Packs read by several processes, and bodies of several parts tested as their blocks are read: the same is found."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import Store, entry
from agentsession_cas.core.pieces import Skeleton
from agentsession_cas.effects.workers import Lost, Worker, no_workers, start_workers
from agentsession_cas.maintenance import fsck_packs
from agentsession_cas.maintenance.findings import FsckReport
from agentsession_cas.maintenance.fsck_packs import PackReaders, Reading
from agentsession_cas.objects.inorder import InOrder
from tests.helpers.damage import Bench, flip
from tests.helpers.damages import DAMAGE
from tests.helpers.fsck import checked, without_threads

LIMIT_S = 60


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsck_packs, "_LARGE", 1)
    monkeypatch.setattr(fsck_packs, "_TOGETHER", 20)


class Reader:
    """A worker in this process that reads blocks; ``asked`` is what all of them were asked."""

    asked: list[Reading]

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer

    def ask(self, question: Any) -> Any:
        if not isinstance(question, Reading):
            raise Lost("another will")
        self.asked.append(question)
        return pickle.loads(pickle.dumps(self._answer(pickle.loads(pickle.dumps(question)))))

    def end(self) -> None:
        pass


class Stops(Reader):
    """One that answers once."""

    def ask(self, question: Any) -> Any:
        if self.asked:
            raise Lost("gone")
        return super().ask(question)


class Doubtful(Reader):
    """One that can never tell."""

    def ask(self, question: Any) -> Any:
        super().ask(question)


def check(root: Path, kind: type[Reader]) -> tuple[FsckReport, list[Reading]]:
    """The store checked with a worker of that kind for packs, and what it was asked."""
    asked: list[Reading] = []

    def start(make: Callable[..., Callable[[Any], Any]], given: tuple[Any, ...]) -> list[Worker]:
        worker = kind(make(*pickle.loads(pickle.dumps(given))))
        worker.asked = asked
        return [worker]

    with pytest.MonkeyPatch.context() as patch:
        if kind is Reader:  # leave all of them to it
            patch.setattr(PackReaders, "_next", lambda _, told: told.get(timeout=LIMIT_S))
        return checked(root, start), asked


def plainly(root: Path) -> FsckReport:
    """The store checked by this process alone, bodies of several parts by their pieces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InOrder, "shows", lambda *_: False)
        return checked(root, no_workers)


@pytest.fixture(scope="module")
def parted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose packs hold bodies of several parts, some pieces in a pack of their own."""
    root = tmp_path_factory.mktemp("parted") / "store"
    texts = [f"line {number} of a text that is long and said often\n" * 400 for number in range(3)]
    with Store.open(root, create=True, background=False) as store:
        for at in range(3):
            with store.create(id=f"s{at}") as session:
                for turn in range(2):
                    said = [f"{at} {turn} {number}" + texts[number % 3] for number in range(40)]
                    session.append_batch([entry.user(each) for each in said])
                    session.checkpoint()
        store.repack()
    return root


@pytest.mark.heavy
@pytest.mark.parametrize("code", DAMAGE)
def test_every_damage_is_told_as_without_help(bench: Bench, code: str) -> None:
    DAMAGE[code](bench)
    assert check(bench.root, Reader)[0] == plainly(bench.root)


@pytest.mark.parametrize("kind", [Stops, Doubtful])
def test_whatever_becomes_of_who_helps(parted: Path, kind: type[Reader]) -> None:
    assert check(parted, kind)[0] == plainly(parted)


def test_where_no_thread_can_be_had_nobody_helps(parted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the workers would be asked is done here."""
    alone = plainly(parted)
    refused = without_threads(monkeypatch)
    assert checked(parted, lambda make, given: start_workers(1, make, given)) == alone
    assert refused


def test_bodies_are_sound_as_their_blocks_are_read(parted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[bool] = []
    shows = InOrder.shows

    def look(self: InOrder, skeleton: Skeleton) -> bool:
        shown.append(shows(self, skeleton))
        return shown[-1]

    monkeypatch.setattr(InOrder, "shows", look)
    report, asked = check(parted, Reader)
    assert report.findings == []
    assert asked
    assert shown
    assert all(shown)


def test_a_process_reads_packs(parted: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(parted, root)
    pack = max((root / "objects" / "pack").glob("*.pack"), key=lambda path: path.stat().st_size)
    flip(pack, pack.stat().st_size // 3)
    alone = plainly(root)
    assert not alone.ok
    assert checked(root, lambda make, given: start_workers(1, make, given)) == alone


@pytest.mark.heavy
@settings(max_examples=60, deadline=None)
@given(where=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), bit=st.sampled_from([1, 16, 128]))
def test_a_flip_in_any_pack_is_told_as_without_help(parted: Path, where: tuple[int, int], bit: int) -> None:
    files = sorted((parted / "objects").rglob("*"))
    files = [path for path in files if path.is_file() and path.stat().st_size]
    path = files[where[0] % len(files)]
    whole = path.read_bytes()
    try:
        flip(path, where[1] % len(whole), bit)
        assert check(parted, Reader)[0] == plainly(parted)
    finally:
        path.write_bytes(whole)
