"""What an operation does to the disk, counted: files made, writes and their bytes, syncs.

A host that counts stands before the real one. Counting costs time, so it is done beside what is measured, never in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from agentsession_cas.effects.host import Buffer, Fs, Host, OpenFile, real_host

__all__ = ["Effects", "counting"]


@dataclass(slots=True)
class Effects:
    """How often each was done since the last :meth:`reset`. ``syncs`` are those of files and of directories."""

    files: int = 0
    writes: int = 0
    bytes: int = 0
    syncs: int = 0

    def reset(self) -> None:
        """Begin anew."""
        self.files = self.writes = self.bytes = self.syncs = 0

    def per(self, operations: int) -> dict[str, float]:
        """By operation."""
        counted = {"files": self.files, "writes": self.writes, "bytes": self.bytes, "syncs": self.syncs}
        return {name: round(count / operations, 2) for name, count in counted.items()}


def counting() -> tuple[Host, Effects]:
    """The real host, and what is done through it."""
    host, effects = real_host(), Effects()
    return replace(host, fs=cast(Fs, _CountingFs(host.fs, effects))), effects


class _CountingFile:
    """A file whose writes and syncs are counted."""

    def __init__(self, file: OpenFile, effects: Effects) -> None:
        self._file = file
        self._effects = effects

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    @property
    def path(self) -> str:
        return self._file.path

    @path.setter
    def path(self, path: str) -> None:
        self._file.path = path

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._effects.writes += 1
        self._effects.bytes += memoryview(data).nbytes
        self._file.pwrite(data, offset)

    def sync(self) -> None:
        self._effects.syncs += 1
        self._file.sync()


class _CountingFs:
    """A file system that gives such files, and counts those it makes."""

    def __init__(self, fs: Fs, effects: Effects) -> None:
        self._fs = fs
        self._effects = effects

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def open(self, path: str, *, write: bool = False) -> OpenFile:
        return cast(OpenFile, _CountingFile(self._fs.open(path, write=write), self._effects))

    def create(self, path: str) -> OpenFile:
        self._effects.files += 1
        return cast(OpenFile, _CountingFile(self._fs.create(path), self._effects))

    def mkdir(self, path: str) -> None:
        self._effects.files += 1
        self._fs.mkdir(path)

    def sync_dir(self, path: str) -> None:
        self._effects.syncs += 1
        self._fs.sync_dir(path)
