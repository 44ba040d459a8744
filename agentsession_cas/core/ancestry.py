"""Who is above whom: whether an entry is on the path to another, and the path, at a cost that hardly grows with either.

A session is long runs of entries that each hang from the one before, with a turn here and there. An :class:`Ancestry`
keeps the runs alone, each with the run it hangs from and one it may jump to further up, so that a question takes as
many steps as the number of turns has digits. It is told of positions as they are added and knows nothing else of them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

__all__ = ["Ancestry", "RunPath"]


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

    def add_run(self, count: int) -> None:
        """Add so many positions, each below the one before; one was added already."""
        assert self.size
        self.size += count

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

    def path(self, leaf: int) -> RunPath:
        """The path to a position."""
        runs: list[range] = []
        while leaf >= 0:
            run = self._run_of(leaf)
            runs.append(range(self._starts[run], leaf + 1))
            leaf = self._parents[run]
        return RunPath(runs[::-1])

    def _run_of(self, position: int) -> int:
        return bisect_right(self._starts, position) - 1


class RunPath:
    """The positions of a path, root first, as runs of positions that follow each other. Never changes."""

    __slots__ = ("_before", "_ends", "_starts")

    def __init__(self, runs: Sequence[range]) -> None:
        """``runs`` are not empty and ascend."""
        self._starts = array("q", [run.start for run in runs])
        self._ends = array("q", [run.stop for run in runs])
        self._before = array("q", accumulate(map(len, runs), initial=0))
        """How many positions of the path come before each run; behind the last, how many there are."""

    def __len__(self) -> int:
        return self._before[-1]

    def __getitem__(self, index: int) -> int:
        """The position at a place on the path, 0 being its root."""
        run = bisect_right(self._before, index) - 1
        return self._starts[run] + index - self._before[run]

    def index(self, position: int) -> int:
        """The place of a position on the path, -1 when it is not on it."""
        run = bisect_right(self._starts, position) - 1
        if run < 0 or position >= self._ends[run]:
            return -1
        return self._before[run] + position - self._starts[run]
