"""What it costs to write a body as RFC 8785 has it and to hash that. ``python -m benchmarks canonical``.

Over the corpus's bodies, decoded. **orjson** sorts keys, which is not RFC 8785 (numbers, some keys, NaN); **rfc8785**
is, in Python. All hash what they wrote with SHA-256. An operation is one body, by the mean over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from time import perf_counter
from typing import Any, Final

import orjson
import rfc8785

from agentsession_cas.core.canonical import canonical
from benchmarks.corpus import drafts
from benchmarks.harness import OURS, Comparison, Options, Target, Turn, compare, part

__all__ = ["measure"]

ORJSON: Final = "orjson"
PURE: Final = "rfc8785"
_TARGETS: Final = (Target(ORJSON, 1.6), Target(PURE, 1 / 15))

Json = dict[str, Any]


@part(rounds=15, entries=2_000, quick=(5, 500))
def measure(used: Options) -> list[Comparison]:
    """Canonical bytes and their hash; entries are the bodies of a turn."""
    bodies = [draft.body for draft in drafts(used.entries)]
    if any(canonical(body) != rfc8785.dumps(body) for body in bodies):
        raise AssertionError("the peers do not write the same bytes")
    turns = {
        OURS: _turn(bodies, canonical),
        ORJSON: _turn(bodies, lambda body: orjson.dumps(body, option=orjson.OPT_SORT_KEYS)),
        PURE: _turn(bodies, rfc8785.dumps),
    }
    return [compare("canonicalise and hash", turns, used.rounds, _TARGETS)]


def _turn(bodies: Sequence[Json], write: Callable[[Json], bytes]) -> Turn:
    def turn(number: int) -> list[float]:  # noqa: ARG001
        start = perf_counter()
        for body in bodies:
            sha256(write(body)).digest()
        return [(perf_counter() - start) / len(bodies)]

    return turn
