"""The newest messages that fit a budget, cut where a conversation may be cut (history.md H2).

Owns where that is: a turn stays with its user message, a call with its output, a reasoning with what it led to. When
not even the newest turn fits, its user message stays and the oldest of its exchanges go. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from agentsession_cas.errors import BadInput
from agentsession_cas.history.batch import Message
from agentsession_cas.history.tokens import TokenCounter
from agentsession_cas.history.turns import is_user

__all__ = ["DEFAULT", "Budget", "exchanges", "fit"]


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a load may give; 0 is no limit of one's own. Raises BadInput for what is no number."""

    max_tokens: int = 0
    max_messages: int = 0

    def __post_init__(self) -> None:
        for value in (self.max_tokens, self.max_messages):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise BadInput(f"a budget is a number of tokens or messages, not {value!r:.40}", next_step="0 is none")

    @property
    def is_zero(self) -> bool:
        """Whether it limits nothing."""
        return not (self.max_tokens or self.max_messages)


DEFAULT: Final = Budget()
"""No limit but the history's own."""


def exchanges(turn: Sequence[Message]) -> list[list[Message]]:
    """A turn's messages in the smallest runs that may stand without those before them, its user message apart."""
    groups: list[list[Message]] = []
    waiting: set[str] = set()
    held = False
    for message in turn:
        if not groups or not (waiting or held):
            groups.append([])
        groups[-1].append(message)
        kind, call_id = message.get("type"), str(message.get("call_id", ""))
        if kind == "function_call":
            waiting.add(call_id)
        elif kind == "function_call_output":
            waiting.discard(call_id)
        held = kind == "reasoning"
    return groups


def fit(messages: Iterable[Message], budget: Budget, counter: TokenCounter) -> list[Message]:
    """The longest run at the end of ``messages`` that fits, cut off where it may be; instructions are messages too."""
    turns: list[list[Message]] = []
    for message in messages:
        if is_user(message) or not turns:
            turns.append([])
        turns[-1].append(message)
    kept: list[list[Message]] = []
    left = _Left(budget, counter)
    while turns and left.takes(turns[-1]):
        kept.append(turns.pop())
    if turns and not kept:
        kept = [_tail_of(turns[-1], left)]
    return [message for turn in reversed(kept) for message in turn]


def _tail_of(turn: list[Message], left: _Left) -> list[Message]:
    """A turn without the oldest of its exchanges; nothing when its user message does not fit."""
    head = turn[:1] if is_user(turn[0]) else []
    if head and not left.takes(head):
        return []
    kept: list[list[Message]] = []
    groups = exchanges(turn[len(head) :])
    while groups and left.takes(groups[-1]):
        kept.append(groups.pop())
    return [*head, *(message for group in reversed(kept) for message in group)]


class _Left:
    """What is left of a budget."""

    def __init__(self, budget: Budget, counter: TokenCounter) -> None:
        self._tokens = budget.max_tokens or None
        self._messages = budget.max_messages or None
        self._counter = counter

    def takes(self, messages: Sequence[Message]) -> bool:
        """Spend what messages take, if it is there."""
        tokens = 0 if self._tokens is None else self._tokens - self._counter.count_messages(messages)
        count = 0 if self._messages is None else self._messages - len(messages)
        if tokens < 0 or count < 0:
            return False
        self._tokens = None if self._tokens is None else tokens
        self._messages = None if self._messages is None else count
        return True
