"""A session in memory: its header, its entries as a tree, and the leaf the next append continues from.

The same class stands over entries in a list and over a store's rows: it knows them by position only
(:class:`~agentsession_cas.core.source.EntrySource`). Appends land in a list here; a store's writer takes what
:func:`~agentsession_cas.core.accept.prepare` gives and stores it itself. Walks are loops, so that a chain of a million
entries is ordinary. Not safe to change from two threads at once. Does no I/O and asks no clock but the one handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from agentsession_cas.core.accept import (
    NOWHERE,
    Elsewhere,
    Prepared,
    Result,
    prepare,
    prepare_batch,
    raised_for_append,
)
from agentsession_cas.core.children import Children
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.facts import Code, Flag
from agentsession_cas.core.given import JsonObject, as_list, require
from agentsession_cas.core.header import Header
from agentsession_cas.core.identity import ROOT
from agentsession_cas.core.leaf import check_head_move, check_rest
from agentsession_cas.core.links import superseded_by
from agentsession_cas.core.memory import MemorySource
from agentsession_cas.core.questions import Questions
from agentsession_cas.core.request import record_response_bodies
from agentsession_cas.core.source import EntrySource, every_entry, path_positions
from agentsession_cas.errors import AgentSessionError, BadTimestamp, NoEntry, ReadOnly

__all__ = ["Appendable", "MemorySource", "Session", "TruncatedLine", "drafts_of", "no_clock"]

Appendable = Draft | Entry | Mapping[str, Any] | bytes | str
"""What an append takes: a draft, an accepted entry, the members of a line, or its text."""


class TruncatedLine(NamedTuple):
    """A last line that was cut short: its 1-based number, its bytes without the LF, and why it is no JSON."""

    line: int
    data: bytes
    error: AgentSessionError


def drafts_of(entries: Iterable[Appendable]) -> list[Draft]:
    """The entries of a batch as drafts. Raises BadInput for one entry instead of a list, and as ``Draft.of`` does."""
    return [each if type(each) is Draft else Draft.of(each) for each in as_list(entries, "a batch of entries")]


def no_clock() -> str:
    """The clock of a session nobody gave one: every entry has to say when it was."""
    raise BadTimestamp("the entry has no ts and the session no clock", next_step="give the entry a ts")


class Session(Questions):
    """One session. ``leaf`` is the entry the next append hangs from, "" at the universal root.

    ``clock`` gives the canonical ``ts`` of an entry that has none; ``elsewhere`` knows what entries may name outside
    the session. The members from ``declared_format`` down say what reading a file met
    (:mod:`~agentsession_cas.core.jsonl`).
    """

    def __init__(
        self,
        header: Header,
        source: EntrySource | None = None,
        *,
        leaf: str = ROOT,
        clock: Callable[[], str] = no_clock,
        elsewhere: Elsewhere = NOWHERE,
    ) -> None:
        self.header = header
        self.source: EntrySource = MemorySource() if source is None else source
        self.leaf = leaf
        self.declared_format = header.format
        """The format the file's header named when it was read."""
        self.truncated: TruncatedLine | None = None
        """The last line of the file, when it was cut short."""
        self.repeated: list[str] = []
        """The ids the file held a second time, in file order."""
        self.blank_lines = 0
        self.migrated = False
        """Whether the file was from before 0.5 (format.md §11)."""
        self.unresolved: list[str] = []
        """The entries the migration could not rewrite: such a session is never written again."""
        self._clock = clock
        self._elsewhere = elsewhere
        self._children = Children(self.source)

    @property
    def id(self) -> str:
        """The session id."""
        return self.header.id

    @property
    def leaf_position(self) -> int:
        """The leaf's position, -1 at the universal root."""
        return self.source.find(self.leaf) if self.leaf else -1

    @property
    def name(self) -> str:
        """The display name: the last non-empty name of an ``info`` entry, or ""."""
        for position in range(len(self.source) - 1, -1, -1):
            facts = self.source.facts(position)
            if facts.code == Code.INFO and facts.flags & Flag.NAMED:
                return str(self.source.entry(position).body["name"])
        return ""

    @property
    def superseded_by(self) -> str:
        """The session this one was continued in, or ""."""
        return superseded_by(self.source)

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[Entry]:
        """The entries in file order."""
        return every_entry(self.source)

    def position(self, entry_id: str) -> int:
        """The position of an entry named by id or by ``legacy_id`` (format.md §11); -1 for "". Raises NoEntry."""
        if require(entry_id, str, "an entry's id", "give entry.id") == ROOT:
            return -1
        position = self.source.find(entry_id)
        if position < 0:
            position = self.source.find_legacy(entry_id)
        if position < 0:
            raise NoEntry("the session holds no such entry", where=entry_id)
        return position

    def entry(self, entry_id: str) -> Entry:
        """The entry named by id or by ``legacy_id``. Raises NoEntry, for the universal root too."""
        position = self.position(entry_id)
        if position < 0:
            raise NoEntry("the universal root is no entry")
        return self.source.entry(position)

    def path(self, leaf: str | None = None) -> list[Entry]:
        """The path to an entry, by default the leaf, root first; [] for the universal root. Raises NoEntry."""
        return [self.source.entry(position) for position in path_positions(self.source, self._at(leaf))]

    def children(self, entry_id: str) -> list[str]:
        """The ids of an entry's children in file order; the first entries for "". Raises NoEntry."""
        return [self.source.entry_id(child) for child in self._children.of(self.position(entry_id))]

    def leaves(self) -> list[str]:
        """The ids of the entries without a child, in file order."""
        return [self.source.entry_id(position) for position in self._children.childless()]

    def is_prefix(self, entry_id: str) -> bool:
        """Whether an entry is on the path to the base: another session's, carried along. Raises NoEntry."""
        return 0 <= self.position(entry_id) < self.source.base_count

    def labels(self) -> dict[str, str]:
        """The label of every labelled entry: the last one written for it, unless a null one cleared it.

        Keyed by entry id, "" being the universal root.
        """
        labels: dict[str, str] = {}
        for position in range(len(self.source)):
            facts = self.source.facts(position)
            if facts.code != Code.LABEL:
                continue
            label = self.source.entry(position).body.get("label")
            if isinstance(label, str) and label:
                labels[facts.target] = label
            else:
                labels.pop(facts.target, None)
        return labels

    def append(self, entry: Appendable) -> Result:
        """Append one entry (store.md A3).

        Raises what :func:`~agentsession_cas.core.accept.prepare` raises, NoRaise, and ReadOnly for a store's session,
        which grows through the store's writer.
        """
        self._require_own()
        prepared = prepare(
            self.source, self.header, self.leaf, Draft.of(entry), now=self._clock, elsewhere=self._elsewhere
        )
        self._land([prepared])
        return Result.of(prepared, durable=False)

    def append_batch(self, entries: Iterable[Appendable]) -> list[Result]:
        """Append entries, all of them or, when one is refused, none (store.md A3)."""
        self._require_own()
        drafts = drafts_of(entries)
        batch = prepare_batch(self.source, self.header, self.leaf, drafts, now=self._clock, elsewhere=self._elsewhere)
        self._land(batch)
        return [Result.of(prepared, durable=False) for prepared in batch]

    def record_response(
        self, request: JsonObject, response: JsonObject, *, latency_ms: int | None = None
    ) -> list[Result]:
        """Append what a model call gave: its output items, then the response entry, as one batch (openresponses.md §2).

        ``request`` is the request as it was sent, so that its hash proves it; the last result is the response entry's.
        Raises BadInput for a response without ``output``, a list of items.
        """
        bodies = record_response_bodies(request, response, latency_ms)
        return self.append_batch([Draft(type_, body) for type_, body in bodies])

    def _require_own(self) -> MemorySource:
        if not isinstance(self.source, MemorySource):
            raise ReadOnly(
                "this session is a view of a store's", where=self.id, next_step="open_session() gives one to append to"
            )
        return self.source

    def _land(self, batch: list[Prepared]) -> None:
        """Take what was prepared. The header is raised first: after that nothing can refuse."""
        news = [prepared for prepared in batch if not prepared.held]
        if not news:
            return
        source = self._require_own()
        self.header = raised_for_append(source, self.header)
        for prepared in news:
            source.add(prepared.entry, prepared.parent_position)
        self.leaf = batch[-1].head_after

    def branch(self, entry_id: str) -> None:
        """Move the leaf to an entry, in memory alone. Raises NoEntry, BaseRule, HeadTarget."""
        position = self.position(entry_id)
        to = self.source.entry_id(position) if position >= 0 else ROOT
        check_rest(self.source, to)
        self.leaf = to

    def reset_leaf(self) -> None:
        """Move the leaf to the universal root, in memory alone. Raises BaseRule in a session with a base."""
        self.branch(ROOT)

    def mark_leaf(self) -> Draft:
        """The leaf label that makes the current leaf durable (format.md §2). Raises NoEntry when there is no leaf."""
        if self.leaf == ROOT:
            raise NoEntry("there is no leaf to mark: the head is the universal root")
        return Draft("label", {"label": "leaf", "target": self.leaf}, parent=self.leaf)

    def head_label(self, expected: str, to: str) -> Draft:
        """The leaf label that moves the head from ``expected`` to ``to``, once it is appended (store.md A4).

        Either may be "", the universal root. Raises HeadMoved first, then NoEntry, BaseRule or HeadTarget.
        """
        check_head_move(self.source, self.leaf, expected, to)
        return Draft("label", {"label": "leaf", "target": to or None}, parent=to or None)
