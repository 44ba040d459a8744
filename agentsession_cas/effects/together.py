"""Works that wait for the disk, several at once: it takes many syncs in little more than the time of one.

Owns how many, and that when one fails no other is begun and none is under way any more. Which is done first nobody can
tell: each keeps its own order of writes, and none counts on another's. Must not: know what the works do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from agentsession_cas.effects.threads import helped

__all__ = ["AT_ONCE", "Together", "one_by_one", "side_by_side"]

T = TypeVar("T")

AT_ONCE: Final = 8
"""So many at once: four share a sync as well as sixteen do, here; a disk that is further away has use for more."""


class Together(Protocol):
    """How a host does works that may be done at once."""

    def __call__(self, works: Sequence[Callable[[], T]]) -> list[T]:
        """Do them all, each in one thread; what they come to, in their order.

        Raises what one of them raises, once none is under way: those not yet begun are left out.
        """


def one_by_one(works: Sequence[Callable[[], T]]) -> list[T]:
    """As :class:`Together`, in order: where nothing is waited for."""
    return [work() for work in works]


def side_by_side(works: Sequence[Callable[[], T]]) -> list[T]:
    """As :class:`Together`, in this thread and others: in this one alone where none can be had."""
    left = deque(enumerate(works))
    done: dict[int, T] = {}
    failed: list[BaseException] = []

    def work() -> None:
        while left and not failed:
            with suppress(IndexError):  # another took the last one
                at, each = left.popleft()
                try:
                    done[at] = each()
                except BaseException as error:
                    failed.append(error)

    helpers = helped([work] * (min(AT_ONCE, len(works)) - 1), "agentsession-together")
    try:
        work()
    finally:
        left.clear()
        for each in helpers:
            each.join()
    if failed:
        raise failed[0]
    return [done[at] for at in range(len(works))]
