"""The verb ``repair``: what damage left, made to open and read again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from agentsession_cas.cli.app import EXIT_INTEGRITY, App, command, report
from agentsession_cas.cli.output import Part, bold, counted, dim, good, warn

if TYPE_CHECKING:
    from agentsession_cas.maintenance.repair_report import ObjectRepair, RepairReport, SessionRepair

__all__ = ["repair_verb"]

_SHOWN = 5
"""Lost things named of each session; --json has them all."""


@command("repair")
@click.argument("names", metavar="[SESSION]...", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Repair every session, and the objects too.")
@click.option("-n", "--dry-run", is_flag=True, help="Say what would be kept and what is lost; write nothing.")
def repair_verb(app: App, names: tuple[str, ...], all_: bool, dry_run: bool) -> int:
    """Repair sessions whose files are damaged, out of everything the store still has of them.

    What is replaced is kept in a directory damaged beside it. Exits 3 when something is lost.
    """
    from agentsession_cas.cli.resolve import resolve_session
    from agentsession_cas.errors import AgentSessionError

    if bool(names) == all_:
        raise click.UsageError("name the sessions to repair, or say --all")
    store = app.store(write=not dry_run)
    worst = 0
    if all_:
        with app.out.progress("repairing") as progress:
            worst = _tell(app, store.repair(dry_run=dry_run, progress=progress))
    for name in names:
        try:
            worst = max(worst, _tell(app, store.repair(resolve_session(store, name), dry_run=dry_run)))
        except AgentSessionError as error:
            worst = max(worst, report(error))
    return worst


def _tell(app: App, found: RepairReport) -> int:
    if app.as_json:
        app.out.emit(found.to_json())
    else:
        for each in found.sessions:
            if each.changed or not each.whole:
                for line in _told(each, found.dry_run):
                    app.out.line(*line)
        if found.objects is not None:
            for line in _told_objects(found.objects, found.dry_run):
                app.out.line(*line)
        if found.refs is not None:
            done = "would be set anew" if found.dry_run else "set anew as their logs say"
            for what, named in ((done, found.refs.restored), ("lost", found.refs.lost)):
                if named:
                    app.out.line(f"refs {what}: ", ", ".join(named))
        if not found.changed and found.whole:
            app.out.say(good("ok"), f": {counted(len(found.sessions), 'session')}, nothing to repair")
    return 0 if found.whole else EXIT_INTEGRITY


def _told(each: SessionRepair, dry_run: bool) -> Iterator[tuple[Part, ...]]:
    state = "would be repaired" if dry_run else "repaired"
    if each.error:
        yield bold(each.session), ": ", warn("not repaired"), f": {each.error}"
        return
    said = [f"{counted(each.kept, 'entry', 'entries')} kept"]
    said += [f"{each.recovered} of them recovered"] if each.recovered else []
    said += [f"{counted(each.objects, 'object')} put back"] if each.objects else []
    said += [f"header {each.header}"] if each.header else []
    yield bold(each.session), ": ", good(state) if each.changed else warn("not whole"), f": {', '.join(said)}"
    lost = [f"{counted(each.lost_rows, 'row')} of which nothing is left"] if each.lost_rows else []
    lost += [f"entry {name}, which hangs from what is lost" for name in each.orphans]
    lost += [f"object {name}" for name in each.missing]
    for what in lost[:_SHOWN]:
        yield "  ", warn("lost"), f": {what}"
    if len(lost) > _SHOWN:
        yield "  ", dim(f"and {len(lost) - _SHOWN} more")
    for note in each.notes:
        yield "  ", dim(f"note: {note}")
    if each.replaced:
        yield "  ", dim(f"what was replaced is in {each.replaced}")


def _told_objects(found: ObjectRepair, dry_run: bool) -> Iterator[tuple[Part, ...]]:
    done = "would be " if dry_run else ""
    for what, paths in (("made anew", found.indexes), ("set aside", [*found.packs, *found.loose])):
        for path in paths:
            yield f"{done}{what}: ", path
    if found.packs or found.loose:
        yield (dim(f"{counted(found.salvaged, 'object')} saved from there, {found.unread} do not read"),)
