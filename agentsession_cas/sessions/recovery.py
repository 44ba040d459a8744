"""What a session's files say after whatever happened to them: read once, decided by one pure table (store.md A5).

``decide`` is the decision over {journal} x {HEAD}; ``read_state`` reads what it needs, HEAD, then the journal, then the
log it names, and cross-checks the rows. The journal ends at its first frame that is not whole. That end is damage when
a later whole frame of the generation, or HEAD, attests more rows as committed; else it is a lost tail. What a reader
without a lock calls damage counts only when a second read says so too, since a checkpoint may have come between.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from agentsession_cas.core.framing import HeadHint, Record, Scan, decode_records, scan_journal
from agentsession_cas.effects.host import Fs
from agentsession_cas.errors import Corrupt, Damaged, NoFile, NoSession
from agentsession_cas.sessions.journal import JOURNAL_NAME, read_head
from agentsession_cas.sessions.log import RowTable, open_log, open_rows

__all__ = ["State", "Verdict", "decide", "read_state", "read_state_once"]


class Verdict(Enum):
    """What a writer has to do with the journal it found."""

    CLEAN = "clean"
    """HEAD attests exactly what is there and nothing follows: go on in place."""
    REWRITE = "rewrite"
    """Whole, but nobody attests it as synced: copy it into a next generation."""
    LOST = "lost"
    """An uncommitted tail is cut: copy what is whole, and report the loss."""


class State(NamedTuple):
    """A session's files as read. ``groups`` are the records of the journal's frames; ``table`` has them as rows too."""

    scan: Scan
    hint: HeadHint | None
    verdict: Verdict
    groups: list[list[Record]]
    table: RowTable

    @property
    def is_named(self) -> bool:
        """Whether the journal that was read surely has its name on the disk: HEAD tells of it, which comes after.

        Of one nobody tells of, the writer may have yet to make the name durable.
        """
        return self.hint is not None and self.hint.salt == self.scan.generation.salt


def decide(scan: Scan, hint: HeadHint | None, where: str) -> Verdict:
    """The pure table; raises Damaged when more was committed than is whole."""
    attested = scan.attested
    if hint is not None and hint.salt == scan.generation.salt:
        attested = max(attested, hint.committed)
        if hint.committed == scan.sequence and scan.zero:
            return Verdict.CLEAN
    if attested > scan.sequence:
        raise Damaged(
            f"{attested} rows were committed, {scan.sequence} are whole",
            where=f"{where} offset {scan.end}",
        )
    return Verdict.REWRITE if scan.zero else Verdict.LOST


def _journal_bytes(fs: Fs, directory: str) -> bytes:
    path = f"{directory}/{JOURNAL_NAME}"
    data = fs.read(path)
    if data is None:
        if fs.stat(directory) is None:
            raise NoSession("the session is not there", where=directory)
        raise Damaged("the journal is absent", where=path)
    return data


def read_state_once(fs: Fs, directory: str) -> State:
    """Read the files of one session; raises Damaged with file and offset, NoSession when the directory is gone."""
    path = f"{directory}/{JOURNAL_NAME}"
    # HEAD first: a writer beside us may commit more at any time, and the journal must not be older than its witness
    hint = read_head(fs, directory)
    data = _journal_bytes(fs, directory)
    try:
        scan = scan_journal(data)
    except Corrupt as error:
        raise Damaged(error.what, where=path) from error
    verdict = decide(scan, hint, path)
    view = memoryview(data)
    try:
        groups = [decode_records(view[frame.payload_at : frame.end], frame.rows) for frame in scan.frames]
    except Corrupt as error:
        raise Damaged(error.what, where=path) from error
    table = open_rows(scan.generation, scan.tail, open_log(fs, directory, scan.generation))
    for group in groups:
        for record in group:
            table.push(record)
    return State(scan, hint, verdict, groups, table)


def read_state(fs: Fs, directory: str) -> State:
    """As :func:`read_state_once`, for a reader without the lock: damage is believed when a second read repeats it."""
    try:
        return read_state_once(fs, directory)
    except (Damaged, NoFile):
        return read_state_once(fs, directory)
