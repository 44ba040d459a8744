"""The real host: file system, clock and randomness of the operating system, and the protocols they keep.

Owns every call to the operating system. ``OSError`` is translated here and nowhere else: callers see classes of
``errors`` whose ``where`` holds operation and path. Invariants: a write is whole or an error; a lock is held on the
inode its path leads to; a forked child neither keeps nor releases what it inherited. Must not: know the store's layout,
or decide what has to be synced and when.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import socket
import stat as modes
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event
from types import TracebackType
from typing import Final, Self

from agentsession_cas.effects.network import MOUNTS, network_of
from agentsession_cas.effects.protocols import (
    Buffer,
    Clock,
    Entropy,
    Fs,
    Host,
    Lock,
    MappedFile,
    OpenFile,
    Stat,
    poll,
)
from agentsession_cas.effects.together import side_by_side
from agentsession_cas.effects.workers import start_workers
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

if sys.platform != "win32":
    import fcntl

__all__ = [
    "Buffer",
    "Clock",
    "Entropy",
    "Fs",
    "Host",
    "Lock",
    "MappedFile",
    "OpenFile",
    "Stat",
    "SystemClock",
    "SystemEntropy",
    "real_host",
    "translate",
]

PIECE_MAX: Final = 1 << 30
"""Bytes per system call: Linux stops a little below 2 GiB, macOS refuses more."""

NOTE_MAX: Final = 4096
"""Bytes of a lock's note that are read back."""


# --- errors ----------------------------------------------------------------------------------------------------------

_CLASSES: Final[dict[int, tuple[type[AgentSessionError], str]]] = {
    errno.ENOSPC: (DiskFull, "free some space"),
    errno.EDQUOT: (DiskFull, "free some space, or have the quota raised"),
    errno.EMFILE: (TooManyFiles, "close some files, or raise the limit (ulimit -n)"),
    errno.ENFILE: (TooManyFiles, "close some files, or raise the system's limit"),
    errno.EROFS: (ReadOnly, "open it read-only"),
    errno.ENOENT: (NoFile, ""),
    errno.EEXIST: (FileTaken, ""),
    errno.ENOTEMPTY: (FileTaken, ""),
    errno.ENOTDIR: (NotRegular, ""),
    errno.EISDIR: (NotRegular, ""),
    errno.ELOOP: (NotRegular, ""),
}


def translate(error: OSError, operation: str, path: str) -> AgentSessionError:
    """The error of this package that an ``OSError`` is; ``where`` becomes "operation path"."""
    code = error.errno or 0
    kind, next_step = _CLASSES.get(code, (DiskError, ""))
    return kind(os.strerror(code) if code else str(error), where=f"{operation} {path}", next_step=next_step)


