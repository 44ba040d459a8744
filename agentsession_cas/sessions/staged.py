"""A journal's next generation while it is being made: its frames are copied in while the one before goes on.

Invariants: it has no name that anyone reads until :meth:`Journal.replace` gives it one, and every byte is synced by
then; a long one is synced bit by bit, since a long sync would hold up the commits of others. Given up, it leaves no
file, or one that the next open to write clears away. Knows nothing of entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agentsession_cas.core.framing import (
    FRAMES_OFFSET,
    Generation,
    Record,
    align,
    encode_frame,
    encode_generation,
    record_packer,
)
from agentsession_cas.effects.host import Fs, OpenFile
from agentsession_cas.effects.pace import Rest, no_rest
from agentsession_cas.errors import AgentSessionError

__all__ = ["STEP_MIN", "Staged", "generation_bytes"]

STEP_MIN: Final = 16 * 1024
"""Zeros behind the frames of a new generation."""
_PIECE: Final = 1 << 20
"""Bytes written and synced at once."""


def generation_bytes(generation: Generation, tail: bytes, groups: Sequence[Sequence[Record]]) -> tuple[bytes, int, int]:
    """A whole generation: (bytes padded with zeros, offset behind its last frame, its row count).

    Each group becomes one frame, so that what was accepted together stays together.
    """
    pack = record_packer()
    parts = [encode_generation(generation, tail)]
    end, sequence = FRAMES_OFFSET, generation.base
    for group in groups:
        frame = encode_frame(generation.salt, end, sequence, sequence, len(group), pack(group))
        parts.append(frame)
        end, sequence = end + len(frame), sequence + len(group)
    size = align(end) + STEP_MIN
    parts.append(bytes(size - end))
    return b"".join(parts), end, sequence


class Staged:
    """A generation to come. ``last`` is the offset of its last frame, ``end`` that behind it (the same while there is
    none), ``sequence`` the rows up to there, ``groups`` the frames so far.

    A context: left before it was taken, it is discarded. Its methods raise DiskError and its like.
    """

    def __init__(self, fs: Fs, path: str, generation: Generation, tail: bytes) -> None:
        self._fs = fs
        self._path = path
        self._file: OpenFile | None = None
        self._pack = record_packer()
        self._unwritten = [encode_generation(generation, tail)]
        self._written = 0
        self.generation = generation
        self.last = self.end = FRAMES_OFFSET
        self.sequence = generation.base
        self.groups = 0

    def add(self, groups: Sequence[Sequence[Record]], rest: Rest = no_rest) -> None:
        """Add a frame for each group, so that what was accepted together stays together."""
        for group in groups:
            salt, sequence = self.generation.salt, self.sequence
            frame = encode_frame(salt, self.end, sequence, sequence, len(group), self._pack(group))
            self._unwritten.append(frame)
            self.last = self.end
            self.end += len(frame)
            self.sequence += len(group)
            self.groups += 1
            if self.end - self._written >= _PIECE:
                self._write()
            rest()

    def finish(self) -> tuple[OpenFile, str, int]:
        """Put zeros behind, for appends to come, and sync it all; the file is the caller's now: it, its path, its size.

        A failure leaves it staged.
        """
        size = align(self.end) + STEP_MIN
        self._unwritten.append(bytes(size - self.end))
        file = self._write()
        self._file = None
        return file, self._path, size

    def _write(self) -> OpenFile:
        file = self._file
        if file is None:
            file = self._file = self._fs.create(self._path)
        data = b"".join(self._unwritten)
        file.pwrite(data, self._written)
        file.sync()
        self._written += len(data)
        self._unwritten.clear()
        return file

    def __enter__(self) -> Staged:
        return self

    def __exit__(self, *_: object) -> None:
        """Discard what was not taken, as well as can be."""
        file, self._file = self._file, None
        if file is None:
            return
        file.close()
        try:
            self._fs.unlink(self._path)
        except AgentSessionError:
            return
