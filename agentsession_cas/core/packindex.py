"""Idx bytes: where the objects of one pack lie, encode and decode (store.md Part B).

An idx is derived: the pack alone yields it. It copies the pack's table, so that a read needs nothing else of the pack
than one block, and knows of each object its *key*, the first 48 bits of its digest: a row found says where an object
may lie, and its bytes say whether they are it. All integers are little-endian:

    header    magic, version, bits, blocks, objects, name and size of the pack, CRC-32 of all up to the rows
    table     as in the pack
    ends      for each value of a key's first ``bits`` bits the rows up to and with it (u32 each)
    sums      for each of them the CRC-32 of its rows (u32 each)
    rows      sorted by the first 32 bits of the key, in four columns: those bits (u32), the other 16 (u16), the
              object's number in the pack (u16 and, its high bits, u8)

The rows of one bucket, some 256, are tested when the first of them is wanted: opening a large idx reads little of it,
and a damaged row is never taken for an absent object. Pure: bytes that are no idx raise Corrupt and nothing else.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final

from agentsession_cas.core.packformat import OBJECTS_MAX, Table, column, table_size
from agentsession_cas.core.slices import Slices, drain
from agentsession_cas.errors import Corrupt

__all__ = ["Index", "encode_index", "index_slices", "key_of", "keys_of"]

_HEADER: Final = struct.Struct("<8sHHII32sQ")
_CRC: Final = struct.Struct("<I")
_MAGIC: Final = b"aspidx02"
_VERSION: Final = 2
_BITS_MAX: Final = 16
_WIDTHS: Final = (4, 2, 2, 1)
_SLICE: Final = 1024
"""Rows sorted or gathered between two rests: a millisecond or less."""


def key_of(digest: bytes) -> int:
    """The key of a digest: its first 48 bits."""
    return int.from_bytes(digest[:6], "big")


def keys_of(digests: Sequence[bytes]) -> list[int]:
    """The keys of many digests, each of 32 bytes."""
    words = array("Q", b"".join(digests))[::4]
    if sys.byteorder == "little":
        words.byteswap()
    return [word >> 16 for word in words]


def encode_index(name: bytes, size: int, table: bytes, keys: Sequence[int]) -> bytes:
    """The idx of the pack of that name (its raw digest), size and table; ``keys`` are its objects' by number."""
    return drain(index_slices(name, size, table, keys))


def index_slices(name: bytes, size: int, table: bytes, keys: Sequence[int]) -> Slices[bytes]:
    """:func:`encode_index` in slices."""
    bits = min(_BITS_MAX, (len(keys) >> 8).bit_length())
    buckets = yield from _sorted_buckets(keys, bits)
    ends = list(accumulate(map(len, buckets)))
    sums: list[int] = []
    columns: tuple[list[bytes], ...] = ([], [], [], [])
    for bucket in buckets:
        rows = _rows_of(bucket, keys)
        sums.append(_checksum(*rows))
        for whole, part in zip(columns, rows, strict=True):
            whole.append(part)
        yield 0
    blocks = (len(table) - table_size(0)) // (table_size(1) - table_size(0))
    header = _HEADER.pack(_MAGIC, _VERSION, bits, blocks, len(keys), name, size)
    front = table + struct.pack(f"<{2 * len(buckets)}I", *ends, *sums)
    return b"".join((header, _CRC.pack(_checksum(header, front)), front, *(part for each in columns for part in each)))


def _sorted_buckets(keys: Sequence[int], bits: int) -> Slices[list[array[int]]]:
    """Rows as integers, the key's first 32 bits above the number, sorted bucket by bucket."""
    if len(keys) <= _SLICE:
        rows = sorted([key >> 16 << 24 | number for number, key in enumerate(keys)])
        cuts = [bisect_left(rows, bucket << 56 - bits) for bucket in range((1 << bits) + 1)]
        return [array("Q", rows[low:high]) for low, high in pairwise(cuts)]
    buckets = [array("Q") for _ in range(1 << bits)]
    shift = 48 - bits
    for start in range(0, len(keys), _SLICE):
        for number, key in enumerate(keys[start : start + _SLICE], start):
            buckets[key >> shift].append(key >> 16 << 24 | number)
        yield 0
    for at, bucket in enumerate(buckets):
        buckets[at] = array("Q", sorted(bucket))
        yield 0
    return buckets


def _rows_of(bucket: array[int], keys: Sequence[int]) -> tuple[bytes, bytes, bytes, bytes]:
    """The four columns of sorted rows: a row's bytes are three of the number, then four of the key."""
    if sys.byteorder != "little":
        bucket.byteswap()
    data = bucket.tobytes()
    lows, heads = bytearray(2 * len(bucket)), bytearray(4 * len(bucket))
    for at in range(2):
        lows[at::2] = data[at::8]
    for at in range(4):
        heads[at::4] = data[3 + at :: 8]
    highs = data[2::8]
    tails = [keys[low | high << 16] & 0xFFFF for low, high in zip(column(memoryview(lows), "H"), highs, strict=True)]
    return bytes(heads), struct.pack(f"<{len(tails)}H", *tails), bytes(lows), highs


def _checksum(*pieces: bytes | memoryview) -> int:
    crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
    return crc


