"""``link``: other sessions, and callees in other systems (format.md §5, §9)."""

from __future__ import annotations

from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.given import require
from agentsession_cas.core.reading import text
from agentsession_cas.core.required import RELATIONS
from agentsession_cas.core.types.members import View, composed, need
from agentsession_cas.errors import BadEntry

__all__ = [
    "LinkView",
    "cancel_sent",
    "continued_in",
    "fork_of",
    "judged_by",
    "peer",
    "remote_subsession",
    "subsession",
]

_CALLEES = ("subsession", "peer")


class LinkView(View):
    """A ``link`` entry. What only some relations carry reads as "" on the others."""

    __slots__ = ()

    @property
    def rel(self) -> str:
        """The relation; "" for one the format does not list."""
        rel = text(self.body, "rel")
        return rel if rel in RELATIONS else ""

    @property
    def session(self) -> str:
        """The session linked, "" when a callee publishes none."""
        return text(self.body, "session")

    @property
    def call_id(self) -> str:
        """The call a callee was reached by, or ""."""
        return text(self.body, "call_id")

    @property
    def cancel(self) -> bool:
        """Whether this is a notice that the caller told a callee it no longer wants the work."""
        return self.rel in _CALLEES and self.body.get("cancel") == "sent" and text(self.body, "target") != ""

    @property
    def target(self) -> str:
        """On a ``judged_by`` link the entry judged, on a cancel notice the link of the callee; else ""."""
        return text(self.body, "target") if self.rel == "judged_by" or self.cancel else ""

    @property
    def url(self) -> str:
        """Where a callee in another system was reached, or ""."""
        return text(self.body, "url") if self.rel in _CALLEES else ""

    @property
    def task(self) -> str:
        """That callee's id of the work, or ""."""
        return text(self.body, "task") if self.url else ""

    @property
    def context(self) -> str:
        """That callee's id of the conversation, or ""."""
        return text(self.body, "context") if self.url else ""


def subsession(session: str, call_id: str) -> Draft:
    """A session a call spawned, which ends with the call."""
    return _link("subsession", need("session", session), call_id=need("call_id", call_id))


def remote_subsession(call_id: str, *, url: str, session: str = "", task: str = "", context: str = "") -> Draft:
    """A callee in another system whose work ends with the call; ``session`` is its own, when it publishes one."""
    return _link(
        "subsession",
        session,
        call_id=need("call_id", call_id),
        url=need("url", url),
        task=task,
        context=context,
    )


def peer(call_id: str, *, url: str = "", session: str = "", task: str = "", context: str = "") -> Draft:
    """A callee whose work outlives the call and which keeps its own record; it has a ``url`` or a ``session``."""
    if not url:
        need("session", session)
        if task or context:
            raise BadEntry("task and context come with a url", where="/url")
    return _link("peer", session, call_id=need("call_id", call_id), url=url, task=task, context=context)


def cancel_sent(link: Entry) -> Draft:
    """A notice that the callee ``link`` names was told its work is no longer wanted; not that it stopped."""
    view = LinkView(require(link, Entry, "what is cancelled"))
    if link.type != "link" or view.rel not in _CALLEES or view.cancel:
        raise BadEntry(f"{link.id} links no callee", where="/target", next_step="take the link of one of callees()")
    return _link(view.rel, view.session, call_id=view.call_id, target=link.id, cancel="sent")


def judged_by(session: str, *, target: str = "") -> Draft:
    """The session of a judge, written into the judged one; ``target`` is the entry judged."""
    return _link("judged_by", need("session", session), target=target)


def continued_in(session: str) -> Draft:
    """The one successor of a session."""
    return _link("continued_in", need("session", session))


def fork_of(session: str) -> Draft:
    """The session this one was forked from."""
    return _link("fork_of", need("session", session))


def _link(rel: str, session: str, **members: str) -> Draft:
    return Draft("link", composed({"rel": rel, "session": session}, **members))
