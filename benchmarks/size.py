"""What keeping sessions costs in bytes, beside what else one might keep them in. ``python -m benchmarks.size``.

The sessions are those of ``tools.corpus``. Ours is measured three times, every file under the store's root counted: as
it is when the sessions are over, after ``repack`` (*everyday*), after ``repack --all`` (*archive*). The others:

* **JSONL**: the session files, forks with the path they continue from.
* **solid archive**: all these files one behind the other, ``zstd -19 --long=27``. Nothing can be read of it alone.
* **git**: the same files in a repository, one commit, after ``git gc --aggressive``: its objects.
* **SQLite**: a row for each entry of a session's own, its body as JSON text; after VACUUM.

*Canonical* bytes are those of the envelopes and bodies of all sessions' own entries; per entry means per one of these.
A random body is read by its hash out of the archive, with no block kept in memory from the read before.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

import click
import zstandard
from rich.console import Console
from rich.table import Table

from agentsession_cas import Store
from agentsession_cas.effects.host import real_host
from agentsession_cas.objects import ObjectDatabase, Space
from benchmarks.harness import OURS, Comparison, Options, figures, part, workplace
from benchmarks.harness import Target as Limit
from tools.corpus import fill, scripts

__all__ = ["main", "measure"]

EVERYDAY: Final = 0.33
ARCHIVE: Final = 1.25
GIT: Final = 0.5
BODY_MS: Final = 1.0
_BODIES: Final = 400
_ARCHIVE_LIMITS: Final = {"solid archive": ARCHIVE, "git": GIT, "JSONL": 0.25}


@dataclass(frozen=True, slots=True)
class Target:
    """A figure, what it may be at most, and whether it is."""

    name: str
    value: float
    limit: float

    @property
    def met(self) -> bool:
        """Whether it is within the limit."""
        return self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything measured. ``sizes`` are bytes by name, ``parts`` those of our store by kind of file."""

    sessions: int
    entries: int
    canonical: int
    sizes: dict[str, int]
    parts: dict[str, dict[str, int]]
    repack_s: dict[str, float]
    body_ms: float

    def targets(self) -> list[Target]:
        """The figures that have a limit; git is left out where there is none."""
        archive = self.sizes["archive"]
        targets = [
            Target("everyday / canonical", self.sizes["everyday"] / self.canonical, EVERYDAY),
            Target("archive / solid archive", archive / self.sizes["solid archive"], ARCHIVE),
        ]
        if "git" in self.sizes:
            targets.append(Target("archive / git", archive / self.sizes["git"], GIT))
        return [*targets, Target("random body, ms", self.body_ms, BODY_MS)]