class Index:
    """An idx read in place; raises Corrupt when its front is damaged, and later where its rows are.

    ``pack_name`` is the raw digest the pack is named by, ``pack_size`` its size in bytes, ``objects`` their number.
    """

    __slots__ = (
        "_columns",
        "_ends",
        "_heads",
        "_highs",
        "_lows",
        "_shift",
        "_sums",
        "_tails",
        "_tested",
        "objects",
        "pack_name",
        "pack_size",
        "table",
    )

    def __init__(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        if len(view) < _HEADER.size + _CRC.size:
            raise Corrupt("an idx too short for its header")
        magic, version, bits, blocks, objects, name, size = _HEADER.unpack_from(view)
        if magic[:6] != _MAGIC[:6]:
            raise Corrupt("no idx begins like this")
        if magic != _MAGIC or version != _VERSION or bits > _BITS_MAX or objects > OBJECTS_MAX:
            raise Corrupt(f"an idx of version {version} that cannot be read")
        start = _HEADER.size + _CRC.size
        lengths = (table_size(blocks), 4 << bits, 4 << bits, *(width * objects for width in _WIDTHS))
        ends = list(accumulate(lengths, initial=start))
        if len(view) != ends[-1]:
            raise Corrupt("an idx of another size than its header says")
        if _checksum(view[: _HEADER.size], view[start : ends[3]]) != _CRC.unpack_from(view, _HEADER.size)[0]:
            raise Corrupt("an idx whose front fails its checksum")
        table, fan, sums, heads, tails, lows, highs = (view[low:high] for low, high in pairwise(ends))
        self.table = Table(table, blocks)
        self.objects = objects
        self.pack_name = name
        self.pack_size = size
        self._shift = 32 - bits
        self._ends = [0, *struct.unpack(f"<{1 << bits}I", fan)]
        self._sums = column(sums, "I")
        self._columns = (heads, tails, lows, highs)
        self._heads = column(heads, "I")
        self._tails = column(tails, "H")
        self._lows = column(lows, "H")
        self._highs = highs
        self._tested = bytearray(1 << bits)
        if self._ends[-1] != objects or self._ends != sorted(self._ends):
            raise Corrupt("an idx whose fan-out makes no sense")
        if self.table.objects != objects:
            raise Corrupt("an idx of more or fewer objects than its table has")

    def places(self, space: int, key: int) -> list[tuple[int, int]]:
        """Block and number of every object of a space that has that key: one at most, but by chance.

        Raises Corrupt on a damaged row.
        """
        found: list[tuple[int, int]] = []
        heads, head = self._heads, key >> 16
        at, high = self._first(head), self.objects
        while at < high and heads[at] == head:
            if self._tails[at] == key & 0xFFFF:
                number = self._lows[at] | self._highs[at] << 16
                block = self.table.block_of(number)
                if self.table.space_of(block) == space:
                    found.append((block, number))
            at += 1
        return found

    def among(self, keys: Iterable[int]) -> list[int]:
        """Those of ``keys`` whose first 32 bits some object has. Raises Corrupt on a damaged row."""
        heads, count = self._heads, self.objects
        return [key for key in keys if (at := self._first(key >> 16)) < count and heads[at] == key >> 16]

    def _first(self, head: int) -> int:
        """The first row not below the first 32 bits of a key, its bucket tested."""
        bucket = head >> self._shift
        if not self._tested[bucket]:
            self._test(bucket)
        return bisect_left(self._heads, head, self._ends[bucket], self._ends[bucket + 1])

    def rows(self, first: int) -> Iterator[tuple[int, int]]:
        """Key and number of every object whose digest begins with the byte ``first``; test all rows before."""
        low, high = (bisect_left(self._heads, (first + more) << 24) for more in (0, 1))
        columns = (self._heads, self._tails, self._lows, self._highs)
        for head, tail, low_bits, high_bits in zip(*(each[low:high] for each in columns), strict=True):
            yield head << 16 | tail, low_bits | high_bits << 16

    def keys(self) -> array[int]:
        """The key of every object by number. Raises Corrupt on a damaged row."""
        return drain(self.key_slices())

    def key_slices(self) -> Slices[array[int]]:
        """:meth:`keys` in slices."""
        keys = array("Q", bytes(8 * self.objects))
        for bucket, (low, high) in enumerate(pairwise(self._ends)):
            self._test(bucket)
            columns = (self._heads, self._tails, self._lows, self._highs)
            for head, tail, low_bits, high_bits in zip(*(each[low:high] for each in columns), strict=True):
                number = low_bits | high_bits << 16
                if number >= self.objects:
                    raise Corrupt(f"an idx row names object {number} of {self.objects}")
                keys[number] = head << 16 | tail
            yield 0
        return keys

    def key_parts(self) -> Iterator[list[int]]:
        """Every key, ascending, some hundreds at a time. Raises Corrupt on a damaged row."""
        for bucket, (low, high) in enumerate(pairwise(self._ends)):
            self._test(bucket)
            rows = zip(self._heads[low:high], self._tails[low:high], strict=True)
            yield [head << 16 | tail for head, tail in rows]

    def test(self) -> None:
        """Raise Corrupt when any row is damaged."""
        for bucket, tested in enumerate(self._tested):
            if not tested:
                self._test(bucket)

    def _test(self, bucket: int) -> None:
        """Test the rows of a bucket."""
        low, high = self._ends[bucket], self._ends[bucket + 1]
        rows = [data[width * low : width * high] for data, width in zip(self._columns, _WIDTHS, strict=True)]
        if _checksum(*rows) != self._sums[bucket]:
            raise Corrupt(f"the idx rows of bucket {bucket} fail their checksum")
        self._tested[bucket] = 1
