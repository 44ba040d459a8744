"""The verb ``diff``: what two paths have in common, and what each has alone.

An id commits to the whole path above it, so two paths are alike exactly as far as their ids are. Sessions, files, and
two points of one session compare alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from agentsession_cas.cli.app import App, command
from agentsession_cas.cli.output import Part, Styled, bold, clip, counted, dim, pretty, warn

if TYPE_CHECKING:
    from agentsession_cas.core.entry import Entry
    from agentsession_cas.core.tree import Session

__all__ = ["diff_verb"]

_COLUMNS: Final = 100


class _Side(NamedTuple):
    """One of the two: a session, the leaf looked at ("" for the universal root), and the entries compared."""

    session: Session
    leaf: str
    entries: list[Entry]


@command("diff")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--all", "everything", is_flag=True, help="Every branch, not only the paths.")
@click.option("--request", "requests", is_flag=True, help="What a model call at each would receive, line by line.")
def diff_verb(app: App, first: str, second: str, everything: bool, requests: bool) -> None:
    """Compare the paths of A and B: how far they are one, and which entries each has alone.

    A and B are SESSION, for its head, or SESSION@ENTRY.
    """
    one, other = _side(app, first, everything), _side(app, second, everything)
    if requests:
        _tell_requests(app, one, other)
        return
    common = {entry.id for entry in one.entries} & {entry.id for entry in other.entries}
    shared = [entry.id for entry in one.entries if entry.id in common]
    alone = [[entry for entry in side.entries if entry.id not in common] for side in (one, other)]
    if app.as_json:
        app.out.emit(
            {
                **_named(one, other),
                "common": shared[-1] if shared else None,
                "common_entries": len(shared),
                "only_a": [_entry_json(entry) for entry in alone[0]],
                "only_b": [_entry_json(entry) for entry in alone[1]],
            }
        )
    else:
        app.out.page(_told(one, other, shared, alone))


def _side(app: App, argument: str, everything: bool) -> _Side:
    """What an argument names; ``@`` may stand in a session's id too."""
    from agentsession_cas.cli.resolve import resolve_entry
    from agentsession_cas.errors import NoFile, NotFound, RefName

    name, at, entry = argument.rpartition("@")
    try:
        session, entry = app.session(argument)
    except (NotFound, NoFile, RefName):
        if not at or not name:
            raise
        session, _ = app.session(name)
    leaf = resolve_entry(session, entry)
    return _Side(session, leaf, list(session) if everything else session.path(leaf))


def _named(one: _Side, other: _Side) -> dict[str, Any]:
    return {
        name: {"session": side.session.id, "leaf": side.leaf or None} for name, side in (("a", one), ("b", other))
    }


def _entry_json(entry: Entry) -> dict[str, Any]:
    from agentsession_cas.cli.words import entry_line

    said = entry_line(entry)
    return {"id": entry.id, "type": entry.type, "who": said.who, "text": said.text}


def _told(one: _Side, other: _Side, shared: list[str], alone: list[list[Entry]]) -> Iterator[tuple[Part, ...]]:
    from agentsession_cas.cli.words import entry_line, short

    yield from _titles(one, other)
    if shared:
        yield (dim(f"  {counted(len(shared), 'entry', 'entries')} in common, up to {short(shared[-1])}"),)
    else:
        yield (dim("  nothing in common"),)
    for sign, entries in zip("-+", alone, strict=True):
        for entry in entries:
            said = entry_line(entry)
            text = clip(said.text, _COLUMNS)
            yield _painted(sign, f"{sign} {short(entry.id)}"), dim(f" {clip(said.who, 14):<14}"), f" {text}".rstrip()


def _titles(one: _Side, other: _Side) -> Iterator[tuple[Part, ...]]:
    from agentsession_cas.cli.words import short

    for sign, side in (("---", one), ("+++", other)):
        yield (bold(f"{sign} {clip(side.session.id, _COLUMNS)} at {short(side.leaf)}"),)


def _painted(sign: str, text: str) -> Styled:
    return warn(text) if sign == "-" else Styled(text, colour="green", bold=True)


def _tell_requests(app: App, one: _Side, other: _Side) -> None:
    """The requests at both leaves as JSON, line by line as ``diff -u`` has it."""
    before, after = (pretty(side.session.context(side.leaf).request()).split("\n") for side in (one, other))
    lines = list(unified_diff(before, after, lineterm=""))[2:]
    if app.as_json:
        app.out.emit({**_named(one, other), "equal": not lines, "diff": lines})
        return
    app.out.page((*_titles(one, other), *((_line(line),) for line in lines)))


def _line(line: str) -> Part:
    return _painted(line[0], line) if line[:1] in ("-", "+") else line
