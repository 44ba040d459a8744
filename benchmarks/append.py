"""What an append costs: one entry, or a batch of 10 or 100, durable or lazy. ``python -m benchmarks append``.

All peers are handed the same bodies as Python objects, in the same order, and give back control once the entries would
survive a power cut (*durable*) or the end of the process (*lazy*). Each writes one growing session, open throughout:

* **agentsession-cas**: ``SessionWriter.append`` (``append_batch``) in a store on disk, all its checks and both hashes
  on, checkpoints in the background as by default; a turn ends when that of its entries has.
* **bare write**: canonical envelope and body, made before the clock starts, one ``pwrite`` into zero-filled space
  synced beforehand, one ``fdatasync``. Not a store: what the disk alone costs.
* **JSONL**: one line of envelope and body (``orjson``, unsorted), one ``write``; durable: one ``fsync``.
* **SQLite**: WAL, one row: envelope columns and the body as ``orjson`` bytes; one transaction; no index but the row
  number. ``synchronous=FULL`` durable, ``NORMAL`` lazy.
* **loose objects**: as git does it, body and envelope each hashed, deflated at level 1, and for each: write to a
  temporary name, ``fsync``, rename, ``fsync`` of the directory; then a line of a log and its ``fdatasync``. Directories
  are made beforehand. It has no batches, and is measured durable, one by one, alone.

Only ours and loose objects hash, twice an entry, each entry naming the one before by its hash; JSONL and SQLite take a
random id. Every envelope holds id or content hash, parent, ts and type.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from pathlib import Path
from threading import enumerate as enumerate_threads
from time import perf_counter
from typing import Any, Final, NamedTuple

import orjson

from agentsession_cas import Draft, Store, entry
from agentsession_cas.core.entry import Entry
from agentsession_cas.effects.host import Host
from benchmarks.corpus import drafts
from benchmarks.effects import counting
from benchmarks.harness import OURS, Comparison, Options, Target, Turn, compare, fixed, part, workplace

__all__ = ["measure"]

BARE: Final = "bare write"
JSONL: Final = "JSONL"
SQLITE: Final = "SQLite"
LOOSE: Final = "loose objects"

LIMIT: Final = "30 µs"

_DURABLE: Final = (Target(BARE, 1.3), Target(SQLITE, 1.0), Target(LOOSE, 0.2))
_LAZY: Final = (Target(SQLITE, 1.0),)
_SMALL: Final = (*_LAZY, Target(LIMIT, 1.0))
_BATCH: Final = (Target(SQLITE, 1.0),)
_SMALL_SIZE: Final = 1_000
_BATCHES: Final = (10, 100)
_SORTED: Final = orjson.OPT_SORT_KEYS


class Work(NamedTuple):
    """An entry to write: as a draft, and as the canonical bytes it comes to."""

    draft: Draft
    data: bytes


Peer = Callable[[Sequence[Work]], None]
"""Writes a batch; on return it is as safe as its kind promises."""


@part(rounds=9, entries=400, quick=(3, 60))
def measure(used: Options) -> list[Comparison]:
    """An append beside what a harness would use instead; entries are those of one turn."""
    count = (used.rounds + 1) * used.entries
    work = [Work(draft, _bytes_of(draft)) for draft in drafts(count)]
    small = [Work(draft, _bytes_of(draft)) for draft in _small(count)]
    compared: list[Comparison] = []
    with workplace(used.directory) as place:
        for durable in (True, False):
            for size in (1, *_BATCHES):
                compared.append(_compare(place / f"{durable}-{size}", work, used, size, durable=durable))
        compared.append(_compare_small(place / "small", small, used))
    return compared


def _bytes_of(draft: Draft) -> bytes:
    sealed = Entry.seal(draft.type, draft.body, "sha256:" + "0" * 64, "2026-01-31T12:00:00.123456789Z")
    return sealed.envelope + sealed.content


def _small(count: int) -> Iterator[Draft]:
    """Outputs of calls, each of 1 KB."""
    text = "".join(draft.body["item"]["output"] for draft in drafts(200) if "output" in draft.body.get("item", {}))
    for at in range(count):
        said = f"{at} {text[at * 97 % (len(text) - _SMALL_SIZE) :]}"[:_SMALL_SIZE]
        yield entry.function_call_output(f"call_{at}", said)


def _compare(place: Path, work: list[Work], used: Options, size: int, *, durable: bool) -> Comparison:
    """One session per peer, the turns of a peer following one another in it."""
    place.mkdir()
    with ExitStack() as held:
        opened: dict[str, Peer] = {OURS: held.enter_context(_ours(place / "store", durable=durable))}
        if durable:
            space = sum(len(each.data) for each in work)
            opened[BARE] = held.enter_context(_bare(place / "bare", space))
        opened[JSONL] = held.enter_context(_jsonl(place / "lines.jsonl", durable=durable))
        opened[SQLITE] = held.enter_context(_sqlite(place / "rows.db", durable=durable))
        if durable and size == 1:
            opened[LOOSE] = held.enter_context(_loose(place / "loose"))
        turns = {name: _turn(peer, work, used.entries, size) for name, peer in opened.items()}
        targets = (_BATCH if durable else ()) if size > 1 else _DURABLE if durable else _LAZY
        many = "append" if size == 1 else f"batch of {size}"
        compared = compare(f"{'durable' if durable else 'lazy'} {many}", turns, used.rounds, targets)
    return replace(compared, effects=_effects(place / "counted", work[: used.entries], size, durable=durable))


def _compare_small(place: Path, work: list[Work], used: Options) -> Comparison:
    place.mkdir()
    with ExitStack() as held:
        opened = {
            OURS: held.enter_context(_ours(place / "store", durable=False)),
            JSONL: held.enter_context(_jsonl(place / "lines.jsonl", durable=False)),
            SQLITE: held.enter_context(_sqlite(place / "rows.db", durable=False)),
        }
        turns = {name: _turn(peer, work, used.entries, 1) for name, peer in opened.items()}
        turns[LIMIT] = fixed(30e-6)
        return compare("lazy append of 1 KB", turns, used.rounds, _SMALL)


def _effects(path: Path, work: list[Work], size: int, *, durable: bool) -> dict[str, float]:
    """Those of an append, or a batch, of ours: checkpoints included, the making of the session not."""
    host, effects = counting()
    with _ours(path, durable=durable, host=host) as write:
        write(work[:1])
        effects.reset()
        rest = range(1, len(work), size)
        for at in rest:
            write(work[at : at + size])
        _settle()
        return effects.per(len(rest))


def _turn(peer: Peer, work: list[Work], entries: int, size: int) -> Turn:
    def turn(number: int) -> list[float]:
        taken: list[float] = []
        end = (number + 1) * entries
        for at in range(number * entries, end, size):
            batch = work[at : min(at + size, end)]
            start = perf_counter()
            peer(batch)
            taken.append(perf_counter() - start)
        start = perf_counter()
        _settle()
        taken[-1] += perf_counter() - start
        return taken

    return turn


def _settle() -> None:
    """Wait for the checkpoint a turn has set off, lest the next peer pay for it: the mean of ours holds it."""
    for thread in enumerate_threads():
        if thread.name == "checkpoint":
            thread.join()


# --- peers -----------------------------------------------------------------------------------------------------------


@contextmanager
def _ours(path: Path, *, durable: bool, host: Host | None = None) -> Iterator[Peer]:
    with Store.open(path, create=True, host=host) as store, store.create(cwd="/src") as session:

        def write(batch: Sequence[Work]) -> None:
            if len(batch) == 1:
                session.append(batch[0].draft, durable=durable)
            else:
                session.append_batch([each.draft for each in batch], durable=durable)

        yield write


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _bare(path: Path, space: int) -> Iterator[Peer]:
    with _opened(path) as fd:
        os.pwrite(fd, bytes(space), 0)
        os.fsync(fd)
        end = 0

        def write(batch: Sequence[Work]) -> None:
            nonlocal end
            data = b"".join([each.data for each in batch])
            os.pwrite(fd, data, end)
            os.fdatasync(fd)
            end += len(data)

        yield write


class _Envelopes:
    """The envelope of an entry without hashes; each hangs from the one before."""

    def __init__(self) -> None:
        self._last: str | None = None

    def next(self, type_: str) -> dict[str, Any]:
        parent, self._last = self._last, os.urandom(16).hex()
        return {"id": self._last, "parent": parent, "ts": datetime.now(UTC).isoformat(), "type": type_}


@contextmanager
def _jsonl(path: Path, *, durable: bool) -> Iterator[Peer]:
    envelopes = _Envelopes()
    with path.open("ab", buffering=0) as file:

        def write(batch: Sequence[Work]) -> None:
            lines = [
                orjson.dumps({**envelopes.next(draft.type), **draft.body}, option=orjson.OPT_APPEND_NEWLINE)
                for draft, _ in batch
            ]
            file.write(b"".join(lines))
            if durable:
                os.fsync(file.fileno())

        yield write


@contextmanager
def _sqlite(path: Path, *, durable: bool) -> Iterator[Peer]:
    envelopes = _Envelopes()
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
    database.execute("CREATE TABLE entries (seq INTEGER PRIMARY KEY, id, parent, ts, type, body)")
    insert = "INSERT INTO entries (id, parent, ts, type, body) VALUES (?, ?, ?, ?, ?)"

    def write(batch: Sequence[Work]) -> None:
        rows = [(*envelopes.next(draft.type).values(), orjson.dumps(draft.body)) for draft, _ in batch]
        if len(rows) == 1:
            database.execute(insert, rows[0])
            return
        database.execute("BEGIN")
        database.executemany(insert, rows)
        database.execute("COMMIT")

    try:
        yield write
    finally:
        database.close()


@contextmanager
def _loose(path: Path) -> Iterator[Peer]:
    for fan in range(256):
        (path / f"{fan:02x}").mkdir(parents=True)
    numbers = count()

    def put(data: bytes) -> str:
        name = sha256(data).hexdigest()
        temporary, directory = path / f"tmp-{next(numbers)}", path / name[:2]
        with _opened(temporary) as fd:
            os.write(fd, zlib.compress(data, 1))
            os.fsync(fd)
        os.rename(temporary, directory / name[2:])
        entered = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(entered)
        os.close(entered)
        return name

    with _opened(path / "log") as log:
        last = ""

        def write(batch: Sequence[Work]) -> None:
            nonlocal last
            for draft, _ in batch:
                content = put(orjson.dumps(draft.body, option=_SORTED))
                ts = datetime.now(UTC).isoformat()
                envelope = {"content": content, "parent": last or None, "ts": ts, "type": draft.type}
                last = put(orjson.dumps(envelope, option=_SORTED))
                os.write(log, last.encode() + b"\n")
                os.fdatasync(log)

        yield write
