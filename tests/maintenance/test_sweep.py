"""sweep and gc: what is needed stays, what is not and is old goes, and nobody notices."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest

from agentsession_cas import RefTarget, Store, entry
from agentsession_cas.core.marks import mark_of_key
from agentsession_cas.core.packformat import Grade, Space
from agentsession_cas.core.packindex import key_of
from agentsession_cas.errors import Corrupt, Damaged, NoBlob, NoObject, ReadOnly, StoreLocked
from agentsession_cas.layout import Layout
from agentsession_cas.maintenance import sweep as sweeping
from agentsession_cas.maintenance import sweep_plan
from agentsession_cas.maintenance.sweep_roots import Needs, Roots
from agentsession_cas.sessions.reflog import SEGMENT_SIZE
from agentsession_cas.testing.simfs import Sim
from tests.helpers.stores import lines_of, opened

DAY = 86400.0


def held(store: Store) -> set[tuple[Space, bytes]]:
    return {(place.space, place.digest) for place in store.objects.iterate()}


def needed(store: Store) -> set[tuple[Space, bytes]]:
    """What the sessions there are need, told by reading them whole."""
    found: set[tuple[Space, bytes]] = set()
    for name in store.session_ids():
        for each in store.read(name):
            found.add((Space.ENTRIES, bytes.fromhex(each.id[7:])))
            found.add((Space.CONTENTS, bytes.fromhex(each.content_hash[7:])))
    return found


def write(store: Store, name: str, count: int, mark: str = "") -> None:
    """Append and checkpoint: more than 64 objects make a pack, fewer lie loose."""
    writer = store.open_session(name) if store.holds(name) else store.create(id=name)
    with writer as session:
        session.append_batch([entry.user(f"{name} {mark} {n} " * 30) for n in range(count)])
        session.checkpoint()


@pytest.fixture
def sim() -> Sim:
    return Sim()


@pytest.fixture
def store(sim: Sim) -> Iterator[Store]:
    with opened(sim.host, create=True) as store:
        write(store, "a", 40)
        write(store, "b", 40)
        write(store, "c", 3)
        yield store


def image(store: Store, data: bytes = b"picture" * 50) -> tuple[str, dict[str, object]]:
    """A blob put in the store, and the item that names it."""
    name = store.put_blob(data)
    part = {"type": "input_image", "image_url": f"sidecar:{name}"}
    return name, {"type": "item", "item": {"type": "message", "role": "user", "content": [part]}}


# --- what goes -------------------------------------------------------------------------------------------------------


def test_nothing_goes_that_is_needed(store: Store) -> None:
    before = lines_of(store), held(store)
    report = store.sweep(0)
    assert (report.objects, report.removed, report.rewritten) == (0, [], [])
    assert (lines_of(store), held(store)) == before


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_not_needed_goes(store: Store, packed: bool) -> None:
    if packed:
        store.repack(True)
    store.delete("a")
    store.delete("c")
    lines, wanted = lines_of(store), needed(store)
    dead = held(store) - wanted
    foreseen = store.sweep(0, dry_run=True)
    assert held(store) == dead | wanted
    report = store.sweep(0)
    assert report.objects == foreseen.objects == len(dead) == 86
    assert (report.loose, report.removed, report.rewritten) == (foreseen.loose, foreseen.removed, foreseen.rewritten)
    assert (report.loose, len(report.removed), len(report.rewritten)) == ((0, 0, 1) if packed else (6, 1, 0))
    assert (held(store), lines_of(store)) == (wanted, lines)
    assert store.fsck().findings == []
    assert store.sweep(0).objects == 0


@pytest.mark.parametrize("all_", [False, True])
def test_a_pack_that_is_written_anew_keeps_its_kind(store: Store, all_: bool) -> None:
    write(store, "d", 300)
    store.repack(all_)
    store.delete("b")
    store.sweep(0)
    assert [pack.grade() for pack in store.objects.packs()] == [Grade.ARCHIVE if all_ else Grade.EVERYDAY]
    assert (held(store), store.fsck().findings) == (needed(store), [])


def test_every_branch_is_kept(store: Store) -> None:
    with store.open_session("a") as session:
        old = session.leaf
        session.set_head(old, session.source.entry_id(3))
        session.append_batch([entry.user(f"another way {n}") for n in range(70)])
        session.checkpoint()
        session.set_head(session.leaf, "")
    before = held(store)
    assert store.sweep(0).objects == 0
    assert held(store) == before


def test_what_lies_in_a_journal_is_kept(store: Store) -> None:
    """Of a session that was checkpointed, deleted, and whose entries another holds in its journal."""
    writer = store.create(id="twin")
    for each in store.read("c"):
        writer.append({"type": each.type, **each.body, "ts": each.ts})
    assert [each.id for each in store.read("twin")] == [each.id for each in store.read("c")]
    store.delete("c")
    assert store.sweep(0).objects == 0
    writer.close()


def test_the_path_above_a_fork_is_kept(store: Store) -> None:
    base = store.read("a").source.entry_id(9)
    store.fork("a", base, id="f").close()
    store.fork("f", base, id="g").close()
    lines = lines_of(store)
    store.delete("a")
    store.sweep(0)
    assert (lines_of(store)["f"], held(store)) == (lines["f"], needed(store))
    store.delete("f")
    store.sweep(0)
    assert (lines_of(store)["g"], held(store)) == (lines["g"], needed(store))
    store.delete("g")
    store.sweep(0)
    assert held(store) == needed(store)


def test_the_path_above_a_pin_is_kept(store: Store) -> None:
    kept = [each.line for each in store.read("a")][:10]
    pin = store.read("a").source.entry_id(9)
    store.update_ref("keep", None, RefTarget("a", pin))
    store.delete("a")
    store.sweep(0)
    assert len(held(store) - needed(store)) == 2 * len(kept)
    store.update_ref("keep", RefTarget("a", pin), None)
    store.sweep(0)
    assert held(store) == needed(store)


def test_blobs_follow_the_bodies_that_name_them(store: Store) -> None:
    name, item = image(store)
    with store.create(id="pictures", media="sidecar") as session:
        session.append(item)
        assert store.sweep(0).objects == 0
        session.checkpoint()
        leaf = session.leaf
    assert store.sweep(0).objects == 0
    store.fork("pictures", leaf, id="f").close()
    store.delete("pictures")
    assert store.sweep(0).objects == 0
    assert store.blob(name)
    store.delete("f")
    assert store.sweep(0).objects == 3
    with pytest.raises(NoBlob):
        store.blob(name)


def lose(store: Store, space: Space, name: str) -> None:
    """Take a loose object away behind everybody's back."""
    store.layout.host.fs.unlink(store.objects.loose_path(space, bytes.fromhex(name[7:])))


