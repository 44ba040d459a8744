"""Verbs on whole sessions, and the one that makes them grow: ``list``, ``head``, ``fork``, ``delete``, ``append``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from agentsession_cas.cli.app import EXIT_FAILURE, App, Damage, command, given, report
from agentsession_cas.cli.output import ClosedPipe, Part, bold, clip, counted, dim, warn, width

if TYPE_CHECKING:
    from agentsession_cas.core.accept import Result
    from agentsession_cas.core.tree import Session
    from agentsession_cas.sessions.handle import SessionWriter
    from agentsession_cas.sessions.listing import Summary

__all__ = ["append_verb", "delete_verb", "fork_verb", "head_verb", "list_verb"]

_DATE: Final = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_ID_COLUMNS: Final = 40
_CONVERSATION: Final = "history:conversation"
"""The header member that names what a session of ``agentsession_cas.history`` is of: no import for its sake."""


@command("list")
@click.option("--cwd", metavar="DIR", default="", callback=given, help="Made in this directory.")
@click.option("--harness", metavar="NAME", default="", callback=given, help="Written by this program.")
@click.option("--parent", metavar="SESSION", default="", callback=given, help="Come from this session.")
@click.option("--top-level", is_flag=True, help="Spawned by no call.")
@click.option("--current", is_flag=True, help="Not continued in another.")
@click.option("--after", metavar="TIME", default="", callback=given, help="Created after this time, or date.")
@click.option("--before", metavar="TIME", default="", callback=given, help="Created before this time, or date.")
@click.option("--extra", metavar="K=V", multiple=True, help="With this header member; V is JSON, or else text.")
@click.option("--limit", metavar="N", type=click.IntRange(min=0), default=0, help="So many at most; 0 is all.")
def list_verb(app: App, limit: int, **filters: Any) -> int:
    """List sessions, newest first. One that does not read is named on stderr, and the exit code is 3."""
    filters["extra"] = dict(_member(each) for each in filters["extra"])
    filters["after"], filters["before"] = _time(filters["after"]), _time(filters["before"])
    if filters["cwd"].startswith("."):
        filters["cwd"] = os.path.abspath(filters["cwd"])
    damage = Damage()
    found = app.store().list(limit=limit, on_damage=damage, **filters)
    if app.as_json:
        for summary in found:
            app.out.emit(_summary_json(summary))
    else:
        app.out.page(_table(found))
    return damage.status


def _member(text: str) -> tuple[str, Any]:
    import json

    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.UsageError(f"--extra takes k=v, not {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _time(text: str) -> str:
    return f"{text}T00:00:00Z" if _DATE.fullmatch(text) else text


def _summary_json(summary: Summary) -> dict[str, Any]:
    return {
        "id": summary.id,
        "header": summary.header.members(),
        "name": summary.name,
        "head": summary.head or None,
        "entries": summary.entries,
        "size": summary.size,
        "modified": summary.modified,
        "superseded_by": summary.superseded_by or None,
        "mark": summary.mark,
    }


def _table(found: list[Summary]) -> Iterator[tuple[Part, ...]]:
    from agentsession_cas.cli.words import clock_time
    from agentsession_cas.core.timestamps import canonical_ts

    if not found:
        return
    rows = [("SESSION", "CREATED", "ENTRIES", "NAME")]
    for summary in found:
        header = summary.header
        about = clip(summary.name or header.cwd or str(header.members().get(_CONVERSATION, "")), _ID_COLUMNS)
        if summary.superseded_by:
            about = f"{about} (continued in {clip(summary.superseded_by, _ID_COLUMNS)})".lstrip()
        created = clock_time(canonical_ts(summary.header.created_at))
        rows.append((clip(summary.id, _ID_COLUMNS), created, str(summary.entries), about))
    widths = [max(width(row[column]) for row in rows) for column in range(3)]
    for number, (name, created, entries, about) in enumerate(rows):
        style = dim if number == 0 else bold
        yield (
            style(_padded(name, widths[0])),
            dim(f"  {_padded(created, widths[1])}"),
            f"  {entries.rjust(widths[2])}  ",
            dim(about) if number == 0 else about,
        )


def _padded(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


@command("head")
@click.argument("name", metavar="SESSION")
@click.option("--set", "to", metavar="ENTRY", default="", callback=given, help="Move the head to this entry.")
@click.option("--expect", metavar="ENTRY", default="", callback=given, help="Only if the head is this entry now.")
def head_verb(app: App, name: str, to: str, expect: str) -> int:
    """Show the head of a session, which the next append continues from; or move it, durably."""
    from agentsession_cas.cli.resolve import resolve_session
    from agentsession_cas.errors import BaseRule

    if expect and not to:
        raise click.UsageError("--expect goes with --set")
    store = app.store(write=bool(to))
    session_id = resolve_session(store, name)
    if not to:
        _tell_head(app, session_id, store.read(session_id).leaf, moved=False)
        return 0
    with store.open_session(session_id) as session:
        before = session.leaf
        try:
            session.set_head(_entry(session, expect) if expect else before, _entry(session, to), durable=True)
        except BaseRule as error:
            return report(error, EXIT_FAILURE)
        _tell_head(app, session_id, session.leaf, moved=session.leaf != before)
    return 0


def _entry(session: Session, argument: str) -> str:
    """An entry named for a compare-and-swap; a whole id of no entry stands, and the swap says why not."""
    from agentsession_cas.cli.resolve import resolve_entry
    from agentsession_cas.core.identity import is_hash

    if is_hash(argument) and session.source.find(argument) < 0:
        return argument
    return resolve_entry(session, argument)


def _tell_head(app: App, session: str, head: str, *, moved: bool) -> None:
    if app.as_json:
        app.out.emit({"session": session, "head": head or None, "moved": moved})
    else:
        app.out.line(head or "ROOT")


@command("fork")
@click.argument("name", metavar="SESSION")
@click.argument("entry", metavar="ENTRY")
@click.option("--id", "new_id", metavar="ID", help="The new session's id; made up by default.")
def fork_verb(app: App, name: str, entry: str, new_id: str | None) -> None:
    """Begin a session that continues from ENTRY of SESSION; nothing is copied. Prints its id."""
    from agentsession_cas.cli.resolve import given_id, resolve_entry, resolve_session

    store = app.store(write=True)
    session_id = resolve_session(store, name)
    base = resolve_entry(store.read(session_id), entry)
    if not base:
        raise click.UsageError("a fork continues from an entry, and the universal root is none")
    with store.fork(session_id, base, id=given_id(new_id)) as fork:
        if app.as_json:
            app.out.emit({"session": fork.id, "head": fork.leaf or None, "moved": False, "base": base})
        else:
            app.out.line(fork.id)


@command("delete")
@click.argument("name", metavar="SESSION")
@click.option("--dry-run", is_flag=True, help="Say what would go, and remove nothing.")
def delete_verb(app: App, name: str, dry_run: bool) -> None:
    """Remove a session, in one step. Entries that forks continue from stay."""
    from agentsession_cas.cli.resolve import resolve_session

    store = app.store(write=not dry_run)
    session_id = resolve_session(store, name)
    if not dry_run:
        store.delete(session_id)
    if app.as_json:
        app.out.emit({"session": session_id, "deleted": not dry_run})
    elif dry_run:
        session = store.read(session_id)
        own = len(session) - session.source.base_count
        app.out.line("would delete ", bold(session_id), f": {counted(own, 'entry', 'entries')} of its own")
    else:
        app.out.say("deleted ", bold(session_id))


@command("append")
@click.argument("name", metavar="SESSION")
@click.option("--durable", is_flag=True, help="Acknowledge each only when it is safe from a power cut.")
@click.option("--batch", is_flag=True, help="All of them, as one, or none.")
def append_verb(app: App, name: str, durable: bool, batch: bool) -> int:
    """Append entries, one JSON object a line from stdin, up to the first that is refused.

    Each line needs a type and its members; id, parent and ts are filled in where they are left out. Exits 1 for a line
    that is refused: nothing that was kept is wrong.
    """
    from agentsession_cas.cli.resolve import resolve_session
    from agentsession_cas.errors import BadInput, NoEntry

    store = app.store(write=True)
    with store.open_session(resolve_session(store, name)) as session:
        try:
            return _append(app, session, durable=True if durable else None, batch=batch)
        except (BadInput, NoEntry) as error:
            return report(error, EXIT_FAILURE)


def _append(app: App, session: SessionWriter, *, durable: bool | None, batch: bool) -> int:
    from agentsession_cas.core.entry import Draft

    if batch:
        drafts = []
        for number, line in _lines():
            with _at_line(number):
                drafts.append(Draft.of(line))
        _tell_appended(app, session.append_batch(drafts, durable))
        return 0
    for number, line in _lines():
        with _at_line(number):
            result = session.append(line, durable)
        try:
            _tell_appended(app, [result])
        except ClosedPipe:
            return EXIT_FAILURE
    return 0


@contextmanager
def _at_line(number: int) -> Iterator[None]:
    """Put the line of stdin an error is about before the place it names, and say what a line is."""
    from agentsession_cas.errors import AgentSessionError, BadJSON

    try:
        yield
    except AgentSessionError as error:
        error.where = f"line {number}, {error.where}" if error.where else f"line {number}"
        if isinstance(error, BadJSON) and error.next_step == error.advice:
            error.next_step = "each line is one JSON object, an entry"
        raise


def _lines() -> Iterator[tuple[int, bytes]]:
    """The lines of stdin that are not blank, numbered from 1, read as they come and no longer than a line may be."""
    from agentsession_cas.cli.resolve import STDIN, open_file
    from agentsession_cas.core.parsing import LINE_MAX

    source = open_file(STDIN)
    for number, raw in enumerate(iter(lambda: source.readline(LINE_MAX + 2), b""), 1):
        line = raw.strip(b" \t\r\n")
        if line:
            yield number, line


def _tell_appended(app: App, results: list[Result]) -> None:
    from agentsession_cas.cli.words import short

    for result in results:
        if app.as_json:
            answer = {"id": result.id, "outcome": result.outcome.value, "durable": result.durable}
            app.out.emit({**answer, "unresolved": result.unresolved})
        else:
            unresolved = f", unresolved: {', '.join(result.unresolved)}" if result.unresolved else ""
            kept = ", durable" if result.durable else ""
            app.out.line(bold(short(result.id)), f" {result.outcome.value}{kept}", warn(unresolved))
    app.out.flush()
