"""Journal bytes: the generation's two first blocks, frames, the HEAD hint; encode, scan, classify (store.md Part B).

A journal is one file in 4 KiB blocks. Block 0 is the generation: its random salt, the session's birth, the log it
continues and how many rows that log holds. Block 1 holds the rows past the log's last whole block. One checksum covers
both. A *settled* generation has all its rows packed in the log: block 1 says nothing, and as long as there is no frame
the file ends behind what block 0 says. Frames follow; each carries the salt, its own offset, the number of its first
row and how many rows were known committed when it was written. A frame follows the one before or begins the next
block. The journal ends at the first frame that is not whole; ``Scan.attested`` says whether a later whole frame proves
that end to be damage.

Pure: bytes in, values out; bytes that are no journal raise Corrupt and nothing else.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgpack

from agentsession_cas.core.rows import BLOCK_SIZE, NO_DIGEST, ROW_SIZE, Newest, code_of_row, whole_rows
from agentsession_cas.errors import Corrupt, LimitExceeded

__all__ = [
    "BEGIN",
    "FRAMES_OFFSET",
    "FRAME_HEAD",
    "FRAME_MAX",
    "HEAD_SIZE",
    "SALT_END",
    "ZEROS_MAX",
    "Frame",
    "Framer",
    "Generation",
    "HeadHint",
    "Record",
    "Scan",
    "align",
    "behind",
    "decode_head",
    "decode_records",
    "encode_frame",
    "encode_generation",
    "encode_head",
    "encode_settled",
    "frame_at",
    "frames_behind",
    "peek_generation",
    "record_codes",
    "record_packer",
    "salt_of",
    "scan_journal",
    "told_scan",
]

FRAMES_OFFSET: Final = 2 * BLOCK_SIZE
FRAME_MAX: Final = 1 << 30
"""The longest payload of a frame, in bytes."""
ZEROS_MAX: Final = 256 * 1024 + BLOCK_SIZE
"""So many zeros may be put behind a frame, to be written with it."""
_KEPT_MAX: Final = 2 << 20
"""Memory a framer keeps, in bytes."""

_MAGIC: Final = b"asjrnl02"
_SETTLED: Final = b"asjrnls2"
NO_SALT: Final = bytes(8)
SALT_END: Final = len(_MAGIC) + len(NO_SALT)
_GENERATION: Final = struct.Struct("<8s8s16sIQIIII32sI")
_FRAME: Final = struct.Struct("<8sQQQQI")
_CRC: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<8s8sQI32s")
_TOLD: Final = struct.Struct("<QQ")
_ZEROS: Final = memoryview(bytes(ZEROS_MAX))
_HEAD_MAGIC: Final = b"ashead01"
_HEAD_LEAST: Final = _HEAD.size + _CRC.size
HEAD_SIZE: Final = _HEAD_LEAST + _TOLD.size + _CRC.size
BEGIN: Final = FRAMES_OFFSET + 2 * BLOCK_SIZE
"""The two first blocks of a journal, and so much more that a short one ends in it."""
FRAME_HEAD: Final = _FRAME.size + _CRC.size
"""Bytes of a frame before its payload."""


Buffer = bytes | memoryview


class Generation(NamedTuple):
    """Block 0. ``newest`` is what the ``base`` rows of log number ``log`` have newest.

    ``base_context`` is the context hash at the session's base, zeros when there is none. ``packed`` is how many of the
    rows that log holds packed (``packedrows``), from the first on.
    """

    salt: bytes
    birth: bytes
    log: int
    base: int
    newest: Newest = Newest()
    base_context: bytes = NO_DIGEST
    packed: int = 0


class Record(NamedTuple):
    """What one row brings: its 124 bytes, and of an entry the canonical envelope and body (else both empty)."""

    row: bytes
    envelope: bytes
    content: bytes


class Frame(NamedTuple):
    """A whole frame: where it lies, the number of its first row, how many rows it has, where its payload lies."""

    offset: int
    sequence: int
    rows: int
    payload_at: int
    payload_size: int

    @property
    def end(self) -> int:
        """The offset behind the frame."""
        return self.payload_at + self.payload_size


class Scan(NamedTuple):
    """What a journal's bytes say. ``end`` is the offset behind the last whole frame, ``sequence`` the rows up to there.

    ``tail`` are the sealed rows in block 1, b"" of a settled generation, whose log has them. ``attested`` is the
    highest committed row count that a whole frame behind ``end`` names (0: none), ``zero`` whether nothing but zeros
    lies there.
    """

    generation: Generation
    tail: bytes
    frames: list[Frame]
    end: int
    sequence: int
    attested: int
    zero: bool


class HeadHint(NamedTuple):
    """HEAD: the generation it speaks of, the rows it saw committed, and the head then (reference, raw digest).

    ``last`` and ``end`` are the offsets of the last frame of these rows and behind it, the same where there is no
    frame: told where these are all, and the frames' rows only count (``rows.is_told_by_count``); else both are 0.
    """

    salt: bytes
    committed: int
    head: int
    entry: bytes
    last: int = 0
    end: int = 0


def align(offset: int) -> int:
    """The first block boundary at or behind ``offset``."""
    return -(-offset // BLOCK_SIZE) * BLOCK_SIZE


def behind(end: int) -> int:
    """How many bytes behind ``end`` show the beginning of a frame that follows: while they are zero, none does."""
    return align(end) - end + len(NO_SALT)


def salt_of(data: bytes) -> bytes:
    """The salt in the first ``SALT_END`` bytes of a journal, whatever else they hold."""
    return data[len(_MAGIC) : SALT_END]


def _tail_size(base: int) -> int:
    return (base - whole_rows(base)) * ROW_SIZE


def encode_generation(generation: Generation, tail: bytes) -> bytes:
    """Blocks 0 and 1. ``tail`` is the sealed rows from the last whole block of the log up to ``base``."""
    first = _first_block(_MAGIC, generation, tail)
    return first.ljust(BLOCK_SIZE, b"\0") + tail.ljust(BLOCK_SIZE, b"\0")


def encode_settled(generation: Generation) -> bytes:
    """All of a settled generation's file, whose rows up to ``base`` are packed in its log."""
    assert generation.packed == generation.base
    return _first_block(_SETTLED, generation, b"")


