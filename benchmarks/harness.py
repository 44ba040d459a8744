"""Peers measured side by side: the method of the suite.

Owns the method. Every round each peer takes one turn over the same work; the order turns and flips from round to round,
so that none always follows the same one; the first round is not counted. Garbage of others is collected before a turn,
what the benchmark itself holds is frozen, and the collector stays on, as it does for users. Ratios are of ours to the
peer *within a round*, and the median over rounds is shown: they survive a busy machine, times do not. A target is held
against the ratio of typical operations (medians); the ratio of whole turns, stalls and background work included, stands
beside it. A fixed figure that ours may cost at most ("5 ms") is a peer that always costs that. Where the kernel says
how long a thread waited for a core, that is told too: on a machine busy with other work a sync ends with the
scheduler's tick, all peers cost the same, and a ratio near 1 is worth nothing.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeVar

from benchmarks.sessions import Sessions

__all__ = [
    "BUSY",
    "OURS",
    "SLOWDOWN",
    "Comparison",
    "Options",
    "Part",
    "Row",
    "Size",
    "Target",
    "Turn",
    "compare",
    "each_of",
    "figures",
    "fixed",
    "fresh",
    "optional",
    "part",
    "without_gc",
    "workplace",
]

OURS: Final = "agentsession-cas"
BUSY: Final = 0.1
"""The share of waiting for a core that makes a comparison doubtful; a real-time thread waits 5%: Linux sees to it."""
SLOWDOWN: Final[ContextVar[float]] = ContextVar("SLOWDOWN", default=1.0)
"""What all that ours costs is multiplied by: a seeded mistake, to see that the suite tells of it."""

_WAITS: Final = Path("/proc/thread-self/schedstat")

Thing = TypeVar("Thing")

Turn = Callable[[int], list[float]]
"""A peer's turn in round n (0 is the one not counted): the seconds of each operation."""


class Target(NamedTuple):
    """What ours may cost at most, as a multiple of a peer's cost."""

    peer: str
    limit: float


class Size(NamedTuple):
    """How much to measure: rounds counted, and entries, of which a part says what they are."""

    rounds: int
    entries: int


@dataclass(frozen=True, slots=True)
class Options:
    """What a part is to measure, and where; ``sessions`` are those that parts share."""

    rounds: int
    entries: int
    directory: Path
    sessions: Sessions


@dataclass(frozen=True, slots=True)
class Row:
    """One peer's cost of an operation: microseconds, unless the comparison has another unit.

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
    """One kind of work and every peer's cost of it, ours first. ``operations`` is how many each peer did.

    ``waited`` is the share of the time for which a core was waited for, None where the system does not say.
    ``effects`` are those of one operation of ours: writes, bytes, syncs, files made. ``note`` is for people.
    """

    title: str
    operations: int
    waited: float | None
    rows: list[Row]
    unit: str = "us"
    effects: dict[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def missed(self) -> list[Row]:
        """The peers whose target is missed."""
        return [row for row in self.rows if row.met is False]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the suite: what it measures, and how much of it usually, in a hurry, and in full."""

    name: str
    help: str
    usual: Size
    quick: Size
    full: Size
    measure: Callable[[Options], list[Comparison]]


def part(
    rounds: int, entries: int, quick: tuple[int, int], full: tuple[int, int] | None = None
) -> Callable[[Callable[[Options], list[Comparison]]], Part]:
    """Make a part of a function, named after its module."""
    usual = Size(rounds, entries)

    def declare(measure: Callable[[Options], list[Comparison]]) -> Part:
        name = measure.__module__.rpartition(".")[2]
        return Part(name, measure.__doc__ or "", usual, Size(*quick), usual if full is None else Size(*full), measure)

    return declare


