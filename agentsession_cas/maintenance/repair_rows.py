"""The rows of a repaired session: what was found, in order, hung together anew.

Owns the order of the new rows, their references, and the head after each. Rows that were believed stay as they were
but for their references; those of other entries are made from envelope and body. An entry comes after its parent or not
at all: one whose path is broken is an *orphan* and has no row. Where heads no longer follow from one another because a
row between them is gone, a head move is put in. Must not: read files, or write.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from agentsession_cas.core.ancestry import Ancestry
from agentsession_cas.core.contexthash import EMPTY_CONTEXT_HASH, next_context_hash
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.envelope import Envelope, read_envelope
from agentsession_cas.core.facts import Code, Kind, code_of
from agentsession_cas.core.identity import is_hash
from agentsession_cas.core.parsing import parse_trusted
from agentsession_cas.core.rows import (
    NO_DIGEST,
    PARENTS_BIT,
    REF_BASE,
    REF_ELSEWHERE,
    REF_ROOT,
    TS_BIT,
    Newest,
    Row,
    RowCode,
    encode_row,
    ref_to,
    row_of_ref,
)
from agentsession_cas.core.timestamps import ts_to_ns
from agentsession_cas.errors import AgentSessionError
from agentsession_cas.maintenance.repair_entries import Found
from agentsession_cas.sessions.rowmaker import digest_of, make_row
from agentsession_cas.sessions.source import hash_of

__all__ = ["LOST_ROWS", "NewRows", "Prefixed"]

LOST_ROWS: Final = 1
"""The kind of a loss row that a repair wrote: its target is how many rows are lost. That of a lost tail is 0."""

_INT64: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Prefixed:
    """What lies above a session's own entries: ids root first, the raw digest of the context hash at the base."""

    ids: tuple[str, ...]
    base_context: bytes
    context_at: Callable[[int], str]
    entry_at: Callable[[int], Entry]


