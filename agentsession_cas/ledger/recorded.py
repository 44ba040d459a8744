"""A thread that is kept as it changes: every change goes to a repository before it is seen (ledger.md)."""

from __future__ import annotations

from agentsession_cas.core.given import require_text
from agentsession_cas.ledger.repository import Repository
from agentsession_cas.ledger.thread import Clock, Thread
from agentsession_cas.ledger.turn import Turn

__all__ = ["RecordedThread"]


class RecordedThread(Thread):
    """A thread of a repository, as it was left; what is done to it is recorded there first.

    An append is two transactions, the turn and then the tip: a crash between them leaves the turn, and the tip before.
    """

    def __init__(self, repository: Repository, thread_id: str, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._repository = repository
        self.thread_id = require_text(thread_id, "thread_id")
        repository.hydrate_thread(thread_id).thread(self)

    def save_turn(self, turn: Turn) -> None:
        """Record and insert a turn, or replace the one of its id; the tip stays."""
        self._repository.save_turn(self.thread_id, turn)
        super().save_turn(turn)

    def set_control(self, turn_id: str, control: str) -> None:
        """Record and set a turn's traversal control; nothing happens when there is no such turn."""
        if turn_id in self._turns:
            self._repository.update_turn_control(self.thread_id, turn_id, control)
        super().set_control(turn_id, control)

    def set_parent(self, turn_id: str, parent_id: str) -> None:
        """Record that a turn hangs under another, and hang it there; nothing happens when there is no such turn."""
        if turn_id in self._turns:
            self._repository.update_turn_parent(self.thread_id, turn_id, parent_id)
        super().set_parent(turn_id, parent_id)

    def set_current_tip(self, turn_id: str) -> None:
        """Record and choose the turn the active path ends at."""
        self._repository.update_thread_tip(self.thread_id, turn_id)
        super().set_current_tip(turn_id)
