"""Runs of log rows: entries that each hang from the row directly before, told for many rows at once.

Most of a session is such runs, with a turn here and there; so what is asked of every row's parent is asked of many
rows at once. Pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from agentsession_cas.core.rows import ROW_SIZE, RowCode, ref_to

__all__ = ["is_run", "row_runs"]

_PARENT_COLUMN: Final = 24
_WIDTH: Final = ROW_SIZE // 4
_CODE_AT: Final = 116


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
    parents = rows.cast("I")[_PARENT_COLUMN::_WIDTH].tolist()
    codes = rows[_CODE_AT::ROW_SIZE].tobytes()
    above = ref_to(number - 1)
    before = range(above, above + len(parents))
    turns = {at for at, (parent, ref) in enumerate(zip(parents, before, strict=True)) if parent != ref}
    if not codes.isascii():
        others = [at for at, code in enumerate(codes) if code >= RowCode.HEAD]
        turns.update(others, [at + 1 for at in others if at + 1 < len(codes)])
    for start, end in pairwise(sorted({0, len(codes), *turns})):
        if codes[start] < RowCode.HEAD:
            yield number + start, parents[start], end - start - 1
