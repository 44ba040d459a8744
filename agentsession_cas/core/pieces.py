"""Large strings once: bodies cut into what is theirs alone and the long strings they share (store.md Part B).

A string of ``PIECE_MIN`` bytes or more, as canonical JSON writes it between its quotes, is a *piece*: it is stored once
under its own SHA-256, however many bodies hold it. What is left of a body is its *skeleton*: the body's digest, where
each piece belongs, and the rest of the bytes:

    digest of the body (32 bytes), number of cuts (u32), offsets in the body (u32 each), lengths (u32 each), digests of
    the pieces (32 bytes each), the body's other bytes in their order

A body is cut by its bytes alone and put together by copying: nothing is parsed, unescaped or written anew, so that any
bytes at all come back as they were. Pure. Owns these forms, that of a loose file, and the answer to what a stored
object names. Bytes that are no skeleton raise Corrupt and nothing else. Must not: know where anything lies.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from agentsession_cas.core.entry import sidecar_blobs
from agentsession_cas.core.zframes import FRAME_HEAD_MAX, claimed_size, compress, expand
from agentsession_cas.errors import Corrupt

__all__ = [
    "LOOSE_HEAD_MAX",
    "PIECE_MIN",
    "Cut",
    "Named",
    "Skeleton",
    "Stored",
    "claimed_loose",
    "decode_loose",
    "decode_skeleton",
    "digest_of_stored",
    "encode_loose",
    "encode_stored",
    "encoded_size",
    "join",
    "join_encoded",
    "names_in",
    "pieces_in",
    "split",
]

PIECE_MIN: Final = 4096
"""Bytes from which on a string is a piece."""

_SPLIT_MAX: Final = (1 << 32) - 1
"""The longest body that is cut, in bytes: places in it are told in 32 bits."""

_HEAD: Final = struct.Struct("<32sI")
_CUT: Final = 4 + 4 + 32
_PLACE: Final = struct.Struct("<II")
_ONE: Final = (1).to_bytes(4, "little")
_ONE_CUT: Final = _HEAD.size + _CUT
"""Where in a skeleton with one cut its other bytes begin."""
_make: Final = tuple.__new__  # what a NamedTuple is made with, without the call around it

_LOOSE_MARK: Final = b"\x50\x2a\x4d\x18\0\0\0\0"
"""An empty skippable frame: what comes behind it in a loose file is a skeleton's frame."""

LOOSE_HEAD_MAX: Final = len(_LOOSE_MARK) + FRAME_HEAD_MAX
"""Bytes of a loose file that hold all of its frame's head."""

_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_RUN: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_RUN_MAX: Final = 1 << 16
"""Bytes looked at in one go: others have the interpreter in between."""
_MASK: Final = b"\1\1"
"""Stands for two bytes inside a string that end none."""


class Cut(NamedTuple):
    """Where a piece belongs in its body, how long it is, in bytes, and its raw digest."""

    offset: int
    length: int
    digest: bytes


class Skeleton(NamedTuple):
    """A body without its pieces: its raw digest, where they belong, in order, and its other bytes."""

    digest: bytes
    cuts: tuple[Cut, ...]
    rest: bytes


Stored = bytes | Skeleton
"""An object as it is stored: whole, or as a skeleton."""


class Named(NamedTuple):
    """What a stored object needs or names, by raw digest: pieces, without which it is lost, and blobs."""

    pieces: tuple[bytes, ...]
    blobs: tuple[bytes, ...]


# --- cutting and joining ---------------------------------------------------------------------------------------------


def split(digest: bytes, data: bytes) -> Stored:
    """The body of that raw digest as it is to be stored: ``data`` itself when there is nothing to cut out of it."""
    if not PIECE_MIN <= len(data) <= _SPLIT_MAX:
        return data
    cuts: list[Cut] = []
    kept: list[bytes] = []
    done = 0
    for start, end in _large_strings(data):
        kept.append(data[done:start])
        cuts.append(Cut(start, end - start, hashlib.sha256(memoryview(data)[start:end]).digest()))
        done = end
    if not cuts:
        return data
    return Skeleton(digest, tuple(cuts), b"".join([*kept, data[done:]]))


def _large_strings(data: bytes) -> Iterable[tuple[int, int]]:
    """Where each large string begins and ends, its quotes left out; any bytes at all may be looked through."""
    if len(data) > _RUN_MAX:
        return _strings_one_by_one(data)
    parts = data.replace(b"\\\\", _MASK).replace(b'\\"', _MASK).split(b'"')
    outside = b"".join(parts[::2])
    if b"\\" in outside or _MASK[:1] in outside:  # a backslash that quotes nothing
        return _strings_one_by_one(data)
    sizes = list(map(len, parts))
    large = [at for at in range(1, len(sizes) - 1, 2) if sizes[at] >= PIECE_MIN]
    starts = [sum(sizes[:at]) + at for at in large]
    return [(start, start + sizes[at]) for start, at in zip(starts, large, strict=True)]


def _strings_one_by_one(data: bytes) -> Iterator[tuple[int, int]]:
    """The same of a long body, or of what is no JSON."""
    at = 0
    while start := data.find(b'"', at) + 1:
        end = data.find(b'"', start)
        if end > start and data[end - 1] == _BACKSLASH:
            end = _end_of_string(data, start)
        if end < 0:
            return
        if end - start >= PIECE_MIN:
            yield start, end
        at = end + 1


