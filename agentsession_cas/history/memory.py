"""Conversations in memory: for tests, and for those never kept (history.md H1)."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from agentsession_cas.core.given import require
from agentsession_cas.errors import AppendConflict, ConversationClosed
from agentsession_cas.history.batch import Batch, Message, Receipt
from agentsession_cas.history.ids import ConversationId

__all__ = ["MemoryStore", "check_retry", "closed"]


@dataclass(slots=True)
class _Conversation:
    batches: list[Batch] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)


class MemoryStore:
    """A conversation store without a disk. Threads of execution may share it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._open: dict[str, _Conversation] = {}
        self._closed: set[str] = set()

    def append(self, batch: Batch) -> Receipt:
        """Accept a batch once. Raises AppendConflict, ConversationClosed."""
        require(batch, Batch, "what is appended", "make a Batch")
        with self._mutex:
            if batch.conversation in self._closed:
                raise closed(batch.conversation)
            held = self._open.get(batch.conversation, _Conversation())
            if not check_retry(batch, held.digests.get(batch.append_id)):
                self._open[batch.conversation] = held
                held.batches.append(batch)
                held.digests[batch.append_id] = batch.digest
        return Receipt.of(batch)

    def read(self, conversation: str) -> list[Message]:
        """The messages in stored order, a copy."""
        with self._mutex:
            held = self._open.get(ConversationId(conversation), _Conversation())
            batches = list(held.batches)
        return [message for batch in batches for message in batch.messages]

    def clear(self, conversation: str) -> None:
        """Close a conversation for ever."""
        checked = ConversationId(conversation)
        with self._mutex:
            self._closed.add(checked)
            self._open.pop(checked, None)

    def conversations(self) -> list[str]:
        """The ids of those open, sorted."""
        with self._mutex:
            return sorted(self._open)


def check_retry(batch: Batch, digest: str | None) -> bool:
    """Whether a batch was accepted before, given the digest held under its name. Raises AppendConflict."""
    if digest is not None and digest != batch.digest:
        raise AppendConflict(
            "the append id already names other messages",
            where=f"conversation {batch.conversation}, append {batch.append_id}",
            next_step="take a new append id for new messages",
        )
    return digest is not None


def closed(conversation: str) -> ConversationClosed:
    """The error of a conversation that was cleared."""
    return ConversationClosed(
        "the conversation was closed for ever", where=conversation, next_step="begin one of another id"
    )
