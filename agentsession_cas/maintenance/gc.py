"""gc: all that keeps a store small, one after the other (store.md Part B).

Owns the order: sessions that lie idle are checkpointed, many of them into one pack; what nobody needs is swept, so that
it is not packed first; then packs are merged. A session is idle when its journal has rested for a while and nobody
holds it; it is held only to write its rows, for its objects are published before, beside whoever opens it. Must not:
wait for a session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from agentsession_cas.core.framing import Record
from agentsession_cas.errors import Corrupt, NoSession, SessionLocked
from agentsession_cas.layout import Layout
from agentsession_cas.maintenance.repack import RepackReport, repack
from agentsession_cas.maintenance.sweep import SweepReport, sweep
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.handle import SessionWriter
from agentsession_cas.sessions.journal import JOURNAL_NAME
from agentsession_cas.sessions.opening import snapshot
from agentsession_cas.sessions.records import publish_records

__all__ = ["GcReport", "checkpoint_idle", "collect"]

IDLE_NS: Final = 60 * 10**9
"""A session whose journal nobody wrote to for so long is idle."""
TOGETHER_MAX: Final = 16 << 20
"""Bytes of bodies that are published at a time."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class GcReport:
    """What a gc did: how many sessions it checkpointed, and the reports of its sweep and its repack."""

    checkpointed: int
    sweep: SweepReport
    repack: RepackReport

    def to_json(self) -> dict[str, Any]:
        """The ``gc`` shape."""
        return {"checkpointed": self.checkpointed, "sweep": self.sweep.to_json(), "repack": self.repack.to_json()}


def collect(
    layout: Layout, objects: ObjectDatabase, open_session: Callable[[str], SessionWriter], progress: Progress | None
) -> GcReport:
    """Checkpoint, sweep, repack. Raises what each of them does."""
    checkpointed = checkpoint_idle(layout, objects, open_session)
    swept = sweep(layout, objects, progress=progress)
    return GcReport(checkpointed, swept, repack(layout, objects, progress=progress))


class _Idle(NamedTuple):
    """A session with something in its journal to publish."""

    session: str
    records: list[Record]


def checkpoint_idle(layout: Layout, objects: ObjectDatabase, open_session: Callable[[str], SessionWriter]) -> int:
    """Checkpoint every session that lies idle; how many. Damaged ones are left to fsck."""
    done, size = 0, 0
    together: list[_Idle] = []
    for each in _idle_sessions(layout, objects):
        together.append(each)
        size += sum(len(record.content) for record in each.records)
        if size >= TOGETHER_MAX:
            done += _checkpoint(layout, objects, open_session, together)
            together, size = [], 0
    return done + _checkpoint(layout, objects, open_session, together)


def _idle_sessions(layout: Layout, objects: ObjectDatabase) -> Iterator[_Idle]:
    fs, clock = layout.host.fs, layout.host.clock
    for name in fs.listdir(layout.sessions):
        directory = f"{layout.sessions}/{name}"
        journal = fs.stat(f"{directory}/{JOURNAL_NAME}")
        if journal is None or clock.now_ns() - journal.mtime_ns < IDLE_NS:
            continue
        try:
            found = snapshot(layout.host, objects, directory, lambda _header, _generation: None)
        except (NoSession, Corrupt):
            continue
        records = found.source.table.pending
        found.source.close()
        if records:
            yield _Idle(found.header.id, records)


def _checkpoint(
    layout: Layout,
    objects: ObjectDatabase,
    open_session: Callable[[str], SessionWriter],
    together: list[_Idle],
) -> int:
    """Publish what these sessions have in their journals, then checkpoint each: it finds its objects there."""
    if together:
        with layout.shared():
            publish_records(objects, [record for each in together for record in each.records])
    done = 0
    for each in together:
        with suppress(SessionLocked, NoSession, Corrupt), open_session(each.session) as session:
            done += session.checkpoint()
    return done
