"""The rows of a session by entry id, read from the end backwards and no further than what is asked for.

What an append names is mostly near the head; so the index begins with the newest rows, and each time that is not enough
it goes on over as many older ones again. Follows the rows of one table, which the owner pushes and cuts; several
threads may ask. Must not: know positions, or anything of a prefix.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

from agentsession_cas.core.rows import NO_DIGEST
from agentsession_cas.sessions.log import RowTable

__all__ = ["FIRST_ROWS", "IdIndex"]

FIRST_ROWS: Final = 2048
"""So many of the newest rows are read first."""
_ID_COLUMN: Final = 0


class IdIndex:
    """Rows ``low`` to ``high`` of a table by the first 32 bits of their id; those that share them are all looked at."""

    __slots__ = ("_guard", "_high", "_low", "_numbers", "_table")

    def __init__(self, table: RowTable) -> None:
        self._table = table
        self._numbers: dict[int, int | list[int]] = {}
        self._low = self._high = -1
        self._guard = threading.Lock()

    def find(self, digest: bytes, first: int = 0) -> int:
        """The row of the entry with a raw id, -1 for none; rows before ``first`` need not be looked at.

        Raises Damaged for a row that does not read.
        """
        if digest == NO_DIGEST:
            return -1  # what the rows hold that are no entry
        if self._high != len(self._table):
            self._follow()
        number = self._known(digest)
        while number < 0 and self._low > first:
            self._reach_back()
            number = self._known(digest)
        return number

    def first(self, digest: bytes) -> int:
        """:meth:`find`, and of rows that have the same id, which is damage, the first."""
        if self.find(digest) < 0:
            return -1
        while self._low > 0:
            self._reach_back()
        return min(self._matches(digest))

    def cut(self, count: int) -> None:
        """Forget the rows from ``count`` on, which the table still has."""
        if self._high <= count:
            return
        with self._guard:
            for number in range(max(count, self._low), self._high):
                self._remove(int.from_bytes(self._id_at(number)[:4], "little"), number)
            self._low, self._high = min(self._low, count), count

    def _known(self, digest: bytes) -> int:
        return next(self._matches(digest), -1)

    def _matches(self, digest: bytes) -> Iterator[int]:
        found = self._numbers.get(int.from_bytes(digest[:4], "little"), ())
        numbers = (found,) if isinstance(found, int) else found
        return (number for number in numbers if self._id_at(number) == digest)

    def _id_at(self, number: int) -> bytes:
        buffer, offset = self._table.locate(number)
        return buffer[offset : offset + 32]

    def _follow(self) -> None:
        """Add the rows that came; at first, begin at the end."""
        with self._guard:
            end = len(self._table)
            if self._high < 0:
                self._low = self._high = end
            self._add(self._high, end)
            self._high = end

    def _reach_back(self) -> None:
        with self._guard:
            low = max(0, self._low - max(FIRST_ROWS, self._high - self._low))
            self._add(low, self._low)
            self._low = low

    def _add(self, start: int, end: int) -> None:
        (words,) = self._table.words(_ID_COLUMN, start=start, end=end)
        numbers = self._numbers
        for number, word in enumerate(words, start):
            known = numbers.setdefault(word, number)
            if isinstance(known, list):
                known.append(number)
            elif known != number:
                numbers[word] = [known, number]

    def _remove(self, word: int, number: int) -> None:
        known = self._numbers[word]
        if isinstance(known, list):
            known.remove(number)
        else:
            del self._numbers[word]
