"""The tree of a session as lines to the left of a log, newest entry first, as git draws it.

Pure. A column waits for the entry that hangs under what it last showed; where columns wait for the same entry they run
into the leftmost of them.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Graph", "Rail"]


class Rail(NamedTuple):
    """What stands left of an entry: lines that join branches above it, and its own."""

    above: list[str]
    beside: str


class Graph:
    """Rails for entries given newest first, each before its parent."""

    def __init__(self) -> None:
        self._waiting: list[int] = []

    def rail(self, position: int, parent: int) -> Rail:
        """The rail of the entry at ``position``; ``parent`` is -1 when it hangs from the universal root."""
        mine = [column for column, waited in enumerate(self._waiting) if waited == position]
        if not mine:
            mine = [len(self._waiting)]
            self._waiting.append(position)
        above = self._join(mine)
        beside = " ".join("*" if column == mine[0] else "|" for column in range(len(self._waiting)))
        if parent < 0:
            del self._waiting[mine[0]]
        else:
            self._waiting[mine[0]] = parent
        return Rail(above, beside)

    def _join(self, mine: list[int]) -> list[str]:
        """Bring every column of an entry into the leftmost, the rightmost first; a line for each column it crosses."""
        above: list[str] = []
        for column in reversed(mine[1:]):
            del self._waiting[column]
            rails = list(" ".join("|" * len(self._waiting)))
            for crossed in range(column, mine[0], -1):
                line = [*rails, " "]
                line[2 * crossed - 1] = "/"
                above.append("".join(line).rstrip())
        return above
