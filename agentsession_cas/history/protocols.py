"""What a keeper of conversations offers (history.md H1), each ability a protocol of its own."""

from __future__ import annotations

from typing import Protocol

from agentsession_cas.history.batch import Batch, Message, Receipt

__all__ = ["Clearer", "ConversationStore", "Lister", "ReadWriter", "Reader", "Writer"]


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
