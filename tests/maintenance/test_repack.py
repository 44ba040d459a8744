"""repack of whole stores: nothing a session says changes, packs stay few, and no crash or stop loses anything."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import Store, entry
from agentsession_cas.core.packformat import Grade, Space
from agentsession_cas.effects.host import Host
from agentsession_cas.effects.pace import Rest
from agentsession_cas.errors import AgentSessionError, ReadOnly, StoreLocked
from agentsession_cas.maintenance import repack as repacking
from agentsession_cas.maintenance.repack import Facts, geometric, tidy
from agentsession_cas.objects import training
from agentsession_cas.sessions import writer as writing
from agentsession_cas.testing.simfs import Sim
from tests.helpers.crashes import Unseen, cuts, deaf
from tests.helpers.stores import Lines, lines_of, opened
from tools.corpus import fill, scripts


def grades(store: Store) -> list[Grade]:
    return sorted(pack.grade() for pack in store.objects.packs())


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Lines]:
    """Six sessions, one of them a fork, in several packs and some loose objects."""
    root = tmp_path_factory.mktemp("filled") / "store"
    with Store.open(root, create=True, background=False) as store:
        for name in fill(store, scripts(5, 90, seed=4)):
            with store.open_session(name) as session:
                session._writer.checkpoint()
        first = store.session_ids()[0]
        with store.fork(first, store.read(first).entry(store.read(first).leaf).id, id="fork") as fork:
            fork.append_batch([entry.user(f"again {n}") for n in range(5)])
            fork.checkpoint()
        return root, lines_of(store)


@pytest.fixture
def copied(filled: tuple[Path, Lines], tmp_path: Path) -> Path:
    root = tmp_path / "store"
    for path in sorted(filled[0].rglob("*")):
        target = root / path.relative_to(filled[0])
        if path.is_dir():
            target.mkdir(parents=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    (root / "tmp").mkdir(exist_ok=True)
    return root


# --- the plan --------------------------------------------------------------------------------------------------------


def facts(sizes: list[int], grade: Grade = Grade.EVERYDAY) -> list[Facts]:
    return [Facts(f"{grade.name}-{at}", grade, size, 10) for at, size in enumerate(sizes)]


def is_geometric(sizes: list[int]) -> bool:
    sizes = sorted(sizes)
    return all(size >= 2 * sum(sizes[:at]) for at, size in enumerate(sizes))


@given(st.lists(st.integers(1, 10_000), max_size=12), st.lists(st.integers(1, 500), max_size=12), st.integers(1, 9))
@settings(max_examples=300, deadline=None)
def test_a_merge_leaves_what_needs_no_other(own: list[int], fresh: list[int], due: int) -> None:
    packs = facts(own) + facts(fresh, Grade.FRESH) + facts([77], Grade.ARCHIVE)
    chosen = [each for each in packs if each.stem in geometric(packs, Grade.EVERYDAY, fresh_due=due)]
    assert not any(each.grade is Grade.ARCHIVE for each in chosen)
    if len(fresh) >= due:
        assert {each.stem for each in chosen} >= {each.stem for each in facts(fresh, Grade.FRESH)}
    else:
        assert not any(each.grade is Grade.FRESH for each in chosen)
        assert bool(chosen) is not is_geometric(own)
    left = [each for each in packs if each not in chosen]
    if chosen:
        left.append(Facts("new", Grade.EVERYDAY, sum(each.size for each in chosen), 10))
    assert is_geometric([each.size for each in left if each.grade is Grade.EVERYDAY])
    assert geometric(left, Grade.EVERYDAY, fresh_due=due) == []


def test_packs_stay_few_and_bytes_are_seldom_copied() -> None:
    chance = random.Random(1)
    packs: list[Facts] = []
    copied = total = 0
    for at in range(8_000):
        size = chance.randrange(50, 150)
        total += size
        packs.append(Facts(f"fresh-{at}", Grade.FRESH, size, 10))
        stems = set(geometric(packs, Grade.EVERYDAY, fresh_due=repacking.FRESH_DUE))
        if stems:
            merged = sum(each.size for each in packs if each.stem in stems)
            copied += merged
            packs = [each for each in packs if each.stem not in stems]
            packs.append(Facts(f"pack-{at}", Grade.EVERYDAY, merged, 10))
        assert len(packs) <= repacking.FRESH_DUE + 12
    assert copied < 12 * total


@pytest.mark.parametrize("at_once", [1, 7, 40])
def test_a_bulk_build_is_copied_seldom_too(at_once: int) -> None:
    """Packs of a bulk build are many bytes together: they are not compressed anew, and yet few."""
    packs: list[Facts] = []
    copied = total = 0
    for at in range(600):
        packs += [Facts(f"fresh-{at}-{k}", Grade.FRESH, 4 << 20, 10) for k in range(at_once)]
        total += at_once * (4 << 20)
        grade, stems = repacking._due(packs, 1 << 62)
        if stems:
            assert grade is Grade.FRESH
            merged = sum(each.size for each in packs if each.stem in stems)
            copied += merged
            packs = [each for each in packs if each.stem not in stems] + [Facts(f"pack-{at}", grade, merged, 10)]
            assert is_geometric([each.size for each in packs])
            assert repacking._due(packs, 1 << 62) == (Grade.EVERYDAY, [])
        assert len(packs) <= repacking.FRESH_DUE + 12
    assert copied < 12 * total


@pytest.mark.parametrize(("size", "stays"), [(repacking.RECODED_MAX - 1, False), (repacking.RECODED_MAX, True)])
def test_what_came_of_a_merge_of_many_bytes_counts_as_no_fresh_pack(size: int, stays: bool) -> None:
    packs = [*facts([9] * (repacking.FRESH_DUE - 1), Grade.FRESH), Facts("merged", Grade.FRESH, size, 10)]
    assert (repacking._due(packs, 1 << 62)[1] == []) is stays


def test_a_large_pack_is_left_alone() -> None:
    packs = facts([100, 100, 10_000]) + facts([5] * 8, Grade.FRESH)
    assert "EVERYDAY-2" not in geometric(packs, Grade.EVERYDAY, fresh_due=8, size_max=10_000)
    assert geometric(facts([10_000, 10_000]), Grade.EVERYDAY, fresh_due=8, size_max=10_000) == []


def test_no_pack_gets_more_objects_than_it_has_numbers_for() -> None:
    packs = [Facts(f"{at}", Grade.FRESH, 1, 3_000_000) for at in range(9)]
    assert len(geometric(packs, Grade.EVERYDAY, fresh_due=1)) == 2


# --- what it does ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("all_", [False, True])
def test_sessions_are_the_same_afterwards(copied: Path, filled: tuple[Path, Lines], all_: bool) -> None:
    with Store.open(copied, background=False) as store, Store.open(copied, read_only=True) as beside:
        assert lines_of(beside) == filled[1]
        before = store.stats()
        report = store.repack(all_)
        after = store.stats()
        assert (report.packs_before, report.packs) == (before["objects"]["packs"], after["objects"]["packs"])
        assert (report.bytes_before, report.bytes) == (before["bytes"]["packs"], after["bytes"]["packs"])
        assert report.loose == before["objects"]["loose"] > 0
        assert after["objects"]["loose"] == 0
        assert set(grades(store)) == {Grade.ARCHIVE if all_ else Grade.EVERYDAY}
        assert after["bytes"]["logical"] == before["bytes"]["logical"]
        assert after["bytes"]["disk"] < before["bytes"]["disk"]
        assert lines_of(store) == filled[1]
        assert lines_of(beside) == filled[1]
        assert store.fsck().findings == []
    with Store.open(copied) as again:
        assert lines_of(again) == filled[1]


@pytest.mark.parametrize("all_", [False, True])
def test_again_changes_nothing(copied: Path, all_: bool) -> None:
    with Store.open(copied, background=False) as store:
        store.repack(all_)
        names = sorted(copied.rglob("*"))
        report = store.repack(all_)
        assert (report.written, report.removed) == ([], [])
        assert sorted(copied.rglob("*")) == names


def test_one_after_the_other(copied: Path, filled: tuple[Path, Lines]) -> None:
    """What comes after an archive is kept apart until it is archived too."""
    lines = dict(filled[1])
    with Store.open(copied, background=False) as store:
        store.repack(True)
        for round_ in range(3):
            with store.create(id=f"later-{round_}") as session:
                session.append_batch([entry.user(f"{round_} {n} " * 9) for n in range(80)])
                session._writer.checkpoint()
            lines[f"later-{round_}"] = [each.line for each in store.read(f"later-{round_}")]
            store.repack(round_ == 2)
            if round_ < 2:
                assert set(grades(store)) == {Grade.ARCHIVE, Grade.EVERYDAY}
        assert set(grades(store)) == {Grade.ARCHIVE}
        assert lines_of(store) == lines
        assert store.fsck().findings == []


def test_the_archive_has_sessions_in_their_order(copied: Path) -> None:
    with Store.open(copied, background=False) as store:
        store.repack(True)
        lying = [place.digest for place in store.objects.iterate(Space.ENTRIES)]
        for name in store.session_ids():
            source = store.read(name).source
            own = [source.entry_id(at) for at in range(source.base_count, len(source))]
            places = [lying.index(bytes.fromhex(each.removeprefix("sha256:"))) for each in own]
            assert places == list(range(places[0], places[0] + len(own)))


@pytest.mark.parametrize("all_", [False, True])
def test_progress_comes_to_its_end(copied: Path, all_: bool) -> None:
    told: list[tuple[int, int]] = []
    with Store.open(copied, background=False) as store:
        store.repack(all_, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert len({total for _, total in told}) == 1
    assert told[-1][0] == told[-1][1] > 0


def test_objects_of_no_session_are_kept(copied: Path) -> None:
    with Store.open(copied, background=False) as store:
        store.delete("fork")
        before = {(place.space, place.digest) for place in store.objects.iterate()}
        for all_ in (False, True):
            store.repack(all_)
            assert {(place.space, place.digest) for place in store.objects.iterate()} == before


def test_a_damaged_session_costs_its_order_alone(copied: Path, filled: tuple[Path, Lines]) -> None:
    with Store.open(copied, background=False) as store:
        held = {(place.space, place.digest) for place in store.objects.iterate()}
        Path(store.layout.session_dir("fork"), "journal").unlink()
        store.repack(True)
        rest = {name: lines for name, lines in filled[1].items() if name != "fork"}
        assert {name: [each.line for each in store.read(name)] for name in rest} == rest
        assert {(place.space, place.digest) for place in store.objects.iterate()} == held


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)


def readable(store: Store, wanted: Lines) -> set[tuple[str, int]]:
    """The entries of each session that read."""
    found: set[tuple[str, int]] = set()
    for name, lines in wanted.items():
        session = store.read(name)
        for at, each in enumerate(session):
            with suppress(AgentSessionError):
                assert each.line == lines[at]
                found.add((name, at))
    return found


@pytest.mark.parametrize("all_", [False, True])
def test_a_pack_that_does_not_read_is_kept(copied: Path, filled: tuple[Path, Lines], all_: bool) -> None:
    bad = sorted(copied.glob("objects/pack/*.pack"))[0]
    spoil(bad)
    with Store.open(copied, background=False) as store:
        before = readable(store, filled[1])
        report = store.repack(all_)
        assert report.kept == [bad.stem]
        assert bad.exists()
        assert len(grades(store)) == 2
        assert readable(store, filled[1]) == before
        assert len(before) < sum(map(len, filled[1].values()))


def test_what_can_be_made_anew_is(copied: Path) -> None:
    with Store.open(copied, background=False) as store:
        store.repack()
        [idx] = copied.glob("objects/pack/*.idx")
        whole = idx.read_bytes()
        bare = idx.with_name(f"pack-{'0' * 64}.idx")
        young = idx.with_name(f"pack-{'1' * 64}.idx")
        for spoil in (idx.unlink, lambda: idx.write_bytes(whole[:-1]), lambda: idx.write_bytes(b"?")):
            spoil()
            bare.write_bytes(b"?")
            young.write_bytes(b"?")
            os.utime(bare, (1, 1))
            store.repack()
            assert idx.read_bytes() == whole
            assert not bare.exists()
            assert young.exists()


def test_read_only(copied: Path) -> None:
    with Store.open(copied, read_only=True) as store, pytest.raises(ReadOnly):
        store.repack()


# --- dictionaries ----------------------------------------------------------------------------------------------------


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dictionaries are trained of little."""
    for name, value in {
        "EVERYDAY_SIZE": 4096,
        "EVERYDAY_DUE": 1,
        "SAMPLES_MIN": 1,
        "ARCHIVE_DUE": 1,
        "ARCHIVE_SIZES": (6000, 9000),
    }.items():
        monkeypatch.setattr(training, name, value)


