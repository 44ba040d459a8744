"""What opening a session costs: its head, its envelopes, its context. ``python -m benchmarks.open``.

One session, ``--entries`` long, closed and checkpointed, a compaction 50 entries before its end; beside it its own
projection as JSONL, and a SQLite table of the same entries (``id`` unique, envelope columns, body as bytes). Every
operation starts with nothing open and closes nothing before the clock stops; files lie in the page cache.

* *open*: until the head's id is known. **agentsession-cas**: ``Store.open(read_only=True)`` and ``Store.read``.
* *walk*: the id, type and parent of every entry as a list, no body. Ours opens as above and iterates the session.
* *resume*: hold the session for writing and build what the next model call receives, from the compaction on. Ours:
  ``Store.open``, ``open_session`` (the lock included), ``context()``, which replays settings and applies what is to
  be omitted.

**JSONL** reads the file and decodes every line with ``orjson``, the only way to any of the three; to resume it then
follows the parents back to the compaction and collects items. **JSONL, gc off** does so with the cyclic collector
stopped, which a careful author may. **SQLite** selects what it needs and no more: one row, the envelope columns, or the
last rows with their bodies, decoded. Neither verifies anything; ours checks every row it reads and hashes every body.
"""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

import orjson

from agentsession_cas import Draft, Store
from benchmarks.corpus import drafts, sizes
from benchmarks.harness import OURS, Comparison, Options, Target, Turn, compare, options, report, workplace

__all__ = ["main"]

JSONL: Final = "JSONL"
JSONL_NO_GC: Final = "JSONL, gc off"
SQLITE: Final = "SQLite"

_TARGETS: Final = (Target(JSONL, 0.15),)
_AFTER_COMPACTION: Final = 50
_KEPT: Final = 10
_BATCH: Final = 100

Json = dict[str, Any]
Walk = list[tuple[str, str, str]]
"""Id, type and parent ("" at the root) of every entry."""


class Place(NamedTuple):
    """The same session three ways."""

    store: Path
    session: str
    lines: Path
    rows: Path


@options(rounds=9, entries=10_000, quick=(3, 2_000))
def main(used: Options) -> None:
    """Compare what opening a session costs with loading a file or a table; entries are the session's."""
    given = drafts(used.entries)
    with workplace(used.directory) as directory:
        place = _build(directory, given)
        compared = [
            _compare(
                "open: the head", place, used, _head, _head_of_lines, _head_of_rows, repeat=20, targets=_TARGETS
            ),
            _compare(
                "walk: every envelope", place, used, _walk, _walk_lines, _walk_rows, repeat=1, targets=_TARGETS
            ),
            _compare("resume: the context at the head", place, used, _resume, _resume_lines, _resume_rows, repeat=5),
        ]
    report("open", used, sizes(given), compared)


def _build(directory: Path, given: list[Draft]) -> Place:
    store_path, lines, rows = directory / "store", directory / "lines.jsonl", directory / "rows.db"
    folded = max(_KEPT + 1, len(given) - _AFTER_COMPACTION)
    with Store.open(store_path, create=True) as store:
        with store.create(cwd="/src") as session:
            for at in range(0, folded, _BATCH):
                results = session.append_batch(given[at : min(at + _BATCH, folded)], durable=False)
            kept = session.path(results[-1].id)[-_KEPT].id
            summary = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "So far: …"}]}
            session.append(session.compact(kept, summary))
            session.append_batch(given[folded:])
            session.checkpoint()
        store.project(session.id, lines)
    _fill_rows(rows, lines)
    return Place(store_path, session.id, lines, rows)


