"""Entries in memory: a list that is an entry source, and a batch laid over any source.

Both only grow. Positions are file order; what an entry may hang from was decided before it is added here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentsession_cas.core.ancestry import Ancestry
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.facts import Code, Facts, Flag, Kind, call_digest
from agentsession_cas.core.source import EntrySource

__all__ = ["MemorySource", "Overlay"]


class MemorySource:
    """Entries in a list, found by id, legacy id and call_id; adding one costs the same however many there are.

    ``base_count`` is how many of the first entries are another session's (format.md §1, Base).
    """

    __slots__ = (
        "_ancestry",
        "_by_call",
        "_by_id",
        "_by_legacy",
        "_continued",
        "_entries",
        "_parents",
        "_strays",
        "base_count",
    )

    def __init__(self, *, base_count: int = 0) -> None:
        self.base_count = base_count
        self._entries: list[Entry] = []
        self._parents: list[int] = []
        self._by_id: dict[str, int] = {}
        self._by_legacy: dict[str, int] = {}
        self._by_call: dict[int, list[int]] = {}
        self._strays: list[int] = []
        """Decisions and dispatches whose target is no entry with their call_id: a stored file may hold some."""
        self._continued = -1
        self._ancestry = Ancestry()

    def add(self, entry: Entry, parent: int) -> int:
        """Add an entry below the one at ``parent`` (-1: the universal root), not held before; its position."""
        position = len(self._entries)
        self._entries.append(entry)
        self._parents.append(parent)
        self._by_id[entry.id] = position
        facts = entry.facts
        if facts.code in (Code.DECISION, Code.DISPATCH) and self._is_stray(facts):
            self._strays.append(position)
        elif facts.kind == Kind.CONTINUED_IN:
            self._continued = position
        if facts.call:
            self._by_call.setdefault(facts.call, []).append(position)
        if facts.flags & Flag.LEGACY:
            legacy = entry.body.get("legacy_id")
            if isinstance(legacy, str):
                self._by_legacy.setdefault(legacy, position)
        return position

    def _is_stray(self, facts: Facts) -> bool:
        target = self.find(facts.target)
        return target < 0 or self._entries[target].facts.call != facts.call

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def find(self, entry_id: str) -> int:
        """The position of an entry id, or -1."""
        return self._by_id.get(entry_id, -1)

    def find_child(self, parent: int, entry_id: str) -> int:  # noqa: ARG002 - ids are found as fast without it
        """:meth:`find`."""
        return self.find(entry_id)

    def find_legacy(self, legacy_id: str) -> int:
        """The position of the first entry with that ``legacy_id``, or -1."""
        return self._by_legacy.get(legacy_id, -1)

    def entry_id(self, position: int) -> str:
        """The id at a position."""
        return self._entries[position].id

    def entry(self, position: int) -> Entry:
        """The entry at a position."""
        return self._entries[position]

    def parent(self, position: int) -> int:
        """The position of the parent, -1 for the universal root."""
        return self._parents[position]

    def facts(self, position: int) -> Facts:
        """The facts of the entry at a position."""
        return self._entries[position].facts

    def with_call(self, call_id: str) -> Sequence[int]:
        """Positions of the entries about that call, in file order."""
        named = self._by_call.get(call_digest(call_id), ())
        return [position for position in named if self._entries[position].call_id == call_id]

    def about_call(self, position: int) -> Sequence[int]:
        """Positions after a call's of what may belong to it."""
        return [each for each in self.with_digest(self._entries[position].facts.call) if each > position]

    def with_digest(self, call: int) -> Sequence[int]:
        """Positions of the entries with that digest of a call_id, and of those whose target may be anything."""
        named = self._by_call.get(call, [])
        return sorted({*named, *self._strays}) if self._strays else named

    def continued(self) -> int:
        """The position of the newest ``continued_in`` link, -1 for none or another session's."""
        return self._continued if self._continued >= self.base_count else -1

    def is_above(self, position: int, leaf: int) -> bool:
        """Whether ``position`` is on the path to ``leaf``."""
        ancestry = self._ancestry
        for parent in self._parents[ancestry.size :]:
            ancestry.add(parent)
        return ancestry.is_above(position, leaf)


class Overlay:
    """A source and, behind its entries, those of a batch not yet stored: what a later entry of the batch sees."""

    __slots__ = ("_added", "_size", "_source")

    def __init__(self, source: EntrySource) -> None:
        self._source = source
        self._size = len(source)
        self._added = MemorySource()

    def add(self, entry: Entry, parent: int) -> int:
        """Add an entry of the batch; the position it will have."""
        return self._size + self._added.add(entry, parent)

    @property
    def base_count(self) -> int:
        """The prefix is the source's."""
        return self._source.base_count

    def __len__(self) -> int:
        return self._size + len(self._added)

    def find(self, entry_id: str) -> int:
        """The position of an entry id, or -1."""
        position = self._source.find(entry_id)
        return position if position >= 0 else self._shifted(self._added.find(entry_id))

    def find_child(self, parent: int, entry_id: str) -> int:  # noqa: ARG002 - ids are found as fast without it
        """:meth:`find`."""
        return self.find(entry_id)

    def find_legacy(self, legacy_id: str) -> int:
        """The position of the entry with that ``legacy_id``, or -1."""
        position = self._source.find_legacy(legacy_id)
        return position if position >= 0 else self._shifted(self._added.find_legacy(legacy_id))

    def entry_id(self, position: int) -> str:
        """The id at a position."""
        return self.entry(position).id if position >= self._size else self._source.entry_id(position)

    def entry(self, position: int) -> Entry:
        """The entry at a position."""
        if position >= self._size:
            return self._added.entry(position - self._size)
        return self._source.entry(position)

    def parent(self, position: int) -> int:
        """The position of the parent, -1 for the universal root."""
        if position >= self._size:
            return self._added.parent(position - self._size)
        return self._source.parent(position)

    def facts(self, position: int) -> Facts:
        """The facts of the entry at a position."""
        if position >= self._size:
            return self._added.facts(position - self._size)
        return self._source.facts(position)

    def with_call(self, call_id: str) -> Sequence[int]:
        """Positions of the entries about that call, in file order."""
        return [*self._source.with_call(call_id), *(self._size + at for at in self._added.with_call(call_id))]

    def about_call(self, position: int) -> Sequence[int]:
        """Positions after a call's of what may belong to it."""
        added = [self._size + at for at in self._added.with_digest(self.facts(position).call)]
        if position < self._size:
            return [*self._source.about_call(position), *added]
        return [each for each in added if each > position]

    def continued(self) -> int:
        """The position of the newest ``continued_in`` link, -1 for none."""
        added = self._added.continued()
        return self._shifted(added) if added >= 0 else self._source.continued()

    def is_above(self, position: int, leaf: int) -> bool:
        """Whether ``position`` is on the path to ``leaf``: a batch is walked, what it is laid over is asked."""
        while leaf >= self._size and leaf > position:
            leaf = self.parent(leaf)
        return leaf == position >= 0 or (leaf < self._size and self._source.is_above(position, leaf))

    def _shifted(self, position: int) -> int:
        return position if position < 0 else self._size + position