def dictionaries(root: Path) -> set[str]:
    return {path.name for path in root.glob("objects/dict/*")}


@pytest.mark.usefixtures("eager")
def test_dictionaries_come_and_go(copied: Path, filled: tuple[Path, Lines]) -> None:
    with Store.open(copied, background=False) as store:
        store.repack()
        everyday = dictionaries(copied)
        assert {name.partition(".")[2] for name in everyday} == {"zdict", "spare"}
        used = {number for pack in store.objects.packs() for number in pack.index().table.dictionaries()}
        assert {f"{number:08x}.{ending}" for number in used for ending in ("zdict", "spare")} == everyday
        assert lines_of(store) == filled[1]
        store.repack(True)
        assert dictionaries(copied)
        assert not dictionaries(copied) & everyday
        assert lines_of(store) == filled[1]
        assert store.fsck().findings == []


@pytest.mark.usefixtures("eager")
def test_an_everyday_dictionary_may_be_as_large_as_allowed(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(copied, background=False) as store:
        store.repack()
        [path] = copied.glob("objects/dict/*.zdict")
        moves, number = store.objects.consolidator(nullcontext), int(path.stem, 16)
        monkeypatch.setattr(training, "EVERYDAY_SIZE", moves.dictionaries.size(number))
        assert training._numbers(moves, everyday=True) == [number]
        assert training._numbers(moves, everyday=False) == []


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("lost", ["zdict", "spare"])
def test_one_copy_of_a_dictionary_is_enough(copied: Path, filled: tuple[Path, Lines], lost: str) -> None:
    with Store.open(copied, background=False) as store:
        store.repack(True)
    [path] = copied.glob(f"objects/dict/*.{lost}")
    whole = path.read_bytes()
    for spoil in (path.unlink, lambda: path.write_bytes(b"rot"), lambda: path.write_bytes(whole[:99])):
        spoil()
        with Store.open(copied, background=False) as store:
            assert lines_of(store) == filled[1]
            assert [finding.code for finding in store.fsck().findings] == ["dictionary_copy"]
            store.repack()
            assert path.read_bytes() == whole
            assert store.fsck().findings == []


@pytest.mark.usefixtures("eager")
def test_a_dictionary_without_a_copy_is_said(copied: Path) -> None:
    with Store.open(copied, background=False) as store:
        store.repack(True)
    for path in copied.glob("objects/dict/*"):
        path.write_bytes(b"rot")
    with Store.open(copied, background=False) as store:
        codes = {finding.code for finding in store.fsck().findings}
        assert codes >= {"corrupt_dictionary", "corrupt_block", "missing_content"}
        packs = sorted(copied.glob("objects/pack/*"))
        store.repack()
        assert sorted(copied.glob("objects/pack/*")) == packs


# --- by itself -------------------------------------------------------------------------------------------------------


def with_fresh_packs(store: Store, count: int) -> None:
    with store.create(id="many") as session:
        for k in range(count):
            session.append_batch([entry.user(f"{k} {n} " * 20) for n in range(40)])
            session._writer.checkpoint()


def tidied(store: Store, go_on: Callable[[], bool] = lambda: True) -> None:
    tidy(store.layout, store.objects, go_on, thorough=True)


def test_packs_are_merged_once_there_are_enough() -> None:
    with Store.memory() as store:
        with_fresh_packs(store, repacking.FRESH_DUE - 1)
        tidied(store)
        assert grades(store) == [Grade.FRESH] * (repacking.FRESH_DUE - 1)
        lines = lines_of(store)
        with store.open_session("many") as session:
            session.append_batch([entry.user(f"more {n}") for n in range(40)])
            session._writer.checkpoint()
        tidied(store)
        assert grades(store) == [Grade.EVERYDAY]
        assert lines_of(store)["many"][:-40] == lines["many"]


def test_loose_objects_are_packed_once_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repacking, "LOOSE_DUE", 1)
    with Store.memory() as store:
        for k in range(80):
            with store.create(id=f"small-{k}") as session:
                session.append_batch([entry.user(f"{k} {n}") for n in range(10)])
                session._writer.checkpoint()
        lines = lines_of(store)
        assert store.stats()["objects"]["packs"] == 0
        tidied(store)
        assert store.stats()["objects"] == {"loose": 0, "packed": 1600, "packs": 1}
        assert lines_of(store) == lines


