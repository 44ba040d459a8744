"""Verbs between stores: ``remote``, ``push``, ``fetch``, ``clone``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from agentsession_cas.cli.app import App, command, given, report
from agentsession_cas.cli.output import bold, counted, size, warn

if TYPE_CHECKING:
    from agentsession_cas.errors import AgentSessionError
    from agentsession_cas.exchange.sharing import Fetched, Pushed, RefMove
    from agentsession_cas.exchange.transfer import HeadMove

__all__ = ["clone_verb", "fetch_verb", "push_verb", "remote_verb"]

EXIT_CONFLICT: Final = 4


@click.group("remote")
def remote_verb() -> None:
    """Name other stores: add, list, remove."""


@command("add")
@click.argument("name")
@click.argument("path", callback=given)
def _add(app: App, name: str, path: str) -> None:
    """Call the store at PATH by NAME; it is kept in the store's config.toml."""
    whole = os.path.abspath(os.path.expanduser(path))
    added = app.store(write=True).add_remote(name, whole)
    if app.as_json:
        app.out.emit({"name": name, "path": whole, "added": added})
    else:
        app.out.say(bold(name), " is " if added else " is already ", whole)


@command("list")
def _list(app: App) -> None:
    """List the remotes: a name and a path each."""
    remotes = app.store().remotes()
    columns = 2 + max(map(len, remotes), default=0)
    for name, path in sorted(remotes.items()):
        if app.as_json:
            app.out.emit({"name": name, "path": path})
        else:
            app.out.line(bold(name), " " * (columns - len(name)), path)


@command("remove")
@click.argument("name")
def _remove(app: App, name: str) -> None:
    """Forget a remote; nothing happens to the store it names."""
    app.store(write=True).remove_remote(name)
    if app.as_json:
        app.out.emit({"name": name, "removed": True})
    else:
        app.out.say("forgot ", bold(name))


for _verb in (_add, _list, _remove):
    remote_verb.add_command(_verb)


class _Refused:
    """Prints why a session could not be exchanged; ``status`` is the exit code for the worst of it."""

    def __init__(self) -> None:
        self.status = 0

    def __call__(self, session: str, error: AgentSessionError) -> None:
        if session not in error.where:
            error.where = f"session {session}, {error.where}" if error.where else f"session {session}"
        self.status = max(self.status, report(error))


def _whole(remote: str, remotes: dict[str, str]) -> str:
    """A remote as the library takes it: a name as it is, a path from the working directory made whole."""
    return remote if remote in remotes else os.path.abspath(remote) if os.path.isdir(remote) else remote


