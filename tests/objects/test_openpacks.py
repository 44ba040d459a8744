"""Pack files left open between reads: few of them, none that another thread uses, and none of a pack that went."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from threading import Thread

import pytest

from agentsession_cas.core.packformat import Grade
from agentsession_cas.core.slices import drain
from agentsession_cas.effects.host import Host, OpenFile, real_host
from agentsession_cas.effects.memory import MemoryFs, memory_host
from agentsession_cas.errors import Corrupt
from agentsession_cas.objects import ObjectDatabase
from agentsession_cas.objects.packfile import OPEN_MAX, OpenPacks
from tests.helpers.objects import Object, body, lay_out

OBJECTS = [body(b'{"n":%d}' % n * 400) for n in range(3 * OPEN_MAX)]


def made(host: Host, root: str) -> ObjectDatabase:
    """Each object in a pack of its own; nothing read is kept in memory."""
    lay_out(host.fs, root)
    database = ObjectDatabase(host, root, cache_max=0)
    for wanted in OBJECTS:
        database.publish([wanted], loose_below=0)
    return database


def read(database: ObjectDatabase, objects: list[Object]) -> None:
    for space, digest, data in objects:
        assert database.get(space, digest) == data


def left_open(host: Host, *, packs: str = "/objects/pack") -> int:
    """How many pack files are held open, by anyone."""
    fs = host.fs
    assert isinstance(fs, MemoryFs)
    files = [fs._disk.find_file(f"{packs}/{name}") for name in fs.listdir(packs) if name.endswith(".pack")]
    return sum(file.opens for file in files)


def test_few_stay_open_and_none_behind_a_close() -> None:
    host = memory_host()
    database = made(host, "")
    read(database, OBJECTS)
    assert left_open(host) == OPEN_MAX
    database.close()
    assert left_open(host) == 0


def test_the_last_one_used_is_read_without_another_open(monkeypatch: pytest.MonkeyPatch) -> None:
    host = memory_host()
    database = made(host, "")
    read(database, OBJECTS)
    opened: list[str] = []
    real: Callable[..., OpenFile] = host.fs.open

    def noting(path: str, *, write: bool = False) -> OpenFile:
        opened.append(path)
        return real(path, write=write)

    monkeypatch.setattr(MemoryFs, "open", staticmethod(noting))
    read(database, OBJECTS[-OPEN_MAX:] * 3)
    assert not opened
    read(database, OBJECTS[:1])
    assert len(opened) == 1


def test_a_pack_that_went_serves_until_it_is_listed_again_and_is_let_go_then() -> None:
    host = memory_host()
    database = made(host, "")
    read(database, OBJECTS[-2:])
    other = ObjectDatabase(host, "")
    gone = [host.fs._disk.find_file(pack.path) for pack in other.packs()]  # type: ignore[attr-defined]
    drain(other.consolidator(nullcontext).merge(other.packs(), (), Grade.EVERYDAY, None))
    other.close()
    assert sum(file.opens for file in gone) == 2
    read(database, OBJECTS[-2:])
    database.packs()
    assert sum(file.opens for file in gone) == 0
    read(database, OBJECTS)


def test_a_file_put_in_place_anew_is_read_when_the_one_left_open_does_not(tmp_path: Path) -> None:
    lay_out(real_host().fs, str(tmp_path))
    database = ObjectDatabase(real_host(), str(tmp_path), cache_max=0)
    stem = database.publish(OBJECTS, loose_below=0).pack
    path = tmp_path / "objects/pack" / f"{stem}.pack"
    read(database, OBJECTS[:1])
    good = path.read_bytes()
    with path.open("r+b") as file:
        file.write(bytes(len(good)))
    with pytest.raises(Corrupt):
        read(database, OBJECTS[:1])
    with path.open("r+b") as file:
        file.write(good)
    read(database, OBJECTS[:1])
    with path.open("r+b") as file:
        file.write(bytes(len(good)))
    (tmp_path / "good").write_bytes(good)
    (tmp_path / "good").rename(path)
    read(database, OBJECTS)


class _Files:
    """What OpenPacks holds, as far as it asks."""

    def __init__(self) -> None:
        self.lent = 0
        self.closed = False

    def forget(self) -> None:
        assert not self.closed

    def close(self) -> None:
        assert not self.closed
        self.closed = True


def test_a_file_is_lent_to_one_at_a_time_and_closed_once() -> None:
    files = OpenPacks()
    packs = [object() for _ in range(2 * OPEN_MAX)]
    files.want(packs)
    made: list[_Files] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(3000):
            pack = chance.choice(packs)
            file = files.lend(pack)
            if file is None:
                file = _Files()  # type: ignore[assignment]
                made.append(file)  # type: ignore[arg-type]
            assert file is not None
            file.lent += 1  # type: ignore[attr-defined]
            assert file.lent == 1  # type: ignore[attr-defined]
            assert not file.closed  # type: ignore[attr-defined]
            file.lent -= 1  # type: ignore[attr-defined]
            files.leave(pack, file)
            if chance.random() < 0.01:
                files.want(chance.sample(packs, OPEN_MAX))
                files.want(packs)

    errors: list[BaseException] = []

    def guarded(seed: int) -> None:
        try:
            work(seed)
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=guarded, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sum(not file.closed for file in made) <= OPEN_MAX
    files.want(())
    assert all(file.closed for file in made)


def test_a_file_of_a_pack_that_went_meanwhile_is_closed() -> None:
    files, pack, file = OpenPacks(), object(), _Files()
    files.want([pack])
    files.want([])
    files.leave(pack, file)  # type: ignore[arg-type]
    assert file.closed
    assert files.lend(pack) is None


def test_one_left_open_that_does_not_read_is_opened_anew(tmp_path: Path) -> None:
    """A repair puts a good pack in the place of a damaged one: it has the same name, and is another file."""
    host = real_host()
    database = made(host, str(tmp_path))
    read(database, OBJECTS[:1])
    (pack,) = [each for each in database.packs() if each.find(*OBJECTS[0][:2])]
    whole = Path(pack.path).read_bytes()
    other = Path(f"{pack.path}.other")
    other.write_bytes(whole)
    Path(pack.path).chmod(0o600)
    with Path(pack.path).open("r+b") as file:  # in the file that was left open
        file.write(whole[:16] + bytes(len(whole) - 16))
    other.replace(pack.path)
    assert pack.find(*OBJECTS[0][:2]) == (0, OBJECTS[0][2])
    database.close()


def test_no_block_is_held_beside_a_file_left_open() -> None:
    """What is kept of blocks is bounded in bytes, elsewhere."""
    database = made(memory_host(), "")
    read(database, OBJECTS[:4])
    files = list(database._packs._files._files.values())
    assert len(files) == 4
    assert [file._last[1] for file in files] == [None] * 4
    database.close()
