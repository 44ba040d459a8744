"""The cyclic collector held off while very many objects are made that stay: it would walk all of them again and again.

Owns that it comes back as it was when the last who held it off is done; threads may. Must not: hold it off for work
that makes garbage, or has no end.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

__all__ = ["held_off"]


class _Holders:
    """How many hold it off, and whether it ran before the first."""

    def __init__(self) -> None:
        self.guard = Lock()
        self.count = 0
        self.ran = False


_HOLDERS: Final = _Holders()


@contextmanager
def held_off() -> Iterator[None]:
    """Hold the collector off inside."""
    holders = _HOLDERS
    with holders.guard:
        if not holders.count:
            holders.ran = gc.isenabled()
            gc.disable()
        holders.count += 1
    try:
        yield
    finally:
        with holders.guard:
            holders.count -= 1
            if not holders.count and holders.ran:
                gc.enable()