@command("push")
@click.argument("remote")
@click.argument("sessions", metavar="SESSION...", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Every session written here.")
@click.option("--force", is_flag=True, help="Move the head there, and the refs, wherever they are.")
@click.option("--handover", is_flag=True, help="Make the remote the one that grows, and this a mirror of it.")
@click.option("--ref", "refs", metavar="NAME", multiple=True, help="Move this name there too; may be given again.")
def push_verb(
    app: App, remote: str, sessions: tuple[str, ...], all_: bool, force: bool, handover: bool, refs: tuple[str, ...]
) -> int:
    """Bring sessions to another store, a remote's name or a path: what it lacks, then their heads, then names.

    Exits 4 when a head or a name there is not where it was last seen: what was sent is there all the same, as a branch.
    """
    from agentsession_cas.cli.resolve import resolve_session

    _require_some(sessions, all_)
    store = app.store(write=True)
    names = [resolve_session(store, each) for each in sessions]
    refused = _Refused()
    with app.out.progress("pushing") as progress:
        done = store.push(
            _whole(remote, store.remotes()),
            *names,
            all=all_,
            force=force,
            handover=handover,
            refs=refs,
            progress=progress,
            on_refused=refused,
        )
    conflict = False
    for each in done:
        conflict |= bool(each.head.why) or any(ref.why for ref in each.refs)
        _tell(app, each, each.objects_sent, each.bytes_sent, "sent", each.refs)
        for ref in () if app.as_json else each.refs:
            tail = (warn(" not moved"), f": {ref.why}") if ref.why else (" is there",)
            app.out.line("  ref ", bold(ref.name), *tail)
    return refused.status or (EXIT_CONFLICT if conflict else 0)


@command("fetch")
@click.argument("remote")
@click.argument("sessions", metavar="SESSION...", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Every session there.")
def fetch_verb(app: App, remote: str, sessions: tuple[str, ...], all_: bool) -> int:
    """Bring sessions from another store, a remote's name or a path; what is new here becomes a mirror.

    SESSION is one of that store. A head here moves only forward, and only in a mirror.
    """
    _require_some(sessions, all_)
    store = app.store(write=True)
    where = _whole(remote, store.remotes())
    names = [_there(store.remotes().get(where, where), each) for each in sessions]
    refused = _Refused()
    with app.out.progress("fetching") as progress:
        done = store.fetch(where, *names, all=all_, progress=progress, on_refused=refused)
    for each in done:
        _tell(app, each, each.objects_received, each.bytes_received, "received")
    return refused.status or (EXIT_CONFLICT if any(each.head.why and each.mark == "mirror" for each in done) else 0)


def _there(path: str, argument: str) -> str:
    """The session an argument names in another store; one that is not there stands as it is written."""
    from agentsession_cas.cli.resolve import open_store, resolve_session
    from agentsession_cas.errors import NoSession, NoStore

    try:
        with open_store(path, write=False) as other:
            return resolve_session(other, argument)
    except (NoSession, NoStore):
        return argument


@command("clone")
@click.argument("source", metavar="SRC", callback=given)
@click.argument("target", metavar="DST", callback=given)
def clone_verb(app: App, source: str, target: str) -> None:
    """Make a store at DST with every session and ref of the one at SRC, which becomes its remote origin."""
    from agentsession_cas.cli.resolve import make_way
    from agentsession_cas.store import Store

    path = os.path.abspath(target)
    make_way(path)
    with app.out.progress("cloning") as progress:
        done = Store.clone(os.path.abspath(os.path.expanduser(source)), path, progress=progress)
    for each in done if app.as_json else ():
        _tell(app, each, each.objects_received, each.bytes_received, "received")
    if not app.as_json:
        app.out.say(f"cloned {counted(len(done), 'session')} to ", bold(target))


def _require_some(sessions: tuple[str, ...], all_: bool) -> None:
    if bool(sessions) == all_:
        raise click.UsageError("name some sessions, or give --all")


def _tell(app: App, done: Pushed | Fetched, objects: int, bytes_: int, went: str, refs: Sequence[RefMove] = ()) -> None:
    head = done.head
    if app.as_json:
        shape: dict[str, Any] = {"session": done.session, "created": done.created, "admitted": done.admitted}
        shape |= {f"objects_{went}": objects, f"bytes_{went}": bytes_, "head": _head_json(head)}
        if went == "sent":
            shape["refs"] = [{"name": ref.name, "moved": ref.moved, "why": ref.why or None} for ref in refs]
        app.out.emit({**shape, "mark": done.mark})
        return
    what = f"{counted(done.admitted, 'entry', 'entries')}{' of a new session' if done.created else ''}"
    there = "there" if went == "sent" else "here"
    carried = f"{counted(objects, 'object')} {went} ({size(bytes_)})"
    app.out.line(bold(done.session), f": {what}, {carried}, a {done.mark} {there}")
    if head.why:
        app.out.line(warn("  head not moved"), f": {head.why}")
    elif head.forced:
        app.out.line(warn("  head moved by force"))


def _head_json(head: HeadMove) -> dict[str, Any]:
    return {"moved": head.moved, "forced": head.forced, "current": head.current or None, "why": head.why or None}
