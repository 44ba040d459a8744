"""zstd frames: the one compression of the store, for loose objects and for the blocks of packs (store.md Part B).

Owns level and contexts, which are costly to make and so kept per thread. Bytes that are no whole frame raise Corrupt
and nothing else; what a frame merely claims about its size allocates little.
"""

from __future__ import annotations

import threading
from typing import Final

import zstandard

from agentsession_cas.errors import Corrupt

__all__ = ["FRAME_HEAD_MAX", "claimed_size", "compress", "expand", "expand_sized"]

LEVEL: Final = 3
"""More costs the write path ten times as much for little."""

FRAME_HEAD_MAX: Final = 18
"""Bytes of a frame that hold all of its head."""

_AT_ONCE_MAX: Final = 1 << 20
"""Bytes allocated on a frame's word. What claims to be longer grows as it is read."""


class _Contexts(threading.local):
    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()


def compress(data: bytes) -> bytes:
    """``data`` as one frame that says its size."""
    return _contexts.compressor.compress(data)


def claimed_size(frame: bytes) -> int:
    """The size a frame says it expands to, from its first ``FRAME_HEAD_MAX`` bytes; raises Corrupt if it says none."""
    try:
        size = zstandard.frame_content_size(frame)
    except zstandard.ZstdError as error:
        raise Corrupt(f"no zstd frame: {error}") from error
    if size < 0:
        raise Corrupt("a zstd frame without its size")
    return size


def expand_sized(frame: bytes, size: int) -> bytes:
    """What ``frame`` holds, which is ``size`` bytes; raises Corrupt when it is not one whole frame of that."""
    if claimed_size(frame) != size:
        raise Corrupt("a zstd frame of another size than was noted")
    try:
        return _contexts.decompressor.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Corrupt(f"a broken zstd frame: {error}") from error


def expand(frame: bytes) -> bytes:
    """What ``frame`` holds; raises Corrupt when it is not one whole frame."""
    size = claimed_size(frame)
    if size <= _AT_ONCE_MAX:
        return expand_sized(frame, size)
    expander = _contexts.decompressor.decompressobj()
    try:
        data = expander.decompress(frame)
    except zstandard.ZstdError as error:
        raise Corrupt(f"a broken zstd frame: {error}") from error
    if not expander.eof or expander.unused_data or len(data) != size:
        raise Corrupt("not one whole zstd frame")
    return data
