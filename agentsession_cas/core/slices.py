"""Long work in slices: a generator that gives way about every millisecond, so that others may run in between.

What it yields is how many objects it has dealt with since it yielded last. Whoever drives it decides whether to wait,
to do something else, or to close it: closed, it leaves nothing half-done behind. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

__all__ = ["Slices", "drain"]

T = TypeVar("T")

Slices = Generator[int, None, T]


def drain(work: Slices[T], rest: Callable[[], None] | None = None) -> T:
    """Do all of it, with ``rest`` between the slices; returns what it comes to."""
    while True:
        try:
            next(work)
            if rest is not None:
                rest()
        except StopIteration as done:
            value: T = done.value
            return value
