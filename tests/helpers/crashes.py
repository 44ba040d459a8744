"""Power cuts by hand: machines as cuts leave them, disks told apart, and file systems that leave something out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any, cast

from agentsession_cas.effects.disk import Directory, File
from agentsession_cas.effects.host import Fs, OpenFile
from agentsession_cas.testing.simfs import Sim

__all__ = ["Through", "Unseen", "Violation", "cuts", "deaf", "files_of", "unsynced", "write_unsynced"]


class Violation(AssertionError):
    """A state that no crash, and nobody beside, may leave."""


def cuts(sim: Sim, act: Callable[[], object]) -> Iterator[tuple[str, Sim]]:
    """The machine as a cut before each effect of ``act`` leaves it, and after the last; where that was."""
    copies: list[tuple[str, Sim]] = []
    sim.watch(lambda kind, path: copies.append((f"before {kind} {path}", sim.clone())))
    act()
    sim.watch(None)
    yield from copies
    yield "at the end", sim


def files_of(sim: Sim) -> Iterator[tuple[str, File | None]]:
    """Every path of a disk, in order, with its file; None for a directory."""
    todo: list[tuple[str, File | Directory]] = [("", sim.disk.root)]
    while todo:
        path, node = todo.pop()
        if isinstance(node, Directory):
            yield path, None
            todo += [(f"{path}/{name}", node.names[name]) for name in sorted(node.names)]
        else:
            yield path, node


class Unseen:
    """Tells disks apart, so that one that many cuts leave is judged once: the same bytes, the same verdict."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def of(self, images: Iterable[Sim]) -> Iterator[Sim]:
        """The images that hold other paths, bytes or times than all before them."""
        for image in images:
            held = blake2b(digest_size=16)
            for path, file in files_of(image):
                size, mtime_ns = (-1, 0) if file is None else (len(file.data), file.mtime_ns)
                held.update(f"{path}\0{size}\0{mtime_ns}\0".encode())
                held.update(b"" if file is None else file.data)
            if held.digest() not in self._seen:
                self._seen.add(held.digest())
                yield image


class Through:
    """Passes on to ``inner`` whatever a subclass does not do itself."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Unsynced(Through):
    def sync(self) -> None:
        """Leave it out."""


def unsynced(file: OpenFile) -> OpenFile:
    """A file that is never synced."""
    return cast(OpenFile, _Unsynced(file))


def write_unsynced(fs: Fs, path: str, data: bytes) -> None:
    """What a mistake puts in the place of :func:`~agentsession_cas.effects.durable.write_new`: nothing is synced."""
    file = fs.create(path)
    file.pwrite(data, 0)
    file.close()


class _Deaf(Through):
    def __init__(self, inner: Fs, files: str | None, directories: str | None) -> None:
        super().__init__(inner)
        self._files = files
        self._directories = directories

    def create(self, path: str) -> OpenFile:
        return self._heard(path, self._inner.create(path))

    def open(self, path: str, *, write: bool = False) -> OpenFile:
        return self._heard(path, self._inner.open(path, write=write))

    def _heard(self, path: str, file: OpenFile) -> OpenFile:
        return file if self._files is None or self._files not in path else unsynced(file)

    def sync_dir(self, path: str) -> None:
        if self._directories is None or not path.endswith(self._directories):
            self._inner.sync_dir(path)


def deaf(fs: Fs, *, files: str | None = None, directories: str | None = None) -> Fs:
    """A file system that leaves out syncs: of files with ``files`` in their path, of directories that end so."""
    return cast(Fs, _Deaf(fs, files, directories))
