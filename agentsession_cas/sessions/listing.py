"""What a listing says of a session without reading its entries: header, name, head, counts (store.md A2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.given import AnyPath, as_object, as_path
from agentsession_cas.core.header import Header
from agentsession_cas.core.rows import is_noted
from agentsession_cas.core.timestamps import canonical_ts, ts_from_ns, ts_to_ns
from agentsession_cas.effects.host import Fs
from agentsession_cas.errors import AgentSessionError
from agentsession_cas.sessions.journal import HEAD_NAME, JOURNAL_NAME, log_name
from agentsession_cas.sessions.opening import HEADER_NAME, Snapshot
from agentsession_cas.sessions.packedlog import packed_name
from agentsession_cas.sessions.records import mark_of
from agentsession_cas.sessions.services import Mark
from agentsession_cas.sessions.source import RowSource

__all__ = ["Filter", "OnDamage", "Summary", "summarise"]

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


def summarise(fs: Fs, directory: str, snapshot: Snapshot) -> Summary:
    """The summary of a session that was read; loads the two bodies it needs and no more."""
    header, source, _, state = snapshot
    table, generation = source.table, state.scan.generation
    newest = generation.newest
    for number, record in enumerate(table.pending, table.base):
        if is_noted(record.row):
            newest = newest.with_row(number, table.row(number))
    files = (HEADER_NAME, HEAD_NAME, log_name(generation.log), packed_name(generation.log))
    sizes = [found.size for name in files if (found := fs.stat(f"{directory}/{name}")) is not None]
    journal = fs.stat(f"{directory}/{JOURNAL_NAME}")
    return Summary(
        header,
        _text(source, newest.named, "name"),
        source.id_of_ref(table.row(len(table) - 1).head) if len(table) else header.base,
        table.entries,
        _text(source, newest.continued, "session"),
        sum(sizes) + (journal.size if journal is not None else 0),
        ts_from_ns(journal.mtime_ns) if journal is not None else header.created_at,
        "mirror" if mark_of(table) == Mark.MIRROR else "record",
    )


def _text(source: RowSource, ref: int, member: str) -> str:
    """A string member of the entry a reference names, "" for none."""
    if not ref:
        return ""
    value = source.entry(source.position_of_ref(ref)).body.get(member)
    return value if isinstance(value, str) else ""
