"""Who in this process waits for a session to change, and the one call that lets them know (store.md A7).

Owns a table of callbacks by session directory. Invariants: waking costs a look-up when nobody listens, and takes no
lock; a callback does nothing but note that it was called. A listener of another process hears nothing: it polls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

__all__ = ["listen", "unlisten", "wake"]

_LISTENERS: Final[dict[str, tuple[Callable[[], object], ...]]] = {}
_CHANGING: Final = threading.Lock()


def wake(directory: str) -> None:
    """Tell who listens that the session in that directory changed, or went."""
    for notice in _LISTENERS.get(directory, ()):
        notice()


def listen(directory: str, notice: Callable[[], object]) -> None:
    """Have ``notice`` called, in the thread of whoever changes the session, until :func:`unlisten`."""
    with _CHANGING:
        _LISTENERS[directory] = (*_LISTENERS.get(directory, ()), notice)


def unlisten(directory: str, notice: Callable[[], object]) -> None:
    """Take back :func:`listen`; again is a no-op."""
    with _CHANGING:
        left = tuple(each for each in _LISTENERS.pop(directory, ()) if each != notice)
        if left:
            _LISTENERS[directory] = left
