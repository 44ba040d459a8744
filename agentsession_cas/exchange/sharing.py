"""What a store offers to exchange sessions with others (store.md A11): remotes, push, fetch, clone, marks.

Owns which store a remote's name leads to, how a push ends (head, marks, refs, in this order), and what is reported.
How a session is carried is ``exchange.transfer``'s.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from agentsession_cas.core.given import as_callback, as_list, as_path, require, require_text
from agentsession_cas.core.refnames import check_ref_name
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import (
    AgentSessionError,
    BadInput,
    NoEntry,
    NoRemote,
    NoSession,
    NoStore,
    RefMoved,
    RefName,
)
from agentsession_cas.exchange.endpoint import Endpoint, State
from agentsession_cas.exchange.local import LocalEndpoint
from agentsession_cas.exchange.naming import Names
from agentsession_cas.exchange.receiving import Parts, hold, marked
from agentsession_cas.exchange.remembered import Remembered, Seen
from agentsession_cas.exchange.remotes import as_address, check_remote_name, read_remotes, set_remote, unset_remote
from agentsession_cas.exchange.transfer import (
    Carried,
    HeadMove,
    OnRefused,
    Progress,
    Wish,
    fetch_session,
    push_session,
    push_sessions,
)
from agentsession_cas.layout import directory_name, root_of
from agentsession_cas.sessions.reffile import RefTarget
from agentsession_cas.sessions.services import Mark, Services

__all__ = ["Exchange", "Fetched", "Pushed", "RefMove"]

class RefMove(NamedTuple):
    """What became of a ref that a push named; ``why`` says why it did not move, "" when it is where it should be."""

    name: str
    moved: bool
    why: str


class Pushed(NamedTuple):
    """What the push of a session did: entries admitted, objects and bytes sent, and the receiver's head, refs, mark."""

    session: str
    created: bool
    admitted: int
    objects_sent: int
    bytes_sent: int
    head: HeadMove
    refs: list[RefMove]
    mark: str


class Fetched(NamedTuple):
    """What the fetch of a session did here: entries admitted, objects and bytes received, the head, the mark."""

    session: str
    created: bool
    admitted: int
    objects_received: int
    bytes_received: int
    head: HeadMove
    mark: str


