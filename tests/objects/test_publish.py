"""Publishing on the simulated host: effects counted, power cut and processes killed at each, every effect failing."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import cast

import pytest

from agentsession_cas.effects.host import Fs, Host
from agentsession_cas.errors import Corrupt, DiskError, DiskFull, TooManyFiles
from agentsession_cas.objects import ObjectDatabase, Space
from agentsession_cas.objects.publish import Publisher, _Object, _Work
from agentsession_cas.testing.simfs import READS, Killed, Sim
from tests.helpers.crashes import Through, cuts, deaf
from tests.helpers.objects import Object, held, machine, named, some

Program = Callable[[ObjectDatabase], None]
Wrap = Callable[[Fs], Fs]


def sharing(n: int) -> list[Object]:
    """Bodies that share two large strings."""
    return [named(Space.CONTENTS, b'{"n":%d,"text":"%s"}' % (k, b"%d!" % (k % 2) * 2100)) for k in range(n)]


def database(host: Host) -> ObjectDatabase:
    return ObjectDatabase(host, ".")


def counted(sim: Sim, act: Callable[[], object]) -> Counter[str]:
    sim.log.clear()
    act()
    return Counter(effect.kind for effect in sim.log)


def sound(host: Host) -> None:
    """No crash leaves more than strays of ``tmp``, a bare idx, or a pack that lost its idx."""
    assert {finding.code for finding in database(host).check()} <= {"bare_idx", "missing_idx"}


# --- effects ---------------------------------------------------------------------------------------------------------


def test_effects_of_loose_objects() -> None:
    sim = machine()
    writer = database(sim.host)
    objects = some(10)
    fans = {(space, name[0]) for space, name, _ in objects}
    effects = counted(sim, lambda: writer.publish(objects))
    assert effects == {
        "create": 10,
        "write": 10,
        "sync": 10,
        "rename": 10,
        "mkdir": 3 + len(fans),
        "sync_dir": 1 + 3 + len(fans),
    }
    synced = [effect.path for effect in sim.log if effect.kind == "sync_dir"]
    assert len(set(synced)) == len(synced)
    # the directories stand: only what changed is synced
    objects = [o for o in some(2000, 10) if (o[0], o[1][0]) in fans][:5]
    effects = counted(sim, lambda: writer.publish(objects))
    assert effects == {
        "create": 5,
        "write": 5,
        "sync": 5,
        "rename": 5,
        "sync_dir": len({(space, name[0]) for space, name, _ in objects}),
    }


def test_effects_of_a_pack() -> None:
    sim = machine()
    effects = counted(sim, lambda: database(sim.host).publish(some(1000)))
    assert effects == {"create": 2, "write": 2, "sync": 2, "rename": 2, "sync_dir": 1}
    renamed = [effect.target.rpartition(".")[2] for effect in sim.log if effect.kind == "rename"]
    assert renamed == ["idx", "pack"]


def test_effects_of_pieces() -> None:
    sim = machine()
    writer = database(sim.host)
    objects = sharing(6)
    writer.publish(objects)
    before = [effect.target for effect in sim.log if effect.kind == "rename"]
    assert [path.split("/")[2] for path in before] == ["pieces"] * 2 + ["contents"] * 6
    first_body = next(at for at, effect in enumerate(sim.log) if "/contents/" in effect.target)
    synced = {effect.path for effect in sim.log[:first_body] if effect.kind == "sync_dir"}
    assert synced >= {path.rpartition("/")[0] for path in before[:2]} | {"./objects", "./objects/pieces"}
    # a body more costs no piece
    more = named(Space.CONTENTS, objects[0][2].replace(b'"n":0', b'"n":99'))
    counts = counted(sim, lambda: writer.publish([more]))
    assert (counts["create"], counts["rename"]) == (1, 1)


def test_what_is_known_to_be_durable_costs_nothing_until_forgotten() -> None:
    sim = machine()
    writer = database(sim.host)
    objects = some(5) + some(70, 100)
    writer.publish(objects[:5])
    writer.publish(objects[5:])
    assert counted(sim, lambda: writer.publish(objects)) == {}
    writer.forget()
    fans = {(space, name[0]) for space, name, _ in objects[:5]}
    spaces = {space for space, _ in fans}
    # seen anew: their directories are synced, with the names of the fan-out directories, and the packs' one
    assert counted(sim, lambda: writer.publish(objects)) == {"sync_dir": len(fans) + len(spaces) + 1 + 1}
    assert counted(sim, lambda: writer.publish(objects)) == {}


def test_another_process_trusts_no_directory_it_did_not_sync() -> None:
    sim = machine()
    objects = some(5)
    database(sim.host).publish(objects)
    other = database(sim.process("p2"))
    assert counted(sim, lambda: other.publish(objects))["sync_dir"] > 0
    assert counted(sim, lambda: other.publish(objects)) == {}


# --- crashes ---------------------------------------------------------------------------------------------------------


def loose(writer: ObjectDatabase) -> None:
    writer.publish(some(4))


def pack(writer: ObjectDatabase) -> None:
    writer.publish(some(6), loose_below=0)


def again(writer: ObjectDatabase) -> None:
    """Loose, then a pack that finds half of its objects held."""
    writer.publish(some(3))
    writer.publish(some(6), loose_below=1)


def pieces(writer: ObjectDatabase) -> None:
    """Loose pieces and the bodies that need them; a second publish finds all the pieces it needs."""
    writer.publish(sharing(3))
    writer.publish(sharing(4))


def pieces_in_a_pack(writer: ObjectDatabase) -> None:
    writer.publish(sharing(5), loose_below=0)


def pieces_again(writer: ObjectDatabase) -> None:
    """A loose piece, then a pack of bodies that need it and another."""
    writer.publish(sharing(1))
    writer.publish(sharing(6), loose_below=1)


PROGRAMS: dict[str, tuple[Program, list[Object]]] = {
    "loose": (loose, some(4)),
    "pack": (pack, some(6)),
    "again": (again, some(6)),
    "pieces": (pieces, sharing(4)),
    "pieces in a pack": (pieces_in_a_pack, sharing(5)),
    "pieces again": (pieces_again, sharing(6)),
}


@pytest.mark.heavy
@pytest.mark.parametrize("name", PROGRAMS)
def test_power_cut_at_every_effect(name: str) -> None:
    program, objects = PROGRAMS[name]
    sim = machine()
    seen = 0
    for _, cut in cuts(sim, lambda: program(database(sim.host))):
        for image in cut.images(24, tear=True):
            there = held(image.host, objects)
            sound(image.host)
            if cut is sim:
                assert there == len(objects)
            seen += 1
            # whatever is left over, publishing anew makes it whole
            program(database(image.host))
            assert held(image.host, objects) == len(objects)
    assert seen > 100


def resumed(name: str, wrap: Wrap = lambda fs: fs, faults: bool = False) -> Iterator[tuple[Sim, list[Object]]]:
    """A process ends at each effect (or fails there), another publishes the same and returns, the power fails."""
    program, objects = PROGRAMS[name]
    whole = machine()
    before = whole.count
    program(database(whole.host))
    for at in range(whole.count - before):
        sim = machine(seed=at)
        if faults:
            sim.fail(at + 1, errno.EIO)
        else:
            sim.kill_after(at)
        with pytest.raises((Killed, DiskError)):
            program(database(sim.host))
        sim.heal()
        host = sim.process("p2")
        program(database(replace(host, fs=wrap(host.fs))))
        for image in sim.images(20, tear=True):
            yield image, objects


@pytest.mark.heavy
@pytest.mark.parametrize("faults", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_another_process_goes_on_and_then_the_power_fails(name: str, faults: bool) -> None:
    for image, objects in resumed(name, faults=faults):
        assert held(image.host, objects) == len(objects)
        sound(image.host)


@pytest.mark.heavy
@pytest.mark.parametrize("name", PROGRAMS)
def test_another_process_publishes_the_same_between_two_effects(name: str) -> None:
    program, objects = PROGRAMS[name]
    whole = machine()
    before = whole.count
    program(database(whole.host))
    for at in range(whole.count - before):
        sim = machine(seed=at)
        left = [at]

        def meanwhile(kind: str, path: str, sim: Sim = sim, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                program(database(sim.process("p2")))
                for image in sim.images(6):
                    assert held(image.host, objects) == len(objects)

        sim.watch(meanwhile)
        program(database(sim.host))
        sim.watch(None)
        for image in sim.images(6):
            assert held(image.host, objects) == len(objects)
            sound(image.host)


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.heavy
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_effect_fails(name: str, code: int, forever: bool) -> None:
    program, objects = PROGRAMS[name]
    kinds = {errno.EIO: DiskError, errno.ENOSPC: DiskFull, errno.EMFILE: TooManyFiles}
    at = 0
    while True:
        at += 1
        sim = machine(seed=at)
        writer = database(sim.host)
        fault = sim.fail(at, code, forever=forever)
        done = False
        with suppress(kinds[code]):
            program(writer)
            done = True
        hit = fault.hits > 0
        sim.heal()
        for image in sim.images(6):
            there = held(image.host, objects)
            assert there == len(objects) or not done
        sound(sim.host)
        program(writer)  # the same database goes on
        assert counted(sim, lambda publish=program, to=writer: publish(to)) == {}  # type: ignore[misc]
        for image in sim.images(6):
            assert held(image.host, objects) == len(objects)
        if not hit:
            return


def test_a_full_disk_leaves_nothing_staged() -> None:
    for at in range(1, 12):
        sim = machine(seed=at)
        sim.fail(at, errno.ENOSPC)
        with pytest.raises(DiskFull):
            database(sim.host).publish(some(100))
        sim.heal()
        assert sim.host.fs.listdir("tmp") == []
        if at >= 8:
            break


def test_a_bad_sector_in_one_copy() -> None:
    sim = machine()
    objects = some(5)
    database(sim.host).publish(objects, loose_below=0)
    reader = database(sim.host)
    sim.fail(1, errno.EIO, kinds=frozenset({"pread"}), forever=True)  # blocks; loose objects are read whole
    with pytest.raises(DiskError):
        reader.get(*objects[0][:2])
    assert reader.publish(objects).loose == 5
    assert [reader.get(space, name) for space, name, _ in objects] == [data for *_, data in objects]
    findings = [finding for finding in reader.check() if finding.severity == "error"]
    assert findings[0].code == "unreadable_file"
    assert {f.space for f in findings if f.code == "corrupt_block"} == {space for space, *_ in objects}


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("loose_below", [0, 64])
def test_every_read_fails_once(code: int, loose_below: int) -> None:
    sim = machine()
    objects = some(5)
    database(sim.host).publish(objects, loose_below=loose_below)
    for at in range(1, 100):
        reader = database(sim.host)
        fault = sim.fail(at, code, kinds=READS)
        for space, name, data in objects:
            try:
                assert reader.get(space, name) == data
            except DiskError:
                continue
        sim.heal()
        assert [reader.get(space, name) for space, name, _ in objects] == [data for *_, data in objects]
        if not fault.hits:
            return
    raise AssertionError("it never ran without a fault")


@pytest.mark.parametrize("loose_below", [0, 64])
def test_a_check_goes_on_past_what_it_cannot_read(loose_below: int) -> None:
    sim = machine()
    database(sim.host).publish(some(5), loose_below=loose_below)
    for at in range(1, 100):
        fault = sim.fail(at, errno.EIO, kinds=frozenset({"open", "pread", "read", "map"}))
        findings = list(database(sim.host).check())
        sim.heal()
        if not fault.hits:
            assert findings == []
            return
        assert findings
        assert all(finding.severity == "error" for finding in findings)
    raise AssertionError("it never ran without a fault")


# --- mistakes the above must catch -----------------------------------------------------------------------------------


class NoSyncOfParents(Through):
    """The names of new fan-out directories are not made durable."""

    def sync_dir(self, path: str) -> None:
        if not path.endswith(("objects", "entries", "contents", "media")):
            self._inner.sync_dir(path)


class NoSyncOfHits(Through):
    """What is there is taken to be durable: only directories this process changed are synced."""

    def __init__(self, fs: Fs) -> None:
        super().__init__(fs)
        self._touched: set[str] = set()

    def rename(self, source: str, target: str) -> None:
        self._touched.add(target.rpartition("/")[0])
        self._inner.rename(source, target)

    def mkdir(self, path: str) -> None:
        self._inner.mkdir(path)
        self._touched.add(path.rpartition("/")[0])

    def sync_dir(self, path: str) -> None:
        if path in self._touched:
            self._inner.sync_dir(path)


def intact(image: Sim, objects: Sequence[Object]) -> bool:
    try:
        return held(image.host, objects) == len(objects)
    except Corrupt:
        return False


LEFT_OUT: dict[str, Wrap] = {
    "files": lambda fs: deaf(fs, files=""),
    "directories": lambda fs: deaf(fs, directories=""),
    "parents": lambda fs: cast(Fs, NoSyncOfParents(fs)),
}


@pytest.mark.heavy
@pytest.mark.parametrize("left_out", LEFT_OUT)
@pytest.mark.parametrize("name", ["loose", "again"])
def test_a_step_left_out_is_caught(left_out: str, name: str) -> None:
    program, objects = PROGRAMS[name]
    sim = machine()
    program(database(replace(sim.host, fs=LEFT_OUT[left_out](sim.host.fs))))
    assert not all(intact(image, objects) for image in sim.images(60, tear=True))


def explored(name: str) -> bool:
    """Whether every image of a cut is sound, and has its objects whole or not at all."""
    program, objects = PROGRAMS[name]
    sim = machine()
    for _, cut in cuts(sim, lambda: program(database(sim.host))):
        for image in cut.images(40):
            try:
                held(image.host, objects)
                sound(image.host)
            except (Corrupt, AssertionError):
                return False
    return True


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["pieces", "pieces again"])
def test_bodies_before_their_pieces_are_durable_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directories of pieces are synced with those of the bodies."""
    sync, begun = Publisher._sync, set[int]()

    def late(self: Publisher, work: _Work) -> None:
        if work.pieces and id(work) not in begun:
            begun.add(id(work))
        else:
            sync(self, work)

    assert explored(name)
    monkeypatch.setattr(Publisher, "_sync", late)
    assert not explored(name)


def test_bodies_written_before_their_pieces_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    write, held_back = Publisher._write_loose, list[_Object]()

    def swapped(self: Publisher, wanted: _Object, work: _Work) -> None:
        if wanted[0] is Space.PIECES:
            held_back.append(wanted)
            return
        write(self, wanted, work)
        while held_back:
            write(self, held_back.pop(), work)

    monkeypatch.setattr(Publisher, "_write_loose", swapped)
    assert not explored("pieces")


def test_pieces_believed_without_a_look_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publisher, "_lacking_pieces", lambda _self, _work: [])
    assert not explored("pieces")


@pytest.mark.heavy
@pytest.mark.parametrize("name", PROGRAMS)
def test_trust_in_what_is_there_is_caught(name: str) -> None:
    images = resumed(name, lambda fs: cast(Fs, NoSyncOfHits(fs)))
    assert not all(intact(image, objects) for image, objects in images)