@click.command("size")
@click.option("--sessions", default=40, type=click.IntRange(1), help="How many sessions (40).")
@click.option("--entries", default=600, type=click.IntRange(20), help="Entries of a typical session (600).")
@click.option("--seed", default=1, help="Another seed, other sessions (1).")
@click.option("--dir", "directory", default=Path(), type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--quick", is_flag=True, help="Few sessions, and a fast solid archive: says little.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def main(sessions: int, entries: int, seed: int, directory: Path, quick: bool, as_json: bool) -> None:
    """Compare the bytes sessions take in a store with what they take elsewhere; where to work is --dir (here)."""
    if quick:
        sessions, entries = min(sessions, 3), min(entries, 60)
    with workplace(directory) as place:
        measured = _measure(place, sessions, entries, seed, level=3 if quick else 19)
    if as_json:
        document: dict[str, Any] = {"benchmark": "size", "unit": "bytes", **asdict(measured)}
        document["targets"] = [{**asdict(target), "met": target.met} for target in measured.targets()]
        json.dump(document, sys.stdout, indent=2)
        print()
    else:
        _report(measured)


@part(rounds=1, entries=24_000, quick=(1, 180))
def measure(used: Options) -> list[Comparison]:
    """The disk that sessions take beside what they take elsewhere; entries are those of all of them."""
    sessions = max(3, used.entries // 600)
    with workplace(used.directory) as place:
        found = _measure(place, sessions, used.entries // sessions, seed=1, level=19 if sessions > 3 else 3)
    peers: dict[str, float] = {name: size for name, size in found.sizes.items() if name not in found.parts}
    everyday: dict[str, float] = {OURS: found.sizes["everyday"], "canonical": found.canonical, **peers}
    limits = [Limit(name, limit) for name, limit in _ARCHIVE_LIMITS.items() if name in peers]
    return [
        figures("disk, everyday", "bytes", everyday, [Limit("canonical", EVERYDAY)]),
        figures("disk after repack --all", "bytes", {OURS: found.sizes["archive"], **peers}, limits),
    ]


def _measure(place: Path, sessions: int, entries: int, seed: int, level: int) -> Measured:
    files = place / "files"
    files.mkdir()
    sizes: dict[str, int] = {}
    parts: dict[str, dict[str, int]] = {}
    took: dict[str, float] = {}
    with Store.open(place / "store", create=True) as store:
        names = list(fill(store, scripts(sessions, entries, seed)))
        _weigh(store, "as written", sizes, parts)
        for name in names:
            store.project(name, files / f"{name}.jsonl")
        counted, canonical = _own(store, names)
        _sqlite(store, names, place / "rows.db")
        for stage, all_ in (("everyday", False), ("archive", True)):
            start = perf_counter()
            store.repack(all_)
            took[stage] = round(perf_counter() - start, 2)
            _weigh(store, stage, sizes, parts)
    sizes["JSONL"] = _bytes_below(files)
    sizes["solid archive"] = _solid(files, level)
    sizes["SQLite"] = (place / "rows.db").stat().st_size
    if shutil.which("git"):
        sizes["git"] = _git(files, place / "git")
    return Measured(len(names), counted, canonical, sizes, parts, took, _random_body_ms(place / "store"))


def _weigh(store: Store, stage: str, sizes: dict[str, int], parts: dict[str, dict[str, int]]) -> None:
    """Every file under the root, by what it is."""
    root = Path(store.root)
    found: dict[str, int] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            kind = _kind(path.relative_to(root))
            found[kind] = found.get(kind, 0) + path.stat().st_size
    sizes[stage] = sum(found.values())
    parts[stage] = found


def _kind(path: Path) -> str:
    match path.parts:
        case ("objects", "pack", name):
            return "packs" if name.endswith(".pack") else "idx"
        case ("objects", "dict", *_):
            return "dictionaries"
        case ("objects", *_):
            return "loose"
        case ("sessions", _, "journal"):
            return "journals"
        case ("sessions", _, name) if name.startswith("log-"):
            return "logs"
    return "the rest"


def _bytes_below(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _own(store: Store, names: list[str]) -> tuple[int, int]:
    """How many entries are the sessions' own, and their canonical bytes."""
    count = canonical = 0
    for name in names:
        session = store.read(name)
        for position in range(session.source.base_count, len(session.source)):
            entry = session.source.entry(position)
            canonical += len(entry.envelope) + len(entry.content)
            count += 1
    return count, canonical


# --- the others ------------------------------------------------------------------------------------------------------


def _solid(files: Path, level: int) -> int:
    """``zstd -19 --long=27`` of all files, in the order the sessions were made."""
    settings = zstandard.ZstdCompressionParameters.from_level(level, window_log=27, enable_ldm=True)
    made = sorted(files.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    whole = b"".join(path.read_bytes() for path in made)
    return len(zstandard.ZstdCompressor(compression_params=settings).compress(whole))


def _git(files: Path, place: Path) -> int:
    shutil.copytree(files, place)
    commands: Iterator[list[str]] = iter(
        [
            ["init", "-q"],
            ["add", "."],
            ["-c", "user.name=size", "-c", "user.email=size@example.org", "commit", "-q", "-m", "all"],
            ["gc", "-q", "--aggressive", "--prune=now"],
        ]
    )
    for command in commands:
        subprocess.run(["git", "-C", str(place), *command], check=True, capture_output=True)
    return _bytes_below(place / ".git" / "objects")


def _sqlite(store: Store, names: list[str], path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("create table entries (id blob, session text, parent blob, ts text, type text, body text)")
    for name in names:
        session = store.read(name)
        own = range(session.source.base_count, len(session.source))
        database.executemany(
            "insert into entries values (?, ?, ?, ?, ?, ?)",
            (
                (_raw(entry.id), name, _raw(entry.parent), entry.ts, entry.type, entry.content.decode())
                for entry in map(session.source.entry, own)
            ),
        )
    database.commit()
    database.execute("vacuum")
    database.close()


def _raw(entry_id: str) -> bytes:
    return bytes.fromhex(entry_id.removeprefix("sha256:"))


def _random_body_ms(root: Path) -> float:
    """The median of reading a body by its hash, in milliseconds."""
    database = ObjectDatabase(real_host(), str(root), cache_max=0)
    digests = [place.digest for place in database.iterate(Space.CONTENTS)]
    chosen = random.Random(1).choices(digests, k=_BODIES)
    database.get(Space.CONTENTS, chosen[0])  # maps the idx, loads the dictionary
    taken: list[float] = []
    for digest in chosen:
        start = perf_counter()
        database.get(Space.CONTENTS, digest)
        taken.append(perf_counter() - start)
    database.close()
    return round(median(taken) * 1e3, 3)


# --- telling ---------------------------------------------------------------------------------------------------------


def _report(measured: Measured) -> None:
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(
        f"size: {measured.sessions} sessions, {measured.entries} entries, {measured.canonical / 1e6:.1f} MB canonical",
        highlight=False,
    )
    table = Table(title="All of them", title_justify="left", expand=True)
    table.add_column("kept in", ratio=1)
    for heading in ("MB", "bytes per entry", "of canonical", "of JSONL", "of the solid archive"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, size in sorted(measured.sizes.items(), key=lambda each: -each[1]):
        table.add_row(
            name,
            f"{size / 1e6:.2f}",
            f"{size / measured.entries:.0f}",
            *(f"{size / of:.3f}×" for of in (measured.canonical, measured.sizes["JSONL"])),
            f"{size / measured.sizes['solid archive']:.2f}×",
        )
    console.print(table)
    parts = Table(title="Ours, bytes per entry", title_justify="left", expand=True)
    parts.add_column("what", ratio=1)
    for stage in measured.parts:
        parts.add_column(stage, justify="right", no_wrap=True)
    for kind in sorted({kind for found in measured.parts.values() for kind in found}):
        parts.add_row(kind, *(f"{found.get(kind, 0) / measured.entries:.1f}" for found in measured.parts.values()))
    parts.add_row("repack took, s", "", *(f"{seconds:.1f}" for seconds in measured.repack_s.values()))
    console.print(parts)
    targets = Table(title="Targets", title_justify="left", expand=True)
    targets.add_column("figure", ratio=1)
    for heading in ("reached", "target", ""):
        targets.add_column(heading, justify="right", no_wrap=True)
    for each in measured.targets():
        met = "[green]met[/]" if each.met else "[red]missed[/]"
        targets.add_row(each.name, f"{each.value:.3f}", f"≤ {each.limit:g}", met)
    console.print(targets)


if __name__ == "__main__":
    main()
