"""Verbs that keep a store in shape: ``repack``, ``sweep``, ``gc``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

from agentsession_cas.cli.app import EXIT_INTEGRITY, App, command
from agentsession_cas.cli.output import counted, good, size, warn

if TYPE_CHECKING:
    from agentsession_cas.maintenance.repack import RepackReport
    from agentsession_cas.maintenance.sweep import SweepReport

__all__ = ["gc_verb", "repack_verb", "sweep_verb"]

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def _seconds(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """A time like 14d: a number and s, m, h, d or w; 0 needs none."""
    found = re.fullmatch(r"(\d{1,6})([smhdw])|0", value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no time: write 14d, 12h, 30m, 45s or 2w", context, parameter)
    return float(found[1]) * _UNITS[found[2]] if found[1] else 0.0


@command("repack")
@click.option("--all", "all_", is_flag=True, help="Put everything anew, as small as it gets.")
def repack_verb(app: App, all_: bool) -> int:
    """Merge packs until they are few, and pack loose objects; beside whoever reads and writes.

    May be interrupted at any time, and goes on where it was. Exits 3 when a pack has something in it that does not
    read: it stays as it is.
    """
    store = app.store(write=True)
    with app.out.progress("repacking") as progress:
        report = store.repack(all=all_, progress=progress)
    if app.as_json:
        app.out.emit(report.to_json())
    else:
        _tell_kept(app, report.kept)
        app.out.say(good("ok"), f": {_merged(report)}")
    return EXIT_INTEGRITY if report.kept else 0


def _merged(report: RepackReport) -> str:
    packs = f"{counted(report.packs_before, 'pack')} became {report.packs}"
    return f"{packs}, {size(report.bytes_before)} became {size(report.bytes)}"


def _tell_kept(app: App, packs: list[str]) -> None:
    for pack in packs:
        app.out.line(warn("kept as it is"), f": {pack} has something in it that does not read (see fsck)")


@command("sweep")
@click.option(
    "--grace",
    "grace_s",
    metavar="TIME",
    default="14d",
    show_default=True,
    callback=_seconds,
    help="Keep what was written since.",
)
@click.option("--dry-run", is_flag=True, help="Say what would go; change nothing.")
def sweep_verb(app: App, grace_s: float, dry_run: bool) -> int:
    """Give back the space of what no session, fork or pin needs; beside whoever reads and writes.

    Nothing a session has ever said goes, whatever branch it is on. What nobody needs stays for a while after it was
    last written. May be interrupted at any time. Exits 3 when a pack that should shrink does not read.
    """
    store = app.store(write=True)
    with app.out.progress("sweeping") as progress:
        report = store.sweep(grace_s, dry_run=dry_run, progress=progress)
    if app.as_json:
        app.out.emit(report.to_json())
    else:
        _tell_kept(app, report.kept)
        app.out.say(good("ok"), f": {_swept(report)}")
    return EXIT_INTEGRITY if report.kept else 0


def _swept(report: SweepReport) -> str:
    goes = "would go" if report.dry_run else "went"
    packs = f"{counted(len(report.removed) + len(report.rewritten), 'pack')} and {counted(report.loose, 'file')}"
    young = f"; {counted(report.young, 'more is', 'more are')} too young" if report.young else ""
    trash = f"; {counted(report.trash, 'deleted session')} {goes} for good" if report.trash else ""
    return f"{counted(report.objects, 'object')} {goes}, of {packs}, {size(report.size)}{young}{trash}"


@command("gc")
def gc_verb(app: App) -> int:
    """Put the store in shape: pack what idle sessions hold, sweep, and merge packs.

    Exits 3 when a pack has something in it that does not read: it stays as it is.
    """
    store = app.store(write=True)
    with app.out.progress("collecting") as progress:
        report = store.gc(progress=progress)
    kept = sorted({*report.sweep.kept, *report.repack.kept})
    if app.as_json:
        app.out.emit(report.to_json())
    else:
        _tell_kept(app, kept)
        app.out.say(good("ok"), f": {counted(report.settled, 'idle session')} packed")
        app.out.say(good("ok"), f": {_swept(report.sweep)}")
        app.out.say(good("ok"), f": {_merged(report.repack)}")
    return EXIT_INTEGRITY if kept else 0
