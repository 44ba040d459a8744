"""What reading all of a session costs, bodies and all. ``python -m benchmarks whole``.

Ours opens the store, reads the session and decodes every body; it checks every row, packed ones by the sum of their
frame, and every body and envelope against its hash. **JSONL, sha256** decodes every line of the projection with
``orjson`` and hashes it; **JSONL** decodes alone. Once the store as it is after appending, once after ``repack --all``.
Nothing read is kept, files lie in the page cache.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Final

import orjson

from agentsession_cas import Store
from benchmarks.harness import OURS, Comparison, Options, Target, compare, fresh, part
from benchmarks.sessions import Place

__all__ = ["measure", "read_all"]

JSONL: Final = "JSONL"
HASHED: Final = "JSONL, sha256"
_EVERYDAY: Final = (Target(HASHED, 1.3),)
_ARCHIVE: Final = (Target(JSONL, 1.5),)
_ARCHIVE_MAX: Final = 20_000
"""Longer ones take minutes to archive, and read no otherwise."""


@part(rounds=5, entries=100_000, quick=(3, 2_000))
def measure(used: Options) -> list[Comparison]:
    """Reading every entry with its body; entries are the session's."""
    shorter = min(used.entries, _ARCHIVE_MAX)
    archived = used.sessions.copy(shorter, "archived", repack=True)
    read = _compare("read all", used.sessions.of(used.entries), used, _EVERYDAY)
    again = _compare("read all, repack --all", archived, used, _ARCHIVE)
    return [read, replace(again, note=f"{shorter:,} entries")]


def _compare(title: str, place: Place, used: Options, targets: tuple[Target, ...]) -> Comparison:
    count = read_all(place)
    if count != _read_lines(place, lambda _: None):
        raise AssertionError("the peers do not read the same entries")
    turns = {
        OURS: fresh(partial(_dropping, partial(read_all, place))),
        HASHED: fresh(partial(_dropping, partial(_read_lines, place, lambda line: sha256(line).digest()))),
        JSONL: fresh(partial(_dropping, partial(_read_lines, place, lambda _: None))),
    }
    return compare(title, turns, used.rounds, targets)


def _dropping(work: Callable[[], int], held: ExitStack) -> None:  # noqa: ARG001
    work()


def read_all(place: Place) -> int:
    """Decode every body of the session; how many there are."""
    count = 0
    with Store.open(place.store, read_only=True) as store:
        for entry in store.read(place.session):
            count += bool(entry.body)
    return count


def _read_lines(place: Place, also: Callable[[bytes], object]) -> int:
    count = -1
    with place.lines.open("rb") as file:
        for line in file:
            count += bool(orjson.loads(line))
            also(line)
    return count
