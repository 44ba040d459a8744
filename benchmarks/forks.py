"""What a fork costs, however much it continues from. ``python -m benchmarks forks``.

Ours: ``Store.fork`` at the head of a session, in a store that is open, until the new session is held for writing and
would survive a power cut. The peer copies the session's file, and syncs nothing. The bytes that a fork writes are
counted, beside those that a fork of a session of a hundred entries writes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from agentsession_cas import Store
from agentsession_cas.effects.host import Host
from benchmarks.effects import counting
from benchmarks.harness import OURS, Comparison, Options, Target, Turn, compare, figures, fixed, fresh, part
from benchmarks.sessions import Place

__all__ = ["measure"]

COPY: Final = "file copy"
LIMIT: Final = "1 ms"
_SHORT: Final = 100
_BYTES: Final = 1.05
"""Headers differ by a digit or two."""


@part(rounds=9, entries=100_000, quick=(3, 2_000))
def measure(used: Options) -> list[Comparison]:
    """Forking a session beside copying it; entries are the session's."""
    place = used.sessions.copy(used.entries, "forked")
    short = used.sessions.copy(min(_SHORT, used.entries), "forked")
    with _forking(place) as fork:
        turns: dict[str, Turn] = {
            OURS: fresh(fork, 10),
            COPY: fresh(partial(_copy, place, used.directory / "copied")),
            LIMIT: fixed(0.001),
        }
        compared = compare(f"fork at {used.entries:,} entries", turns, used.rounds, [Target(LIMIT, 1)])
    long_effects, short_effects = _effects(place), _effects(short)
    written = {
        OURS: long_effects["bytes"],
        f"at {_SHORT} entries": short_effects["bytes"],
        COPY: float(place.lines.stat().st_size),
    }
    targets = [Target(f"at {_SHORT} entries", _BYTES)]
    return [replace(compared, effects=long_effects), figures("bytes a fork writes", "bytes", written, targets)]


class _Forking:
    """Forks the head of a session, again and again."""

    def __init__(self, store: Store, session: str) -> None:
        self._store = store
        self._session = session
        self._head = store.read(session).leaf

    def __call__(self, held: ExitStack) -> None:
        held.enter_context(self._store.fork(self._session, self._head))


@contextmanager
def _forking(place: Place, host: Host | None = None) -> Iterator[_Forking]:
    with Store.open(place.store, host=host) as store:
        yield _Forking(store, place.session)


def _copy(place: Place, target: Path, held: ExitStack) -> None:  # noqa: ARG001
    shutil.copyfile(place.lines, target)


def _effects(place: Place) -> dict[str, float]:
    """Those of a fork that is not the first, which has to make durable what it continues from."""
    host, effects = counting()
    with _forking(place, host) as fork, ExitStack() as held:
        fork(held)
        effects.reset()
        fork(held)
        return effects.per(1)
