"""Locks that are waited for in line, so that nobody waits for ever while others come and go.

Owns the lock beside a lock, of the same path and ``-next``: whoever is the next to have it exclusively holds that one
meanwhile. Others look there before they take it, and let him go first. Must not: be relied on for more than that: what
excludes is the lock itself, and who has waited long enough takes it all the same, or who finds that there can be no
line: a full disk has no room for one more file, and it is a sweep that makes room.
"""

from __future__ import annotations

from contextlib import ExitStack

from agentsession_cas.effects.protocols import Host, Lock
from agentsession_cas.errors import DiskError

__all__ = ["is_awaited", "lock_in_line"]


def lock_in_line(host: Host, path: str, *, timeout_s: float, note: str = "") -> Lock | None:
    """Lock a file exclusively, as ``Fs.lock``, in line with others who do so; seen by :func:`is_awaited` meanwhile."""
    until = host.clock.monotonic() + timeout_s
    with ExitStack() as line:
        try:
            place = host.fs.lock(_line(path), exclusive=True, timeout_s=timeout_s)
        except DiskError:
            pass
        else:
            if place is None:
                return None
            line.callback(place.release)
        return host.fs.lock(path, exclusive=True, timeout_s=until - host.clock.monotonic(), note=note)


def is_awaited(host: Host, path: str, *, timeout_s: float = 0.0) -> bool:
    """Whether somebody stands in line for a lock, and still does after ``timeout_s`` seconds."""
    try:
        place = host.fs.lock(_line(path), exclusive=False, timeout_s=timeout_s)
    except DiskError:
        return False
    if place is not None:
        place.release()
    return place is None


def _line(path: str) -> str:
    return f"{path}-next"
