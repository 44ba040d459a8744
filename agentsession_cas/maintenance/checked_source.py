"""A session's entries for a check that asks for each of them several times.

Owns that those which were checked first stay in memory as long as there is room, with their facts: what walks over the
entries afterwards begins with them. Must not: decide what is checked.
"""

from __future__ import annotations

from typing import Any

from agentsession_cas.core.contexthash import context_hash_at
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.facts import Facts
from agentsession_cas.core.identity import ROOT
from agentsession_cas.core.rows import Row
from agentsession_cas.sessions.rowentry import ROW_TYPES, row_entry
from agentsession_cas.sessions.source import hash_of
from agentsession_cas.sessions.walksource import ENTRY_SIZE, FACTS_MAX, KEPT_MAX, WalkSource

__all__ = ["CheckedSource"]


class CheckedSource(WalkSource):
    """A row source that has at hand the entries that were checked."""

    def keep(self, position: int, entry: Entry) -> None:
        """Keep a checked entry while there is room."""
        if self._has_room(len(entry.content)):
            self._entries[position] = entry

    def keep_plain(
        self, position: int, row: Row, above: bytes, content: bytes, body: dict[str, Any], facts: Facts
    ) -> None:
        """:meth:`keep` of the entry of a row that its envelope follows from, whose body was parsed.

        ``above`` is the parent's id, raw, b"" for a child of the root.
        """
        if len(self._facts) < FACTS_MAX:
            self._facts[position] = facts
        if self._has_room(len(content)):
            id_, parent = hash_of(row.entry), hash_of(above) if above else ROOT
            entry = row_entry(id_, ROW_TYPES[row.code], parent, row.ts, row.content, self._body)
            entry.fill(content, body, facts)
            self._entries[position] = entry

    def _has_room(self, size: int) -> bool:
        """Whether an entry with a body of so many bytes may be kept, which takes the room."""
        if self._size + size + ENTRY_SIZE > KEPT_MAX:
            return False
        self._size += size + ENTRY_SIZE
        return True

    def context_at(self, position: int, at_base: str) -> str:
        """The context hash at a position, -1 not among them; ``at_base`` is the one at the base."""
        if position >= self.base_count:
            return hash_of(self.context_digest(position))
        return at_base if position == self.base_count - 1 else context_hash_at(self, position)

    def digest_at(self, number: int) -> bytes:
        """The id that row ``number`` has, raw."""
        return self._id_at(number)

    def is_first(self, digest: bytes, number: int) -> bool:
        """Whether no row before ``number`` has that id, nor the prefix; the row itself has."""
        prefix = self._prefix
        if prefix is not None and prefix.place(prefix.source.find(hash_of(digest))) >= 0:
            return False
        return self._ids.first(digest) == number
