"""Following a session from asyncio (store.md A7): the changes of the library's follower, awaited."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

from agentsession_cas.aio.lanes import Lanes, loaded
from agentsession_cas.aio.session import Session
from agentsession_cas.aio.turns import Turns
from agentsession_cas.sessions import follow
from agentsession_cas.sessions.follow import PAUSE_MAX_S, PAUSE_MIN_S
from agentsession_cas.sessions.follow_changes import Appended, Change

__all__ = ["Follower"]


class Follower:
    """An async iterator of changes. Use it as a context manager, or close it; any task may close it, which ends it.

    A change's ``session`` is the library's and reads the disk when it is asked; :attr:`session` asks it off the loop.
    """

    def __init__(self, lanes: Lanes, start: Callable[[], follow.Follower]) -> None:
        self._lanes = lanes
        self._start = start
        self._turns: Turns[Any] = Turns(lanes, self)
        self._under: follow.Follower | None = None
        self._session: Session | None = None
        self._looking: asyncio.Task[Change | None] | None = None
        self._stirred = asyncio.Event()
        self._closed = False

    @property
    def session(self) -> Session | None:
        """The follower's own session, which keeps up with what is told; None before the first change."""
        return self._session

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        change = await self.take()
        if change is None:
            raise StopAsyncIteration
        return change

    async def take(self, timeout_s: float = math.inf) -> Change | None:
        """The next change; None when none came for ``timeout_s`` seconds, or the follower was closed.

        Raises as the library's does. A cancelled wait passes nothing over: what was read is told next time.
        """
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + timeout_s, PAUSE_MIN_S
        while not self._closed:
            self._stirred.clear()
            change = await self._looked()
            left = deadline - loop.time()
            if change is not None or left <= 0:
                return change
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stirred.wait(), min(pause, left))
            pause = min(2 * pause, PAUSE_MAX_S)
        return None

    async def _looked(self) -> Change | None:
        """What a look finds; one that was cancelled goes on, and its change is the next one's."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
        looking = self._looking
        try:
            return await asyncio.shield(looking)
        finally:
            if looking.done():
                self._looking = None

    async def _look(self) -> Change | None:
        if self._under is None:
            self._under = await self._lanes.run(self._lanes.long, self._start)
            self._under.call_on_change(partial(self._stir, asyncio.get_running_loop()))
        under = self._under
        change = await self._turns.ask(lambda _: _taken(under))
        if change is not None and self._session is None:
            self._session = Session(self._lanes, change.session, self._turns)
        return change

    def _stir(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(self._stirred.set)

    async def close(self) -> None:
        """End it: a task that waits in it gets None. Again is a no-op."""
        self._closed = True
        self._stirred.set()
        if self._looking is not None:
            await asyncio.wait((self._looking,))
        if self._under is not None:
            await self._lanes.close(self._under.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _taken(follower: follow.Follower) -> Change | None:
    """A change there is, its entry loaded."""
    change = follower.take(0)
    if isinstance(change, Appended):
        loaded(change.entry)
    return change