def _end_of_string(data: bytes, at: int) -> int:
    """Where the quote is that ends a string with escapes, -1 when none does."""
    while True:
        found = _RUN.match(data, at, at + _RUN_MAX)
        end = found.end() if found is not None else at
        if end < len(data) and data[end] == _QUOTE:
            return end
        if end == at:
            return -1
        at = end


def pieces_in(skeleton: Skeleton, data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Raw digest and bytes of each piece of a body whose bytes are ``data``."""
    for cut in skeleton.cuts:
        yield cut.digest, data[cut.offset : cut.offset + cut.length]


def join(skeleton: Skeleton, piece: Callable[[Cut], bytes | memoryview]) -> bytes:
    """The body put together, its hash untested. ``piece`` gives the bytes that a cut names; what it raises passes.

    Raises Corrupt when a piece has another length than it should.
    """
    parts: list[bytes | memoryview] = []
    done = before = 0
    for cut in skeleton.cuts:
        offset, length, _ = cut
        kept = done + offset - before
        parts.append(skeleton.rest[done:kept])
        found = piece(cut)
        if len(found) != length:
            raise Corrupt(f"a piece of {len(found)} bytes where one of {length} belongs")
        parts.append(found)
        done, before = kept, offset + length
    parts.append(skeleton.rest[done:])
    return b"".join(parts)


def join_encoded(data: bytes, piece: Callable[[Cut], bytes | memoryview]) -> bytes:
    """:func:`join` of a skeleton as ``encode_stored`` writes it; raises Corrupt for what is none, too."""
    if len(data) < _ONE_CUT or data[32:36] != _ONE:
        return join(decode_skeleton(data), piece)
    offset, length = _PLACE.unpack_from(data, _HEAD.size)
    middle = _ONE_CUT + offset
    found = piece(_make(Cut, (offset, length, data[_ONE_CUT - 32 : _ONE_CUT])))
    if len(found) != length or middle > len(data):
        raise Corrupt("a skeleton whose one piece does not fit it")
    return b"".join((data[_ONE_CUT:middle], found, data[middle:]))


# --- stored forms ----------------------------------------------------------------------------------------------------


def digest_of_stored(stored: Stored) -> bytes:
    """The raw digest an object should have: of a whole one that of its bytes, of a skeleton the one it notes."""
    return stored.digest if isinstance(stored, Skeleton) else hashlib.sha256(stored).digest()


def encoded_size(stored: Stored) -> int:
    """Bytes an object has as it is stored: what ``encode_stored`` makes of it."""
    return _HEAD.size + _CUT * len(stored.cuts) + len(stored.rest) if isinstance(stored, Skeleton) else len(stored)


def names_in(stored: Stored) -> Named:
    """What a body names: its pieces, and blobs by a ``sidecar:sha256:`` URL (store.md A9), each once, in order.

    A blob's URL is a short string, so it is found in a skeleton as it is in the body.
    """
    cuts: tuple[Cut, ...] = ()
    rest = stored
    if isinstance(stored, Skeleton):
        cuts, rest = stored.cuts, stored.rest
    assert isinstance(rest, bytes)
    blobs = tuple(bytes.fromhex(name.removeprefix("sha256:")) for name in sidecar_blobs(rest))
    return Named(tuple(dict.fromkeys(cut.digest for cut in cuts)), blobs)


def encode_stored(stored: Stored) -> bytes:
    """The bytes a stored object has in a block."""
    if not isinstance(stored, Skeleton):
        return stored
    count = len(stored.cuts)
    places = [cut.offset for cut in stored.cuts] + [cut.length for cut in stored.cuts]
    head = _HEAD.pack(stored.digest, count) + struct.pack(f"<{2 * count}I", *places)
    return b"".join([head, *(cut.digest for cut in stored.cuts), stored.rest])


def decode_skeleton(data: bytes) -> Skeleton:
    """The skeleton encoded in ``data``; raises Corrupt."""
    if len(data) < _HEAD.size:
        raise Corrupt("a skeleton too short for its head")
    digest, count = _HEAD.unpack_from(data)
    size = len(data) - _HEAD.size - _CUT * count
    if size < 0:
        raise Corrupt("a skeleton too short for its cuts")
    places = struct.unpack_from(f"<{2 * count}I", data, _HEAD.size)
    names = _HEAD.size + 8 * count
    rest = data[len(data) - size :]
    cuts = tuple(
        Cut(offset, length, data[names + 32 * at : names + 32 * at + 32])
        for at, (offset, length) in enumerate(zip(places[:count], places[count:], strict=True))
    )
    end = 0
    for cut in cuts:
        if cut.offset < end:
            raise Corrupt("a skeleton whose cuts lie in no order")
        end = cut.offset + cut.length
    if end > len(rest) + sum(places[count:]):
        raise Corrupt("a skeleton with a cut past its end")
    return Skeleton(digest, cuts, rest)


def encode_loose(stored: Stored) -> bytes:
    """The bytes of a loose file: one zstd frame, behind a mark when it holds a skeleton."""
    frame = compress(encode_stored(stored))
    return _LOOSE_MARK + frame if isinstance(stored, Skeleton) else frame


def claimed_loose(head: bytes) -> int:
    """The size that an object claims, as it is stored, in the first ``LOOSE_HEAD_MAX`` bytes of its file.

    Raises Corrupt when it claims none.
    """
    return claimed_size(head.removeprefix(_LOOSE_MARK))


def decode_loose(data: bytes) -> Stored:
    """The object in a loose file, its hash untested; raises Corrupt when it is not one whole frame."""
    if data.startswith(_LOOSE_MARK):
        return decode_skeleton(expand(data[len(_LOOSE_MARK) :]))
    return expand(data)
