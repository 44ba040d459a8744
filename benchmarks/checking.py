"""What checking a whole store costs. ``python -m benchmarks checking``.

Ours: ``Store.fsck`` of a store that holds one long session: every row, frame, pack and object, every body and envelope
against its hash. The peer hashes the same envelopes and bodies out of memory with SHA-256, on all cores at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from typing import Final

from agentsession_cas import Store
from benchmarks.harness import OURS, Comparison, Options, Target, compare, fresh, part
from benchmarks.sessions import Place

__all__ = ["check", "hashing", "measure", "pieces"]

HASHING: Final = "sha256, all cores"
_TARGETS: Final = (Target(HASHING, 2.5),)
_PIECE: Final = 1 << 20


@part(rounds=5, entries=100_000, quick=(2, 2_000))
def measure(used: Options) -> list[Comparison]:
    """fsck of a store beside hashing what it holds; entries are those of its session."""
    place = used.sessions.of(used.entries)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        turns = {OURS: fresh(partial(check, place)), HASHING: fresh(partial(hashing, pool, list(pieces(place))))}
        return [compare("fsck", turns, used.rounds, _TARGETS)]


def check(place: Place, held: ExitStack) -> None:
    """Check the store; it must be sound."""
    store = held.enter_context(Store.open(place.store, read_only=True))
    if store.fsck().findings:
        raise AssertionError("the store is not sound")


def hashing(pool: ThreadPoolExecutor, pieces: list[bytes], held: ExitStack) -> None:  # noqa: ARG001
    """Hash all of them."""
    for _ in pool.map(lambda piece: sha256(piece).digest(), pieces):
        pass


def pieces(place: Place) -> Iterator[bytes]:
    """All envelopes and bodies, a MiB at a time."""
    gathered = bytearray()
    with Store.open(place.store, read_only=True) as store:
        for entry in store.read(place.session):
            gathered += entry.envelope + entry.content
            if len(gathered) >= _PIECE:
                yield bytes(gathered)
                gathered.clear()
    yield bytes(gathered)