@dataclass(slots=True)
class NewRows:
    """Rows as they are made. ``now`` is the time of rows put in; ``envelope`` and ``content`` find objects."""

    prefix: Prefixed
    now: int
    envelope: Callable[[bytes], bytes | None]
    content: Callable[[bytes], bytes | None]
    rows: list[Row] = field(default_factory=list)
    newest: Newest = Newest()  # noqa: RUF009 - immutable
    head: int = REF_ROOT
    orphans: list[bytes] = field(default_factory=list)
    _numbers: dict[bytes, int] = field(default_factory=dict)
    _moved: dict[int, int] = field(default_factory=dict)
    _waiting: dict[bytes, list[Found]] = field(default_factory=dict)
    _tree: Ancestry = field(default_factory=Ancestry)
    _positions: list[int] = field(default_factory=list)
    _above: dict[str, int] = field(default_factory=dict)

    def make(self, items: list[Found], lost: int, head: bytes | None = None) -> None:
        """Make the rows of ``items``, and one that says how many are lost if any are.

        ``head`` is the raw digest of the head behind them all, zeros at the universal root, None where only they tell.
        """
        for at, entry_id in enumerate(self.prefix.ids):
            self._tree.add(at - 1)
            self._above[entry_id] = at
        self.head = REF_BASE if self.prefix.ids else REF_ROOT
        for item in items:
            todo = [item]
            while todo:
                found = todo.pop()
                if found.digest:
                    if not self._is_held(found.parent):
                        self._waiting.setdefault(found.parent, []).append(found)
                        continue
                    self._entry(found)
                    todo += reversed(self._waiting.pop(found.digest, []))
                elif found.row is not None:
                    self._special(found.row)
        self.orphans += (found.digest for waiting in self._waiting.values() for found in waiting)
        wanted = self._ref_to(head) if head is not None else None
        if wanted is not None and wanted != self.head and self._may_rest(wanted):
            self._put(RowCode.HEAD, 0, wanted)
        lost += len(self.orphans)
        if lost:
            self._put(RowCode.LOSS, LOST_ROWS, self.head, lost)

    @property
    def bodies(self) -> list[bytes]:
        """The 124 bytes of each row."""
        return [encode_row(row) for row in self.rows]

    @property
    def head_digest(self) -> bytes:
        """The raw digest of the head, zeros at the universal root."""
        number = row_of_ref(self.head)
        if number >= 0:
            return self.rows[number].entry
        return digest_of(self.prefix.ids[-1]) if self.head == REF_BASE else NO_DIGEST

    # --- rows ---

    def _is_held(self, parent: bytes) -> bool:
        if not parent:
            return not self.prefix.ids
        return parent in self._numbers or (bool(self.prefix.ids) and hash_of(parent) == self.prefix.ids[-1])

    def _parent_ref(self, parent: bytes) -> int:
        if not parent:
            return REF_ROOT
        number = self._numbers.get(parent, -1)
        return ref_to(number) if number >= 0 else REF_BASE

    def _ref_to(self, head: bytes) -> int | None:
        if head == NO_DIGEST:
            return REF_ROOT
        if self.prefix.ids and hash_of(head) == self.prefix.ids[-1]:
            return REF_BASE
        number = self._numbers.get(head, -1)
        return ref_to(number) if number >= 0 else None

    def _map(self, ref: int) -> int | None:
        """Where an old reference leads now; None when that row is gone, or comes later."""
        if ref in (REF_ROOT, REF_BASE, REF_ELSEWHERE):
            return ref
        number = self._moved.get(row_of_ref(ref), -1)
        return ref_to(number) if number >= 0 else None

    def _entry(self, found: Found) -> None:
        parent = self._parent_ref(found.parent)
        row, number = found.row, len(self.rows)
        wanted: int | None = None
        if row is not None:
            target = self._map(row.target)
            if target is None:
                target = self._named(found, row, parent)
            row = row._replace(parent=parent, target=target)
            if row.context == NO_DIGEST:
                row = row._replace(context=self._context_below(row))
            wanted = ref_to(number) if row_of_ref(row.head) == found.slot else self._map(row.head)
        else:
            row = self._made(found, parent)
        head = self._next_head(row, number)
        if wanted == self.head:
            head = wanted
        self._numbers[found.digest] = number
        if found.slot >= 0:
            self._moved[found.slot] = number
        self._tree.add(self._position(parent))
        self._positions.append(number)
        self._push(row._replace(head=head))
        if wanted is not None and wanted != head and self._may_rest(wanted):
            self._put(RowCode.HEAD, 0, wanted)

    def _named(self, found: Found, row: Row, parent: int) -> int:
        """The target of a row whose old one is in no row that reads: the body says which entry that is."""
        envelope, content = self.envelope(row.entry), self.content(row.content)
        if envelope is None or content is None:
            return REF_ELSEWHERE
        try:
            return self._from_body(found, read_envelope(envelope), content, parent).target
        except AgentSessionError:  # a body no row can be made of is like one that is lost
            return REF_ELSEWHERE

    def _next_head(self, row: Row, number: int) -> int:
        if row.code == Code.LABEL and row.kind == Kind.LEAF:
            return row.target if self._may_rest(row.target) else self.head
        return ref_to(number) if row.parent == self.head else self.head

    def _may_rest(self, ref: int) -> bool:
        number = row_of_ref(ref)
        if ref == REF_ELSEWHERE or number >= len(self.rows):
            return False
        if number < 0:
            return ref == (REF_BASE if self.prefix.ids else REF_ROOT)
        at = self.rows[number]
        return at.code < RowCode.HEAD and not (at.code == Code.LABEL and at.kind == Kind.LEAF)

    def _special(self, row: Row) -> None:
        wanted = self._map(row.head)
        if wanted is not None and wanted != self.head and self._may_rest(wanted):
            self._put(RowCode.HEAD, 0, wanted, ts=row.ts)
        if row.code != RowCode.HEAD:
            self._put(row.code, row.kind, self.head, row.target, ts=row.ts)

    def _put(self, code: int, kind: int, head: int, target: int = 0, ts: int = 0) -> None:
        special = self.newest.special
        self._push(
            Row(NO_DIGEST, NO_DIGEST, NO_DIGEST, special, head, target, ts or self.now, code, kind, 0, 0)
        )

    def _push(self, row: Row) -> None:
        self.newest = self.newest.with_row(len(self.rows), row)
        self.rows.append(row)
        self.head = row.head

    # --- rows of entries whose own are lost ---

    def _made(self, found: Found, parent: int) -> Row:
        said = read_envelope(found.envelope)
        content = self.content(digest_of(said.content))
        if content is not None:
            try:
                return self._from_body(found, said, content, parent)
            except AgentSessionError:  # a body no row can be made of is like one that is lost
                pass
        flags = PARENTS_BIT if said.parents else 0
        ts = ts_to_ns(said.ts)
        if not -_INT64 <= ts < _INT64:
            flags, ts = flags | TS_BIT, 0
        code, content_digest = int(code_of(said.type)), digest_of(said.content)
        if found.doubt is not None:
            target = REF_ELSEWHERE if found.doubt.target else REF_ROOT
            row = found.doubt._replace(entry=found.digest, parent=parent, head=0, target=target)
            return row if row.context != NO_DIGEST else row._replace(context=self._context_below(row))
        context = digest_of(next_context_hash(self._context_of_ref(parent), said.type, {}, said.content, _nowhere))
        return Row(found.digest, content_digest, context, parent, 0, 0, ts, code, 0, flags, 0)

    def _context_below(self, row: Row) -> bytes:
        """The context hash of a row that was packed without it."""
        before, code = self._context_of_ref(row.parent), row.code
        if code not in (Code.ITEM, Code.CONFIG, Code.COMPACTION, Code.BRANCH_SUMMARY):
            return digest_of(before)
        content = self.content(row.content)
        body = parse_trusted(content) if content is not None else {}
        type_ = Code(code).name.lower()
        return digest_of(next_context_hash(before, type_, body, hash_of(row.content), self._on_path(row.parent)))

    def _on_path(self, parent: int) -> Callable[[str], tuple[str, str] | None]:
        leaf = self._position(parent)

        def resolve(entry_id: str) -> tuple[str, str] | None:
            found = self.find(entry_id)
            return (self._context_at(found), self.entry(found).type) if self.is_above(found, leaf) else None

        return resolve

    def _from_body(self, found: Found, said: Envelope, content: bytes, parent: int) -> Row:
        body = parse_trusted(content)
        entry = _entry_of(found.digest, said, content)
        return make_row(
            self,
            entry,
            body,
            self._position(parent),
            0,
            parent_ref=parent,
            before=self._context_of_ref(parent),
            ts=ts_to_ns(said.ts),
            ref_of=self._ref_of,
            context_at=self._context_at,
        )

    def _context_of_ref(self, ref: int) -> str:
        if ref == REF_ROOT:
            return EMPTY_CONTEXT_HASH
        return hash_of(self.prefix.base_context if ref == REF_BASE else self.rows[row_of_ref(ref)].context)

    # --- the tree so far, as a row is made of it: positions, the prefix first ---

    def find(self, entry_id: str) -> int:
        """The position of an entry id, or -1."""
        number = self._numbers.get(digest_of(entry_id), -1) if is_hash(entry_id) else -1
        if number >= 0:
            return self._position(ref_to(number))
        return self._above.get(entry_id, -1)

    def entry(self, position: int) -> Entry:
        """The entry at a position, as far as its envelope shows it."""
        own = position - len(self.prefix.ids)
        if own < 0:
            return self.prefix.entry_at(position)
        row = self.rows[self._positions[own]]
        data = self.envelope(row.entry)
        if data is not None:
            return _entry_of(row.entry, read_envelope(data), b"")
        return Entry.stored(hash_of(row.entry), Code(row.code).name.lower(), "", "", hash_of(row.content), bytes)

    def is_above(self, position: int, leaf: int) -> bool:
        """Whether ``position`` is on the path to ``leaf``."""
        return self._tree.is_above(position, leaf)

    def _position(self, ref: int) -> int:
        number = row_of_ref(ref)
        if number >= 0:
            return len(self.prefix.ids) + self._ordinal(number)
        return len(self.prefix.ids) - 1 if ref == REF_BASE else -1

    def _ordinal(self, number: int) -> int:
        return bisect_left(self._positions, number)

    def _ref_of(self, position: int) -> int:
        own = position - len(self.prefix.ids)
        if own >= 0:
            return ref_to(self._positions[own])
        return REF_ROOT if position < 0 else REF_BASE if own == -1 else REF_ELSEWHERE

    def _context_at(self, position: int) -> str:
        own = position - len(self.prefix.ids)
        if own >= 0:
            return hash_of(self.rows[self._positions[own]].context)
        return hash_of(self.prefix.base_context) if own == -1 else self.prefix.context_at(position)


def _nowhere(_: str) -> None:
    return None


def _entry_of(digest: bytes, said: Envelope, content: bytes) -> Entry:
    return Entry.stored(
        hash_of(digest), said.type, said.parent, said.ts, said.content, lambda: content, parents=said.parents
    )
