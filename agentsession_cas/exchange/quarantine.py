"""Where objects from outside wait until what they belong to is admitted (store.md A11): a directory of ``tmp/``.

One directory for each session that is coming in, whoever sends it; in it a file for each piece that arrived. Nothing is
synced and nothing here is trusted: an object counts when its bytes hash to its name, and what a power cut spoilt is
sent again. So a delivery that was cut goes on where it was, and one that failed is dropped whole. A sweep empties what
nobody came back for. Must not: know what the objects mean.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from agentsession_cas.core.packformat import Space
from agentsession_cas.effects.durable import remove_tree
from agentsession_cas.effects.host import Host, OpenFile
from agentsession_cas.errors import DiskError, FileTaken, NoFile
from agentsession_cas.exchange.endpoint import Name, Object

__all__ = ["Quarantine"]

_FRONT: Final = struct.Struct("<B32sQ")
_SPACES: Final = {int(space): space for space in Space}


class Quarantine:
    """What arrived for one session, in memory once it was asked for."""

    def __init__(self, host: Host, tmp: str, session: str) -> None:
        self._host = host
        self._directory = f"{tmp}/incoming-{hashlib.sha256(session.encode(errors='surrogatepass')).hexdigest()[:32]}"

    def add(self, objects: Iterable[Object]) -> None:
        """Keep objects: one file, which is there whole or is told by its bytes not to be."""
        parts: list[bytes] = []
        for space, digest, data in objects:
            parts += (_FRONT.pack(space, digest, len(data)), data)
        file = self._file()
        try:
            file.pwrite(b"".join(parts), 0)
        finally:
            file.close()

    def _file(self) -> OpenFile:
        path = f"{self._directory}/{self._host.entropy.take(12).hex()}"
        while True:
            with suppress(FileTaken):
                self._host.fs.mkdir(self._directory)
            with suppress(NoFile):  # another delivery of the session just dropped it
                return self._host.fs.create(path)

    def objects(self) -> dict[Name, bytes]:
        """Everything that arrived and is what its name says."""
        found: dict[Name, bytes] = {}
        fs = self._host.fs
        try:
            names = fs.listdir(self._directory)
        except NoFile:
            return found
        for name in names:
            data = fs.read(f"{self._directory}/{name}") or b""
            found.update(_whole(data))
        return found

    def drop(self) -> None:
        """Let go of everything. What another delivery of the same session puts there meanwhile may stay."""
        with suppress(DiskError):
            remove_tree(self._host.fs, self._directory)


def _whole(data: bytes) -> Iterator[tuple[Name, bytes]]:
    at = 0
    while at + _FRONT.size <= len(data):
        space, digest, size = _FRONT.unpack_from(data, at)
        at += _FRONT.size
        part = data[at : at + size]
        at += size
        if space in _SPACES and hashlib.sha256(part).digest() == digest:
            yield (_SPACES[space], digest), part