def _fill_rows(path: Path, lines: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE entries (seq INTEGER PRIMARY KEY, id UNIQUE, type, parent, ts, body)")
        with lines.open("rb") as file:
            for line in islice(file, 1, None):
                body = orjson.loads(line)
                envelope = [body.pop(name) for name in ("id", "type", "parent", "ts")]
                row = (*envelope, orjson.dumps(body))
                database.execute("INSERT INTO entries (id, type, parent, ts, body) VALUES (?, ?, ?, ?, ?)", row)
        database.commit()


def _compare(
    title: str,
    place: Place,
    used: Options,
    ours: Callable[[Place, ExitStack], object],
    lines: Callable[[Place, ExitStack], object],
    rows: Callable[[Place, ExitStack], object],
    *,
    repeat: int,
    targets: Sequence[Target] = (),
) -> Comparison:
    """``repeat`` is how often a turn of ours, and of SQLite, opens; a turn of JSONL loads once."""
    answers = []
    for each in (ours, lines, rows):
        with ExitStack() as held:
            answers.append(each(place, held))
    if not answers[0] == answers[1] == answers[2]:
        raise AssertionError(f"{title}: the peers do not give the same answer")
    turns = {
        OURS: _turn(ours, place, repeat),
        JSONL: _turn(lines, place, 1),
        JSONL_NO_GC: _without_gc(_turn(lines, place, 1)),
        SQLITE: _turn(rows, place, repeat),
    }
    return compare(title, turns, used.rounds, targets)


def _turn(work: Callable[[Place, ExitStack], object], place: Place, repeat: int) -> Turn:
    def turn(number: int) -> list[float]:  # noqa: ARG001
        taken: list[float] = []
        for _ in range(repeat):
            with ExitStack() as held:
                start = perf_counter()
                work(place, held)
                taken.append(perf_counter() - start)
        return taken

    return turn


def _without_gc(turn: Turn) -> Turn:
    def quiet(number: int) -> list[float]:
        gc.disable()
        try:
            return turn(number)
        finally:
            gc.enable()

    return quiet


# --- ours ------------------------------------------------------------------------------------------------------------


def _head(place: Place, held: ExitStack) -> str:
    store = held.enter_context(Store.open(place.store, read_only=True))
    return store.read(place.session).leaf


def _walk(place: Place, held: ExitStack) -> Walk:
    store = held.enter_context(Store.open(place.store, read_only=True))
    return [(entry.id, entry.type, entry.parent) for entry in store.read(place.session)]


def _resume(place: Place, held: ExitStack) -> list[Json]:
    store = held.enter_context(Store.open(place.store))
    session = held.enter_context(store.open_session(place.session))
    return session.context().items


# --- JSONL -----------------------------------------------------------------------------------------------------------


def _load(place: Place) -> list[Json]:
    with place.lines.open("rb") as file:
        return [orjson.loads(line) for line in file][1:]


def _head_of_lines(place: Place, held: ExitStack) -> str:  # noqa: ARG001
    return str(_load(place)[-1]["id"])


def _walk_lines(place: Place, held: ExitStack) -> Walk:  # noqa: ARG001
    return [(line["id"], line["type"], line["parent"] or "") for line in _load(place)]


def _resume_lines(place: Place, held: ExitStack) -> list[Json]:  # noqa: ARG001
    lines = _load(place)
    by_id = {line["id"]: line for line in lines}

    def path() -> Iterable[Json]:
        line = lines[-1]
        while True:
            yield line
            if line["parent"] is None:
                return
            line = by_id[line["parent"]]

    return _context(path())


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


# --- SQLite ----------------------------------------------------------------------------------------------------------


def _opened(place: Place, held: ExitStack) -> sqlite3.Connection:
    return held.enter_context(closing(sqlite3.connect(place.rows)))


def _head_of_rows(place: Place, held: ExitStack) -> str:
    rows = _opened(place, held).execute("SELECT id FROM entries ORDER BY seq DESC LIMIT 1")
    return str(rows.fetchone()[0])


def _walk_rows(place: Place, held: ExitStack) -> Walk:
    return _opened(place, held).execute("SELECT id, type, ifnull(parent, '') FROM entries ORDER BY seq").fetchall()


def _resume_rows(place: Place, held: ExitStack) -> list[Json]:
    rows = _opened(place, held).execute("SELECT id, type, body FROM entries ORDER BY seq DESC")
    return _context({"id": id_, "type": type_, **orjson.loads(body)} for id_, type_, body in rows)


if __name__ == "__main__":
    main()
