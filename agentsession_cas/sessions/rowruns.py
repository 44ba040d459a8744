"""Runs of log rows: entries that each hang from the row directly before, told for many rows at once.

Most of a session is such runs, with a turn here and there; so what is asked of every row's parent is asked of whole
pieces first. Pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from agentsession_cas.core.rows import ROW_SIZE, RowCode, ref_to

__all__ = ["is_run", "row_runs"]

_PARENT_COLUMN: Final = 24
_WIDTH: Final = ROW_SIZE // 4
_CODE_AT: Final = 116
_BLOCK: Final = 32
"""Rows looked at together where there is a turn."""


def is_run(rows: memoryview, number: int) -> bool:
    """Whether all of ``rows``, 128 bytes each, are entries that hang from the row before; ``number`` is the first's.

    The first row of a session hangs so from its base.
    """
    parents = rows.cast("I")[_PARENT_COLUMN::_WIDTH]
    above = ref_to(number - 1)
    if parents[0] != above or not rows[_CODE_AT::ROW_SIZE].tobytes().isascii():  # codes of no entry have the high bit
        return False
    return parents.tobytes() == array("I", range(above, above + len(parents))).tobytes()


def row_runs(rows: memoryview, number: int) -> Iterator[tuple[int, int, int]]:
    """The entries among ``rows``, of which ``number`` is the first: (a row, its parent, how many more behind it).

    Each of those behind hangs from the one before it.
    """
    count = len(rows) // ROW_SIZE
    if is_run(rows, number):
        yield number, ref_to(number - 1), count - 1
        return
    for first in range(0, count, _BLOCK):
        block = rows[first * ROW_SIZE : (first + _BLOCK) * ROW_SIZE]
        if is_run(block, number + first):
            yield number + first, ref_to(number + first - 1), len(block) // ROW_SIZE - 1
            continue
        parents = block.cast("I")[_PARENT_COLUMN::_WIDTH].tolist()
        codes = block[_CODE_AT::ROW_SIZE].tolist()
        for at, (parent, code) in enumerate(zip(parents, codes, strict=True), number + first):
            if code < RowCode.HEAD:
                yield at, parent, 0