def test_a_missing_blob_is_legal(store: Store) -> None:
    name, item = image(store)
    store.put_blob(b"another")
    with store.create(id="pictures", media="sidecar") as session:
        session.append(item)
        session.checkpoint()
    lose(store, Space.MEDIA, name)
    assert store.sweep(0).objects == 1


def test_a_blob_that_comes_after_its_name_is_kept(store: Store) -> None:
    """The store has no blob while sessions are marked, and gets one that a body names before anything is deleted."""
    name, item = image(store)
    with store.create(id="pictures", media="sidecar") as session:
        session.append(item)
        session.checkpoint()
    lose(store, Space.MEDIA, name)
    write(store, "dead", 40)
    store.delete("dead")

    def put(done: int, total: int) -> None:
        if done == total == 256:
            image(store)

    assert store.sweep(0, progress=put).objects == 80
    assert store.blob(name)


LONG = "a large string " * 400


@pytest.mark.parametrize("size", [1, 40])
def test_pieces_follow_the_bodies_that_need_them(store: Store, size: int) -> None:
    """Bodies of two sessions share one; it goes with the last of them, in one sweep, from packs and from files."""
    for name in ("one", "two"):
        with store.create(id=name) as session:
            session.append_batch([entry.user(f"{name} {n}") for n in range(size)])
            session.append_batch([entry.user(LONG), entry.assistant(LONG)])
            session.checkpoint()
    pieces = [place for place in store.objects.iterate() if place.space is Space.PIECES]
    assert len({place.digest for place in pieces}) == 1
    assert store.sweep(0).objects == 0
    store.delete("one")
    store.sweep(0)
    assert [each.line for each in store.read("two")]
    assert store.fsck().findings == []
    store.delete("two")
    foreseen = store.sweep(0, dry_run=True).objects
    assert store.sweep(0).objects >= foreseen
    assert (held(store), store.fsck().findings) == (needed(store), [])


