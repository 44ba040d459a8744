"""Packed rows: the log of a session at rest, without what its other rows and its bodies yield (store.md Part B).

A row has three hashes, which nothing compresses. Of these an entry's id follows from the rest: it is the hash of an
envelope, which says nothing but the body's hash, the parent, the time and the type. It is left out wherever it comes
out again. The context hash follows from bodies and the parent's; it is left out but of compactions and of the last
entry of each piece, so that few bodies have to be read for one. A row then has ``NO_DIGEST`` for it.

A packed log is a front and one zstd frame for each 512 rows, which needs no other. All integers are little-endian:

    front     magic, number of rows (u32), size and CRC-32 of each frame (u32 each), CRC-32 of all that; both seeded by
              the log (``rows.log_seed``)
    frame     columns, their lowest bytes first: what is there (u8: 1 id, 2 context, 4 body), code, kind (u8), flags
              (u16), parent, head and target (u32: 0 the root, else one more than how far before the row), time (u64,
              zigzag of the difference to the one before), how far before the same call came (u16: 0 for none, 65535
              for one written out); then call digests written out (u32), and ids, context hashes, hashes of bodies

Pure: bytes that are no such log raise Corrupt and nothing else. Must not: know where the file lies.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from agentsession_cas.core.envelopes import put_together
from agentsession_cas.core.facts import Code
from agentsession_cas.core.rows import (
    NO_DIGEST,
    PARENTS_BIT,
    REF_ROOT,
    TS_BIT,
    Row,
    RowCode,
    ref_to,
    row_of_ref,
    unsealed_row,
)
from agentsession_cas.core.timestamps import ts_from_ns
from agentsession_cas.core.zframes import SMALL, claimed_size, compress, expand_sized
from agentsession_cas.errors import BadTimestamp, Corrupt

__all__ = [
    "PIECE_ROWS",
    "Front",
    "decode_front",
    "decode_piece",
    "encode_front",
    "encode_piece",
    "front_size",
    "sum_of",
]

PIECE_ROWS: Final = 512

_FRONT: Final = struct.Struct("<8sI")
_CRC: Final = struct.Struct("<I")
_MAGIC: Final = b"asrows01"
_ID: Final = 1
_CONTEXT: Final = 2
_BODY: Final = 4
_KEPT: Final = (_ID, _CONTEXT, _BODY)
_WIDTHS: Final = (1, 1, 1, 2, 4, 4, 4, 8, 2)
_WRITTEN_OUT: Final = 0xFFFF
_REFS: Final = 1 << 32
_TIMES: Final = range(-(1 << 63), 1 << 63)
_TYPES: Final = {int(code): code.name.lower().encode() for code in Code if code is not Code.OTHER}
_TEXTS: Final = {code: type_.decode() for code, type_ in _TYPES.items()}
_SECOND: Final = 1_000_000_000
_UNUSUAL: Final = PARENTS_BIT | TS_BIT
_RAW_MAX: Final = PIECE_ROWS * (sum(_WIDTHS) + 4 + 3 * 32)


class Front(NamedTuple):
    """Of a packed log: its number of rows, and offset, size and CRC-32 of the frame of each piece."""

    rows: int
    frames: list[tuple[int, int, int]]


def _pieces(rows: int) -> int:
    return -(-rows // PIECE_ROWS)


def front_size(rows: int) -> int:
    """Bytes of the front of that many rows."""
    return _FRONT.size + 8 * _pieces(rows) + _CRC.size


def sum_of(frame: bytes, seed: int) -> int:
    """The CRC-32 of a frame."""
    return zlib.crc32(frame, seed)


def encode_front(rows: int, frames: Sequence[bytes], seed: int) -> bytes:
    """The front of a log whose pieces are these frames."""
    words = [word for frame in frames for word in (len(frame), sum_of(frame, seed))]
    data = _FRONT.pack(_MAGIC, rows) + struct.pack(f"<{len(words)}I", *words)
    return data + _CRC.pack(zlib.crc32(data, seed))


def decode_front(data: bytes, rows: int, seed: int) -> Front:
    """The front in the first ``front_size(rows)`` bytes; raises Corrupt when it is another log's, or damaged."""
    if len(data) != front_size(rows):
        raise Corrupt("a packed log too short for its front")
    if zlib.crc32(data[: -_CRC.size], seed) != int.from_bytes(data[-_CRC.size :], "little"):
        raise Corrupt("the front of a packed log fails its checksum")
    if _FRONT.unpack_from(data) != (_MAGIC, rows):
        raise Corrupt("a packed log of other rows than its generation says")
    words = struct.unpack_from(f"<{2 * _pieces(rows)}I", data, _FRONT.size)
    starts = accumulate(words[::2], initial=front_size(rows))
    return Front(rows, [(start, size, crc) for start, size, crc in zip(starts, words[::2], words[1::2], strict=False)])


