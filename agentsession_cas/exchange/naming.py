"""What a store offers by name: refs read, moved and logged, and sessions opened, continued and found by them (A6).

Owns what a ref may point to: a session that is held, an entry it holds; and what is durable before it does. A ref is
literal: it leads where it was moved to, and following a continuation is the caller's choice. The refs' files are
``sessions.refs``'s; sessions are made, opened and removed by the store.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from functools import cached_property
from typing import Any, Final, NamedTuple

from agentsession_cas.core.canonical import check
from agentsession_cas.core.given import as_callback, require
from agentsession_cas.core.header import Header
from agentsession_cas.core.refnames import check_ref_name, check_ref_prefix
from agentsession_cas.errors import (
    AgentSessionError,
    BadInput,
    ContinuationCycle,
    Damaged,
    NoEntry,
    NoFile,
    NoRef,
    NoSession,
    RefMoved,
    SessionExists,
)
from agentsession_cas.exchange.catalogue import Catalogue
from agentsession_cas.exchange.continuation import Relatives
from agentsession_cas.exchange.forks import anchor_path
from agentsession_cas.layout import Layout
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.handle import SessionWriter
from agentsession_cas.sessions.listing import OnDamage
from agentsession_cas.sessions.reffile import Held, Ref, RefTarget, RefUpdate
from agentsession_cas.sessions.refs import RefDatabase, birth_of

__all__ = ["REASON_MAX", "Current", "Names"]

REASON_MAX: Final = 4096
"""Bytes of the reason that an update has in the ref log."""


class Current(NamedTuple):
    """The session that is current for a name; ``moved`` says that the ref is behind: it names one continued since."""

    session: str
    moved: bool


class Names(Relatives):
    """The part of a store that knows sessions by name."""

    _layout: Layout
    _objects: ObjectDatabase
    _catalogue: Catalogue

    @abstractmethod
    def _require_open(self) -> None:
        """Raise Closed when the store was closed."""

    @abstractmethod
    def _require_writable(self) -> None:
        """Raise Closed when the store was closed, ReadOnly when it was opened only to read."""

    @cached_property
    def refs(self) -> RefDatabase:
        """The store's refs, as files."""
        return RefDatabase(self._layout.host, self._layout.root, self._layout.tmp)

    # --- what they hold ---

    def resolve_ref(self, name: str) -> RefTarget:
        """What a ref points to.

        Raises NoRef, RefName; NoSession for a dangling ref, whose session is gone, also when another has taken the id:
        its ``target`` says what the ref holds. Damaged for a ref, or a session, that does not read.
        """
        self._require_open()
        held = self.refs.read(check_ref_name(name))
        if held is None:
            raise NoRef("the store holds no ref of that name", where=name)
        if not self._leads_somewhere(held):
            raise NoSession(
                f"the session the ref holds is gone: {held.target}",
                target=held.target,
                where=f"ref {name}",
                next_step="move the ref, or delete it",
            )
        return held.target

    def list_refs(self, prefix: str = "", on_damage: OnDamage | None = None) -> list[Ref]:
        """The refs whose name begins with ``prefix``, in the order of names; whether they dangle is not looked at.

        A ref that does not read is left out; ``on_damage`` is called with its name and what is wrong. Raises RefName.
        """
        self._require_open()
        tell = as_callback(on_damage, "on_damage")
        beginning = check_ref_prefix(prefix)
        found: list[Ref] = []
        for name in self.refs.names():
            if not name.startswith(beginning):
                continue
            try:
                held = self.refs.read(name)
            except Damaged as error:
                if tell is not None:
                    tell(name, error)
                continue
            if held is not None:
                found.append(Ref(name, held.target))
        return found

    def ref_log(self, name: str) -> Iterator[RefUpdate]:
        """The updates of a name, newest first, those from before it was deleted too; none for one never used.

        Raises RefName, and Damaged where a record does not read.
        """
        self._require_open()
        return self.refs.log(check_ref_name(name))

    # --- moving one ---

    def update_ref(self, name: str, expected: RefTarget | None, next: RefTarget | None, reason: str = "") -> bool:
        """Move a ref from ``expected`` to ``next``, durably; whether that changed anything.

        None is no ref: as ``expected`` it creates, as ``next`` it deletes. An entry that is pinned stays, and the path
        above it, when its session goes. ``reason`` is for the log, which an update that changes nothing is not in.

        Raises RefMoved (tested first) with what the ref holds, RefName also for a name that may not stand beside
        another, NoSession, NoEntry for an entry the session does not hold, Damaged, StoreLocked.
        """
        self._require_writable()
        check_ref_name(name)
        text = _reason(reason)
        before, after = (_target(each, what) for each, what in ((expected, "expected"), (next, "next")))
        with self._layout.shared():
            self._layout.settle()
            return self.refs.update(name, before, after, text, self._settled)

    def _settled(self, target: RefTarget) -> bytes:
        """Make durable what a ref is about to name; the birth of its session."""
        layout = self._layout
        fs, directory = layout.host.fs, layout.session_dir(target.session)
        try:
            if target.entry:
                birth = self._pinned(directory, target)
            else:
                birth = birth_of(fs, directory)
        except (NoSession, NoFile) as error:
            raise NoSession("the store holds no such session", where=target.session) from error
        fs.sync_dir(layout.sessions)  # whoever made the session may have died before its name was durable
        return birth

    def _pinned(self, directory: str, target: RefTarget) -> bytes:
        found = self._catalogue.snapshot(target.session)
        with closing(found.source):
            if found.source.find(target.entry) < 0:
                raise NoEntry("the session holds no such entry", where=str(target))
            anchor_path(self._layout.host.fs, self._objects, directory, found, target.entry)
        return found.state.scan.generation.birth

    def _leads_somewhere(self, held: Held) -> bool:
        """Whether the session a ref means is there."""
        try:
            return birth_of(self._layout.host.fs, self._layout.session_dir(held.target.session)) == held.birth
        except NoSession:
            return False

    # --- sessions by name ---

    def session_for(
        self, name: str, header: Header | None = None, *, timeout_s: float = 0.0, **members: Any
    ) -> SessionWriter:
        """The session a name stands for, held for writing: the one its ref leads to, else one made for it.

        ``header`` or ``members`` are as :meth:`create` takes them. Of several that make one at once, one has its ref
        set; the others open that session and delete their own. A dangling ref is moved to a new session in the same
        way. Raises RefName, SessionLocked (at once, or after ``timeout_s`` seconds) when somebody else writes the
        session, SessionExists for an id that is taken by a session of another name, what :meth:`create` does.
        """
        self._require_writable()
        check_ref_name(name)
        tried = False
        while True:
            expected, found = self._opened_for(name, timeout_s)
            if found is not None:
                return found
            try:
                own = self.create(header, **members) if header is not None else self.create(**members)
            except SessionExists as error:
                if tried:
                    raise
                tried = self._is_settled(error.where, timeout_s)
                continue
            if self._named(name, expected, own):
                return own

    def _opened_for(self, name: str, timeout_s: float) -> tuple[RefTarget | None, SessionWriter | None]:
        """What a ref holds, and the session it leads to, held for writing; None when there is none."""
        while True:
            try:
                target = self.resolve_ref(name)
                held = self.open_session(target.session, timeout_s)
            except NoRef:
                return None, None
            except NoSession as error:
                if error.target is None:
                    continue  # deleted just now
                return RefTarget(*error.target), None
            with ExitStack() as undo:
                undo.callback(held.close)
                with suppress(NoRef, NoSession):
                    if self.resolve_ref(name) == target:  # the session held is the one meant: it cannot go now
                        undo.pop_all()
                        return target, held

    def _is_settled(self, session: str, timeout_s: float) -> bool:
        """Wait for whoever holds the session of an id that is taken: made for a name, it has its ref by then."""
        with suppress(NoSession):
            self.open_session(session, timeout_s).close()
        return True

    def _named(self, name: str, expected: RefTarget | None, own: SessionWriter) -> bool:
        """Give the session just made its name, or delete it; whether it has the name."""
        try:
            self.update_ref(name, expected, RefTarget(own.id), "made for it")
        except AgentSessionError as error:
            own.close()
            with suppress(AgentSessionError):
                if isinstance(error, RefMoved) or not self._leads_to(name, own.id):
                    self.delete(own.id)
            if isinstance(error, RefMoved):
                return False
            raise
        return True

    def _leads_to(self, name: str, session: str) -> bool:
        """Whether a ref that could not be moved all the same was."""
        held = self.refs.read(name)
        return held is not None and held.target.session == session

    def resolve_current(self, name: str) -> Current:
        """The session that is current for a name: where its ref leads, and on along ``continued_in`` links to the end.

        Raises what :meth:`resolve_ref` does, NoSession for a successor that is not held, ContinuationCycle.
        """
        return self._current(self.resolve_ref(name))

    def _current(self, target: RefTarget) -> Current:
        session, seen = target.session, {target.session}
        while True:
            with self._reading(session) as found:
                successor = found.superseded_by
            if not successor:
                return Current(session, session != target.session)
            if successor in seen:
                raise ContinuationCycle(
                    f"the sessions continued from {target.session} come back to {successor}",
                    where=session,
                    next_step="move the ref to the one that is to go on",
                )
            seen.add(successor)
            session = successor

    def continue_ref(
        self, name: str, summary: Mapping[str, Any] | None = None, *, reason: str = "", **header: Any
    ) -> SessionWriter:
        """Roll over the session that is current for a name, and move the ref to the successor, which is returned held.

        What is continued is the end of the chain, as :meth:`resolve_current` finds it; the ref moves from what it
        holds, and a pin is not carried over. ``summary`` and ``header`` as :meth:`continue_session` takes them.

        Raises RefMoved when the ref moved meanwhile: the old session is continued, the successor, closed, is there, and
        the error's ``successor`` is its id. Else what :meth:`resolve_current` and :meth:`continue_session` raise.
        """
        self._require_writable()
        target = self.resolve_ref(name)
        text = _reason(reason or "continued")
        successor = self.continue_session(self._current(target).session, summary, **header)
        try:
            self.update_ref(name, target, RefTarget(successor.id), text)
        except AgentSessionError as error:
            successor.close()
            if isinstance(error, RefMoved):
                error.successor = successor.id
                error.next_step = f"the session goes on in {successor.id}: decide where the name goes"
            raise
        return successor


def _target(value: object, what: str) -> RefTarget | None:
    """A target as a caller gave it. Raises BadInput."""
    if value is None:
        return None
    target = require(value, RefTarget, what, 'give RefTarget("session"), or None for no ref')
    if not isinstance(target.session, str) or not target.session or not isinstance(target.entry, str):
        raise BadInput(f"{what} names a session and maybe an entry by their ids", where=repr(target)[:80])
    check(list(target))
    return target


def _reason(value: object) -> str:
    """Why a ref moves, as a caller gave it. Raises BadInput, BadJSON."""
    text = require(value, str, "the reason")
    check(text)
    if len(text.encode()) > REASON_MAX:
        raise BadInput(f"the reason is longer than {REASON_MAX} bytes", next_step="say it shorter")
    return text
