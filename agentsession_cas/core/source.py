"""Where a session's entries come from: the one interface every walk, rule and context is written against.

Entries have positions in file order: the prefix root first, then own entries in log order. -1 stands for the universal
root. A list in memory and a store's rows both are sources; bodies load when an entry is asked for its body, not before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.facts import Code, Facts

__all__ = ["EntrySource", "Enumerable", "Linked", "every_entry", "own_links", "path_positions", "walk_back"]


class EntrySource(Protocol):
    """Entries by position (0-based, file order). A caller never passes a position outside 0..len-1."""

    @property
    def base_count(self) -> int:
        """How many entries are the prefix: positions 0..base_count-1; the base is the last of them."""

    def __len__(self) -> int: ...

    def find(self, entry_id: str) -> int:
        """The position of an entry id, or -1."""

    def find_child(self, parent: int, entry_id: str) -> int:
        """:meth:`find` for an id that only a child of position ``parent`` can have: what an append asks."""

    def find_legacy(self, legacy_id: str) -> int:
        """The position of the entry with that ``legacy_id``, or -1 (format.md §11)."""

    def entry_id(self, position: int) -> str:
        """The id at a position, without loading its body."""

    def entry(self, position: int) -> Entry:
        """The entry at a position; its body loads when it is asked for."""

    def parent(self, position: int) -> int:
        """The position of the parent, -1 for the universal root."""

    def facts(self, position: int) -> Facts:
        """What is known of an entry without its body."""

    def with_call(self, call_id: str) -> Sequence[int]:
        """Positions, in file order, of every entry with that call_id: calls, outputs, decisions, dispatches, links."""

    def about_call(self, position: int) -> Sequence[int]:
        """Positions after a call's, in file order, among which is every entry of any branch that may belong to it.

        Costs what is found, not what the session holds; no body is loaded. The entry decides whether it does.
        """

    def continued(self) -> int:
        """The position of the session's own newest ``continued_in`` link, -1 for none. Costs no walk."""

    def is_above(self, position: int, leaf: int) -> bool:
        """Whether ``position`` is on the path to ``leaf``; never for the universal root. Costs no walk."""


@runtime_checkable
class Enumerable(Protocol):
    """A source that gives its entries one after the other for less than one by one."""

    def entries(self) -> Iterator[Entry]:
        """Every entry there is now, in file order."""


def every_entry(source: EntrySource) -> Iterator[Entry]:
    """Every entry of a source as it is now, in file order."""
    if isinstance(source, Enumerable):
        return source.entries()
    return (source.entry(position) for position in range(len(source)))


@runtime_checkable
class Linked(Protocol):
    """A source that tells its links without a look at every entry."""

    def links(self) -> Sequence[int]:
        """The positions of the session's own links, rising."""


def own_links(source: EntrySource) -> Sequence[int]:
    """The positions of a session's own links, rising."""
    if isinstance(source, Linked):
        return source.links()
    own = range(source.base_count, len(source))
    return [position for position in own if source.facts(position).code == Code.LINK]


def walk_back(source: EntrySource, position: int) -> Iterator[int]:
    """Positions from ``position`` to its root, nearest first; iterative, any length."""
    while position >= 0:
        yield position
        position = source.parent(position)


def path_positions(source: EntrySource, position: int) -> list[int]:
    """The path to ``position``, root first (format.md §1); empty for the universal root."""
    path = list(walk_back(source, position))
    path.reverse()
    return path