def test_a_pack_that_does_not_read_is_tried_once() -> None:
    with Store.memory() as store:
        with_fresh_packs(store, repacking.FRESH_DUE + 1)
        bad = store.objects.packs()[0]
        file = store.layout.host.fs.open(bad.path, write=True)
        file.pwrite(b"rot", 40)
        file.close()
        tidied(store)
        assert len(grades(store)) == repacking.FRESH_DUE + 1
        tidied(store)
        assert grades(store) == [Grade.FRESH, Grade.EVERYDAY]


def test_a_stop_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repacking, "SLICE_S", 0.0)
    with Store.memory() as store:
        with_fresh_packs(store, repacking.FRESH_DUE)
        asked = [0]

        def go_on() -> bool:
            asked[0] += 1
            return asked[0] < 5

        names = store.layout.host.fs.listdir(f"{store.root}/objects/pack")
        tidied(store, go_on)
        assert asked[0] == 5
        assert store.layout.host.fs.listdir(f"{store.root}/objects/pack") == names
        assert store.layout.host.fs.listdir(f"{store.root}/tmp") == []
        tidied(store)
        assert grades(store) == [Grade.EVERYDAY]


def test_one_repack_at_a_time() -> None:
    with Store.memory() as store:
        with_fresh_packs(store, repacking.FRESH_DUE)
        other = store.layout.host.fs.lock(f"{store.root}/locks/repack", exclusive=True, note="somebody")
        assert other is not None
        with pytest.raises(StoreLocked, match="somebody"):
            store.repack()
        tidied(store)
        assert len(grades(store)) == repacking.FRESH_DUE
        other.release()
        tidied(store)
        assert len(grades(store)) == 1


