"""The log of a session at rest: its rows packed, read as if they lay there one behind the other (store.md Part B).

Owns ``log-<n>.packed``, written once, and the one view of it and of ``log-<n>``, which holds the rows from the last
whole block of the packed ones on. A piece that does not read shows as rows that fail their checksum; who reads a whole
one whose own checksum held needs none for its rows. Must not: decide when a session is at rest.
"""

from __future__ import annotations

from typing import Final, Protocol

from agentsession_cas.core.framing import Generation
from agentsession_cas.core.packedrows import (
    PIECE_ROWS,
    decode_front,
    decode_piece,
    encode_front,
    encode_piece,
    front_size,
    sum_of,
)
from agentsession_cas.core.rows import ROW_SIZE, Row, log_seed, seal_row, whole_rows
from agentsession_cas.effects.host import Fs, OpenFile
from agentsession_cas.errors import Corrupt, Damaged, NoFile
from agentsession_cas.sessions.journal import log_name

__all__ = ["LogFile", "PackedLog", "open_packed", "packed_name", "packed_rows"]


class LogFile(Protocol):
    """Rows one behind the other, from the first on."""

    path: str

    def pread(self, size: int, offset: int) -> bytes:
        """Up to ``size`` bytes at ``offset``."""

    def size(self) -> int:
        """Bytes of all rows."""

    def close(self) -> None:
        """Close what is open."""


def packed_name(log: int) -> str:
    """The file name of the packed rows of log number ``log``."""
    return f"{log_name(log)}.packed"


class Rows(Protocol):
    """The rows to pack, by number."""

    def __len__(self) -> int: ...

    def row(self, number: int) -> Row:
        """Row ``number``."""


def packed_rows(generation: Generation, rows: Rows, packed: PackedLog | None) -> bytes:
    """The bytes of the packed log of a generation with these rows; ``packed`` has the first of them, packed already.

    Raises Corrupt when they do not pack.
    """
    seed, count = log_seed(generation.birth, generation.log), len(rows)
    frames: list[bytes] = []
    for first in range(0, count, PIECE_ROWS):
        frame = packed.frame(first // PIECE_ROWS) if packed is not None else b""
        numbers = range(first, min(count, first + PIECE_ROWS))
        frames.append(frame or encode_piece(first, [rows.row(number) for number in numbers]))
    return b"".join([encode_front(count, frames, seed), *frames])


def open_packed(fs: Fs, directory: str, generation: Generation, plain: OpenFile | None) -> PackedLog:
    """The log of a generation that has packed rows; ``plain`` holds those behind them, and is closed with it.

    Raises Damaged when the packed rows are absent or their front does not read; ``plain`` stays open then.
    """
    path = f"{directory}/{packed_name(generation.log)}"
    try:
        file = fs.open(path)
    except NoFile as error:
        raise Damaged("the packed log is absent", where=path) from error
    try:
        return PackedLog(file, generation, plain)
    except Corrupt as error:
        file.close()
        raise Damaged(error.what, where=path) from error
    except BaseException:
        file.close()
        raise


class PackedLog:
    """A log whose first rows are packed, as one file of sealed rows. ``plain`` is of the rows behind them, or None."""

    def __init__(self, file: OpenFile, generation: Generation, plain: OpenFile | None) -> None:
        self._file = file
        self._plain = plain
        self._seed: Final = log_seed(generation.birth, generation.log)
        self._front = decode_front(file.pread(front_size(generation.packed), 0), generation.packed, self._seed)
        self._start: Final = whole_rows(generation.packed) * ROW_SIZE
        self._kept: tuple[int, bytes] = (-1, b"")
        self.path = file.path

    def size(self) -> int:
        """Bytes of all rows, had they been written as they are."""
        behind = self._start + self._plain.size() if self._plain is not None else 0
        return max(self._front.rows * ROW_SIZE, behind)

    def pread(self, size: int, offset: int) -> bytes:
        """Up to ``size`` bytes at ``offset``; rows that do not read are zeros, which are no rows."""
        packed_end = self._front.rows * ROW_SIZE if self._plain is None else self._start
        parts: list[bytes] = []
        end = offset + size
        while offset < min(end, packed_end):
            index, within = divmod(offset, PIECE_ROWS * ROW_SIZE)
            upto = min(end, packed_end, (index + 1) * PIECE_ROWS * ROW_SIZE) - offset + within
            low, high = within // ROW_SIZE, -(-upto // ROW_SIZE)
            parts.append(self._sealed(index, low, high)[within - low * ROW_SIZE : upto - low * ROW_SIZE])
            offset += upto - within
        if self._plain is not None and offset < end:
            parts.append(self._plain.pread(end - offset, offset - self._start))
        return b"".join(parts)

    def sound(self, first: int, count: int) -> bytes:
        """Rows ``first`` and on, 128 bytes each without their checksums, when one frame whose own held has them all.

        b"" when none has: the rows may be there all the same, and ``pread`` tells. A piece has its first row ``first``.
        """
        end = self._front.rows if self._plain is None else self._start // ROW_SIZE
        index, within = divmod(first, PIECE_ROWS)
        if within or not 0 < count <= min(PIECE_ROWS, end - first):
            return b""
        return self._piece(index)[: count * ROW_SIZE]

    def _piece(self, index: int) -> bytes:
        """The packed rows of a piece, without checksums; b"" when it does not read."""
        known, data = self._kept
        if known != index:
            first = index * PIECE_ROWS
            try:
                data = decode_piece(self._frame(index), first, min(PIECE_ROWS, self._front.rows - first))
            except Corrupt:
                data = b""
            self._kept = (index, data)
        return data

    def frame(self, index: int) -> bytes:
        """The frame of a piece that is full; b"" of any other, or when it does not read."""
        return self._frame(index) if (index + 1) * PIECE_ROWS <= self._front.rows else b""

    def _frame(self, index: int) -> bytes:
        offset, size, crc = self._front.frames[index]
        frame = self._file.pread(size, offset)
        return frame if sum_of(frame, self._seed) == crc else b""

    def _sealed(self, index: int, low: int, high: int) -> bytes:
        """Rows ``low`` to ``high`` of a piece, sealed; zeros when it does not read."""
        piece, first = self._piece(index), index * PIECE_ROWS
        if not piece:
            return bytes((high - low) * ROW_SIZE)
        places = range(low * ROW_SIZE, high * ROW_SIZE, ROW_SIZE)
        bodies = [piece[at : at + ROW_SIZE - 4] for at in places]
        return b"".join([seal_row(body, number, self._seed) for number, body in enumerate(bodies, first + low)])

    def take_rows_of(self, other: PackedLog) -> None:
        """Have from now on the rows behind the packed ones that a later view of the same log has."""
        if self._plain is None:
            self._plain, other._plain = other._plain, None

    def close(self) -> None:
        """Close both files."""
        self._file.close()
        if self._plain is not None:
            self._plain.close()
