"""The threads that do the work of an asyncio store, and what makes a twin's methods out of the library's.

Three lanes, so that nothing waits for what is slower than itself: ``quick`` accepts appends, one at a time since that
is computing; ``sync`` waits for the disk; ``long`` has everything else. No call to the library is made in the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from agentsession_cas.core.entry import Entry
from agentsession_cas.errors import Closed

__all__ = ["Asked", "Closes", "Lanes", "OffLoop", "Opening", "Twin", "loaded"]

_SYNC_THREADS: Final = 8
_LONG_THREADS: Final = 4

P = ParamSpec("P")
R = TypeVar("R")


class Closes(Protocol):
    """What is closed when it is done with."""

    async def close(self) -> None:
        """Let it go."""


T = TypeVar("T", bound=Closes)


class Lanes:
    """The threads of one store; each starts when it is first needed."""

    def __init__(self) -> None:
        self.quick: Executor = ThreadPoolExecutor(1, "agentsession-quick")
        self.sync: Executor = ThreadPoolExecutor(_SYNC_THREADS, "agentsession-sync")
        self.long: Executor = ThreadPoolExecutor(_LONG_THREADS, "agentsession-long")
        self.are_shut = False

    async def run(self, lane: Executor, call: Callable[[], R]) -> R:
        """Call in a lane. A cancelled wait leaves the call to end by itself, or never to begin. Raises Closed."""
        return await self._begun(lane, call)

    def _begun(self, lane: Executor, call: Callable[[], R]) -> asyncio.Future[R]:
        if self.are_shut:
            raise Closed("the store was closed", next_step="open it again")
        return asyncio.get_running_loop().run_in_executor(lane, call)

    async def opened(self, call: Callable[[], R], close: Callable[[R], object]) -> R:
        """Call something that opens a handle; when the wait is cancelled, what it opened is closed again."""
        opening = self._begun(self.long, call)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(partial(self._close_again, close))
            raise

    def _close_again(self, close: Callable[[R], object], opening: asyncio.Future[R]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self.long.submit(close, opening.result())

    async def close(self, close: Callable[[], object]) -> None:
        """Close a handle, also behind the store."""
        if self.are_shut:
            await asyncio.to_thread(close)
        else:
            await self.run(self.long, close)

    def shut(self) -> None:
        """Take no more work; what was begun ends by itself."""
        self.are_shut = True
        for lane in (self.quick, self.sync, self.long):
            lane.shutdown(wait=False)


def loaded(value: R) -> R:
    """A result with the bodies of its entries loaded, so that nobody has to read a disk for them in the loop."""
    for each in value if isinstance(value, list) else (value,):
        if isinstance(each, Entry):
            _ = each.content
    return value


class Twin:
    """What stands over a handle of the library: ``_ask`` calls something with that handle, off the loop."""

    async def _ask(self, call: Callable[[Any], R]) -> R:
        raise NotImplementedError


class OffLoop(Generic[P, R]):
    """A method of the library as a twin's: the same parameters, awaited."""

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        self.__doc__ = method.__doc__
        self._method = method

    @overload
    def __get__(self, twin: None, kind: type[Twin]) -> Self: ...

    @overload
    def __get__(self, twin: Twin, kind: type[Twin]) -> Callable[P, Coroutine[Any, Any, R]]: ...

    def __get__(self, twin: Twin | None, kind: type[Twin]) -> Self | Callable[P, Coroutine[Any, Any, R]]:
        if twin is None:
            return self
        method = self._method

        def call(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
            return twin._ask(lambda handle: loaded(method(handle, *args, **kwargs)))

        call.__doc__ = self.__doc__
        return call


class Asked(Generic[R]):
    """A property of the library that may have to look at a disk, as a twin's: awaited."""

    def __init__(self, look: Callable[[Any], R]) -> None:
        self._look = look

    @overload
    def __get__(self, twin: None, kind: type[Twin]) -> Self: ...

    @overload
    def __get__(self, twin: Twin, kind: type[Twin]) -> Coroutine[Any, Any, R]: ...

    def __get__(self, twin: Twin | None, kind: type[Twin]) -> Self | Coroutine[Any, Any, R]:
        return self if twin is None else twin._ask(self._look)


class Opening(Generic[T]):
    """A handle being opened: await it, or enter it, which closes it behind the block."""

    def __init__(self, start: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._start = start
        self._opened: list[T] = []

    def __await__(self) -> Generator[Any, None, T]:
        return self._start().__await__()

    async def __aenter__(self) -> T:
        opened = await self._start()
        self._opened.append(opened)
        return opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.pop().close()
