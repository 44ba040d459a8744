"""Conversations in memory: for tests, and for those never kept (history.md H1)."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from agentsession_cas.core.given import require
from agentsession_cas.errors import AppendConflict, ConversationClosed
from agentsession_cas.history.batch import Batch, Message, Receipt
from agentsession_cas.history.ids import ConversationId
from agentsession_cas.history.protocols import Note, Notes, Placed, Reading, note_id

__all__ = ["MemoryStore", "check_retry", "closed"]


@dataclass(slots=True)
class _Conversation:
    batches: list[Batch] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    notes: dict[str, Note] = field(default_factory=dict)


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
            return sorted(id for id, held in self._open.items() if held.batches)

    # --- a transcript ---

    def reading(self, conversation: str) -> Reading:
        """A conversation as it is now."""
        with self._mutex:
            held = self._open.get(ConversationId(conversation), _Conversation())
            batches, notes = list(held.batches), list(held.notes.items())
        return _MemoryReading([message for batch in batches for message in batch.messages], notes)

    def keep(self, conversation: str, notes: Sequence[Note]) -> None:
        """Keep notes as one step."""
        checked = ConversationId(conversation)
        with self._mutex:
            if checked in self._closed:
                raise closed(checked)
            held = self._open.setdefault(checked, _Conversation())
            for note in notes:
                held.notes.setdefault(note_id(note), Note(note.kind, json.loads(json.dumps(note.body))))

    def freeze(self, conversation: str, start: int, end: int) -> str:
        """Nothing: memory has no colder place."""
        del conversation, start, end
        return ""


class _MemoryReading:
    """Messages and notes, as they were."""

    def __init__(self, messages: list[Message], notes: list[tuple[str, Note]]) -> None:
        self._messages = messages
        self._notes = notes

    def count(self) -> int:
        return len(self._messages)

    def tail(self) -> Iterator[Message]:
        return reversed(self._messages)

    def range(self, start: int, end: int) -> list[Message]:
        return self._messages[max(start, 0) : max(end, 0)]

    def notes(self, kind: str, start: int = 0) -> Notes:
        found = (note for _, note in self._notes[start:])
        return Notes([copy.deepcopy(note.body) for note in found if note.kind == kind], len(self._notes))

    def latest(self, kind: str) -> Placed | None:
        return self._last(lambda _, note: note.kind == kind)

    def note(self, kind: str, id: str, place: int = -1) -> Placed | None:
        del place
        return self._last(lambda held, note: held == id and note.kind == kind)

    def _last(self, wanted: Callable[[str, Note], bool]) -> Placed | None:
        for place in range(len(self._notes) - 1, -1, -1):
            if wanted(*self._notes[place]):
                return Placed(copy.deepcopy(self._notes[place][1].body), place)
        return None


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
