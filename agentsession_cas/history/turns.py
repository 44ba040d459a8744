"""Conversations cut into turns, which are never split (history.md H1, H2).

A user message starts a turn; what follows it, calls and their outputs included, belongs to it. What stands before the
first user message is a turn too. System and developer messages belong to none: they are merged into one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from agentsession_cas.history.batch import Message

__all__ = ["SYSTEM_ROLES", "is_system", "is_user", "merged_system", "split_turns"]

SYSTEM_ROLES: Final = frozenset({"system", "developer"})


def _role(message: Message) -> str:
    return str(message.get("role", "")) if message.get("type", "message") == "message" else ""


def is_system(message: Message) -> bool:
    """Whether a message instructs: of the role system or developer."""
    return _role(message) in SYSTEM_ROLES


def is_user(message: Message) -> bool:
    """Whether a message starts a turn."""
    return _role(message) == "user"


def split_turns(messages: Sequence[Message]) -> list[list[Message]]:
    """The turns, oldest first, without system messages."""
    turns: list[list[Message]] = []
    for message in messages:
        if is_system(message):
            continue
        if is_user(message) or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def merged_system(messages: Sequence[Message]) -> list[Message]:
    """The system messages as one, in their order: a list of it, or of none. One alone stays as it is."""
    found = [message for message in messages if is_system(message)]
    if len(found) < 2:
        return found
    contents = [message.get("content") for message in found]
    if all(isinstance(content, str) for content in contents):
        return [{**found[0], "content": "\n\n".join(map(str, contents))}]
    parts: list[Any] = []
    for content in contents:
        parts += [{"type": "input_text", "text": content}] if isinstance(content, str) else content or []
    return [{**found[0], "content": parts}]
