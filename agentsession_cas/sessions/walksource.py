"""A session's entries for a walk over all of them, which asks for each several times and never far from the last.

Owns which entries and facts stay in memory: those asked for last, in bounds, and every parent, 8 bytes each. Bodies
load in the order they were stored in. An entry and a row never change, and what is kept was verified as it loaded. For
one thread. Must not: outlive the source it was made of.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final, Self

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.facts import Code, Facts
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.rows import REF_BASE, REF_ROOT, Row, RowCode, ref_to
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.log import RowTable
from agentsession_cas.sessions.prefix import Prefix
from agentsession_cas.sessions.source import RowSource

__all__ = ["WalkSource"]

KEPT_MAX: Final = 8 << 20
"""Bytes of bodies kept: a session of everyday size fits."""
ENTRY_SIZE: Final = 600
"""What an entry weighs beside its body, about."""
FACTS_MAX: Final = 1 << 14
_CODE_COLUMN: Final = 29
"""The 32-bit word of a row whose lowest byte is its code."""
_COLUMN_ROWS: Final = 1 << 14


class WalkSource(RowSource):
    """A row source that has at hand the entries asked for last. What is full is emptied and fills anew."""

    def __init__(self, table: RowTable, objects: ObjectDatabase, base: str, prefix: Prefix | None) -> None:
        super().__init__(table, objects, base, prefix)
        self._read = objects.in_order(Space.CONTENTS).get
        self._size = 0
        self._entries: dict[int, Entry] = {}
        self._facts: dict[int, Facts] = {}
        self._parents = array("q")
        self._last_row: tuple[int, Row | None] = (-1, None)

    @classmethod
    def of(cls, source: RowSource) -> Self:
        """A source of the same rows, of the same files."""
        return cls(source.table, source._objects, source.base, source._prefix)

    def entry(self, position: int) -> Entry:
        """As ``RowSource.entry``."""
        found = self._entries.get(position)
        if found is None:
            if self._size > KEPT_MAX:
                self._entries.clear()
                self._size = 0
            found = self._entries[position] = super().entry(position)
            self._size += ENTRY_SIZE
        return found

    def facts(self, position: int) -> Facts:
        """As ``RowSource.facts``."""
        found = self._facts.get(position)
        if found is None:
            if len(self._facts) >= FACTS_MAX:
                self._facts.clear()
            found = self._facts[position] = super().facts(position)
        return found

    def parent(self, position: int) -> int:
        """As ``RowSource.parent``, every one made at once."""
        if position < self.base_count:
            return position - 1
        if not self._parents:
            self._index_parents()
        return self._parents[position - self.base_count]

    def _index_parents(self) -> None:
        before = REF_BASE if self.base_count else REF_ROOT
        last = self.base_count - 1
        for number, row in enumerate(self.table.rows()):
            if row.code < RowCode.HEAD:
                self._parents.append(last if row.parent == before else self.position_of_ref(row.parent))
                before, last = ref_to(number), last + 1

    def links(self) -> list[int]:
        """The positions of the session's own links, rising: told by one column of the rows."""
        found: list[int] = []
        for start in range(0, len(self.table), _COLUMN_ROWS):
            end = min(start + _COLUMN_ROWS, len(self.table))
            (words,) = self.table.words(_CODE_COLUMN, start=start, end=end)
            found += [self.position(number) for number, word in enumerate(words, start) if word & 255 == Code.LINK]
        return found

    def _row(self, number: int) -> Row:
        known, row = self._last_row
        if known != number or row is None:
            row = super()._row(number)
            self._last_row = number, row
        return row

    def _fetcher(self, number: int) -> Callable[[bytes], bytes]:
        return super()._fetcher(number) if self.table.record(number) is not None else self._body

    def _body(self, digest: bytes) -> bytes:
        """A body, counted among what is kept."""
        data = self._read(digest)
        self._size += len(data)
        return data
