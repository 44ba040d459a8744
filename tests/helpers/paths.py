"""Paths written entry by entry for tests of contexts: no rule is tested, and bodies load through a counter."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.context import Context, context_at
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.memory import MemorySource

__all__ = ["REFERENCE", "Built", "Step", "config", "image", "item", "reasoning", "reference", "said", "text"]

Json = dict[str, Any]
Step = tuple[str, Json]
"""The type and body of an entry."""

REFERENCE = Path(__file__).parents[2] / "fixtures" / "reference"
TS = "2026-01-01T00:00:00Z"


class Built:
    """A session built of steps, each below the one before unless it says otherwise; ``loads`` counts body loads."""

    def __init__(self, *steps: Step) -> None:
        self.source = MemorySource()
        self.loads: Counter[int] = Counter()
        for step in steps:
            self.add(*step)

    def add(self, type_: str, body: Json, parent: int | None = None) -> int:
        """Add an entry; its position."""
        above = len(self.source) - 1 if parent is None else parent
        sealed = Entry.seal(type_, body, self.source.entry_id(above) if above >= 0 else "", TS)
        position = len(self.source)
        content = canonical(body)

        def load() -> bytes:
            self.loads[position] += 1
            return content

        hash_ = sealed.content_hash
        entry = Entry.stored(sealed.id, type_, sealed.parent, TS, hash_, load, facts=sealed.facts)
        return self.source.add(entry, above)

    def id(self, position: int) -> str:
        """The id at a position."""
        return self.source.entry_id(position)

    def at(self, position: int = -1) -> Context:
        """The context at a position, the last entry's by default."""
        return context_at(self.source, len(self.source) - 1 if position < 0 else position)


def text(words: str, role: str = "user") -> Json:
    """A message of one text part."""
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": words}]}


def image(name: str) -> Json:
    """An image part."""
    return {"type": "input_image", "image_url": name, "detail": "auto"}


def item(words: str, **members: Any) -> Step:
    """An item entry of one message."""
    return "item", {"item": text(words), **members}


def reasoning(response: str = "r") -> Step:
    """An item entry of a reasoning item."""
    return "item", {"item": {"type": "reasoning", "summary": []}, "response": response}


def config(**members: Any) -> Step:
    """A config entry."""
    return "config", members


def said(context: Context) -> list[str]:
    """The words of each item, or its type."""
    return [each["content"][0]["text"] if "content" in each else each["type"] for each in context.items]


def reference(name: str) -> MemorySource:
    """The entries of a reference session file."""
    source = MemorySource()
    for line in (REFERENCE / "sessions" / f"{name}.jsonl").read_bytes().splitlines()[1:]:
        entry = Entry.from_line(line)
        source.add(entry, source.find(entry.parent) if entry.parent else -1)
    return source
