"""Where objects from outside wait until what they belong to is admitted (store.md A11): files of ``tmp/``.

One for each piece that arrived, named after the session that is coming in, whoever sends it. Nothing is synced and
nothing here is trusted: an object counts when its bytes hash to its name, and what a power cut spoilt is sent again. So
a delivery that was cut goes on where it was, and one that failed is dropped whole. A sweep empties what nobody came
back for. Must not: know what the objects mean.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from agentsession_cas.core.packformat import Space
from agentsession_cas.effects.host import Fs, Host
from agentsession_cas.errors import DiskError, NoFile
from agentsession_cas.exchange.endpoint import Name, Object

__all__ = ["Arrived", "Quarantine"]

_FRONT: Final = struct.Struct("<B32sQ")
_SPACES: Final = {int(space): space for space in Space}


class Arrived(Mapping[Name, bytes]):
    """Objects that arrived and are what their names say. Bytes are read when asked for, those of a piece at once.

    ``size`` is how many there are.
    """

    def __init__(self, fs: Fs, paths: Iterable[str]) -> None:
        self._fs = fs
        self._places: dict[Name, tuple[str, int, int]] = {}
        self._piece = ("", b"")
        for path in paths:
            data = fs.read(path) or b""
            self._places.update((name, (path, at, size)) for name, at, size in _whole(data))
        self.size = sum(size for _, _, size in self._places.values())

    def __getitem__(self, name: Name) -> bytes:
        path, at, size = self._places[name]
        if self._piece[0] != path:
            self._piece = (path, self._fs.read(path) or b"")
        data = self._piece[1][at : at + size]
        if len(data) < size:
            raise KeyError(name)  # another delivery of the session just dropped it
        return data

    def __iter__(self) -> Iterator[Name]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class Quarantine:
    """What arrived for one session."""

    def __init__(self, host: Host, tmp: str, session: str) -> None:
        self._host = host
        self._tmp = tmp
        self._front = f"incoming-{hashlib.sha256(session.encode(errors='surrogatepass')).hexdigest()[:32]}-"

    def add(self, objects: Iterable[Object]) -> None:
        """Keep objects: one file, which is there whole or is told by its bytes not to be."""
        parts: list[bytes] = []
        for space, digest, data in objects:
            parts += (_FRONT.pack(space, digest, len(data)), data)
        file = self._host.fs.create(f"{self._tmp}/{self._front}{self._host.entropy.take(12).hex()}")
        try:
            file.pwrite(b"".join(parts), 0)
        finally:
            file.close()

    def _paths(self) -> list[str]:
        return [f"{self._tmp}/{name}" for name in self._host.fs.listdir(self._tmp) if name.startswith(self._front)]

    def objects(self) -> Arrived:
        """Everything that arrived and is what its name says."""
        return Arrived(self._host.fs, self._paths())

    def drop(self) -> None:
        """Let go of everything. What another delivery of the same session puts there meanwhile may stay."""
        with suppress(DiskError):
            for path in self._paths():
                with suppress(NoFile):  # another delivery of the session drops it too
                    self._host.fs.unlink(path)


def _whole(data: bytes) -> Iterator[tuple[Name, int, int]]:
    """Name, offset and size of every object of a piece that is what its name says."""
    at = 0
    while at + _FRONT.size <= len(data):
        space, digest, size = _FRONT.unpack_from(data, at)
        at += _FRONT.size
        if space in _SPACES and hashlib.sha256(data[at : at + size]).digest() == digest:
            yield (_SPACES[space], digest), at, size
        at += size
