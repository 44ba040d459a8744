"""A session's journal read on from where the last look ended, without a lock (architecture §3, Readers).

Invariants: the file stays open, so that its inode is no other's and tells whether the session still goes on in this
generation; only whole frames are taken; HEAD is believed when it speaks of this generation, since it is written only
after the syncs it tells of. Writes nothing.
"""

from __future__ import annotations

from typing import Final, Self

from agentsession_cas.core.framing import Generation, Record, align, decode_records, frames_behind
from agentsession_cas.effects.host import Fs, OpenFile
from agentsession_cas.errors import Corrupt, Damaged, NoFile
from agentsession_cas.sessions.journal import JOURNAL_NAME, read_head
from agentsession_cas.sessions.recovery import State

__all__ = ["Tail"]

_PIECE: Final = 64 * 1024
_SALT_AT: Final = 8
"""Where in a journal its salt lies."""


class Tail:
    """What may still come in one generation. ``sequence`` is the number of rows up to where it was read."""

    def __init__(self, fs: Fs, directory: str, generation: Generation, file: OpenFile, end: int, sequence: int) -> None:
        self._fs = fs
        self._directory = directory
        self._file = file
        self._inode = file.inode()
        self._end = end
        self.generation = generation
        self.sequence = sequence

    @classmethod
    def of(cls, fs: Fs, directory: str, state: State) -> Self | None:
        """Go on behind what was read just now; None when the session has gone on to another generation meanwhile."""
        generation = state.scan.generation
        try:
            file = fs.open(f"{directory}/{JOURNAL_NAME}")
        except NoFile:
            return None
        try:
            salt = file.pread(len(generation.salt), _SALT_AT)
        except BaseException:
            file.close()
            raise
        if salt != generation.salt:
            file.close()
            return None
        return cls(fs, directory, generation, file, state.scan.end, state.scan.sequence)

    def is_current(self) -> bool:
        """Whether the session's journal is still this file."""
        found = self._fs.stat(f"{self._directory}/{JOURNAL_NAME}")
        return found is not None and found.inode == self._inode

    def committed(self) -> int:
        """The rows that HEAD attests as committed; 0 while it does not speak of this generation."""
        hint = read_head(self._fs, self._directory)
        return hint.committed if hint is not None and hint.salt == self.generation.salt else 0

    def read(self) -> list[Record]:
        """The records of the frames that became whole since the last time. Raises Damaged."""
        found: list[Record] = []
        size = _PIECE
        while True:
            data = self._file.pread(size, self._end)
            records = self._taken(data)
            found += records
            if records:
                size = _PIECE
            elif size == len(data) == _PIECE and self._begins(data):
                size = self._file.size() - self._end  # a frame longer than a piece
            else:
                return found

    def _taken(self, data: bytes) -> list[Record]:
        """The records of the whole frames in what lies behind the end, which moves behind them."""
        start, found = self._end, list[Record]()
        view = memoryview(data)
        for frame in frames_behind(data, start, self.generation.salt, self.sequence):
            try:
                found += decode_records(view[frame.payload_at - start : frame.end - start], frame.rows)
            except Corrupt as error:
                raise Damaged(error.what, where=f"{self._file.path} offset {frame.offset}") from error
            self._end, self.sequence = frame.end, frame.sequence + frame.rows
        return found

    def _begins(self, data: bytes) -> bool:
        """Whether a frame begins where the next one may."""
        salt = self.generation.salt
        return data.startswith(salt) or data.startswith(salt, align(self._end) - self._end)

    def close(self) -> None:
        """Let the file go."""
        self._file.close()
