"""The sessions a session leads to and comes from: its successor, its children, the origins of a fork (store.md A6).

Owns what each of them has to agree on with the session it is about, and in which order they are written. Sessions are
made, opened and removed by the store, which is this class with those filled in; nothing here touches a file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final, NamedTuple

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.given import require, require_text
from agentsession_cas.core.header import Header
from agentsession_cas.core.identity import subsession_id
from agentsession_cas.core.instructions import is_unresolved, join_instructions
from agentsession_cas.core.settings import Settings
from agentsession_cas.core.tree import Session
from agentsession_cas.core.types.items import item
from agentsession_cas.core.types.links import continued_in
from agentsession_cas.core.types.notes import info
from agentsession_cas.errors import AgentSessionError, BadInput, NoSession, OriginChain, SessionExists, Superseded
from agentsession_cas.sessions.handle import SessionWriter

__all__ = ["ORIGINS_MAX", "Dispatched", "Relatives", "config_of"]

ORIGINS_MAX: Final = 64
"""Sessions of a chain of forks that are read for a call's dispatches."""


class Dispatched(NamedTuple):
    """The dispatches of a call, in file order, withdrawn ones included, and the id of the session that holds them."""

    session: str
    dispatches: list[Entry]


class Relatives(ABC):
    """What a store offers that takes more than one session to do."""

    @abstractmethod
    def create(self, *args: Any, **header: Any) -> SessionWriter:
        """Make a session and hold it for writing."""

    @abstractmethod
    def open_session(self, session: str, timeout_s: float = 0.0) -> SessionWriter:
        """Hold a session for writing."""

    @abstractmethod
    def delete(self, session: str, timeout_s: float = 0.0) -> None:
        """Remove a session."""

    @abstractmethod
    def header_of(self, session: str) -> Header | None:
        """The header of a session, None when it is not held."""

    @abstractmethod
    def _reading(self, session: str) -> AbstractContextManager[Session]:
        """A session as it is now, let go behind the work."""

    def continue_session(
        self, session: str | SessionWriter, summary: Mapping[str, Any] | None = None, **header: Any
    ) -> SessionWriter:
        """Roll a session over into a successor, which is returned held for writing (store.md A6).

        The successor begins with the settings in force at the session's head as one full config, then ``summary``, the
        item that carries the conversation across, then the session's name. Its header says where it came from and has
        the session's harness, cwd, records and media; ``header`` adds to that or overrides, as :meth:`create` takes
        it. Last of all the session gets the link that names its successor; when that is refused, the successor goes
        again. ``session`` may be held by the caller, as a harness does that rolls over what it writes.

        Raises Superseded for a session that was continued before, SessionLocked, MirrorError, what :meth:`create` does.
        """
        with self._held(session) as old:
            if old.superseded_by:
                raise Superseded(
                    f"the session was continued in {old.superseded_by}",
                    where=old.id,
                    next_step="continue that one",
                )
            drafts = [Draft("config", config_of(old.settings()))]
            if summary is not None:
                drafts.append(item(summary))
            if old.name:
                drafts.append(info(old.name))
            successor = self.create(**{**_like(old.header), "parent_session": old.id, **header})
            try:
                successor.append_batch(drafts, durable=True)
                old.append(continued_in(successor.id), durable=True)
            except AgentSessionError:
                successor.close()
                if old.superseded_by != successor.id:  # a link that was accepted may stand: then what it names stays
                    with suppress(AgentSessionError):
                        self.delete(successor.id)
                raise
            return successor

    def subsession(self, parent: str, call_id: str, *, retry: int = 0, **header: Any) -> SessionWriter:
        """The session that a call of ``parent`` spawns, held for writing: made, or opened when it was made before.

        Its id is derived from parent and call (format.md §3), ``retry`` being 1 for the first one; its header names
        both, and has the parent's harness, cwd, records and media when that is held; ``header`` adds to that or
        overrides. The parent records ``entry.subsession(child.id, call_id)``; :meth:`verify_links` holds both against
        each other. Raises BadInput for no call_id, BadJson, SessionLocked, what :meth:`create` does.
        """
        require_text(parent, "the session that spawns another", "give session.id")
        require_text(call_id, "the call_id that spawns a session", "give call.call_id")
        canonical([parent, call_id])  # refuses what no header can name
        if require(retry, int, "a retry") < 0:
            raise BadInput("retries are counted from 1", where=parent)
        id_ = subsession_id(parent, call_id, retry)
        above = self.header_of(parent)
        members = {**(_like(above) if above else {}), **header}
        try:
            return self.create(**{**members, "id": id_, "parent_session": parent, "spawned_by": call_id})
        except SessionExists:
            return self.open_session(id_)

    def verify_links(self, session: str) -> None:
        """Raise what is wrong with a session's first subsession link: LinkMismatch, or what its target's header raises.

        Targets are looked for in this store; one that is not here is a child that never started (format.md §9).
        """
        with self._reading(session) as found:
            found.verify_links(self.header_of)

    def origin_dispatches(self, session: Session, call: str) -> Dispatched | None:
        """The dispatches of the call of a ``function_call`` entry, and the session that holds them; None for none.

        They are the session's own when it holds any. A call of a fork's prefix may have been dispatched in the session
        the fork was made from, which the fork does not hold; that is read then, and so up a chain of forks. Such a
        dispatch says that the call may have run, and under which key; the call's state is ``unknown`` all the same. The
        search ends at a session that is not held, that names no parent, or that made the call itself.

        Raises NoEntry for an entry the session does not hold, OriginChain for a chain that comes back to itself or
        goes on for more than :data:`ORIGINS_MAX` sessions.
        """
        target = require(session, Session, "what is asked", "give the session itself: store.read(id)").entry(call).id
        found = session.dispatches(target)
        if found:
            return Dispatched(session.id, found)
        above = _origin(session, target)
        seen = {session.id}
        while above:
            if above in seen or len(seen) > ORIGINS_MAX:
                what = "comes back to itself" if above in seen else f"goes on for more than {ORIGINS_MAX} sessions"
                raise OriginChain(f"the chain of forks above {session.id} {what}", where=above)
            seen.add(above)
            try:
                with self._reading(above) as origin:
                    held = origin.source.find(target) >= 0
                    found = origin.dispatches(target) if held else []
                    if found:
                        return Dispatched(above, found)
                    above = _origin(origin, target) if held else ""
            except NoSession:
                return None
        return None

    @contextmanager
    def _held(self, session: str | SessionWriter) -> Iterator[SessionWriter]:
        """A session to write: the caller's own stays open behind it."""
        if isinstance(session, SessionWriter):
            yield session
            return
        with self.open_session(session) as held:
            yield held


