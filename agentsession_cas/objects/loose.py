"""Loose objects: one zstd frame per file, fanned out by the first byte of the digest (store.md Part B).

Owns the paths below ``objects/{entries,contents,media}`` and the reading of what lies there. A file never changes: it
is put in place whole, by a rename. Must not: decide what is written or synced (publish does), or serve bytes that do
not hash to their name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Final

from agentsession_cas.core.packformat import Space
from agentsession_cas.core.zframes import FRAME_HEAD_MAX, claimed_size, expand
from agentsession_cas.effects.host import Fs
from agentsession_cas.errors import Corrupt, NoFile

__all__ = ["Loose"]

_FAN: Final = re.compile(r"[0-9a-f]{2}")
_NAME: Final = re.compile(r"[0-9a-f]{62}")


class Loose:
    """The loose objects of one store; digests are raw, 32 bytes."""

    def __init__(self, fs: Fs, objects_dir: str) -> None:
        self._fs = fs
        self.spaces = {space: f"{objects_dir}/{space.name.lower()}" for space in Space}

    def directory(self, space: Space, digest: bytes) -> str:
        """The fan-out directory the object belongs in."""
        return f"{self.spaces[space]}/{digest[:1].hex()}"

    def path(self, space: Space, digest: bytes) -> str:
        """The file the object belongs in."""
        return f"{self.directory(space, digest)}/{digest[1:].hex()}"

    def get(self, space: Space, digest: bytes) -> bytes | None:
        """The object's bytes, None when no file is there. Raises Corrupt when they do not hash to its name."""
        path = self.path(space, digest)
        frame = self._fs.read(path)
        if frame is None:
            return None
        try:
            data = expand(frame)
        except Corrupt as error:
            raise Corrupt(error.what, where=path, next_step="run fsck") from error
        found = hashlib.sha256(data)
        if found.digest() != digest:
            raise Corrupt(f"the bytes hash to sha256:{found.hexdigest()}", where=path, next_step="run fsck")
        return data

    def sizes(self, space: Space, digest: bytes) -> tuple[int, int]:
        """Bytes of the file, and of the object as its frame claims; 0 for what cannot be told."""
        try:
            file = self._fs.open(self.path(space, digest))
        except NoFile:
            return 0, 0
        try:
            return file.size(), claimed_size(file.pread(FRAME_HEAD_MAX, 0))
        except Corrupt:
            return file.size(), 0
        finally:
            file.close()

    def estimate(self, space: Space) -> int:
        """About how many objects of a space there are, by those of one fan-out directory."""
        return 256 * len(self._names(f"{self.spaces[space]}/5a"))

    def files(self, space: Space) -> Iterator[tuple[bytes, str]]:
        """Digest and path of every object that has a file, by digest; nothing is read."""
        for path, digest in self.walk(space):
            if digest is not None:
                yield digest, path

    def fan(self, space: Space, first: int) -> list[bytes]:
        """The digests that begin with the byte ``first`` of those objects that have a file."""
        fan = f"{first:02x}"
        names = self._names(f"{self.spaces[space]}/{fan}")
        return [bytes.fromhex(fan + name) for name in names if _NAME.fullmatch(name)]

    def walk(self, space: Space) -> Iterator[tuple[str, bytes | None]]:
        """Every path in a space, the fan-out directories aside, with the digest it stands for, None for a stray."""
        top = self.spaces[space]
        for fan in self._names(top):
            if not _FAN.fullmatch(fan):
                yield f"{top}/{fan}", None
                continue
            for name in self._names(f"{top}/{fan}"):
                yield f"{top}/{fan}/{name}", bytes.fromhex(fan + name) if _NAME.fullmatch(name) else None

    def _names(self, directory: str) -> list[str]:
        try:
            return self._fs.listdir(directory)
        except NoFile:
            return []
