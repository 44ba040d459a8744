"""Writing packs: which objects share a block, and the bytes of the whole (``packformat`` says what they mean).

Owns the making of pack bytes, piece by piece, so that a large pack never lies in memory. Invariant: the bytes depend on
nothing but objects, order, grade and the version of zstd. Pure. Must not know where packs lie.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from array import array
from typing import Final, NamedTuple

from agentsession_cas.core.packformat import (
    HEADER_SIZE,
    BlockRef,
    Codec,
    Grade,
    Space,
    encode_header,
    encode_table,
    encode_trailer,
)
from agentsession_cas.core.packindex import keys_of
from agentsession_cas.core.zframes import FAST, compress

__all__ = ["Packed", "Packer"]

BLOCK_RAW: Final = 64 << 10
"""A block takes objects until it holds this many bytes. An object as long as that has a block of its own."""


class Packed(NamedTuple):
    """The end of a pack being written, the name of the whole (a raw digest), and what an index of it needs.

    ``keys`` are those of the objects by number, as ``packindex`` has them.
    """

    tail: bytes
    name: bytes
    size: int
    table: bytes
    keys: array[int]


class _Group:
    """Objects of one space that wait for their block to fill."""

    __slots__ = ("digests", "pieces", "size")

    def __init__(self) -> None:
        self.digests: list[bytes] = []
        self.pieces: list[bytes] = []
        self.size = 0


class Packer:
    """Writes one pack, piece by piece: write what ``add`` returns in that order, then the tail ``finish`` returns.

    Small objects of one space share blocks in the order they come.
    """

    def __init__(self, grade: Grade = Grade.FRESH) -> None:
        header = encode_header(grade)
        self._hash = hashlib.sha256(header)
        self._unwritten = header
        self._groups = [_Group() for _ in Space]
        self._refs: list[BlockRef] = []
        self._end = HEADER_SIZE
        self._keys = array("Q")

    def add(self, space: Space, digest: bytes, data: bytes) -> bytes:
        """Take an object of at most ``PACKED_MAX`` bytes named ``digest``; returns the bytes to write now, if any."""
        size = len(data) + 4
        if size > BLOCK_RAW:
            alone = _Group()
            alone.digests.append(digest)
            alone.pieces.append(data)
            return self._block(space, alone)
        group = self._groups[space]
        group.digests.append(digest)
        group.pieces.append(data)
        group.size += size
        if group.size < BLOCK_RAW:
            return b""
        self._groups[space] = _Group()
        return self._block(space, group)

    def finish(self) -> Packed:
        """The rest of the pack. At least one object must have been added."""
        last = b"".join(self._block(space, self._groups[space]) for space in Space if self._groups[space].digests)
        table = encode_table(self._refs)
        self._hash.update(table)
        trailer = encode_trailer(len(self._refs), table, self._hash.digest())
        self._hash.update(trailer)
        size = self._end + len(table) + len(trailer)
        return Packed(last + table + trailer, self._hash.digest(), size, table, self._keys)

    def _block(self, space: Space, group: _Group) -> bytes:
        raw = struct.pack(f"<{len(group.pieces)}I", *map(len, group.pieces)) + b"".join(group.pieces)
        frame = compress(raw, FAST)
        self._hash.update(frame)
        self._refs.append(
            BlockRef(
                self._end,
                len(frame),
                len(raw),
                len(raw) - 4 * len(group.pieces),
                zlib.crc32(frame),
                len(self._keys),
                len(group.pieces),
                space,
                Codec.PLAIN,
            )
        )
        self._end += len(frame)
        self._keys.extend(keys_of(group.digests))
        frame, self._unwritten = self._unwritten + frame, b""
        return frame
