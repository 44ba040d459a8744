"""Links: the callees of a path, its judges, its successor, and what makes a callee link a wrong one (format.md §9).

A *callee* is a subsession or peer link that is not a cancel notice; a *notice* is a later link of the same relation and
call that tells the callee its target names to stop. Facts tell both apart without a body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agentsession_cas.core.calls import Call, CallBook
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.facts import Code, Facts, Flag, Kind
from agentsession_cas.core.header import Header
from agentsession_cas.core.reading import text
from agentsession_cas.core.source import EntrySource, own_links, path_positions
from agentsession_cas.core.undo import Onward
from agentsession_cas.errors import AgentSessionError, LinkMismatch

__all__ = [
    "Callee",
    "LinkProblem",
    "callee_fault",
    "callees",
    "is_callee",
    "is_notice",
    "judges",
    "link_problems",
    "superseded_by",
    "verify_links",
]

_CALLEES: Final = frozenset({Kind.SUBSESSION, Kind.PEER})


@dataclass(frozen=True, slots=True)
class Callee:
    """One callee of a call, as a path records it.

    ``dispatch`` is the id of the hand-off the link belongs to, "" when the path records none. ``cancelled`` says that
    the callee was asked to stop, not that it did; ``answered`` that the call's output came from it.
    """

    link: Entry
    dispatch: str
    cancelled: bool
    answered: bool


@dataclass(frozen=True, slots=True)
class LinkProblem:
    """A subsession link that could not be passed: its entry, the session it names, and what was wrong."""

    entry: str
    session: str
    error: AgentSessionError


def is_callee(facts: Facts) -> bool:
    """Whether an entry links a callee."""
    return facts.code == Code.LINK and facts.kind in _CALLEES and not facts.flags & Flag.CANCEL


def is_notice(facts: Facts) -> bool:
    """Whether an entry is a cancel notice."""
    return facts.code == Code.LINK and facts.kind in _CALLEES and bool(facts.flags & Flag.CANCEL)


def callees(source: EntrySource, position: int) -> list[Callee]:
    """The callees of the calls on the path to ``position``, in path order (context.md §2)."""
    book = CallBook(source, Onward())
    links: list[tuple[int, Call | None]] = []
    cancelled: set[str] = set()
    for each in path_positions(source, position):
        facts = source.facts(each)
        book.read(each, facts)
        if is_callee(facts):
            links.append((each, book.named(source.entry(each).call_id) if facts.call else None))
        elif is_notice(facts):
            cancelled.add(facts.target)
    found = []
    for each, call in links:
        link = source.entry(each)
        dispatch = -1 if call is None else _dispatch_of(call, each, bool(source.facts(each).flags & Flag.URL))
        stopped = link.id in cancelled
        found.append(
            Callee(
                link=link,
                dispatch=source.entry_id(dispatch) if dispatch >= 0 else "",
                cancelled=stopped,
                answered=call is not None and not stopped and _answers(call, each, dispatch),
            )
        )
    return found


def _dispatch_of(call: Call, link: int, elsewhere: bool) -> int:
    """The hand-off a link belongs to: one to another system is known only when that has answered."""
    if elsewhere:
        return next((position for position in reversed(call.dispatches) if position < link), -1)
    return next((position for position in call.dispatches if position > link), -1)


def _answers(call: Call, link: int, dispatch: int) -> bool:
    if dispatch < 0 or call.output < link:
        return False
    if next((position for position in reversed(call.dispatches) if position < call.output), -1) != dispatch:
        return False
    decided = (position for position in call.decisions if link < position < call.output)
    return all(call.source.facts(position).kind != Kind.ANSWER for position in decided)


def judges(source: EntrySource, position: int) -> list[Entry]:
    """The ``judged_by`` links on the path to ``position``, in path order; each names what was judged in ``target``."""
    path = path_positions(source, position)
    facts = ((each, source.facts(each)) for each in path)
    return [source.entry(each) for each, (code, kind, *_) in facts if code == Code.LINK and kind == Kind.JUDGED_BY]


def superseded_by(source: EntrySource) -> str:
    """The session the last ``continued_in`` link of the session's own names, or "" (format.md §9)."""
    position = source.continued()
    return text(source.entry(position).body, "session") if position >= 0 else ""


def callee_fault(facts: Facts, body: Mapping[str, Any], callee: Entry | None, *, appending: bool) -> str:
    """What a link breaks of the callee rules, "" when it breaks none (format.md §9).

    ``callee`` is the callee link its ``target`` names, before it on its path, None when there is none. A link being
    appended is held to more than a stored one, which may be older than the rules.
    """
    if is_notice(facts):
        if callee is None:
            return "a cancel notice whose target is no callee link before it on its path"
        if callee.facts.kind != facts.kind:
            return "a cancel notice of another relation than the link it names"
        same = callee.call_id == text(body, "call_id")
        return "" if same else "a cancel notice of another call than the link it names"
    if facts.code != Code.LINK or facts.kind != Kind.PEER:
        return ""
    url = bool(facts.flags & Flag.URL)
    if not facts.call and (url or appending):
        return "a peer link that names no call"
    if appending and not url and not text(body, "session"):
        return "a peer link that names neither a url nor a session"
    return ""


def link_problems(
    source: EntrySource, header: Header, resolve: Callable[[str], Header | None]
) -> Iterator[LinkProblem]:
    """Check the session's own subsession links against the headers of the sessions they name (format.md §9).

    ``resolve`` gives the header of a session, None for one that is not there: a child that never started, which is none
    of our business. What it raises is reported for that link. Links of the prefix, notices, and links to another system
    are passed over.
    """
    for position in own_links(source):
        facts = source.facts(position)
        if not is_callee(facts) or facts.kind != Kind.SUBSESSION or facts.flags & Flag.URL:
            continue
        entry = source.entry(position)
        session = text(entry.body, "session")
        error = _mismatch(entry, session, header, resolve) if session else None
        if error is not None:
            yield LinkProblem(entry.id, session, error)


def _mismatch(
    entry: Entry, session: str, header: Header, resolve: Callable[[str], Header | None]
) -> AgentSessionError | None:
    try:
        target = resolve(session)
    except AgentSessionError as error:
        return error
    if target is None:
        return None
    for name, want, got in (
        ("parent_session", header.id, target.parent_session),
        ("spawned_by", entry.call_id, target.spawned_by),
    ):
        if want != got:
            return LinkMismatch(f"session {session} has {name} {got!r}, the link wants {want!r}", where=entry.id)
    return None


def verify_links(source: EntrySource, header: Header, resolve: Callable[[str], Header | None]) -> None:
    """Raise what is wrong with the first subsession link :func:`link_problems` finds."""
    for problem in link_problems(source, header, resolve):
        raise problem.error
