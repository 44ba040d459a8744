"""Verbs that bring things into a store and out of it: ``init``, ``import``, ``project``, ``blob``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from agentsession_cas.cli.app import App, Damage, command, given, report
from agentsession_cas.cli.output import bold, counted, good

if TYPE_CHECKING:
    from agentsession_cas.core.tree import Session
    from agentsession_cas.store import Store

__all__ = ["blob_verb", "import_verb", "init_verb", "project_verb"]


@command("init")
@click.argument("path", required=False, default="", callback=given)
def init_verb(app: App, path: str) -> None:
    """Make a store at PATH: by default where --store or $AGENTSESSION_STORE says, else .agentsession here.

    A store that is there already is left as it is.
    """
    from agentsession_cas.cli.resolve import STORE_DIRECTORY, STORE_VARIABLE, make_way
    from agentsession_cas.errors import NoStore
    from agentsession_cas.store import Store

    target = os.path.abspath(path or app.store_path or os.environ.get(STORE_VARIABLE) or STORE_DIRECTORY)
    try:
        Store.open(target, read_only=True, allow_network_fs=app.allow_network_fs).close()
        made = False
    except NoStore:
        make_way(target)
        Store.open(target, create=True, allow_network_fs=app.allow_network_fs).close()
        made = True
    if app.as_json:
        app.out.emit({"path": target, "created": made})
    else:
        app.out.say("made a store at " if made else "there is a store already at ", bold(target))


@command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, callback=given)
@click.option("--as-record", is_flag=True, help="Take them as the copy that grows, not as a mirror of it.")
@click.option("--media", metavar="DIR", callback=given, help="Where their blobs are; by default beside each file.")
def import_verb(app: App, files: tuple[str, ...], as_record: bool, media: str | None) -> int:
    """Take session files into the store, verifying every line; - is stdin.

    A file that is refused leaves nothing behind, and the others are still taken.
    """
    from agentsession_cas.cli.resolve import STDIN, open_file
    from agentsession_cas.errors import AgentSessionError

    store = app.store(write=True)
    worst = 0
    with app.out.progress("importing") as progress:
        for number, file in enumerate(files):
            if progress is not None:
                progress(number, len(files))
            try:
                source = open_file(STDIN) if file == STDIN else os.path.abspath(file)
                taken = store.import_file(source, as_record=as_record, media=media)
            except AgentSessionError as error:
                if file not in error.where:
                    error.where = f"{file}: {error.where}" if error.where else file
                worst = max(worst, report(error))
                continue
            _tell_import(app, file, taken)
    return worst


def _tell_import(app: App, file: str, taken: Any) -> None:
    from agentsession_cas.cli.words import short

    if app.as_json:
        answer = {"session": taken.session, "entries": taken.entries, "head": taken.head or None, "mark": taken.mark}
        app.out.emit({**answer, "unresolved": taken.unresolved})
    else:
        entries = counted(taken.entries, "entry", "entries")
        app.out.say("imported ", bold(taken.session), f": {entries}, head {short(taken.head)}, a {taken.mark}")
    if taken.repeated:
        app.out.note(f"note: {file} repeated {counted(len(taken.repeated), 'line')}; each was kept once")
    if taken.unresolved:
        app.out.note(f"note: {counted(len(taken.unresolved), 'blob')} of {file} not found; keep with `blob put`")


@command("project")
@click.argument("session", required=False, default="")
@click.option(
    "-o", "target", metavar="FILE", default="", callback=given, help="Where to write it; by default stdout."
)
@click.option(
    "--all", "directory", metavar="DIR", default="", callback=given, help="Write every session into DIR."
)
def project_verb(app: App, session: str, target: str, directory: str) -> int:
    """Write a session as JSON lines, the same bytes every time, its blobs beside the file.

    With --all, a session that cannot be written is told of, and the others still are.
    """
    from agentsession_cas.cli.resolve import resolve_session

    if bool(session) == bool(directory):
        raise click.UsageError("project takes a SESSION, or --all DIR")
    if directory and target:
        raise click.UsageError("-o names one file, --all a directory")
    store = app.store()
    if directory:
        return _project_all(app, store, directory)
    name = resolve_session(store, session)
    if target and target != "-":
        path = _written_at(target)
        store.project(name, path)
        _tell_projection(app, name, path)
    elif app.as_json:
        raise click.UsageError("a projection on stdout is JSON lines already; --json tells of files, give -o FILE")
    else:
        _project_to_stdout(app, store, store.read(name))
    return 0


def _project_all(app: App, store: Store, directory: str) -> int:
    from agentsession_cas.errors import AgentSessionError
    from agentsession_cas.layout import directory_name

    path = os.path.abspath(directory)
    os.makedirs(path, exist_ok=True)
    damage = Damage()
    names = sorted(store.session_ids(damage))
    worst = damage.status
    with app.out.progress("projecting") as progress:
        for number, name in enumerate(names):
            if progress is not None:
                progress(number, len(names))
            file = os.path.join(path, f"{directory_name(name)}.jsonl")
            try:
                store.project(name, file)
            except AgentSessionError as error:
                error.where = f"session {name}: {error.where}" if error.where else f"session {name}"
                worst = max(worst, report(error))
                continue
            _tell_projection(app, name, file)
    return worst


def _tell_projection(app: App, session: str, file: str) -> None:
    if app.as_json:
        app.out.emit({"session": session, "file": file})
    else:
        app.out.say("projected ", bold(session), " to ", file)


def _project_to_stdout(app: App, store: Store, session: Session) -> None:
    from agentsession_cas.core.jsonl import projection_lines
    from agentsession_cas.exchange.projection import session_blobs

    blobs = session_blobs(session)
    for name in blobs:
        store.blob(name)
    for line in projection_lines(session):
        app.out.data(line + b"\n")
    if blobs:
        app.out.note(f"note: {counted(len(blobs), 'blob')} left in the store; use -o FILE to have them beside the file")


@click.group("blob")
def blob_verb() -> None:
    """Keep media in the store, and fetch it, by hash."""


@command("put")
@click.argument("file", required=False, default="-")
def _put(app: App, file: str) -> None:
    """Keep the bytes of FILE, by default stdin; prints their hash."""
    from agentsession_cas.cli.resolve import open_file

    with open_file(file) as source:
        data = source.read()
    name = app.store(write=True).put_blob(data)
    if app.as_json:
        app.out.emit({"hash": name, "size": len(data)})
    else:
        app.out.line(name)


@command("get")
@click.argument("name", metavar="HASH")
@click.option(
    "-o", "target", metavar="FILE", default="", callback=given, help="Where to write it; by default stdout."
)
def _get(app: App, name: str, target: str) -> None:
    """Write the bytes kept under HASH."""
    from agentsession_cas.effects.durable import publish
    from agentsession_cas.effects.host import real_host
    from agentsession_cas.errors import DiskError
    from agentsession_cas.exchange.projection import require_replaceable

    if not target and (app.as_json or sys.stdout.isatty()):
        raise click.UsageError("the bytes of a blob go to a file: give -o FILE, or send stdout into one")
    data = app.store().blob(name)
    if not target:
        app.out.data(data)
        return
    path = _written_at(target)
    require_replaceable(real_host().fs, path)
    try:
        publish(real_host(), os.path.dirname(path), path, data)
    except DiskError as error:
        error.where = f"write {path}"
        raise
    if app.as_json:
        app.out.emit({"hash": name, "size": len(data), "file": path})
    else:
        app.out.say("wrote ", good(f"{len(data)} bytes"), " to ", path)


def _written_at(target: str) -> str:
    """Where a file is written whole: where a link leads, so that the link stays, unless to a pipe or a device."""
    path = os.path.abspath(target)
    followed = os.path.realpath(path) if os.path.islink(path) else path
    return followed if os.path.isfile(path) or not os.path.exists(path) else path


blob_verb.add_command(_put)
blob_verb.add_command(_get)
