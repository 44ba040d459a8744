"""Who is above whom: whether an entry is on the path to another, at a cost that hardly grows with the session.

A session is long runs of entries that each hang from the one before, with a turn here and there. An :class:`Ancestry`
keeps the runs alone, each with the run it hangs from and one it may jump to further up, so that a question takes as
many steps as the number of turns has digits. It is told of positions as they are added and knows nothing else of them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

__all__ = ["Ancestry"]


class Ancestry:
    """The tree over positions 0..size-1. A position is added once, after its parent."""

    __slots__ = ("_above", "_depths", "_jumps", "_parents", "_starts", "size")

    def __init__(self) -> None:
        self.size = 0
        self._starts = array("q")
        """Where each run begins, ascending."""
        self._parents = array("q")
        """The position each run hangs from, -1 for the universal root."""
        self._above = array("q")
        """The run that holds that position; itself at the root."""
        self._jumps = array("q")
        """A run further up the same path; itself at the root."""
        self._depths = array("q")

    def add(self, parent: int) -> None:
        """Add the next position, below ``parent`` (-1: the universal root)."""
        position = self.size
        self.size += 1
        if parent == position - 1 and position:
            return
        run = len(self._starts)
        above = self._run_of(parent) if parent >= 0 else run
        self._starts.append(position)
        self._parents.append(parent)
        self._above.append(above)
        if above == run:
            self._jumps.append(run)
            self._depths.append(0)
            return
        depths, jumps = self._depths, self._jumps
        near = jumps[above]
        far = jumps[near]
        # As far again as the run above jumps: what makes the longest jumps double.
        jumps.append(far if depths[above] - depths[near] == depths[near] - depths[far] else above)
        depths.append(depths[above] + 1)

    def cut(self, size: int) -> None:
        """Forget the positions from ``size`` on."""
        if size >= self.size:
            return
        self.size = size
        while self._starts and self._starts[-1] >= size:
            for column in (self._starts, self._parents, self._above, self._jumps, self._depths):
                column.pop()

    def is_above(self, position: int, leaf: int) -> bool:
        """Whether ``position`` is on the path to ``leaf``, which is on its own path."""
        if position < 0 or leaf < position:
            return False
        starts, jumps = self._starts, self._jumps
        run, left_at = self._run_of(leaf), leaf
        while starts[run] > position:
            jump = jumps[run]
            if starts[jump] > position and jump != run:
                run = jump
                continue
            left_at = self._parents[run]
            if left_at < 0:
                return False
            run = self._above[run]
        return position <= left_at

    def _run_of(self, position: int) -> int:
        return bisect_right(self._starts, position) - 1
