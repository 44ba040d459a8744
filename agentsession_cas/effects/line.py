"""Locks that are waited for in line, so that nobody waits for ever while others come and go.

Owns the lock beside a lock, of the same path and ``-next``: whoever is the next to have it exclusively holds that one
meanwhile. Others look there before they take it, and let him go first. Must not: be relied on for more than that: what
excludes is the lock itself, and who has waited long enough takes it all the same.
"""

from __future__ import annotations

from agentsession_cas.effects.protocols import Host, Lock

__all__ = ["is_awaited", "lock_in_line"]


def lock_in_line(host: Host, path: str, *, timeout_s: float, note: str = "") -> Lock | None:
    """Lock a file exclusively, as ``Fs.lock``, in line with others who do so; seen by :func:`is_awaited` meanwhile."""
    until = host.clock.monotonic() + timeout_s
    place = host.fs.lock(_line(path), exclusive=True, timeout_s=timeout_s)
    if place is None:
        return None
    try:
        return host.fs.lock(path, exclusive=True, timeout_s=until - host.clock.monotonic(), note=note)
    finally:
        place.release()


def is_awaited(host: Host, path: str, *, timeout_s: float = 0.0) -> bool:
    """Whether somebody stands in line for a lock, and still does after ``timeout_s`` seconds."""
    place = host.fs.lock(_line(path), exclusive=False, timeout_s=timeout_s)
    if place is not None:
        place.release()
    return place is None


def _line(path: str) -> str:
    return f"{path}-next"