class Exchange(Names):
    """The part of a store that exchanges sessions with others."""

    _services: Services
    _files: Host

    @classmethod
    @abstractmethod
    def open(cls, path: str | Path, *, create: bool = False, host: Host | None = None) -> Self:
        """Open the store at a path."""

    @abstractmethod
    def close(self) -> None:
        """Close the store's files."""

    @abstractmethod
    def session_ids(self) -> list[str]:
        """The id of every session whose header reads."""

    # --- remotes ---

    def remotes(self) -> dict[str, str]:
        """The remotes of ``config.toml``: where each store is, by name. Raises BadConfig."""
        self._require_open()
        return read_remotes(self._layout)

    def add_remote(self, name: str, path: str | Path) -> bool:
        """Give the store at a path a name, in ``config.toml``; whether that is new. It need not be there yet.

        A relative path is relative to the working directory of whoever uses it: give a whole one. Raises BadInput,
        RemoteExists, BadConfig.
        """
        self._require_writable()
        return set_remote(self._layout, check_remote_name(name), as_address(as_path(path, "where the remote is")))

    def remove_remote(self, name: str) -> None:
        """Forget a remote. Raises NoRemote, BadConfig."""
        self._require_writable()
        unset_remote(self._layout, check_remote_name(name))

    @contextmanager
    def _remote(self, remote: str | Path) -> Iterator[tuple[Endpoint, Remembered]]:
        """The store a name or a path leads to, and what is remembered of it. Raises NoRemote, NoStore, BadInput."""
        named = as_path(remote, "a remote")
        path = read_remotes(self._layout).get(named, named)
        try:
            other = type(self).open(path, host=self._files)
        except NoStore as error:
            if path != named or "/" in named:
                raise
            raise NoRemote("the store knows no such remote", where=named) from error
        try:
            root, own = (self._files.fs.stat(each) for each in (root_of(path), self._layout.root))
            if self._files is self._layout.host and root and own and root[:2] == own[:2]:
                raise BadInput("a store is no remote of its own", where=named, next_step="name another store")
            yield LocalEndpoint(other._parts()), Remembered(self._layout, root_of(path))
        finally:
            other.close()

    def _parts(self) -> Parts:
        return Parts(self._layout, self._objects, self._catalogue, self._services, self.refs, self.update_ref)

    # --- push ---

    def push(
        self,
        remote: str | Path,
        *sessions: str,
        all: bool = False,
        expected: str | None = None,
        force: bool = False,
        handover: bool = False,
        refs: Iterable[str] = (),
        progress: Progress | None = None,
        on_refused: OnRefused | None = None,
    ) -> list[Pushed]:
        """Bring sessions of which this is the record to a remote, named or by its path (store.md A11).

        Entries land first, as a set, then the head moves there, if it is where it was last seen from here or is
        ``expected`` ("" the universal root); else it stays, and ``head.why`` says so, unless ``force``. ``all`` pushes
        every record; those unchanged since the last time are told by one comparison and left out of the result.
        ``handover`` makes the remote the record and this store a mirror, once the head is there. ``refs`` are names
        that are to lead to the one session there: to what they pin here, if they lead to it here. A name that another
        moved stays, and ``refs`` of the result says why. What cannot be pushed raises, or, with ``on_refused``, is told
        to that.

        Raises NoRemote, NoSession, MirrorError for a mirror, NoBlob for a session with an unresolved blob,
        HeaderDiffers, CallIDRepeated, NoRaise, NotRedacted, SessionLocked.
        """
        self._require_writable()
        names = [check_ref_name(name) for name in as_list(refs, "refs")]
        wanted = _sessions(sessions, all)
        if (names or expected is not None) and len(wanted) != 1:
            raise BadInput("a ref and an expected head are about one session", next_step="push it by itself")
        wish = Wish(None if expected is None else require(expected, str, "the expected head"), bool(force))
        tell, refused = as_callback(progress, "progress") or _tell_nobody, as_callback(on_refused, "on_refused")
        done: list[Pushed] = []
        with self._remote(remote) as (target, memory):
            here = LocalEndpoint(self._parts())
            if all:
                wanted = self._changed(here, target, memory)
            if all and not handover:
                carrying = push_sessions(here, target, memory, wanted, wish, tell, refused or _raise)
                return [Pushed(session, *carried[:5], [], _word(carried.mark)) for session, carried in carrying]
            for session in wanted:
                with _told(session, refused):
                    carried, handed = self._pushed(here, target, memory, session, wish, tell, bool(handover))
                    moves = [self._push_ref(target, memory, name, session, force=wish.force) for name in names]
                    mark = "record" if handed else _word(carried.mark)
                    done.append(Pushed(session, *carried[:5], moves, mark))
        return done

    def _pushed(
        self,
        here: Endpoint,
        target: Endpoint,
        memory: Remembered,
        session: str,
        wish: Wish,
        tell: Progress,
        handover: bool,
    ) -> tuple[Carried, bool]:
        """Push a session, and hand it over if that is asked: what was done, and whether the target is the record now.

        Nobody appends here from before the last entry is read until this is the mirror; the mark there comes first.
        """
        if not handover:
            return push_session(here, target, memory, session, wish, tell), False
        with hold(self._parts(), session, 0.0) as held:
            carried = push_session(here, target, memory, session, wish, tell)
            if carried.head.why and carried.mark != Mark.RECORD:  # a record there may be further on than this one
                return carried, False
            target.make_record(session)
            held.set_mark(Mark.MIRROR)
            return carried, True

    def _changed(self, here: Endpoint, target: Endpoint, memory: Remembered) -> list[str]:
        """The records that are not known to be there as they are here.

        A session whose stamps are those of a time when there was nothing to push is not looked at.
        """
        ours, theirs, agreed = here.stamps(), target.stamps(), memory.agreed()
        pairs = {name: [stamp, theirs.get(name, "none")] for name, stamp in ours.items()}
        left = {name for name, pair in pairs.items() if agreed.get(name) != pair or "" in pair}
        if not left:
            return []
        changed: list[str] = []
        there = {state.session: state for state in target.states(left)}
        known = pairs.keys() - left
        for state in here.states(left):
            if not _is_known(state, there.get(state.session), memory.session(state.session)):
                position = here.position(state.session, 0)
                if position is not None and position.mark == Mark.RECORD:
                    changed.append(state.session)
                    continue
            known.add(directory_name(state.session))
        memory.see_agreed({name: pair for name in known if "" not in (pair := pairs[name])})
        return changed

    def _push_ref(self, target: Endpoint, memory: Remembered, name: str, session: str, *, force: bool) -> RefMove:
        held = self.refs.read(name)
        to = held.target if held is not None and held.target.session == session else RefTarget(session)
        current = target.ref(name)
        if current == to:
            moved, why = False, ""
        else:
            try:
                moved, why = target.move_ref(name, current if force else memory.ref(name), to), ""
            except AgentSessionError as error:
                return RefMove(name, moved=False, why=str(error))
        memory.see_ref(name, to)
        return RefMove(name, moved, why)

    # --- fetch ---

    def fetch(
        self,
        remote: str | Path,
        *sessions: str,
        all: bool = False,
        progress: Progress | None = None,
        on_refused: OnRefused | None = None,
    ) -> list[Fetched]:
        """Bring sessions from a remote, whoever writes them (store.md A11); what is new here is born a mirror.

        Entries land as a set. The head moves only in a mirror, and only to what descends from it; ``head.why`` says why
        it did not. ``all`` fetches every session there. Raises as :meth:`push` does.
        """
        self._require_writable()
        wanted = _sessions(sessions, all)
        tell, refused = as_callback(progress, "progress") or _tell_nobody, as_callback(on_refused, "on_refused")
        done: list[Fetched] = []
        with self._remote(remote) as (source, memory):
            here = LocalEndpoint(self._parts())
            for session in [state.session for state in source.states(source.stamps())] if all else wanted:
                with _told(session, refused):
                    carried = fetch_session(source, here, memory, session, tell)
                    done.append(Fetched(session, *carried[:5], _word(carried.mark)))
        return done

    @classmethod
    def clone(
        cls, remote: str | Path, path: str | Path, *, host: Host | None = None, progress: Progress | None = None
    ) -> list[Fetched]:
        """Make a store at ``path`` with every session of another, as mirrors, and every ref; its remote is ``origin``.

        A ref leads here to what it leads to there, its pin included; a dangling one is not taken. A clone that was cut
        goes on when it is asked for again: what is new comes, and a ref moves if nobody moved it here. Raises
        RemoteExists for a store that has another ``origin``, NoStore, what :meth:`fetch` does.
        """
        source = as_address(root_of(remote))
        cls.open(source, host=host).close()
        with_store = cls.open(path, create=True, host=host)
        try:
            with_store.add_remote("origin", source)
            fetched = with_store.fetch("origin", all=True, progress=progress)
            with_store._fetch_refs("origin")
            return fetched
        finally:
            with_store.close()

    def _fetch_refs(self, remote: str) -> None:
        """Move refs to where they are at a remote, from where they were last seen there; the others stay."""
        with self._remote(remote) as (source, memory):
            for name, target in source.refs():
                with suppress(RefMoved, RefName, NoSession, NoEntry):
                    self.update_ref(name, memory.ref(name), target, "cloned")
                    memory.see_ref(name, target)

    # --- marks ---

    def declare_record(self, session: str) -> bool:
        """Make a mirror the record, durably, because its record is gone; whether it was none (store.md A11).

        A record that is not gone after all is a second one: what either appends then is a branch to the other. Raises
        NoSession, SessionLocked.
        """
        self._require_writable()
        return marked(self._parts(), session, Mark.RECORD)


def _is_known(here: State, there: State | None, seen: Seen | None) -> bool:
    """Whether a session is what it was on both sides when they last agreed."""
    if there is None or seen is None or here.head != there.head:
        return False
    known = (seen.here.birth, seen.here.rows, seen.there.birth, seen.there.rows)
    return known == (here.birth.hex(), here.rows, there.birth.hex(), there.rows)


def _sessions(sessions: tuple[str, ...], all: bool) -> list[str]:
    if bool(all) == bool(sessions):
        raise BadInput("what to exchange is some sessions, or all of them", next_step="name one, or give all=True")
    return list(dict.fromkeys(require_text(each, "a session id") for each in sessions))


@contextmanager
def _told(session: str, refused: OnRefused | None) -> Iterator[None]:
    try:
        yield
    except AgentSessionError as error:
        if refused is None:
            raise
        refused(session, error)


def _raise(session: str, error: AgentSessionError) -> None:  # noqa: ARG001
    raise error


def _word(mark: int) -> str:
    return "record" if mark == Mark.RECORD else "mirror"


def _tell_nobody(done: int, total: int) -> None:
    """Say nothing."""
