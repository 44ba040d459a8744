"""A block of envelopes in binary, coded against their neighbours (codec ENVELOPES of ``packformat``).

An envelope says four things (format.md §4): the hash of a body, the parent, the time, the type. Mostly the body lies in
the block before, the parent is the envelope before, the time a little after its time, the type one of a few. What does
not fit this, or would not come out letter for letter, is kept as it is. Whoever reads gets canonical bytes again, made
anew, and compares them with their hash like any other object's. All integers are little-endian:

    kinds     of each envelope: bits 0–1 the parent (0 root, 1 the envelope before, 2 another one of this block,
              3 written out), bits 2–3 the body (0 the one behind the last in the block before, 1 another one there,
              2 written out), 15 for an envelope kept as it is
    types     of each envelope that is not kept: the number of its type (u8)
    times     of each of these: nanoseconds after the one before (since 1970 for the first), zigzag (u64), all their
              lowest bytes first, all their highest last
    counts    how many: types, backs, places, digests, kept (u32 each); this and all that follows
    names     the types: length (u8) and bytes of each
    backs     how far before the parent lies, 2 or more (u32 each)
    places    which object of the block before the body is (u32 each)
    digests   what is written out, 32 bytes each, the parent's first
    kept      lengths (u32 each), then the bytes

Pure. Bytes that are no such block raise Corrupt and nothing else. Must not: decide whether an envelope is right.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from agentsession_cas.core.timestamps import is_canonical_ts, ts_from_ns, ts_to_ns
from agentsession_cas.errors import BadTimestamp, Corrupt

__all__ = ["Parts", "decode_envelopes", "encode_envelopes", "needs_bodies", "put_together"]

_PARENT_ROOT: Final = 0
_PARENT_LAST: Final = 1
_PARENT_BACK: Final = 2
_PARENT_DIGEST: Final = 3
_BODY_NEXT: Final = 0
_BODY_PLACE: Final = 1 << 2
_BODY_DIGEST: Final = 2 << 2
_KEPT: Final = 15

_TIME: Final = 8
_TIME_END: Final = 1 << 62
"""Times from here on, or as long before 1970, are kept as they are."""
_COUNTS: Final = struct.Struct("<5I")
_TYPES_MAX: Final = 255
_ENVELOPE: Final = re.compile(
    rb'\{"content":"sha256:([0-9a-f]{64})","parent":(?:null|"sha256:([0-9a-f]{64})"),"ts":"([0-9TZ:.-]{20,30})",'
    rb'"type":"([ !#-\[\]-~]{1,255})"\}'
)


class Parts(NamedTuple):
    """An envelope taken apart: raw digests (``parent`` b"" for a root), nanoseconds since 1970, the type."""

    content: bytes
    parent: bytes
    ts: int
    type: bytes


def _take_apart(envelope: bytes) -> Parts | None:
    """The parts of an envelope that can be put together again; None for any other."""
    found = _ENVELOPE.fullmatch(envelope)
    if found is None:
        return None
    content, parent, ts, type_ = found.groups()
    text = ts.decode()
    if not is_canonical_ts(text):
        return None
    time = ts_to_ns(text)
    if not -_TIME_END < time < _TIME_END:
        return None
    return Parts(bytes.fromhex(content.decode()), bytes.fromhex((parent or b"").decode()), time, type_)


def put_together(content: bytes, parent: bytes, ts: int, type_: bytes) -> bytes:
    """The envelope of these :class:`Parts`, in canonical JSON; the type must need no escape."""
    above = f'"sha256:{parent.hex()}"' if parent else "null"
    head = f'{{"content":"sha256:{content.hex()}","parent":{above},"ts":"{ts_from_ns(ts)}","type":"'
    return head.encode() + type_ + b'"}'



# --- encoding --------------------------------------------------------------------------------------------------------


class _Encoder:
    """The columns as they fill."""

    def __init__(self, bodies: Mapping[bytes, int]) -> None:
        self._bodies = bodies
        self._next_body = 0
        self._seen: dict[bytes, int] = {}
        self._types: dict[bytes, int] = {}
        self._last_ts = 0
        self.kinds = bytearray()
        self.types = bytearray()
        self.times: list[int] = []
        self.backs: list[int] = []
        self.places: list[int] = []
        self.digests: list[bytes] = []
        self.kept: list[bytes] = []

    def add(self, digest: bytes, envelope: bytes) -> None:
        """Take an envelope, named ``digest``."""
        at = len(self.kinds)
        self._seen[digest] = at
        parts = _take_apart(envelope)
        if parts is None or self._number_of(parts.type) < 0:
            self.kinds.append(_KEPT)
            self.kept.append(envelope)
            return
        self.kinds.append(self._parent(parts.parent, at) | self._body(parts.content))
        self.types.append(self._types[parts.type])
        delta = parts.ts - self._last_ts
        self.times.append(delta << 1 if delta >= 0 else (-delta << 1) - 1)
        self._last_ts = parts.ts

    def _number_of(self, type_: bytes) -> int:
        """The number of a type; -1 when there is none left."""
        if type_ not in self._types and len(self._types) == _TYPES_MAX:
            return -1
        return self._types.setdefault(type_, len(self._types))

    def _parent(self, parent: bytes, at: int) -> int:
        if not parent:
            return _PARENT_ROOT
        seen = self._seen.get(parent, -1)
        if seen < 0:
            self.digests.append(parent)
            return _PARENT_DIGEST
        if seen == at - 1:
            return _PARENT_LAST
        self.backs.append(at - seen)
        return _PARENT_BACK

    def _body(self, content: bytes) -> int:
        place = self._bodies.get(content, -1)
        if place < 0:
            self.digests.append(content)
            return _BODY_DIGEST
        expected, self._next_body = self._next_body, place + 1
        if place == expected:
            return _BODY_NEXT
        self.places.append(place)
        return _BODY_PLACE

    def finish(self) -> bytes:
        """The block."""
        times = struct.pack(f"<{len(self.times)}Q", *self.times)
        counts = (len(self._types), len(self.backs), len(self.places), len(self.digests), len(self.kept))
        return b"".join(
            (
                self.kinds,
                self.types,
                *(times[at::_TIME] for at in range(_TIME)),
                _COUNTS.pack(*counts),
                *(bytes([len(name)]) + name for name in self._types),
                _words(self.backs),
                _words(self.places),
                *self.digests,
                _words([len(each) for each in self.kept]),
                *self.kept,
            )
        )


def _words(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def encode_envelopes(envelopes: Sequence[tuple[bytes, bytes]], bodies: Mapping[bytes, int]) -> bytes:
    """The block of envelopes given as (raw digest, canonical bytes), in this order.

    ``bodies`` says which object of the block before each body there is, by raw digest; {} to need no block before.
    """
    encoder = _Encoder(bodies)
    for digest, envelope in envelopes:
        encoder.add(digest, envelope)
    return encoder.finish()


# --- decoding --------------------------------------------------------------------------------------------------------


class _Reader:
    """Takes one column after the other from a block."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        end = self._at + size
        if end > len(self._data):
            raise Corrupt("a block of envelopes is cut short")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def words(self, count: int) -> Iterator[int]:
        """The next ``count`` integers."""
        return iter(struct.unpack(f"<{count}I", self.take(4 * count)))

    def finish(self) -> None:
        """Nothing may be left."""
        if self._at != len(self._data):
            raise Corrupt("a block of envelopes with bytes left over")


