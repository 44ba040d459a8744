"""What was measured, told: one table with a verdict for every target for people, one JSON document for programs."""

from __future__ import annotations

import json
import platform
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.harness import BUSY, OURS, SLOWDOWN, Comparison, Row, Size

__all__ = ["Measured", "document", "missed", "tell", "tell_missed"]

_WIDTH: Final = 132
_VERDICTS: Final = {None: "", True: "[green]met[/]", False: "[red]missed[/]"}


@dataclass(frozen=True, slots=True)
class Measured:
    """A part, how much of it was measured, how long that took, the peak of memory by then, and what was found.

    ``memory`` is the process's, in MiB, peers and what was built included.
    """

    name: str
    size: Size
    seconds: float
    memory: float
    compared: list[Comparison]


def missed(measured: Sequence[Measured]) -> list[tuple[str, str, Row]]:
    """Every target missed: the part, the work, the peer's row."""
    return [(each.name, work.title, row) for each in measured for work in each.compared for row in work.missed]


def document(measured: Sequence[Measured]) -> str:
    """All of it as JSON."""
    found: dict[str, Any] = {
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
        },
        "slowdown": SLOWDOWN.get(),
        "parts": [{**asdict(each), "size": each.size._asdict()} for each in measured],
        "missed": [{"part": name, "work": work, **asdict(row)} for name, work, row in missed(measured)],
    }
    return json.dumps(found, indent=2)


def tell(measured: Measured) -> None:
    """Print a part's table."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    table = Table(title=_title(measured), title_justify="left", expand=True)
    table.add_column("work", ratio=3)
    table.add_column("beside", ratio=2)
    for heading in ("typical", "p99", "mean", "ours / it", "by mean", "target", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in measured.compared:
        for number, row in enumerate(each.rows):
            table.add_row(_work(each, number), *_cells(each, row), end_section=number + 1 == len(each.rows))
    console.print(table)
    busy = [each.waited for each in measured.compared if each.waited is not None and each.waited > BUSY]
    if busy:
        console.print(
            f"[yellow]The machine is busy: up to {max(busy):.0%} of that time went by waiting for a core. "
            "Run this again when it is not, or ahead of the others (chrt -r 1).[/]"
        )


def tell_missed(measured: Sequence[Measured]) -> None:
    """Print the verdict: how many targets there are, and each that is missed."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    rows = [row for each in measured for work in each.compared for row in work.rows if row.met is not None]
    met = sum(1 for row in rows if row.met)
    console.print(f"{met} of {len(rows)} targets met", highlight=False)
    for name, work, row in missed(measured):
        console.print(
            f"[red]missed[/] {name}: {work}: {row.ratio:.3g}× {row.name}, target ≤ {row.target:.3g}×", highlight=False
        )


def _title(measured: Measured) -> str:
    size = measured.size
    slow = f", ours made {SLOWDOWN.get():g} times as slow" if SLOWDOWN.get() != 1 else ""
    return (
        f"{measured.name}: {size.rounds} rounds, {size.entries:,} entries{slow}; "
        f"took {measured.seconds:.1f} s, peak of memory {measured.memory:,.0f} MiB"
    )


def _work(compared: Comparison, number: int) -> str:
    """The first column: the title, beside the second row what is known of the work."""
    if number == 0:
        return compared.title
    if number > 1:
        return ""
    effects = ", ".join(f"{value:,g} {name}" for name, value in compared.effects.items() if value)
    if compared.effects and not effects:
        effects = "writes nothing"
    return "[dim]" + "; ".join(part for part in (effects, compared.note) if part) + "[/]"


def _cells(compared: Comparison, row: Row) -> list[str]:
    ours = row.name == OURS
    return [
        row.name,
        *(_figure(value, compared.unit) for value in (row.median, row.p99, row.mean)),
        "" if ours else f"{row.ratio:.3g}×",
        "" if ours else f"{row.ratio_mean:.3g}×",
        "" if row.target is None else f"≤ {row.target:.3g}×",
        _VERDICTS[row.met],
    ]


def _figure(value: float, unit: str) -> str:
    if unit != "us":
        return f"{value:,.0f} {unit}" if value >= 100 else f"{value:,.2f} {unit}"
    for limit, scale, name in ((1e3, 1, "µs"), (1e6, 1e3, "ms")):
        if value < limit:
            return f"{value / scale:,.3g} {name}"
    return f"{value / 1e6:,.2f} s"
