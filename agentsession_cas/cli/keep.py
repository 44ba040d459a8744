"""Verbs that keep a store in shape: ``repack``."""

from __future__ import annotations

import click

from agentsession_cas.cli.app import EXIT_INTEGRITY, App, command
from agentsession_cas.cli.output import counted, good, size, warn

__all__ = ["repack_verb"]


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
        for pack in report.kept:
            app.out.line(warn("kept as it is"), f": {pack} has something in it that does not read (see fsck)")
        packs = f"{counted(report.packs_before, 'pack')} became {report.packs}"
        app.out.say(good("ok"), f": {packs}, {size(report.bytes_before)} became {size(report.bytes)}")
    return EXIT_INTEGRITY if report.kept else 0