def test_a_sweep_that_holds_the_store_is_not_waited_for() -> None:
    with Store.memory() as store:
        with_fresh_packs(store, repacking.FRESH_DUE)
        sweep = store.layout.host.fs.lock(f"{store.root}/locks/store", exclusive=True)
        assert sweep is not None
        tidied(store)
        assert len(grades(store)) == repacking.FRESH_DUE
        assert store.layout.host.fs.listdir(f"{store.root}/tmp") == []
        sweep.release()


def test_the_checkpoint_thread_keeps_packs_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "CHECKPOINT_BYTES", 40_000)
    with Store.open(tmp_path / "store", create=True) as store:
        with store.create(id="long") as session:
            for n in range(2000):
                session.append(entry.user(f"{n} " * 150))
                if n % 50 == 49 and session._writer._thread is not None:
                    session._writer._thread.join()
        assert len(grades(store)) < repacking.FRESH_DUE + 4
        assert Grade.EVERYDAY in grades(store)
        assert len(store.read("long")) == 2000
        assert store.fsck().findings == []


def test_a_release_does_not_wait_for_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread is told, gives up what it began, and nothing is lost."""
    monkeypatch.setattr(writing, "CHECKPOINT_BYTES", 40_000)
    monkeypatch.setattr(repacking, "FRESH_DUE", 1)
    monkeypatch.setattr(repacking, "SLICE_S", 0.0)
    monkeypatch.setattr(repacking, "PAUSE_S", 0.001)
    with Store.open(tmp_path / "store", create=True) as store:
        for k in range(5):
            with store.create(id=f"short-{k}") as session:
                for n in range(120):
                    session.append(entry.user(f"{n} " * 150))
        assert list((tmp_path / "store" / "tmp").iterdir()) == []
        assert [len(store.read(f"short-{k}")) for k in range(5)] == [120] * 5
        assert store.fsck().findings == []


def test_a_release_merges_what_short_lived_processes_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "RELEASE_BYTES", 10_000)
    for k in range(20):
        with Store.open(tmp_path / "store", create=True) as store, store.create(id=f"short-{k}") as session:
            session.append_batch([entry.user(f"{k} {n} " * 20) for n in range(40)])
    with Store.open(tmp_path / "store") as store:
        assert len(grades(store)) < repacking.FRESH_DUE + 3
        assert len(lines_of(store)) == 20
        assert store.fsck().findings == []


def test_a_bulk_build_leaves_few_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repacking, "RECODED_MAX", 8_000)
    checkpoints = 64
    with Store.open(tmp_path / "store", create=True) as store:
        with store.create(id="long") as session:
            for k in range(checkpoints):
                session.append_batch([entry.user(f"{k} {n} {k * 7919 + n * 104729} " * 2) for n in range(35)])
                session.checkpoint()
                assert len(grades(store)) <= repacking.FRESH_DUE + (k + 1).bit_length()
        assert max(pack.index().pack_size for pack in store.objects.packs()) > 8 * 8_000
        assert Grade.EVERYDAY not in grades(store)
        assert len(store.read("long")) == checkpoints * 35
        assert store.fsck().findings == []


@pytest.mark.parametrize("grade", [Grade.FRESH, Grade.EVERYDAY])
def test_what_comes_during_a_merge_is_merged_too(monkeypatch: pytest.MonkeyPatch, grade: Grade) -> None:
    """Whoever made it found the lock taken."""
    monkeypatch.setattr(repacking, "SLICE_S", 0.0)
    with Store.memory() as store:
        with_fresh_packs(store, repacking.FRESH_DUE)
        if grade is Grade.FRESH:  # not small together
            size = max(pack.index().pack_size for pack in store.objects.packs())
            monkeypatch.setattr(repacking, "RECODED_MAX", 2 * size)
        to_come = list(range(20))
        with store.open_session("many") as session:

            def go_on() -> bool:
                if to_come:
                    k = to_come.pop()
                    session.append_batch([entry.user(f"late {k} {n} " * 20) for n in range(40)])
                    session.checkpoint()
                return True

            tidied(store, go_on)
        assert not to_come
        assert len(grades(store)) < repacking.FRESH_DUE
        assert grade in grades(store)
        assert len(store.read("many")) == (repacking.FRESH_DUE + 20) * 40


def test_a_release_that_cuts_a_merge_off_leaves_few_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merging = Event()

    def held_up(writer: writing.Writer) -> bool:
        merging.set()
        writer._release.wait()
        return False

    monkeypatch.setattr(writing, "CHECKPOINT_BYTES", 40_000)
    monkeypatch.setattr(writing.Writer, "_may_go_on", held_up)
    monkeypatch.setattr(repacking, "SLICE_S", 0.0)
    with Store.open(tmp_path / "store", create=True) as store:
        with_fresh_packs(store, repacking.FRESH_DUE)
        with store.open_session("many") as session:
            session.append_batch([entry.user(f"last {n} " * 150) for n in range(80)])
            assert merging.wait(60.0)
            assert len(grades(store)) > repacking.FRESH_DUE
        assert grades(store) == [Grade.EVERYDAY]
        assert store.fsck().findings == []


def test_a_merge_has_as_long_as_the_checkpoints_within(monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast appends come: a checkpoint is always due here."""
    sim, spans = Sim(), list[tuple[float, float]]()
    clock, sound = sim.host.clock, writing.Writer.tidy

    def slow(writer: writing.Writer, rest: Rest) -> None:
        began = clock.monotonic()
        sound(writer, rest)
        clock.sleep(1.0)
        spans.append((began, clock.monotonic()))

    monkeypatch.setattr(writing.Writer, "tidy", slow)
    monkeypatch.setattr(writing, "CHECKPOINT_BYTES", 1)
    monkeypatch.setattr(repacking, "SLICE_S", 0.0)
    monkeypatch.setattr(repacking, "PAUSE_S", 0.2)
    with Store.open("/store", create=True, host=sim.host, background=False) as store:
        with_fresh_packs(store, repacking.FRESH_DUE)
        with store.open_session("many") as session:
            writer = session._writer

            def go_on() -> bool:
                session.append(entry.user("more"))
                with writer._turns.taken(writer._release):
                    return writer._may_go_on()

            tidied(store, go_on)
            assert len(spans) > 2
            assert all(begun - ended >= ended - began for (began, ended), (begun, _) in pairwise(spans))
        assert Grade.EVERYDAY in grades(store)


