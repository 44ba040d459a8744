"""The verb ``redact``: a copy of a session to hand out, without what is to stay at home (format.md §10)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from agentsession_cas.cli.app import App, command, given
from agentsession_cas.cli.output import counted

if TYPE_CHECKING:
    from agentsession_cas.core.redactrules import Rule
    from agentsession_cas.exchange.redact import Redaction

__all__ = ["redact_verb"]


@command("redact")
@click.argument("name", metavar="SESSION")
@click.option("--profile", metavar="NAME", required=True, help="What these rules are called, with a version: public@1.")
@click.option("--secret", "secrets", metavar="VALUE", multiple=True, help="Take out this value, escaped or not.")
@click.option(
    "--pattern", "patterns", metavar="RE", multiple=True, callback=given, help="Take out what this expression matches."
)
@click.option("--home", is_flag=True, help="Take out home directories, yours and others'.")
@click.option(
    "--rules",
    "rules_file",
    metavar="FILE",
    default="",
    callback=given,
    help="Take out what this file says, TOML or JSON.",
)
def redact_verb(
    app: App, name: str, profile: str, secrets: tuple[str, ...], patterns: tuple[str, ...], home: bool, rules_file: str
) -> None:
    """Make a redacted copy of SESSION, or grow the one its profile has by what was added since. Prints its id.

    Every request hash in the copy is its own and verifies. One profile is one set of rules: with others the copy is
    refused. A rules file holds `home = true` and [[rules]] tables, each with a `secret` or a `pattern` and maybe a
    `placeholder`; it keeps values out of the process list.

    Numbers, and what is encoded otherwise than JSON does, are not looked into; a blob that holds what is to go, or
    anything else that cannot be rewritten, refuses the session.
    """
    from agentsession_cas.cli.resolve import resolve_session
    from agentsession_cas.core.redactrules import Rules

    stated = _rules(secrets, patterns, home, rules_file)
    rules = Rules(stated)
    store = app.store(write=True)
    done = store.redact(resolve_session(store, name), profile, rules)
    if app.as_json:
        app.out.emit(
            {
                "session": done.session,
                "head": done.head or None,
                "moved": done.moved,
                "base": done.base or None,
                "created": done.created,
                "added": done.added,
                "origins": done.origins,
                "unchecked": done.unchecked,
                "opaque": done.opaque,
                "dropped": done.dropped,
                "unmapped": done.unmapped,
            }
        )
    else:
        app.out.line(done.session)
    if not stated:
        app.out.note("note: no rule was given, and nothing was taken out")
    _tell_beside(app, done)


def _rules(secrets: tuple[str, ...], patterns: tuple[str, ...], home: bool, rules_file: str) -> list[Rule]:
    from agentsession_cas.cli.resolve import open_file
    from agentsession_cas.core.redactrules import home_rules, pattern_rule, read_rules, secret_rule
    from agentsession_cas.errors import Usage

    rules = [*map(secret_rule, secrets), *map(pattern_rule, patterns)]
    if rules_file:
        with open_file(rules_file) as file:
            data = file.read()
        try:
            read = read_rules(data)
        except Usage as error:
            error.where = f"{rules_file}, {error.where}" if error.where else rules_file
            raise
        rules += read.rules
        home = home or read.home
    return rules + (home_rules(os.path.expanduser("~")) if home else [])


def _tell_beside(app: App, done: Redaction) -> None:
    """What whoever hands the copy out should know."""
    if not app.as_json:
        entries = counted(done.added, "entry", "entries")
        app.out.note(f"note: made, with {entries}" if done.created else f"note: grown by {entries}")
    for origin in done.origins:
        app.out.note(f"note: it continues from {origin}, redacted with it")
    if done.unchecked:
        app.out.note(f"note: {counted(len(done.unchecked), 'blob')} not held; nobody looked into them")
    if done.opaque:
        entries = counted(done.opaque, "extension entry", "extension entries")
        app.out.note(f"note: {entries} may name entries by their old ids")
    if done.dropped:
        app.out.note(f"note: {counted(done.dropped, 'reference')} to other sessions' entries left out")
    if done.unmapped:
        app.out.note(f"note: {counted(done.unmapped, 'reference')} to no entry of the session, left as written")
