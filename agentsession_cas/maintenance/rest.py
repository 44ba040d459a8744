"""Sessions at rest made small: what many of their journals hold goes into one pack, then each is settled.

Owns the order over many sessions: journals are read, their objects written into one everyday pack, which is put in
place; then each session is settled by itself, with its lock and the store lock held, and finds its objects there. A
session that is held by a writer is passed over; so is one that does not read. May be stopped between any two steps:
what is left over is settled the next time. Must not: wait for a session, or open one to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from agentsession_cas.core.framing import Record
from agentsession_cas.core.packformat import PACKED_MAX, Grade, Space
from agentsession_cas.core.slices import Slices
from agentsession_cas.core.zframes import Dictionary
from agentsession_cas.errors import AgentSessionError, StoreLocked
from agentsession_cas.layout import Layout
from agentsession_cas.objects.consolidate import Consolidator
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.journal import JOURNAL_NAME
from agentsession_cas.sessions.opening import LOCK_NAME
from agentsession_cas.sessions.settling import SETTLED_MAX, records_at_rest, settle

__all__ = ["settle_all", "unsettled"]

_PACK_MAX: Final = 16 << 20
_OBJECTS_MAX: Final = 24_000
"""Objects of one pack: no more than a publisher remembers, so that settling need not read them again."""


def unsettled(layout: Layout, rested_s: float) -> list[str]:
    """The directories of sessions that are not settled and whose journals nobody wrote to for ``rested_s`` seconds."""
    fs, found = layout.host.fs, []
    latest = layout.host.clock.now_ns() - int(rested_s * 1e9)
    for name in fs.listdir(layout.sessions):
        directory = f"{layout.sessions}/{name}"
        journal = fs.stat(f"{directory}/{JOURNAL_NAME}")
        if journal is not None and journal.size > SETTLED_MAX and (not rested_s or journal.mtime_ns <= latest):
            found.append(directory)
    return found


def settle_all(
    layout: Layout,
    objects: ObjectDatabase,
    moves: Consolidator,
    directories: Sequence[str],
    dictionary: Dictionary | None,
) -> Slices[tuple[int, list[str]]]:
    """Settle sessions; returns how many were, and the packs written. Yields 1 for each looked at.

    Raises StoreLocked when the store is held for longer than ``moves.switch`` waits, DiskError and its like.
    """
    done, written = 0, []
    waiting = list(reversed(directories))
    while waiting:
        batch, stem = yield from _pack_journals(layout, objects, moves, waiting, dictionary)
        if stem:
            written.append(stem)
        for directory in batch:
            done += _settle(layout, objects, moves, directory)
            yield 1
    return done, written


def _pack_journals(
    layout: Layout, objects: ObjectDatabase, moves: Consolidator, waiting: list[str], dictionary: Dictionary | None
) -> Slices[tuple[list[str], str]]:
    """Take sessions off ``waiting`` and put what their journals hold into a pack, until that is large enough."""
    writer = moves.writer(Grade.EVERYDAY, dictionary)
    batch: list[str] = []
    packed: set[tuple[Space, bytes]] = set()
    try:
        while waiting and not writer.full(_PACK_MAX) and len(packed) < _OBJECTS_MAX:
            batch.append(waiting.pop())
            if _is_free(layout, batch[-1]):
                for space, digest, data in _objects_of(records_at_rest(layout.host.fs, batch[-1])):
                    if (space, digest) not in packed and not objects.holds(space, digest):
                        packed.add((space, digest))
                        writer.add(space, digest, data)
            yield 0
        if not packed:
            return batch, ""
        stem = yield from writer.finish()
        with moves.switch():
            moves.put(writer, stem)
            objects.remember(packed)
        return batch, stem
    finally:
        writer.abandon()


def _objects_of(records: Sequence[Record]) -> list[tuple[Space, bytes, bytes]]:
    """What a pack takes of records."""
    found: list[tuple[Space, bytes, bytes]] = []
    for record in records:
        if record.envelope and len(record.content) <= PACKED_MAX:
            found.append((Space.CONTENTS, record.row[32:64], record.content))
            found.append((Space.ENTRIES, record.row[:32], record.envelope))
    return found


def _is_free(layout: Layout, directory: str) -> bool:
    """Whether no writer holds the session just now."""
    with suppress(AgentSessionError):
        lock = layout.host.fs.lock(f"{directory}/{LOCK_NAME}", exclusive=True)
        if lock is not None:
            lock.release()
            return True
    return False


def _settle(layout: Layout, objects: ObjectDatabase, moves: Consolidator, directory: str) -> int:
    """Settle one session if that can be done now; returns how many were."""
    try:
        lock = layout.host.fs.lock(f"{directory}/{LOCK_NAME}", exclusive=True, note=layout.host.process)
    except AgentSessionError:
        return 0
    if lock is None:
        return 0
    try:
        with moves.switch():
            return int(settle(layout.host, objects, directory))
    except StoreLocked:
        raise
    except AgentSessionError:
        return 0
    finally:
        lock.release()
