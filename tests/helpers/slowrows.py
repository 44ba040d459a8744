"""Packed rows read one by one, as the format of ``core.packedrows`` is told: what the quick way must agree with."""

from __future__ import annotations

import hashlib
import struct

from agentsession_cas.core.facts import Code
from agentsession_cas.core.rows import NO_DIGEST, PARENTS_BIT, TS_BIT, Row, RowCode
from agentsession_cas.core.timestamps import ts_from_ns
from agentsession_cas.errors import BadTimestamp, Corrupt

__all__ = ["unpack_slowly"]

_WIDTHS = (1, 1, 1, 2, 4, 4, 4, 8, 2)


def unpack_slowly(data: bytes, first: int, count: int) -> list[Row]:
    """The rows of a piece out of its bytes; raises Corrupt."""
    try:
        return _unpacked(data, first, count)
    except (IndexError, struct.error, BadTimestamp) as error:
        raise Corrupt("no piece of rows") from error


def _unpacked(data: bytes, first: int, count: int) -> list[Row]:
    start = sum(_WIDTHS) * count
    if len(data) < start:
        raise Corrupt("cut short")
    columns = [_column(data, at, count) for at in range(len(_WIDTHS))]
    kept, backs = columns[0], columns[8]
    at = start
    written = list(struct.unpack_from(f"<{backs.count(65535)}I", data, at))
    at += 4 * len(written)
    held: list[list[bytes]] = []
    for bit in (1, 2, 4):
        there = sum(1 for each in kept if each & bit)
        held.append([data[at + 32 * n : at + 32 * n + 32] for n in range(there)])
        at += 32 * there
    if at != len(data):
        raise Corrupt("another size")
    rows: list[Row] = []
    ts = 0
    for place in range(count):
        has, code, kind, flags, *words, time, back = (column[place] for column in columns)
        ts += time // 2 if time % 2 == 0 else -((time + 1) // 2)
        ts = int.from_bytes((ts % 2**64).to_bytes(8, "big"), "big", signed=True)
        parent, head, target = (((first + place + 2) - (word - 1)) % 2**32 if word else 0 for word in words)
        call = 0 if not back else written.pop(0) if back == 65535 else _earlier(rows, place - back).call
        id_, context, body = (held[n].pop(0) if has & 1 << n else NO_DIGEST for n in range(3))
        if has & 5 == 4:
            above = NO_DIGEST if parent == 0 else _earlier(rows, parent - 2 - first).entry
            id_ = _id(body, above, ts, code, flags)
        rows.append(Row(id_, body, context, parent, head, target, ts, code, kind, flags, call))
    return rows


def _column(data: bytes, column: int, count: int) -> list[int]:
    start, width = sum(_WIDTHS[:column]) * count, _WIDTHS[column]
    planes = [data[start + n * count : start + (n + 1) * count] for n in range(width)]
    return [int.from_bytes(bytes(plane[at] for plane in planes), "little") for at in range(count)]


def _earlier(rows: list[Row], place: int) -> Row:
    if not 0 <= place < len(rows):
        raise Corrupt("not before it")
    return rows[place]


def _id(body: bytes, parent: bytes, ts: int, code: int, flags: int) -> bytes:
    if code >= RowCode.HEAD or code not in {*Code} or code == Code.OTHER or flags & (PARENTS_BIT | TS_BIT):
        raise Corrupt("no id follows")
    above = "null" if parent == NO_DIGEST else f'"sha256:{parent.hex()}"'
    time, type_ = ts_from_ns(ts), Code(code).name.lower()
    envelope = f'{{"content":"sha256:{body.hex()}","parent":{above},"ts":"{time}","type":"{type_}"}}'
    return hashlib.sha256(envelope.encode()).digest()
