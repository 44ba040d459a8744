"""A file system in memory, behind the same protocol as the real one.

Owns the handles and calls over a ``Disk``: what ``Store.memory()`` lies on, and the simulated host. Invariants: an
operation is alone on its disk; it fails as the real one would, translated by the same function; ``Disk.approach`` hears
of it first, ``Disk.begin`` once it is known to be possible. Must not: keep state of its own; that is the disk's.
"""

from __future__ import annotations

import errno
from types import TracebackType
from typing import Self

from agentsession_cas.effects.disk import DEVICE, Directory, Disk, File, fault
from agentsession_cas.effects.host import (
    Buffer,
    Clock,
    Fs,
    Host,
    Lock,
    MappedFile,
    OpenFile,
    Stat,
    SystemClock,
    SystemEntropy,
    real_host,
    translate,
)
from agentsession_cas.effects.protocols import poll

__all__ = ["MappedBytes", "MemoryFs", "memory_host"]


class _Guarded:
    """One operation: alone on the disk, its OSError translated."""

    __slots__ = ("_disk", "_operation", "_path", "_who")

    def __init__(self, disk: Disk, who: str, operation: str, path: str) -> None:
        self._disk = disk
        self._who = who
        self._operation = operation
        self._path = path

    def __enter__(self) -> None:
        self._disk.take_turn(self._operation)
        self._disk.guard.acquire()
        try:
            self._disk.approach(self._who, self._operation, self._path)
        except BaseException:
            self._disk.guard.release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disk.guard.release()
        if isinstance(error, OSError):
            raise translate(error, self._operation, self._path) from error


class _OpenFile:
    """A handle."""

    __slots__ = ("_disk", "_file", "_open", "_who", "_write", "path")

    def __init__(self, disk: Disk, who: str, path: str, file: File, write: bool) -> None:
        self._disk = disk
        self._who = who
        self._file = file
        self._write = write
        self._open = True
        self.path = path
        file.opens += 1

    def _check(self, write: bool = False) -> File:
        if not self._open or (write and not self._write):
            raise fault(errno.EBADF)
        return self._file

    def pread(self, size: int, offset: int) -> bytes:
        with _Guarded(self._disk, self._who, "pread", self.path):
            data = self._check().data
            self._disk.begin(self._who, "pread", self.path, size)
            return bytes(memoryview(data)[offset : offset + size])

    def pwrite(self, data: Buffer, offset: int) -> None:
        with _Guarded(self._disk, self._who, "write", self.path):
            self._disk.write(self._who, self._check(write=True), self.path, data, offset)

    def sync(self) -> None:
        with _Guarded(self._disk, self._who, "sync", self.path):
            self._disk.sync(self._who, self._check(), self.path)

    def size(self) -> int:
        with _Guarded(self._disk, self._who, "stat", self.path):
            return len(self._check().data)

    def inode(self) -> int:
        return self._file.number

    def close(self) -> None:
        with self._disk.guard:
            if self._open:
                self._open = False
                self._disk.shut(self._file)


