"""What taking a session file into a store costs. ``python -m benchmarks importing``.

Ours: ``Store.import_file`` into a new store, every line parsed strictly, every id and hash verified, durable on return.
**SQLite** parses the same lines with ``orjson`` and inserts them as rows in one transaction, ``synchronous=FULL``; it
verifies nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import count, islice
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import orjson

from agentsession_cas import Store
from benchmarks.harness import OURS, Comparison, Options, Target, compare, part, workplace
from benchmarks.sessions import ROWS

__all__ = ["measure"]

SQLITE: Final = "SQLite"
_TARGETS: Final = (Target(SQLITE, 3.0),)


@part(rounds=3, entries=100_000, quick=(2, 2_000))
def measure(used: Options) -> list[Comparison]:
    """Importing a session file beside a bulk insert; entries are the session's."""
    lines = used.sessions.of(used.entries).lines
    numbers = count()
    with workplace(used.directory) as place:

        def ours(number: int) -> list[float]:  # noqa: ARG001
            with Store.open(place / f"store-{next(numbers)}", create=True) as store:
                start = perf_counter()
                store.import_file(lines, as_record=True)
                return [perf_counter() - start]

        def rows(number: int) -> list[float]:  # noqa: ARG001
            with ExitStack() as held:
                database = held.enter_context(closing(sqlite3.connect(place / f"rows-{next(numbers)}.db")))
                database.execute("PRAGMA journal_mode=WAL")
                database.execute("PRAGMA synchronous=FULL")
                database.execute(ROWS)
                start = perf_counter()
                database.executemany(
                    "INSERT INTO entries (id, type, parent, ts, body) VALUES (?, ?, ?, ?, ?)", _rows(lines)
                )
                database.commit()
                return [perf_counter() - start]

        return [compare("import of a session file", {OURS: ours, SQLITE: rows}, used.rounds, _TARGETS)]


def _rows(lines: Path) -> Iterator[tuple[Any, ...]]:
    with lines.open("rb") as file:
        for line in islice(file, 1, None):
            body = orjson.loads(line)
            yield (*(body.pop(name) for name in ("id", "type", "parent", "ts")), orjson.dumps(body))
