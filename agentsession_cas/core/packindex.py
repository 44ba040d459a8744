"""Idx bytes: where the objects of one pack lie, encode and decode (store.md Part B).

An idx is derived: the pack alone yields it. It copies the pack's table, so that a read needs nothing else of the pack
than one block. All integers are little-endian:

    header    magic, version, flags, blocks, objects, name and size of the pack, CRC-32 of all up to the rows
    table     as in the pack
    fan-out   for each first byte of a digest the rows up to and with it (256 u32)
    sums      for each first byte the CRC-32 of its rows (256 u32)
    rows      sorted by digest, in three columns: the first 8 bytes of the digest as a number (u64), the other 24, the
              object's number in the pack (u32)

The rows of one first byte are tested when the first of them is wanted: opening a large idx reads little of it, and a
damaged row is never taken for an absent object. Pure: bytes that are no idx raise Corrupt and nothing else.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from agentsession_cas.core.packformat import Table, column, table_size
from agentsession_cas.errors import Corrupt

__all__ = ["Index", "Row", "encode_index"]

_HEADER: Final = struct.Struct("<8sHHII32sQ")
_CRC: Final = struct.Struct("<I")
_MAGIC: Final = b"aspidx01"
_VERSION: Final = 1
_FAN: Final = 256
_FAN_SIZE: Final = 4 * _FAN
_REST: Final = 24
_WIDTHS: Final = (8, _REST, 4)


class Row(NamedTuple):
    """One object of a pack: its digest and its number there."""

    digest: bytes
    number: int


def encode_index(name: bytes, size: int, table: bytes, rows: list[Row]) -> bytes:
    """The idx of the pack of that name (its raw digest), size and table. ``rows`` are its objects, in any order."""
    rows = sorted(rows)
    digests = [row.digest for row in rows]
    counts = [0] * _FAN
    for digest in digests:
        counts[digest[0]] += 1
    ends = list(accumulate(counts, initial=0))
    columns = (
        b"".join([digest[7::-1] for digest in digests]),
        b"".join([digest[8:] for digest in digests]),
        struct.pack(f"<{len(rows)}I", *[row.number for row in rows]),
    )
    sums = [_checksum_rows(columns, low, high) for low, high in pairwise(ends)]
    blocks = (len(table) - table_size(0)) // (table_size(1) - table_size(0))
    header = _HEADER.pack(_MAGIC, _VERSION, 0, blocks, len(rows), name, size)
    front = table + struct.pack(f"<{2 * _FAN}I", *ends[1:], *sums)
    return b"".join((header, _CRC.pack(_checksum(header, front)), front, *columns))


def _checksum(*pieces: bytes | memoryview) -> int:
    crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
    return crc


def _checksum_rows(columns: Sequence[bytes | memoryview], low: int, high: int) -> int:
    return _checksum(*[data[width * low : width * high] for data, width in zip(columns, _WIDTHS, strict=True)])


class Index:
    """An idx read in place; raises Corrupt when its front is damaged, and later where its rows are.

    ``pack_name`` is the raw digest the pack is named by, ``pack_size`` its size in bytes, ``objects`` their number.
    """

    __slots__ = (
        "_columns",
        "_ends",
        "_numbers",
        "_prefixes",
        "_rests",
        "_sums",
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
        magic, version, flags, blocks, objects, name, size = _HEADER.unpack_from(view)
        if magic != _MAGIC:
            raise Corrupt("no idx begins like this")
        if version != _VERSION or flags:
            raise Corrupt(f"an idx of version {version}, flags {flags:#x}", next_step="use a newer agentsession-cas")
        start = _HEADER.size + _CRC.size
        lengths = (table_size(blocks), _FAN_SIZE, _FAN_SIZE, *(width * objects for width in _WIDTHS))
        ends = list(accumulate(lengths, initial=start))
        if len(view) != ends[-1]:
            raise Corrupt("an idx of another size than its header says")
        if _checksum(view[: _HEADER.size], view[start : ends[3]]) != _CRC.unpack_from(view, _HEADER.size)[0]:
            raise Corrupt("an idx whose front fails its checksum")
        table, fan, sums, prefixes, rests, numbers = (view[low:high] for low, high in pairwise(ends))
        self.table = Table(table, blocks)
        self.objects = objects
        self.pack_name = name
        self.pack_size = size
        self._ends = [0, *column(fan, "I")]
        self._sums = column(sums, "I")
        self._columns = (prefixes, rests, numbers)
        self._prefixes = column(prefixes, "Q")
        self._rests = rests
        self._numbers = column(numbers, "I")
        self._tested = bytearray(_FAN)
        if self._ends[-1] != objects or any(low > high for low, high in pairwise(self._ends)):
            raise Corrupt("an idx whose fan-out makes no sense")

    def find(self, space: int, digest: bytes) -> tuple[int, int] | None:
        """Block and number of the object in the pack, None when it is not there. Raises Corrupt on a damaged row."""
        first = digest[0]
        low, high = self._ends[first], self._ends[first + 1]
        if not self._tested[first]:
            self._test(first)
        prefix = int.from_bytes(digest[:8], "big")
        at = bisect_left(self._prefixes, prefix, low, high)
        while at < high and self._prefixes[at] == prefix:
            number = self._numbers[at]
            block = self.table.block_of(number)
            if self._rests[_REST * at : _REST * (at + 1)] == digest[8:] and self.table.space_of(block) == space:
                return block, number
            at += 1
        return None

    def rows(self) -> Iterator[Row]:
        """All objects in the order they lie in the pack. Raises Corrupt on a damaged row, before the first."""
        self.test()
        for at in sorted(range(self.objects), key=self._numbers.__getitem__):
            rest = self._rests[_REST * at : _REST * (at + 1)]
            yield Row(self._prefixes[at].to_bytes(8, "big") + rest.tobytes(), self._numbers[at])

    def test(self) -> None:
        """Raise Corrupt when any row is damaged."""
        for first in range(_FAN):
            self._test(first)

    def _test(self, first: int) -> None:
        """Test the rows whose digests begin with that byte, once."""
        if self._tested[first]:
            return
        low, high = self._ends[first], self._ends[first + 1]
        if _checksum_rows(self._columns, low, high) != self._sums[first]:
            raise Corrupt(f"idx rows of digests that begin with {first:02x} fail their checksum")
        self._tested[first] = 1
