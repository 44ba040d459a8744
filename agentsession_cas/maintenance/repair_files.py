"""What the files of a damaged session still say, row by row: the evidence a repair goes by.

Owns which rows are believed and which are only doubts. A row is believed when its seal holds for its place, when it is
in a piece of a packed log whose sum holds, or when it lies in a whole frame. Everything else that has the size of a
row, or of an envelope, is a doubt: its hashes may lead to an entry, its other members are not trusted. Reads only. Must
not: look at objects, or decide what is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from agentsession_cas.core.framing import Generation, HeadHint, Record, decode_head
from agentsession_cas.core.rows import ROW_SIZE, ROWS_PER_BLOCK, log_seed, whole_rows
from agentsession_cas.effects.host import Fs
from agentsession_cas.errors import DiskError
from agentsession_cas.maintenance.repair_journal import Remains, Stray, remains_of
from agentsession_cas.maintenance.repair_log import LogRemains, sealed
from agentsession_cas.sessions.journal import HEAD_NAME, JOURNAL_NAME, LOG, log_name
from agentsession_cas.sessions.packedlog import packed_name

__all__ = ["Doubt", "Evidence", "gather", "read_quietly"]

_BODY: Final = ROW_SIZE - 4


@dataclass(frozen=True, slots=True)
class Doubt:
    """What may be left of a row: of number ``slot``, or (``placed`` False) of one from there on.

    ``derived`` says that the id in it was computed from all else in it, and so vouches for nothing.
    """

    slot: int
    placed: bool
    row: bytes
    envelope: bytes = b""
    content: bytes = b""
    derived: bool = False


@dataclass(slots=True)
class Evidence:
    """What was found. ``rows`` has for each number the 124 bytes that are believed, None where they are lost.

    ``base`` is how many of them the log held, ``log`` its number, -1 for none; ``last_log`` the highest number any log
    has. ``records`` are of whole frames. ``generation`` is believed where the journal's first blocks were.
    """

    generation: Generation | None
    guess: Generation | None
    hint: HeadHint | None
    base: int = 0
    log: int = -1
    last_log: int = -1
    rows: list[bytes | None] = field(default_factory=list)
    records: dict[int, Record] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    @property
    def lost(self) -> list[int]:
        """The numbers of the rows that are not believed."""
        return [number for number, row in enumerate(self.rows) if row is None]

    @property
    def is_witnessed(self) -> bool:
        """Whether HEAD may speak of this generation of the journal."""
        known = self.generation or self.guess
        return self.hint is not None and (known is None or known.salt == self.hint.salt)

    @property
    def last_head(self) -> bytes | None:
        """The raw digest of the head that HEAD saw behind the last row; None unless that row is lost."""
        if self.hint is None or not self.is_witnessed or not self.rows or self.rows[-1] is not None:
            return None
        return self.hint.entry if self.hint.committed == len(self.rows) else None


def read_quietly(fs: Fs, path: str, unreadable: list[str]) -> bytes:
    """The bytes of a file, b"" when there is none; one the system refuses to read is noted, and read as empty."""
    try:
        return fs.read(path) or b""
    except DiskError as error:
        unreadable.append(f"{path}: {error.what}")
        return b""


def gather(fs: Fs, directory: str) -> Evidence:
    """Read a session's journal, HEAD and log for whatever they still say."""
    unreadable: list[str] = []
    hint = decode_head(read_quietly(fs, f"{directory}/{HEAD_NAME}", unreadable))
    journal = remains_of(read_quietly(fs, f"{directory}/{JOURNAL_NAME}", unreadable), hint)
    found = Evidence(journal.generation, journal.guess, hint, records=journal.records, unreadable=unreadable)
    logs = {int(match[1]) for name in fs.listdir(directory) if (match := LOG.fullmatch(name))}
    found.last_log = max(logs, default=-1)
    named = journal.generation or journal.guess
    found.log = named.log if named is not None and (journal.generation or named.log in logs) else found.last_log
    plain = packed = b""
    if found.log in logs:
        plain = read_quietly(fs, f"{directory}/{log_name(found.log)}", unreadable)
        packed = read_quietly(fs, f"{directory}/{packed_name(found.log)}", unreadable)
    _take_log(found, journal, LogRemains(plain, packed, journal.generation, journal.tail, journal.guess))
    return found


def _take_log(found: Evidence, journal: Remains, log: LogRemains) -> None:
    """Fill ``rows`` from log, tail and frames; what is there and not believed becomes a doubt."""
    first, tail = _tail(journal, log)
    found.base = _base(journal, log, first, tail)
    named = journal.generation or journal.guess
    hint = found.hint
    attested = hint.committed if hint is not None and (named is None or hint.salt == named.salt) else 0
    ends = [found.base, journal.committed, attested, *(number + 1 for number in journal.records)]
    rows: list[bytes | None] = [None] * max(ends)
    whole = max(whole_rows(found.base), min(found.base, log.packed))
    for at in range(min(whole, log.count)):
        rows[at] = log.row(at)
    for at, row in enumerate(tail, first):
        if row is not None and at < len(rows):
            rows[at] = row
    for number, record in journal.records.items():
        rows[number] = record.row
    found.rows = rows
    for at in range(min(log.count, len(rows))):
        if rows[at] is None and (doubt := log.doubt(at)):
            found.doubts.append(Doubt(at, True, doubt, derived=at < log.packed))
    for at in range(first, min(found.base, first + ROWS_PER_BLOCK)):
        if rows[at] is None:
            offset = (at - first) * ROW_SIZE
            found.doubts.append(Doubt(at, True, journal.tail[offset : offset + _BODY]))
    found.doubts = [doubt for doubt in found.doubts if not doubt.row or len(doubt.row) == _BODY]
    found.doubts += _of_strays(journal.strays)


def _of_strays(strays: list[Stray]) -> Iterator[Doubt]:
    for stray in strays:
        yield Doubt(stray.after, False, stray.row, stray.envelope, stray.content)


def _base(journal: Remains, log: LogRemains, first: int, tail: list[bytes | None]) -> int:
    """How many rows the log and the tail hold: as block 0 says, else as its end and the first frame show."""
    if journal.generation is not None:
        return journal.generation.base
    shown = first + len(tail)
    before = min(journal.records, default=-1)
    if journal.guess is not None:
        guess = journal.guess.base
        is_seeded = log_seed(journal.guess.birth, journal.guess.log) == log.seed
        if guess in (shown, before) or (is_seeded and shown <= guess < first + ROWS_PER_BLOCK):
            return guess
    if before >= 0 and (before == shown or not tail):
        return before
    return shown if tail else max(log.believed, before)


def _tail(journal: Remains, log: LogRemains) -> tuple[int, list[bytes | None]]:
    """The number of the first row of block 1, and its rows, None for one that fails; [] when it has none that holds."""
    data = journal.tail
    if journal.generation is not None:
        base, packed = journal.generation.base, journal.generation.packed
        first = whole_rows(base)
        return first, [] if packed == base else [sealed(data, at, first + at, log.seed) for at in range(base - first)]
    known = journal.guess.base if journal.guess is not None else -1
    starts = range(whole_rows(log.count), -1, -ROWS_PER_BLOCK)
    for first in dict.fromkeys((whole_rows(max(known, 0)), *starts)):
        rows = [sealed(data, at, first + at, log.seed) for at in range(len(data) // ROW_SIZE)]
        held = [at for at, row in enumerate(rows) if row is not None]
        if held:
            return first, rows[: held[-1] + 1]
    return 0, []
