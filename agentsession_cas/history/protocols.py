"""What a keeper of conversations offers (history.md H1), each ability a protocol of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.identity import ROOT
from agentsession_cas.history.batch import Batch, Message, Receipt

__all__ = [
    "Clearer",
    "ConversationStore",
    "Lister",
    "Note",
    "Notes",
    "Placed",
    "ReadWriter",
    "Reader",
    "Reading",
    "Transcript",
    "Writer",
    "note_id",
    "sealed",
]


class Reader(Protocol):
    """Reads conversations."""

    def read(self, conversation: str) -> list[Message]:
        """The messages in stored order, a copy; none for an unknown or a closed conversation."""


class Writer(Protocol):
    """Appends batches, each exactly once."""

    def append(self, batch: Batch) -> Receipt:
        """Accept a batch as one step; the same batch again gives the same receipt and appends nothing.

        Raises AppendConflict for other messages under a name that is taken, ConversationClosed. Any other error leaves
        open whether the batch was accepted: submit the same batch again to know.
        """


class ReadWriter(Reader, Writer, Protocol):
    """Both."""


class Clearer(Protocol):
    """Ends conversations."""

    def clear(self, conversation: str) -> None:
        """Close an identity for ever, also one never written: it reads as empty and takes no append, a retry included.

        An error after it was closed leaves it closed; another clear goes on with removing what it held.
        """


class Lister(Protocol):
    """Knows which conversations there are."""

    def conversations(self) -> list[str]:
        """The ids, sorted; without the closed ones."""


class ConversationStore(ReadWriter, Clearer, Lister, Protocol):
    """All of these."""


class Note(NamedTuple):
    """Something kept beside the messages of a conversation: a kind, and a JSON object."""

    kind: str
    body: dict[str, Any]


def sealed(kind: str, body: dict[str, Any]) -> Entry:
    """A note as an entry, which depends on nothing else: at the root, and of no time."""
    return Entry.seal(f"history:{kind}", {"note": body}, ROOT, "1970-01-01T00:00:00Z", ())


def note_id(note: Note) -> str:
    """What a note is found by, known before it is kept: the id of its entry."""
    return sealed(note.kind, note.body).id


class Notes(NamedTuple):
    """Notes in the order they were kept, and how to ask for those after them."""

    bodies: list[dict[str, Any]]
    end: int


class Placed(NamedTuple):
    """A note and its place, a number that makes it quick to find again."""

    body: dict[str, Any]
    place: int


class Reading(Protocol):
    """A conversation as it was when it was asked for. A message's number is its place among them, from 0."""

    def count(self) -> int:
        """How many messages there are."""

    def tail(self) -> Iterator[Message]:
        """The messages from the newest to the first, read as they are asked for."""

    def range(self, start: int, end: int) -> list[Message]:
        """The messages from number ``start`` to before number ``end``."""

    def notes(self, kind: str, start: int = 0) -> Notes:
        """The notes of a kind, those after an earlier answer's ``end`` alone when it is given."""

    def latest(self, kind: str) -> Placed | None:
        """The newest note of a kind; looked for from the end, so that it costs what came since."""

    def note(self, kind: str, id: str, place: int = -1) -> Placed | None:
        """The note of that :func:`note_id`, None when there is none; ``place`` is where it was, if that is known."""


class Transcript(ConversationStore, Protocol):
    """A keeper of conversations that reads parts of them, and keeps notes beside their messages."""

    def reading(self, conversation: str) -> Reading:
        """A conversation as it is now; an empty one for an unknown or a closed conversation."""

    def keep(self, conversation: str, notes: Sequence[Note]) -> None:
        """Keep notes as one step, durably, in places one after the other; what is kept already is not kept again.

        Raises ConversationClosed.
        """

    def freeze(self, conversation: str, start: int, end: int) -> str:
        """Put messages ``start`` to before ``end`` where they take least room; the name of the file, "" for none.

        They are read as before.
        """
