"""The verb ``continue``: roll a session over into a successor."""

from __future__ import annotations

from typing import Any

import click

from agentsession_cas.cli.app import App, command

__all__ = ["continue_verb"]


@command("continue")
@click.argument("name", metavar="SESSION")
@click.option("--summary", metavar="TEXT", default="", help="What to carry across; - reads it from stdin.")
@click.option("--id", "new_id", metavar="ID", help="The new session's id; made up by default.")
def continue_verb(app: App, name: str, summary: str, new_id: str | None) -> None:
    """Begin the successor of SESSION: its settings, the summary, its name; then retire it. Prints the new id.

    A listing of current sessions shows the successor alone. A session continues once. For ref:NAME it is the session
    that is current for the name, and the name moves to the successor.
    """
    from agentsession_cas.cli.resolve import REF, given_id, resolve_session

    item = _message(_text(summary)) if summary else None
    id_ = given_id(new_id)
    store = app.store(write=True)
    if name.startswith(REF) and not store.holds(name):
        successor = store.continue_ref(name.removeprefix(REF), item, id=id_)
    else:
        successor = store.continue_session(resolve_session(store, name), item, id=id_)
    with successor:
        if app.as_json:
            app.out.emit({"session": successor.id, "head": successor.leaf or None, "moved": False, "base": None})
        else:
            app.out.line(successor.id)


def _text(summary: str) -> str:
    """The summary, or what stdin says."""
    from agentsession_cas.cli.resolve import STDIN, open_file

    if summary != STDIN:
        return summary
    text = open_file(STDIN).read().decode("utf-8", "replace").strip()
    if not text:
        raise click.UsageError("--summary - was given and stdin said nothing")
    return text


def _message(text: str) -> dict[str, Any]:
    from agentsession_cas.core.types.items import system

    item: dict[str, Any] = system(text).body["item"]
    return item
