"""What reading one body by its hash costs, verified, anywhere in a large store. ``python -m benchmarks bodies``.

Ours as everyday packs hold it, and out of what ``repack --all`` leaves of a store of 20,000 entries at most, each time
with nothing kept in memory from the read before; and once more where the block it lies in was read just before. The
others hold the same bodies:

* **pygit2**: blobs in one pack, read through libgit2, which verifies them. Left out where it is not installed.
* **SQLite**: a table keyed by hash, bodies zstd-compressed; **LMDB**: the same, left out where it is not installed.
  Both decompress and hash what they read.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from hashlib import sha1, sha256
from pathlib import Path
from typing import Any, Final

import zstandard

from agentsession_cas.effects.host import real_host
from agentsession_cas.objects import ObjectDatabase, Space
from benchmarks.harness import (
    OURS,
    Comparison,
    Options,
    Target,
    Turn,
    compare,
    each_of,
    fixed,
    optional,
    part,
    workplace,
)
from benchmarks.sessions import Place

__all__ = ["measure"]

GIT: Final = "pygit2"
SQLITE: Final = "SQLite"
LMDB: Final = "LMDB"
LIMIT: Final = "1 ms"
_READS: Final = 300
_ARCHIVE_MAX: Final = 20_000
"""Longer ones take minutes to archive, and are read no otherwise: a block holds as much."""
_LEVEL: Final = 3
_MAP_SIZE: Final = 1 << 36

Read = Callable[[bytes], object]
"""Reads the body of a hash."""


@part(rounds=7, entries=20_000, quick=(3, 2_000), full=(7, 500_000))
def measure(used: Options) -> list[Comparison]:
    """Reading random bodies by hash; entries are those of the session that has them, two objects each."""
    everyday = used.sessions.copy(used.entries, "everyday", repack=False)
    archived = used.sessions.copy(min(used.entries, _ARCHIVE_MAX), "archived", repack=True)
    with workplace(used.directory) as place, ExitStack() as held:
        digests, peers = _peers(everyday, place, held)
        missing = [name for name in (GIT, LMDB) if name not in peers]
        note = f"{len(digests):,} bodies" + "".join(f"; {name} is not installed" for name in missing)
        known = set(digests)
        fewer = [digest for digest in _digests(archived) if digest in known]
        chosen, again = (random.Random(1).choices(each, k=_READS) for each in (digests, fewer))
        daily = _compare("random body, everyday", everyday, peers, chosen, used, Target(GIT, 1.5))
        archive = [
            _compare("random body, repack --all", archived, {**peers, LIMIT: None}, again, used, Target(LIMIT, 1)),
            _compare("random body, block cached", archived, peers, again, used, Target(LMDB, 2.0), cached=True),
        ]
    return [replace(daily, note=note), *(replace(each, note=f"of {len(fewer):,} bodies") for each in archive)]


def _compare(
    title: str,
    place: Place,
    peers: dict[str, Read | None],
    chosen: list[bytes],
    used: Options,
    target: Target,
    *,
    cached: bool = False,
) -> Comparison:
    kept = {} if cached else {"cache_max": 0}
    with closing(ObjectDatabase(real_host(), str(place.store), **kept)) as database:

        def ours(digest: bytes) -> bytes:
            return database.get(Space.CONTENTS, digest)

        turns: dict[str, Turn] = {OURS: _after_another(ours, chosen) if cached else each_of(chosen, ours)}
        for name, read in peers.items():
            turns[name] = fixed(0.001) if read is None else each_of(chosen, read)
        return compare(title, turns, used.rounds, [target] if target.peer in turns else [])


def _after_another(read: Read, chosen: list[bytes]) -> Turn:
    """Each body is read twice, and the second time counts."""
    second = each_of

    def turn(number: int) -> list[float]:
        taken: list[float] = []
        for digest in chosen:
            read(digest)
            taken += second([digest], read)(number)
        return taken

    return turn


# --- the others ------------------------------------------------------------------------------------------------------


def _digests(place: Place) -> list[bytes]:
    with closing(ObjectDatabase(real_host(), str(place.store))) as database:
        return [each.digest for each in database.iterate(Space.CONTENTS)]


def _peers(everyday: Place, place: Path, held: ExitStack) -> tuple[list[bytes], dict[str, Read | None]]:
    """Every body's hash, and who reads them by it."""
    digests = _digests(everyday)
    with closing(ObjectDatabase(real_host(), str(everyday.store))) as database:

        def bodies() -> Iterator[tuple[bytes, bytes]]:
            return ((digest, database.get(Space.CONTENTS, digest)) for digest in digests)

        peers: dict[str, Read | None] = {SQLITE: held.enter_context(_sqlite(place / "bodies.db", bodies()))}
        lmdb, pygit2 = optional("lmdb"), optional("pygit2")
        if lmdb is not None:
            peers[LMDB] = held.enter_context(_lmdb(lmdb, place / "lmdb", bodies()))
        if pygit2 is not None and shutil.which("git"):
            peers[GIT] = _git(pygit2, place / "git", bodies())
    return digests, peers


def _verified(digest: bytes, data: bytes) -> bytes:
    if sha256(data).digest() != digest:
        raise AssertionError("a peer read another body")
    return data


@contextmanager
def _sqlite(path: Path, bodies: Iterator[tuple[bytes, bytes]]) -> Iterator[Read]:
    compress, decompress = zstandard.ZstdCompressor(_LEVEL).compress, zstandard.ZstdDecompressor().decompress
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE bodies (hash BLOB PRIMARY KEY, body BLOB) WITHOUT ROWID")
        rows = ((digest, compress(data)) for digest, data in bodies)
        database.executemany("INSERT INTO bodies VALUES (?, ?)", rows)
        database.commit()

        def read(digest: bytes) -> bytes:
            found = database.execute("SELECT body FROM bodies WHERE hash = ?", (digest,)).fetchone()
            return _verified(digest, decompress(found[0]))

        yield read


@contextmanager
def _lmdb(lmdb: Any, path: Path, bodies: Iterator[tuple[bytes, bytes]]) -> Iterator[Read]:
    compress, decompress = zstandard.ZstdCompressor(_LEVEL).compress, zstandard.ZstdDecompressor().decompress
    with lmdb.open(str(path), map_size=_MAP_SIZE) as database:
        with database.begin(write=True) as transaction:
            for digest, data in bodies:
                transaction.put(digest, compress(data))

        def read(digest: bytes) -> bytes:
            with database.begin() as transaction:
                return _verified(digest, decompress(transaction.get(digest)))

        yield read


def _git(pygit2: Any, path: Path, bodies: Iterator[tuple[bytes, bytes]]) -> Read:
    """The bodies as blobs of one pack, which ``git fast-import`` makes."""
    subprocess.run(["git", "init", "-q", "--bare", str(path)], check=True)
    names: dict[bytes, str] = {}
    command = ["git", "-C", str(path), "-c", "fastimport.unpackLimit=0", "fast-import", "--quiet"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as importing:
        assert importing.stdin is not None
        for digest, data in bodies:
            names[digest] = sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
            importing.stdin.write(b"blob\ndata %d\n" % len(data) + data + b"\n")
    if importing.returncode:
        raise AssertionError("git fast-import failed")
    odb = pygit2.Repository(str(path)).odb
    return lambda digest: odb.read(names[digest])
