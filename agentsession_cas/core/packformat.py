"""Pack bytes: what a pack holds, encode and decode (store.md Part B).

A pack is a header, blocks, a table of the blocks and a trailer, all integers little-endian:

    header    magic, version, flags, 4 zero bytes                                      16 bytes
    block     one zstd frame: the lengths of its objects (u32 each), then their bytes  any number
    table     columns: block offsets (u64), first object numbers (u32), each with one more for the end;
              raw sizes (u32), CRC-32 of the frames (u32), spaces (u8)
    trailer   magic, number of blocks, CRC-32 of the table, SHA-256 of all before it   48 bytes

All objects of a block belong to one space. Objects are numbered from 0 in the order they lie in. A pack does not repeat
their names: an object's name is the SHA-256 of its bytes, so a pack read through once yields its index, whatever became
of the idx file. The pack itself is named by the SHA-256 of all its bytes.

Pure: bytes in, values out. Bytes that are no pack raise Corrupt and nothing else, and allocate no more than
``RAW_MAX`` bytes for a block. Must not know where packs lie or how they are found.
"""

from __future__ import annotations

import hashlib
import struct
import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from enum import IntEnum
from itertools import accumulate
from typing import Final, NamedTuple

from agentsession_cas.core.zframes import compress, expand_sized
from agentsession_cas.errors import Corrupt

__all__ = [
    "HEADER_SIZE",
    "PACKED_MAX",
    "RAW_MAX",
    "TRAILER_SIZE",
    "Block",
    "BlockRef",
    "Packed",
    "Packer",
    "Space",
    "Table",
    "Trailer",
    "check_header",
    "column",
    "decode_block",
    "decode_trailer",
    "table_size",
]

_HEADER: Final = struct.Struct("<8sHH4x")
_TRAILER: Final = struct.Struct("<8sII32s")
_MAGIC: Final = b"aspack01"
_END: Final = b"aspkend1"
_VERSION: Final = 1

HEADER_SIZE: Final = _HEADER.size
TRAILER_SIZE: Final = _TRAILER.size

BLOCK_RAW: Final = 64 << 10
"""A block takes objects until it holds this many bytes. An object as long as that has a block of its own."""

PACKED_MAX: Final = 64 << 20
"""The longest object a pack takes, in bytes: it bounds what reading a block allocates. Longer ones lie loose."""

RAW_MAX: Final = PACKED_MAX + 4


class Space(IntEnum):
    """The spaces of store.md A1: one hash may name an object in each of them."""

    ENTRIES = 0
    CONTENTS = 1
    MEDIA = 2


_SPACES: Final = frozenset(Space)


class BlockRef(NamedTuple):
    """Where a block lies: offset and size of its frame, size and CRC it must have, its objects from ``first`` on."""

    offset: int
    size: int
    raw: int
    crc: int
    first: int
    objects: int
    space: Space


class Trailer(NamedTuple):
    """The end of a pack: how many blocks its table has, the table's CRC-32, the SHA-256 of all before the trailer."""

    blocks: int
    table_crc: int
    digest: bytes


class Packed(NamedTuple):
    """The end of a pack being written, the name of the whole, and what an index of it needs.

    ``digests`` are those of the objects by number.
    """

    tail: bytes
    name: bytes
    size: int
    table: bytes
    digests: list[bytes]


def column(view: memoryview, code: str) -> Sequence[int]:
    """The integers of a column in place (``code`` as in ``array``); copied where the machine is big-endian."""
    if sys.byteorder == "little":
        return view.cast(code)  # type: ignore[call-overload, no-any-return]
    swapped = array(code, view.tobytes())
    swapped.byteswap()
    return swapped


def _bytes_of(code: str, values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}{code}", *values)


# --- reading ---------------------------------------------------------------------------------------------------------


def check_header(data: bytes) -> None:
    """Raise Corrupt unless ``data``, the first ``HEADER_SIZE`` bytes, is a header this version reads."""
    if len(data) != HEADER_SIZE:
        raise Corrupt("a pack too short for its header")
    magic, version, flags = _HEADER.unpack(data)
    if magic != _MAGIC:
        raise Corrupt("no pack begins like this")
    if version != _VERSION or flags:
        raise Corrupt(f"a pack of version {version}, flags {flags:#x}", next_step="use a newer agentsession-cas")


def decode_trailer(data: bytes) -> Trailer:
    """The trailer in the last ``TRAILER_SIZE`` bytes of a pack; raises Corrupt."""
    if len(data) != TRAILER_SIZE:
        raise Corrupt("a pack too short for its trailer")
    magic, blocks, crc, digest = _TRAILER.unpack(data)
    if magic != _END:
        raise Corrupt("a pack without its end")
    return Trailer(blocks, crc, digest)


def table_size(blocks: int) -> int:
    """Bytes of the table of that many blocks. The table ends where the trailer begins."""
    return (8 + 4) * (blocks + 1) + (4 + 4 + 1) * blocks


