"""Giving way: long work in a thread of its own lets others have the interpreter, and so never holds them up for long.

A thread that asks for the interpreter while another computes waits five milliseconds for it, unless that one waits for
something by itself. Owns how long work goes on and how long it waits then. Must not: decide what gives way.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Final

from agentsession_cas.effects.host import Clock

__all__ = ["Pace", "Rest", "no_rest"]

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
