"""Conversations as the next model call gets them, and as a person looks at them (history.md H2).

Owns the ``History`` protocol, the simplest one of it, and the filters for looking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from agentsession_cas.core.given import require
from agentsession_cas.effects.host import real_host
from agentsession_cas.errors import BadInput
from agentsession_cas.history.batch import Batch, Message
from agentsession_cas.history.fitting import DEFAULT, Budget, fit
from agentsession_cas.history.protocols import Transcript
from agentsession_cas.history.tokens import EstimateCounter, TokenCounter
from agentsession_cas.history.turns import is_user

__all__ = ["Buffer", "History", "LoadOptions", "apply_load_options", "load_filtered", "new_batch"]

BUFFER_MAX: Final = 50
_TOOLS: Final = frozenset({"function_call", "function_call_output"})


class History(Protocol):
    """Decides what of a conversation a model gets. Threads of execution may share it."""

    def load(self, conversation: str, budget: Budget = DEFAULT) -> list[Message]:
        """The messages for the next call; a budget that is 0 leaves it to the history's own."""

    def append(self, conversation: str, messages: Iterable[Mapping[str, Any]]) -> None:
        """Keep new messages, and only those, durably; the next load sees them."""

    def clear(self, conversation: str) -> None:
        """Remove a conversation and all that was made of it; its id takes no append any more."""


class Buffer:
    """The most recent messages, at most ``max_messages``; nothing is summarised, and nothing is forgotten in the store.

    A turn stays with its user message and a call with its output. Raises BadInput for a cap below 1.
    """

    def __init__(
        self, store: Transcript, max_messages: int = BUFFER_MAX, *, token_counter: TokenCounter | None = None
    ) -> None:
        if not isinstance(max_messages, int) or max_messages < 1:
            raise BadInput("a buffer keeps at least one message", where=f"max_messages {max_messages!r:.40}")
        self._store = store
        self._max = max_messages
        self._counter = token_counter or EstimateCounter()

    def load(self, conversation: str, budget: Budget = DEFAULT) -> list[Message]:
        """The most recent messages, within the cap and the budget."""
        require(budget, Budget, "budget")
        most = min(self._max, budget.max_messages or self._max)
        # a turn that is longer than the cap begins further back, and is shown with the message that began it
        messages: list[Message] = []
        for message in self._store.reading(conversation).tail():
            messages.append(message)
            if len(messages) >= most and is_user(message):
                break
        return fit(messages[::-1], Budget(budget.max_tokens, most), self._counter)

    def append(self, conversation: str, messages: Iterable[Mapping[str, Any]]) -> None:
        """Keep new messages durably. Raises InvalidBatch, ConversationClosed."""
        self._store.append(new_batch(conversation, messages))

    def clear(self, conversation: str) -> None:
        """Remove a conversation; its id takes no append any more."""
        self._store.clear(conversation)


def new_batch(conversation: str, messages: Iterable[Mapping[str, Any]]) -> Batch:
    """Messages as a batch of a name that nobody has."""
    return Batch(conversation, real_host().entropy.take(16).hex(), messages)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What of a loaded conversation to look at; none of it given is a plain load.

    ``roles``: messages of these alone, none is all. ``since_seq``: those from this place of what was loaded on.
    ``limit_n``: the last so many of what is left, 0 is all. ``include_tools``: calls and their outputs too; they are
    left out when any of the others is set and this is not.
    """

    budget: Budget = DEFAULT
    roles: tuple[str, ...] = ()
    since_seq: int = 0
    limit_n: int = 0
    include_tools: bool = False

    @property
    def is_zero(self) -> bool:
        """Whether it is a plain load."""
        return self == LoadOptions()


def load_filtered(history: History, conversation: str, options: LoadOptions | None = None) -> list[Message]:
    """Load, then filter. A history that has a ``load_filtered`` of its own is left to do it."""
    options = LoadOptions() if options is None else require(options, LoadOptions, "options")
    own = getattr(history, "load_filtered", None)
    if callable(own):
        found: list[Message] = own(conversation, options)
        return found
    return apply_load_options(history.load(conversation, options.budget), options)


def apply_load_options(messages: list[Message], options: LoadOptions) -> list[Message]:
    """The filters on messages that were loaded, in their order: place, role, tools, number."""
    if options.is_zero:
        return list(messages)
    kept = messages[max(options.since_seq, 0) :]
    if options.roles:
        kept = [message for message in kept if message.get("role") in options.roles]
    if not options.include_tools:
        kept = [message for message in kept if message.get("type") not in _TOOLS and message.get("role") != "tool"]
    return kept[-options.limit_n :] if options.limit_n > 0 else kept
