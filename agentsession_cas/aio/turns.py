"""One session's calls, one after another, and the syncs they share.

What is asked waits in a queue. The appends at its front are accepted in one go, in order, each by itself; then one sync
covers all of them that have to be durable, and whatever came meanwhile is the next go. Invariants: an append whose wait
is cancelled is taken out of the queue, or lands or is refused as if it had not been; ``cancelled`` says which.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Generic, NamedTuple, TypeVar, cast

from agentsession_cas.aio.lanes import Lanes
from agentsession_cas.core.accept import Result
from agentsession_cas.errors import Closed

__all__ = ["Cancelled", "Turns"]

H = TypeVar("H")
R = TypeVar("R")


class Cancelled(NamedTuple):
    """An append whose wait was cancelled: what was to be appended, and its results; none when nothing of it landed.

    ``error`` is what the append raised, None for one that was never begun; with results it is that of a failed sync.
    """

    entries: Any
    results: list[Result]
    error: BaseException | None


@dataclass(slots=True, eq=False)
class _Job(Generic[H]):
    """A call: ``accept`` gives its result and the rows it owes (-1: none), ``long`` that it is no append."""

    accept: Callable[[H], tuple[Any, int]]
    long: bool
    done: asyncio.Future[Any]
    result: Any = None
    owed: int = -1
    error: BaseException | None = None

    def run(self, handle: H) -> None:
        """Do it, in a thread, and keep what came of it."""
        try:
            self.result, self.owed = self.accept(handle)
        except BaseException as error:
            self.error = error

    def tell(self, failure: BaseException | None = None) -> None:
        """Let who waits know, in the loop."""
        self.error = self.error or failure
        if self.done.done():
            return
        if self.error is not None:
            self.done.set_exception(self.error)
        else:
            self.done.set_result(self.result)


class Turns(Generic[H]):
    """The queue before one handle. ``settle`` makes rows it owes durable, and is told of -1 when none are."""

    def __init__(self, lanes: Lanes, handle: H, settle: Callable[[int], None] | None = None) -> None:
        self._lanes = lanes
        self._handle = handle
        self._settle = settle
        self._waiting: deque[_Job[H]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._left: list[tuple[Any, _Job[H]]] = []

    async def ask(self, call: Callable[[H], R]) -> R:
        """Call with the handle when all that was asked before is done."""
        return cast("R", await self._queued(lambda handle: (call(handle), -1), long=True).done)

    async def accept(self, call: Callable[[H], tuple[R, int]]) -> R:
        """Call with the handle, which says what it owes; returns when that is settled."""
        return cast("R", await self._queued(call, long=False).done)

    async def append(self, entries: Any, call: Callable[[H], tuple[R, int]]) -> R:
        """:meth:`accept` of entries, noted in case the wait is cancelled."""
        job = self._queued(call, long=False)
        try:
            return cast("R", await job.done)
        except asyncio.CancelledError:
            if job in self._waiting:
                self._waiting.remove(job)
            self._left.append((entries, job))
            raise

    async def cancelled(self) -> list[Cancelled]:
        """What became of the appends whose wait was cancelled since this was asked last, once that is certain."""
        left, self._left = self._left, []
        await self._queued(lambda _: (None, -1), long=True).done
        return [Cancelled(entries, list(job.result or ()), job.error) for entries, job in left]

    def _queued(self, call: Callable[[H], tuple[Any, int]], *, long: bool) -> _Job[H]:
        job = _Job(call, long, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())
        return job

    async def _work(self) -> None:
        """Go through the queue until it is empty."""
        try:
            while self._waiting:
                jobs = list(takewhile(lambda job: not job.long, self._waiting)) or [self._waiting[0]]
                for _ in jobs:
                    self._waiting.popleft()
                try:
                    await self._go(jobs)
                except Closed as error:
                    for job in jobs:
                        job.tell(error)
        finally:
            self._task = None

    async def _go(self, jobs: list[_Job[H]]) -> None:
        """Do what is no append; accept appends, and settle what they owe together."""
        if jobs[0].long:
            await self._lanes.run(self._lanes.long, partial(jobs[0].run, self._handle))
            jobs[0].tell()
            return
        await self._lanes.run(self._lanes.quick, partial(self._accept, jobs))
        owing = [job for job in jobs if job.error is None and job.owed >= 0]
        for job in jobs:
            if job not in owing:
                job.tell()
        failure: BaseException | None = None
        if owing and self._settle is not None:
            try:
                await self._lanes.run(self._lanes.sync, partial(self._settle, max(job.owed for job in owing)))
            except Exception as error:
                failure = error
        for job in owing:
            job.tell(failure)

    def _accept(self, jobs: list[_Job[H]]) -> None:
        for job in jobs:
            job.run(self._handle)
        if self._settle is not None and not any(job.error is None and job.owed >= 0 for job in jobs):
            self._settle(-1)
