"""What a session says as a conversation (history.md): its messages by number or from the end, the notes beside them.

Owns the entry types of this package and what each holds. A message is an item, or a ``history:message`` with its text;
messages are those on the path of the head. A receipt follows its key, and that the messages of its batch, in file
order; it says how many messages there were with it, so that counting costs what came since. Reads only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Final

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.source import walk_back
from agentsession_cas.core.tree import Session
from agentsession_cas.history.batch import Message
from agentsession_cas.history.protocols import Notes, Placed
from agentsession_cas.sessions.rowmaker import digest_of

__all__ = ["APPEND", "MESSAGE", "RECEIPT", "CasReading", "message_of"]

APPEND: Final = "history:append"
RECEIPT: Final = "history:receipt"
MESSAGE: Final = "history:message"
_TYPES: Final = frozenset({"item", MESSAGE})


def message_of(entry: Entry) -> Message | None:
    """The message an entry is, None for one that is none."""
    if entry.type == "item":
        item: Message = entry.body["item"]
        return item
    if entry.type == MESSAGE:
        message: Message = json.loads(entry.body["text"])
        return message
    return None


def _entries_back(session: Session) -> Iterator[Entry]:
    """The entries that are messages, from the newest to the first; no body is read."""
    source = session.source
    for position in walk_back(source, session.leaf_position):
        entry = source.entry(position)
        if entry.type in _TYPES:
            yield entry


class CasReading:
    """A conversation as a session was; None is one that is not there."""

    def __init__(self, session: Session | None) -> None:
        self._session = session

    def tail(self) -> Iterator[Message]:
        """The messages from the newest to the first, read as they are asked for."""
        entries = () if self._session is None else _entries_back(self._session)
        return (message for entry in entries if (message := message_of(entry)) is not None)

    def count(self) -> int:
        """How many messages there are; costs what came since the last receipt."""
        return 0 if self._session is None else _count(self._session)

    def range(self, start: int, end: int) -> list[Message]:
        """The messages ``start`` to before ``end``; no other body is read."""
        return [message for entry in self._entries(start, end) if (message := message_of(entry)) is not None]

    def contents(self, start: int, end: int) -> list[bytes]:
        """The digests of the bodies of messages ``start`` to before ``end``."""
        return [digest_of(entry.content_hash) for entry in self._entries(start, end)]

    def _entries(self, start: int, end: int) -> list[Entry]:
        total = self.count()
        start, end = max(start, 0), min(end, total)
        if self._session is None or start >= end:
            return []
        return list(islice(_entries_back(self._session), total - end, total - start))[::-1]

    def notes(self, kind: str, start: int = 0) -> Notes:
        """The notes of a kind, from an earlier answer's ``end`` on."""
        if self._session is None:
            return Notes([], 0)
        length, source = len(self._session), self._session.source
        found = (source.entry(position) for position in range(max(start, 0), length))
        return Notes([dict(entry.body["note"]) for entry in found if entry.type == f"history:{kind}"], length)

    def latest(self, kind: str) -> Placed | None:
        """The newest note of a kind; looked for from the end."""
        length = 0 if self._session is None else len(self._session)
        return next((found for at in range(length - 1, -1, -1) if (found := self._at(at, kind)) is not None), None)

    def note(self, kind: str, id: str, place: int = -1) -> Placed | None:
        """The note of an id; looked for where it was, then everywhere."""
        if self._session is None:
            return None
        source = self._session.source
        known = 0 <= place < len(source) and source.entry_id(place) == id
        return self._at(place if known else source.find(id), kind)

    def _at(self, position: int, kind: str) -> Placed | None:
        if self._session is None or position < 0:
            return None
        entry = self._session.source.entry(position)
        return Placed(dict(entry.body["note"]), position) if entry.type == f"history:{kind}" else None


def _count(session: Session) -> int:
    source, leaf = session.source, session.leaf_position
    for position in range(len(source) - 1, source.base_count - 1, -1):
        entry = source.entry(position)
        if entry.type == RECEIPT and "messages" in entry.body:
            since = 0
            for above in walk_back(source, leaf):
                if above == position - 2:  # the last message of the receipt's batch
                    return int(entry.body["messages"]) + since
                if above < position - 2:
                    break  # the head was moved away from it
                since += source.entry(above).type in _TYPES
            break
    return sum(1 for _ in _entries_back(session))
