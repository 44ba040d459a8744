"""What a listing says of a session without reading its entries: header, name, head, counts (store.md A2).

A session at rest is *glanced* at: where HEAD attests what its journal says, the two of them tell the head and the
counts, and of the log, however long, only a row is read that names the session, continues it, or is no entry. Where
HEAD tells how the journal ends, and it ends so, its frames are not read either, however many. Whatever else is found,
and whatever looks wrong, is for the reading of the session to tell, which looks twice before it calls anything damage.
Writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.framing import (
    BEGIN,
    FRAME_HEAD,
    Generation,
    HeadHint,
    Record,
    Scan,
    behind,
    decode_head,
    decode_records,
    record_codes,
    scan_journal,
    told_scan,
)
from agentsession_cas.core.given import AnyPath, as_object, as_path
from agentsession_cas.core.header import Header
from agentsession_cas.core.rows import (
    REF_BASE,
    REF_ROOT,
    ROW_SIZE,
    Newest,
    decode_row,
    is_noted,
    is_told_by_count,
    row_of_ref,
    whole_rows,
)
from agentsession_cas.core.timestamps import canonical_ts, ts_from_ns, ts_to_ns
from agentsession_cas.effects.host import Fs
from agentsession_cas.errors import AgentSessionError, Corrupt, Damaged, NoFile, NoObject, NotRegular
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.headerfile import HEADER_NAME, decode_header
from agentsession_cas.sessions.journal import HEAD_NAME, JOURNAL_NAME, log_name
from agentsession_cas.sessions.log import RowTable, open_log, open_rows
from agentsession_cas.sessions.opening import Snapshot, directory_identity
from agentsession_cas.sessions.packedlog import packed_name
from agentsession_cas.sessions.records import mark_of
from agentsession_cas.sessions.recovery import Verdict, decide
from agentsession_cas.sessions.services import Mark
from agentsession_cas.sessions.source import RowSource, hash_of

__all__ = ["Filter", "OnDamage", "Summary", "glance", "summarise"]

OnDamage = Callable[[str, AgentSessionError], None]
"""Called with the id of a session that does not read, "" when not even that can be told, and with why."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A session in a listing.

    ``head`` is an entry id or "", ``entries`` counts own entries, ``size`` is the bytes of the session's own files,
    ``modified`` a canonical time, ``superseded_by`` a session id or "", ``mark`` is ``record`` or ``mirror``.
    """

    header: Header
    name: str
    head: str
    entries: int
    superseded_by: str
    size: int
    modified: str
    mark: str

    @property
    def id(self) -> str:
        """The session's id."""
        return self.header.id


@dataclass(frozen=True, slots=True)
class Filter:
    """What a listing keeps (store.md A2); a field left at its default filters nothing.

    ``after`` and ``before`` bound ``created_at``, exclusive; ``extra`` compares header members by canonical JSON.
    """

    cwd: AnyPath = ""
    parent: str = ""
    harness: str = ""
    top_level: bool = False
    current: bool = False
    after: str | datetime = ""
    before: str | datetime = ""
    redacted_from: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def keeps_header(self, header: Header) -> bool:
        """Whether a header passes; costs no look at the entries."""
        harness = header.harness
        if self.cwd and header.cwd != as_path(self.cwd, "cwd"):
            return False
        if self.parent and header.parent_session != self.parent:
            return False
        if self.harness and (harness is None or harness.name != self.harness):
            return False
        if self.top_level and header.spawned_by:
            return False
        origin = header.redacted_from
        if self.redacted_from and (origin is None or origin.session != self.redacted_from):
            return False
        return self._in_time(header) and self._has_extra(header)

    def keeps(self, summary: Summary) -> bool:
        """Whether a summary passes what the header alone cannot say."""
        return not (self.current and summary.superseded_by)

    def _in_time(self, header: Header) -> bool:
        if not self.after and not self.before:
            return True
        created = ts_to_ns(canonical_ts(header.created_at))
        if self.after and created <= ts_to_ns(canonical_ts(self.after)):
            return False
        return not self.before or created < ts_to_ns(canonical_ts(self.before))

    def _has_extra(self, header: Header) -> bool:
        members = header.members()
        wanted = as_object(self.extra, "extra")
        return all(name in members and canonical(members[name]) == canonical(value) for name, value in wanted.items())


class _Files(NamedTuple):
    """A session's small files as read; the sizes are the bytes of header and HEAD. ``journal`` is b"" where its frames
    need no look."""

    header: Header
    size: int
    hint: HeadHint
    scan: Scan
    journal: bytes


def glance(fs: Fs, objects: ObjectDatabase, directory: str) -> Summary | None:
    """The summary of a session whose small files tell it; None when the session has to be read, or there is none."""
    there = directory_identity(fs, directory)
    try:
        files = _small_files(fs, directory)
        found = _told(fs, objects, directory, files) if files is not None else None
    except (Damaged, Corrupt, NoObject, NotRegular):
        return None
    return found if found is not None and directory_identity(fs, directory) == there else None


def _small_files(fs: Fs, directory: str) -> _Files | None:
    """Files that agree, read in the order in which none is older than what tells of it; None when they do not."""
    witness = fs.read(f"{directory}/{HEAD_NAME}")
    hint = decode_head(witness)
    if witness is None or hint is None:
        return None
    journal, scan = b"", _told_by_head(fs, directory, hint) if hint.end else None
    if scan is None:
        journal = fs.read(f"{directory}/{JOURNAL_NAME}") or b""
        scan = scan_journal(journal)
        if decide(scan, hint, directory) is not Verdict.CLEAN:
            return None
    header = fs.read(f"{directory}/{HEADER_NAME}")
    if header is None:
        return None
    return _Files(decode_header(header), len(header) + len(witness), hint, scan, journal)


