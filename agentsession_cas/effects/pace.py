"""Giving way: long work in a thread of its own lets others have the interpreter, and so never holds them up for long.

A thread that asks for the interpreter while another computes waits five milliseconds for it, unless that one waits for
something by itself, and several such threads hold it up one after the other. Owns how long work goes on, how long it
waits then, and that at most one thread of a process does such work. Must not: decide what gives way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, Event
from typing import Final

from agentsession_cas.effects.host import Clock

__all__ = ["PAUSE_S", "Pace", "Rest", "Turns", "no_rest", "turns_of"]

Rest = Callable[[], None]
"""Called often in long work, where others may run."""

WORK_S: Final = 0.0005
PAUSE_S: Final = 0.0002
"""After a stretch of work, this is how long others may have the interpreter at least."""


def no_rest() -> None:
    """Go on: somebody waits for the work."""


class Pace:
    """A :data:`Rest` for one thread: when called, it waits a little if the last time is some work ago.

    Once ``hurry`` is set it waits no more.
    """

    def __init__(self, clock: Clock, hurry: Event) -> None:
        self._clock = clock
        self._hurry = hurry
        self._since = clock.monotonic()

    def __call__(self) -> None:
        """Wait if it is time to."""
        clock = self._clock
        if clock.monotonic() - self._since >= WORK_S:
            clock.wait(self._hurry, PAUSE_S)
            self._since = clock.monotonic()


class Turns:
    """A line of threads with long work: one works at a time, in the order they came. Who hurries waits for nobody."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._line: deque[Event] = deque()

    @contextmanager
    def taken(self, hurry: Event) -> Iterator[None]:
        """Have the turn inside; entered without it once ``hurry`` is set, and :meth:`stir` was called."""
        with self._changed:
            self._line.append(hurry)
            self._wait(hurry)
        try:
            yield
        finally:
            with self._changed:
                self._line.remove(hurry)
                self._changed.notify_all()

    def give_way(self, hurry: Event) -> None:
        """Let those have their turn who wait for it, inside of :meth:`taken`."""
        with self._changed:
            if len(self._line) > 1 and not hurry.is_set():
                self._line.remove(hurry)
                self._line.append(hurry)
                self._changed.notify_all()
                self._wait(hurry)

    def stir(self) -> None:
        """Have who waits look whether he is to hurry."""
        with self._changed:
            self._changed.notify_all()

    def _wait(self, hurry: Event) -> None:
        self._changed.wait_for(lambda: self._line[0] is hurry or hurry.is_set())


_TURNS: Final[dict[int, Turns]] = {}


def turns_of(process_id: int) -> Turns:
    """The line of this process, whose id that is: a forked child has one of its own, in which nobody waits."""
    return _TURNS.setdefault(process_id, Turns())
