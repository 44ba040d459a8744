"""Verbs on names: ``refs`` lists them, ``ref`` shows one, moves it, deletes it, or tells how it moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from agentsession_cas.cli.app import App, Damage, command, given
from agentsession_cas.cli.output import Part, bold, clip, dim, warn

if TYPE_CHECKING:
    from agentsession_cas.sessions.reffile import RefTarget, RefUpdate
    from agentsession_cas.store import Store

__all__ = ["ref_verb", "refs_verb"]

_NONE: Final = "NONE"
"""No ref, where one may be named."""
_PLACE: Final = "SESSION[@ENTRY]"
_REASON_COLUMNS: Final = 72


@command("refs")
@click.argument("prefix", metavar="[PREFIX]", required=False, default="")
def refs_verb(app: App, prefix: str) -> int:
    """List names, those that begin with PREFIX, and what each stands for.

    One that does not read is named on stderr, and the exit code is 3.
    """
    damage = Damage()
    store = app.store()
    rows = [(ref.name, ref.target, _dangles(store, ref.name)) for ref in store.list_refs(prefix, on_damage=damage)]
    if app.as_json:
        for row in rows:
            app.out.emit(_ref_json(*row))
    else:
        columns = 2 + max((len(name) for name, _, _ in rows), default=0)
        app.out.page((bold(name), " " * (columns - len(name)), *_told(to, gone)) for name, to, gone in rows)
    return damage.status


def _dangles(store: Store, name: str) -> bool:
    """Whether a ref's session is gone; one that does not read is not."""
    from agentsession_cas.errors import AgentSessionError, NoSession

    try:
        store.resolve_ref(name)
    except NoSession:
        return True
    except AgentSessionError:
        return False
    return False


def _ref_json(name: str, target: RefTarget, dangling: bool) -> dict[str, Any]:
    return {"name": name, "session": target.session, "entry": target.entry or None, "dangling": dangling}


def _told(target: RefTarget, dangling: bool) -> tuple[Part, ...]:
    return str(target), warn("  its session is gone") if dangling else ""


@command("ref")
@click.argument("name")
@click.option(
    "--set", "to", metavar=_PLACE, default="", callback=given, help=f"Move the name there; {_NONE} deletes it."
)
@click.option(
    "--expect", metavar=_PLACE, default="", callback=given, help=f"If it is there now; {_NONE}: if it is new."
)
@click.option("--reason", metavar="TEXT", default="", help="Why, for the log.")
@click.option("--log", "history", is_flag=True, help="How it moved, newest first, also when it is deleted.")
def ref_verb(app: App, name: str, to: str, expect: str, reason: str, history: bool) -> int:
    """Show what a name stands for; or move it, durably, by compare-and-swap.

    Verbs take ref:NAME for a SESSION. With an ENTRY, that entry and what is before it stay when the session goes.
    """
    if history and to:
        raise click.UsageError("--log looks, --set moves: one at a time")
    if (expect or reason) and not to:
        raise click.UsageError("--expect and --reason go with --set")
    if to:
        _move(app, name, to, expect, reason)
    elif history:
        updates = app.store().ref_log(name)
        if app.as_json:
            for update in updates:
                app.out.emit(_update_json(update))
        else:
            app.out.page(_log(updates))
    else:
        _show(app, name)
    return 0


def _show(app: App, name: str) -> None:
    from agentsession_cas.errors import NoSession
    from agentsession_cas.sessions.reffile import RefTarget

    dangling = False
    try:
        target = app.store().resolve_ref(name)
    except NoSession as error:
        if error.target is None:
            raise
        target, dangling = RefTarget(*error.target), True
    if app.as_json:
        app.out.emit(_ref_json(name, target, dangling))
    else:
        app.out.line(*_told(target, dangling))


def _move(app: App, name: str, to: str, expect: str, reason: str) -> None:
    store = app.store(write=True)
    target = _target(store, to)
    before = _expected(store, name, expect)
    moved = store.update_ref(name, before, target, reason)
    if app.as_json:
        shape = {"name": name, "session": target.session if target else None, "entry": None, "dangling": False}
        app.out.emit({**shape, "entry": (target.entry or None) if target else None, "moved": moved})
    elif target is None:
        app.out.say("deleted ", bold(name))
    else:
        app.out.line(str(target))


def _target(store: Store, argument: str) -> RefTarget | None:
    """What ``SESSION[@ENTRY]`` names; ``@`` may stand in a session's id too. None for no ref."""
    from agentsession_cas.cli.resolve import resolve_entry, resolve_target
    from agentsession_cas.errors import NotFound, RefName
    from agentsession_cas.sessions.reffile import RefTarget

    if argument == _NONE:
        return None
    session, at, entry = argument.rpartition("@")
    try:
        return RefTarget(*resolve_target(store, argument))
    except (NotFound, RefName):
        if not at or not session:
            raise
    found, _ = resolve_target(store, session)
    pinned = resolve_entry(store.read(found), entry)
    if not pinned:
        raise click.UsageError("the universal root is no entry to pin")
    return RefTarget(found, pinned)


def _expected(store: Store, name: str, argument: str) -> RefTarget | None:
    """What a name has to stand for; "" is what it does. One that is not held stands as it is written."""
    from agentsession_cas.errors import NoRef, NoSession, NotFound
    from agentsession_cas.sessions.reffile import RefTarget

    current: RefTarget | None = None
    try:
        current = store.resolve_ref(name)
    except NoSession as error:
        current = RefTarget(*error.target) if error.target else None
    except NoRef:
        current = None
    if not argument or argument == str(current):
        return current
    try:
        return _target(store, argument)
    except NotFound:
        return RefTarget(argument)


def _update_json(update: RefUpdate) -> dict[str, Any]:
    old, new = (
        None if each is None else {"session": each.session, "entry": each.entry or None}
        for each in (update.old, update.new)
    )
    return {"name": update.name, "old": old, "new": new, "time": update.time, "reason": update.reason}


def _log(updates: Iterator[RefUpdate]) -> Iterator[tuple[Part, ...]]:
    from agentsession_cas.cli.words import clock_time

    for update in updates:
        what = "deleted, was " if update.new is None else "made: " if update.old is None else ""
        reason = clip(update.reason, _REASON_COLUMNS)
        yield dim(f"{clock_time(update.time)}  "), what, bold(str(update.new or update.old)), dim(f"  {reason}")
