"""A session's entries for a check that asks for each of them several times.

Owns which entries stay in memory: those that were checked first, up to a bound in bytes of bodies, the facts of as many
rows, and every parent, 8 bytes each. An entry and a row never change, and what is kept was verified. Must not: decide
what is checked.
"""

from __future__ import annotations

from array import array
from functools import partial
from typing import Any, Final

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.facts import Facts
from agentsession_cas.core.identity import ROOT
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.rows import REF_BASE, REF_ROOT, Row, RowCode, ref_to
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.log import RowTable
from agentsession_cas.sessions.prefix import Prefix
from agentsession_cas.sessions.rowentry import ROW_TYPES, row_entry
from agentsession_cas.sessions.source import RowSource, hash_of

__all__ = ["CheckedSource"]

KEPT_MAX: Final = 8 << 20
"""Bytes of bodies kept: a session of everyday size fits."""
ENTRY_SIZE: Final = 600
"""What an entry weighs beside its body, about."""
FACTS_MAX: Final = 1 << 16


class CheckedSource(RowSource):
    """A row source that has at hand the entries that were checked."""

    def __init__(self, table: RowTable, objects: ObjectDatabase, base: str, prefix: Prefix | None) -> None:
        super().__init__(table, objects, base, prefix)
        self._objects_get = partial(objects.get, Space.CONTENTS)
        self._room = KEPT_MAX
        self._kept: dict[int, Entry] = {}
        self._facts: dict[int, Facts] = {}
        self._parents = array("q")

    def keep(self, position: int, entry: Entry) -> None:
        """Keep a checked entry while there is room."""
        size = len(entry.content) + ENTRY_SIZE
        if size <= self._room:
            self._room -= size
            self._kept[position] = entry

    def keep_plain(
        self, position: int, row: Row, above: bytes, content: bytes, body: dict[str, Any], facts: Facts
    ) -> None:
        """:meth:`keep` of the entry of a row that its envelope follows from, whose body was parsed.

        ``above`` is the parent's id, raw, b"" for a child of the root.
        """
        if len(self._facts) < FACTS_MAX:
            self._facts[position] = facts
        size = len(content) + ENTRY_SIZE
        if size <= self._room:
            self._room -= size
            id_, parent = hash_of(row.entry), hash_of(above) if above else ROOT
            entry = row_entry(id_, ROW_TYPES[row.code], parent, row.ts, row.content, self._objects_get)
            entry.fill(content, body, facts)
            self._kept[position] = entry

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

    def digest_at(self, number: int) -> bytes:
        """The id that row ``number`` has, raw."""
        return self._id_at(number)

    def is_first(self, digest: bytes, number: int) -> bool:
        """Whether no row before ``number`` has that id, nor the prefix; the row itself has."""
        prefix = self._prefix
        if prefix is not None and prefix.place(prefix.source.find(hash_of(digest))) >= 0:
            return False
        return self._ids.first(digest) == number

    def entry(self, position: int) -> Entry:
        """As ``RowSource.entry``."""
        return self._kept.get(position) or super().entry(position)

    def facts(self, position: int) -> Facts:
        """As ``RowSource.facts``."""
        found = self._facts.get(position)
        if found is None:
            found = super().facts(position)
            if len(self._facts) < FACTS_MAX:
                self._facts[position] = found
        return found
