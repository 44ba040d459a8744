"""What a store offers to those who keep it in shape: looking it over, repairing and packing it, saying what it weighs.

Owns the door to each part of ``maintenance``, and that nothing is done through a store that was closed, nor written
through one that was opened read-only. What each of them does is said and done in its own module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from agentsession_cas.core.given import as_callback, as_seconds, require_text
from agentsession_cas.layout import Layout
from agentsession_cas.maintenance.findings import FsckReport
from agentsession_cas.maintenance.fsck import Progress, fsck
from agentsession_cas.maintenance.gc import GcReport, collect
from agentsession_cas.maintenance.repack import Progress as RepackProgress
from agentsession_cas.maintenance.repack import RepackReport, repack
from agentsession_cas.maintenance.repair import Progress as RepairProgress
from agentsession_cas.maintenance.repair import repair
from agentsession_cas.maintenance.repair_report import RepairReport
from agentsession_cas.maintenance.stats import stats
from agentsession_cas.maintenance.sweep import GRACE_S, SweepReport, sweep
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.handle import SessionWriter
from agentsession_cas.sessions.listing import OnDamage

__all__ = ["Upkeep"]


class Upkeep(ABC):
    """The part of a store that looks after its files."""

    _layout: Layout
    _objects: ObjectDatabase

    @abstractmethod
    def _require_open(self) -> None:
        """Raise Closed when the store was closed."""

    @abstractmethod
    def _require_writable(self) -> None:
        """Raise Closed when the store was closed, ReadOnly when it was opened only to read."""

    @abstractmethod
    def open_session(self, session: str, timeout_s: float = 0.0) -> SessionWriter:
        """Hold a session for writing."""

    def fsck(self, *, fast: bool = False, progress: Progress | None = None) -> FsckReport:
        """Check everything the store holds (store.md A12), without a lock; ``fast`` skips bodies.

        ``progress`` is called with the steps done and how many there are.
        """
        self._require_open()
        return fsck(self._layout, self._objects, fast=fast, progress=as_callback(progress, "progress"))

    def repair(
        self, session: str | None = None, *, dry_run: bool = False, progress: RepairProgress | None = None
    ) -> RepairReport:
        """Make a damaged session, or (None) the whole store, open and read again (store.md A12).

        What it replaces is kept in a directory ``damaged``. ``dry_run`` says what would be kept and what is lost, and
        writes nothing. ``progress`` is called with the steps done and how many there are. Raises NoSession,
        SessionLocked, Damaged for a session whose id is lost, StoreLocked when a repack runs.
        """
        if dry_run:
            self._require_open()
        else:
            self._require_writable()
        if session is not None:
            require_text(session, "a session id")
        return repair(
            self._layout, self._objects, session, dry_run=dry_run, progress=as_callback(progress, "progress")
        )

    def repack(
        self, all: bool = False, progress: RepackProgress | None = None, *, timeout_s: float = 0.0
    ) -> RepackReport:
        """Make sessions that no writer holds small, merge packs until they are few, and pack loose objects.

        ``all`` puts everything anew as small as it gets. ``progress`` is called with the objects dealt with and how
        many there are. May be stopped at any time. A sweep that waits goes first between lots of sessions. Raises
        StoreLocked when another repack or a sweep still runs after ``timeout_s`` seconds.
        """
        self._require_writable()
        seconds = as_seconds(timeout_s, "timeout_s")
        return repack(self._layout, self._objects, all=all, progress=as_callback(progress, "progress"), turn_s=seconds)

    def sweep(
        self, grace_s: float = GRACE_S, *, dry_run: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> SweepReport:
        """Take away what no session and no pin needs, once it has lain there for ``grace_s`` seconds (store.md A8).

        ``dry_run`` says what would go. ``progress`` is called with the steps done and how many there are. Raises
        StoreLocked when a repack or another sweep runs for a minute; Corrupt, Damaged or NoObject when something that
        sessions need is missing or does not read: nothing is deleted then.
        """
        self._require_writable()
        seconds = as_seconds(grace_s, "grace_s")
        return sweep(
            self._layout,
            self._objects,
            grace_s=seconds,
            dry_run=bool(dry_run),
            progress=as_callback(progress, "progress"),
        )

    def gc(self, progress: Callable[[int, int], None] | None = None) -> GcReport:
        """Put everything in shape: idle sessions settled, what is dead swept, packs merged (store.md Part B).

        ``progress`` as :meth:`sweep` has it, for each part anew. Raises what :meth:`sweep` and :meth:`repack` do.
        """
        self._require_writable()
        return collect(self._layout, self._objects, as_callback(progress, "progress"))

    def stats(self, on_damage: OnDamage | None = None) -> dict[str, Any]:
        """What the store holds, weighs and saves: the ``stats`` shape of cli.md, defined in ``maintenance.stats``.

        ``on_damage`` is called with the id of every session whose files do not read, and what is wrong with them.
        """
        self._require_open()
        return stats(self._layout, self._objects, as_callback(on_damage, "on_damage"))
