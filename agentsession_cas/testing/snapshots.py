"""Readers that run while a writer does: every state the writer's effects passed through, and a file system over them.

Owns the recorded states. A state maps an inode to its value then: names, or the chunks of a file, which neighbouring
states share. Invariants: states are in order of time and never change; a reader's steps never go back; a reader's one
call may see the start of what it reads older than the end, as pages are copied one by one. Must not: show anything that
is not in the cache of the writer's machine: readers of a running machine never see the disk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Final, NamedTuple

from agentsession_cas.effects.disk import DEVICE, Directory, File, fault
from agentsession_cas.effects.host import Buffer, Lock, MappedFile, OpenFile, Stat, translate
from agentsession_cas.effects.memory import MappedBytes
from agentsession_cas.errors import AgentSessionError, NoFile, NotRegular

__all__ = ["Recorder", "SnapshotFs", "Steps", "wandering"]

CHUNK: Final = 4096
PIECES_MAX: Final = 16
"""States recorded within one write."""


class Bytes(NamedTuple):
    """A file in one state."""

    chunks: tuple[bytes, ...]
    size: int
    mtime_ns: int

    def slice(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` up to ``end``, fewer at the end of the file."""
        end = min(end, self.size)
        if start >= end:
            return b""
        first = start // CHUNK
        joined = b"".join(self.chunks[first : (end - 1) // CHUNK + 1])
        return joined[start - first * CHUNK : end - first * CHUNK]


Value = dict[str, File | Directory] | Bytes
State = dict[File | Directory, Value]


class Recorder:
    """The states of a disk since recording began."""

    def __init__(self, root: Directory, sector: int) -> None:
        self.root = root
        self.sector = sector
        state: State = {}
        pending: list[File | Directory] = [root]
        while pending:
            node = pending.pop()
            if isinstance(node, Directory):
                state[node] = dict(node.names)
                pending += node.names.values()
            else:
                state[node] = self._value(node, None, 0, len(node.data))
        self.states = [state]

    @staticmethod
    def _value(file: File, before: Bytes | None, start: int, size: int) -> Bytes:
        chunks = list(before.chunks) if before is not None else []
        whole = -(-len(file.data) // CHUNK)
        first = min(start // CHUNK, max(0, len(chunks) - 1))
        view = memoryview(file.data)
        for k in range(first, whole):
            if k * CHUNK >= start + size and k < len(chunks):
                break
            chunks[k : k + 1] = [bytes(view[k * CHUNK : (k + 1) * CHUNK])]
        return Bytes(tuple(chunks), len(file.data), file.mtime_ns)

    def names(self, *directories: Directory) -> None:
        """Names changed, in one step."""
        state = dict(self.states[-1])
        for directory in directories:
            state[directory] = dict(directory.names)
            for node in directory.names.values():
                if node not in state:
                    state[node] = dict(node.names) if isinstance(node, Directory) else self._value(node, None, 0, 0)
        self.states.append(state)

    def wrote(self, file: File, start: int, size: int) -> None:
        """Bytes changed."""
        before = self.states[-1].get(file)
        assert before is None or isinstance(before, Bytes)
        self.states.append({**self.states[-1], file: self._value(file, before, start, size)})

    def pieces(self, data: Buffer, offset: int) -> Iterator[tuple[memoryview, int]]:
        """A write in the pieces it becomes visible in: whole sectors, or runs of them when there are many."""
        view = memoryview(data)
        sectors = (len(data) + offset % self.sector) // self.sector + 1
        run = self.sector * -(-sectors // PIECES_MAX)
        done = 0
        while done < len(data):
            stop = min(len(data), done + run - (offset + done) % self.sector)
            yield view[done:stop], offset + done
            done = stop


class Steps:
    """The states a reader's calls fall on, one after another; the last one stays.

    ``start`` is the first, so what was acknowledged by then must be seen; ``at`` is that of the last call, so nothing
    that came after it can have been.
    """

    def __init__(self, times: Iterable[int]) -> None:
        self._times = iter(times)
        self._next = next(self._times)
        self.start = self.at = self._next

    def step(self) -> int:
        """The state the next call sees."""
        self.at = self._next
        self._next = max(self.at, next(self._times, self.at))
        return self.at


def wandering(rng: Random, last: int) -> Iterator[int]:
    """Steps of a reader that starts anywhere and is as slow or as fast as chance has it."""
    at = rng.randrange(last + 1)
    gap = rng.choice((0, 1, 1, 2, 4, 16, last))
    while True:
        yield at
        at = min(last, at + rng.randrange(gap + 1))


def _refused(operation: str, path: str) -> AgentSessionError:
    return translate(fault(errno.EROFS), operation, path)


class _SnapshotFile:
    """A handle of a reader."""

    def __init__(self, fs: SnapshotFs, path: str, file: File) -> None:
        self._fs = fs
        self._file: File | None = file
        self.path = path

    def _value(self, operation: str) -> Bytes:
        if self._file is None:
            raise translate(fault(errno.EBADF), operation, self.path)
        value = self._fs.state()[self._file]
        assert isinstance(value, Bytes)
        return value

    def pread(self, size: int, offset: int) -> bytes:
        return self._fs.paged(lambda: self._value("pread"), size, offset)

    def pwrite(self, data: Buffer, offset: int) -> None:  # noqa: ARG002
        raise _refused("write", self.path)

    def sync(self) -> None:
        raise _refused("sync", self.path)

    def size(self) -> int:
        return self._value("stat").size

    def inode(self) -> int:
        assert self._file is not None
        return self._file.number

    def close(self) -> None:
        self._file = None


class SnapshotFs:
    """The file system a reader sees. Whatever writes or locks is refused with ReadOnly: readers do neither."""

    def __init__(self, recorder: Recorder, steps: Steps, rng: Random) -> None:
        self._recorder = recorder
        self._steps = steps
        self._rng = rng

    def state(self) -> State:
        """The state the next call sees."""
        return self._recorder.states[self._steps.step()]

    def paged(self, value: Callable[[], Bytes], size: int, offset: int) -> bytes:
        """Read in two steps that meet at a sector."""
        width = self._recorder.sector
        cut = offset + self._rng.randrange(size // width + 2) * width
        cut -= cut % width
        early = value().slice(offset, max(offset, min(cut, offset + size)))
        if len(early) == size:
            return early
        return early + value().slice(offset + len(early), offset + size)

    def _find(self, operation: str, path: str) -> tuple[File | Directory, Value]:
        state = self.state()
        node: File | Directory = self._recorder.root
        for name in path.split("/"):
            if not name or name == ".":
                continue
            names = state[node]
            if not isinstance(names, dict):
                raise translate(fault(errno.ENOTDIR), operation, path)
            if name not in names:
                raise translate(fault(errno.ENOENT), operation, path)
            node = names[name]
        return node, state[node]

    def open(self, path: str, *, write: bool = False) -> OpenFile:
        """As ``Fs.open``, for reading."""
        if write:
            raise _refused("open", path)
        node, _ = self._find("open", path)
        if not isinstance(node, File):
            raise translate(fault(errno.EISDIR), "open", path)
        return _SnapshotFile(self, path, node)

    def listdir(self, path: str) -> list[str]:
        """As ``Fs.listdir``."""
        _, names = self._find("listdir", path)
        if not isinstance(names, dict):
            raise translate(fault(errno.ENOTDIR), "listdir", path)
        return sorted(names)

    def stat(self, path: str) -> Stat | None:
        """As ``Fs.stat``."""
        try:
            node, value = self._find("stat", path)
        except (NoFile, NotRegular):
            return None
        if isinstance(value, Bytes):
            return Stat(node.number, DEVICE, value.size, value.mtime_ns, False, True)
        return Stat(node.number, DEVICE, 0, 0, True, False)

    def read(self, path: str) -> bytes | None:
        """As ``Fs.read``."""
        try:
            file = self.open(path)
        except NoFile:
            return None
        return file.pread(file.size() + 1, 0)

    def map(self, path: str) -> MappedFile:
        """As ``Fs.map``."""
        file = self.open(path)
        return MappedBytes(file.pread(file.size(), 0))

    def network(self, path: str) -> str:  # noqa: ARG002 - there is none here
        """As ``Fs.network``."""
        return ""

    def lock_note(self, path: str) -> str:
        """As ``Fs.lock_note``; nothing of it is recorded."""
        self._find("read", path)
        return ""

    def create(self, path: str) -> OpenFile:
        """Refused."""
        raise _refused("create", path)

    def mkdir(self, path: str) -> None:
        """Refused."""
        raise _refused("mkdir", path)

    def rename(self, source: str, target: str) -> None:
        """Refused."""
        raise _refused("rename", f"{source} to {target}")

    def unlink(self, path: str) -> None:
        """Refused."""
        raise _refused("unlink", path)

    def rmdir(self, path: str) -> None:
        """Refused."""
        raise _refused("rmdir", path)

    def sync_dir(self, path: str) -> None:
        """Refused."""
        raise _refused("sync_dir", path)

    def lock(
        self,
        path: str,
        *,
        exclusive: bool,  # noqa: ARG002
        timeout_s: float = 0.0,  # noqa: ARG002
        note: str = "",  # noqa: ARG002
    ) -> Lock | None:
        """Refused."""
        raise _refused("lock", path)
