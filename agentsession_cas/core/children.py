"""Who hangs from whom, over any source: built when first asked for, extended as the source grows."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from agentsession_cas.core.source import EntrySource

__all__ = ["Children"]


class Children:
    """The children of every position, three integers an entry whatever the shape of the tree."""

    __slots__ = ("_first", "_last", "_next", "_source")

    def __init__(self, source: EntrySource) -> None:
        self._source = source
        # Slot 0 is the universal root, slot n + 1 the entry at position n; 0 means none.
        self._first = array("q", [0])
        self._last = array("q", [0])
        self._next = array("q", [0])

    def of(self, position: int) -> Iterator[int]:
        """The children of a position (-1: the universal root), in file order."""
        self._extend()
        child = self._first[position + 1]
        while child:
            yield child - 1
            child = self._next[child]

    def childless(self) -> Iterator[int]:
        """The positions nothing hangs from, in file order."""
        self._extend()
        return (slot - 1 for slot in range(1, len(self._first)) if not self._first[slot])

    def _extend(self) -> None:
        first, last, following = self._first, self._last, self._next
        for position in range(len(first) - 1, len(self._source)):
            first.append(0)
            last.append(0)
            following.append(0)
            slot, parent = position + 1, self._source.parent(position) + 1
            if last[parent]:
                following[last[parent]] = slot
            else:
                first[parent] = slot
            last[parent] = slot
