"""zstd frames: the one compression of the store, for loose objects and for the blocks of packs (store.md Part B).

Owns levels, trained dictionaries as bytes, and contexts, which are costly to make and so kept per thread. Bytes that
are no whole frame raise Corrupt and nothing else; what a frame merely claims about its size allocates little.

A dictionary's id is part of the SHA-256 of what it holds, so it tells whether it is whole, and a frame made with it
names it.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import zstandard

from agentsession_cas.errors import Corrupt

__all__ = [
    "DENSE",
    "FAST",
    "FRAME_HEAD_MAX",
    "SMALL",
    "STEADY",
    "TIGHT",
    "Dictionary",
    "Frames",
    "claimed_size",
    "compress",
    "expand",
    "expand_sized",
    "train",
]

FAST: Final = 1
"""The level of what is written while others wait. More costs several times as much for little."""
STEADY: Final = 3
"""The level of what is written at leisure and read every day."""
SMALL: Final = 12
"""The level of what is to be small and is not waited for long."""
TIGHT: Final = 16
"""The level of an archive: 4% less than ``SMALL`` for six times the work, and read as fast. 19 saves one more."""
DENSE: Final = 19
"""The level of the few bytes that all others depend on."""

FRAME_HEAD_MAX: Final = 18
"""Bytes of a frame that hold all of its head."""

_NOTHING_BEHIND: Final = False
"""Whether there may be bytes behind a frame, as ``decompress`` asks."""

_AT_ONCE_MAX: Final = 1 << 20
"""Bytes allocated on a frame's word. What claims to be longer grows as it is read."""

_MANY: Final = "multi_decompress_to_buffer" in zstandard.backend_features

_DICTIONARY_HEAD: Final = 8
"""Bytes of magic and id that a trained dictionary begins with."""
_MAGIC: Final = b"\x37\xa4\x30\xec"
_IDS: Final = range(1 << 15, 1 << 31)
"""Dictionary ids that anyone may use."""


class Dictionary:
    """A trained dictionary, checked against its id. Threads may share it."""

    __slots__ = ("data", "id", "zstd")

    def __init__(self, data: bytes) -> None:
        """``data`` is the dictionary in zstd's own form; raises Corrupt when its id is not that of what it holds."""
        found = int.from_bytes(data[4:_DICTIONARY_HEAD], "little")
        if data[:4] != _MAGIC or found != _id_of(data):
            raise Corrupt("a dictionary that is not what its id says")
        self.id = found
        self.data = data
        self.zstd = zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_FULLDICT)


def _id_of(data: bytes) -> int:
    word = int.from_bytes(hashlib.sha256(data[_DICTIONARY_HEAD:]).digest()[:8], "big")
    return _IDS[word % len(_IDS)]


def train(samples: Sequence[bytes], size: int) -> Dictionary | None:
    """A dictionary of at most ``size`` bytes made for what ``samples`` are of; None when they do not yield one."""
    try:
        data = zstandard.train_dictionary(size, list(samples)).as_bytes()
    except zstandard.ZstdError:
        return None
    return Dictionary(data[:4] + _id_of(data).to_bytes(4, "little") + data[_DICTIONARY_HEAD:])


class _Contexts(threading.local):
    def __init__(self) -> None:
        self.compressors: dict[tuple[int, int], zstandard.ZstdCompressor] = {}
        self.decompressors: dict[int, zstandard.ZstdDecompressor] = {}

    def compressor(self, level: int, dictionary: Dictionary | None) -> zstandard.ZstdCompressor:
        key = (level, dictionary.id if dictionary is not None else 0)
        found = self.compressors.get(key)
        if found is None:
            found = self.compressors[key] = _compressor(level, dictionary)
        return found

    def decompressor(self, dictionary: Dictionary | None) -> zstandard.ZstdDecompressor:
        key = dictionary.id if dictionary is not None else 0
        found = self.decompressors.get(key)
        if found is None:
            zstd = dictionary.zstd if dictionary is not None else None
            found = self.decompressors[key] = zstandard.ZstdDecompressor(dict_data=zstd)
        return found


