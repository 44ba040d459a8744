"""What only the operating system can show: permissions, forks, descriptors, short writes."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agentsession_cas.effects.host import real_host, translate
from agentsession_cas.errors import (
    AgentSessionError,
    DiskError,
    DiskFull,
    FileTaken,
    NoFile,
    NotRegular,
    ReadOnly,
    TooManyFiles,
    UnsupportedSystem,
)

ORPHAN = """
import os, sys
from agentsession_cas.effects.host import real_host
assert real_host().fs.lock(sys.argv[1], exclusive=True)
if os.fork():
    os._exit(0)
print("child", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_what_is_made_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    fs = real_host().fs
    before = os.umask(umask)
    try:
        fs.create(f"{tmp_path}/file").close()
        fs.mkdir(f"{tmp_path}/directory")
        lock = fs.lock(f"{tmp_path}/lock", exclusive=True, note="me")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"file": 0o600, "directory": 0o700, "lock": 0o600}
    assert lock is not None
    lock.release()


def _descriptors(directory: Path) -> list[int]:
    """Those open on what lies in a directory."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            if os.readlink(f"/proc/self/fd/{fd}").startswith(str(directory)):
                found.append(int(fd))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_descriptors_do_not_reach_other_programs(tmp_path: Path) -> None:
    fs = real_host().fs
    created, opened = fs.create(f"{tmp_path}/f"), fs.open(f"{tmp_path}/f")
    lock = fs.lock(f"{tmp_path}/lock", exclusive=False)
    assert lock is not None
    assert len(_descriptors(tmp_path)) == 3
    assert not any(os.get_inheritable(fd) for fd in _descriptors(tmp_path))
    created.close()
    opened.close()
    lock.release()
    assert _descriptors(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_no_descriptor_leaks(tmp_path: Path) -> None:
    fs = real_host().fs
    fs.create(f"{tmp_path}/f").close()
    held = fs.lock(f"{tmp_path}/lock", exclusive=True)
    fs.read(f"{tmp_path}/f")
    fs.sync_dir(str(tmp_path))
    fs.lock(f"{tmp_path}/lock", exclusive=True)
    mapped = fs.map(f"{tmp_path}/f")
    for wrong in (tmp_path, tmp_path / "none"):
        with pytest.raises(DiskError):
            fs.open(str(wrong))
        with pytest.raises(DiskError):
            fs.map(str(wrong))
    mapped.close()
    assert len(_descriptors(tmp_path)) == 1
    assert held is not None
    held.release()


def test_a_pipe_neither_hangs_nor_passes_for_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    fs = real_host().fs
    for call in (lambda: fs.open(path), lambda: fs.open(path, write=True), lambda: fs.read(path), lambda: fs.map(path)):
        with pytest.raises(AgentSessionError):
            call()


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EMFILE, TooManyFiles),
        (errno.ENFILE, TooManyFiles),
        (errno.EROFS, ReadOnly),
        (errno.ENOENT, NoFile),
        (errno.EEXIST, FileTaken),
        (errno.ENOTEMPTY, FileTaken),
        (errno.EISDIR, NotRegular),
        (errno.ENOTDIR, NotRegular),
        (errno.EIO, DiskError),
        (errno.EACCES, DiskError),
        (errno.EXDEV, DiskError),
    ],
)
def test_translation(code: int, kind: type[AgentSessionError]) -> None:
    error = translate(OSError(code, "ignored"), "write", "/some/path")
    assert type(error) is kind
    assert (error.what, error.where) == (os.strerror(code), "write /some/path")


def test_an_error_without_a_number_keeps_its_text() -> None:
    assert translate(OSError("odd"), "sync", "p").what == "odd"


@contextmanager
def _limit(which: int, soft: int) -> Iterator[None]:
    before = resource.getrlimit(which)
    resource.setrlimit(which, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(which, before)


def test_no_descriptor_left(tmp_path: Path) -> None:
    fs = real_host().fs
    fs.create(f"{tmp_path}/f").close()
    with _limit(resource.RLIMIT_NOFILE, 3):
        for call in (
            lambda: fs.open(f"{tmp_path}/f"),
            lambda: fs.create(f"{tmp_path}/g"),
            lambda: fs.read(f"{tmp_path}/f"),
            lambda: fs.map(f"{tmp_path}/f"),
            lambda: fs.listdir(str(tmp_path)),
            lambda: fs.sync_dir(str(tmp_path)),
            lambda: fs.lock(f"{tmp_path}/f", exclusive=True),
        ):
            with pytest.raises(TooManyFiles):
                call()
    assert fs.listdir(str(tmp_path)) == ["f"]


def test_a_write_that_stops_half_way_is_an_error(tmp_path: Path) -> None:
    file = real_host().fs.create(f"{tmp_path}/f")
    with _limit(resource.RLIMIT_FSIZE, 10_000), pytest.raises(DiskError) as refused:
        file.pwrite(b"x" * 30_000, 0)
    assert refused.value.what == os.strerror(errno.EFBIG)
    assert file.size() == 10_000


# --- locks -----------------------------------------------------------------------------------------------------------


def test_a_waiter_gets_the_lock_when_it_is_let_go(tmp_path: Path) -> None:
    fs = real_host().fs
    held = fs.lock(f"{tmp_path}/lock", exclusive=True)
    assert held is not None
    got = threading.Event()

    def wait() -> None:
        if (lock := fs.lock(f"{tmp_path}/lock", exclusive=True, timeout_s=60)) is not None:
            got.set()
            lock.release()

    waiter = threading.Thread(target=wait)
    waiter.start()
    held.release()
    waiter.join()
    assert got.is_set()


def test_a_file_replaced_between_open_and_lock_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = real_host().fs
    path = tmp_path / "lock"
    locked: list[int] = []

    def swapping(fd: int, operation: int) -> None:
        if not locked:  # another process replaces the file just before ours locks what it opened
            path.rename(tmp_path / "old")
            path.touch()
        elif len(locked) == 1:  # and then unlinks the next one
            path.unlink()
        locked.append(os.fstat(fd).st_ino)
        flock(fd, operation)

    flock = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", swapping)
    lock = fs.lock(str(path), exclusive=True)
    assert lock is not None
    assert len(locked) == 3
    assert locked[2] == path.stat().st_ino
    monkeypatch.undo()
    assert fs.lock(str(path), exclusive=True) is None
    old = fs.lock(f"{tmp_path}/old", exclusive=True)
    assert old is not None
    old.release()
    lock.release()


def test_a_forked_child_releases_nothing(tmp_path: Path) -> None:
    host = real_host()
    lock = host.fs.lock(f"{tmp_path}/lock", exclusive=True, note="parent")
    parent = host.process_id()
    assert lock is not None
    child = os.fork()
    if child == 0:
        lock.release()
        os._exit(0 if host.process_id() != parent else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert host.fs.lock(f"{tmp_path}/lock", exclusive=True) is None
    assert host.fs.lock_note(f"{tmp_path}/lock") == "parent"
    lock.release()
    again = host.fs.lock(f"{tmp_path}/lock", exclusive=True)
    assert again is not None
    again.release()


def test_a_forked_child_does_not_hold_a_dead_parents_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ORPHAN, f"{tmp_path}/lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == "child\n"
        assert parent.wait() == 0
        lock = real_host().fs.lock(f"{tmp_path}/lock", exclusive=True)
        assert lock is not None
        lock.release()
        parent.stdin.close()


def test_a_killed_process_leaves_its_note_but_not_its_lock(tmp_path: Path) -> None:
    program = ORPHAN.replace("exclusive=True", 'exclusive=True, note="gone"')
    subprocess.run([sys.executable, "-c", program, f"{tmp_path}/lock"], stdin=subprocess.DEVNULL, check=True)
    fs = real_host().fs
    assert fs.lock_note(f"{tmp_path}/lock") == "gone"
    # its child may be between fork and hook, where it holds a copy for a moment
    lock = fs.lock(f"{tmp_path}/lock", exclusive=True, timeout_s=60, note="me")
    assert lock is not None
    assert fs.lock_note(f"{tmp_path}/lock") == "me"
    lock.release()


def test_windows_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(UnsupportedSystem, match="Windows"):
        real_host()
