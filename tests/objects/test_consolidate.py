"""Merging and archiving on the simulated host: power cut, kill, stop and failure at every step lose nothing."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from agentsession_cas.core.packformat import Grade
from agentsession_cas.core.slices import Slices, drain
from agentsession_cas.core.zframes import train
from agentsession_cas.effects.host import Buffer, Fs, Host, OpenFile, real_host
from agentsession_cas.errors import Corrupt, DiskError, NoFile, NoObject, StoreLocked
from agentsession_cas.objects import ObjectDatabase, Space
from agentsession_cas.objects import archive as archiving
from agentsession_cas.objects.archive import Archiver
from agentsession_cas.objects.consolidate import PACKABLE, Consolidator, Moved
from agentsession_cas.objects.pack import Pack
from agentsession_cas.objects.packwriter import PackWriter
from agentsession_cas.testing.simfs import Killed, Sim
from tests.helpers.crashes import Through, Unseen, cuts, deaf
from tests.helpers.objects import Object, held, lay_out, machine, named, some

Move = Callable[[Host, type[Consolidator]], Slices[Moved]]

ALIKE = (b"object 633786", b"object 12526429")
"""Two objects whose digests begin with the same 48 bits."""


def switch() -> AbstractContextManager[None]:
    return nullcontext()


def moves_of(
    host: Host, kind: type[Consolidator] = Consolidator, root: str = "."
) -> tuple[ObjectDatabase, Consolidator]:
    database = ObjectDatabase(host, root)
    made = database.consolidator(switch)
    database.packs()
    return database, kind(made.host, made.tmp_dir, made.loose, made.packs, made.dictionaries, switch)


def loose_of(database: ObjectDatabase) -> list[tuple[Space, bytes]]:
    return [(space, digest) for space in PACKABLE for digest in database.loose_digests(space)]


def merge_all(host: Host, kind: type[Consolidator] = Consolidator, root: str = ".") -> Slices[Moved]:
    """Every pack and loose object into one everyday pack."""
    database, moves = moves_of(host, kind, root)
    return (yield from moves.merge(database.packs(), loose_of(database), Grade.EVERYDAY, None))


def archive_all(host: Host, kind: type[Consolidator] = Consolidator, root: str = ".") -> Slices[Moved]:
    """Everything into the archive, every second object by an order, the others as they lie."""
    database, moves = moves_of(host, kind, root)
    old = [pack for pack in database.packs() if pack.grade() is not Grade.ARCHIVE]
    order = [(space, digest) for space, digest, *_ in database.iterate()][::2]
    return (yield from Archiver(moves, old, None).run(order))


def fresh_packs(host: Host) -> list[Object]:
    database = ObjectDatabase(host, ".")
    database.publish(some(6), loose_below=0)
    database.publish(some(5, 4), loose_below=0)
    database.publish(some(3, 20))
    return some(9) + some(3, 20)


def mixed_packs(host: Host) -> list[Object]:
    """An everyday pack, a fresh one, and a loose object that is packed as well."""
    objects = fresh_packs(host)
    drain(merge_all(host))
    database = ObjectDatabase(host, ".")
    database.publish(some(4, 40), loose_below=0)
    loose = named(Space.CONTENTS, b"loose")
    database.publish([loose])
    return [*objects, *some(4, 40), loose]


def shared_pieces(host: Host) -> list[Object]:
    """Bodies in an everyday pack, a fresh one and loose, each of which needs pieces that lie elsewhere."""
    texts = [b"%d!" % n * 2100 for n in range(4)]
    bodies = [named(Space.CONTENTS, b'{"n":%d,"text":"%s"}' % (k, texts[k // 2])) for k in range(7)]
    database = ObjectDatabase(host, ".")
    database.publish(bodies[:3], loose_below=0)
    drain(merge_all(host))
    database.publish(bodies[2:6], loose_below=0)
    database.publish(bodies[5:])
    return [*bodies, *(named(Space.PIECES, text) for text in texts)]


SETUPS: dict[str, tuple[Callable[[Host], list[Object]], Move]] = {
    "merge fresh": (fresh_packs, merge_all),
    "merge mixed": (mixed_packs, merge_all),
    "archive fresh": (fresh_packs, archive_all),
    "archive mixed": (mixed_packs, archive_all),
    "merge pieces": (shared_pieces, merge_all),
    "archive pieces": (shared_pieces, archive_all),
}


def sound(host: Host, *also: str) -> None:
    codes = {finding.code for finding in ObjectDatabase(host, ".").check()}
    assert codes <= {"bare_idx", "missing_idx", *also}


def prepared(name: str, seed: int = 0) -> tuple[Sim, list[Object], Move]:
    setup, move = SETUPS[name]
    sim = machine(seed)
    return sim, setup(sim.host), move


# --- what they do ----------------------------------------------------------------------------------------------------


def all_moved(host: Host, objects: Sequence[Object], move: Move) -> None:
    """Everything that can be moved is in packs of the right grade, once."""
    database = ObjectDatabase(host, ".")
    assert {pack.grade() for pack in database.packs()} == {Grade.EVERYDAY if move is merge_all else Grade.ARCHIVE}
    assert len(database.packs()) == 1 or move is archive_all
    assert held(host, objects) == len(objects)
    sound(host)
    assert loose_of(database) == []
    stats = database.stats()
    media = sum(space is Space.MEDIA for space, *_ in some(3, 20)) if some(1, 20)[0] in objects else 0
    assert (stats.loose, stats.packed) == (media, len(objects) - media)


@pytest.mark.parametrize("name", SETUPS)
def test_everything_moves(name: str) -> None:
    sim, objects, move = prepared(name)
    before = {pack.stem for pack in ObjectDatabase(sim.host, ".").packs()}
    moved = drain(move(sim.host, Consolidator))
    all_moved(sim.host, objects, move)
    assert set(moved.written) == {pack.stem for pack in ObjectDatabase(sim.host, ".").packs()}
    assert (set(moved.removed), moved.kept) == (before, [])
    assert sim.host.fs.listdir("tmp") == []


@pytest.mark.parametrize("move", [merge_all, archive_all])
def test_again_changes_nothing(move: Move) -> None:
    """A pack that comes out under the name of one it replaces is not removed with it."""
    sim, objects, _ = prepared("merge fresh")
    drain(move(sim.host, Consolidator))
    names = sim.host.fs.listdir("objects/pack")
    moved = drain(move(sim.host, Consolidator))
    assert (moved.removed, moved.loose) == ([], 0)
    assert sim.host.fs.listdir("objects/pack") == names
    assert held(sim.host, objects) == len(objects)


def test_blocks_of_the_grade_are_copied_as_they_are() -> None:
    sim, _, _ = prepared("merge fresh")
    drain(merge_all(sim.host))
    database = ObjectDatabase(sim.host, ".")
    [pack] = database.packs()
    with pack.open() as file:
        frames = [file.frame(number)[1] for number in range(file.table.blocks)]
    database.publish(some(5, 500), loose_below=0)
    drain(merge_all(sim.host))
    [pack] = ObjectDatabase(sim.host, ".").packs()
    with pack.open() as file:
        merged = [file.frame(number)[1] for number in range(file.table.blocks)]
    assert [frame for frame in merged if frame in frames] == frames
    assert len(merged) > len(frames)


@pytest.mark.parametrize("grade", [Grade.EVERYDAY, Grade.ARCHIVE])
def test_a_blob_and_a_piece_of_the_same_bytes_both_stay(grade: Grade) -> None:
    sim = machine()
    database, moves = moves_of(sim.host)
    text = "t" * 5000
    objects = [named(Space.MEDIA, text.encode()), named(Space.CONTENTS, b'{"text":"%s"}' % text.encode())]
    database.publish(objects, loose_below=0)
    drain(moves.merge(database.packs(), (), grade, None))
    assert held(sim.host, objects) == len(objects)
    database.publish(some(5), loose_below=0)
    drain(moves.merge(database.packs(), (), grade, None))
    assert held(sim.host, [*objects, *some(5)]) == len(objects) + 5


def test_the_archive_has_the_order_it_was_given() -> None:
    sim, objects, _ = prepared("archive mixed")
    database, moves = moves_of(sim.host)
    order = [wanted[:2] for wanted in objects[::-1] if wanted[0] is not Space.MEDIA]
    drain(Archiver(moves, database.packs(), None).run(order))
    lying = [(at.space, at.digest) for at in database.iterate(Space.CONTENTS)]
    assert lying == [wanted for wanted in order if wanted[0] is Space.CONTENTS]


def test_a_large_archive_is_several_packs_and_a_stopped_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "ARCHIVE_MAX", 1)
    sim = machine()
    database = ObjectDatabase(sim.host, ".")
    objects = [named(Space.CONTENTS, bytes([k]) * 700_000) for k in range(7)]
    database.publish(objects, loose_below=0)
    work = archive_all(sim.host)
    for _ in range(5):
        next(work)
    work.close()
    packs = ObjectDatabase(sim.host, ".").packs()
    finished = [pack.stem for pack in packs if pack.grade() is Grade.ARCHIVE]
    assert finished
    assert len(packs) == len(finished) + 1
    assert sim.host.fs.listdir("tmp") == []
    moved = drain(archive_all(sim.host))
    packs = ObjectDatabase(sim.host, ".").packs()
    assert {pack.stem for pack in packs} == {*finished, *moved.written}
    assert held(sim.host, objects) == len(objects)
    assert ObjectDatabase(sim.host, ".").stats().packed == len(objects)


@pytest.mark.parametrize("move", [merge_all, archive_all])
def test_objects_whose_digests_begin_alike(move: Move) -> None:
    one, other = (named(Space.CONTENTS, data) for data in ALIKE)
    assert one[1][:6] == other[1][:6]
    for first, second in (([one], [other]), ([one, other], []), ([one], [other, one])):
        sim = machine()
        for objects in (first, second):
            ObjectDatabase(sim.host, ".").publish([*objects, *some(3)], loose_below=0)
            drain(move(sim.host, Consolidator))
        assert held(sim.host, [one, *second]) == 1 + len(second)
        database, moves = moves_of(sim.host)
        old = [pack for pack in database.packs() if pack.grade() is not Grade.ARCHIVE]
        drain(Archiver(moves, old, None).run([one[:2], other[:2]]))
        assert held(sim.host, [*first, *second]) == len(first) + len(second)
        assert list(ObjectDatabase(sim.host, ".").check()) == []


def test_the_digest_that_begins_alike_is_not_the_object() -> None:
    sim = machine()
    one, other = (named(Space.CONTENTS, data) for data in ALIKE)
    database = ObjectDatabase(sim.host, ".")
    database.publish([one, *some(3)], loose_below=0)
    with pytest.raises(NoObject):
        database.get(*other[:2])
    assert database.publish([other]).loose == 1
    assert held(sim.host, [one, other]) == 2


def test_dictionaries_are_used_and_those_nobody_needs_go(tmp_path: Path) -> None:
    host = real_host()
    lay_out(host.fs, str(tmp_path))
    bodies = [b" ".join(b"word%d" % (k * j * 7919 % 977) for j in range(200)) for k in range(1, 900)]
    objects = [named(Space.CONTENTS, body) for body in bodies]
    database, moves = moves_of(host, root=str(tmp_path))
    trained = [train(bodies[:size], 8 << 10) for size in (500, 800)]
    for number, dictionary in enumerate(trained):
        assert dictionary is not None
        moves.dictionaries.publish(host, moves.tmp_dir, dictionary)
        database.publish(objects[number * 400 : number * 400 + 400], loose_below=0)
        fresh = [pack for pack in database.packs() if pack.grade() is Grade.FRESH]
        drain(moves.merge(fresh, (), Grade.EVERYDAY, dictionary))
    drain(moves.merge(database.packs(), (), Grade.EVERYDAY, None))
    moves.drop_dictionaries()
    assert len(list(tmp_path.glob("objects/dict/*"))) == 4
    [pack] = database.packs()
    assert pack.index().table.dictionaries() == {each.id for each in trained if each is not None}
    assert held(host, objects[:800], str(tmp_path)) == 800
    drain(archive_all(host, root=str(tmp_path)))
    moves.drop_dictionaries()
    assert list(tmp_path.glob("objects/dict/*")) == []
    assert held(host, objects[:800], str(tmp_path)) == 800
    assert list(ObjectDatabase(host, str(tmp_path)).check()) == []


# --- what does not read ----------------------------------------------------------------------------------------------


def spoil(sim: Sim, path: str, at: int) -> None:
    data = bytearray(sim.host.fs.read(path) or b"")
    data[at] ^= 1
    sim.host.fs.unlink(path)
    file = sim.host.fs.create(path)
    file.pwrite(bytes(data), 0)
    file.close()


@pytest.mark.parametrize("grade", [Grade.FRESH, Grade.EVERYDAY])
def test_a_pack_with_a_bad_block_stays_as_it_is(grade: Grade) -> None:
    sim, _, _ = prepared("merge fresh")
    if grade is Grade.EVERYDAY:
        drain(merge_all(sim.host))
        ObjectDatabase(sim.host, ".").publish(some(4, 700), loose_below=0)
    bad = next(pack for pack in ObjectDatabase(sim.host, ".").packs() if pack.grade() is grade)
    spoil(sim, bad.path, 30)
    names = sim.host.fs.listdir("objects/pack")
    with pytest.raises(Corrupt):
        drain(merge_all(sim.host))
    assert sim.host.fs.listdir("objects/pack") == names
    assert sim.host.fs.listdir("tmp") == []
    readable = sum(holds(sim.host, each) for each in some(9) + some(4, 700))
    with suppress(Corrupt):
        drain(archive_all(sim.host))
    names = [pack.stem for pack in ObjectDatabase(sim.host, ".").packs()]
    assert bad.stem in names
    assert sum(holds(sim.host, each) for each in some(9) + some(4, 700)) == readable


def holds(host: Host, wanted: Object) -> bool:
    return ObjectDatabase(host, ".").holds(*wanted[:2])


def test_an_archive_keeps_what_it_cannot_read() -> None:
    sim, objects, _ = prepared("merge fresh")
    database, moves = moves_of(sim.host)
    bad, *others = database.packs()
    spoil(sim, bad.path, 30)
    readable = sum(holds(sim.host, each) for each in objects)
    assert readable < len(objects)
    order = [wanted[:2] for wanted in objects]
    moved = drain(Archiver(moves, database.packs(), None).run(order))
    assert moved.kept == [bad.stem]
    assert set(moved.removed) == {pack.stem for pack in others}
    assert sum(holds(sim.host, each) for each in objects) == readable


def test_rotten_loose_objects_stay() -> None:
    sim, objects, _ = prepared("merge fresh")
    database = ObjectDatabase(sim.host, ".")
    space, digest = loose_of(database)[0]
    path = f"objects/{space.name.lower()}/{digest[:1].hex()}/{digest[1:].hex()}"
    spoil(sim, path, -3)
    for move in (merge_all, archive_all):
        drain(move(sim.host, Consolidator))
        assert sim.host.fs.stat(path) is not None
    assert held_or_corrupt(sim.host, objects) == len(objects) - 1


def held_or_corrupt(host: Host, objects: Sequence[Object]) -> int:
    return sum(holds(host, each) for each in objects)


def test_an_input_that_went_meanwhile() -> None:
    sim, _, _ = prepared("merge fresh")
    database, moves = moves_of(sim.host)
    packs = database.packs()
    work = moves.merge(packs, (), Grade.EVERYDAY, None)
    for _ in range(6):
        next(work)
    for pack in packs:
        sim.host.fs.unlink(pack.path)
    with pytest.raises(NoFile):
        drain(work)
    assert [name for name in sim.host.fs.listdir("objects/pack") if name.endswith(".pack")] == []
    assert sim.host.fs.listdir("tmp") == []


def test_a_held_store_lock_changes_nothing() -> None:
    sim, objects, _ = prepared("merge fresh")

    def busy() -> AbstractContextManager[None]:
        raise StoreLocked("a sweep")

    for grade in (Grade.EVERYDAY, Grade.ARCHIVE):
        database, moves = moves_of(sim.host)
        moves.switch = busy
        names = sim.host.fs.listdir("objects/pack")
        packs = database.packs()
        work = moves.merge(packs, (), grade, None)
        if grade is Grade.ARCHIVE:
            work = Archiver(moves, packs, None).run([])
        with pytest.raises(StoreLocked):
            drain(work)
        assert sim.host.fs.listdir("objects/pack") == names
        assert sim.host.fs.listdir("tmp") == []
    assert held(sim.host, objects) == len(objects)


# --- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize("name", SETUPS)
def test_power_cut_at_every_effect(name: str) -> None:
    sim, objects, move = prepared(name)
    seen, unjudged, unfinished = 0, Unseen(), Unseen()
    for _, cut in cuts(sim, lambda: drain(move(sim.host, Consolidator))):
        images = list(cut.images(25, tear=True))
        seen += len(images)
        last = list(unfinished.of(images[-1:]))
        for image in unjudged.of(images):
            assert held(image.host, objects) == len(objects)
            sound(image.host)
        for image in last:  # whatever is left over, another one ends it
            drain(move(image.host, Consolidator))
            all_moved(image.host, objects, move)
    assert seen > 100


@pytest.mark.heavy
@pytest.mark.parametrize("name", SETUPS)
def test_another_process_goes_on_and_then_the_power_fails(name: str) -> None:
    whole, _, move = prepared(name)
    before = whole.count
    drain(move(whole.host, Consolidator))
    for at in range(whole.count - before):
        sim, objects, _ = prepared(name, seed=at)
        sim.kill_after(at)
        with pytest.raises(Killed):
            drain(move(sim.host, Consolidator))
        drain(move(sim.process("p2"), Consolidator))
        for image in sim.images(10, tear=True):
            assert held(image.host, objects) == len(objects)
            sound(image.host)


@pytest.mark.heavy
@pytest.mark.parametrize("name", SETUPS)
def test_a_stop_at_every_slice(name: str) -> None:
    _, objects, move = prepared(name)
    at = 0
    while True:
        sim, objects, _ = prepared(name)
        work = move(sim.host, Consolidator)
        try:
            for _ in range(at + 1):
                next(work)
        except StopIteration:
            assert at > 5
            return
        work.close()
        assert sim.host.fs.listdir("tmp") == []
        assert held(sim.host, objects) == len(objects)
        sound(sim.host)
        at += 1


@pytest.mark.heavy
@pytest.mark.parametrize("name", SETUPS)
def test_readers_and_a_publisher_between_any_two_effects(name: str) -> None:
    sim, objects, move = prepared(name)
    reader = ObjectDatabase(sim.process("p2"), ".")
    assert reader.get(*objects[0][:2]) == objects[0][2]
    publisher = ObjectDatabase(sim.process("p3"), ".")
    steps = [0]

    def meanwhile(_kind: str, _path: str) -> None:
        steps[0] += 1
        for space, digest, data in objects:
            assert reader.get(space, digest) == data
        if steps[0] % 3 == 0:
            publisher.forget()
            publisher.publish(objects[: steps[0]], loose_below=steps[0] % 2)
            for image in sim.images(3):
                assert held(image.host, objects) == len(objects)

    sim.watch(meanwhile)
    drain(move(sim.host, Consolidator))
    sim.watch(None)
    assert held(sim.host, objects) == len(objects)
    for image in sim.images(5):
        assert held(image.host, objects) == len(objects)


@pytest.mark.heavy
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("name", SETUPS)
def test_every_effect_fails(name: str, code: int, forever: bool) -> None:
    at = 0
    while True:
        at += 1
        sim, objects, move = prepared(name, seed=at)
        fault = sim.fail(at, code, forever=forever)
        with suppress(DiskError):
            drain(move(sim.host, Consolidator))
        hit = fault.hits > 0
        sim.heal()
        assert held(sim.host, objects) == len(objects)
        for image in sim.images(4):
            assert held(image.host, objects) == len(objects)
        drain(move(sim.host, Consolidator))
        assert held(sim.host, objects) == len(objects)
        sound(sim.host)
        if not hit:
            return


# --- mistakes the above must catch -----------------------------------------------------------------------------------


class RemovesFirst(Consolidator):
    """What is replaced goes before the replacement has its name."""

    def put(self, writer: PackWriter, stem: str) -> None:
        self.remove([pack for pack in self.packs.listed.values() if pack.stem != stem])
        super().put(writer, stem)


class RemovesItself(Consolidator):
    """The pack that came out under the name of one it replaces is removed with it."""

    def remove(self, packs: Sequence[Pack]) -> list[str]:
        return super().remove([*self.packs.listed.values()])


class Unverified(Consolidator):
    """What was written is not read back."""

    def writer(self, grade: Grade, dictionary: object) -> PackWriter:
        return Believing(self.host, self.tmp_dir, self.packs.directory, self.dictionaries, grade, None)


class Believing(PackWriter):
    def _verify(self, packed: object, idx: bytes) -> Slices[None]:
        yield 0


class Miswriting(Through):
    """A disk that changes a bit of what is staged."""

    def create(self, path: str) -> OpenFile:
        file = self._inner.create(path)
        return cast(OpenFile, Flipped(file)) if path.startswith("./tmp") and path.endswith(".pack") else file


class Flipped(Through):
    def pwrite(self, data: Buffer, offset: int) -> None:
        wrong = bytearray(data)
        wrong[len(wrong) // 3] ^= 4
        self._inner.pwrite(bytes(wrong), offset)


def survives(name: str, kind: type[Consolidator], **left_out: str) -> bool:
    """Whether nothing is lost, whenever the power fails; ``left_out`` says which syncs are."""
    sim, objects, move = prepared(name)
    host = replace(sim.host, fs=deaf(sim.host.fs, **left_out))
    unseen = Unseen()
    for _, cut in cuts(sim, lambda: drain(move(host, kind))):
        for image in unseen.of(cut.images(40, tear=True)):
            try:
                if held(image.host, objects) != len(objects):
                    return False
            except Corrupt:
                return False
    return True


@pytest.mark.heavy
@pytest.mark.parametrize("name", SETUPS)
@pytest.mark.parametrize("left_out", ["files", "directories"])
def test_a_sync_left_out_is_caught(name: str, left_out: str) -> None:
    """Files are renamed without having been synced, or a name is not durable before what it replaces goes."""
    assert not survives(name, Consolidator, **{left_out: ""})


@pytest.mark.heavy
@pytest.mark.parametrize("name", SETUPS)
def test_a_removal_too_early_is_caught(name: str) -> None:
    assert not survives(name, RemovesFirst)


@pytest.mark.heavy
@pytest.mark.parametrize("name", SETUPS)
def test_a_pack_that_removes_itself_is_caught(name: str) -> None:
    assert not survives(name, RemovesItself)


@pytest.mark.heavy
@pytest.mark.parametrize("name", SETUPS)
def test_what_reads_back_otherwise_is_not_believed(name: str) -> None:
    sim, objects, move = prepared(name)
    host = replace(sim.host, fs=cast(Fs, Miswriting(sim.host.fs)))
    with pytest.raises(Corrupt):
        drain(move(host, Consolidator))
    assert held(sim.host, objects) == len(objects)
    assert sim.host.fs.listdir("tmp") == []
    drain(move(host, Unverified))
    assert held_or_corrupt(sim.host, objects) < len(objects)
