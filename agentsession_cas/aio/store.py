"""The store for asyncio: every method of the library's, awaited (cli.md, The library).

What opens a session can be awaited, or entered with ``async with``. Callbacks given to a method are called in another
thread. Waiting for a session's lock holds no thread.
"""

from __future__ import annotations

import asyncio
from builtins import list as list_
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar, overload

from agentsession_cas.aio.follow import Follower
from agentsession_cas.aio.lanes import Lanes, OffLoop, Opening, Twin
from agentsession_cas.aio.session import Session, SessionWriter
from agentsession_cas.core.header import Header
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import SessionLocked
from agentsession_cas.exchange.continuation import Dispatched
from agentsession_cas.exchange.sharing import Fetched
from agentsession_cas.exchange.transfer import Progress
from agentsession_cas.sessions import handle
from agentsession_cas.sessions.listing import OnDamage, Summary
from agentsession_cas.sessions.reffile import RefUpdate
from agentsession_cas.sessions.services import SyncPolicy
from agentsession_cas.store import Store as Under

__all__ = ["Store"]

_PAUSE_MIN_S: Final = 0.001
_PAUSE_MAX_S: Final = 0.05

P = ParamSpec("P")
R = TypeVar("R")


class _Opens(Generic[P]):
    """A method of the library that opens a session, as one that gives its twin."""

    def __init__(self, method: Callable[Concatenate[Any, P], handle.SessionWriter]) -> None:
        self.__doc__ = method.__doc__
        self._method = method

    @overload
    def __get__(self, twin: None, kind: type[Store]) -> Self: ...

    @overload
    def __get__(self, twin: Store, kind: type[Store]) -> Callable[P, Opening[SessionWriter]]: ...

    def __get__(self, twin: Store | None, kind: type[Store]) -> Self | Callable[P, Opening[SessionWriter]]:
        if twin is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Opening[SessionWriter]:
            return Opening(lambda: twin._opened(lambda under: self._method(under, *args, **kwargs)))

        call.__doc__ = self.__doc__
        return call


