"""The verb that watches a session being written: ``follow``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from agentsession_cas.cli.app import App, command
from agentsession_cas.cli.output import ClosedPipe, Styled, clip, counted, dim, warn

if TYPE_CHECKING:
    from agentsession_cas.sessions.follow_changes import Change

__all__ = ["follow_verb"]

_LISTENING_S: Final = 1.0
"""How long a reader of stdout that went away may go unnoticed."""
_COLUMNS: Final = 100


@command("follow")
@click.argument("name", metavar="SESSION")
@click.option("--from", "cursor", metavar="CURSOR", help="Go on behind this place, which an earlier change named.")
@click.option("--committed", is_flag=True, help="Tell only what is safe from a power cut.")
def follow_verb(app: App, name: str, cursor: str | None, committed: bool) -> None:
    """Watch a session beside whoever writes it, until it is deleted or you interrupt.

    First a snapshot, or what came after --from; then each change as it lands. A reset says that a crash took back what
    was told. With --json each change names the cursor to go on from later.
    """
    from agentsession_cas.cli.resolve import resolve_session

    store = app.store()
    session = resolve_session(store, name)
    last = ""
    try:
        with store.follow(session, cursor, committed=committed) as follower:
            while True:
                change = follower.take(_LISTENING_S)
                if change is not None:
                    _tell(app, session, change)
                    last = change.cursor
                elif not app.out.is_heard():
                    raise ClosedPipe
    except KeyboardInterrupt:
        if last and not app.as_json:
            app.out.note(f"go on with: --from {last}")
        raise


def _tell(app: App, session: str, change: Change) -> None:
    from agentsession_cas.sessions.follow_changes import Appended

    if app.as_json:
        entry = {"entry": change.entry.members()} if isinstance(change, Appended) else {}
        answer = {"kind": change.kind, "session": session, **entry, "head": change.head or None}
        app.out.emit({**answer, "cursor": change.cursor})
    else:
        _tell_in_words(app, session, change)
    app.out.flush()


def _tell_in_words(app: App, session: str, change: Change) -> None:
    from agentsession_cas.cli.words import clock_time, entry_line, short
    from agentsession_cas.sessions.follow_changes import Appended, Head, Reset

    match change:
        case Appended(entry=entry):
            said = entry_line(entry)
            branch = warn(" (branch)") if change.head != entry.id else ""
            about = f" {clock_time(entry.ts)} {clip(said.who, 14):<14} "
            app.out.line(Styled(short(entry.id), colour="yellow"), branch, dim(about), clip(said.text, _COLUMNS))
        case Head():
            app.out.line("the head is ", Styled(short(change.head), colour="yellow"))
        case _:
            own = len(change.session) - change.session.source.base_count
            what = warn("read again") if isinstance(change, Reset) else "following"
            entries = counted(own, "entry", "entries")
            app.out.line(what, f" {session}: {entries}, head ", Styled(short(change.head), colour="yellow"))