def needs_bodies(data: bytes, count: int) -> bool:
    """Whether a block of ``count`` envelopes names bodies of the block before it."""
    return any(kind != _KEPT and kind & 12 != _BODY_DIGEST for kind in data[:count])


def decode_envelopes(data: bytes, count: int, body: Callable[[int], bytes]) -> list[bytes]:
    """The ``count`` envelopes of a block; ``body`` gives the raw digest of an object of the block before.

    Raises Corrupt, or what ``body`` raises.
    """
    reader = _Reader(data)
    kinds = reader.take(count)
    apart = count - kinds.count(_KEPT)
    types = iter(reader.take(apart))
    times = _times(reader.take(apart * _TIME), apart)
    names_count, backs_count, places_count, digests_count, kept_count = _COUNTS.unpack(reader.take(_COUNTS.size))
    if kept_count != count - apart:
        raise Corrupt("a block of envelopes that miscounts")
    names = [reader.take(reader.take(1)[0]) for _ in range(names_count)]
    backs, places = reader.words(backs_count), reader.words(places_count)
    digests = iter([reader.take(32) for _ in range(digests_count)])
    kept = [reader.take(size) for size in list(reader.words(kept_count))]
    reader.finish()
    made: list[bytes] = []
    ids: list[bytes] = []
    kept_at, next_body = 0, 0
    try:
        for at, kind in enumerate(kinds):
            if kind == _KEPT:
                made.append(kept[kept_at])
                kept_at += 1
            else:
                parent = _parent_of(kind, at, ids, backs, digests)
                if kind & 12 == _BODY_DIGEST:
                    content = next(digests)
                else:
                    place = next_body if kind & 12 == _BODY_NEXT else next(places)
                    content, next_body = body(place), place + 1
                made.append(put_together(content, parent, next(times), names[next(types)]))
            ids.append(hashlib.sha256(made[-1]).digest())
    except (StopIteration, IndexError, BadTimestamp) as error:
        raise Corrupt("a block of envelopes that names what is not there") from error
    return made


def _parent_of(kind: int, at: int, ids: list[bytes], backs: Iterator[int], digests: Iterator[bytes]) -> bytes:
    """The raw digest of a parent, b"" for the root."""
    parent = kind & 3
    if parent == _PARENT_ROOT:
        return b""
    if parent == _PARENT_DIGEST:
        return next(digests)
    back = 1 if parent == _PARENT_LAST else next(backs)
    if not 0 < back <= at:
        raise Corrupt("a block of envelopes with a parent before its first")
    return ids[at - back]


def _times(columns: bytes, count: int) -> Iterator[int]:
    data = bytearray(len(columns))
    for at in range(_TIME):
        data[at::_TIME] = columns[at * count : (at + 1) * count]
    ts = 0
    for word in struct.unpack(f"<{count}Q", data):
        ts += -(word + 1 >> 1) if word & 1 else word >> 1
        yield ts
