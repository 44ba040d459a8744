"""Pack bytes: what a pack holds, decoded (store.md Part B); ``packer`` encodes it.

A pack is a header, blocks, a table of the blocks and a trailer, all integers little-endian:

    header    magic, version, grade, 4 zero bytes                                      16 bytes
    block     one zstd frame of objects                                                any number
    table     columns: block offsets (u64), first object numbers (u32), each with one more for the end;
              sizes of what the frames hold (u32), of their objects as they are stored (u32), CRC-32 of the frames
              (u32), ids of the dictionaries they were made with (u32, 0 for none), spaces (u8), codecs (u8)
    trailer   magic, number of blocks, CRC-32 of the table, SHA-256 of all before it   48 bytes

All objects of a block belong to one space. Objects are numbered from 0 in the order they lie in. A pack does not repeat
their names: an object's name is the SHA-256 of its bytes, or noted in its skeleton, so a pack read through once yields
its index, whatever became of the idx file. The pack itself is named by the SHA-256 of all its bytes. What a frame holds
its codec says:

    PLAIN       the lengths of the objects (u32 each), then their bytes
    ENVELOPES   envelopes in binary (``envelopes``), which may name bodies of the block before, which is none of
                envelopes: blocks that lay side by side stay so
    SPLIT       how many of the objects are skeletons (u32) and which (their places, u32 each), then as PLAIN. A
                skeleton (``pieces``) is a body without its large strings, which are objects of a space of their own,
                wherever they lie. It notes its body's name, which is believed here and tested when the body is put
                together

Pure: bytes in, values out. Bytes that are no pack raise Corrupt and nothing else, and allocate no more than
``RAW_MAX`` bytes for a block. Must not know where packs lie or how they are found.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from enum import IntEnum
from hashlib import sha256
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from agentsession_cas.core.envelopes import decode_envelopes
from agentsession_cas.core.pieces import Skeleton, Stored, decode_skeleton, digest_of_stored
from agentsession_cas.core.zframes import Dictionary, expand_sized
from agentsession_cas.errors import Corrupt

__all__ = [
    "HEADER_SIZE",
    "OBJECTS_MAX",
    "PACKED_MAX",
    "RAW_MAX",
    "TRAILER_SIZE",
    "Block",
    "BlockRef",
    "Codec",
    "Columns",
    "Grade",
    "Space",
    "Table",
    "Trailer",
    "column",
    "decode_block",
    "decode_header",
    "decode_trailer",
    "encode_header",
    "encode_table",
    "encode_trailer",
    "plain_block",
    "table_size",
]

_HEADER: Final = struct.Struct("<8sHH4x")
_TRAILER: Final = struct.Struct("<8sII32s")
_MAGIC: Final = b"aspack02"
_END: Final = b"aspkend2"
_VERSION: Final = 2

HEADER_SIZE: Final = _HEADER.size
TRAILER_SIZE: Final = _TRAILER.size

PACKED_MAX: Final = 64 << 20
"""The longest object a pack takes, in bytes: it bounds what reading a block allocates. Longer ones lie loose."""

RAW_MAX: Final = PACKED_MAX + 4

OBJECTS_MAX: Final = 1 << 24
"""Objects of one pack, at most: an idx has three bytes for the number of each."""


class Space(IntEnum):
    """The spaces of store.md A1, and that of pieces (Part B): one hash may name an object in each of them."""

    ENTRIES = 0
    CONTENTS = 1
    MEDIA = 2
    PIECES = 3


class Codec(IntEnum):
    """How the objects of a block are written inside its frame."""

    PLAIN = 0
    ENVELOPES = 1
    SPLIT = 2


class Grade(IntEnum):
    """What a pack is: written in haste at a checkpoint, made to be read every day, or made small."""

    FRESH = 0
    EVERYDAY = 1
    ARCHIVE = 2


_make: Final = tuple.__new__  # what a NamedTuple is made with, without the call around it
_SPACES: Final = tuple(Space)
_CODECS: Final = tuple(Codec)
_GRADES: Final = frozenset(Grade)


class BlockRef(NamedTuple):
    """Where a block lies: offset and size of its frame, and what must be in it, its objects numbered from ``first`` on.

    ``raw`` bytes are in the frame, ``served`` are those of the objects themselves, bodies without their pieces.
    """

    offset: int
    size: int
    raw: int
    served: int
    crc: int
    dictionary: int
    first: int
    objects: int
    space: Space
    codec: Codec


class Columns(NamedTuple):
    """Of neighbouring blocks: where each frame begins and the number of its first object, with one more for the end.

    Then bytes in the frame, its CRC-32, dictionary, space and codec.
    """

    offsets: list[int]
    firsts: list[int]
    raws: list[int]
    crcs: list[int]
    dictionaries: list[int]
    spaces: list[int]
    codecs: list[int]


class Trailer(NamedTuple):
    """The end of a pack: how many blocks its table has, the table's CRC-32, the SHA-256 of all before the trailer."""

    blocks: int
    table_crc: int
    digest: bytes


