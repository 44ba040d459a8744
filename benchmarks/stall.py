"""How long an append is held up while packs are written and merged behind it. ``python -m benchmarks.stall``.

One thread appends entries that are not durable, ``--pause`` milliseconds apart (1: some megabytes a second, far more
than a harness writes), so that the checkpoint thread is at work much of the time: it writes a fresh pack for each
megabyte, and every eighth of them sets off a merge. Each append is timed. *Held up* are those over the limit; on a
machine busy with other work a core is waited for, which counts here too: run it ahead of the others (``chrt -r 1``).
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from time import perf_counter, sleep
from typing import Final

import click

from agentsession_cas import Store
from agentsession_cas.core.packformat import Grade
from benchmarks.corpus import drafts
from benchmarks.harness import OURS, Comparison, Options, Target, figures, part, workplace

__all__ = ["main", "measure"]

LIMIT_MS: Final = 5.0


@click.command("stall")
@click.option("--entries", default=12_000, type=click.IntRange(100), help="Entries to append (12,000).")
@click.option("--pause", default=1.0, type=click.FloatRange(0), help="Milliseconds between two appends (1).")
@click.option("--dir", "directory", default=Path(), type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--quick", is_flag=True, help="A few of them.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def main(entries: int, pause: float, directory: Path, quick: bool, as_json: bool) -> None:
    """Time every append while packs are merged in the background; where to work is --dir (here)."""
    taken, grades = _append(min(entries, 2_000) if quick else entries, pause, directory)
    found = {
        "median_us": round(taken[len(taken) // 2] * 1e6, 1),
        "p99_us": round(taken[len(taken) * 99 // 100] * 1e6, 1),
        "p999_ms": round(taken[len(taken) * 999 // 1000] * 1e3, 3),
        "max_ms": round(taken[-1] * 1e3, 3),
        "held_up": sum(seconds * 1e3 > LIMIT_MS for seconds in taken),
        "fresh_packs": grades.count(Grade.FRESH),
        "merged_packs": grades.count(Grade.EVERYDAY),
    }
    if as_json:
        json.dump({"benchmark": "stall", "entries": len(taken), "limit_ms": LIMIT_MS, **found}, sys.stdout, indent=2)
        print()
    else:
        print(f"stall: {len(taken):,} appends while packs are written and merged")
        for name, value in found.items():
            print(f"  {name:13} {value:>12,}")


@part(rounds=1, entries=12_000, quick=(1, 1_000))
def measure(used: Options) -> list[Comparison]:
    """The slowest append in a thousand while packs are merged behind it; entries are those appended."""
    taken, _ = _append(used.entries, 1.0, used.directory)
    limit = f"{LIMIT_MS:g} ms"
    values = {OURS: taken[len(taken) * 999 // 1000] * 1e3, limit: LIMIT_MS}
    return [figures("append while packs are merged, p99.9", "ms", values, [Target(limit, 1)])]


def _append(entries: int, pause: float, directory: Path) -> tuple[list[float], list[Grade]]:
    """The seconds of each append, least first, and the grades of the packs there are then."""
    given = drafts(entries)
    gc.collect()
    gc.freeze()  # these are the benchmark's: the collector would go through them while an append waits
    taken: list[float] = []
    with workplace(directory) as place, Store.open(place / "store", create=True) as store, store.create() as session:
        for draft in given:
            start = perf_counter()
            session.append(draft, durable=False)
            taken.append(perf_counter() - start)
            sleep(pause / 1e3)
        return sorted(taken), [pack.grade() for pack in store.objects.packs()]


if __name__ == "__main__":
    main()
