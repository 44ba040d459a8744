"""Many sealed rows tested by one checksum: what scans of a long log do instead of testing row by row.

A CRC is linear, so rows that are all sound have, one behind the other, a checksum that follows from the number of the
first and the log's seed alone, whatever they say. One bad row always changes it, as do rows of another log or of
another place; several would have to cancel each other out, which has the chance of any CRC-32 to miss. Which row is bad
is not told: :func:`~agentsession_cas.core.rows.sealed_count` says that. Pure.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final
from zlib import crc32

from agentsession_cas.core.rows import ROW_SIZE, seal_row

__all__ = ["RowSums", "row_sums"]

_NUMBER: Final = struct.Struct("<Q")
_POLYNOMIAL: Final = 0xEDB88320
_ONE: Final = 1 << 31
"""The polynomial 1: the lowest bit is the highest power."""


def _moved(crc: int, size: int) -> int:
    """What a difference of ``crc`` between two checksums is ``size`` bytes further on."""
    zeros = bytes(size)
    return crc32(zeros, crc) ^ crc32(zeros)


class RowSums:
    """The checksums of ``count`` rows, a power of two, of which the first has a number that ``count`` divides."""

    __slots__ = ("_first", "_powers", "_size", "_zeros")

    def __init__(self, count: int) -> None:
        assert count > 0
        assert count & (count - 1) == 0
        self._size = count * ROW_SIZE
        self._first = crc32(_NUMBER.pack(0))
        self._zeros = crc32(b"".join([seal_row(bytes(ROW_SIZE - 4), number, 0) for number in range(count)]))
        # What a difference of the seed makes: it comes in at each row, so moved by one row, two rows, up to all.
        total, size = _moved(_ONE, ROW_SIZE), ROW_SIZE
        while size < self._size:
            total ^= _moved(total, size)
            size *= 2
        powers: list[int] = []
        for _ in range(32):
            powers.append(total)
            total = total >> 1 ^ (_POLYNOMIAL if total & 1 else 0)
        self._powers = powers[::-1]

    def sound(self, data: bytes, first: int, seed: int) -> bool:
        """Whether ``data`` is so many sound rows, the first of them number ``first`` of the log of that seed."""
        if len(data) != self._size:
            return False
        expected, change = self._zeros, crc32(_NUMBER.pack(first), seed) ^ self._first
        for power in self._powers:
            if change & 1:
                expected ^= power
            change >>= 1
        return crc32(data) == expected


@cache
def row_sums(count: int) -> RowSums:
    """The one :class:`RowSums` of that many rows; it takes as long to make as some rows to test."""
    return RowSums(count)
