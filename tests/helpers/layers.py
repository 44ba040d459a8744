"""Instruction lists as a harness changes them: a layer edited, dropped, added, moved, or handed back."""

from __future__ import annotations

import random
from typing import Any

__all__ = ["Layers"]

Json = dict[str, Any]


class Layers:
    """Lists of parts and of omitted parts, each made of one that was, ids unique."""

    def __init__(self) -> None:
        self._parts: list[list[Json]] = []
        self._omitted: list[list[Json]] = []

    def parts(self, held: list[Json], rng: random.Random) -> list[Json]:
        """Instruction parts to put in force, ``held`` being those that are."""
        return _next(self._parts, held, rng, _part)

    def omitted(self, held: list[Json], rng: random.Random) -> list[Json]:
        """Parts left out, ``held`` being the list in force."""
        return _next(self._omitted, held, rng, _left_out)


def _part(id_: str, rng: random.Random) -> Json:
    source = {"source": rng.choice(["file", "memory"])} if rng.random() < 0.5 else {}
    return {"id": id_, "text": f"part {id_} {rng.randrange(2)}", **source}


def _left_out(id_: str, rng: random.Random) -> Json:
    return {"id": id_, "reason": "over the budget, as it was counted", "size": 10_000 + rng.randrange(2)}


def _next(earlier: list[list[Json]], held: list[Json], rng: random.Random, make: Any) -> list[Json]:
    free = [id_ for id_ in "abcdefgh" if id_ not in {part.get("id") for part in held}]
    made = list(held)
    kind = rng.choice(["anew", "edit", "edit", "drop", "add", "move", "back", "back"])
    if kind == "back" and earlier:
        made = rng.choice(earlier)
    elif kind == "anew" or len(made) < 3 or not all(part.get("id") for part in made):
        made = [make(id_, rng) for id_ in rng.sample("abcdefgh", rng.choice([0, 4, 6, 8]))]
    elif kind == "add" and free:
        made.insert(rng.randrange(len(made) + 1), make(rng.choice(free), rng))
    else:
        part = made.pop(rng.randrange(len(made)))
        if kind == "move":
            made.insert(rng.randrange(len(made) + 1), part)
        elif kind != "drop":
            made.insert(held.index(part), make(part["id"], rng))
    earlier.append(made)
    return made
