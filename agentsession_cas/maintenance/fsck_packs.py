"""The blocks of a large pack read by every core: this process and one on each other (``effects.workers``).

Owns how a pack is cut into ranges of blocks, and what a worker says of one: the digests of each block's objects, which
it hashed, whether its bodies of several parts come out right, or why it cannot be read. What a worker cannot tell is
read here, so that the findings are those of a check that nobody helped. Must not: judge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Final, NamedTuple, Self
from zlib import crc32

from agentsession_cas.core.packformat import Space
from agentsession_cas.effects.host import real_host
from agentsession_cas.effects.threads import helped
from agentsession_cas.effects.workers import Lost, Worker
from agentsession_cas.errors import AgentSessionError
from agentsession_cas.layout import Layout
from agentsession_cas.objects.check import BlockSeen, Shows, see_blocks
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.objects.pack import Pack
from agentsession_cas.objects.packfile import PackFile

__all__ = ["PackReaders", "Reading", "pack_reader"]

_LARGE: Final = 20_000
"""A pack of so many objects is worth the start of an interpreter."""
_TOGETHER: Final = 10_000
"""About so many objects are asked for at once: a thread that hears an answer waits for its turn some milliseconds."""
_DIGEST: Final = 32

Said = list[tuple[bytes, bool, str]]
"""Of each block the digests of its objects, joined, and the rest of a ``BlockSeen``."""


class Reading(NamedTuple):
    """The blocks from ``first`` to before ``end`` of a pack, by its stem; ``table`` is the CRC-32 of its table."""

    stem: str
    table: int
    first: int
    end: int


def pack_reader(root: str) -> Callable[[Reading], Said | None]:
    """What reads blocks in a worker; it answers None where it does not see the pack that was meant."""
    objects = ObjectDatabase(real_host(), root)
    shows = objects.in_order(Space.CONTENTS).shows
    opened: dict[str, PackFile] = {}

    def read(asked: Reading) -> Said | None:
        try:
            file = opened.get(asked.stem)
            if file is None:
                for other in opened.values():
                    other.close()
                opened.clear()
                pack = next((each for each in objects.packs() if each.stem == asked.stem), None)
                if pack is None:
                    return None
                file = opened[asked.stem] = pack.open()
            if crc32(file.table.data) != asked.table:
                return None
            seen = see_blocks(file, shows, asked.first, asked.end)
            return [(b"".join(digests), shown, why) for _, digests, shown, why in seen]
        except AgentSessionError:
            return None

    return read


class PackReaders:
    """Whoever reads packs. A context manager, which ends the workers; they start with the first large pack."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._asked = False
        self._workers: list[Worker] = []
        self._threads: list[Thread] = []
        self._left: deque[Reading] = deque()

    def gather(self, pack: Pack, file: PackFile, shows: Shows) -> Iterator[BlockSeen]:
        """As :class:`~agentsession_cas.objects.check.Gather`."""
        blocks, objects = file.table.blocks, file.table.objects
        if objects >= _LARGE and not self._asked:
            self._asked = True
            self._workers = self._layout.host.workers(pack_reader, (self._layout.root,))
        if objects < _LARGE or not self._workers:
            return see_blocks(file, shows, 0, blocks)
        step = max(1, blocks * _TOGETHER // objects)
        table = crc32(file.table.data)
        asked = [Reading(pack.stem, table, at, min(at + step, blocks)) for at in range(0, blocks, step)]
        return self._shared(asked, file, shows)

    def _shared(self, asked: list[Reading], file: PackFile, shows: Shows) -> Iterator[BlockSeen]:
        self._finish()  # with a pack that was not read to its end
        told: SimpleQueue[tuple[Reading, Said | None]] = SimpleQueue()
        self._left.extend(asked)
        self._threads += helped([partial(self._feed, worker, told) for worker in self._workers], "fsck", daemon=True)
        for _ in asked:
            reading, said = self._next(told)
            if said is None:
                yield from see_blocks(file, shows, reading.first, reading.end)
                continue
            for number, (digests, shown, why) in enumerate(said, reading.first):
                split = [digests[at : at + _DIGEST] for at in range(0, len(digests), _DIGEST)]
                yield BlockSeen(number, split, shown, why)

    def _finish(self) -> None:
        self._left.clear()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _feed(self, worker: Worker, told: SimpleQueue[tuple[Reading, Said | None]]) -> None:
        with suppress(IndexError):
            while True:
                asked = self._left.popleft()
                try:
                    told.put((asked, worker.ask(asked)))
                except Lost:
                    told.put((asked, None))
                    return

    def _next(self, told: SimpleQueue[tuple[Reading, Said | None]]) -> tuple[Reading, Said | None]:
        """A range that a worker read, or one to read here; waits when the workers have all that is left."""
        with suppress(Empty):
            return told.get_nowait()
        with suppress(IndexError):
            return self._left.popleft(), None
        return told.get()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.clear()
        for worker in self._workers:
            worker.end()
        self._finish()