# --- a piece ---------------------------------------------------------------------------------------------------------


def encode_piece(first: int, rows: Sequence[Row]) -> bytes:
    """The frame of rows ``first`` and on, ``PIECE_ROWS`` of them at most. Raises Corrupt for rows that do not pack."""
    piece = _Piece(first, rows)
    for at, row in enumerate(rows):
        piece.add(at, row)
    data = piece.finish()
    expected = [unsealed_row(*_without_context(row, kept)) for row, kept in zip(rows, piece.kept, strict=True)]
    if _unpacked(data, first, len(rows)) != b"".join(expected):
        raise Corrupt(f"rows {first} and on do not come out of a packed log as they went in")
    return compress(data, SMALL)


def _without_context(row: Row, kept: int) -> Row:
    return row if kept & _CONTEXT or row.code >= RowCode.HEAD else row._replace(context=NO_DIGEST)


class _Piece:
    """The columns as they fill."""

    def __init__(self, first: int, rows: Sequence[Row]) -> None:
        self._first = first
        self._rows = rows
        self._last_entry = max((at for at, row in enumerate(rows) if row.code < RowCode.HEAD), default=-1)
        self._columns: list[list[int]] = [[] for _ in _WIDTHS]
        self._calls: dict[int, int] = {}
        self._ts = 0
        self._written: list[int] = []
        self._digests: tuple[list[bytes], list[bytes], list[bytes]] = ([], [], [])
        self.kept: list[int] = []

    def add(self, at: int, row: Row) -> None:
        """Take the next row."""
        own = ref_to(self._first + at)
        kept = self._what_is_kept(at, row)
        self.kept.append(kept)
        for bit, digest, held in zip(_KEPT, (row.entry, row.context, row.content), self._digests, strict=True):
            if kept & bit:
                held.append(digest)
        delta, self._ts = _signed(row.ts - self._ts), row.ts
        values = (
            kept,
            row.code,
            row.kind,
            row.flags,
            *((own - ref + 1) % _REFS if ref != REF_ROOT else 0 for ref in (row.parent, row.head, row.target)),
            delta << 1 if delta >= 0 else (-delta << 1) - 1,
            self._call(at, row.call),
        )
        for value, column in zip(values, self._columns, strict=True):
            column.append(value)

    def _what_is_kept(self, at: int, row: Row) -> int:
        if row.code >= RowCode.HEAD:
            return 0
        context = _CONTEXT if at == self._last_entry or row.code == Code.COMPACTION else 0
        parent = row_of_ref(row.parent) - self._first
        known = NO_DIGEST if row.parent == REF_ROOT else self._rows[parent].entry if 0 <= parent < at else b""
        follows = bool(known) and _id_of(row.content, known, row.ts, row.code, row.flags) == row.entry
        return _BODY | context | (0 if follows else _ID)

    def _call(self, at: int, call: int) -> int:
        if not call:
            return 0
        before = self._calls.get(call, -1)
        self._calls[call] = at
        if before < 0:
            self._written.append(call)
        return at - before if before >= 0 else _WRITTEN_OUT

    def finish(self) -> bytes:
        """All of it."""
        parts: list[bytes] = []
        for values, width in zip(self._columns, _WIDTHS, strict=True):
            data = b"".join([value.to_bytes(width, "little") for value in values])
            parts += [data[at::width] for at in range(width)]
        parts.append(struct.pack(f"<{len(self._written)}I", *self._written))
        return b"".join([*parts, *(digest for held in self._digests for digest in held)])


def _id_of(content: bytes, parent: bytes, ts: int, code: int, flags: int) -> bytes:
    """The id that follows from a row's values and its parent's id (``NO_DIGEST`` of the root); b"" where none does."""
    type_ = _TYPES.get(code)
    if type_ is None or flags & (PARENTS_BIT | TS_BIT):
        return b""
    try:
        envelope = put_together(content, b"" if parent == NO_DIGEST else parent, ts, type_)
    except BadTimestamp:
        return b""
    return hashlib.sha256(envelope).digest()


def decode_piece(frame: bytes, first: int, count: int) -> bytes:
    """The ``count`` rows of a piece, 128 bytes each, with zeros where their checksums belong; raises Corrupt."""
    size = claimed_size(frame)
    if size > _RAW_MAX:
        raise Corrupt("a piece of a packed log that is too long")
    return _unpacked(expand_sized(frame, size), first, count)


