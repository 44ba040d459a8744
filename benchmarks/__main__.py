"""The suite: ``python -m benchmarks [NAME…] [--quick|--full] [--json]``. Exit code 1 when a target is missed."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from time import perf_counter

import click

from benchmarks import PARTS
from benchmarks.harness import SLOWDOWN, Options, Part, Size, workplace
from benchmarks.memory import peak_mib
from benchmarks.plots import LENGTHS, QUICK, plot
from benchmarks.sessions import Sessions
from benchmarks.tell import Measured, document, missed, tell, tell_missed

__all__ = ["main"]


@click.command("benchmarks")
@click.argument("names", nargs=-1, metavar="[NAME]…", type=click.Choice(PARTS))
@click.option("--quick", is_flag=True, help="Little of everything, in under a minute.")
@click.option("--full", is_flag=True, help="Much of everything: a million entries where it says something.")
@click.option("--rounds", type=click.IntRange(1), help="Rounds counted (as each part has it).")
@click.option("--entries", type=click.IntRange(10), help="Entries (as each part has it).")
@click.option(
    "--dir",
    "directory",
    default=Path(),
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where to work: a directory on the disk to measure (here).",
)
@click.option(
    "--plots", type=click.Path(file_okay=False, path_type=Path), help="Also draw cost against size, as PNG, in there."
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.option("--slowdown", default=1.0, type=click.FloatRange(0, min_open=True), hidden=True)
def main(
    names: tuple[str, ...],
    quick: bool,
    full: bool,
    rounds: int | None,
    entries: int | None,
    directory: Path,
    plots: Path | None,
    as_json: bool,
    slowdown: float,
) -> None:
    """Measure what the store does beside what would be used instead; NAME is a part of the suite, all without one."""
    if quick and full:
        raise click.UsageError("--quick and --full exclude each other")
    SLOWDOWN.set(slowdown)
    measured: list[Measured] = []
    with workplace(directory) as place:
        sessions = Sessions(place)
        for name in names or PARTS:
            part: Part = import_module(f"benchmarks.{name}").measure
            preset = part.quick if quick else part.full if full else part.usual
            size = Size(rounds or preset.rounds, entries or preset.entries)
            measured.append(_measure(part, size, place, sessions))
            if not as_json:
                tell(measured[-1])
        if plots is not None:
            print(plot(plots, sessions, QUICK if quick else LENGTHS), file=sys.stderr)
    if as_json:
        print(document(measured))
    else:
        tell_missed(measured)
    sys.exit(1 if missed(measured) else 0)


def _measure(part: Part, size: Size, place: Path, sessions: Sessions) -> Measured:
    start = perf_counter()
    compared = part.measure(Options(size.rounds, size.entries, place, sessions))
    return Measured(part.name, size, round(perf_counter() - start, 2), peak_mib(), compared)


if __name__ == "__main__":
    main()