class Table:
    """The table of a pack, read in place.

    What its columns say is tested where it is used, not before: a pack may have 100,000 blocks and a reader want one.
    """

    __slots__ = ("_crcs", "_firsts", "_offsets", "_raws", "_spaces", "blocks", "data", "objects")

    def __init__(self, data: bytes | memoryview, blocks: int) -> None:
        """``data`` is the whole table, its CRC-32 already compared. Raises Corrupt when its size is another."""
        if len(data) != table_size(blocks):
            raise Corrupt(f"a pack's table of {len(data)} bytes for {blocks} blocks")
        view = memoryview(data)
        ends = list(accumulate((8 * (blocks + 1), 4 * (blocks + 1), 4 * blocks, 4 * blocks, blocks)))
        self.data = view
        self.blocks = blocks
        self._offsets = column(view[: ends[0]], "Q")
        self._firsts = column(view[ends[0] : ends[1]], "I")
        self._raws = column(view[ends[1] : ends[2]], "I")
        self._crcs = column(view[ends[2] : ends[3]], "I")
        self._spaces = view[ends[3] :]
        self.objects = self._firsts[blocks]

    def block(self, number: int) -> BlockRef:
        """The block of that number, from 0; raises Corrupt when the table does not make sense there."""
        offset, end = self._offsets[number], self._offsets[number + 1]
        first, behind = self._firsts[number], self._firsts[number + 1]
        raw, space = self._raws[number], self._spaces[number]
        count = behind - first
        if not (HEADER_SIZE <= offset < end and 0 < 4 * count <= raw <= RAW_MAX and space in _SPACES):
            raise Corrupt(f"block {number} of a pack's table makes no sense")
        return BlockRef(offset, end - offset, raw, self._crcs[number], first, count, Space(space))

    def block_of(self, number: int) -> int:
        """The block that holds the object of that number; raises Corrupt when none does."""
        block = bisect_right(self._firsts, number) - 1
        if not (0 <= block < self.blocks and self._firsts[block] <= number < self._firsts[block + 1]):
            raise Corrupt(f"no block of the pack holds object {number}")
        return block

    def space_of(self, block: int) -> int:
        """The space of a block's objects, as the table has it."""
        return self._spaces[block]

    def logical_size(self) -> int:
        """Bytes of all objects, as they are served."""
        return sum(self._raws) - 4 * self.objects


class Block:
    """A block's objects in memory. ``size`` is what it weighs in a cache, in bytes."""

    __slots__ = ("_data", "_ends", "first", "size")

    def __init__(self, data: bytes, ends: Sequence[int], first: int) -> None:
        self._data = data
        self._ends = ends
        self.first = first
        self.size = len(data) + 40 * len(ends) + 200

    def __len__(self) -> int:
        return len(self._ends) - 1

    def object(self, number: int) -> bytes:
        """The bytes of the object of that number in the pack, unverified."""
        at = number - self.first
        return self._data[self._ends[at] : self._ends[at + 1]]


def decode_block(ref: BlockRef, frame: bytes) -> Block:
    """The objects of a block; raises Corrupt when ``frame`` is not what the table says."""
    if len(frame) != ref.size:
        raise Corrupt(f"a block of {ref.size} bytes cut short to {len(frame)}")
    if zlib.crc32(frame) != ref.crc:
        raise Corrupt("a block fails its checksum")
    data = expand_sized(frame, ref.raw)
    lengths = struct.unpack_from(f"<{ref.objects}I", data)
    ends = list(accumulate(lengths, initial=4 * ref.objects))
    if ends[-1] != len(data):
        raise Corrupt("a block whose objects do not fill it")
    return Block(data, ends, ref.first)


# --- writing ---------------------------------------------------------------------------------------------------------


class _Group:
    """Objects of one space that wait for their block to fill."""

    __slots__ = ("digests", "pieces", "size")

    def __init__(self) -> None:
        self.digests: list[bytes] = []
        self.pieces: list[bytes] = []
        self.size = 0

    def add(self, digest: bytes, data: bytes) -> None:
        self.digests.append(digest)
        self.pieces.append(data)
        self.size += 4 + len(data)


class Packer:
    """Writes one pack, piece by piece: write what ``add`` returns in that order, then the tail ``finish`` returns.

    Small objects of one space share blocks in the order they come. The bytes depend on nothing but objects, order and
    the version of zstd.
    """

    def __init__(self) -> None:
        header = _HEADER.pack(_MAGIC, _VERSION, 0)
        self._hash = hashlib.sha256(header)
        self._unwritten = header
        self._groups = {space: _Group() for space in Space}
        self._offsets = [len(header)]
        self._firsts = [0]
        self._raws: list[int] = []
        self._crcs: list[int] = []
        self._spaces: list[int] = []
        self._digests: list[bytes] = []

    def add(self, space: Space, digest: bytes, data: bytes) -> bytes:
        """Take an object of at most ``PACKED_MAX`` bytes named ``digest``; returns the bytes to write now, if any."""
        if len(data) >= BLOCK_RAW:
            alone = _Group()
            alone.add(digest, data)
            return self._block(space, alone)
        group = self._groups[space]
        group.add(digest, data)
        if group.size < BLOCK_RAW:
            return b""
        self._groups[space] = _Group()
        return self._block(space, group)

    def finish(self) -> Packed:
        """The rest of the pack. At least one object must have been added."""
        last = b"".join(self._block(space, group) for space, group in self._groups.items() if group.digests)
        table = b"".join(
            (
                _bytes_of("Q", self._offsets),
                _bytes_of("I", self._firsts),
                _bytes_of("I", self._raws),
                _bytes_of("I", self._crcs),
                bytes(self._spaces),
            )
        )
        self._hash.update(table)
        trailer = _TRAILER.pack(_END, len(self._raws), zlib.crc32(table), self._hash.digest())
        self._hash.update(trailer)
        size = self._offsets[-1] + len(table) + len(trailer)
        return Packed(last + table + trailer, self._hash.digest(), size, table, self._digests)

    def _block(self, space: Space, group: _Group) -> bytes:
        raw = _bytes_of("I", [len(piece) for piece in group.pieces]) + b"".join(group.pieces)
        frame = compress(raw)
        self._hash.update(frame)
        self._offsets.append(self._offsets[-1] + len(frame))
        self._digests += group.digests
        self._firsts.append(len(self._digests))
        self._raws.append(len(raw))
        self._crcs.append(zlib.crc32(frame))
        self._spaces.append(space)
        frame, self._unwritten = self._unwritten + frame, b""
        return frame