def test_a_young_body_keeps_its_old_pieces(store: Store, sim: Sim) -> None:
    with store.create(id="old") as session:
        session.append(entry.user(LONG))
        session.checkpoint()
    sim.clock.advance(20 * DAY)
    with store.create(id="young") as session:
        session.append(entry.assistant(LONG))
        session.checkpoint()
    store.delete("old")
    store.delete("young")
    assert store.sweep().young == 2
    assert [finding.code for finding in store.fsck().findings] == ["dangling_object"] * 3
    sim.clock.advance(20 * DAY)
    assert store.sweep().objects == 3


# --- grace -----------------------------------------------------------------------------------------------------------


def test_what_is_young_stays(store: Store, sim: Sim) -> None:
    store.delete("a")
    store.delete("c")
    before = held(store)
    sim.clock.advance(14 * DAY - 60)
    assert (store.sweep().objects, store.sweep().young) == (0, 86)
    assert held(store) == before
    sim.clock.advance(120)
    assert store.sweep().objects == 86


def test_a_blob_put_again_is_young(store: Store, sim: Sim) -> None:
    name = store.put_blob(b"a picture")
    sim.clock.advance(13 * DAY)
    store.put_blob(b"a picture")
    sim.clock.advance(13 * DAY)
    assert (store.sweep().young, store.blob(name)) == (1, b"a picture")
    sim.clock.advance(2 * DAY)
    assert store.sweep().objects == 1


def test_a_blob_in_a_pack_put_again_is_young(store: Store, sim: Sim) -> None:
    data = b"a picture"
    name = store.put_blob(data)
    lose(store, Space.MEDIA, name)
    with opened(sim.host) as fresh:
        fresh.objects.publish([(Space.MEDIA, bytes.fromhex(name[7:]), data)], loose_below=0)
    sim.clock.advance(20 * DAY)
    store.put_blob(data)
    store.sweep()
    assert store.blob(name) == data


# --- what stops it ---------------------------------------------------------------------------------------------------


def test_nothing_goes_while_a_body_is_missing(store: Store) -> None:
    store.delete("a")
    before = held(store)
    lost = store.read("c").entry(store.read("c").leaf).content_hash
    lose(store, Space.CONTENTS, lost)
    with pytest.raises(NoObject, match="fsck"):
        store.sweep(0)
    assert held(store) == before - {(Space.CONTENTS, bytes.fromhex(lost[7:]))}


def test_nothing_goes_while_an_envelope_above_a_fork_is_missing(store: Store) -> None:
    ids = [store.read("c").source.entry_id(at) for at in range(3)]
    store.fork("c", ids[2], id="f").close()
    store.delete("c")
    lose(store, Space.ENTRIES, ids[0])
    before = held(store)
    with pytest.raises(NoObject, match="fork"):
        store.sweep(0)
    assert held(store) == before


def test_nothing_goes_while_a_session_is_damaged(store: Store) -> None:
    store.delete("a")
    before = held(store)
    store.layout.host.fs.unlink(f"{store.layout.session_dir('b')}/journal")
    with pytest.raises(Damaged, match="session b"):
        store.sweep(0)
    assert held(store) == before
    store.delete("b")
    assert store.sweep(0).objects == 160


def test_nothing_goes_while_a_ref_is_damaged(store: Store) -> None:
    store.update_ref("keep", None, RefTarget("a", store.read("a").leaf))
    [name] = store.layout.host.fs.listdir("/store/refs")
    file = store.layout.host.fs.open(f"/store/refs/{name}", write=True)
    file.pwrite(b"?", 5)
    file.close()
    store.delete("a")
    before = held(store)
    with pytest.raises(Corrupt):
        store.sweep(0)
    assert held(store) == before