# --- crashes ---------------------------------------------------------------------------------------------------------


def machine() -> tuple[Sim, Lines]:
    """A store with two sessions in three packs and loose objects, everything durable."""
    sim = Sim()
    with Store.open("/store", create=True, host=sim.host, background=False) as store:
        for name, counts in {"a": (40, 40), "b": (40, 3)}.items():
            with store.create(id=name) as session:
                for count in counts:
                    session.append_batch([entry.user(f"{name} {n} " * 30) for n in range(count)])
                    session._writer.checkpoint()
        return sim, lines_of(store)


def whole(host: Host, lines: Lines) -> bool:
    with opened(host) as store:
        try:
            return lines_of(store) == lines
        except AgentSessionError:
            return False


def both(host: Host) -> None:
    with opened(host) as store:
        store.repack()
        store.repack(True)


@pytest.mark.heavy
@pytest.mark.usefixtures("eager")
def test_power_cut_at_every_effect() -> None:
    sim, lines = machine()
    seen, unjudged, unfinished = 0, Unseen(), Unseen()
    for _, cut in cuts(sim, lambda: both(sim.host)):
        images = list(cut.images(6, tear=True))
        seen += len(images)
        last = list(unfinished.of(images[-1:]))
        for image in unjudged.of(images):
            assert whole(image.host, lines)
        for image in last:
            both(image.host)
            with opened(image.host) as store:
                assert lines_of(store) == lines
                assert set(grades(store)) == {Grade.ARCHIVE}
                assert {each.severity for each in store.fsck().findings} <= {"note"}
    assert seen > 100


@pytest.mark.heavy
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "left_out",
    [{"directories": "objects/pack"}, {"directories": "objects/dict"}, {"directories": "objects"}, {"files": "/tmp/"}],
    ids=lambda left_out: "".join(left_out.values()),
)
def test_a_sync_left_out_is_caught(left_out: dict[str, str]) -> None:
    sim, lines = machine()
    host = replace(sim.host, fs=deaf(sim.host.fs, **left_out))
    images = (image for _, cut in cuts(sim, lambda: both(host)) for image in cut.images(20, tear=True))
    assert not all(whole(image.host, lines) for image in Unseen().of(images))
