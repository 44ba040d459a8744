"""What a store offers to those who watch its sessions being written (store.md A7).

Owns which files a follower reads and what it may name outside them; how it reads is ``sessions.follow``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from agentsession_cas.core.given import require
from agentsession_cas.errors import NoSession
from agentsession_cas.exchange.catalogue import Catalogue
from agentsession_cas.layout import Layout
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.follow import Follower
from agentsession_cas.sessions.follow_cursor import parse_cursor

__all__ = ["Watching"]


class Watching(ABC):
    """The part of a store that lets sessions be followed."""

    _layout: Layout
    _objects: ObjectDatabase
    _catalogue: Catalogue

    @abstractmethod
    def _require_open(self) -> None:
        """Raise Closed when the store was closed."""

    def follow(self, session: str, cursor: str | None = None, *, committed: bool = False) -> Follower:
        """Follow a session beside whoever writes it: no lock, nothing written (store.md A7).

        An iterator of :data:`~agentsession_cas.sessions.follow_changes.Change`: a Snapshot first, or what came after
        ``cursor``, which an earlier change carried; then each change as it lands. What is told is visible, and may be
        taken back by a crash: a Reset says so. ``committed`` tells only what is committed. Close it when done. Raises
        NoSession, at once or when the session is deleted, BadInput for what is no cursor.
        """
        self._require_open()
        known = parse_cursor(cursor) if cursor is not None else None
        if not self._catalogue.holds(session):
            raise NoSession("the store holds no such session", where=session)
        return Follower(
            self._layout.host,
            self._objects,
            self._layout.session_dir(session),
            session,
            prefix_of=self._catalogue.prefix_of,
            elsewhere=self._catalogue,
            require_open=self._require_open,
            cursor=known,
            committed=require(committed, bool, "committed"),
        )