def _first_block(magic: bytes, generation: Generation, tail: bytes) -> bytes:
    g = generation
    head = _GENERATION.pack(magic, g.salt, g.birth, g.log, g.base, *g.newest, g.base_context, g.packed)
    return head + _CRC.pack(zlib.crc32(tail, zlib.crc32(head)))


def record_packer() -> Callable[[Sequence[Record]], bytes]:
    """What makes the payload of a frame out of records; one thread at a time may use it."""
    pack: Callable[[Sequence[Record]], bytes] = msgpack.Packer(use_bin_type=True).pack
    return pack


def record_codes(payload: bytes | memoryview, count: int) -> set[int]:
    """The codes of the rows of a frame; raises Corrupt when the payload does not hold ``count`` of them."""
    try:
        raw = msgpack.unpackb(payload, raw=False, strict_map_key=False, use_list=False)
        rows = [row for row, _, _ in raw]
        if len(rows) != count or set(map(type, rows)) - {bytes} or set(map(len, rows)) - {ROW_SIZE - 4}:
            raise Corrupt("a journal frame holds other records than it says")
        return set(map(code_of_row, rows))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise Corrupt("a journal frame holds no records") from error


def decode_records(payload: bytes | memoryview, count: int) -> list[Record]:
    """The records of a frame; raises Corrupt when the payload does not hold ``count`` of them."""
    try:
        # no limits are given: by default nothing may be longer than the payload, whatever it claims
        raw = msgpack.unpackb(payload, raw=False, strict_map_key=False, use_list=False)
        records = [Record(row, envelope, content) for row, envelope, content in raw]
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise Corrupt("a journal frame holds no records") from error
    if len(records) != count:
        raise Corrupt("a journal frame holds other records than it says")
    for row, envelope, content in records:
        if not (type(row) is type(envelope) is type(content) is bytes):
            raise Corrupt("a journal frame holds other records than it says")
        if len(row) != ROW_SIZE - 4:
            raise Corrupt("a journal frame holds a row of another size")
    return records


def encode_frame(salt: bytes, offset: int, sequence: int, committed: int, count: int, payload: bytes) -> bytes:
    """One frame, to be written at ``offset``. Raises LimitExceeded when ``payload`` is longer than FRAME_MAX bytes."""
    size = len(payload)
    if size > FRAME_MAX:
        raise _too_long(size)
    head = _FRAME.pack(salt, offset, sequence, committed, size, count)
    crc = zlib.crc32(payload, zlib.crc32(head))
    return b"".join((head, _CRC.pack(crc), payload))