class Store(Twin):
    """A store: see :class:`~agentsession_cas.store.Store`. Open one with :meth:`open` or :meth:`memory`."""

    def __init__(self, under: Under, lanes: Lanes) -> None:
        """Stand over an open store."""
        self._under = under
        self._lanes = lanes

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        create: bool = False,
        read_only: bool = False,
        sync: str = SyncPolicy.RECORDS,
        host: Host | None = None,
        background: bool = True,
        redacted_only: bool = False,
        allow_network_fs: bool = False,
    ) -> Opening[Self]:
        """Open the store at ``path``, with the options of the library's ``Store.open``; raises as it does."""
        call = partial(Under.open, path, create=create, read_only=read_only, sync=sync, host=host)
        call = partial(call, background=background, redacted_only=redacted_only, allow_network_fs=allow_network_fs)
        return Opening(partial(cls._start, call))

    @classmethod
    def memory(cls, *, sync: str = SyncPolicy.RECORDS) -> Opening[Self]:
        """The same store on a disk in memory."""
        return Opening(partial(cls._start, lambda: Under.memory(sync=sync)))

    @classmethod
    async def _start(cls, call: Callable[[], Under]) -> Self:
        lanes = Lanes()
        return cls(await lanes.opened(call, Under.close), lanes)

    async def _ask(self, call: Callable[[Any], R]) -> R:
        return await self._lanes.run(self._lanes.long, partial(call, self._under))

    @property
    def root(self) -> str:
        """The directory the store lies in."""
        return self._under.root

    # --- sessions ---

    async def _opened(self, call: Callable[[Under], handle.SessionWriter]) -> SessionWriter:
        writer = await self._lanes.opened(partial(call, self._under), handle.SessionWriter.close)
        return SessionWriter(self._lanes, writer)

    async def _in_time(self, attempt: Callable[[], Any], timeout_s: float) -> Any:
        """Try until a session is not locked any more, or the time is up."""
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + timeout_s, _PAUSE_MIN_S
        while loop.time() < deadline:
            with suppress(SessionLocked):
                return await attempt()
            await asyncio.sleep(min(pause, max(0.0, deadline - loop.time())))
            pause = min(2 * pause, _PAUSE_MAX_S)
        return await attempt()

    create = _Opens(Under.create)

    def fork(self, session: str, entry: str, **header: Any) -> Opening[SessionWriter]:
        """Make a session that continues from an entry of another; raises as the library's does."""
        return Opening(lambda: self._opened(lambda under: under.fork(session, entry, **header)))

    def subsession(self, parent: str, call_id: str, *, retry: int = 0, **header: Any) -> Opening[SessionWriter]:
        """The session that a call spawns, held for writing; raises as the library's does."""
        return Opening(lambda: self._opened(lambda under: under.subsession(parent, call_id, retry=retry, **header)))

    def continue_ref(
        self, name: str, summary: Mapping[str, Any] | None = None, *, reason: str = "", **header: Any
    ) -> Opening[SessionWriter]:
        """Roll over the session a ref leads to, and move the ref; raises as the library's does."""
        return Opening(lambda: self._opened(lambda under: under.continue_ref(name, summary, reason=reason, **header)))

    def open_session(self, session: str, timeout_s: float = 0.0) -> Opening[SessionWriter]:
        """Hold a session for writing; raises as the library's does, SessionLocked after ``timeout_s`` seconds."""
        return self._opening(lambda under, wait_s: under.open_session(session, wait_s), timeout_s)

    def session_for(
        self, name: str, header: Header | None = None, *, timeout_s: float = 0.0, **members: Any
    ) -> Opening[SessionWriter]:
        """The session a ref leads to, made when there is none, held for writing; raises as the library's does."""
        return self._opening(
            lambda under, wait_s: under.session_for(name, header, timeout_s=wait_s, **members), timeout_s
        )

    def _opening(
        self, call: Callable[[Under, float], handle.SessionWriter], timeout_s: float
    ) -> Opening[SessionWriter]:
        if not isinstance(timeout_s, (int, float)):
            return Opening(lambda: self._opened(lambda under: call(under, timeout_s)))  # which says what is wrong
        attempt = partial(self._opened, lambda under: call(under, 0.0))
        return Opening(lambda: self._in_time(attempt, timeout_s))

    async def delete(self, session: str, timeout_s: float = 0.0) -> None:
        """Remove a session; raises as the library's does, SessionLocked after ``timeout_s`` seconds."""
        if not isinstance(timeout_s, (int, float)):
            await self._ask(lambda under: under.delete(session, timeout_s))
        await self._in_time(lambda: self._ask(lambda under: under.delete(session)), timeout_s)

    def continue_session(
        self, session: str | SessionWriter, summary: Mapping[str, Any] | None = None, **header: Any
    ) -> Opening[SessionWriter]:
        """Roll a session over into a successor, held for writing; raises as the library's does."""
        return Opening(lambda: self._continued(session, summary, header))

    async def _continued(
        self, session: str | SessionWriter, summary: Mapping[str, Any] | None, header: dict[str, Any]
    ) -> SessionWriter:
        if not isinstance(session, SessionWriter):
            return await self._opened(lambda under: under.continue_session(session, summary, **header))
        successor = await session._ask(lambda writer: self._under.continue_session(writer, summary, **header))
        return SessionWriter(self._lanes, successor)

    async def read(self, session: str) -> Session:
        """A session as it is now, beside whoever writes it; raises as the library's does."""
        return Session(self._lanes, await self._ask(lambda under: under.read(session)))

    async def original(self, session: str) -> tuple[Session, dict[str, list_[str]]]:
        """What a redacted session was made from, and which of its entries each one stands for."""
        tree, entries = await self._ask(lambda under: under.original(session))
        return Session(self._lanes, tree), entries

    async def origin_dispatches(self, session: Session, call: str) -> Dispatched | None:
        """The dispatches of a call, and the session that holds them; raises as the library's does."""
        found: Dispatched | None = await session._ask(lambda tree: self._under.origin_dispatches(tree, call))
        return found

    def follow(self, session: str, cursor: str | None = None, *, committed: bool = False) -> Follower:
        """Follow a session: an async iterator of changes, which raises as the library's does."""
        return Follower(self._lanes, lambda: self._under.follow(session, cursor, committed=committed))

    async def ref_log(self, name: str) -> AsyncIterator[RefUpdate]:
        """The updates of a ref, newest first."""
        for update in await self._ask(lambda under: list_(under.ref_log(name))):
            yield update

    set_head = OffLoop(Under.set_head)
    holds = OffLoop(Under.holds)
    header_of = OffLoop(Under.header_of)
    session_ids = OffLoop(Under.session_ids)

    async def list(self, *, limit: int = 0, on_damage: OnDamage | None = None, **filters: Any) -> list_[Summary]:
        """Sessions newest first; ``filters`` as the library's has them."""
        return await self._ask(lambda under: under.list(limit=limit, on_damage=on_damage, **filters))

    verify_links = OffLoop(Under.verify_links)
    import_file = OffLoop(Under.import_file)
    project = OffLoop(Under.project)
    redact = OffLoop(Under.redact)
    redactions = OffLoop(Under.redactions)
    put_blob = OffLoop(Under.put_blob)
    blob = OffLoop(Under.blob)

    # --- refs ---

    resolve_ref = OffLoop(Under.resolve_ref)
    resolve_current = OffLoop(Under.resolve_current)
    update_ref = OffLoop(Under.update_ref)
    list_refs = OffLoop(Under.list_refs)

    # --- other stores ---

    remotes = OffLoop(Under.remotes)
    add_remote = OffLoop(Under.add_remote)
    remove_remote = OffLoop(Under.remove_remote)
    push = OffLoop(Under.push)
    fetch = OffLoop(Under.fetch)
    declare_record = OffLoop(Under.declare_record)

    @classmethod
    async def clone(
        cls, remote: str | Path, path: str | Path, *, host: Host | None = None, progress: Progress | None = None
    ) -> list_[Fetched]:
        """Make a store with every session of another; raises as the library's does."""
        return await asyncio.to_thread(partial(Under.clone, remote, path, host=host, progress=progress))

    # --- upkeep ---

    fsck = OffLoop(Under.fsck)
    gc = OffLoop(Under.gc)
    repack = OffLoop(Under.repack)
    repair = OffLoop(Under.repair)
    stats = OffLoop(Under.stats)
    sweep = OffLoop(Under.sweep)

    # --- the handle ---

    async def close(self) -> None:
        """Close the store's files. Sessions held open are let go by their own handles, before this."""
        if not self._lanes.are_shut:
            await self._lanes.run(self._lanes.long, self._under.close)
            self._lanes.shut()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
