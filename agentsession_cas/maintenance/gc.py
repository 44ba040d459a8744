"""gc: all that keeps a store small, one after the other (store.md Part B).

Owns the order: what crashes left beside sessions is removed; sessions that lie idle are settled, many of their journals
into one pack; what nobody needs is swept, so that it is not packed again; then packs are merged. A session is idle when
its journal has rested for a while and nobody holds it. Must not: wait for a session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from agentsession_cas.layout import Layout
from agentsession_cas.maintenance.repack import RepackReport, repack, settle_sessions
from agentsession_cas.maintenance.rest import clear_sessions
from agentsession_cas.maintenance.sweep import SweepReport, sweep
from agentsession_cas.objects.database import ObjectDatabase

__all__ = ["GcReport", "collect"]

IDLE_S: Final = 60.0
"""A session whose journal nobody wrote to for so long is idle."""

TURN_S: Final = 60.0
"""What has begun waits so long for a repack or a sweep of others that came in between."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class GcReport:
    """What a gc did: how many sessions it settled, and the reports of its sweep and its repack."""

    settled: int
    sweep: SweepReport
    repack: RepackReport

    def to_json(self) -> dict[str, Any]:
        """The ``gc`` shape."""
        return {"settled": self.settled, "sweep": self.sweep.to_json(), "repack": self.repack.to_json()}


def collect(layout: Layout, objects: ObjectDatabase, progress: Progress | None) -> GcReport:
    """Settle, sweep, repack. Raises what each of them does."""
    clear_sessions(layout)
    settled = settle_sessions(layout, objects, IDLE_S)
    swept = sweep(layout, objects, progress=progress)
    packed = repack(layout, objects, progress=progress, rested_s=IDLE_S, turn_s=TURN_S)
    return GcReport(settled, swept, packed)