def _unpacked(data: bytes, first: int, count: int) -> bytes:
    columns, start = _columns(data, count)
    kept, codes, kinds, flags, parents, heads, targets, times, backs = columns
    sizes = (4 * backs.count(_WRITTEN_OUT), *(32 * sum(1 for each in kept if each & bit) for bit in _KEPT))
    ends = list(accumulate(sizes, initial=start))
    if ends[-1] != len(data):
        raise Corrupt("a piece of a packed log of another size than its columns say")
    written = struct.unpack_from(f"<{sizes[0] // 4}I", data, start)
    ids, contexts, bodies = (
        _spread(data[low:high], bit, kept) for bit, (low, high) in zip(_KEPT, pairwise(ends[1:]), strict=True)
    )
    above, head, target = (_refs(column, first) for column in (parents, heads, targets))
    stamps = _summed(times)
    calls = _calls(backs, iter(written))
    _follow(ids, first, kept, above, bodies, stamps, codes, flags)
    values = (ids, bodies, contexts, above, head, target, stamps, codes, kinds, flags, calls)
    return b"".join(map(unsealed_row, *values))


def _follow(
    ids: list[bytes],
    first: int,
    kept: list[int],
    above: list[int],
    bodies: list[bytes],
    stamps: list[int],
    codes: list[int],
    flags: list[int],
) -> None:
    """Make the ids that follow from what else a row has: ``_id_of`` each, below the row before without the calls."""
    own = ref_to(first)
    before, above_hex = -1, ""
    second, text = _TIMES.stop, ""  # no second is that late
    for at, (has, ref, body, ts, code, flag) in enumerate(zip(kept, above, bodies, stamps, codes, flags, strict=True)):
        if has & (_ID | _BODY) != _BODY:
            continue
        since, fraction = divmod(ts, _SECOND)
        if ref == before and fraction % 10 and not flag & _UNUSUAL and code in _TEXTS:
            if since != second:
                second, text = since, ts_from_ns(since * _SECOND)[:-1]
            found = hashlib.sha256(
                f'{{"content":"sha256:{body.hex()}","parent":"sha256:{above_hex}",'
                f'"ts":"{text}.{fraction:09d}Z","type":"{_TEXTS[code]}"}}'.encode()
            ).digest()
        else:
            parent = NO_DIGEST if ref == REF_ROOT else ids[_before(ref - own, at)]
            found = _id_of(body, parent, ts, code, flag)
            if not found:
                raise Corrupt("a packed row whose id does not follow from it")
        ids[at] = found
        before, above_hex = own + at, found.hex()


def _spread(digests: bytes, bit: int, kept: list[int]) -> list[bytes]:
    """The digests that are there, each at its row; ``NO_DIGEST`` at the others."""
    found = [digests[at : at + 32] for at in range(0, len(digests), 32)]
    if len(found) == len(kept):
        return found
    there = iter(found)
    return [next(there) if each & bit else NO_DIGEST for each in kept] if found else [NO_DIGEST] * len(kept)


def _refs(words: list[int], first: int) -> list[int]:
    """References out of how far before each row they lie."""
    if not any(words):
        return [REF_ROOT] * len(words)
    return [(after - word) % _REFS if word else REF_ROOT for after, word in enumerate(words, ref_to(first) + 1)]


def _summed(words: list[int]) -> list[int]:
    """Times out of the zigzag of their differences."""
    found = list(accumulate([-(word + 1 >> 1) if word & 1 else word >> 1 for word in words]))
    fit = min(found, default=0) in _TIMES and max(found, default=0) in _TIMES
    return found if fit else list(map(_signed, found))


def _signed(value: int) -> int:
    """The 64 lowest bits as a signed integer."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _calls(backs: list[int], written: Iterator[int]) -> list[int]:
    """The digest of each row's call."""
    calls = [0] * len(backs)
    for at, back in enumerate(backs):
        if back:
            calls[at] = next(written) if back == _WRITTEN_OUT else calls[_before(at - back, at)]
    return calls


def _before(place: int, at: int) -> int:
    if not 0 <= place < at:
        raise Corrupt("a packed row that follows from one that is not before it")
    return place


def _columns(data: bytes, count: int) -> tuple[list[list[int]], int]:
    """Every column, and where the next thing lies."""
    columns: list[list[int]] = []
    at = 0
    for width in _WIDTHS:
        end = at + width * count
        if end > len(data):
            raise Corrupt("a piece of a packed log is cut short")
        planes = bytearray(width * count)
        for plane in range(width):
            planes[plane::width] = data[at + plane * count : at + (plane + 1) * count]
        columns.append(list(struct.unpack(f"<{count}{_FORMATS[width]}", planes)))
        at = end
    return columns, at


_FORMATS: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}

