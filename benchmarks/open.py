"""What opening a session costs: its head, its envelopes. ``python -m benchmarks open``.

One session, ``--entries`` long (:mod:`benchmarks.sessions`); beside it its own projection as JSONL, and a SQLite table
of the same entries (``id`` unique, envelope columns, body as bytes). Every operation starts with nothing open and
closes nothing before the clock stops; files lie in the page cache.

* *open*: until the head's id is known. **agentsession-cas**: ``Store.open(read_only=True)`` and ``Store.read``.
* *walk*: the id, type and parent of every entry as a list, no body. Ours opens as above and iterates the session.

**JSONL** reads the file and decodes every line with ``orjson``, the only way to either. **JSONL, gc off** does so with
the cyclic collector stopped, which a careful author may. **SQLite** selects what it needs and no more: one row, or the
envelope columns. Neither verifies anything; ours checks every row it reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any, Final

import orjson

from agentsession_cas import Store
from benchmarks.harness import OURS, Comparison, Options, Target, compare, fresh, part, without_gc
from benchmarks.sessions import Place

__all__ = ["measure"]

JSONL: Final = "JSONL"
JSONL_NO_GC: Final = "JSONL, gc off"
SQLITE: Final = "SQLite"

_OPEN: Final = (Target(JSONL, 0.15),)
_WALK: Final = (Target(JSONL, 0.1),)

Json = dict[str, Any]
Walk = list[tuple[str, str, str]]
"""Id, type and parent ("" at the root) of every entry."""
Work = Callable[[Place, ExitStack], object]


@part(rounds=9, entries=100_000, quick=(3, 2_000))
def measure(used: Options) -> list[Comparison]:
    """Opening a session and walking it, beside loading a file or a table; entries are the session's."""
    return [
        _compare("open: the head", used, (_head, _head_of_lines, _head_of_rows), 20, _OPEN),
        _compare("walk: every envelope", used, (_walk, _walk_lines, _walk_rows), 1, _WALK),
    ]


def _compare(
    title: str, used: Options, work: tuple[Work, Work, Work], repeat: int, targets: Sequence[Target]
) -> Comparison:
    """``repeat`` is how often a turn of ours, and of SQLite, opens; a turn of JSONL loads once."""
    place = used.sessions.of(used.entries)
    ours, lines, rows = work
    answers = []
    for each in work:
        with ExitStack() as held:
            answers.append(each(place, held))
    if not answers[0] == answers[1] == answers[2]:
        raise AssertionError(f"{title}: the peers do not give the same answer")
    turns = {
        OURS: fresh(lambda held: ours(place, held), repeat),
        JSONL: fresh(lambda held: lines(place, held)),
        JSONL_NO_GC: without_gc(fresh(lambda held: lines(place, held))),
        SQLITE: fresh(lambda held: rows(place, held), repeat),
    }
    return compare(title, turns, used.rounds, targets)


# --- ours ------------------------------------------------------------------------------------------------------------


def _head(place: Place, held: ExitStack) -> str:
    store = held.enter_context(Store.open(place.store, read_only=True))
    return store.read(place.session).leaf


def _walk(place: Place, held: ExitStack) -> Walk:
    store = held.enter_context(Store.open(place.store, read_only=True))
    return [(entry.id, entry.type, entry.parent) for entry in store.read(place.session)]


# --- JSONL -----------------------------------------------------------------------------------------------------------


def _load(place: Place) -> list[Json]:
    with place.lines.open("rb") as file:
        return [orjson.loads(line) for line in file][1:]


def _head_of_lines(place: Place, held: ExitStack) -> str:  # noqa: ARG001
    return str(_load(place)[-1]["id"])


def _walk_lines(place: Place, held: ExitStack) -> Walk:  # noqa: ARG001
    return [(line["id"], line["type"], line["parent"] or "") for line in _load(place)]


# --- SQLite ----------------------------------------------------------------------------------------------------------


def _opened(place: Place, held: ExitStack) -> sqlite3.Connection:
    return held.enter_context(closing(sqlite3.connect(place.rows)))


def _head_of_rows(place: Place, held: ExitStack) -> str:
    rows = _opened(place, held).execute("SELECT id FROM entries ORDER BY seq DESC LIMIT 1")
    return str(rows.fetchone()[0])


def _walk_rows(place: Place, held: ExitStack) -> Walk:
    return _opened(place, held).execute("SELECT id, type, ifnull(parent, '') FROM entries ORDER BY seq").fetchall()