def column(view: memoryview, code: str) -> Sequence[int]:
    """The integers of a column in place (``code`` as in ``array``); copied where the machine is big-endian."""
    if sys.byteorder == "little":
        return view.cast(code)  # type: ignore[call-overload, no-any-return]
    swapped = array(code, view.tobytes())
    swapped.byteswap()
    return swapped


# --- header and trailer ----------------------------------------------------------------------------------------------


def encode_header(grade: Grade) -> bytes:
    """The first ``HEADER_SIZE`` bytes of a pack."""
    return _HEADER.pack(_MAGIC, _VERSION, grade)


def decode_header(data: bytes) -> Grade:
    """The grade in the first ``HEADER_SIZE`` bytes of a pack; raises Corrupt for a header this version cannot read."""
    if len(data) != HEADER_SIZE:
        raise Corrupt("a pack too short for its header")
    magic, version, grade = _HEADER.unpack(data)
    if magic[:6] != _MAGIC[:6]:
        raise Corrupt("no pack begins like this")
    if magic != _MAGIC or version != _VERSION or grade not in _GRADES:
        raise Corrupt(f"a pack of version {version}, grade {grade}", next_step="use a newer agentsession-cas")
    return Grade(grade)


def encode_trailer(blocks: int, table: bytes, digest: bytes) -> bytes:
    """The last ``TRAILER_SIZE`` bytes; ``digest`` is the SHA-256 of all before them, the table included."""
    return _TRAILER.pack(_END, blocks, zlib.crc32(table), digest)


def decode_trailer(data: bytes) -> Trailer:
    """The trailer in the last ``TRAILER_SIZE`` bytes of a pack; raises Corrupt."""
    if len(data) != TRAILER_SIZE:
        raise Corrupt("a pack too short for its trailer")
    magic, blocks, crc, digest = _TRAILER.unpack(data)
    if magic != _END:
        raise Corrupt("a pack without its end")
    return Trailer(blocks, crc, digest)


# --- table -----------------------------------------------------------------------------------------------------------


def table_size(blocks: int) -> int:
    """Bytes of the table of that many blocks. The table ends where the trailer begins."""
    return (8 + 4) * (blocks + 1) + (4 + 4 + 4 + 4 + 1 + 1) * blocks


def encode_table(refs: Sequence[BlockRef]) -> bytes:
    """The table of blocks that lie one behind the other."""
    end, objects = (refs[-1].offset + refs[-1].size, refs[-1].first + refs[-1].objects) if refs else (HEADER_SIZE, 0)
    count = len(refs)
    return b"".join(
        (
            struct.pack(f"<{count + 1}Q", *[ref.offset for ref in refs], end),
            struct.pack(f"<{count + 1}I", *[ref.first for ref in refs], objects),
            struct.pack(f"<{count}I", *[ref.raw for ref in refs]),
            struct.pack(f"<{count}I", *[ref.served for ref in refs]),
            struct.pack(f"<{count}I", *[ref.crc for ref in refs]),
            struct.pack(f"<{count}I", *[ref.dictionary for ref in refs]),
            bytes([ref.space for ref in refs]),
            bytes([ref.codec for ref in refs]),
        )
    )


