"""The ``verify`` report on a session a store holds (cli.md): a file's checks, and what takes a store to check.

Owns the two a file's reader has done already or cannot do: every id against the entry as the rows have it, and
subsession links against the headers of the sessions they name (format.md §9). Reads one session and the headers it
links to; the store as a whole is fsck's. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from agentsession_cas.core.header import Header
from agentsession_cas.core.identity import hash_bytes
from agentsession_cas.core.links import link_problems
from agentsession_cas.core.tree import Session
from agentsession_cas.core.verify import unreadable, verify
from agentsession_cas.effects.collector import held_off
from agentsession_cas.errors import BadID, Corrupt, NoObject
from agentsession_cas.sessions.source import RowSource
from agentsession_cas.sessions.walksource import WalkSource

__all__ = ["verify_stored"]

Json = dict[str, Any]


def verify_stored(read: Callable[[], Session], header_of: Callable[[str], Header | None]) -> Json:
    """The report on the session ``read`` gives; ``header_of`` gives the header of another, None for one not held.

    A session whose files or objects are damaged is a report too, with what stopped the reading.
    """
    try:
        session = _for_a_walk(read())
        with held_off():
            problems = [*_wrong_ids(session), *_wrong_links(session, header_of)]
            report = verify(session)
    except (Corrupt, NoObject) as error:
        return unreadable(error)
    report["problems"].extend(problems)
    report["ok"] = report["ok"] and not problems
    return report


def _for_a_walk(session: Session) -> Session:
    """The session read in a way that suits a walk over all of it."""
    if not isinstance(session.source, RowSource):
        return session
    return Session(session.header, WalkSource.of(session.source), leaf=session.leaf)


def _wrong_ids(session: Session) -> Iterator[Json]:
    """Entries whose envelope does not hash to their id; bodies are held against their hash as they load."""
    for entry in session:
        if hash_bytes(entry.envelope) != entry.id:
            yield _error(BadID.code, entry.id, "the id is not the hash of the entry")


def _wrong_links(session: Session, header_of: Callable[[str], Header | None]) -> Iterator[Json]:
    for problem in link_problems(session.source, session.header, header_of):
        yield _error(problem.error.code, problem.entry, problem.error.what)


def _error(code: str, entry: str, detail: str) -> Json:
    return {"code": code, "severity": "error", "entry": entry, "detail": detail}
