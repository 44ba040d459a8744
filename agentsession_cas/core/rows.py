"""Log rows: 128 fixed bytes per own entry, head move, mark or loss (store.md Part B).

Owns the bytes of a row and the numbers in it. A row refers to others by *reference*: 0 the universal root (or none),
1 the base, n + 2 row n. A row is sealed by a CRC-32 seeded with its log and its number, so that a row of another log,
or at another place, is never taken for this one. 32 rows fill a block of 4 KiB; none crosses one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple
from zlib import crc32

from agentsession_cas.core.facts import Code, Flag, Kind
from agentsession_cas.errors import Corrupt

__all__ = [
    "BLOCK_SIZE",
    "NO_DIGEST",
    "PARENTS_BIT",
    "REF_BASE",
    "REF_ELSEWHERE",
    "REF_FIRST",
    "REF_ROOT",
    "ROWS_PER_BLOCK",
    "ROW_SIZE",
    "TS_BIT",
    "Newest",
    "Row",
    "RowCode",
    "code_of_row",
    "decode_row",
    "decode_rows",
    "encode_row",
    "envelope_columns",
    "is_noted",
    "is_told_by_count",
    "log_seed",
    "pack_row",
    "ref_to",
    "row_of_ref",
    "seal_row",
    "sealed_count",
    "sealed_ok",
    "unsealed_row",
    "whole_rows",
]

ROW_SIZE: Final = 128
BLOCK_SIZE: Final = 4096
ROWS_PER_BLOCK: Final = BLOCK_SIZE // ROW_SIZE
NO_DIGEST: Final = bytes(32)

REF_ROOT: Final = 0
REF_BASE: Final = 1
REF_FIRST: Final = 2
"""The reference to row 0."""
REF_ELSEWHERE: Final = 0xFFFFFFFF
"""A target that is not an own entry and not the base: the body says which."""

PARENTS_BIT: Final = 1 << 14
"""The envelope has ``parents``: only the envelope itself holds them."""
TS_BIT: Final = 1 << 15
"""The time is past what 64 bits of nanoseconds hold: only the envelope itself holds it."""


class RowCode(IntEnum):
    """Codes of rows that are no entry; an entry's row holds its :class:`~agentsession_cas.core.facts.Code`."""

    HEAD = 128
    MARK = 129
    LOSS = 130


class Row(NamedTuple):
    """A row as values: raw digests ``entry``, ``content``, ``context``; references ``parent``, ``head``, ``target``.

    Of a row that is no entry, ``parent`` is the reference of the one before it (a chain, 0 ends it), ``kind`` the mark.
    """

    entry: bytes
    content: bytes
    context: bytes
    parent: int
    head: int
    target: int
    ts: int
    code: int
    kind: int
    flags: int
    call: int


_NOTED: Final = frozenset({int(Code.INFO), int(Code.LINK)})
_CODE_AT: Final = 116


code_of_row: Final[Callable[[bytes], int]] = itemgetter(_CODE_AT)
"""The code in the bytes of a row."""


def is_told_by_count(codes: set[int]) -> bool:
    """Whether rows of these codes are all entries that neither name nor continue a session."""
    return codes.isdisjoint(_NOTED) and max(codes, default=0) < RowCode.HEAD


def is_noted(row: bytes) -> bool:
    """Whether a row may name the session or continue it, told without decoding it."""
    return row[_CODE_AT] in _NOTED


class Newest(NamedTuple):
    """References (0: none) of the newest row that is no entry, that names the session, that continues it.

    ``flags`` is what any row has of flags.
    """

    special: int = 0
    named: int = 0
    continued: int = 0
    flags: int = 0

    def with_flags(self, flags: int) -> Newest:
        """What is newest once rows with these flags were added, which are neither named nor continue anything."""
        return self._replace(flags=self.flags | flags) if flags & ~self.flags else self

    def with_row(self, number: int, row: Row) -> Newest:
        """What is newest once row ``number`` is the last one."""
        code = row.code
        if code not in _NOTED and code < 128 and not row.flags & ~self.flags:
            return self
        if code > 127:
            return self._replace(special=ref_to(number))
        named = continued = 0
        if row.code == Code.INFO and row.flags & Flag.NAMED:
            named = ref_to(number)
        elif row.code == Code.LINK and row.kind == Kind.CONTINUED_IN:
            continued = ref_to(number)
        return Newest(self.special, named or self.named, continued or self.continued, self.flags | row.flags)


