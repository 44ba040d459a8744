"""Context hashes of entries whose rows do not hold them: from the nearest above that does, by the bodies between.

Owns a bounded memory of what was worked out. Iterates over paths; only a compaction asks again, for the entry it keeps
from, and never through another one whose hash is known. Must not: trust a hash it was not given or has not made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agentsession_cas.core.contexthash import CONTRIBUTING, EMPTY_CONTEXT_HASH, next_context_hash
from agentsession_cas.core.source import EntrySource

__all__ = ["ContextHashes"]

_REMEMBERED_MAX: Final = 4096


class ContextHashes:
    """The context hashes (store.md A13) of a source. ``known`` gives the one at a position, "" where it has none."""

    def __init__(self, source: EntrySource, known: Callable[[int], str]) -> None:
        self._source = source
        self._known = known
        self._made: dict[int, str] = {}

    def at(self, position: int) -> str:
        """The context hash at a position; loads the bodies from the nearest known one above on."""
        source, current = self._source, ""
        path: list[int] = []
        while position >= 0 and not current:
            current = self._made.get(position) or self._known(position)
            if not current:
                path.append(position)
                position = source.parent(position)
        current = current or EMPTY_CONTEXT_HASH
        if len(self._made) + len(path) > _REMEMBERED_MAX:
            self._made.clear()
        for at in reversed(path):
            current = self._next(at, current)
            self._made[at] = current
        return current

    def _next(self, position: int, before: str) -> str:
        source = self._source
        if source.facts(position).code not in CONTRIBUTING:
            return before
        entry, parent = source.entry(position), source.parent(position)

        def resolve(entry_id: str) -> tuple[str, str] | None:
            found = source.find(entry_id)
            if found < 0 or not source.is_above(found, parent):
                return None
            return self.at(found), source.entry(found).type

        return next_context_hash(before, entry.type, entry.body, entry.content_hash, resolve)