def _compressor(level: int, dictionary: Dictionary | None) -> zstandard.ZstdCompressor:
    if dictionary is None:
        return zstandard.ZstdCompressor(level=level)
    # prepared for this level: without it, each frame would cost a preparation
    zstd = zstandard.ZstdCompressionDict(dictionary.data, dict_type=zstandard.DICT_TYPE_FULLDICT)
    zstd.precompute_compress(level=level)
    return zstandard.ZstdCompressor(level=level, dict_data=zstd)


_contexts = _Contexts()


def compress(data: bytes, level: int = FAST, dictionary: Dictionary | None = None) -> bytes:
    """``data`` as one frame that says its size and, if it was made with one, its dictionary."""
    return _contexts.compressor(level, dictionary).compress(data)


def claimed_size(frame: bytes) -> int:
    """The size a frame says it expands to, from its first ``FRAME_HEAD_MAX`` bytes; raises Corrupt if it says none."""
    try:
        size = zstandard.frame_content_size(frame)
    except zstandard.ZstdError as error:
        raise Corrupt(f"no zstd frame: {error}") from error
    if size < 0:
        raise Corrupt("a zstd frame without its size")
    return size


def expand_sized(frame: bytes, size: int, dictionary: Dictionary | None = None) -> bytes:
    """What ``frame`` holds, which is ``size`` bytes; raises Corrupt when it is not one whole frame of that."""
    if claimed_size(frame) != size:
        raise Corrupt("a zstd frame of another size than was noted")
    try:
        return _contexts.decompressor(dictionary).decompress(frame, 0, False, _NOTHING_BEHIND)  # by place: quicker
    except zstandard.ZstdError as error:
        raise Corrupt(f"a broken zstd frame: {error}") from error


class Frames:
    """Many frames made with one dictionary, or with none, and the sizes of what they hold.

    They are expanded in one call, for which no other thread has to wait; before it and behind it this takes the
    interpreter for little, so that a thread that does nothing else is held up once.
    """

    __slots__ = ("_dictionary", "_expander", "_found", "_frames", "_noted", "_sizes")

    def __init__(self, frames: Sequence[bytes], sizes: Sequence[int], dictionary: Dictionary | None) -> None:
        self._frames: list[bytes | bytearray | memoryview] = [*frames]
        self._sizes = sizes
        self._noted = struct.pack(f"={len(sizes)}Q", *sizes)
        self._dictionary = dictionary
        self._expander = zstandard.ZstdDecompressor(dict_data=dictionary.zstd if dictionary is not None else None)
        self._found: zstandard.BufferWithSegmentsCollection | None = None

    def expand(self) -> None:
        """Do it; when it fails, ``held`` tells how far it can be done."""
        if _MANY:
            with suppress(zstandard.ZstdError, MemoryError):
                self._found = self._expander.multi_decompress_to_buffer(self._frames, decompressed_sizes=self._noted)

    def held(self) -> list[bytes]:
        """What they hold, as :func:`expand_sized` gives it of each, up to the first that is not what was noted."""
        found = self._found
        if found is not None:
            return [found[at].tobytes() for at in range(len(self._frames))]
        held: list[bytes] = []
        with suppress(Corrupt):
            for frame, size in zip(self._frames, self._sizes, strict=True):
                held.append(expand_sized(bytes(frame), size, self._dictionary))
        return held


def expand(frame: bytes) -> bytes:
    """What ``frame`` holds; raises Corrupt when it is not one whole frame."""
    size = claimed_size(frame)
    if size <= _AT_ONCE_MAX:
        return expand_sized(frame, size)
    expander = _contexts.decompressor(None).decompressobj()
    try:
        data = expander.decompress(frame)
    except zstandard.ZstdError as error:
        raise Corrupt(f"a broken zstd frame: {error}") from error
    if not expander.eof or expander.unused_data or len(data) != size:
        raise Corrupt("not one whole zstd frame")
    return data
