"""One contract, every host: what a caller can see of a file system must not depend on which one it is."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentsession_cas.effects.host import Fs, Host, real_host
from agentsession_cas.effects.memory import memory_host
from agentsession_cas.errors import AgentSessionError, DiskError, FileTaken, NoFile, NotRegular
from agentsession_cas.testing.simfs import Sim

HOLD = """
import sys
from agentsession_cas.effects.host import real_host
held = real_host().fs.lock(sys.argv[1], exclusive=sys.argv[2] == "exclusive", note=sys.argv[3])
print("held" if held else "refused", flush=True)
sys.stdin.read()
held and held.release()
"""

Holding = Callable[[str, bool, str], AbstractContextManager[bool]]


@dataclass(frozen=True)
class Place:
    """A host, an empty directory on it, and another process that can hold a lock there."""

    host: Host
    root: str
    holding: Holding

    @property
    def fs(self) -> Fs:
        return self.host.fs

    def put(self, name: str, data: bytes = b"") -> str:
        path = f"{self.root}/{name}"
        file = self.fs.create(path)
        file.pwrite(data, 0)
        file.close()
        return path


@contextmanager
def _held_by_subprocess(path: str, exclusive: bool, note: str) -> Iterator[bool]:
    kind = "exclusive" if exclusive else "shared"
    command = [sys.executable, "-c", HOLD, path, kind, note]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        yield holder.stdout.readline() == "held\n"
        holder.stdin.close()


def _held_on(other: Host) -> Holding:
    @contextmanager
    def held(path: str, exclusive: bool, note: str) -> Iterator[bool]:
        lock = other.fs.lock(path, exclusive=exclusive, note=note)
        yield lock is not None
        if lock is not None:
            lock.release()

    return held


@pytest.fixture(params=["real", "sim", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "real":
        return Place(real_host(), str(tmp_path), _held_by_subprocess)
    if request.param == "sim":
        sim = Sim()
        sim.host.fs.mkdir("/place")
        return Place(sim.host, "/place", _held_on(sim.process("p2")))
    host = memory_host()
    host.fs.mkdir("/place")
    return Place(host, "/place", _held_on(host))


# --- files -----------------------------------------------------------------------------------------------------------


def test_reads_back_what_was_written(place: Place) -> None:
    file = place.fs.create(f"{place.root}/f")
    file.pwrite(b"hello", 0)
    file.pwrite(bytearray(b"J"), 0)
    file.pwrite(memoryview(b"world")[1:], 7)
    assert file.size() == 11
    assert file.pread(100, 0) == b"Jello\0\0orld"
    assert file.pread(3, 1) == b"ell"
    assert file.pread(4, 9) == b"ld"
    assert file.pread(4, 50) == b""
    file.sync()
    file.close()
    assert place.fs.read(file.path) == b"Jello\0\0orld"


def test_writing_nothing_writes_nothing(place: Place) -> None:
    file = place.fs.create(f"{place.root}/f")
    file.pwrite(b"", 10)
    assert file.size() == 0


def test_a_read_is_a_copy(place: Place) -> None:
    file = place.fs.create(f"{place.root}/f")
    file.pwrite(b"one", 0)
    before = file.pread(3, 0)
    file.pwrite(b"two", 0)
    assert before == b"one"
    assert isinstance(before, bytes)


def test_large_writes_land_whole(place: Place) -> None:
    data = bytes(range(256)) * 20_000
    path = place.put("big", data)
    assert place.fs.read(path) == data
    assert place.fs.open(path).pread(len(data) + 1, 0) == data


def test_two_handles_see_each_other(place: Place) -> None:
    path = place.put("f", b"one")
    writer, reader = place.fs.open(path, write=True), place.fs.open(path)
    writer.pwrite(b"three", 1)
    assert reader.pread(10, 0) == b"othree"
    assert reader.size() == 6


def test_a_handle_outlives_its_name(place: Place) -> None:
    path = place.put("f", b"old")
    file = place.fs.open(path)
    place.fs.unlink(path)
    assert file.pread(3, 0) == b"old"
    assert place.fs.stat(path) is None
    other = place.put("f", b"new")
    assert file.inode() != place.fs.open(other).inode()


def test_closed_handles_refuse(place: Place) -> None:
    file = place.fs.open(place.put("f", b"data"), write=True)
    file.close()
    file.close()
    for call in (lambda: file.pread(1, 0), lambda: file.pwrite(b"x", 0), file.sync, file.size):
        with pytest.raises(DiskError):
            call()


def test_a_handle_opened_to_read_refuses_to_write(place: Place) -> None:
    file = place.fs.open(place.put("f", b"data"))
    with pytest.raises(DiskError) as refused:
        file.pwrite(b"x", 0)
    assert refused.value.where == f"write {file.path}"
    assert file.pread(4, 0) == b"data"


def test_create_is_exclusive(place: Place) -> None:
    path = place.put("f", b"kept")
    place.fs.mkdir(f"{place.root}/d")
    for taken in (path, f"{place.root}/d"):
        with pytest.raises(FileTaken) as refused:
            place.fs.create(taken)
        assert refused.value.code == "file_exists"
        assert refused.value.where == f"create {taken}"
    assert place.fs.read(path) == b"kept"


def test_missing_files(place: Place) -> None:
    path = f"{place.root}/none"
    for call in (
        lambda: place.fs.open(path),
        lambda: place.fs.open(path, write=True),
        lambda: place.fs.map(path),
        lambda: place.fs.listdir(path),
        lambda: place.fs.sync_dir(path),
        lambda: place.fs.unlink(path),
        lambda: place.fs.rmdir(path),
        lambda: place.fs.rename(path, f"{place.root}/other"),
        lambda: place.fs.create(f"{path}/f"),
        lambda: place.fs.mkdir(f"{path}/d"),
        lambda: place.fs.lock(f"{path}/lock", exclusive=True),
    ):
        with pytest.raises(NoFile) as missing:
            call()
        assert missing.value.code == "no_file"
        assert path in missing.value.where
    assert place.fs.read(path) is None
    assert place.fs.stat(path) is None
    assert place.fs.lock_note(path) == ""


def test_directories_are_no_files(place: Place) -> None:
    directory = f"{place.root}/d"
    place.fs.mkdir(directory)
    file = place.put("f")
    for call in (
        lambda: place.fs.open(directory),
        lambda: place.fs.open(directory, write=True),
        lambda: place.fs.read(directory),
        lambda: place.fs.map(directory),
        lambda: place.fs.listdir(file),
        lambda: place.fs.sync_dir(file),
        lambda: place.fs.rmdir(file),
        lambda: place.fs.rename(file, directory),
        lambda: place.fs.open(f"{file}/below"),
        lambda: place.fs.create(f"{file}/below"),
        lambda: place.fs.lock(directory, exclusive=True),
    ):
        with pytest.raises(NotRegular):
            call()
    assert place.fs.stat(f"{file}/below") is None


def test_stat(place: Place) -> None:
    path = place.put("f", b"12345")
    found = place.fs.stat(path)
    assert found is not None
    assert (found.size, found.is_dir) == (5, False)
    file = place.fs.open(path)
    assert file.inode() == found.inode
    directory = place.fs.stat(place.root)
    assert directory is not None
    assert directory.is_dir
    assert directory.device == found.device
    assert directory.inode != found.inode
    other = place.fs.stat(place.put("g"))
    assert other is not None
    assert other.inode != found.inode


def test_map(place: Place) -> None:
    with place.fs.map(place.put("f", b"0123456789")) as mapped:
        assert len(mapped.view) == 10
        assert bytes(mapped.view[3:6]) == b"345"
        with pytest.raises(TypeError):
            mapped.view[0] = 1
    with pytest.raises(ValueError, match="released"):
        len(mapped.view)
    mapped.close()


def test_map_of_an_empty_file(place: Place) -> None:
    with place.fs.map(place.put("f")) as mapped:
        assert bytes(mapped.view) == b""


def test_map_closes_under_a_slice_still_held(place: Place) -> None:
    mapped = place.fs.map(place.put("f", b"0123456789"))
    part = mapped.view[2:4]
    mapped.close()
    assert bytes(part) == b"23"


# --- directories -----------------------------------------------------------------------------------------------------


def test_listdir_is_sorted(place: Place) -> None:
    for name in ("b", "a", "c"):
        place.put(name)
    place.fs.mkdir(f"{place.root}/aa")
    assert place.fs.listdir(place.root) == ["a", "aa", "b", "c"]
    place.fs.sync_dir(place.root)


def test_mkdir_and_rmdir(place: Place) -> None:
    directory = f"{place.root}/d"
    place.fs.mkdir(directory)
    with pytest.raises(FileTaken):
        place.fs.mkdir(directory)
    place.put("d/f")
    with pytest.raises(FileTaken):
        place.fs.rmdir(directory)
    with pytest.raises(DiskError):
        place.fs.unlink(directory)
    place.fs.unlink(f"{directory}/f")
    place.fs.rmdir(directory)
    assert place.fs.listdir(place.root) == []


def test_rename_replaces_a_file(place: Place) -> None:
    source, target = place.put("a", b"new"), place.put("b", b"old")
    before = place.fs.open(target)
    place.fs.rename(source, target)
    assert place.fs.listdir(place.root) == ["b"]
    assert place.fs.read(target) == b"new"
    assert before.pread(3, 0) == b"old"


def test_rename_of_a_directory_takes_all_along(place: Place) -> None:
    place.fs.mkdir(f"{place.root}/d")
    place.put("d/f", b"within")
    place.fs.mkdir(f"{place.root}/e")
    place.fs.rename(f"{place.root}/d", f"{place.root}/e/d")
    assert place.fs.read(f"{place.root}/e/d/f") == b"within"
    assert place.fs.listdir(place.root) == ["e"]


def test_a_directory_replaces_nothing(place: Place) -> None:
    for name in ("d", "empty", "full"):
        place.fs.mkdir(f"{place.root}/{name}")
    place.put("full/f")
    place.put("file")
    for target in ("empty", "full", "file"):
        with pytest.raises(FileTaken) as refused:
            place.fs.rename(f"{place.root}/d", f"{place.root}/{target}")
        assert refused.value.where == f"rename {place.root}/d to {place.root}/{target}"
    assert place.fs.listdir(place.root) == ["d", "empty", "file", "full"]


def test_a_directory_does_not_go_into_itself(place: Place) -> None:
    place.fs.mkdir(f"{place.root}/d")
    with pytest.raises(DiskError):
        place.fs.rename(f"{place.root}/d", f"{place.root}/d/d")
    assert place.fs.listdir(place.root) == ["d"]


def test_rename_onto_itself_changes_nothing(place: Place) -> None:
    path = place.put("f", b"same")
    place.fs.rename(path, path)
    assert place.fs.read(path) == b"same"


# --- locks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theirs", [True, False])
@pytest.mark.parametrize("mine", [True, False])
def test_two_processes(place: Place, mine: bool, theirs: bool) -> None:
    path = f"{place.root}/lock"
    with place.holding(path, theirs, "") as held:
        assert held
        lock = place.fs.lock(path, exclusive=mine)
        assert (lock is not None) == (not mine and not theirs)
        if lock is not None:
            lock.release()
    lock = place.fs.lock(path, exclusive=mine)
    assert lock is not None
    with place.holding(path, theirs, "") as held:
        assert held == (not mine and not theirs)
    lock.release()
    lock.release()
    with place.holding(path, theirs, "") as held:
        assert held


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_two_handles_of_one_process(place: Place, first: bool, second: bool) -> None:
    path = f"{place.root}/lock"
    one = place.fs.lock(path, exclusive=first)
    assert one is not None
    two = place.fs.lock(path, exclusive=second)
    assert (two is not None) == (not first and not second)
    one.release()
    if two is None:
        two = place.fs.lock(path, exclusive=second)
    assert two is not None
    two.release()


def test_the_note_names_the_holder_until_the_release(place: Place) -> None:
    path = f"{place.root}/lock"
    with place.holding(path, True, "the other: pid 7") as held:
        assert held
        assert place.fs.lock_note(path) == "the other: pid 7"
        assert place.fs.lock(path, exclusive=True, note="me") is None
        assert place.fs.lock_note(path) == "the other: pid 7"
    assert place.fs.lock_note(path) == ""


def test_a_lock_without_a_note_leaves_the_bytes_alone(place: Place) -> None:
    path = place.put("lock", b"epoch 4")
    for exclusive in (True, False):
        lock = place.fs.lock(path, exclusive=exclusive)
        assert lock is not None
        assert place.fs.read(path) == b"epoch 4"
        lock.release()
    assert place.fs.read(path) == b"epoch 4"


def test_a_timeout_that_passes(place: Place) -> None:
    path = f"{place.root}/lock"
    with place.holding(path, True, ""):
        began = place.host.clock.monotonic()
        assert place.fs.lock(path, exclusive=False, timeout_s=0.02) is None
        assert place.host.clock.monotonic() - began >= 0.02


def test_a_lock_is_held_on_the_inode_the_path_leads_to(place: Place) -> None:
    path = f"{place.root}/lock"
    old = place.fs.lock(path, exclusive=True)
    place.fs.rename(place.put("other"), path)
    new = place.fs.lock(path, exclusive=True)
    assert old is not None
    assert new is not None
    assert place.fs.lock(path, exclusive=True) is None
    old.release()
    assert place.fs.lock(path, exclusive=True) is None
    new.release()


def test_a_directory_moved_away_takes_its_lock_along(place: Place) -> None:
    place.fs.mkdir(f"{place.root}/s")
    lock = place.fs.lock(f"{place.root}/s/lock", exclusive=True)
    place.fs.rename(f"{place.root}/s", f"{place.root}/gone")
    with pytest.raises(NoFile):
        place.fs.lock(f"{place.root}/s/lock", exclusive=True)
    place.fs.mkdir(f"{place.root}/s")
    assert place.fs.lock(f"{place.root}/gone/lock", exclusive=True) is None
    again = place.fs.lock(f"{place.root}/s/lock", exclusive=True)
    assert lock is not None
    assert again is not None


def test_threads_share_a_host(place: Place) -> None:
    """A counter in a file, read and written back under a lock, loses no step."""
    place.put("count", b"0")
    path = f"{place.root}/count"

    def count() -> None:
        for _ in range(25):
            lock = place.fs.lock(f"{place.root}/lock", exclusive=True, timeout_s=1e9)
            assert lock is not None
            file = place.fs.open(path, write=True)
            file.pwrite(str(int(file.pread(9, 0)) + 1).encode(), 0)
            file.close()
            lock.release()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert place.fs.read(path) == b"100"


# --- the rest --------------------------------------------------------------------------------------------------------


def test_clock_and_entropy(place: Place) -> None:
    clock, entropy = place.host.clock, place.host.entropy
    assert clock.now_ns() > 1_600_000_000 * 10**9
    before = clock.monotonic()
    clock.sleep(0.001)
    assert clock.monotonic() - before >= 0.001
    taken = [entropy.take(n) for n in (0, 1, 16, 16, 200)]
    assert [len(piece) for piece in taken] == [0, 1, 16, 16, 200]
    assert taken[2] != taken[3]
    assert place.host.process
    assert place.host.process_id() == place.host.process_id()


def test_every_error_is_ours_and_says_where(place: Place) -> None:
    long = f"{place.root}/{'x' * 300}"
    if isinstance(place.fs, type(real_host().fs)):
        with pytest.raises(DiskError) as refused:
            place.fs.create(long)
        assert refused.value.what == os.strerror(errno.ENAMETOOLONG)
    with pytest.raises(AgentSessionError) as missing:
        place.fs.open(f"{place.root}/none")
    assert missing.value.what == os.strerror(errno.ENOENT)
    assert missing.value.where == f"open {place.root}/none"
    assert isinstance(missing.value.__cause__, FileNotFoundError)