def test_a_pack_that_does_not_read_stays(store: Store) -> None:
    store.delete("c")
    store.sweep(0)
    store.repack()
    store.delete("a")
    [pack] = store.objects.packs()
    file = store.layout.host.fs.open(pack.path, write=True)
    for number in range(pack.index().table.blocks):
        file.pwrite(b"?", pack.index().table.block(number).offset + 24)
    file.close()
    report = store.sweep(0)
    assert (report.kept, report.rewritten, report.objects) == ([pack.stem], [], 0)
    assert store.layout.host.fs.stat(pack.path)


def test_an_idx_that_does_not_read_is_made_anew(store: Store) -> None:
    store.repack()
    store.delete("a")
    [pack] = store.objects.packs()
    for at in (5, 900):
        file = store.layout.host.fs.open(pack.idx_path, write=True)
        file.pwrite(b"\xff", at)
        file.close()
    with opened(store.layout.host) as fresh:
        assert fresh.sweep(0).objects == 80
        assert held(fresh) == needed(fresh)


def test_beside_a_repack_or_whoever_holds_the_store(store: Store) -> None:
    fs = store.layout.host.fs
    for name, words in (("repack", "repack"), ("store", "in use")):
        other = fs.lock(f"{store.root}/locks/{name}", exclusive=False)
        assert other is not None
        with pytest.raises(StoreLocked, match=words):
            store.sweep(0)
        other.release()
    store.sweep(0)


def test_a_read_only_store_is_not_swept(store: Store) -> None:
    with Store.open("/store", host=store.layout.host, read_only=True) as other:
        with pytest.raises(ReadOnly):
            other.sweep()
        with pytest.raises(ReadOnly):
            other.gc()


@pytest.mark.parametrize("looked_for", [0, 1 << 40])
def test_what_is_spared_is_what_the_marks_say(
    store: Store, monkeypatch: pytest.MonkeyPatch, looked_for: int
) -> None:
    """However it is looked for: by the marks, or by the objects."""
    monkeypatch.setattr(sweep_plan, "_LOOKED_FOR", looked_for)
    chance = Random(7)
    strange = {mark_of_key(space, chance.getrandbits(48)) for space in Space for _ in range(50)}
    for pack in store.objects.packs():
        objects = [(place.space, place.digest) for place in store.objects.iterate() if place.path == pack.path]
        marks = [mark_of_key(space, key_of(digest)) for space, digest in objects]
        for count in (0, 1, 7, len(marks)):
            dead = bytearray(chance.choice((0, 1)) for _ in marks)
            some = set(chance.sample(marks, count))
            wrong = {mark ^ 1 for mark in some} - set(marks)  # of another space
            found = sweep_plan.DeadInPack(pack, bytearray(dead), sweep_plan.DeadFile(0, 0))
            wanted = bytearray(was and mark not in some for was, mark in zip(dead, marks, strict=True))
            assert found.spare(some | strange | wrong) is (wanted != dead)
            assert found.dead == wanted


# --- trash, tmp, ref logs --------------------------------------------------------------------------------------------


def test_trash_and_leftovers_go(store: Store, sim: Sim) -> None:
    fs = sim.host.fs
    store.delete("c")
    fs.mkdir("/store/tmp/new-x")
    fs.create("/store/tmp/new-x/header").close()
    fs.create("/store/tmp/staged").close()
    assert store.sweep(dry_run=True).trash == 1
    assert (store.sweep().trash, store.sweep().tmp) == (1, 0)
    assert fs.listdir("/store/trash") == []
    assert fs.listdir("/store/tmp") == ["new-x", "staged"]
    sim.clock.advance(2 * DAY)
    assert store.sweep(dry_run=True).tmp == 2
    assert store.sweep().tmp == 2
    assert fs.listdir("/store/tmp") == []


def test_old_segments_of_ref_logs_go(store: Store, sim: Sim) -> None:
    targets = [RefTarget("a"), RefTarget("b")]
    store.update_ref("r", None, targets[0])
    for n in range(200):
        store.update_ref("r", targets[n % 2], targets[(n + 1) % 2], "for a reason " * 9)
    log = list(store.ref_log("r"))
    assert len(log) == 201
    assert store.sweep().ref_logs == 0
    sim.clock.advance(100 * DAY)
    gone = store.sweep().ref_logs
    assert gone == 2
    left = list(store.ref_log("r"))
    assert log[: len(left)] == left
    assert 0 < len(left) * 150 < 2 * SEGMENT_SIZE
    store.update_ref("r", targets[0], targets[1])
    assert list(store.ref_log("r"))[1:] == left
    assert store.sweep().ref_logs == 0


