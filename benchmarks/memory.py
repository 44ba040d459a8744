"""How much memory it takes, at its peak, to use a long session. ``python -m benchmarks memory``.

Each work has a process of its own, and what counts is the peak above what the process had once everything was imported
and used for a tiny session. The store is as it is after appending.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from agentsession_cas import Store, entry
from benchmarks.checking import check
from benchmarks.harness import OURS, Comparison, Options, Target, figures, part
from benchmarks.resume import resume
from benchmarks.sessions import Place
from benchmarks.whole import read_all

__all__ = ["measure", "peak_mib"]

_STATUS: Final = Path("/proc/self/status")
_WORK: Final[dict[str, Callable[[Place], object]]] = {
    "resume": lambda place: _resume(place),
    "read all": read_all,
    "fsck": lambda place: _check(place),
}
_LIMITS: Final = {"resume": 64.0}
"""In MiB."""


@part(rounds=1, entries=100_000, quick=(1, 2_000), full=(1, 1_000_000))
def measure(used: Options) -> list[Comparison]:
    """The peak of memory to use a session; entries are the session's."""
    place = used.sessions.of(used.entries)
    return [_measure(work, place, used.entries) for work in _WORK]


def _measure(work: str, place: Place, entries: int) -> Comparison:
    command = [sys.executable, "-m", "benchmarks.memory", work, str(place.store), place.session]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    values, targets = {OURS: float(done.stdout)}, []
    if work in _LIMITS:
        limit = f"{_LIMITS[work]:g} MiB"
        values[limit] = _LIMITS[work]
        targets.append(Target(limit, 1.0))
    return figures(f"memory to {work}, {entries:,} entries", "MiB", values, targets)


def peak_mib() -> float:
    """The peak of this process's memory, in MiB; since it began its program, where the system says that."""
    if _STATUS.exists():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / (1 << 10)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _resume(place: Place) -> None:
    with ExitStack() as held:
        resume(place, held)


def _check(place: Place) -> None:
    with ExitStack() as held:
        check(place, held)


def _main(work: str, store: str, session: str) -> None:
    """The process: do the work, print what it took."""
    with Store.memory() as tiny, tiny.create() as written:
        written.append(entry.user("hi"))
        written.context()
        tiny.fsck()
    before = peak_mib()
    _WORK[work](Place(0, Path(store), session, Path(), Path()))
    print(round(peak_mib() - before, 2))


if __name__ == "__main__":
    _main(*sys.argv[1:])