class MappedBytes:
    """A file's bytes as a mapping of it: what is mapped never changes."""

    __slots__ = ("view",)

    def __init__(self, data: bytes) -> None:
        self.view = memoryview(data)

    def close(self) -> None:
        """As ``MappedFile.close``."""
        self.view.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class MemoryFs:
    """The file system one process sees."""

    def __init__(self, disk: Disk, who: str, clock: Clock) -> None:
        self._disk = disk
        self._who = who
        self._clock = clock

    def open(self, path: str, *, write: bool = False) -> OpenFile:
        """As ``Fs.open``."""
        with _Guarded(self._disk, self._who, "open", path):
            self._disk.begin(self._who, "open for writing" if write else "open", path)
            return _OpenFile(self._disk, self._who, path, self._disk.find_file(path), write)

    def create(self, path: str) -> OpenFile:
        """As ``Fs.create``."""
        with _Guarded(self._disk, self._who, "create", path):
            return _OpenFile(self._disk, self._who, path, self._new_file(path), write=True)

    def _new_file(self, path: str) -> File:
        directory, name = self._vacant(path)
        self._disk.begin(self._who, "create", path)
        file = self._disk.new_file()
        self._disk.set_name(directory, name, file)
        return file

    def _vacant(self, path: str) -> tuple[Directory, str]:
        directory, name = self._disk.place(path)
        if name in directory.names:
            raise fault(errno.EEXIST)
        return directory, name

    def mkdir(self, path: str) -> None:
        """As ``Fs.mkdir``."""
        with _Guarded(self._disk, self._who, "mkdir", path):
            directory, name = self._vacant(path)
            self._disk.begin(self._who, "mkdir", path)
            self._disk.set_name(directory, name, self._disk.new_directory())

    def rename(self, source: str, target: str) -> None:
        """As ``Fs.rename``."""
        with _Guarded(self._disk, self._who, "rename", f"{source} to {target}"):
            node = self._disk.find(source)
            place = self._disk.place(target)
            there = place[0].names.get(place[1])
            if there is not None and isinstance(node, Directory):
                raise fault(errno.EEXIST)
            if isinstance(there, Directory):
                raise fault(errno.EISDIR)
            if target.startswith(f"{source}/"):
                raise fault(errno.EINVAL)
            self._disk.begin(self._who, "rename", source, target=target)
            if there is not node:
                self._disk.move(self._disk.place(source), place)

    def unlink(self, path: str) -> None:
        """As ``Fs.unlink``."""
        with _Guarded(self._disk, self._who, "unlink", path):
            self._disk.find_file(path)
            self._disk.begin(self._who, "unlink", path)
            self._disk.set_name(*self._disk.place(path), None)

    def rmdir(self, path: str) -> None:
        """As ``Fs.rmdir``."""
        with _Guarded(self._disk, self._who, "rmdir", path):
            if self._disk.find_directory(path).names:
                raise fault(errno.ENOTEMPTY)
            self._disk.begin(self._who, "rmdir", path)
            self._disk.set_name(*self._disk.place(path), None)

    def sync_dir(self, path: str) -> None:
        """As ``Fs.sync_dir``."""
        with _Guarded(self._disk, self._who, "sync_dir", path):
            self._disk.sync_names(self._who, self._disk.find_directory(path), path)

    def listdir(self, path: str) -> list[str]:
        """As ``Fs.listdir``."""
        with _Guarded(self._disk, self._who, "listdir", path):
            self._disk.begin(self._who, "listdir", path)
            return sorted(self._disk.find_directory(path).names)

    def stat(self, path: str) -> Stat | None:
        """As ``Fs.stat``."""
        with _Guarded(self._disk, self._who, "stat", path):
            self._disk.begin(self._who, "stat", path)
            try:
                node = self._disk.find(path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            size = len(node.data) if isinstance(node, File) else 0
            return Stat(node.number, DEVICE, size, node.mtime_ns, isinstance(node, Directory), isinstance(node, File))

    def read(self, path: str) -> bytes | None:
        """As ``Fs.read``."""
        with _Guarded(self._disk, self._who, "read", path):
            self._disk.begin(self._who, "read", path)
            try:
                return bytes(self._disk.find_file(path).data)
            except FileNotFoundError:
                return None

    def map(self, path: str) -> MappedFile:
        """As ``Fs.map``."""
        with _Guarded(self._disk, self._who, "map", path):
            self._disk.begin(self._who, "map", path)
            return MappedBytes(self._disk.find_file(path).frozen())

    def lock(self, path: str, *, exclusive: bool, timeout_s: float = 0.0, note: str = "") -> Lock | None:
        """As ``Fs.lock``."""
        return poll(lambda: self._lock(path, exclusive, note), self._clock, timeout_s)

    def _lock(self, path: str, exclusive: bool, note: str) -> Lock | None:
        with _Guarded(self._disk, self._who, "lock", path):
            self._disk.begin(self._who, "lock", path)
            try:
                file = self._disk.find_file(path)
            except FileNotFoundError:
                file = self._new_file(path)
            return self._disk.hold(self._who, file, exclusive, note)

    def network(self, path: str) -> str:  # noqa: ARG002 - there is none here
        """As ``Fs.network``."""
        return ""

    def lock_note(self, path: str) -> str:
        """As ``Fs.lock_note``."""
        with _Guarded(self._disk, self._who, "read", path):
            self._disk.begin(self._who, "read", path)
            try:
                return self._disk.find_file(path).note
            except FileNotFoundError:
                return ""


def memory_host() -> Host:
    """A host with an empty disk in memory and the system's clock and randomness. Its threads may share it."""
    real = real_host()
    clock = SystemClock()
    fs: Fs = MemoryFs(Disk(clock), "memory", clock)
    return Host(fs, clock, SystemEntropy(), f"{real.process}, in memory", real.process_id)