def _origin(session: Session, call: str) -> str:
    """The session to look in for the dispatches of a call that a session has none for, "" for nowhere else."""
    return session.header.parent_session if session.is_prefix(call) else ""


def config_of(settings: Settings) -> dict[str, Any]:
    """The body of a ``config`` entry that puts settings in force whole, wherever it stands.

    Parts that do not make up the instructions in force, because the path could not resolve one, are left out: the
    instructions are then the string that is sent. So are omitted parts that were not resolved.
    """
    members = settings.checkpoint()
    parts = members.pop("instructions_parts", [])
    if parts and _are_whole(parts) and join_instructions(parts) == settings.instructions:
        members.pop("instructions", None)
        members["instructions_parts"] = parts
    omitted = [part for part in members.pop("instructions_omitted", []) if "keep" not in part and "of" not in part]
    omitted = [part for part in omitted if isinstance(part.get("id"), str) and part["id"]]
    if omitted:
        members["instructions_omitted"] = omitted
    if settings.tools:
        members["tools_added"] = members.pop("tools")
    return {"replace": True, **members}


def _are_whole(parts: list[dict[str, Any]]) -> bool:
    """Whether each part carries its text and an id no other has: what one entry may list (format.md §7)."""
    return not any(map(is_unresolved, parts)) and len({part["id"] for part in parts}) == len(parts)


def _like(header: Header) -> dict[str, Any]:
    """What a session made for another one takes over from its header."""
    return {
        "harness": header.harness,
        "cwd": header.cwd,
        "records": header.records,
        "media": header.media,
    }
