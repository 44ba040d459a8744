"""Threads of a simulated process of which one runs at a time, so that a run with threads can be repeated.

At each effect the one that runs lets another go on, or itself, as a seed has it: cuts then find several works half
done. Invariants: the same seed and works give the same order; nobody runs after ``run`` returned. Must not: be let go
of within an operation of the disk, or while holding what another of the threads waits for.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeVar

__all__ = ["Crew"]

T = TypeVar("T")

_AT_ONCE: Final = 3


class Crew:
    """Does works as ``Together`` has it."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._changed = threading.Condition()
        self._working: list[int] = []
        self._turn: int | None = None
        self._self = threading.local()

    def run(self, works: Sequence[Callable[[], T]]) -> list[T]:
        """Do them all; raises the first error, also a power cut, once every thread has ended."""
        waiting = deque(enumerate(works))
        done: dict[int, T] = {}
        failed: list[BaseException] = []

        def work(number: int) -> None:
            self._begin(number)
            while waiting and not failed:
                at, each = waiting.popleft()
                try:
                    done[at] = each()
                except BaseException as error:
                    failed.append(error)
            self._end(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(min(_AT_ONCE, len(works)))]
        self._working = list(range(len(threads)))
        self._turn = 0
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        if failed:
            raise failed[0]
        return [done[at] for at in range(len(works))]

    def take_turn(self) -> None:
        """Let another go on, or nobody: called by the one that runs, before an effect."""
        number: int | None = getattr(self._self, "number", None)
        if number is not None:
            with self._changed:
                self._pass_on()
                self._changed.wait_for(lambda: self._turn == number)

    def _begin(self, number: int) -> None:
        self._self.number = number
        with self._changed:
            self._changed.wait_for(lambda: self._turn == number)

    def _end(self, number: int) -> None:
        with self._changed:
            self._working.remove(number)
            self._pass_on()

    def _pass_on(self) -> None:
        self._turn = self._rng.choice(self._working) if self._working else None
        self._changed.notify_all()
