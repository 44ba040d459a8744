"""Where threads are kept (ledger.md): the protocol, what every journal of transactions has in common, one in memory.

Owns that an operation is one transaction, and that a thread is what its journal replays to. A backend owns how a
transaction gets into a journal, and in which order it comes out.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Protocol

from agentsession_cas.core.given import as_callback, require_text
from agentsession_cas.core.timestamps import canonical_ts
from agentsession_cas.ledger.journal import (
    Hydrated,
    JournalEntry,
    add_turn,
    replay,
    update_control,
    update_parent,
    update_tip,
)
from agentsession_cas.ledger.thread import Clock, wall_clock
from agentsession_cas.ledger.turn import Turn

__all__ = ["Journaled", "MemoryRepository", "Repository"]


class Repository(Protocol):
    """Keeps the state of threads as append-only journals. A thread is named by any text that is not empty."""

    def save_turn(self, thread_id: str, turn: Turn) -> None:
        """Create a turn, or replace the one of its id; the tip stays."""

    def update_thread_tip(self, thread_id: str, turn_id: str) -> None:
        """Move the tip."""

    def update_turn_control(self, thread_id: str, turn_id: str, control: str) -> None:
        """Give a turn another traversal control."""

    def update_turn_parent(self, thread_id: str, turn_id: str, parent_id: str) -> None:
        """Hang a turn under another, which need not be there."""

    def hydrate_thread(self, thread_id: str) -> Hydrated:
        """The turns and the tip of a thread; none of either for one that was never written."""


class Journaled(ABC):
    """A repository over a journal of its own kind. ``clock`` gives each transaction its time."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = as_callback(clock, "clock") or wall_clock

    @abstractmethod
    def journal(self, thread_id: str) -> list[JournalEntry]:
        """The transactions of a thread in order, up to the first that is malformed; none for one never written."""

    @abstractmethod
    def _record(self, thread_id: str, entry: JournalEntry) -> None:
        """Append a transaction, durably where the backend is."""

    def save_turn(self, thread_id: str, turn: Turn) -> None:
        """Create a turn, or replace the one of its id; the tip stays."""
        self._record(_checked(thread_id), add_turn(self._now(), turn))

    def update_thread_tip(self, thread_id: str, turn_id: str) -> None:
        """Move the tip."""
        self._record(_checked(thread_id), update_tip(self._now(), turn_id))

    def update_turn_control(self, thread_id: str, turn_id: str, control: str) -> None:
        """Give a turn another traversal control."""
        self._record(_checked(thread_id), update_control(self._now(), turn_id, control))

    def update_turn_parent(self, thread_id: str, turn_id: str, parent_id: str) -> None:
        """Hang a turn under another, which need not be there."""
        self._record(_checked(thread_id), update_parent(self._now(), turn_id, parent_id))

    def hydrate_thread(self, thread_id: str) -> Hydrated:
        """The turns and the tip of a thread; none of either for one that was never written."""
        return replay(self.journal(_checked(thread_id)))

    def _now(self) -> str:
        return canonical_ts(self._clock())


def _checked(thread_id: str) -> str:
    return require_text(thread_id, "thread_id")


class MemoryRepository(Journaled):
    """Journals in memory, for tests and for threads never kept. Threads of execution may share it."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._journals: dict[str, list[JournalEntry]] = {}
        self._mutex = threading.Lock()

    def journal(self, thread_id: str) -> list[JournalEntry]:
        """A copy of the transactions of a thread, in order."""
        with self._mutex:
            return list(self._journals.get(_checked(thread_id), ()))

    def _record(self, thread_id: str, entry: JournalEntry) -> None:
        with self._mutex:
            self._journals.setdefault(thread_id, []).append(entry)
