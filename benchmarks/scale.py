"""A store of many sessions, and what each thing one does with it costs then. ``python -m benchmarks.scale``.

``--entries`` entries (1,000,000) in sessions of a hundred: each is asked for something, calls tools and reads what they
say. Every tenth session comes in as a file (*import*), the others are recorded (*record*). Then, each in a process of
its own so that its peak of memory is its own:

* *open*: ``Store.open`` until it could be used; *read*: the head of one of its sessions; *resume*: hold a session for
  writing and build what the next model call receives; *append*: one entry, not durable, to a session held;
* *list*: every session, and the newest twenty;
* *fsck* without bodies and with them, *repack*, *repack --all*, and a *sweep* that marks all and finds a session gone.

*Memory* is the peak above what the process had once everything was imported; microseconds are those on a core. With
``--keep DIR`` the store is ``DIR/store``: built unless it is there, and left there as the last stage leaves it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from agentsession_cas import Draft, Store, entry
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.header import new_header
from agentsession_cas.core.timestamps import ts_from_ns
from benchmarks.corpus import Cuttings
from benchmarks.harness import OURS, Comparison, Options, Target, figures, part, workplace
from benchmarks.memory import peak_mib

__all__ = ["main", "measure"]

PER_SESSION: Final = 100
OPEN_MS: Final = 5.0
_IMPORTED_EVERY: Final = 10
_BATCH: Final = 10
_REPEATS: Final = 40
_SECOND_NS: Final = 1_000_000_000
_START_NS: Final = 1_770_000_000 * _SECOND_NS

Json = dict[str, Any]


@dataclass(slots=True)
class Stage:
    """What a stage took: seconds, those of them on a core, the peak of memory, the bytes there are after it."""

    name: str
    seconds: float
    cpu: float
    memory_mb: float
    disk: int = 0
    files: int = 0
    figures: dict[str, float] = field(default_factory=dict)


# --- the sessions ----------------------------------------------------------------------------------------------------


class Sessions(Cuttings):
    """Seeded sessions whose texts are cut from the standard library's sources."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__(random.Random(seed))

    def drafts(self, count: int) -> list[Draft]:
        """The entries of one session."""
        made = [entry.config(model="gpt-5.1-codex", instructions=self._text[:1200], replace=True)]
        while len(made) < count:
            made += self._turn()
        return made[:count]

    def _turn(self) -> Iterator[Draft]:
        yield entry.user(self._cut(250))
        for _ in range(self._chance.randint(2, 9)):
            call_id, response = f"call_{self._token(24)}", f"resp_{self._token(48)}"
            call = {
                "type": "function_call",
                "call_id": call_id,
                "name": "read_file",
                "arguments": json.dumps({"path": f"/src/{self._token(3)}.py"}),
            }
            yield entry.item(call, response=response)
            yield entry.response(response_id=response, status="completed", latency_ms=self._chance.randint(300, 9000))
            yield entry.function_call_output(call_id, self._cut(self._chance.choice((80, 300, 900, 4000))))


def _file(number: int, given: list[Draft]) -> bytes:
    """A session as a file."""
    start = _START_NS + number * 1000 * _SECOND_NS
    header = new_header(id=f"imported-{number:06}", created_at=ts_from_ns(start), cwd=f"/src/project{number % 40}")
    lines, parent = [header.line], ""
    for at, draft in enumerate(given):
        made = Entry.seal(draft.type, draft.body, parent, ts_from_ns(start + at * _SECOND_NS))
        lines.append(made.line)
        parent = made.id
    return b"\n".join([*lines, b""])


# --- stages ----------------------------------------------------------------------------------------------------------