class Table:
    """The table of a pack, read in place.

    What its columns say is tested where it is used, not before: a pack may have 100,000 blocks and a reader want one.
    """

    __slots__ = (
        "_codecs",
        "_crcs",
        "_dictionaries",
        "_firsts",
        "_offsets",
        "_raws",
        "_served",
        "_spaces",
        "blocks",
        "data",
        "objects",
    )

    def __init__(self, data: bytes | memoryview, blocks: int) -> None:
        """``data`` is the whole table, its CRC-32 already compared. Raises Corrupt when its size is another."""
        if len(data) != table_size(blocks):
            raise Corrupt(f"a pack's table of {len(data)} bytes for {blocks} blocks")
        view = memoryview(data)
        ends = list(accumulate((8 * (blocks + 1), 4 * (blocks + 1), *(4 * blocks,) * 4, blocks)))
        self.data = view
        self.blocks = blocks
        self._offsets = column(view[: ends[0]], "Q")
        self._firsts = column(view[ends[0] : ends[1]], "I")
        self._raws = column(view[ends[1] : ends[2]], "I")
        self._served = column(view[ends[2] : ends[3]], "I")
        self._crcs = column(view[ends[3] : ends[4]], "I")
        self._dictionaries = column(view[ends[4] : ends[5]], "I")
        self._spaces = view[ends[5] : ends[6]]
        self._codecs = view[ends[6] :]
        self.objects = self._firsts[blocks]
        if self.objects > OBJECTS_MAX:
            raise Corrupt(f"a pack's table of {self.objects} objects")

    def block(self, number: int) -> BlockRef:
        """The block of that number; raises Corrupt when the table's words about it make no sense."""
        offset, end = self._offsets[number], self._offsets[number + 1]
        first, raw = self._firsts[number], self._raws[number]
        count = min(self._firsts[number + 1], self.objects) - first
        space, codec = self._spaces[number], self._codecs[number]
        sane = HEADER_SIZE <= offset < end and count > 0 and 0 < raw <= RAW_MAX
        if not (sane and space < len(_SPACES) and codec < len(_CODECS)):
            raise Corrupt(f"block {number} of a pack's table makes no sense")
        served, crc, dictionary = self._served[number], self._crcs[number], self._dictionaries[number]
        kinds = (_SPACES[space], _CODECS[codec])
        return _make(BlockRef, (offset, end - offset, raw, served, crc, dictionary, first, count, *kinds))

    def columns(self, start: int, end: int) -> Columns:
        """What the table says of the blocks from ``start`` up to ``end``, untested: whether it makes sense."""
        offsets, firsts = self._offsets[start : end + 1], self._firsts[start : end + 1]
        columns = (self._raws, self._crcs, self._dictionaries, self._spaces, self._codecs)
        return Columns(list(offsets), list(firsts), *(list(each[start:end]) for each in columns))

    def block_of(self, number: int) -> int:
        """The block that holds the object of that number; raises Corrupt when none does."""
        block = bisect_right(self._firsts, number) - 1
        if not (0 <= block < self.blocks and self._firsts[block] <= number < self._firsts[block + 1]):
            raise Corrupt(f"no block of the pack holds object {number}")
        return block

    def space_of(self, block: int) -> int:
        """The space of a block's objects, as the table has it."""
        return self._spaces[block]

    def next_of(self, space: Space, block: int) -> int:
        """The first block of a space behind one, as the table has it; -1 for none."""
        return bytes(self._spaces[: block + _FAR]).find(space, block + 1)

    def spaces(self) -> bytes:
        """The space of every block, in order."""
        return bytes(self._spaces)

    def has_skeletons(self, block: int) -> bool:
        """Whether a block has bodies without their pieces, as the table has it."""
        return self._codecs[block] == Codec.SPLIT

    def dictionaries(self) -> set[int]:
        """The ids of all dictionaries that blocks were made with."""
        return set(self._dictionaries) - {0}

    def served_size(self) -> int:
        """Bytes of all objects, bodies without their pieces."""
        return sum(self._served)


# --- blocks ----------------------------------------------------------------------------------------------------------


_NO_BYTES: Final = memoryview(b"")
_NONE: Final[frozenset[int]] = frozenset()
_FAR: Final = 4096
"""Blocks looked through for the next one of a space."""
_SPLIT: Final = int(Codec.SPLIT)


