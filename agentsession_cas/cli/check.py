"""Verbs that check and count: ``verify``, ``fsck``, ``stats``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from agentsession_cas.cli.app import EXIT_INTEGRITY, App, Damage, command, report
from agentsession_cas.cli.output import Part, bold, counted, dim, good, size, warn

if TYPE_CHECKING:
    from agentsession_cas.store import Store

__all__ = ["fsck_verb", "stats_verb", "verify_verb"]

_TOLD_MAX: Final = 3
"""Findings of one code that have a line each; ``--json`` has all."""


@command("verify")
@click.argument("names", metavar="SESSION|FILE...", nargs=-1, required=True)
def verify_verb(app: App, names: tuple[str, ...]) -> int:
    """Check sessions or files: every id, the base, requests against their hashes, calls, runs and links.

    Exits 0 when all are sound, 1 when one holds nothing to verify, 3 when there is a problem.
    """
    from agentsession_cas.errors import NotFound, Usage

    worst = 0
    for name in names:
        try:
            verdict, status = _verified(app, name)
        except (NotFound, Usage) as error:
            worst = max(worst, report(error))
            continue
        worst = max(worst, status)
        if app.as_json:
            app.out.emit(verdict)
        elif status or not app.quiet:
            for line in _told(name, verdict):
                app.out.line(*line)
    return worst


def _verified(app: App, name: str) -> tuple[dict[str, Any], int]:
    from agentsession_cas.cli.resolve import is_file_argument, open_file, resolve_session
    from agentsession_cas.core.verify import unreadable, verify_file
    from agentsession_cas.errors import DiskError

    store = app.store_beside(name)
    if store is not None and not is_file_argument(name, store):
        return _verified_session(store, resolve_session(store, name))
    try:
        with open_file(name) as file:
            data = file.read()
    except DiskError as error:
        return unreadable(error), EXIT_INTEGRITY
    return verify_file(data)


def _told(name: str, verdict: Mapping[str, Any]) -> Iterator[tuple[Part, ...]]:
    from agentsession_cas.cli.words import short

    counts = verdict["responses"]
    said = [counted(verdict["entries"], "entry", "entries"), f"{counted(counts['verified'], 'request')} proven"]
    said += [f"{counts[name]} {words}" for name, words in _COUNTED.items() if counts[name]]
    if verdict["repeated"]:
        said.append(counted(len(verdict["repeated"]), "repeated line"))
    yield bold(name), ": ", good("ok") if verdict["ok"] else warn("not ok"), f": {', '.join(said)}"
    for problem in verdict["problems"]:
        where = [f"line {problem['line']}"] if "line" in problem else []
        where += [f"entry {short(problem['entry'])}"] if "entry" in problem else []
        paint = warn if problem["severity"] == "error" else dim
        place = f" ({', '.join(where)})" if where else ""
        yield "  ", paint(f"{problem['severity']}: {problem['code']}"), f"{place}: {problem['detail']}"


_COUNTED: Final = {
    "no_hash": "with no hash recorded",
    "other_form": "proven in another form",
    "mismatched": "not as recorded",
}


def _verified_session(store: Store, session: str) -> tuple[dict[str, Any], int]:
    from agentsession_cas.core.header import Header
    from agentsession_cas.core.verify import exit_status
    from agentsession_cas.errors import NoSession
    from agentsession_cas.maintenance.verify import verify_stored
    from agentsession_cas.sessions.opening import read_header

    def header_of(other: str) -> Header | None:
        try:
            return read_header(store.layout.host.fs, store.layout.session_dir(other))
        except NoSession:
            return None

    verdict = verify_stored(lambda: store.read(session), header_of)
    verdict["session"] = verdict["session"] or session
    return verdict, exit_status(verdict)


@command("fsck")
@click.option("--fast", is_flag=True, help="Leave out reading every body.")
def fsck_verb(app: App, fast: bool) -> int:
    """Check everything the store holds: files, objects, sessions. Exits 3 when something is wrong."""
    store = app.store()
    with app.out.progress("checking") as progress:
        found = store.fsck(fast=fast, progress=progress)
    if app.as_json:
        app.out.emit(found.to_json())
    else:
        _tell_fsck(app, found.to_json())
    return 0 if found.ok else EXIT_INTEGRITY


def _tell_fsck(app: App, found: Mapping[str, Any]) -> None:
    """Of each code the first few, a line each, and how many more there are; of notes the first alone."""
    counts = Counter(finding["code"] for finding in found["findings"])
    told: Counter[str] = Counter()
    for finding in found["findings"]:
        code = finding["code"]
        told[code] += 1
        most = 1 if finding["severity"] == "note" else _TOLD_MAX
        if told[code] > most:
            continue
        paint = warn if finding["severity"] == "error" else dim
        place = [f"{name} {finding[name]}" for name in ("session", "object", "path") if name in finding]
        where = f" ({', '.join(place)})" if place else ""
        left = counts[code] - told[code] if told[code] == most else 0
        more = f", and {left} more" if left else ""
        app.out.line(paint(f"{finding['severity']}: {code}"), f": {finding['detail']}{where}{more}")
    sizes = [counted(found["sessions"], "session"), counted(found["entries"], "entry", "entries")]
    sizes.append(counted(found["objects"], "object"))
    app.out.say(good("ok") if found["ok"] else warn("not ok"), f": {', '.join(sizes)}")


@command("stats")
def stats_verb(app: App) -> int:
    """Count sessions, entries and objects, and the bytes they take. Exits 3 when a session does not read whole."""
    damage = Damage()
    stats = app.store().stats(damage)
    if app.as_json:
        app.out.emit(stats)
    else:
        for row in _stats_rows(stats):
            app.out.line(*row)
    return damage.status


def _stats_rows(stats: Mapping[str, Any]) -> Iterable[tuple[Part, ...]]:
    objects, sizes, saved = stats["objects"], stats["bytes"], stats["saved"]
    yield bold("sessions     "), str(stats["sessions"])
    yield bold("entries      "), str(stats["entries"])
    yield bold("objects      "), f"{objects['loose']} loose, {objects['packed']} in {objects['packs']} packs"
    yield bold("on disk      "), size(sizes["disk"])
    for name in ("journals", "logs", "packs", "loose"):
        yield dim(f"  {name:<11}"), size(sizes[name])
    yield bold("written out  "), size(sizes["logical"]), dim("  what all sessions would take as plain files")
    yield dim("  saved by keeping equal parts once  "), size(saved["dedup"])
    yield dim("  saved by compression               "), size(saved["compression"])
