"""Works that wait for the disk, several at once: it takes many syncs in little more than the time of one.

Owns how many, and that when one fails no other is begun and none is under way any more. Which is done first nobody can
tell: each keeps its own order of writes, and none counts on another's. Must not: know what the works do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

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
    """As :class:`Together`, in threads of their own."""
    with ThreadPoolExecutor(min(AT_ONCE, max(1, len(works))), "agentsession-together") as crew:
        begun = [crew.submit(work) for work in works]
        try:
            return [each.result() for each in begun]
        except BaseException:
            crew.shutdown(wait=False, cancel_futures=True)
            raise
