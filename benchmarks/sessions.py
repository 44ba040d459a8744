"""Sessions to measure on, each kept three ways: in a store, as its own projection, and as rows of a SQLite table.

One of ``entries`` entries is closed and checkpointed and has a compaction 50 entries before its end. They are made once
in a run, for whoever asks, and nothing that is measured may change one.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from agentsession_cas import Draft, SessionWriter, Store
from benchmarks.corpus import stream

__all__ = ["ROWS", "Place", "Sessions"]

ROWS: Final = "CREATE TABLE entries (seq INTEGER PRIMARY KEY, id UNIQUE, type, parent, ts, body)"
_AFTER_COMPACTION: Final = 50
_KEPT: Final = 10
_BATCH: Final = 100
_PEERS_MAX: Final = 200_000


class Place(NamedTuple):
    """The same session three ways. Past 200,000 entries ``lines`` and ``rows`` are not there: nobody loads those."""

    entries: int
    store: Path
    session: str
    lines: Path
    rows: Path


class Sessions:
    """The sessions made so far, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[int, Place] = {}

    def of(self, entries: int) -> Place:
        """The session of about ``entries`` entries, made when it is first asked for."""
        if entries not in self._made:
            path = self._directory / f"session-{entries}"
            path.mkdir(parents=True)
            self._made[entries] = _build(path, entries)
        return self._made[entries]

    def copy(self, entries: int, name: str, *, repack: bool | None = None) -> Place:
        """A copy of that session's store, for work that changes it; repacked, or with ``repack`` into archives.

        The same ``name`` is the same copy.
        """
        place = self.of(entries)
        path = self._directory / f"session-{entries}-{name}"
        if not path.exists():
            shutil.copytree(place.store, path)
            if repack is not None:
                with Store.open(path) as store:
                    store.repack(repack)
        return place._replace(store=path)


def _build(directory: Path, entries: int) -> Place:
    """Make a session of about ``entries`` entries, in ``directory``, which must be empty."""
    store_path, lines, rows = directory / "store", directory / "lines.jsonl", directory / "rows.db"
    given = islice(stream(), entries)
    with Store.open(store_path, create=True) as store:
        with store.create(cwd="/src") as session:
            last = _append(session, islice(given, max(_KEPT + 1, entries - _AFTER_COMPACTION)))
            kept = last[-_KEPT]
            summary = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "So far: …"}]}
            session.append(session.compact(kept, summary))
            _append(session, given)
            session.checkpoint()
        if entries <= _PEERS_MAX:
            store.project(session.id, lines)
            _fill_rows(rows, lines)
    return Place(entries, store_path, session.id, lines, rows)


def _append(session: SessionWriter, given: Iterator[Draft]) -> list[str]:
    """Append all of it; the ids of the last ones."""
    ids: list[str] = []
    while batch := list(islice(given, _BATCH)):
        ids = [*ids, *(result.id for result in session.append_batch(batch, durable=False))][-_BATCH:]
    return ids


def _fill_rows(path: Path, lines: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(ROWS)
        with lines.open("rb") as file:
            for line in islice(file, 1, None):
                body = orjson.loads(line)
                envelope = [body.pop(name) for name in ("id", "type", "parent", "ts")]
                row = (*envelope, orjson.dumps(body))
                database.execute("INSERT INTO entries (id, type, parent, ts, body) VALUES (?, ?, ?, ?, ?)", row)
        database.commit()