class Block:
    """A block's objects in memory. ``size`` is what it weighs in a cache, in bytes."""

    __slots__ = ("_data", "_ends", "_split", "first", "size")

    def __init__(self, data: bytes, ends: Sequence[int], first: int, split: frozenset[int] = _NONE) -> None:
        """``split`` are the places of skeletons."""
        self._data = data
        self._ends = ends
        self._split = split
        self.first = first
        self.size = len(data) + 40 * len(ends) + 200

    def __len__(self) -> int:
        return len(self._ends) - 1

    @property
    def served(self) -> int:
        """Bytes of all its objects, bodies without their pieces."""
        return self._ends[-1] - self._ends[0]

    def stored(self, number: int) -> Stored:
        """The object of that number in the pack, as it is stored, unverified. Raises Corrupt."""
        at = number - self.first
        try:
            data = self._data[self._ends[at] : self._ends[at + 1]]
        except IndexError as error:
            raise Corrupt(f"a block without object {number}") from error
        return decode_skeleton(data) if at in self._split else data

    def view(self, number: int) -> memoryview:
        """The bytes at that number in the pack, as they lie, where they lie; none for a number of another block."""
        at = number - self.first
        return memoryview(self._data)[self._ends[at] : self._ends[at + 1]] if 0 <= at < len(self) else _NO_BYTES

    def sorted_out(self) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        """The whole objects by the digests of their bytes; skeletons, encoded, by the digests these note."""
        objects = [self._data[start:end] for start, end in pairwise(self._ends)]
        split = {each[:32]: each for at, each in enumerate(objects) if at in self._split}
        return {sha256(each).digest(): each for at, each in enumerate(objects) if at not in self._split}, split

    def skeletons(self) -> list[Skeleton]:
        """The objects of the block that are skeletons. Raises Corrupt."""
        places = sorted(at for at in self._split if at < len(self))
        return [decode_skeleton(self._data[self._ends[at] : self._ends[at + 1]]) for at in places]

    def digests(self) -> list[bytes]:
        """:meth:`digest` of every object, in order. Raises Corrupt."""
        data, ends = self._data, self._ends
        if self._split:
            return [self.digest(number) for number in range(self.first, self.first + len(self))]
        return [sha256(data[start:end]).digest() for start, end in pairwise(ends)]

    def digest(self, number: int) -> bytes:
        """The raw digest of the object of that number: that of its bytes, or what its skeleton notes."""
        return digest_of_stored(self.stored(number))


def decode_block(
    ref: BlockRef, frame: bytes, dictionary: Callable[[int], Dictionary], before: Callable[[], Block]
) -> Block:
    """The objects of a block; raises Corrupt when ``frame`` is not what the table says.

    ``dictionary`` finds one by its id, ``before`` reads the block before this one; what they raise passes through.
    """
    if len(frame) != ref.size:
        raise Corrupt(f"a block of {ref.size} bytes cut short to {len(frame)}")
    if zlib.crc32(frame) != ref.crc:
        raise Corrupt("a block fails its checksum")
    data = expand_sized(frame, ref.raw, dictionary(ref.dictionary) if ref.dictionary else None)
    if ref.codec is not Codec.ENVELOPES:
        return _of_size(ref, plain_block(data, ref.objects, ref.first, ref.codec))
    envelopes = decode_envelopes(data, ref.objects, _Bodies(before).digest)
    return _of_size(ref, Block(b"".join(envelopes), list(accumulate(map(len, envelopes), initial=0)), ref.first))


def _of_size(ref: BlockRef, block: Block) -> Block:
    if block.served != ref.served:
        raise Corrupt(f"a block of {block.served} bytes of objects where its table says {ref.served}")
    return block


def plain_block(data: bytes, count: int, first: int, codec: int) -> Block:
    """The ``count`` objects, from number ``first`` on, out of what a frame of codec PLAIN or SPLIT holds.

    Raises Corrupt.
    """
    words, split = count, _NONE
    if codec == _SPLIT:
        skeletons = int.from_bytes(data[:4], "little")
        if skeletons > count:
            raise Corrupt("a block of more skeletons than objects")
        words += 1 + skeletons
    if 4 * words > len(data):
        raise Corrupt("a block too short for its objects")
    lengths = struct.unpack_from(f"<{words}I", data)
    if words > count:
        split = frozenset(lengths[1:-count])
        lengths = lengths[-count:]
    ends = list(accumulate(lengths, initial=4 * words))
    if ends[-1] != len(data):
        raise Corrupt("a block whose objects do not fill it")
    return Block(data, ends, first, split)


class _Bodies:
    """The block that envelopes lie behind, read when one of them names a body of it."""

    def __init__(self, before: Callable[[], Block]) -> None:
        self._before = before
        self._block: Block | None = None

    def digest(self, place: int) -> bytes:
        """The raw digest of an object of that block."""
        block = self._block = self._block or self._before()
        if place >= len(block):
            raise Corrupt("an envelope whose body is not in the block before it")
        return block.digest(block.first + place)
