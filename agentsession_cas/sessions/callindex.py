"""The rows of a session by the call they are about, read from the end backwards and no further than what is asked for.

What an append says of a call asks for the rows behind that call, which is mostly near the head. Whether any row at all
is about a call is told by the digests alone, of all rows, which take less than an index. Follows the rows of one table,
which the owner pushes and cuts; several threads may ask. Must not: know positions, or anything of a prefix.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Mapping, Sequence
from typing import Final

from agentsession_cas.core.facts import Code
from agentsession_cas.core.rows import REF_ELSEWHERE, ROW_SIZE, Row, row_of_ref
from agentsession_cas.sessions.idindex import FIRST_ROWS
from agentsession_cas.sessions.log import RowTable

__all__ = ["CallIndex"]

_TARGET_COLUMN: Final = 26
_CODE_COLUMN: Final = 29
_CALL_COLUMN: Final = 30
_HANDLED: Final = frozenset({int(Code.DECISION), int(Code.DISPATCH)})


class CallIndex:
    """Rows ``low`` to ``high`` of a table by the digest of their call, and the strays among them.

    A *stray* is a decision or a dispatch that does not name a row of its own call: another, or one inside the prefix.
    """

    __slots__ = ("_digests", "_guard", "_high", "_low", "_numbers", "_strays", "_table")

    def __init__(self, table: RowTable) -> None:
        self._table = table
        self._numbers: dict[int, list[int]] = {}
        self._strays: list[int] = []
        self._digests: set[int] | None = None
        """The digests of all rows, and perhaps some of rows that were cut; None before they are needed."""
        self._low = self._high = -1 if len(table) else 0
        self._guard = threading.Lock()

    def numbers(self, digest: int) -> Sequence[int]:
        """The rows about a call, none for digest 0, ascending. Raises Damaged for a row that does not read."""
        self._reach(len(self._table))
        if digest not in self._numbers and self._low and digest not in self._all_digests():
            return ()
        self._reach(0)
        return self._numbers.get(digest, ())

    def numbers_behind(self, number: int, digest: int) -> list[int]:
        """The rows behind row ``number`` that are about a call or are strays, ascending. Raises as :meth:`numbers`."""
        self._reach(number + 1)
        found = {at for at in (*self._numbers.get(digest, ()), *self._strays) if at > number}
        return sorted(found)

    @property
    def known(self) -> Container[int] | None:
        """The digests of all rows, if they are at hand, and perhaps more; else None."""
        if self._high != len(self._table):
            return None
        return self._digests if self._low else self._numbers

    def push(self, number: int, row: Row) -> None:
        """Follow a row that the table got."""
        if self._high == number:
            self._high = number + 1
            if row.call:
                self._numbers.setdefault(row.call, []).append(number)
                if self._digests is not None:
                    self._digests.add(row.call)
            if row.code in _HANDLED and self._is_stray(row.target, row.call):
                self._strays.append(number)

    def extend(self, first: int, count: int, calls: Mapping[int, list[int]]) -> None:
        """Follow rows of items; ``calls``: numbers of those about a call by its digest."""
        if self._high == first:
            self._high = first + count
            for call, numbers in calls.items():
                self._numbers.setdefault(call, []).extend(numbers)
            if self._digests is not None:
                self._digests.update(calls)

    def cut(self, count: int) -> None:
        """Forget the rows from ``count`` on, which the table still has."""
        if self._high <= count:
            return
        with self._guard:
            for number in range(max(count, self._low), self._high):
                call = self._table.row(number).call
                if call:
                    self._numbers[call].remove(number)
            while self._strays and self._strays[-1] >= count:
                self._strays.pop()
            self._low, self._high = min(self._low, count), count

    def _all_digests(self) -> set[int]:
        with self._guard:
            if self._digests is None:
                digests = set(self._numbers)
                for rows in self._table.spans(0, self._low):
                    digests.update(rows.cast("I")[_CALL_COLUMN :: ROW_SIZE // 4].tolist())
                self._digests = digests
            return self._digests

    def _reach(self, low: int) -> None:
        """Have the rows from ``low`` on, at least, up to the end."""
        with self._guard:
            end = len(self._table)
            if self._high < 0:
                self._low = self._high = end
            if self._high < end:
                self._add(self._high, end)
                self._high = end
            if low < self._low:
                low = max(0, min(low, self._low - max(FIRST_ROWS, self._high - self._low)))
                self._add(low, self._low)
                self._low = low

    def _add(self, start: int, end: int) -> None:
        """Add rows before or behind those that are there."""
        table = self._table
        calls, codes, targets = table.words(_CALL_COLUMN, _CODE_COLUMN, _TARGET_COLUMN, start=start, end=end)
        numbers: dict[int, list[int]] = {}
        strays: list[int] = []
        for number, (call, code, ref) in enumerate(zip(calls, codes, targets, strict=True), start):
            if call:
                numbers.setdefault(call, []).append(number)
            if code & 0xFF in _HANDLED:
                at = row_of_ref(ref) - start
                named = calls[at] == call if 0 <= at < len(calls) else not self._is_stray(ref, call)
                if not named:
                    strays.append(number)
        before = start < self._low
        for call, found in numbers.items():
            known = self._numbers.get(call)
            if known is None:
                self._numbers[call] = found
            elif before:
                self._numbers[call] = found + known
            else:
                known += found
        self._strays = strays + self._strays if before else self._strays + strays
        if self._digests is not None and not before:
            self._digests.update(numbers)

    def _is_stray(self, ref: int, call: int) -> bool:
        """Whether what a decision or a dispatch names is no row with its call: another, or inside the prefix."""
        target = row_of_ref(ref) if ref != REF_ELSEWHERE else -1
        return (self._table.row(target).call if target >= 0 else 0) != call