def _build(root: Path, entries: int) -> dict[str, float]:
    sessions, count = Sessions(), max(1, entries // PER_SESSION)
    took = {"record": 0.0, "import": 0.0}
    done = {"record": 0, "import": 0}
    with Store.open(root, create=True) as store:
        for number in range(count):
            given = sessions.drafts(PER_SESSION)
            kind = "import" if number % _IMPORTED_EVERY == 1 else "record"
            data = _file(number, given) if kind == "import" else b""
            start = perf_counter()
            if data:
                store.import_file(data, as_record=True)
            else:
                _record(store, number, given)
            took[kind] += perf_counter() - start
            done[kind] += len(given)
    return {f"{kind}, µs an entry": took[kind] / done[kind] * 1e6 for kind in took if done[kind]}


def _record(store: Store, number: int, given: list[Draft]) -> None:
    created = ts_from_ns(_START_NS + number * 1000 * _SECOND_NS)
    with store.create(id=_name(number), created_at=created, cwd=f"/src/project{number % 40}") as session:
        for at in range(0, len(given), _BATCH):
            session.append_batch(given[at : at + _BATCH], durable=False)


def _name(number: int) -> str:
    return f"recorded-{number:06}"


def _use(root: Path, entries: int) -> dict[str, float]:
    count = max(1, entries // PER_SESSION)
    chance = random.Random(2)
    recorded = [number for number in range(1, count) if number % _IMPORTED_EVERY != 1]
    names = [_name(number) for number in chance.choices(recorded, k=_REPEATS)]
    taken: dict[str, list[float]] = {"open, ms": [], "read a head, ms": [], "resume, ms": [], "append, ms": []}
    for name in names:
        start = perf_counter()
        store = Store.open(root)
        opened = perf_counter()
        taken["open, ms"].append(opened - start)
        assert store.read(name).leaf
        taken["read a head, ms"].append(perf_counter() - opened)
        start = perf_counter()
        with store.open_session(name) as session:
            assert session.context().items
            taken["resume, ms"].append(perf_counter() - start)
            start = perf_counter()
            session.append(entry.user("and now?"), durable=False)
            taken["append, ms"].append(perf_counter() - start)
        store.close()
    return {what: median(each) * 1e3 for what, each in taken.items()}


def _list(root: Path, entries: int) -> dict[str, float]:  # noqa: ARG001
    with Store.open(root, read_only=True) as store:
        start = perf_counter()
        found = store.list()
        everything = perf_counter() - start
        start = perf_counter()
        newest = store.list(limit=20)
        assert newest == found[:20]
        return {"all, ms": everything * 1e3, "newest 20, ms": (perf_counter() - start) * 1e3}


def _fsck_fast(root: Path, entries: int) -> dict[str, float]:
    return _fsck(root, entries, fast=True)


def _fsck(root: Path, entries: int, *, fast: bool = False) -> dict[str, float]:  # noqa: ARG001
    with Store.open(root, read_only=True) as store:
        report = store.fsck(fast=fast)
        bad = [each for each in report.findings if each.code != "lost_tail"]
        if bad:
            raise SystemExit(f"fsck found {len(bad)} things: {bad[0]}")
        return {"entries": report.entries}


def _sweep(root: Path, entries: int) -> dict[str, float]:  # noqa: ARG001
    with Store.open(root) as store:
        if not store.holds(_name(0)):  # deleted when the store was used before
            _record(store, 0, Sessions().drafts(PER_SESSION))
        store.delete(_name(0))
        return {"objects swept": store.sweep(grace_s=0).objects}


def _repack(root: Path, entries: int, *, everything: bool = False) -> dict[str, float]:  # noqa: ARG001
    with Store.open(root) as store:
        report = store.repack(everything)
        return {"packs before": report.packs_before, "packs after": report.packs}


def _repack_all(root: Path, entries: int) -> dict[str, float]:
    return _repack(root, entries, everything=True)


STAGES: Final[dict[str, Callable[[Path, int], dict[str, float]]]] = {
    "build": _build,
    "use": _use,
    "list": _list,
    "fsck --fast": _fsck_fast,
    "fsck": _fsck,
    "repack": _repack,
    "use, repacked": _use,
    "sweep": _sweep,
    "repack --all": _repack_all,
    "use, archived": _use,
    "fsck, archived": _fsck,
}


def _run(name: str, root: Path, entries: int) -> Stage:
    before = peak_mib()
    start, worked = perf_counter(), process_time()
    figures = STAGES[name](root, entries)
    taken = (round(perf_counter() - start, 3), round(process_time() - worked, 3))
    return Stage(name, *taken, round(peak_mib() - before, 1), figures=figures)


def _in_a_process(name: str, root: Path, entries: int) -> Stage:
    command = [sys.executable, "-m", "benchmarks.scale", "--stage", name, "--dir", str(root), "--entries", str(entries)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr}")
    stage = Stage(**json.loads(done.stdout))
    sizes = [path.lstat() for path in root.rglob("*") if path.is_file()]
    stage.disk, stage.files = sum(found.st_size for found in sizes), len(sizes)
    return stage


@part(rounds=1, entries=50_000, quick=(1, 1_000), full=(1, 1_000_000))
def measure(used: Options) -> list[Comparison]:
    """Using a store of many sessions, each work in a process of its own; entries are those of all sessions."""
    with workplace(used.directory) as place:
        done = {name: _in_a_process(name, place, used.entries) for name in STAGES}
    compared = [figures(f"memory: {name}", "MiB", {OURS: stage.memory_mb}) for name, stage in done.items()]
    limit = f"{OPEN_MS:g} ms"
    for name, stage in done.items():
        if "open, ms" in stage.figures:
            values = {OURS: stage.figures["open, ms"], limit: OPEN_MS}
            compared.append(figures(f"open the store: {name}", "ms", values, [Target(limit, 1)]))
    return compared


# --- telling ---------------------------------------------------------------------------------------------------------


_DIRECTORY: Final = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command("scale")
@click.option("--entries", default=1_000_000, type=click.IntRange(PER_SESSION), help="Entries in all (1,000,000).")
@click.option("--dir", "directory", default=Path(), type=_DIRECTORY)
@click.option("--keep", type=_DIRECTORY, help="Use DIR/store, and keep it.")
@click.option("--quick", is_flag=True, help="A hundredth of it.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.option("--stage", type=click.Choice(list(STAGES)), hidden=True)
def main(entries: int, directory: Path, keep: Path | None, quick: bool, as_json: bool, stage: str | None) -> None:
    """Build a large store and measure what is done with it; where to work is --dir (here), or --keep."""
    if stage is not None:
        (directory / "store").mkdir(exist_ok=True)
        json.dump(asdict(_run(stage, directory / "store", entries)), sys.stdout)
        return
    entries = min(entries, 10_000) if quick else entries
    done: list[Stage] = []
    with workplace(directory) if keep is None else nullcontext(keep) as place:
        built = (place / "store").exists()
        for name in [name for name in STAGES if name != "build" or not built]:
            done.append(_in_a_process(name, place, entries))
            if not as_json:
                print(f"{name}: {done[-1].seconds:.1f} s", file=sys.stderr, flush=True)
    if as_json:
        document = {"benchmark": "scale", "entries": entries, "stages": [asdict(each) for each in done]}
        json.dump(document, sys.stdout, indent=2)
        print()
    else:
        _report(entries, done)


def _report(entries: int, done: list[Stage]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    title = f"{entries:,} entries in {entries // PER_SESSION:,} sessions"
    table = Table(title=title, title_justify="left", expand=True)
    table.add_column("stage", no_wrap=True)
    for heading in ("s", "on a core", "µs/entry", "memory, MB", "disk, B/entry", "files"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("figures", ratio=1)
    for each in done:
        table.add_row(
            each.name,
            f"{each.seconds:,.1f}",
            f"{each.cpu:,.1f}",
            f"{each.cpu / entries * 1e6:,.1f}",
            f"{each.memory_mb:,.0f}",
            f"{each.disk / entries:,.0f}",
            f"{each.files:,}",
            ", ".join(f"{what} {value:,.2f}".removesuffix(".00") for what, value in each.figures.items()),
        )
    console.print(table)
    opened = next(each.figures["open, ms"] for each in done if each.name == "use")
    met = "[green]met[/]" if opened <= OPEN_MS else "[red]missed[/]"
    console.print(f"opening the store: {opened:.2f} ms, target ≤ {OPEN_MS:g} ms: {met}", highlight=False)


if __name__ == "__main__":
    main()
