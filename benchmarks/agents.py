"""What an append costs beside ``SQLiteSession`` of openai-agents, a framework's. ``python -m benchmarks agents``.

The framework stores each item of a conversation as JSON in SQLite, from a thread, with SQLite's default
``synchronous=FULL``; it hashes nothing. Both are handed the same items, one at a time, in one growing session. Ours is
compared twice: *durable*, and *lazy*, when it is safe once the process ends. Without the package ours stands alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from agentsession_cas import Draft, Store
from benchmarks.corpus import drafts
from benchmarks.harness import OURS, Comparison, Options, Target, Turn, compare, each_of, optional, part, workplace

__all__ = ["measure"]

SESSION: Final = "openai-agents"
_DURABLE: Final = 1 / 2.5
_LAZY: Final = 1 / 8


@part(rounds=9, entries=300, quick=(3, 60))
def measure(used: Options) -> list[Comparison]:
    """An append beside the SQLiteSession of openai-agents; entries are those of one turn."""
    given = [draft for draft in drafts((used.rounds + 1) * used.entries) if draft.type == "item"]
    chunk = len(given) // (used.rounds + 1)
    parts = [given[at * chunk : (at + 1) * chunk] for at in range(used.rounds + 1)]
    agents = optional("agents")
    with workplace(used.directory) as place:
        return [
            _compare(place / kind, parts, agents, durable=durable, limit=limit)
            for kind, durable, limit in (("durable", True, _DURABLE), ("lazy", False, _LAZY))
        ]


def _compare(place: Path, parts: list[list[Draft]], agents: Any, *, durable: bool, limit: float) -> Comparison:
    place.mkdir()
    with Store.open(place / "store", create=True) as store, store.create(cwd="/src") as session:

        def append(draft: Draft) -> None:
            session.append(draft, durable=durable)

        turns: dict[str, Turn] = {OURS: lambda number: each_of(parts[number], append)(number)}
        title, rounds = f"{place.name} append of an item", len(parts) - 1
        if agents is None:
            return replace(compare(title, turns, rounds), note="openai-agents is not installed")
        with _framework(agents, place / "agents.db") as add:
            turns[SESSION] = lambda number: each_of(parts[number], add)(number)
            return compare(title, turns, rounds, [Target(SESSION, limit)])


@contextmanager
def _framework(agents: Any, path: Path) -> Iterator[Any]:
    session = agents.SQLiteSession("one", path)
    with asyncio.Runner() as runner:

        def add(draft: Draft) -> None:
            runner.run(session.add_items([draft.body["item"]]))

        yield add
    session.close()
