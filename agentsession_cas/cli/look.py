"""Verbs that only look: ``show``, ``log``, ``context``, ``calls``, ``runs``, ``queue``; they exit 0 whatever it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from agentsession_cas.cli.app import App, command, given
from agentsession_cas.cli.output import Part, Styled, bold, clip, counted, dim, pretty, warn

if TYPE_CHECKING:
    from agentsession_cas.core.context import Context
    from agentsession_cas.core.runs import Run
    from agentsession_cas.core.tree import Session

__all__ = ["calls_verb", "context_verb", "log_verb", "queue_verb", "runs_verb", "show_verb"]

_LOG_COLUMNS: Final = 100
_KIND_COLUMNS: Final = 32
_LINE_COLUMNS: Final = 72

_at_option = click.option("--at", metavar="ENTRY", help="At this entry; by default the head, or what a ref pins.")


def _leaf(session: Session, at: str | None, here: str = "") -> str:
    """The id of the entry to look at, "" for the universal root: ``here`` unless one is named."""
    from agentsession_cas.cli.resolve import resolve_entry

    return resolve_entry(session, here if at is None else at)


@command("show")
@click.argument("name", metavar="SESSION")
@click.argument("entry", required=False, default="", callback=given)
@_at_option
def show_verb(app: App, name: str, entry: str, at: str | None) -> None:
    """Read a session as a conversation, up to its head or --at an entry; or see one ENTRY whole."""
    from agentsession_cas.core.source import path_positions

    session, here = app.session(name)
    source = session.source
    if entry:
        positions = [session.position(_leaf(session, entry))]
        if positions[0] < 0:
            raise click.UsageError("the universal root is no entry to show")
    else:
        positions = path_positions(source, session.position(_leaf(session, at, here)))
    if app.as_json:
        for position in positions:
            app.out.emit({"entry": source.entry(position).members()})
    elif entry:
        app.out.page((line,) for line in pretty(source.entry(positions[0]).members()).split("\n"))
    else:
        app.out.page(_conversation(session, positions))


def _conversation(session: Session, positions: Iterable[int]) -> Iterator[tuple[Part, ...]]:
    from agentsession_cas.cli.words import passage

    about = [session.name, session.header.cwd, f"created {session.header.created_at}"]
    yield bold(f"session {session.id}"), dim("".join(f"  {clip(each, _LINE_COLUMNS)}" for each in about if each))
    base = session.source.base_count - 1
    spoken = True
    for position in positions:
        lines = list(passage(session.source.entry(position)))
        if spoken or len(lines) > 1:
            yield ()
        spoken = len(lines) > 1
        yield from lines
        if position == base:
            yield ()
            yield (dim(f"forked here from session {session.header.parent_session or '(not named)'}"),)


@command("log")
@click.argument("name", metavar="SESSION")
@click.option("--graph", is_flag=True, help="Draw the branches on the left.")
@click.option("--oneline", is_flag=True, help="Leave out times and types.")
@click.option("--all", "everything", is_flag=True, help="Every branch, not only the path to the head.")
@click.option("-n", "count", metavar="N", type=click.IntRange(min=0), help="So many entries at most.")
def log_verb(app: App, name: str, graph: bool, oneline: bool, everything: bool, count: int | None) -> None:
    """List the entries of a session, newest first, with what marks them: HEAD, the base, labels."""
    from agentsession_cas.core.source import walk_back

    session, here = app.session(name)
    source = session.source
    start = session.position(_leaf(session, here))
    positions = range(len(source) - 1, -1, -1) if everything else walk_back(source, start)
    wanted: Iterable[int] = positions if count is None else (at for at, _ in zip(positions, range(count), strict=False))
    if app.as_json:
        labels = session.labels()
        for position in wanted:
            app.out.emit(_log_json(session, position, labels))
    else:
        app.out.page(_log(session, wanted, graph=graph, oneline=oneline))


def _log_json(session: Session, position: int, labels: dict[str, str]) -> dict[str, Any]:
    from agentsession_cas.cli.words import entry_line

    entry = session.source.entry(position)
    said = entry_line(entry)
    return {
        "id": entry.id,
        "type": entry.type,
        "ts": entry.ts,
        "parent": entry.parent or None,
        "head": entry.id == session.leaf,
        "own": position >= session.source.base_count,
        "label": labels.get(entry.id),
        "who": said.who,
        "text": said.text,
    }


def _log(session: Session, positions: Iterable[int], *, graph: bool, oneline: bool) -> Iterator[tuple[Part, ...]]:
    from agentsession_cas.cli.graph import Graph
    from agentsession_cas.cli.words import clock_time, entry_line, short

    labels, drawn = session.labels(), Graph()
    for position in positions:
        entry = session.source.entry(position)
        rails = ""
        if graph:
            rail = drawn.rail(position, session.source.parent(position))
            for above in rail.above:
                yield (above,)
            rails = f"{rail.beside} "
        said = entry_line(entry)
        middle = f" {said.who}:" if oneline else f" {clock_time(entry.ts)} {clip(said.who, _KIND_COLUMNS):<14}"
        yield (
            rails,
            Styled(short(entry.id), colour="yellow"),
            _marks(session, position, labels),
            dim(middle),
            f" {clip(said.text, _LOG_COLUMNS)}".rstrip(),
        )


def _marks(session: Session, position: int, labels: dict[str, str]) -> Styled:
    entry_id = session.source.entry_id(position)
    marks = [
        "HEAD" if entry_id == session.leaf else "",
        "base" if position == session.source.base_count - 1 else "",
        clip(labels.get(entry_id, ""), _LINE_COLUMNS),
    ]
    kept = ", ".join(mark for mark in marks if mark)
    return Styled(f" ({kept})" if kept else "", colour="green")


@command("context")
@click.argument("name", metavar="SESSION")
@_at_option
@click.option("--request", "only_request", is_flag=True, help="The request alone, as JSON to send.")
def context_verb(app: App, name: str, at: str | None, only_request: bool) -> None:
    """Show what a model call at the head, or --at an entry, receives, and the hash that will prove it."""
    session, here = app.session(name)
    leaf = _leaf(session, at, here)
    context = session.context(leaf)
    if app.as_json:
        app.out.emit(_context_json(leaf, context))
    elif only_request:
        app.out.data(pretty(context.request()).encode() + b"\n")
    else:
        app.out.page(_context(leaf, context))


def _context_json(leaf: str, context: Context) -> dict[str, Any]:
    return {
        "leaf": leaf or None,
        "settings": context.settings.checkpoint(),
        "items": context.items,
        "entries": context.entries,
        "item_entries": context.item_entries,
        "omitted": context.omitted,
        "replaced": context.replaced,
        "request": context.request(),
        "request_hash": context.request_hash(),
    }


def _context(leaf: str, context: Context) -> Iterator[tuple[Part, ...]]:
    from agentsession_cas.cli.words import item_said, short
    from agentsession_cas.core.settings import tool_name

    settings = context.settings
    rows = {
        "at": short(leaf),
        "model": settings.model,
        "instructions": settings.instructions,
        "tools": ", ".join(tool_name(tool) or "(unnamed)" for tool in settings.tools),
        "other": ", ".join([*settings.extra, *(name for name in ("reasoning", "text") if getattr(settings, name))]),
        "hash": context.request_hash(),
    }
    for label, value in rows.items():
        if value:
            yield bold(f"{label:<13}"), clip(value, _LOG_COLUMNS)
    yield bold(f"{'items':<13}"), str(len(context.items))
    for item, entry in zip(context.items, context.item_entries, strict=True):
        said = item_said(item)
        who = dim(f" {clip(said.who, 12):<12} ")
        yield "  ", Styled(short(entry), colour="yellow"), who, clip(said.text, _LINE_COLUMNS)
    for each in (*context.omitted, *context.replaced):
        what = "left out" if each in context.omitted else "replaced"
        yield "  ", Styled(short(each["entry"]), colour="yellow"), warn(f" {what}: {each['reason']}")


@command("calls")
@click.argument("name", metavar="SESSION")
@_at_option
def calls_verb(app: App, name: str, at: str | None) -> None:
    """Show what happened to each tool call on the path: completed, in flight, never started, and so on."""
    session, here = app.session(name)
    found = [call.to_json(session.header) for call in session.calls(_leaf(session, at, here))]
    if app.as_json:
        app.out.emit({"calls": found})
        return
    app.out.page(_call_line(call) for call in found)


def _call_line(call: dict[str, Any]) -> tuple[Part, ...]:
    told = [
        *call["decisions"],
        counted(call["dispatches"], "dispatch", "dispatches") if call["dispatches"] else "",
        f"{call['withdrawn']} withdrawn" if call["withdrawn"] else "",
    ]
    history = ", ".join(filter(None, told))
    return (
        bold(clip(call["call_id"], _LINE_COLUMNS)),
        f"  {call['state'].replace('_', ' ')}",
        warn(", failed" if call["failed"] else ""),
        dim(f"  {clip(call['name'] + '(' + call['args'] + ')', _LINE_COLUMNS)}"),
        dim(f"  [{history}]" if history else ""),
    )


@command("runs")
@click.argument("name", metavar="SESSION")
@_at_option
def runs_verb(app: App, name: str, at: str | None) -> None:
    """Show the runs on the path: what began them, what ended them, and whether the record agrees."""
    session, here = app.session(name)
    found = session.runs(_leaf(session, at, here))
    if app.as_json:
        app.out.emit({"runs": [run.to_json(session.source) for run in found]})
    else:
        app.out.page(_run_line(run) for run in found)


def _run_line(run: Run) -> tuple[Part, ...]:
    ended = f"ended: {run.reason}" if run.end >= 0 else f"open, so far: {run.computed_reason}"
    pending = f", pending {', '.join(run.pending)}" if run.pending else ""
    wrong = [
        "" if run.source_agrees else f"the source {run.computed_source}",
        "" if run.reason_agrees else f"the reason {run.computed_reason}",
        "" if run.pending_agrees else f"pending {', '.join(run.pending) or 'nothing'}",
    ]
    told = ", ".join(filter(None, wrong))
    line = f"  {run.source}, {ended}{pending}"
    return bold(clip(run.run_id, _LINE_COLUMNS)), line, warn(f"  its segment says: {told}" if told else "")


@command("queue")
@click.argument("name", metavar="SESSION")
@_at_option
def queue_verb(app: App, name: str, at: str | None) -> None:
    """Show the inputs a harness accepted and still owes the conversation."""
    from agentsession_cas.cli.words import item_said, short
    from agentsession_cas.core.queue import queued_json

    session, here = app.session(name)
    found = [queued_json(entry) for entry in session.pending_queued(_leaf(session, at, here))]
    if app.as_json:
        app.out.emit({"queued": found})
        return
    app.out.page(
        (
            Styled(short(each["entry"]), colour="yellow"),
            f"  {each['mode']}  ",
            clip(item_said(each["item"]).text, _LINE_COLUMNS),
        )
        for each in found
    )
