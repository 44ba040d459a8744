"""Threads that help: as many as can be had.

Owns that none may be: a limit of the system's, or an interpreter that ends, refuses them. Whoever has them help does
what is left himself. Must not: know what they do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from threading import Thread

__all__ = ["helped", "helper"]


def helper(work: Callable[[], object], name: str, *, daemon: bool = False) -> Thread | None:
    """A thread that does the work, None when it cannot be had."""
    if sys.is_finalizing():  # a thread would not run any more, and Python 3.11 would wait for it to begin
        return None
    thread = Thread(target=work, name=name, daemon=daemon)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def helped(works: Iterable[Callable[[], object]], name: str, *, daemon: bool = False) -> list[Thread]:
    """Threads that do these works, the first of them, up to one that cannot be had."""
    begun: list[Thread] = []
    for work in works:
        thread = helper(work, name, daemon=daemon)
        if thread is None:
            break
        begun.append(thread)
    return begun
