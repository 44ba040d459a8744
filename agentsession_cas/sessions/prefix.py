"""The path to a fork's base, in the source of the session that holds it: found when it is first needed.

Owns the numbering between places on the path and positions in that source. Making one reads nothing, so that a fork of
a long session is made and opened at once; what is found is runs of positions, so that it takes no memory either. A base
and all above it never change. Threads may share it. Writes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Protocol

from agentsession_cas.core.ancestry import RunPath
from agentsession_cas.core.source import EntrySource

__all__ = ["PathSource", "Prefix"]


class PathSource(EntrySource, Protocol):
    """Entries of a session that forks continue from."""

    @property
    def flags(self) -> int:
        """What any entry has of a row's flags, and perhaps more."""

    def path(self, position: int) -> RunPath:
        """The path to a position."""

    def context_digest(self, position: int) -> bytes:
        """The context hash (store.md A13) at a position, raw."""

    def close(self) -> None:
        """Let its files go."""


class Prefix:
    """The path to position ``base`` of ``source``."""

    __slots__ = ("_base", "_guard", "_path", "source")

    def __init__(self, source: PathSource, base: int) -> None:
        self.source = source
        self._base = base
        self._path: RunPath | None = None
        self._guard = threading.Lock()

    def __len__(self) -> int:
        """How many entries the prefix has. Raises what reading the rows does, Damaged and Closed among that."""
        return len(self._runs())

    def position(self, place: int) -> int:
        """The position in the source of a place on the path."""
        return self._runs()[place]

    def place(self, position: int) -> int:
        """The place on the path of a position in the source, -1 when it is not on it, or is -1 itself."""
        return self._runs().index(position) if 0 <= position <= self._base else -1

    def places(self, positions: Iterable[int]) -> list[int]:
        """The places of those positions that are on the path, in their order."""
        return [place for place in map(self.place, positions) if place >= 0]

    def _runs(self) -> RunPath:
        if self._path is None:
            with self._guard:
                self._path = self._path or self.source.path(self._base)
        return self._path
