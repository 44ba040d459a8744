"""What resuming a session costs, however long: open it, and the context at its head. ``python -m benchmarks resume``.

To *resume* is to hold the session for writing and to build what the next model call receives, from the compaction on,
which is 50 entries before the end. Ours: ``Store.open``, ``open_session`` (the lock included), ``context()``, which
replays settings and applies what is to be omitted. At 1,000 entries, at 100,000 and at ``--entries``, the session is
the same but for its length.

**JSONL** reads the file, decodes every line with ``orjson``, then follows the parents back to the compaction and
collects items. **JSONL, gc off** does so with the cyclic collector stopped. **SQLite** selects the last rows with their
bodies. Neither verifies anything; ours checks every row it reads and hashes every body. Past 200,000 entries they are
left out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any, Final

import orjson

from agentsession_cas import Store
from agentsession_cas.effects.host import Host
from benchmarks.effects import counting
from benchmarks.harness import OURS, Comparison, Options, Target, Turn, compare, fixed, fresh, part, without_gc
from benchmarks.sessions import Place

__all__ = ["measure", "resume"]

JSONL: Final = "JSONL"
JSONL_NO_GC: Final = "JSONL, gc off"
SQLITE: Final = "SQLite"
LIMIT: Final = "5 ms"

_SHORT: Final = 1_000
_FLAT: Final = 1.3
_LONG: Final = 100_000

Json = dict[str, Any]


@part(rounds=9, entries=100_000, quick=(3, 10_000), full=(9, 1_000_000))
def measure(used: Options) -> list[Comparison]:
    """Resuming a session; entries are those of the longest."""
    lengths = sorted({min(_SHORT, used.entries), min(_LONG, used.entries), used.entries})
    return [_compare(used, entries, lengths[0]) for entries in lengths]


def _compare(used: Options, entries: int, shortest: int) -> Comparison:
    place, short = used.sessions.of(entries), used.sessions.of(shortest)
    turns: dict[str, Turn] = {OURS: _turn(place, resume, 5)}
    targets = [Target(LIMIT, 1.0)]
    if place.lines.exists():
        _agree(place)
        turns[JSONL] = _turn(place, _resume_lines)
        turns[JSONL_NO_GC] = without_gc(turns[JSONL])
        turns[SQLITE] = _turn(place, _resume_rows, 5)
        targets += [Target(JSONL, 0.005)] if entries >= _LONG else []
    if entries > shortest:
        turns[f"{shortest:,} entries long"] = _turn(short, resume, 5)
        targets.append(Target(f"{shortest:,} entries long", _FLAT))
    turns[LIMIT] = fixed(0.005)
    compared = compare(f"resume at {entries:,} entries", turns, used.rounds, targets)
    host, effects = counting()
    with ExitStack() as held:
        resume(place, held, host)
        return replace(compared, effects=effects.per(1))


def _agree(place: Place) -> None:
    answers = []
    for each in (resume, _resume_lines, _resume_rows):
        with ExitStack() as held:
            answers.append(each(place, held))
    if not answers[0] == answers[1] == answers[2]:
        raise AssertionError("resume: the peers do not give the same answer")


def _turn(place: Place, work: Callable[[Place, ExitStack], object], repeat: int = 1) -> Turn:
    return fresh(lambda held: work(place, held), repeat)


def resume(place: Place, held: ExitStack, host: Host | None = None) -> list[Json]:
    """Hold the session for writing; the items of the context at its head."""
    store = held.enter_context(Store.open(place.store, host=host))
    session = held.enter_context(store.open_session(place.session))
    return session.context().items


# --- peers -----------------------------------------------------------------------------------------------------------


def _resume_lines(place: Place, held: ExitStack) -> list[Json]:  # noqa: ARG001
    with place.lines.open("rb") as file:
        lines = [orjson.loads(line) for line in file][1:]
    by_id = {line["id"]: line for line in lines}

    def path() -> Iterable[Json]:
        line = lines[-1]
        while True:
            yield line
            if line["parent"] is None:
                return
            line = by_id[line["parent"]]

    return _context(path())


def _resume_rows(place: Place, held: ExitStack) -> list[Json]:
    database = held.enter_context(closing(sqlite3.connect(place.rows)))
    rows = database.execute("SELECT id, type, body FROM entries ORDER BY seq DESC")
    return _context({"id": id_, "type": type_, **orjson.loads(body)} for id_, type_, body in rows)


def _context(path: Iterable[Json]) -> list[Json]:
    """The items from the last compaction on; ``path`` goes from the head to the root and is not read to its end."""
    items: list[Json] = []
    folded: Json | None = None
    for line in path:
        if line["type"] == "item":
            items.append(line["item"])
        elif line["type"] == "compaction" and folded is None:
            folded = line
        if folded is not None and line["id"] == folded["first_kept"]:
            items.append(folded["summary"])
            break
    items.reverse()
    return items
