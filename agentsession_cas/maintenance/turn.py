"""One repack or sweep of a store at a time, and each comes to its turn.

Owns the lock that holds them off from one another. Who waits for it stands in line. Long work looks, where it could as
well begin anew, whether somebody does, and lets him go first; what begins by itself does not begin then. Must not: say
what is done with the turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from agentsession_cas.effects.host import Lock
from agentsession_cas.effects.line import is_awaited, lock_in_line
from agentsession_cas.errors import StoreLocked
from agentsession_cas.layout import Layout

__all__ = ["Turn", "spare_turn", "turn"]

_AGAIN_S: Final = 3600.0
"""So long are others waited for that were let go first."""


class Turn:
    """Repacks and sweeps of others held off."""

    def __init__(self, layout: Layout, lock: Lock) -> None:
        self._layout = layout
        self._lock = lock

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for it."""
        return is_awaited(self._layout.host, self._layout.repack_lock)

    def give_way(self) -> None:
        """Let those go first who wait: on return they may have packed and swept. Raises StoreLocked, DiskError."""
        if self.awaited:
            self._lock.release()
            self._lock = _locked(self._layout, _AGAIN_S)

    def end(self) -> None:
        """Let others come; again is a no-op."""
        self._lock.release()


@contextmanager
def turn(layout: Layout, timeout_s: float = 0.0) -> Iterator[Turn]:
    """Hold off every other repack and sweep. Raises StoreLocked when one still runs after ``timeout_s`` seconds."""
    own = Turn(layout, _locked(layout, timeout_s))
    try:
        yield own
    finally:
        own.end()


@contextmanager
def spare_turn(layout: Layout) -> Iterator[Turn | None]:
    """Hold off the others, unless one of them runs or waits: None then."""
    lock = None if is_awaited(layout.host, layout.repack_lock) else _free_lock(layout)
    own = None if lock is None else Turn(layout, lock)
    try:
        yield own
    finally:
        if own is not None:
            own.end()


def _locked(layout: Layout, timeout_s: float) -> Lock:
    """Take the lock: in line, unless it is not to be waited for."""
    host, path = layout.host, layout.repack_lock
    lock = lock_in_line(host, path, timeout_s=timeout_s, note=host.process) if timeout_s > 0 else _free_lock(layout)
    if lock is None:
        holder = host.fs.lock_note(path)
        raise StoreLocked(
            "another repack or a sweep runs" + (f" ({holder})" if holder else ""),
            where=path,
            next_step="wait until it is done",
        )
    return lock


def _free_lock(layout: Layout) -> Lock | None:
    return layout.host.fs.lock(layout.repack_lock, exclusive=True, note=layout.host.process)
