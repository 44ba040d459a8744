"""What a store offers to those who keep it in shape: looking it over, packing it, saying what it weighs.

Owns the door to each part of ``maintenance``, and that nothing is done through a store that was closed, nor written
through one that was opened read-only. What each of them does is said and done in its own module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from agentsession_cas.core.given import as_callback
from agentsession_cas.layout import Layout
from agentsession_cas.maintenance.findings import FsckReport
from agentsession_cas.maintenance.fsck import Progress, fsck
from agentsession_cas.maintenance.repack import Progress as RepackProgress
from agentsession_cas.maintenance.repack import RepackReport, repack
from agentsession_cas.maintenance.stats import stats
from agentsession_cas.objects.database import ObjectDatabase
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

    def fsck(self, *, fast: bool = False, progress: Progress | None = None) -> FsckReport:
        """Check everything the store holds (store.md A12), without a lock; ``fast`` skips bodies.

        ``progress`` is called with the steps done and how many there are.
        """
        self._require_open()
        return fsck(self._layout, self._objects, fast=fast, progress=as_callback(progress, "progress"))

    def repack(self, all: bool = False, progress: RepackProgress | None = None) -> RepackReport:
        """Merge packs until they are few and pack loose objects; ``all`` puts everything anew as small as it gets.

        ``progress`` is called with the objects dealt with and how many there are. May be stopped at any time. Raises
        StoreLocked when another repack runs.
        """
        self._require_writable()
        return repack(self._layout, self._objects, all=all, progress=as_callback(progress, "progress"))

    def stats(self, on_damage: OnDamage | None = None) -> dict[str, Any]:
        """What the store holds, weighs and saves: the ``stats`` shape of cli.md, defined in ``maintenance.stats``.

        ``on_damage`` is called with the id of every session whose files do not read, and what is wrong with them.
        """
        self._require_open()
        return stats(self._layout, self._objects, as_callback(on_damage, "on_damage"))