def compare(title: str, peers: Mapping[str, Turn], rounds: int, targets: Sequence[Target] = ()) -> Comparison:
    """Let the peers, :data:`OURS` among them, take ``rounds`` turns each."""
    taken: dict[str, list[list[float]]] = {name: [] for name in peers}
    waited = spent = 0.0
    gc.collect()
    gc.freeze()
    try:
        for number in range(rounds + 1):
            for name in _order(list(peers), number):
                gc.collect()
                before, start = _waited_s(), perf_counter()
                taken[name].append(peers[name](number))
                waited += _waited_s() - before
                spent += perf_counter() - start
        taken[OURS] = [[seconds * SLOWDOWN.get() for seconds in turn] for turn in taken[OURS]]
    finally:
        gc.unfreeze()
    counted = {name: turns[1:] for name, turns in taken.items()}
    limits = {target.peer: target.limit for target in targets}
    rows = [_row(name, counted[name], counted[OURS], limits.get(name)) for name in peers]
    share = round(waited / spent, 3) if _WAITS.exists() and spent else None
    return Comparison(title, sum(map(len, counted[OURS])), share, rows)


def _waited_s() -> float:
    """For how long this thread could have run and had no core, in seconds; 0.0 where the system does not say."""
    return int(_WAITS.read_text().split()[1]) / 1e9 if _WAITS.exists() else 0.0


def _order(names: list[str], number: int) -> list[str]:
    first = number // 2 % len(names)
    turned = names[first:] + names[:first]
    return turned[::-1] if number % 2 else turned


def _row(name: str, turns: list[list[float]], ours: list[list[float]], target: float | None) -> Row:
    every = sorted(seconds for turn in turns for seconds in turn)
    ratio = round(median(median(own) / median(turn) for own, turn in zip(ours, turns, strict=True)), 3)
    return Row(
        name,
        _us(median(every)),
        _us(every[min(len(every) - 1, len(every) * 99 // 100)]),
        _us(mean(every)),
        ratio,
        round(median(mean(own) / mean(turn) for own, turn in zip(ours, turns, strict=True)), 3),
        target,
        None if target is None else ratio <= target,
    )


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 2)


@contextmanager
def workplace(directory: Path) -> Iterator[Path]:
    """A fresh directory below ``directory``, gone at the end and not before: deleting slows some file systems down.

    Its path is whole, so that peers find it from wherever they run.
    """
    path = Path(tempfile.mkdtemp(prefix=".benchmark-", dir=directory.resolve()))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def fresh(work: Callable[[ExitStack], object], times: int = 1) -> Turn:
    """A turn that does the work ``times`` times. What it holds, it closes once the clock has stopped."""

    def turn(number: int) -> list[float]:  # noqa: ARG001
        taken: list[float] = []
        for _ in range(times):
            with ExitStack() as held:
                start = perf_counter()
                work(held)
                taken.append(perf_counter() - start)
        return taken

    return turn


def without_gc(turn: Turn) -> Turn:
    """The turn with the cyclic collector stopped."""

    def quiet(number: int) -> list[float]:
        gc.disable()
        try:
            return turn(number)
        finally:
            gc.enable()

    return quiet


def each_of(things: Sequence[Thing], work: Callable[[Thing], object]) -> Turn:
    """A turn that does the work with each of the things: the seconds of each."""

    def turn(number: int) -> list[float]:  # noqa: ARG001
        taken: list[float] = []
        for thing in things:
            start = perf_counter()
            work(thing)
            taken.append(perf_counter() - start)
        return taken

    return turn


def optional(name: str) -> Any:
    """A module that a peer needs and that need not be installed: None when it is not."""
    try:
        return import_module(name)
    except ImportError:
        return None


def fixed(seconds: float) -> Turn:
    """A limit as a peer: it always takes that long."""
    return lambda number: [seconds]  # noqa: ARG005


def figures(title: str, unit: str, values: Mapping[str, float], targets: Sequence[Target] = ()) -> Comparison:
    """A comparison of single figures, :data:`OURS` among them, that are no times: ``unit`` is bytes, MiB…"""
    limits = {target.peer: target.limit for target in targets}
    ours = values[OURS] * SLOWDOWN.get()
    rows = []
    for name, given in values.items():
        value = ours if name == OURS else given
        ratio, limit = 1.0 if name == OURS else round(ours / value, 3), limits.get(name)
        met = None if limit is None else ratio <= limit
        rows.append(Row(name, value, value, value, ratio, ratio, limit, met))
    return Comparison(title, 1, None, rows, unit)