def _told_by_head(fs: Fs, directory: str, hint: HeadHint) -> Scan | None:
    """The journal's end as HEAD tells it, where the journal begins and ends so."""
    try:
        file = fs.open(f"{directory}/{JOURNAL_NAME}")
    except NoFile:
        return None
    with closing(file):
        last, end, more = hint.last, hint.end, behind(hint.end)
        first = file.pread(BEGIN, 0)
        if end + more <= len(first):
            return told_scan(first, first[last:end], first[end : end + more], hint)
        return told_scan(first, file.pread(FRAME_HEAD, last), file.pread(more, end), hint)


def _told(fs: Fs, objects: ObjectDatabase, directory: str, files: _Files) -> Summary | None:
    """What files that agree say; None when the log is not there as it should be."""
    header, small, hint, scan, data = files
    generation = scan.generation
    size, journal = _log_size(fs, directory, generation), fs.stat(f"{directory}/{JOURNAL_NAME}")
    if size is None or journal is None or (not data and journal.size < scan.end):
        return None
    records = _records(scan, data)
    newest = _newest(generation, records)
    if records or any(newest[:3]):
        told = _read_rows(fs, objects, directory, files, newest, records)
    else:
        told = _Told(scan.sequence)
    return Summary(
        header,
        told.name,
        _head(header, hint),
        told.entries,
        told.successor,
        size + small + journal.size,
        ts_from_ns(journal.mtime_ns),
        told.mark,
    )


class _Told(NamedTuple):
    """What rows tell; all but the count as it is where rows only count."""

    entries: int
    name: str = ""
    successor: str = ""
    mark: str = "record"


def _read_rows(
    fs: Fs, objects: ObjectDatabase, directory: str, files: _Files, newest: Newest, records: list[Record]
) -> _Told:
    header, _, _, scan, _ = files
    counted = scan.sequence - scan.generation.base - len(records)
    with closing(_table(fs, directory, scan, newest)) as table:
        table.extend(records)
        name = successor = ""
        if newest.named or newest.continued:
            source = RowSource(table, objects, header.base, None)
            name, successor = _text(source, newest.named, "name"), _text(source, newest.continued, "session")
        return _Told(table.entries + counted, name, successor, _mark(table))


def _table(fs: Fs, directory: str, scan: Scan, newest: Newest) -> RowTable:
    """The rows below the base, with the log only where one of them is to be read."""
    generation, tail = scan.generation, scan.tail
    held = generation.base - len(tail) // ROW_SIZE
    read = newest.named or newest.continued or 0 <= row_of_ref(generation.newest.special) < held
    log = open_log(fs, directory, generation) if held and read else None  # an entry asks for the row it hangs from too
    return open_rows(generation, tail, log)


def _newest(generation: Generation, records: list[Record]) -> Newest:
    """What is newest behind the journal's rows, as far as a listing asks."""
    newest = generation.newest
    for number, record in enumerate(records, generation.base):
        if is_noted(record.row):
            newest = newest.with_row(number, decode_row(record.row))
    return newest


def _mark(table: RowTable) -> str:
    return "mirror" if mark_of(table) == Mark.MIRROR else "record"


def _records(scan: Scan, data: bytes) -> list[Record]:
    """The records of the journal; none where its rows only count."""
    view = memoryview(data)
    frames = [(view[frame.payload_at : frame.end], frame.rows) for frame in scan.frames]
    if all(is_told_by_count(record_codes(payload, rows)) for payload, rows in frames):
        return []
    return [each for payload, rows in frames for each in decode_records(payload, rows)]


def _head(header: Header, hint: HeadHint) -> str:
    if hint.head == REF_BASE:
        return header.base
    return hash_of(hint.entry) if hint.head != REF_ROOT else ""


def _log_size(fs: Fs, directory: str, generation: Generation) -> int | None:
    """Bytes of the log's files; None when one that rows are trusted in is absent or cut short."""
    base, packed = generation.base, generation.packed
    plain_file = fs.stat(f"{directory}/{log_name(generation.log)}") if base > packed else None
    packed_file = fs.stat(f"{directory}/{packed_name(generation.log)}") if packed else None
    needed = (whole_rows(base) - whole_rows(packed)) * ROW_SIZE
    if needed and (plain_file is None or plain_file.size < needed):
        return None
    if packed and packed_file is None:
        return None
    return (plain_file.size if plain_file is not None else 0) + (packed_file.size if packed_file is not None else 0)


def summarise(fs: Fs, directory: str, snapshot: Snapshot) -> Summary:
    """The summary of a session that was read; loads the two bodies it needs and no more."""
    header, source, _, state = snapshot
    table, generation = source.table, state.scan.generation
    newest = _newest(generation, table.pending)
    sizes = [found.size for name in (HEADER_NAME, HEAD_NAME) if (found := fs.stat(f"{directory}/{name}")) is not None]
    journal = fs.stat(f"{directory}/{JOURNAL_NAME}")
    return Summary(
        header,
        _text(source, newest.named, "name"),
        source.id_of_ref(table.row(len(table) - 1).head) if len(table) else header.base,
        table.entries,
        _text(source, newest.continued, "session"),
        sum(sizes) + (_log_size(fs, directory, generation) or 0) + (journal.size if journal is not None else 0),
        ts_from_ns(journal.mtime_ns) if journal is not None else header.created_at,
        _mark(table),
    )


def _text(source: RowSource, ref: int, member: str) -> str:
    """A string member of the entry a reference names, "" for none."""
    if not ref:
        return ""
    value = source.entry(source.position_of_ref(ref)).body.get(member)
    return value if isinstance(value, str) else ""
