"""Peers measured side by side, and the figures of it for a person and for a program.

Owns the method. Every round each peer takes one turn over the same work; the order turns and flips from round to round,
so that none always follows the same one; the first round is not counted. Garbage of others is collected before a turn,
what the benchmark itself holds is frozen, and the collector stays on, as it does for users. Ratios are of ours to the
peer *within a round*, and the median over rounds is shown: they survive a busy machine, times do not. A target is held
against the ratio of typical operations (medians); the ratio of whole turns, stalls and background work included, stands
beside it. Where the kernel says how long a thread waited for a core, that is told too: on a machine busy with other
work a sync ends with the scheduler's tick, all peers cost the same, and a ratio near 1 is worth nothing.
"""

from __future__ import annotations

import gc
import json
import platform
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any, Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table

__all__ = ["OURS", "Comparison", "Options", "Row", "Target", "compare", "options", "report", "workplace"]

OURS: Final = "agentsession-cas"

_WAITS: Final = Path("/proc/thread-self/schedstat")
_BUSY: Final = 0.1  # a real-time thread waits for a core 5% of the time: Linux sees to it

Turn = Callable[[int], list[float]]
"""A peer's turn in round n (0 is the one not counted): the seconds of each operation."""


class Target(NamedTuple):
    """What ours may cost at most, as a multiple of a peer's cost."""

    peer: str
    limit: float


@dataclass(frozen=True, slots=True)
class Options:
    """How much to measure: rounds counted, entries per turn (or in the session), and where."""

    rounds: int
    entries: int
    directory: Path
    as_json: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One peer's cost, in microseconds per operation.

    ``median``, ``p99`` and ``mean`` are over all its operations. ``ratio`` is ours to this peer's by the medians of a
    round, ``ratio_mean`` by its means; both the median over rounds, 1 for ours. ``target`` is what ``ratio`` may be at
    most, None when there is none, and ``met`` whether it is.
    """

    name: str
    median: float
    p99: float
    mean: float
    ratio: float
    ratio_mean: float
    target: float | None
    met: bool | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One kind of work and every peer's cost of it. ``operations`` is how many each peer did.

    ``waited`` is the share of the time for which a core was waited for, None where the system does not say.
    """

    title: str
    operations: int
    waited: float | None
    rows: list[Row]


def compare(title: str, peers: Mapping[str, Turn], rounds: int, targets: Sequence[Target] = ()) -> Comparison:
    """Let the peers, :data:`OURS` among them, take ``rounds`` turns each."""
    taken: dict[str, list[list[float]]] = {name: [] for name in peers}
    waited: list[float] = []
    gc.collect()
    gc.freeze()
    try:
        for number in range(rounds + 1):
            for name in _order(list(peers), number):
                gc.collect()
                before = _waited_s()
                taken[name].append(peers[name](number))
                waited.append(_waited_s() - before)
    finally:
        gc.unfreeze()
    counted = {name: turns[1:] for name, turns in taken.items()}
    limits = {target.peer: target.limit for target in targets}
    rows = [_row(name, counted[name], counted[OURS], limits.get(name)) for name in peers]
    share = sum(waited) / sum(sum(turn) for turns in taken.values() for turn in turns) if _WAITS.exists() else None
    return Comparison(title, sum(map(len, counted[OURS])), None if share is None else round(share, 3), rows)


def _waited_s() -> float:
    """For how long this thread could have run and had no core, in seconds; 0.0 where the system does not say."""
    return int(_WAITS.read_text().split()[1]) / 1e9 if _WAITS.exists() else 0.0


def _order(names: list[str], number: int) -> list[str]:
    first = number // 2 % len(names)
    turned = names[first:] + names[:first]
    return turned[::-1] if number % 2 else turned


def _row(name: str, turns: list[list[float]], ours: list[list[float]], target: float | None) -> Row:
    every = sorted(seconds for turn in turns for seconds in turn)
    ratio = median(median(own) / median(turn) for own, turn in zip(ours, turns, strict=True))
    return Row(
        name,
        _us(median(every)),
        _us(every[min(len(every) - 1, len(every) * 99 // 100)]),
        _us(mean(every)),
        round(ratio, 3),
        round(median(mean(own) / mean(turn) for own, turn in zip(ours, turns, strict=True)), 3),
        target,
        None if target is None else ratio <= target,
    )


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 2)


@contextmanager
def workplace(directory: Path) -> Iterator[Path]:
    """A fresh directory below ``directory``, gone at the end and not before: deleting slows some file systems down."""
    path = Path(tempfile.mkdtemp(prefix=".benchmark-", dir=directory))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def options(rounds: int, entries: int, quick: tuple[int, int]) -> Callable[[Callable[[Options], None]], click.Command]:
    """Make a command of a function; ``quick`` are the rounds and entries of ``--quick``."""

    def command(run: Callable[[Options], None]) -> click.Command:
        def call(rounds_: int, entries_: int, dir_: Path, quick_: bool, json_: bool) -> None:
            preset = quick if quick_ else (rounds, entries)
            run(Options(rounds_ or preset[0], entries_ or preset[1], dir_, json_))

        return click.Command(
            run.__module__,
            callback=call,
            help=run.__doc__,
            params=[
                click.Option(["rounds_", "--rounds"], type=click.IntRange(1), help=f"Rounds counted ({rounds})."),
                click.Option(["entries_", "--entries"], type=click.IntRange(10), help=f"Entries ({entries})."),
                click.Option(
                    ["dir_", "--dir"],
                    type=click.Path(exists=True, file_okay=False, path_type=Path),
                    default=Path(),
                    help="Where to work: a directory on the disk to measure (here).",
                ),
                click.Option(["quick_", "--quick"], is_flag=True, help="Fewer rounds, fewer entries."),
                click.Option(["json_", "--json"], is_flag=True, help="Write JSON."),
            ],
        )

    return command


def report(name: str, used: Options, corpus: Mapping[str, int], compared: Sequence[Comparison]) -> None:
    """Print what was measured: tables, or one JSON document."""
    machine = {
        "system": platform.platform(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    if used.as_json:
        document: dict[str, Any] = {
            "benchmark": name,
            "rounds": used.rounds,
            "entries": used.entries,
            "unit": "us",
            "machine": machine,
            "corpus": dict(corpus),
            "comparisons": [asdict(each) for each in compared],
        }
        json.dump(document, sys.stdout, indent=2)
        print()
        return
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(f"{name}: {used.rounds} rounds on {machine['system']}, Python {machine['python']}", highlight=False)
    console.print("bodies, bytes: " + ", ".join(f"{key} {value}" for key, value in corpus.items()), highlight=False)
    for each in compared:
        console.print(_table(each))
        if each.waited is not None and each.waited > _BUSY:
            console.print(
                f"[yellow]The machine is busy: {each.waited:.0%} of that time went by waiting for a core. "
                "Run this again when it is not, or ahead of the others (chrt -r 1).[/]"
            )


def _table(compared: Comparison) -> Table:
    table = Table(title=f"{compared.title} (µs, {compared.operations} each)", title_justify="left", expand=True)
    table.add_column("peer", ratio=1)
    for heading in ("median", "p99", "mean", "ours / peer", "by mean", "target", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in compared.rows:
        table.add_row(
            row.name,
            *(f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" for value in (row.median, row.p99, row.mean)),
            *(("–", "–") if row.name == OURS else (f"{row.ratio:.3g}×", f"{row.ratio_mean:.3g}×")),
            "" if row.target is None else f"≤ {row.target:g}×",
            {None: "", True: "[green]met[/]", False: "[red]missed[/]"}[row.met],
        )
    return table
