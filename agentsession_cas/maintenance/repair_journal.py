"""What is left of a journal whose bytes are damaged: whole frames wherever they lie, and pieces between them.

Owns the reading of bytes that recovery refuses. A frame counts wherever it is whole, also behind a hole: it says itself
where it lies and which rows it brings. Between whole frames records are looked for by their shape; nothing vouches for
those, so each is handed on as a *stray*, to be believed only for what hashes to a name somebody else gives.

Pure: bytes in, values out; nothing raises. Must not: decide what a session is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from agentsession_cas.core.framing import (
    FRAMES_OFFSET,
    Frame,
    Generation,
    HeadHint,
    Record,
    decode_records,
    frame_at,
    peek_generation,
    scan_journal,
)
from agentsession_cas.core.rows import BLOCK_SIZE, ROW_SIZE
from agentsession_cas.errors import Corrupt

__all__ = ["Remains", "Stray", "remains_of"]

_ROW: Final = ROW_SIZE - 4
_RECORD: Final = b"\x93\xc4" + bytes([_ROW])
"""How msgpack begins a record: an array of three, then the row's bytes."""
_ENVELOPE: Final = re.compile(rb'\{"content":"sha256:[0-9a-f]{64}","parent')
_OBJECT: Final = re.compile(rb'\{"')
_DECODER: Final = json.JSONDecoder()
_SALT_AT: Final = slice(8, 16)
_SIZES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}
"""How many bytes of length follow each head of a msgpack binary."""


class Stray(NamedTuple):
    """What may be left of a record: ``after`` rows come before it for certain; b"" is what was not found."""

    after: int
    row: bytes
    envelope: bytes
    content: bytes


class Remains(NamedTuple):
    """A journal's remains. ``generation`` is verified, ``guess`` what block 0 says all the same.

    ``tail`` are the bytes of block 1. ``records`` are whole, by row number. ``committed`` is the most rows that a whole
    frame attests as committed.
    """

    generation: Generation | None
    guess: Generation | None
    tail: bytes
    records: dict[int, Record]
    strays: list[Stray]
    committed: int


def remains_of(data: bytes, hint: HeadHint | None) -> Remains:
    """What can be read of a journal's bytes; ``hint`` is HEAD, for the salt when block 0 is lost."""
    generation: Generation | None = None
    guess: Generation | None = None
    try:
        guess = peek_generation(data)
        generation = scan_journal(data).generation
    except Corrupt:
        pass
    salts = [generation.salt] if generation is not None else _salts(data, hint)
    records: dict[int, Record] = {}
    whole: list[Frame] = []
    committed = 0
    for frame, attested in _whole_frames(data, salts):
        try:
            found = decode_records(data[frame.payload_at : frame.end], frame.rows)
        except Corrupt:
            continue
        whole.append(frame)
        committed = max(committed, attested)
        records.update((frame.sequence + at, record) for at, record in enumerate(found))
    base = generation.base if generation is not None else 0
    strays = [stray for after, start, end in _gaps(data, whole, base) for stray in _strays(data, start, end, after)]
    return Remains(generation, guess, data[BLOCK_SIZE:FRAMES_OFFSET], records, strays, committed)


def _salts(data: bytes, hint: HeadHint | None) -> list[bytes]:
    """What the salt may be when block 0 is not whole: as it says, as HEAD says, as the first frame says."""
    found = [data[_SALT_AT], data[FRAMES_OFFSET : FRAMES_OFFSET + 8]]
    if hint is not None:
        found.insert(0, hint.salt)
    return [salt for salt in dict.fromkeys(found) if len(salt) == 8 and salt.strip(b"\0")]


def _whole_frames(data: bytes, salts: Iterable[bytes]) -> Iterator[tuple[Frame, int]]:
    """Every whole frame of the first of these salts that has any, and the committed count each names."""
    view = memoryview(data)
    for salt in salts:
        some = False
        at = data.find(salt, FRAMES_OFFSET)
        while at >= 0:
            found = frame_at(view, at, salt)
            if found is not None:
                some = True
                yield found
            at = data.find(salt, found[0].end if found is not None else at + 1)
        if some:
            return


def _gaps(data: bytes, whole: Iterable[Frame], base: int) -> Iterator[tuple[int, int, int]]:
    """What lies between whole frames and is not all zeros: the rows before it, its start, its end."""
    at, after = min(FRAMES_OFFSET, len(data)), base
    for frame in whole:
        if data[at : frame.offset].strip(b"\0"):
            yield after, at, frame.offset
        at, after = frame.end, frame.sequence + frame.rows
    if data[at:].strip(b"\0"):
        yield after, at, len(data)


# --- strays ----------------------------------------------------------------------------------------------------------


def _strays(data: bytes, start: int, end: int, after: int) -> Iterator[Stray]:
    """What looks like a record, an envelope whose row is gone, or a body alone, in the order it lies there."""
    found: dict[int, Stray] = {}
    seen: set[int] = set()
    at = data.find(_RECORD, start, end)
    while at >= 0:
        row_at = at + len(_RECORD)
        row = data[row_at : row_at + _ROW] if row_at + _ROW <= end else b""
        found[at] = Stray(after, row, *_pair(data, row_at + _ROW, end, seen))
        at = data.find(_RECORD, at + 1, end)
    for match in _ENVELOPE.finditer(data, start, end):
        if match.start() not in seen:
            head = _head_before(data, match.start())
            found[match.start()] = Stray(after, b"", *_pair(data, head if head >= 0 else match.start() - 2, end, seen))
    for match in _OBJECT.finditer(data, start, end):
        at = match.start()
        _, content = _binary(data, _head_before(data, at), end)
        if at not in seen and content.endswith(b"}"):
            found[at] = Stray(after, b"", b"", content)
    yield from (stray for _, stray in sorted(found.items()))


def _pair(data: bytes, at: int, end: int, seen: set[int]) -> tuple[bytes, bytes]:
    """The envelope whose head lies at ``at``, and the body behind it; where they begin is added to ``seen``."""
    first, envelope = _text(data, at, end)
    if not envelope:
        return b"", b""
    body_at, content = _text(data, first + len(envelope), end)
    seen.update((first, body_at))
    return envelope, content


def _text(data: bytes, at: int, end: int) -> tuple[int, bytes]:
    """:func:`_binary`; where its head is hurt, the JSON object that begins where a binary's bytes would."""
    first, found = _binary(data, at, end)
    if found.startswith(b'{"') and found.endswith(b"}"):
        return first, found
    for width in _SIZES.values():
        first = at + 1 + width
        if data[first : first + 2] == b'{"':
            text = data[first:end].decode(errors="surrogateescape")
            try:
                _, size = _DECODER.raw_decode(text)
            except (ValueError, RecursionError):
                continue
            return first, text[:size].encode(errors="surrogateescape")
    return _binary(data, at, end)


def _binary(data: bytes, at: int, end: int) -> tuple[int, bytes]:
    """A msgpack binary whose head lies at ``at``: where its bytes begin, and these; b"" when none does."""
    width = _SIZES.get(data[at]) if 0 <= at < end else None
    if width is None:
        return at, b""
    first = at + 1 + width
    size = int.from_bytes(data[at + 1 : first], "big")
    return first, data[first : first + size] if first + size <= end else b""


def _head_before(data: bytes, at: int) -> int:
    """Where the head of the binary lies whose bytes begin at ``at``; -1 when nothing there is one."""
    for width in (1, 2, 4):
        if at - 1 - width >= 0 and _SIZES.get(data[at - 1 - width]) == width:
            return at - 1 - width
    return -1
