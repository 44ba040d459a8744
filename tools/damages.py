"""What the corruption sweep hurts, and how: a store with sessions of every kind, and every damage of a file.

Owns the corpus and the list of damages. Must not: judge what a damage did.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from agentsession_cas import Store, entry
from agentsession_cas.core.entry import Draft

__all__ = ["Damage", "damages", "fill"]

PAGE: Final = 4096

# --- a store with everything in it -----------------------------------------------------------------------------------


def fill(root: Path, sessions: int = 50, seed: int = 1) -> None:
    """Make a store of so many sessions of every kind, all released."""
    chance = Random(seed)
    with Store.open(root, create=True, background=False) as store:
        made: list[str] = []
        for number in range(sessions):
            made.append(_make(store, f"s{number:03}", made, chance, number))
            if number == sessions // 2:
                store.repack()


def _make(store: Store, name: str, made: list[str], chance: Random, number: int) -> str:
    kind = number % 6
    if kind == 5 and made:
        origin = chance.choice(made)
        entries = [each for each in store.read(origin) if each.type != "label"]
        base = chance.choice(entries).id
        with store.fork(origin, base, id=name) as session:
            session.append_batch(_talk(name, 4, chance))
        return name
    with store.create(id=name, cwd=f"/work/{name}", media="sidecar" if kind == 4 else "inline") as session:
        session.append_batch(_talk(name, 6, chance))
        if kind in (1, 2):
            session.append_batch(_talk(name, 40 if kind == 1 else 5, chance))
            session.checkpoint()
        if kind == 4:
            image = {"type": "input_image", "detail": "auto", "image_url": f"sidecar:{_blob(store, name)}"}
            session.append(entry.user([image]))
        ids = [session.append(draft).id for draft in _talk(name, chance.randrange(2, 8), chance)]
        if kind == 3:
            first = ids[0]
            session.set_head(ids[-1], first)
            session.append_batch(_talk(name, 3, chance))
            session.append(Draft("label", {"label": "leaf", "target": first}))
            session.append(Draft("odd:note", {"text": name}))
            session.append(entry.user("long " * 9000))
    return name


def _blob(store: Store, name: str) -> str:
    return store.put_blob(name.encode() * 400)


def _talk(name: str, count: int, chance: Random) -> list[Draft]:
    words = [f"{name} says {chance.randrange(10**9)} " * chance.randrange(1, 30) for _ in range(count)]
    return [entry.user(text) if at % 2 else entry.assistant(text) for at, text in enumerate(words)]


# --- damages ---------------------------------------------------------------------------------------------------------


class Damage(NamedTuple):
    """One way to hurt one file: its path below the root, what was done, and its bytes afterwards."""

    path: str
    what: str
    data: bytes


def damages(path: str, data: bytes, chance: Random) -> Iterator[Damage]:
    """Every damage of a file: byte by byte when it is small, else page by page."""
    step = 1 if len(data) <= PAGE else PAGE
    for at in range(0, len(data), step):
        end = min(at + step, len(data))
        hurt = at + chance.randrange(end - at)
        bit = 1 << chance.randrange(8)
        kinds = {
            "flipped": data[:hurt] + bytes([data[hurt] ^ bit]) + data[hurt + 1 :],
            "zeroed": data[:at] + bytes(end - at) + data[end:],
            "cut": data[:at],
            "doubled": data[:end] + data[at:],
            "copied": data[:end] + data[at:end] + data[2 * end - at :],
        }
        for what, changed in kinds.items():
            if changed != data:
                yield Damage(path, f"{what} at {at}", changed)
