"""The log: a session's rows as one file, read in pieces, and the table of all rows, the journal's among them.

Only the whole blocks below the journal's base are trusted: rows past them lie in the journal itself, and what the file
holds there is scratch of a checkpoint. A piece is verified row by row when it is first read, a packed one by the
checksum of its frame; a row that fails is Damaged, with its place. Reading never maps the file: in a mapping a bad
sector would kill the process.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from agentsession_cas.core.facts import Code, Kind
from agentsession_cas.core.framing import Generation, Record
from agentsession_cas.core.rows import (
    ROW_SIZE,
    Row,
    decode_row,
    decode_rows,
    log_seed,
    row_of_ref,
    seal_row,
    sealed_count,
    whole_rows,
)
from agentsession_cas.core.rowsums import row_sums
from agentsession_cas.effects.host import Fs, OpenFile
from agentsession_cas.effects.pace import Rest, no_rest
from agentsession_cas.errors import Closed, Damaged, NoFile
from agentsession_cas.sessions.journal import log_name
from agentsession_cas.sessions.packedlog import LogFile, PackedLog, open_packed

__all__ = ["PIECE_ROWS", "RowTable", "open_log", "open_rows", "tail_of", "write_rows"]

PIECE_ROWS: Final = 512
"""Rows of a piece: 64 KiB."""
_PIECES_MAX: Final = 128
_SCAN: Final = 3
"""Pieces read of a log, after which it looks as if all of it will be: worth making its sums."""
_CODE_AT: Final = 116
"""Where in a row its code lies; its kind is the byte behind."""
_FLAGS_AT: Final = 118
_LINK: Final = int(Code.LINK)
_CONTINUED_IN: Final = int(Kind.CONTINUED_IN)


def open_log(fs: Fs, directory: str, generation: Generation) -> LogFile | None:
    """The log that a generation continues, or None when it has no whole block; Damaged when it is absent or short."""
    base, packed = generation.base, generation.packed
    plain = _open_plain(fs, directory, generation) if whole_rows(base) > whole_rows(packed) else None
    if not packed:
        return plain
    try:
        return open_packed(fs, directory, generation, plain)
    except BaseException:
        if plain is not None:
            plain.close()
        raise


def _open_plain(fs: Fs, directory: str, generation: Generation) -> OpenFile:
    """The rows behind the packed ones, from their last whole block on."""
    needed = (whole_rows(generation.base) - whole_rows(generation.packed)) * ROW_SIZE
    path = f"{directory}/{log_name(generation.log)}"
    try:
        file = fs.open(path)
    except NoFile as error:
        raise Damaged("the log is absent", where=path) from error
    try:
        size = file.size()
    except BaseException:
        file.close()
        raise
    if size < needed:
        file.close()
        raise Damaged(f"the log is cut short: {needed} bytes are trusted, {size} are there", where=path)
    return file


def tail_of(generation: Generation, tail: bytes, log: LogFile | None) -> bytes:
    """The rows past the log's last whole block: ``tail``, or what a settled generation's log has of them, unchecked."""
    whole = whole_rows(generation.base)
    if tail or log is None or whole == generation.base or generation.packed != generation.base:
        return tail
    return log.pread((generation.base - whole) * ROW_SIZE, whole * ROW_SIZE)


def open_rows(generation: Generation, tail: bytes, log: LogFile | None) -> RowTable:
    """The rows below the base; ``tail`` is those that the journal holds, whose checksum was theirs too.

    Raises Damaged, the log closed, when of a settled generation the rows past the last whole block fail theirs.
    """
    rows = tail_of(generation, tail, log)
    if log is not None and rows is not tail:
        whole = whole_rows(generation.base)
        sound = whole + sealed_count(rows, whole, log_seed(generation.birth, generation.log))
        if sound < generation.base:
            log.close()
            raise _bad_row(log, sound)
    return RowTable(generation, rows, log)


def _bad_row(log: LogFile, number: int) -> Damaged:
    return Damaged(f"row {number} of the log fails its checksum", where=f"{log.path} offset {number * ROW_SIZE}")


def write_rows(
    fs: Fs, directory: str, generation: Generation, tail: bytes, bodies: Sequence[bytes], rest: Rest = no_rest
) -> bytes:
    """Write rows ``bodies`` (124 bytes each) behind those of ``generation``, durably; returns the new tail.

    ``tail`` is the generation's own. The file is written from its last whole block on, never inside one; it begins
    where the packed rows have their last whole block.
    """
    base, whole = generation.base, whole_rows(generation.base)
    start = whole_rows(generation.packed)
    seed = log_seed(generation.birth, generation.log)
    sealed = [tail]
    for number, body in enumerate(bodies, base):
        sealed.append(seal_row(body, number, seed))
        rest()
    rows = b"".join(sealed)
    path = f"{directory}/{log_name(generation.log)}"
    fresh = fs.stat(path) is None
    file = fs.create(path) if fresh else fs.open(path, write=True)
    try:
        if whole == start:
            fs.sync_dir(directory)
        file.pwrite(rows, (whole - start) * ROW_SIZE)
        file.sync()
    finally:
        file.close()
    return rows[(whole_rows(base + len(bodies)) - whole) * ROW_SIZE :]


class _View(NamedTuple):
    """One moment of a table: rows below ``whole`` are the log's, below ``base`` the tail's, the others pending."""

    base: int
    whole: int
    tail: bytes
    log: LogFile | None
    pending: list[Record]


class RowTable:
    """Rows 0..len-1 of a session: the log's, the tail's in the journal, then those of the journal's frames.

    One thread changes it, others may read: every read is of one view, and a view's rows never change their place.
    """

    def __init__(self, generation: Generation, tail: bytes, log: LogFile | None) -> None:
        self._seed = log_seed(generation.birth, generation.log)
        self._view = _View(generation.base, whole_rows(generation.base), tail, log, [])
        self._pieces: dict[int, bytes] = {}
        self._last_special = generation.newest.special
        self._flags = generation.newest.flags
        self.packed: Final = generation.packed
        """So many rows were packed once: they may lack their context hash."""
        self._specials: list[int] | None = None
        self._continued = [row_of_ref(generation.newest.continued)]

    def __len__(self) -> int:
        view = self._view
        return view.base + len(view.pending)

    @property
    def base(self) -> int:
        """Rows below this are the log's; the others are the journal's."""
        return self._view.base

    @property
    def log(self) -> LogFile | None:
        """The log, None where the session has none or it was closed."""
        return self._view.log

    @property
    def tail(self) -> bytes:
        """The sealed rows from the log's last whole block up to the base."""
        return self._view.tail

    @property
    def pending(self) -> list[Record]:
        """The records of the journal's rows, from the base on."""
        return self._view.pending

    def since(self, number: int) -> list[Record]:
        """The records of the rows from ``number`` on, all of which are the journal's."""
        view = self._view
        return view.pending[number - view.base :]

    def record(self, number: int) -> Record | None:
        """The record of a row that lies in the journal, else None."""
        view = self._view
        return view.pending[number - view.base] if number >= view.base else None

    def row(self, number: int) -> Row:
        """Row ``number``; Damaged when it fails its checksum."""
        return decode_row(*self.locate(number))

    def locate(self, number: int) -> tuple[bytes, int]:
        """A buffer and the offset in it where the bytes of row ``number`` begin."""
        view = self._view
        if number >= view.base:
            return view.pending[number - view.base].row, 0
        if number >= view.whole:
            return view.tail, (number - view.whole) * ROW_SIZE
        index = number // PIECE_ROWS
        piece = self._pieces.get(index)
        if piece is None or len(piece) <= number % PIECE_ROWS * ROW_SIZE:
            piece = self._read_piece(view, index)
        return piece, number % PIECE_ROWS * ROW_SIZE

    def _read_piece(self, view: _View, index: int) -> bytes:
        first = index * PIECE_ROWS
        count = min(PIECE_ROWS, view.whole - first)
        log = view.log
        if log is None:
            raise Closed("the session's files were let go", next_step="read the session again")
        data = log.sound(first, count) if isinstance(log, PackedLog) else b""
        if not data:
            data = self._tested(log, first, count)
        if len(self._pieces) >= _PIECES_MAX:
            self._pieces.pop(next(iter(self._pieces)), None)
        self._pieces[index] = data
        return data

    def _tested(self, log: LogFile, first: int, count: int) -> bytes:
        """The sealed rows ``first`` and on, each tested. Raises Damaged."""
        data = log.pread(count * ROW_SIZE, first * ROW_SIZE)
        scanning = count == PIECE_ROWS and len(self._pieces) >= _SCAN
        if not scanning or not row_sums(PIECE_ROWS).sound(data, first, self._seed):
            sound = sealed_count(data, first, self._seed)
            if sound < count:
                raise _bad_row(log, first + sound)
        return data

    def stored(self) -> Iterator[memoryview]:
        """The rows below the base, 128 bytes each, from the first on, so many whole ones at a time.

        Each passed its checksum, or the frame it was packed in did: the last 4 bytes of such a row are zeros.
        """
        view = self._view
        for first in range(0, view.whole, PIECE_ROWS):
            count = min(PIECE_ROWS, view.whole - first)
            piece, _ = self.locate(first + count - 1)  # a piece read when the log was shorter lacks the last
            yield memoryview(piece)[: count * ROW_SIZE]
        if view.tail:
            yield memoryview(view.tail)

    def rows(self) -> Iterator[Row]:
        """Every row, from the first on."""
        for piece in self.stored():
            yield from decode_rows(piece)
        for record in self.pending:
            yield decode_row(record.row)

    def spans(self, start: int, end: int) -> Iterator[memoryview]:
        """The rows from ``start`` to ``end`` as bytes, 128 a row, so many one behind the other at a time.

        The last 4 bytes of a row of the journal are zeros, and those of one that was packed.
        """
        view = self._view
        while start < end:
            if start >= view.base:
                pending = view.pending[start - view.base : end - view.base]
                yield memoryview(b"".join([record.row + bytes(4) for record in pending]))
                return
            if start >= view.whole:
                upto, data, first = min(end, view.base), view.tail, view.whole
            else:
                first = start - start % PIECE_ROWS
                upto = min(end, view.whole, first + PIECE_ROWS)
                data, _ = self.locate(upto - 1)  # a piece read when the log was shorter lacks the last
            yield memoryview(data)[(start - first) * ROW_SIZE : (upto - first) * ROW_SIZE]
            start = upto

    def words(self, *columns: int, start: int, end: int) -> list[list[int]]:
        """Columns of the rows from ``start`` to ``end``, for indexes: 32-bit words, each by its index in a row's 32."""
        width = ROW_SIZE // 4
        values: list[list[int]] = [[] for _ in columns]
        for rows in self.spans(start, end):
            words = rows.cast("I")
            for column, found in zip(columns, values, strict=True):
                found += words[column::width].tolist()
        return values

    @property
    def flags(self) -> int:
        """What any row has of flags: told without a look at every row."""
        flags = self._flags
        for record in self._view.pending:
            flags |= int.from_bytes(record.row[_FLAGS_AT : _FLAGS_AT + 2], "little")
        return flags

    def specials(self) -> list[int]:
        """Numbers, ascending, of the rows that are no entry."""
        if self._specials is None:
            view = self._view
            found: list[int] = []
            number = row_of_ref(self._last_special)
            while number >= 0:
                found.append(number)
                number = row_of_ref(self.row(number).parent)
            found.reverse()
            found += [view.base + at for at, record in enumerate(view.pending) if not record.envelope]
            self._specials = found
        return self._specials

    @property
    def continued(self) -> int:
        """The number of the newest row of a ``continued_in`` link, -1 for none."""
        return self._continued[-1]

    @property
    def entries(self) -> int:
        """How many rows are entries."""
        return len(self) - len(self.specials())

    def ordinal(self, number: int) -> int:
        """How many entries come before row ``number``."""
        specials = self.specials()
        return number - bisect_left(specials, number) if specials else number

    def number_of(self, ordinal: int) -> int:
        """The row of the entry before which ``ordinal`` entries come."""
        specials = self.specials()
        if not specials:
            return ordinal
        # The n-th special has specials[n] - n entries before it, a number that never falls.
        return ordinal + bisect_right(range(len(specials)), ordinal, key=lambda n: specials[n] - n)

    def push(self, record: Record) -> int:
        """Add a row; returns its number."""
        view = self._view
        pending = view.pending
        number = view.base + len(pending)
        if not record.envelope:
            self.specials().append(number)
        elif record.row[_CODE_AT] == _LINK and record.row[_CODE_AT + 1] == _CONTINUED_IN:
            self._continued.append(number)
        pending.append(record)
        return number

    def extend(self, records: Sequence[Record]) -> int:
        """Add rows of entries that continue nothing; returns the number of the first."""
        view = self._view
        number = view.base + len(view.pending)
        view.pending.extend(records)
        return number

    def cut(self, count: int) -> None:
        """Forget the rows from ``count`` on: they were never accepted. ``count`` is at least the base."""
        view = self._view
        specials = self.specials()
        while specials and specials[-1] >= count:
            specials.pop()
        while self._continued[-1] >= count:
            self._continued.pop()
        del view.pending[count - view.base :]

    def rebase(self, generation: Generation, tail: bytes, log: LogFile | None) -> None:
        """Follow a checkpoint: the first rows of ``pending`` are the log's now. Row numbers stay.

        ``log`` is the log open for reading; the one open already goes on when there is one.
        """
        self.specials()
        self._flags = self.flags
        view = self._view
        if view.log is not None and log is not None:
            if isinstance(view.log, PackedLog) and isinstance(log, PackedLog):
                view.log.take_rows_of(log)
            log.close()
            log = view.log
        pending = view.pending[generation.base - view.base :]
        self._view = _View(generation.base, whole_rows(generation.base), tail, log, pending)

    def close(self) -> None:
        """Close the log; rows already read stay."""
        view = self._view
        self._view = view._replace(log=None)
        if view.log is not None:
            view.log.close()