@contextmanager
def _calling(operation: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise translate(error, operation, path) from error


# --- files -----------------------------------------------------------------------------------------------------------


def _sync_fd(fd: int, *, names: bool) -> None:
    """Flush to the medium. macOS needs F_FULLFSYNC: its fsync leaves the bytes in the drive's cache."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    elif names:
        os.fsync(fd)
    else:
        os.fdatasync(fd)


def _read_fd(fd: int, size: int, offset: int) -> bytes:
    data = os.pread(fd, min(size, PIECE_MAX), offset)
    if len(data) == size or not data:
        return data
    pieces = [data]
    got = len(data)
    while got < size:
        data = os.pread(fd, min(size - got, PIECE_MAX), offset + got)
        if not data:
            break
        pieces.append(data)
        got += len(data)
    return b"".join(pieces)


def _open_fd(path: str, flags: int) -> tuple[int, os.stat_result]:
    """A descriptor of a regular file. O_NONBLOCK keeps a pipe by that name from holding us up."""
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        found = os.fstat(fd)
        if not modes.S_ISREG(found.st_mode):
            raise NotRegular("not a regular file", where=f"open {path}")
    except BaseException:
        os.close(fd)
        raise
    return fd, found


class _File:
    """A descriptor. Closed is -1, which the system refuses: no call can reach a descriptor that was reused."""

    __slots__ = ("_fd", "_inode", "path")

    def __init__(self, path: str, flags: int, operation: str) -> None:
        self.path = path
        try:
            self._fd, found = _open_fd(path, flags)
        except OSError as error:
            raise translate(error, operation, path) from error
        self._inode = found.st_ino

    def pread(self, size: int, offset: int) -> bytes:
        try:
            return _read_fd(self._fd, size, offset)
        except OSError as error:
            raise translate(error, "read", self.path) from error

    def pwrite(self, data: Buffer, offset: int) -> None:
        try:
            done = os.pwrite(self._fd, data, offset) if len(data) <= PIECE_MAX else 0
            if done == len(data):
                return
            rest = memoryview(data)[done:]
            while rest:
                more = os.pwrite(self._fd, rest[:PIECE_MAX], offset + len(data) - len(rest))
                if more == 0:
                    raise OSError(errno.EIO, "nothing was written")
                rest = rest[more:]
        except OSError as error:
            raise translate(error, "write", self.path) from error

    def sync(self) -> None:
        try:
            if self._fd < 0:  # which fdatasync would call a ValueError
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            _sync_fd(self._fd, names=False)
        except OSError as error:
            raise translate(error, "sync", self.path) from error

    def size(self) -> int:
        with _calling("stat", self.path):
            return os.fstat(self._fd).st_size

    def inode(self) -> int:
        return self._inode

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            try:
                os.close(fd)
            except OSError as error:
                raise translate(error, "close", self.path) from error


class _Mapping:
    """An mmap, or nothing for an empty file, which cannot be mapped."""

    __slots__ = ("_map", "view")

    def __init__(self, path: str) -> None:
        with _calling("map", path):
            fd, found = _open_fd(path, os.O_RDONLY)
            try:
                self._map = mmap.mmap(fd, 0, access=mmap.ACCESS_READ) if found.st_size else None
            finally:
                os.close(fd)
        self.view = memoryview(self._map or b"")

    def close(self) -> None:
        self.view.release()
        if self._map is not None:
            with suppress(BufferError):  # a slice is still held somewhere: the mapping goes with it
                self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# --- locks -----------------------------------------------------------------------------------------------------------


class _Flock:
    """A descriptor with flock on it.

    A fork shares the lock with the child: the child's copy must be closed, lest it hold a dead parent's lock, and must
    never be unlocked, for that unlocks the parent's. The fork hook below closes it before anything else runs there.
    """

    __slots__ = ("_fd", "_noted")

    def __init__(self, fd: int, note: str) -> None:
        self._fd = fd
        self._noted = bool(note)
        _flocks.add(self)
        if note:
            self._write(note.encode())

    def _write(self, note: bytes) -> None:
        with suppress(OSError):  # a note is for people: its failure fails nothing
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, note, 0)

    def release(self) -> None:
        if self._fd < 0:
            return
        if self._noted:
            self._write(b"")
        _flocks.discard(self)
        fd, self._fd = self._fd, -1
        try:
            fcntl.flock(fd, fcntl.LOCK_UN)  # not by the close alone: a child between fork and hook may hold a copy
        finally:
            os.close(fd)

    def drop(self) -> None:
        """Close without unlocking: for a forked child."""
        fd, self._fd = self._fd, -1
        with suppress(OSError):
            os.close(fd)


_flocks: set[_Flock] = set()


def _drop_inherited() -> None:
    for held in list(_flocks):
        held.drop()
    _flocks.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_drop_inherited)


def _flock(path: str, exclusive: bool, note: str) -> Lock | None:
    """One try. A file unlinked or replaced between its open and its lock is a lock on nothing: look again."""
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    while True:
        fd, mine = _open_fd(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            there = os.stat(path)
        except BlockingIOError:
            os.close(fd)
            return None
        except FileNotFoundError:
            os.close(fd)
            continue
        except BaseException:
            os.close(fd)
            raise
        if (there.st_ino, there.st_dev) == (mine.st_ino, mine.st_dev):
            return _Flock(fd, note)
        os.close(fd)


# --- the real host ---------------------------------------------------------------------------------------------------


class _SystemFs:
    """The operating system's file system."""

    __slots__ = ()

    def open(self, path: str, *, write: bool = False) -> OpenFile:
        return _File(path, os.O_RDWR if write else os.O_RDONLY, "open")

    def create(self, path: str) -> OpenFile:
        return _File(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, "create")

    def mkdir(self, path: str) -> None:
        with _calling("mkdir", path):
            os.mkdir(path, 0o700)

    def rename(self, source: str, target: str) -> None:
        with _calling("rename", f"{source} to {target}"):
            # the kernel refuses a directory that holds something, but would replace an empty one
            if os.path.lexists(target) and os.path.isdir(source):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            os.rename(source, target)

    def unlink(self, path: str) -> None:
        with _calling("unlink", path):
            os.unlink(path)

    def rmdir(self, path: str) -> None:
        with _calling("rmdir", path):
            os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        with _calling("sync_dir", path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _sync_fd(fd, names=True)
            finally:
                os.close(fd)

    def listdir(self, path: str) -> list[str]:
        with _calling("listdir", path):
            return sorted(os.listdir(path))

    def stat(self, path: str) -> Stat | None:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise translate(error, "stat", path) from error
        kinds = modes.S_ISDIR(found.st_mode), modes.S_ISREG(found.st_mode)
        return Stat(found.st_ino, found.st_dev, found.st_size, found.st_mtime_ns, *kinds)

    def read(self, path: str) -> bytes | None:
        try:
            fd, found = _open_fd(path, os.O_RDONLY)
            try:
                if 0 < (size := found.st_size) < PIECE_MAX:
                    data = os.pread(fd, size + 1, 0)
                    if len(data) == size:
                        return data  # a byte more was asked for: this is the end
                return _read_fd(fd, max(size + 1, 1 << 16), 0)
            finally:
                os.close(fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise translate(error, "read", path) from error

    def map(self, path: str) -> MappedFile:
        return _Mapping(path)

    def lock(self, path: str, *, exclusive: bool, timeout_s: float = 0.0, note: str = "") -> Lock | None:
        with _calling("lock", path):
            return poll(lambda: _flock(path, exclusive, note), SystemClock(), timeout_s)

    def network(self, path: str) -> str:
        return network_of(os.path.realpath(path), self.read(MOUNTS) or b"")

    def lock_note(self, path: str) -> str:
        return (self.read(path) or b"")[:NOTE_MAX].decode(errors="replace")


class SystemClock:
    """The system's clocks."""

    __slots__ = ()

    def now_ns(self) -> int:
        """As ``Clock.now_ns``."""
        return time.time_ns()

    def monotonic(self) -> float:
        """As ``Clock.monotonic``."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """As ``Clock.sleep``."""
        time.sleep(seconds)

    def wait(self, event: Event, seconds: float) -> bool:
        """As ``Clock.wait``."""
        return event.wait(seconds)


class SystemEntropy:
    """The system's randomness."""

    __slots__ = ()

    def take(self, n: int) -> bytes:
        """As ``Entropy.take``."""
        return secrets.token_bytes(n)


def real_host() -> Host:
    """The operating system this process runs on. Raises UnsupportedSystem on Windows."""
    if sys.platform == "win32":
        raise UnsupportedSystem(
            "Windows has neither flock nor a sync of directories, which the store is built on",
            where="host",
            next_step="use Linux, macOS or WSL",
        )
    process = f"pid {os.getpid()} on {socket.gethostname()}"
    workers = partial(start_workers, _cores() - 1)
    return Host(_SystemFs(), SystemClock(), SystemEntropy(), process, os.getpid, workers, side_by_side)


def _cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