# --- who remembers ---------------------------------------------------------------------------------------------------


def test_a_process_forgets_what_it_knew_to_be_there(store: Store, sim: Sim) -> None:
    """It published these bodies itself, and publishes them again after a sweep of another process took them."""
    lines = lines_of(store)["a"]
    other = Store.open("/store", host=sim.process("p2"), background=False)
    store.delete("a")
    assert other.sweep(0).objects == 80
    write(store, "a", 40)
    assert [json.loads(line)["item"] for line in lines_of(other)["a"]] == [json.loads(line)["item"] for line in lines]
    assert other.fsck().findings == []
    other.close()


def test_a_blob_that_went_is_not_found_in_a_cache(store: Store, sim: Sim) -> None:
    name, item = image(store)
    assert store.blob(name)
    sim.clock.advance(20 * DAY)
    with Store.open("/store", host=sim.process("p2"), background=False) as other:
        assert other.sweep().objects == 1
    with store.create(id="pictures", media="sidecar") as session:
        assert session.append(item).unresolved == [name]


# --- gc --------------------------------------------------------------------------------------------------------------


def test_idle_sessions_are_packed_together(store: Store, sim: Sim) -> None:
    store.repack()
    for n in range(50):
        with store.create(id=f"small-{n}") as session:
            session.append_batch([entry.user(f"{n} {k}") for k in range(3)])
    busy = store.create(id="busy")
    busy.append(entry.user("hi"))
    lines = lines_of(store)
    sim.clock.advance(3600)
    with store.open_session("small-0") as session:
        session.append(entry.user("just now"))
    lines["small-0"] = lines_of(store)["small-0"]
    report = store.gc()
    assert report.settled == 49
    assert lines_of(store) == lines
    assert store.stats()["objects"] == {"loose": 0, "packed": 166 + 49 * 6, "packs": 1}
    assert store.snapshot("small-7").state.scan.generation.base == 3
    assert store.gc().settled == 0
    busy.close()
    assert store.fsck().findings == []


def test_gc_sweeps_before_it_packs(store: Store, sim: Sim) -> None:
    store.delete("a")
    sim.clock.advance(15 * DAY)
    report = store.gc()
    assert (report.sweep.objects, report.repack.packs) == (80, 1)
    assert held(store) == needed(store)


def test_gc_passes_over_a_damaged_session_and_the_sweep_says_so(store: Store, sim: Sim) -> None:
    store.layout.host.fs.unlink(f"{store.layout.session_dir('b')}/journal")
    sim.clock.advance(3600)
    with pytest.raises(Damaged):
        store.gc()


def test_progress_is_told(store: Store) -> None:
    told: list[tuple[int, int]] = []
    store.sweep(0, progress=lambda done, total: told.append((done, total)))
    assert told[0] == (0, 3)
    assert told[-1] == (256, 256)
    assert sweeping.GRACE_S == 14 * DAY


def test_what_came_while_the_dead_were_found_is_not_marked_with_the_store_held(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else everybody waits, the longer the more was written: one session changes each time, and the others once."""
    marked: list[tuple[bool, int]] = []
    mark, alone = Roots.mark, Layout.alone
    is_held = False

    def counted(self: Roots, tell: Callable[[int, int], None]) -> Needs:
        found = mark(self, tell)
        marked.append((is_held, len(self.changed)))
        if not is_held:
            write(store, "a", 1, str(len(marked)))
        return found

    @contextmanager
    def holding(self: Layout, timeout_s: float) -> Iterator[None]:
        nonlocal is_held
        with alone(self, timeout_s):
            is_held = True
            yield
            is_held = False

    def writing(done: int, _: int) -> None:
        if done == 7:
            for number in range(9):
                write(store, f"new{number}", 2)

    monkeypatch.setattr(Roots, "mark", counted)
    monkeypatch.setattr(Layout, "alone", holding)
    write(store, "gone", 5)
    store.delete("gone")
    store.sweep(0, progress=writing)
    assert [count for inside, count in marked if inside][:1] == [1]
    assert max(count for _, count in marked[1:]) >= 9
    assert held(store) == needed(store)
