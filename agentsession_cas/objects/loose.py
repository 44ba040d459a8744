"""Loose objects: one zstd frame per file, fanned out by the first byte of the digest (store.md Part B).

Owns the paths below ``objects/{entries,contents,media,pieces}`` and the reading of what lies there. A file never
changes: it is put in place whole, by a rename. Must not: decide what is written or synced (publish does), or serve
bytes that do not hash to their name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from agentsession_cas.core.packformat import Space
from agentsession_cas.core.pieces import (
    LOOSE_HEAD_MAX,
    Skeleton,
    Stored,
    claimed_loose,
    decode_loose,
    digest_of_stored,
)
from agentsession_cas.effects.host import Fs
from agentsession_cas.errors import Corrupt, DiskError, NoFile

__all__ = ["Copy", "Loose", "Whole", "copy_of"]

_FAN: Final = re.compile(r"[0-9a-f]{2}")
_NAME: Final = re.compile(r"[0-9a-f]{62}")


Whole = Callable[[Skeleton], bytes]
"""Puts a body together and tests its hash; raises Corrupt, DiskError."""


class Copy(NamedTuple):
    """A good copy of an object: as it is stored, and its bytes, which hash to its name."""

    stored: Stored
    data: bytes


def copy_of(stored: Stored, whole: Whole) -> Copy:
    """The copy that lies there as ``stored``, which hashes to its name or notes it. Raises what ``whole`` does."""
    return Copy(stored, whole(stored) if isinstance(stored, Skeleton) else stored)


class Loose:
    """The loose objects of one store; digests are raw, 32 bytes. ``whole`` puts bodies together."""

    def __init__(self, fs: Fs, objects_dir: str, whole: Whole) -> None:
        self._fs = fs
        self._whole = whole
        self.spaces = {space: f"{objects_dir}/{space.name.lower()}" for space in Space}

    def directory(self, space: Space, digest: bytes) -> str:
        """The fan-out directory the object belongs in."""
        return f"{self.spaces[space]}/{digest[:1].hex()}"

    def path(self, space: Space, digest: bytes) -> str:
        """The file the object belongs in."""
        return f"{self.directory(space, digest)}/{digest[1:].hex()}"

    def glimpse(self, space: Space, digest: bytes) -> Stored | None:
        """What is probably the object, its hash untested; None when there is none that reads."""
        with suppress(Corrupt, DiskError):
            data = self._fs.read(self.path(space, digest))
            return None if data is None else decode_loose(data)
        return None

    def get(self, space: Space, digest: bytes) -> Copy | None:
        """The object, None when no file is there. Raises Corrupt when its bytes do not hash to its name, DiskError."""
        stored = self.stored(space, digest)
        return None if stored is None else copy_of(stored, self._whole)

    def stored(self, space: Space, digest: bytes) -> Stored | None:
        """The object as it is stored, None when no file is there.

        Raises Corrupt when it is another one, of a skeleton by what that notes; DiskError.
        """
        path = self.path(space, digest)
        data = self._fs.read(path)
        if data is None:
            return None
        try:
            stored = decode_loose(data)
        except Corrupt as error:
            raise Corrupt(error.what, where=path, next_step="run fsck") from error
        found = digest_of_stored(stored)
        if found != digest:
            raise Corrupt(f"the bytes hash to sha256:{found.hex()}", where=path, next_step="run fsck")
        return stored

    def sizes(self, space: Space, digest: bytes) -> tuple[int, int]:
        """Bytes of the file, and of the object, its pieces left out, as its frame claims; 0 for what cannot be told."""
        try:
            file = self._fs.open(self.path(space, digest))
        except NoFile:
            return 0, 0
        try:
            return file.size(), claimed_loose(file.pread(LOOSE_HEAD_MAX, 0))
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
