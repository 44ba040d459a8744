"""A host whose syncs are told of first: to count them, to make them slow, to hold them up.

Only what makes file bytes durable is told of. Everything else goes straight to the host it stands before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agentsession_cas.effects.protocols import Buffer, Fs, Host, Lock, MappedFile, OpenFile, Stat

__all__ = ["delayed"]


def delayed(host: Host, before_sync: Callable[[str], None]) -> Host:
    """``host``, with ``before_sync`` called with the path, in the thread that syncs, before each sync of a file."""
    fs: Fs = _DelayedFs(host.fs, before_sync)
    return replace(host, fs=fs)


class _DelayedFile:
    """A file whose syncs are told of."""

    def __init__(self, file: OpenFile, before_sync: Callable[[str], None]) -> None:
        self._file = file
        self._before_sync = before_sync

    @property
    def path(self) -> str:
        """As ``OpenFile.path``."""
        return self._file.path

    @path.setter
    def path(self, path: str) -> None:
        self._file.path = path

    def pread(self, size: int, offset: int) -> bytes:
        return self._file.pread(size, offset)

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._file.pwrite(data, offset)

    def sync(self) -> None:
        self._before_sync(self._file.path)
        self._file.sync()

    def size(self) -> int:
        return self._file.size()

    def inode(self) -> int:
        return self._file.inode()

    def close(self) -> None:
        self._file.close()


class _DelayedFs:
    """A file system that gives such files."""

    def __init__(self, fs: Fs, before_sync: Callable[[str], None]) -> None:
        self._fs = fs
        self._before_sync = before_sync

    def open(self, path: str, *, write: bool = False) -> OpenFile:
        return _DelayedFile(self._fs.open(path, write=write), self._before_sync)

    def create(self, path: str) -> OpenFile:
        return _DelayedFile(self._fs.create(path), self._before_sync)

    def mkdir(self, path: str) -> None:
        self._fs.mkdir(path)

    def rename(self, source: str, target: str) -> None:
        self._fs.rename(source, target)

    def unlink(self, path: str) -> None:
        self._fs.unlink(path)

    def rmdir(self, path: str) -> None:
        self._fs.rmdir(path)

    def sync_dir(self, path: str) -> None:
        self._fs.sync_dir(path)

    def listdir(self, path: str) -> list[str]:
        return self._fs.listdir(path)

    def stat(self, path: str) -> Stat | None:
        return self._fs.stat(path)

    def read(self, path: str) -> bytes | None:
        return self._fs.read(path)

    def map(self, path: str) -> MappedFile:
        return self._fs.map(path)

    def lock(self, path: str, *, exclusive: bool, timeout_s: float = 0.0, note: str = "") -> Lock | None:
        return self._fs.lock(path, exclusive=exclusive, timeout_s=timeout_s, note=note)

    def network(self, path: str) -> str:
        return self._fs.network(path)

    def lock_note(self, path: str) -> str:
        return self._fs.lock_note(path)
