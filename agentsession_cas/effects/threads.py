"""Threads that help: as many as can be had.

Owns that none may be: a limit of the system's, or an interpreter that ends, refuses them. Whoever has them help does
what is left himself. Must not: know what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Thread

__all__ = ["helped"]


def helped(works: Iterable[Callable[[], object]], name: str, *, daemon: bool = False) -> list[Thread]:
    """Threads that do these works, the first of them, up to one that cannot be had."""
    begun: list[Thread] = []
    with suppress(RuntimeError):  # what ``start`` raises; the works are done in threads, and raise nothing here
        for work in works:
            thread = Thread(target=work, name=name, daemon=daemon)
            thread.start()
            begun.append(thread)
    return begun
