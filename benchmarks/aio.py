"""What durable appends of many asyncio tasks cost, beside appends one after another. ``python -m benchmarks aio``.

A hundred tasks append to ten sessions, each waiting until its append is durable before the next; the peer appends as
many to ten sessions through the library, one after another. Both on a new store, once where each flush takes a
millisecond more (the host sleeps first: what a network volume or a plain SSD takes), once on the disk as it is.

* *loop*: while the tasks ran, the longest time for which the event loop did not get to a timer that was due. What the
  program held before is kept out of the way of the cyclic collector: its walk through a large heap holds up any loop.

How many flushes there were for an append is told as its effects.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

from agentsession_cas import Draft, Store, aio
from agentsession_cas.effects.host import real_host
from agentsession_cas.testing.delayed import delayed
from benchmarks.corpus import drafts
from benchmarks.harness import OURS, Comparison, Options, Target, Turn, compare, fixed, part, workplace

__all__ = ["measure"]

TASKS: Final = 100
SESSIONS: Final = 10
FLUSH_S: Final = 0.001
SEQUENTIAL: Final = "one after another"
LOOP_LIMIT: Final = "10 ms"
_TICK_S: Final = 0.001


class Syncs:
    """Counts flushes, and makes them slow."""

    def __init__(self, flush_s: float) -> None:
        self.count = 0
        self._flush_s = flush_s
        self._counting = threading.Lock()

    def __call__(self, _: str) -> None:
        with self._counting:
            self.count += 1
        if self._flush_s:
            time.sleep(self._flush_s)


@part(rounds=5, entries=5_000, quick=(2, 500))
def measure(used: Options) -> list[Comparison]:
    """Appends of a hundred tasks beside appends one after another; entries are those of a turn."""
    entries = [draft for draft in drafts(used.entries) if draft.type in ("item", "response")]
    compared: list[Comparison] = []
    with workplace(used.directory) as place, _out_of_the_way():
        for title, flush_s in (("a flush takes 1 ms", FLUSH_S), ("this disk", 0.0)):
            many, blocks = _Many(place, entries, flush_s), list[float]()
            turns = {OURS: partial(many.turn, blocks), SEQUENTIAL: partial(_sequential, place, entries, flush_s)}
            targets = [Target(SEQUENTIAL, 0.2)] if flush_s else []
            appended = compare(f"durable append, {title}", turns, used.rounds, targets)
            compared.append(replace(appended, effects={"syncs": round(many.syncs / many.appends, 2)}))
            loop: dict[str, Turn] = {
                OURS: lambda number, blocks=blocks: [blocks[number]],  # type: ignore[misc]
                LOOP_LIMIT: fixed(0.01),
            }
            compared.append(compare(f"longest block of the loop, {title}", loop, used.rounds, [Target(LOOP_LIMIT, 1)]))
    return compared


@contextmanager
def _out_of_the_way() -> Iterator[None]:
    """Have the collector pass over what is there now."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _sequential(place: Path, entries: list[Draft], flush_s: float, number: int) -> list[float]:
    host = delayed(real_host(), Syncs(flush_s))
    with Store.open(place / f"one-{flush_s}-{number}", create=True, host=host) as store:
        sessions = [store.create() for _ in range(SESSIONS)]
        taken = []
        for at, draft in enumerate(entries):
            start = perf_counter()
            sessions[at % SESSIONS].append(draft, durable=True)
            taken.append(perf_counter() - start)
        for session in sessions:
            session.close()
    return taken


class _Many:
    """The tasks, and what they took."""

    def __init__(self, place: Path, entries: list[Draft], flush_s: float) -> None:
        self._place = place
        self._entries = entries
        self._flush_s = flush_s
        self.syncs = 0
        self.appends = 0

    def turn(self, blocks: list[float], number: int) -> list[float]:
        """The seconds of an append, by how many there were in all that time."""
        seconds, block = asyncio.run(self._run(number))
        blocks.append(block)
        return [seconds / len(self._entries)] * len(self._entries)

    async def _run(self, number: int) -> tuple[float, float]:
        syncs = Syncs(self._flush_s)
        path = self._place / f"many-{self._flush_s}-{number}"
        async with aio.Store.open(path, create=True, host=delayed(real_host(), syncs)) as store:
            sessions = [await store.create() for _ in range(SESSIONS)]

            async def work(task: int) -> None:
                for draft in self._entries[task::TASKS]:
                    await sessions[task % SESSIONS].append(draft, durable=True)

            watch = asyncio.create_task(_longest_block())
            await asyncio.sleep(0.01)
            before, start = syncs.count, perf_counter()
            await asyncio.gather(*map(work, range(TASKS)))
            seconds = perf_counter() - start
            watch.cancel()
            self.syncs += syncs.count - before
            self.appends += len(self._entries)
            block = (await asyncio.gather(watch))[0]
            for session in sessions:
                await session.close()
        return seconds, block


async def _longest_block() -> float:
    """Until it is cancelled: by how many seconds a timer came too late at most."""
    longest = 0.0
    try:
        while True:
            start = perf_counter()
            await asyncio.sleep(_TICK_S)
            longest = max(longest, perf_counter() - start - _TICK_S)
    except asyncio.CancelledError:
        return longest