def _too_long(size: int) -> LimitExceeded:
    return LimitExceeded(
        f"an append of {size} bytes is past the {FRAME_MAX} that a journal frame holds",
        next_step="append it in smaller batches",
    )


class Framer:
    """Makes frames one after the other, long ones in memory that it uses again: mapping new memory takes longer.

    One thread at a time may use it. A frame is good until the next is made.
    """

    __slots__ = ("_buffer", "_packer")

    def __init__(self) -> None:
        self._packer = msgpack.Packer(use_bin_type=True, autoreset=False)
        self._buffer = memoryview(b"")

    def frame(self, salt: bytes, offset: int, sequence: int, committed: int, records: Sequence[Record]) -> Buffer:
        """What :func:`encode_frame` makes of the records. Raises LimitExceeded as that does."""
        packer, count = self._packer, len(records)
        packer.reset()
        packer.pack(records)
        if count == 1:
            return encode_frame(salt, offset, sequence, committed, 1, packer.bytes())
        with packer.getbuffer() as payload:
            size = len(payload)
            if size > FRAME_MAX:
                raise _too_long(size)
            end = FRAME_HEAD + size
            self._reserve(end + ZEROS_MAX)
            view = self._buffer[:end]
            view[FRAME_HEAD:] = payload
        if end > _KEPT_MAX:
            self._packer = msgpack.Packer(use_bin_type=True, autoreset=False)
        _FRAME.pack_into(view, 0, salt, offset, sequence, committed, size, count)
        crc = zlib.crc32(view[FRAME_HEAD:], zlib.crc32(view[: _FRAME.size]))
        _CRC.pack_into(view, _FRAME.size, crc)
        return view

    def with_zeros(self, frame: Buffer, count: int) -> Buffer:
        """The frame made last and zeros behind it, at most ``ZEROS_MAX``."""
        if isinstance(frame, bytes):
            return frame + bytes(count)
        end = len(frame)
        self._buffer[end : end + count] = _ZEROS[:count]
        return self._buffer[: end + count]

    def _reserve(self, size: int) -> None:
        """Have a buffer of that size, and not much of one when little is needed again."""
        if not size <= len(self._buffer) <= max(_KEPT_MAX, size):
            self._buffer = memoryview(bytearray(max(size, _KEPT_MAX // 2)))


def _next_frame(data: memoryview, end: int, salt: bytes, sequence: int, begin: int = 0) -> Frame | None:
    """The whole frame that brings row ``sequence``: right behind ``end``, or at the next block.

    ``data`` is the file from offset ``begin`` on.
    """
    for offset in (end, align(end)):
        found = frame_at(data, offset, salt, begin)
        if found is not None and found[0].sequence == sequence:
            return found[0]
    return None


def frame_at(data: memoryview, offset: int, salt: bytes, begin: int = 0) -> tuple[Frame, int] | None:
    """The whole frame at ``offset`` and the committed count it names, or None; ``data`` is what lies from ``begin``."""
    start = offset - begin
    body = start + FRAME_HEAD
    if body > len(data):
        return None
    own, at, sequence, committed, size, count = _FRAME.unpack_from(data, start)
    if own != salt or at != offset or size > FRAME_MAX or body + size > len(data):
        return None
    crc = zlib.crc32(data[body : body + size], zlib.crc32(data[start : start + _FRAME.size]))
    if crc != int.from_bytes(data[start + _FRAME.size : body], "little"):
        return None
    return Frame(offset, sequence, count, begin + body, size), committed


def peek_generation(data: bytes | memoryview) -> Generation:
    """What a journal's first bytes say of its generation, whatever their checksum; raises Corrupt for too few."""
    if len(data) < _GENERATION.size:
        raise Corrupt("the journal is shorter than its two first blocks")
    _, salt, birth, log, base, special, named, continued, flags, context, packed = _GENERATION.unpack_from(data, 0)
    return Generation(salt, birth, log, base, Newest(special, named, continued, flags), context, packed)


def _generation_of(data: memoryview) -> tuple[Generation, bytes]:
    settled = bytes(data[: len(_SETTLED)]) == _SETTLED
    if len(data) < (_GENERATION.size + _CRC.size if settled else FRAMES_OFFSET):
        raise Corrupt("the journal is shorter than its two first blocks")
    generation = peek_generation(data)
    base, packed = generation.base, generation.packed
    if bytes(data[: len(_MAGIC)]) not in (_MAGIC, _SETTLED):
        raise Corrupt("the journal does not begin as one")
    tail = b"" if settled else bytes(data[BLOCK_SIZE : BLOCK_SIZE + _tail_size(base)])
    crc = zlib.crc32(tail, zlib.crc32(data[: _GENERATION.size]))
    if crc != int.from_bytes(data[_GENERATION.size : _GENERATION.size + 4], "little"):
        raise Corrupt("the journal's first blocks fail their checksum")
    if packed > base or (settled and packed != base):
        raise Corrupt("the journal says more rows are packed than there are")
    return generation, tail


def _attested_behind(data: bytes, view: memoryview, end: int, salt: bytes, sequence: int) -> int:
    """The highest committed count named by a whole frame behind ``end``."""
    attested = 0
    at = data.find(salt, end)
    while at >= 0:
        found = frame_at(view, at, salt)
        if found is not None and found[0].sequence >= sequence:
            attested = max(attested, found[1])
        at = data.find(salt, at + 1)
    return attested


def scan_journal(data: bytes) -> Scan:
    """Read a journal's bytes; raises Corrupt when its two first blocks are not whole."""
    view = memoryview(data)
    generation, tail = _generation_of(view)
    frames: list[Frame] = []
    end, sequence = FRAMES_OFFSET, generation.base
    while (frame := _next_frame(view, end, generation.salt, sequence)) is not None:
        frames.append(frame)
        end, sequence = frame.end, sequence + frame.rows
    rest = data[end:]
    zero = rest == bytes(len(rest))
    attested = 0 if zero else _attested_behind(data, view, end, generation.salt, sequence)
    return Scan(generation, tail, frames, end, sequence, attested, zero)


def frames_behind(data: bytes, end: int, salt: bytes, sequence: int) -> list[Frame]:
    """The whole frames of a generation behind offset ``end``, the first of which brings row ``sequence``.

    ``data`` is the file from ``end`` on; what is not whole ends them, and is no error: it may yet become whole.
    """
    view, begin = memoryview(data), end
    frames: list[Frame] = []
    while (frame := _next_frame(view, end, salt, sequence, begin)) is not None:
        frames.append(frame)
        end, sequence = frame.end, sequence + frame.rows
    return frames


def told_scan(first: bytes, frame: bytes, rest: bytes, hint: HeadHint) -> Scan | None:
    """What :func:`scan_journal` says of a journal whose end HEAD tells, without a look at what its frames hold.

    ``first`` is the two first blocks, ``frame`` the ``FRAME_HEAD`` bytes at ``hint.last``, ``rest`` the
    ``behind(hint.end)`` bytes at ``hint.end``. None where they do not bear HEAD out; Corrupt as that raises it.
    """
    generation, tail = _generation_of(memoryview(first))
    if generation.salt != hint.salt or rest != bytes(len(rest)):
        return None
    if hint.last == hint.end:
        borne_out = hint.end == FRAMES_OFFSET and hint.committed == generation.base
    elif len(frame) < FRAME_HEAD:
        return None
    else:
        own, at, sequence, _, size, count = _FRAME.unpack_from(frame)
        there = (at, sequence + count, at + FRAME_HEAD + size)
        borne_out = own == hint.salt and there == (hint.last, hint.committed, hint.end)
    return Scan(generation, tail, [], hint.end, hint.committed, 0, zero=True) if borne_out else None


def encode_head(hint: HeadHint) -> bytes:
    """The bytes of HEAD."""
    salt, committed, head, entry, last, end = hint
    body = _HEAD.pack(_HEAD_MAGIC, salt, committed, head, entry)
    crc, told = zlib.crc32(body), _TOLD.pack(last, end)
    return b"".join((body, _CRC.pack(crc), told, _CRC.pack(zlib.crc32(told, crc))))


def decode_head(data: bytes | None) -> HeadHint | None:
    """HEAD as values, or None when it is absent, torn, or no HEAD: a hint is never an error.

    One may end before what tells where the journal ends, or have something else there.
    """
    if data is None or len(data) < _HEAD_LEAST:
        return None
    magic, *values = _HEAD.unpack_from(data, 0)
    crc = zlib.crc32(data[: _HEAD.size])
    if magic != _HEAD_MAGIC or crc != int.from_bytes(data[_HEAD.size : _HEAD_LEAST], "little"):
        return None
    told = data[_HEAD_LEAST : HEAD_SIZE]
    if len(told) == _TOLD.size + 4 and zlib.crc32(told[:-4], crc) == int.from_bytes(told[-4:], "little"):
        values += _TOLD.unpack_from(told)
    return HeadHint(*values)
