"""What the outside looks like to every other part: file system, clock and randomness as protocols.

Owns the contract; ``host`` keeps it with the operating system, ``memory`` without one. Invariants: a write is whole or
an error; a lock is held on the inode its path leads to; only ``OpenFile.sync`` and ``Fs.sync_dir`` make anything
durable. Must not: touch the outside itself. Import these names from ``host``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

from agentsession_cas.effects.together import Together, one_by_one
from agentsession_cas.effects.workers import StartWorkers, no_workers

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
    "poll",
]

Buffer = bytes | bytearray | memoryview

PAUSE_MIN_S: Final = 0.001
PAUSE_MAX_S: Final = 0.05


class Stat(NamedTuple):
    """What is known of a path: two files with one (device, inode) at one time are one file."""

    inode: int
    device: int
    size: int
    mtime_ns: int
    is_dir: bool
    is_file: bool
    """Whether it is a regular file; neither is a pipe, a socket or a device."""


class OpenFile(Protocol):
    """A regular file held open; it stays readable when its name goes. Every method raises DiskError once closed."""

    path: str

    def pread(self, size: int, offset: int) -> bytes:
        """``size`` bytes from ``offset``, fewer only at the end of the file."""

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of ``data``, or raise (DiskFull, DiskError) with any part of it written."""

    def sync(self) -> None:
        """Make bytes and size durable. After a failure the bytes are not durable, whatever a later sync returns."""

    def size(self) -> int:
        """Size in bytes."""

    def inode(self) -> int:
        """The inode, unlike that of any other file open or named now."""

    def close(self) -> None:
        """Close; again is a no-op. Syncs nothing."""


class MappedFile(Protocol):
    """A whole file as one buffer. Use as a context manager, or close it; slices must not be used after that."""

    view: memoryview

    def close(self) -> None:
        """Let the mapping go; again is a no-op."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Lock(Protocol):
    """A held lock. It ends with ``release`` or with its process."""

    def release(self) -> None:
        """Let it go; again is a no-op, and in a forked child it only closes what was inherited."""


class Fs(Protocol):
    """A POSIX file system. Paths are text, absolute or relative to the process.

    Every method raises DiskError, or the class of it that says more: DiskFull, TooManyFiles, NoFile, FileTaken,
    NotRegular; ReadOnly on a file system mounted read-only. Only ``OpenFile.sync`` and ``sync_dir`` make anything
    durable: the first a file's bytes and size, the second the names in one directory.
    """

    def open(self, path: str, *, write: bool = False) -> OpenFile:
        """Open a regular file (NoFile when missing, NotRegular for anything else)."""

    def create(self, path: str) -> OpenFile:
        """Create a file of mode 0600, open for reading and writing (FileTaken when the name is)."""

    def mkdir(self, path: str) -> None:
        """Create a directory of mode 0700 (FileTaken when the name is)."""

    def rename(self, source: str, target: str) -> None:
        """Rename. A file replaces a file; a directory goes onto nothing only (FileTaken)."""

    def unlink(self, path: str) -> None:
        """Remove a file's name."""

    def rmdir(self, path: str) -> None:
        """Remove an empty directory (FileTaken when it is not)."""

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable, and the absence of those that went."""

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted (NoFile when it is missing)."""

    def stat(self, path: str) -> Stat | None:
        """What is at a path, None when nothing is."""

    def read(self, path: str) -> bytes | None:
        """All bytes of a file, None when it is missing."""

    def map(self, path: str) -> MappedFile:
        """Map a file that never changes (NoFile when missing)."""

    def lock(self, path: str, *, exclusive: bool, timeout_s: float = 0.0, note: str = "") -> Lock | None:
        """Lock a file, created when missing; None when it is still held after ``timeout_s`` seconds.

        Two locks conflict, also inside one process, unless both are shared. The path still leads to the locked inode
        on return. ``note``, given by exclusive holders only, replaces the file's bytes until the release; with none
        the bytes are left alone.
        """

    def network(self, path: str) -> str:
        """The kind of network file system a path lies on, there or not; "" for a local one, or when nothing tells."""

    def lock_note(self, path: str) -> str:
        """What the holder noted, "" if nothing. A holder that died leaves its note behind."""


class Clock(Protocol):
    """Time."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch; may go back."""

    def monotonic(self) -> float:
        """Seconds since some time; never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait that long."""

    def wait(self, event: Event, seconds: float) -> bool:
        """Wait until the event is set, but no longer than that; whether it is."""


class Entropy(Protocol):
    """Randomness."""

    def take(self, n: int) -> bytes:
        """``n`` bytes no one could have guessed."""


@dataclass(frozen=True, slots=True)
class Host:
    """The outside, handed down from ``Store.open``.

    ``process`` names the process for people, in lock notes. ``process_id()`` tells a forked child, in which it
    differs from what it was, that it inherited its handles. ``workers`` starts a process for every core but this
    one's, on a host that other processes see too. ``together`` does works that wait for the disk.
    """

    fs: Fs
    clock: Clock
    entropy: Entropy
    process: str
    process_id: Callable[[], int]
    workers: StartWorkers = no_workers
    together: Together = one_by_one


def poll(attempt: Callable[[], Lock | None], clock: Clock, timeout_s: float) -> Lock | None:
    """Ask for a lock until it is had or ``timeout_s`` seconds have passed, ever more seldom; at least once."""
    deadline = clock.monotonic() + timeout_s
    pause = PAUSE_MIN_S
    while True:
        held = attempt()
        left = deadline - clock.monotonic()
        if held is not None or left <= 0:
            return held
        clock.sleep(min(pause, left))
        pause = min(2 * pause, PAUSE_MAX_S)
