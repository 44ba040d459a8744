"""Inodes, names and locks of a disk that is only memory.

Owns the state behind ``memory``; every method that changes something may be overridden, which is how the simulated disk
records, fails and crashes. Invariants: the errors raised are those the operating system would give; an inode number is
used again once its file is unnamed and closed, as disks do; bytes are shared until written. Callers hold ``guard``.
Must not: model what a crash leaves.
"""

from __future__ import annotations

import errno
import threading
from typing import Final

from agentsession_cas.effects.protocols import Buffer, Clock

__all__ = ["DEVICE", "Directory", "Disk", "File", "HeldLock", "fault"]

DEVICE: Final = 1
"""The device of every file here."""


def fault(code: int) -> OSError:
    """The error the operating system gives by this number; Python picks the class."""
    return OSError(code, errno.errorcode[code])


class File:
    """A file's bytes. They are immutable ``bytes`` while shared, and become a ``bytearray`` on the first write."""

    __slots__ = ("data", "links", "locks", "mtime_ns", "note", "number", "opens")

    def __init__(self, number: int, data: bytes | bytearray = b"", mtime_ns: int = 0) -> None:
        self.number = number
        self.data = data
        self.mtime_ns = mtime_ns
        self.links = 0
        self.opens = 0
        self.locks: list[HeldLock] = []
        self.note = ""

    def frozen(self) -> bytes:
        """The bytes, to be shared: the next write copies them."""
        if not isinstance(self.data, bytes):
            self.data = bytes(self.data)
        return self.data

    def write(self, data: Buffer, offset: int) -> None:
        """Put bytes in place, zeros where there is a gap."""
        if not data:
            return
        if isinstance(self.data, bytes):
            self.data = bytearray(self.data)
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(data)] = data


class Directory:
    """Names and what they lead to."""

    __slots__ = ("links", "mtime_ns", "names", "number")

    def __init__(self, number: int, names: dict[str, File | Directory] | None = None) -> None:
        self.number = number
        self.names: dict[str, File | Directory] = {} if names is None else names
        self.links = 0
        self.mtime_ns = 0


class HeldLock:
    """A lock held in memory."""

    __slots__ = ("_disk", "exclusive", "file", "noted", "pid", "who")

    def __init__(self, disk: Disk, who: str, file: File, exclusive: bool, noted: bool) -> None:
        self._disk = disk
        self.who = who
        self.file = file
        self.exclusive = exclusive
        self.noted = noted
        self.pid = disk.pid(who)

    def release(self) -> None:
        """Let it go; again is a no-op."""
        self._disk.let_go(self)


class Disk:
    """What all processes of one machine see. A subclass overrides the methods that change something."""

    def __init__(self, clock: Clock) -> None:
        self.guard = threading.RLock()
        self.clock = clock
        self.numbers = 1
        self._free: list[int] = []
        self.root = self.new_directory()
        self.root.links = 1

    # what a subclass may override

    def take_turn(self, kind: str) -> None:
        """Called before an operation has the disk to itself: another thread may be let go first."""

    def approach(self, who: str, kind: str, path: str) -> None:
        """Called before an operation looks at anything. Raises no OSError."""

    def begin(self, who: str, kind: str, path: str, size: int = 0, target: str = "") -> None:
        """Called before an operation takes effect; an OSError raised here is how it fails."""

    def pid(self, _who: str) -> int:
        """The id a process has now; it is another in a forked child."""
        return 0

    def new_file(self) -> File:
        """A file with no name yet."""
        return File(self.new_number(), mtime_ns=self.clock.now_ns())

    def new_directory(self) -> Directory:
        """A directory with no name yet."""
        return Directory(self.new_number())

    def set_name(self, directory: Directory, name: str, node: File | Directory | None) -> None:
        """Make a name lead somewhere, or (None) nowhere."""
        old = directory.names.get(name)
        if node is None:
            directory.names.pop(name, None)
        else:
            directory.names[name] = node
            node.links += 1
        directory.mtime_ns = self.clock.now_ns()
        if old is not None:
            old.links -= 1
            self.forget(old)

    def move(self, source: tuple[Directory, str], target: tuple[Directory, str]) -> None:
        """Rename: one step for whoever looks on."""
        self.set_name(*target, source[0].names[source[1]])
        self.set_name(*source, None)

    def write(self, who: str, file: File, path: str, data: Buffer, offset: int) -> None:
        """Put bytes into a file."""
        self.begin(who, "write", path, len(data))
        file.write(data, offset)
        file.mtime_ns = self.clock.now_ns()

    def sync(self, who: str, _file: File, path: str) -> None:
        """Sync a file."""
        self.begin(who, "sync", path)

    def sync_names(self, who: str, _directory: Directory, path: str) -> None:
        """Sync a directory."""
        self.begin(who, "sync_dir", path)

    def hold(self, who: str, file: File, exclusive: bool, note: str) -> HeldLock | None:
        """Lock a file unless another lock conflicts."""
        if file.locks and (exclusive or any(held.exclusive for held in file.locks)):
            return None
        held = HeldLock(self, who, file, exclusive, bool(note))
        file.locks.append(held)
        file.opens += 1
        if note:
            file.note = note
        return held

    def let_go(self, held: HeldLock) -> None:
        """Unlock; a forked child unlocks nothing."""
        with self.guard:
            if held in held.file.locks and held.pid == self.pid(held.who):
                held.file.locks.remove(held)
                if held.noted:
                    held.file.note = ""
                self.shut(held.file)

    # what it may not

    def new_number(self) -> int:
        """An inode number that nothing named or open has."""
        if self._free:
            return self._free.pop()
        self.numbers += 1
        return self.numbers

    def shut(self, file: File) -> None:
        """One handle fewer."""
        file.opens -= 1
        self.forget(file)

    def forget(self, node: File | Directory) -> None:
        """Give the number back once nothing leads to the inode."""
        if node.links == 0 and not (isinstance(node, File) and node.opens):
            self._free.append(node.number)

    def find(self, path: str) -> File | Directory:
        """What a path leads to; raises FileNotFoundError, NotADirectoryError."""
        node: File | Directory | None = self.root
        for name in path.split("/"):
            if not name or name == ".":
                continue
            if not isinstance(node, Directory):
                raise fault(errno.ENOTDIR)
            node = node.names.get(name)
            if node is None:
                raise fault(errno.ENOENT)
        assert node is not None
        return node

    def find_file(self, path: str) -> File:
        """As ``find``; raises IsADirectoryError for a directory."""
        node = self.find(path)
        if not isinstance(node, File):
            raise fault(errno.EISDIR)
        return node

    def find_directory(self, path: str) -> Directory:
        """As ``find``; raises NotADirectoryError for a file."""
        node = self.find(path)
        if not isinstance(node, Directory):
            raise fault(errno.ENOTDIR)
        return node

    def place(self, path: str) -> tuple[Directory, str]:
        """The directory a path lies in, and its name there."""
        head, _, name = path.rpartition("/")
        return self.find_directory(head), name
