"""Blocks read ahead of a reader: their frames in one go, and what these hold by a thread of its own.

Owns the threads. Files are read by the caller alone; a thread expands what was read, which asks for the interpreter
seldom, and ends. Invariants: so many threads per store at most, and none once it is closed; whatever fails is left out,
and the reader reads it by itself and says why. Must not: verify objects, or know what is read for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from agentsession_cas.core.packformat import Block
from agentsession_cas.core.packspan import Taken
from agentsession_cas.effects.threads import helper
from agentsession_cas.objects.pack import Pack

__all__ = ["HELPERS_MAX", "Ahead", "Helpers"]

HELPERS_MAX: Final = 4
"""Threads of one store, at most: who reads more sessions than that at once has them work by themselves."""


class Helpers:
    """The threads that work for readers. Safe for threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def start(self, work: Callable[[], None]) -> threading.Thread | None:
        """A thread that does the work and ends; None when there is to be none."""

        def run() -> None:
            try:
                work()
            finally:
                with self._guard:
                    self._threads.discard(threading.current_thread())

        with self._guard:
            if self._closed or len(self._threads) >= HELPERS_MAX:
                return None
            thread = helper(run, "agentsession-ahead")
            if thread is not None:
                self._threads.add(thread)
        return thread

    def close(self) -> None:
        """Wait until none is left, and start none again."""
        with self._guard:
            self._closed = True
            left = list(self._threads)
        for thread in left:
            thread.join()


class Ahead:
    """The blocks of bodies and pieces of a pack from ``first`` on that hold ``size`` bytes at most together.

    With ``helpers`` they are expanded meanwhile, else at once.
    """

    __slots__ = ("_pack", "_span", "_thread", "first")

    def __init__(self, pack: Pack, first: int, size: int, helpers: Helpers | None = None) -> None:
        self._pack = pack
        self.first = first
        self._span = span = pack.span(first, size)
        self._thread = helpers.start(span.expand) if helpers is not None and span is not None and span.size else None
        if self._thread is None and span is not None:
            span.expand()

    def covers(self, pack: Pack, at: int) -> bool:
        """Whether a block is among them, or lies between two of them."""
        return pack is self._pack and self._span is not None and self.first <= at <= self._span.last

    def pieces(self) -> Mapping[int, Block]:
        """Those of pieces, by number."""
        self._wait()
        return self._span.pieces() if self._span is not None else {}

    def taken(self) -> Taken:
        """What they hold, up to the first that does not read."""
        self._wait()
        return self._span.taken() if self._span is not None else Taken({})

    def _wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
