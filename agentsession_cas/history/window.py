"""The newest turns of a conversation, whole, up to a number of messages (history.md H1)."""

from __future__ import annotations

from agentsession_cas.errors import InvalidWindow, WindowTooSmall
from agentsession_cas.history.batch import Message
from agentsession_cas.history.protocols import Reader
from agentsession_cas.history.turns import merged_system, split_turns

__all__ = ["WindowReader"]


class WindowReader:
    """Reads at most ``limit`` messages: the system messages as one, then as many of the newest turns as fit.

    It only reads, whatever ``reader`` can do besides. Raises InvalidWindow for a limit below 1.
    """

    __slots__ = ("_limit", "_reader")

    def __init__(self, reader: Reader, limit: int) -> None:
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise InvalidWindow("a window holds at least one message", where=f"limit {limit!r:.40}")
        self._reader = reader
        self._limit = limit

    def read(self, conversation: str) -> list[Message]:
        """The window. Raises WindowTooSmall when the newest turn does not fit, and what the reader raises."""
        messages = self._reader.read(conversation)
        system, turns = merged_system(messages), split_turns(messages)
        left = self._limit - len(system)
        kept: list[list[Message]] = []
        for turn in reversed(turns):
            if len(turn) > left:
                break
            kept.append(turn)
            left -= len(turn)
        if left < 0 or (turns and not kept):
            raise WindowTooSmall(
                f"the newest turn has {len(turns[-1]) if turns else 0} messages and the system {len(system)}",
                where=f"window of {self._limit} messages on {conversation}",
                next_step="take a larger window",
            )
        return [*system, *(message for turn in reversed(kept) for message in turn)]
