"""The growing end of a session in memory: what an append or a head move changes before its frame is written.

Owns the head, the context hash there, and how a row follows from a draft. Whoever writes the frame takes everything
back (:meth:`Tip.back_to`) when that fails. Changed under the writer's mutex alone; touches no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from agentsession_cas.core.accept import Elsewhere, Outcome, prepare
from agentsession_cas.core.contexthash import EMPTY_CONTEXT_HASH
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.framing import Record
from agentsession_cas.core.header import Header
from agentsession_cas.core.rows import (
    NO_DIGEST,
    REF_BASE,
    REF_FIRST,
    REF_ROOT,
    Newest,
    Row,
    RowCode,
    encode_row,
    ref_to,
)
from agentsession_cas.core.spans import check_redacted
from agentsession_cas.core.timestamps import ts_from_ns, ts_to_ns
from agentsession_cas.effects.host import Clock
from agentsession_cas.sessions.plain import Accepted, chain_items
from agentsession_cas.sessions.rowmaker import digest_of, make_row
from agentsession_cas.sessions.source import RowSource, hash_of

__all__ = ["Tip", "TipMark"]

_make: Final = tuple.__new__  # what a NamedTuple is made with, without the call around it


class TipMark(NamedTuple):
    """Where a tip was: rows, head (reference and id), and what is newest."""

    rows: int
    head: int
    head_id: str
    newest: Newest


class Tip:
    """Where the next append goes. ``head`` is a reference, ``head_id`` "" for the universal root."""

    __slots__ = (
        "_base_context",
        "_clock",
        "_context",
        "_context_of",
        "_redacted_only",
        "_stamp",
        "_stamp_ns",
        "head",
        "head_digest",
        "head_id",
        "newest",
        "source",
    )

    def __init__(
        self, source: RowSource, newest: Newest, *, base_context: bytes, clock: Clock, redacted_only: bool
    ) -> None:
        """``newest`` is what the rows below the journal's have, ``base_context`` the context hash at a base, raw."""
        table = source.table
        self.source = source
        self._base_context = base_context
        self._clock = clock
        self._redacted_only = redacted_only
        self._stamp = ""
        self._stamp_ns = 0
        self._context_of = ""
        self._context = EMPTY_CONTEXT_HASH
        for number in range(table.base, len(table)):
            newest = newest.with_row(number, table.row(number))
        self.newest = newest
        at_base = REF_BASE if source.base else REF_ROOT
        self.move(table.row(len(table) - 1).head if len(table) else at_base)
        source.remember(self.head_id, self.head)

    def move(self, head: int) -> None:
        """Put the head at a reference."""
        self._put(head, self.source.id_of_ref(head))

    def _put(self, head: int, head_id: str) -> None:
        self.head = head
        self.head_id = head_id
        self.head_digest = digest_of(head_id) if head_id else NO_DIGEST

    def mark(self) -> TipMark:
        """Where it is now."""
        return _make(TipMark, (len(self.source.table), self.head, self.head_id, self.newest))

    def head_at(self, rows: int) -> tuple[int, bytes]:
        """The head as the first ``rows`` rows, of which there is one, left it: its reference, and its id, raw."""
        head = self.source.table.row(rows - 1).head
        head_id = self.source.id_of_ref(head)
        return head, digest_of(head_id) if head_id else NO_DIGEST

    def back_to(self, mark: TipMark) -> None:
        """Take back what came since: it was never accepted."""
        self.source.cut(mark.rows)
        self._put(mark.head, mark.head_id)
        self.newest = mark.newest

    def accept(self, header: Header, drafts: Sequence[Draft], elsewhere: Elsewhere) -> list[Accepted]:
        """Decide appends, each seeing those before it, and add the rows of what is not held.

        Raises what ``prepare`` does; what came before the draft it was raised for is to be taken back.
        """
        accepted = self._accept_plain(drafts)
        while len(accepted) < len(drafts):
            accepted.append(self._accept_one(header, drafts[len(accepted)], elsewhere))
            if len(accepted) < len(drafts):
                accepted += self._accept_plain(drafts[len(accepted) :])
        return accepted

    def _accept_plain(self, drafts: Sequence[Draft]) -> list[Accepted]:
        """Accept the plain items that the drafts begin with: most appends are, and take half as long so."""
        source, head_id = self.source, self.head_id
        number = len(source.table)
        if self.head != number - 1 + REF_FIRST or self._context_of != head_id or self._redacted_only:
            return []
        run = chain_items(drafts, number, self.head, head_id, self._context, source.known_calls, self._clock.now_ns)
        records, accepted, calls, flags, context = run
        if records:
            self.head, self.head_id = number + len(records) - 1 + REF_FIRST, accepted[-1].id
            self.head_digest = records[-1].row[:32]
            self._context_of, self._context = self.head_id, context
            if flags:
                self.newest = self.newest.with_flags(flags)
            source.extend(records, calls, self.head_id)
        return accepted

    def _accept_one(self, header: Header, draft: Draft, elsewhere: Elsewhere) -> Accepted:
        source, head, head_id = self.source, self.head, self.head_id
        prepared = prepare(source, header, head_id, draft, now=self._now, elsewhere=elsewhere)
        entry, body, parent, outcome, head_after, unresolved, made = prepared
        accepted = Accepted(entry.id, outcome, unresolved, entry.type, entry.facts.code, entry.facts.kind)
        if outcome is Outcome.HELD:
            return accepted
        if self._redacted_only:
            check_redacted(header, (entry,), source)
        head_ref = head
        if outcome is Outcome.CONTINUED:
            head_ref = ref_to(len(source.table))
        elif outcome is Outcome.LEAF_MOVED:
            head_ref = source.ref_of(source.find(head_after) if head_after else -1)
        below_head = entry.parent == head_id
        row = make_row(
            source,
            entry,
            body,
            parent,
            head_ref,
            parent_ref=head if below_head else source.ref_of(parent),
            before=self._context_of_head() if below_head else self._context_at(parent),
            ts=self._stamp_ns if entry.ts is self._stamp else ts_to_ns(entry.ts),
            ref_of=source.ref_of,
            context_at=self._context_at,
            made=made,
        )
        if outcome is Outcome.CONTINUED:
            self._context_of, self._context = entry.id, hash_of(row.context)
        self._add(row, made.envelope, entry.content, entry.id, head_after)
        return accepted

    def admit(self, entry: Entry, parent: int) -> None:
        """Add the row of an entry another store accepted, below position ``parent``; the head stays where it is."""
        source = self.source
        row = make_row(
            source,
            entry,
            entry.body,
            parent,
            self.head,
            parent_ref=source.ref_of(parent),
            before=self._context_at(parent),
            ts=ts_to_ns(entry.ts),
            ref_of=source.ref_of,
            context_at=self._context_at,
        )
        self._add(row, entry.envelope, entry.content, entry.id, self.head_id)

    def _add(self, row: Row, envelope: bytes, content: bytes, entry_id: str, head_id: str) -> None:
        """Add the row of an entry, after which the head is ``head_id``."""
        number = self.source.push(_make(Record, (encode_row(row), envelope, content)), row, entry_id)
        self.newest = self.newest.with_row(number, row)
        if row.head != self.head:
            self.head, self.head_id = row.head, head_id
            self.head_digest = row.entry if head_id is entry_id else digest_of(head_id) if head_id else NO_DIGEST

    def special(self, code: RowCode, kind: int, head: int) -> Record:
        """Add a row that is no entry; the head stays where it is until :meth:`move`."""
        now = self._clock.now_ns()
        row = Row(NO_DIGEST, NO_DIGEST, NO_DIGEST, self.newest.special, head, 0, now, code, kind, 0, 0)
        record = Record(encode_row(row), b"", b"")
        self.newest = self.newest.with_row(self.source.push(record, row), row)
        return record

    def _now(self) -> str:
        now = self._stamp_ns = self._clock.now_ns()
        stamp = self._stamp = ts_from_ns(now)
        return stamp

    def _context_of_head(self) -> str:
        if self._context_of == self.head_id:
            return self._context
        return self._context_at(self.source.position_of_ref(self.head))

    def _context_at(self, position: int) -> str:
        source = self.source
        if position < 0:
            return EMPTY_CONTEXT_HASH
        if position == source.base_count - 1:
            return hash_of(self._base_context)
        return hash_of(source.context_digest(position))
