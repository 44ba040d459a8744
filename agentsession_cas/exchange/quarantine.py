"""Where objects from outside wait until what they belong to is admitted (store.md A11): files of ``tmp/``.

One for each piece that arrived, named after the session that is coming in, whoever sends it. Nothing is synced and
nothing here is trusted: an object counts when its bytes hash to its name, and what a power cut spoilt is sent again. So
a delivery that was cut goes on where it was, and one that failed is dropped whole. A sweep empties what nobody came
back for. Must not: know what the objects mean.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from agentsession_cas.core.packformat import Space
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import DiskError, NoFile
from agentsession_cas.exchange.endpoint import Name, Object

__all__ = ["Quarantine"]

_FRONT: Final = struct.Struct("<B32sQ")
_SPACES: Final = {int(space): space for space in Space}


class Quarantine:
    """What arrived for one session, in memory once it was asked for."""

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

    def objects(self) -> dict[Name, bytes]:
        """Everything that arrived and is what its name says."""
        found: dict[Name, bytes] = {}
        for path in self._paths():
            found.update(_whole(self._host.fs.read(path) or b""))
        return found

    def drop(self) -> None:
        """Let go of everything. What another delivery of the same session puts there meanwhile may stay."""
        with suppress(DiskError):
            for path in self._paths():
                with suppress(NoFile):  # another delivery of the session drops it too
                    self._host.fs.unlink(path)


def _whole(data: bytes) -> Iterator[tuple[Name, bytes]]:
    at = 0
    while at + _FRONT.size <= len(data):
        space, digest, size = _FRONT.unpack_from(data, at)
        at += _FRONT.size
        part = data[at : at + size]
        at += size
        if space in _SPACES and hashlib.sha256(part).digest() == digest:
            yield (_SPACES[space], digest), part