_BODY: Final = struct.Struct("<32s32s32sIIIqBBHI")
_ROWS: Final = struct.Struct("<32s32s32sIIIqBBHI4x")
_COLUMNS: Final = struct.Struct("<32s32s32xI8xqB1xH8x")
_CRC: Final = struct.Struct("<I")
_NUMBER: Final = struct.Struct("<Q")
_SEALED: Final = struct.Struct("<124sI")
_number: Final = _NUMBER.pack
_SEED: Final = struct.Struct("<16sI")
assert _BODY.size + _CRC.size == _COLUMNS.size == _ROWS.size == _SEALED.size == ROW_SIZE


def ref_to(number: int) -> int:
    """The reference to row ``number``."""
    return number + REF_FIRST


def row_of_ref(ref: int) -> int:
    """The row a reference names, or -1 when it names the root or the base."""
    return ref - REF_FIRST if ref >= REF_FIRST else -1


def whole_rows(count: int) -> int:
    """How many of ``count`` rows fill whole blocks: the part of a log that is trusted."""
    return count - count % ROWS_PER_BLOCK


def log_seed(birth: bytes, log: int) -> int:
    """What seeds the rows of log ``log`` of the session born as ``birth`` (16 bytes)."""
    return crc32(_SEED.pack(birth, log))


pack_row: Final = _BODY.pack
""":func:`encode_row` of the values of a row, in their order."""

unsealed_row: Final = _ROWS.pack
"""128 bytes of the values of a row, with zeros where its checksum belongs."""


_row: Final[Callable[[tuple[Any, ...]], Row]] = partial(tuple.__new__, Row)  # ``Row._make`` without its own checks


def encode_row(row: Row) -> bytes:
    """The 124 bytes of a row before its seal; what a journal frame carries."""
    return _BODY.pack(*row)


def decode_row(data: bytes | memoryview, offset: int = 0) -> Row:
    """The row whose 124 bytes begin at ``offset``; raises Corrupt when they are cut."""
    try:
        return _row(_BODY.unpack_from(data, offset))
    except struct.error as error:
        raise Corrupt("a log row is cut short", where=f"offset {offset}") from error


def decode_rows(rows: memoryview) -> Iterator[Row]:
    """Sealed rows, one behind the other."""
    return map(_row, _ROWS.iter_unpack(rows))


def envelope_columns(rows: memoryview) -> Iterator[tuple[bytes, bytes, int, int, int, int]]:
    """Of sealed rows, one behind the other: ``entry``, ``content``, ``parent``, ``ts``, ``code`` and ``flags``."""
    return _COLUMNS.iter_unpack(rows)


def seal_row(body: bytes, number: int, seed: int) -> bytes:
    """The 128 bytes that row ``number`` has in a log: ``body`` and its checksum."""
    return body + _CRC.pack(crc32(body, crc32(_NUMBER.pack(number), seed)))


def sealed_ok(data: bytes | memoryview, offset: int, number: int, seed: int) -> bool:
    """Whether the 128 bytes at ``offset`` are row ``number`` of the log that ``seed`` stands for."""
    end = offset + ROW_SIZE
    if end > len(data):
        return False
    crc = crc32(data[offset : end - 4], crc32(_NUMBER.pack(number), seed))
    return crc == int.from_bytes(data[end - 4 : end], "little")


def sealed_count(data: bytes, number: int, seed: int) -> int:
    """How many rows from ``number`` on, one behind the other in ``data``, are whole and :func:`sealed_ok`."""
    count = len(data) // ROW_SIZE
    for at, (body, crc) in enumerate(_SEALED.iter_unpack(memoryview(data)[: count * ROW_SIZE])):
        if crc32(body, crc32(_number(number + at), seed)) != crc:
            return at
    return count
