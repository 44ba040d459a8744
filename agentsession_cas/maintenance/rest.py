"""Sessions at rest made small: what many of their journals hold goes into one pack, then each is settled.

Owns the order over many sessions, some hundred at a time: journals are read, their objects published as one pack; then
each session is settled by itself, with its lock and the store lock held, and finds its objects there. Several are under
way at once, for it is the disk that each waits for. A session that is held by a writer is passed over; so is one that
does not read. May be stopped between any two steps: what is left over is settled the next time. What a crash left
beside a session's files is removed here too. Must not: wait for a session, or open one to write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Final

from agentsession_cas.core.framing import Record
from agentsession_cas.core.slices import Slices
from agentsession_cas.effects.together import AT_ONCE
from agentsession_cas.errors import AgentSessionError, Corrupt, StoreLocked
from agentsession_cas.layout import Layout
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.journal import JOURNAL_NAME, LOG, clear_leftovers, next_name
from agentsession_cas.sessions.opening import LOCK_NAME
from agentsession_cas.sessions.records import publish_records
from agentsession_cas.sessions.recovery import read_state_once
from agentsession_cas.sessions.settling import SETTLED_MAX, records_at_rest, settle

__all__ = ["clear_sessions", "settle_all", "unsettled"]

Switch = Callable[[], AbstractContextManager[None]]

_TOGETHER_MAX: Final = 16 << 20
"""Bytes of bodies that go into one pack."""
_ENTRIES_MAX: Final = 12_000
"""Entries of one pack: no more than a publisher remembers, so that settling need not read them again."""
_SESSIONS_MAX: Final = 256
"""Sessions of one pack."""
_TURN_MAX: Final = 4 * AT_ONCE
"""Sessions settled before others have their turn."""


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


def clear_sessions(layout: Layout) -> None:
    """Remove what crashes left in the directories of sessions that no writer holds."""
    fs = layout.host.fs
    for name in fs.listdir(layout.sessions):
        directory = f"{layout.sessions}/{name}"
        with suppress(AgentSessionError):
            found = fs.listdir(directory)
            logs = {told[1] for each in found if (told := LOG.fullmatch(each))}
            if len(logs) > 1 or any(each.startswith(next_name(b"")) for each in found):
                _clear(layout, directory)


def _clear(layout: Layout, directory: str) -> None:
    fs = layout.host.fs
    lock = fs.lock(f"{directory}/{LOCK_NAME}", exclusive=True, note=layout.host.process)
    if lock is None:
        return
    try:
        state = read_state_once(fs, directory)
        state.table.close()
        clear_leftovers(fs, directory, state.scan.generation.log)
    finally:
        lock.release()


def settle_all(
    layout: Layout, objects: ObjectDatabase, directories: Sequence[str], switch: Switch, give_way: Callable[[], None]
) -> Slices[int]:
    """Settle sessions; returns how many were. Yields how many were looked at.

    ``switch`` holds the store lock shared; at ``give_way``, called now and then, others may sweep and repack. Raises
    StoreLocked when the lock cannot be had, DiskError and its like.
    """
    done = 0
    waiting = list(reversed(directories))
    while waiting:
        lot: list[str] = []
        together: list[Record] = []
        size = 0
        while waiting and size < _TOGETHER_MAX and len(together) < _ENTRIES_MAX and len(lot) < _SESSIONS_MAX:
            lot.append(waiting.pop())
            if _is_free(layout, lot[-1]):
                records = records_at_rest(layout.host.fs, lot[-1])
                size += sum(len(each.content) for each in records)
                together += records
            yield 0
        if together:
            with switch(), suppress(Corrupt):  # one of them does not hash: each by itself then, and that one not at all
                publish_records(objects, together, packed=True)
        for at in range(0, len(lot), _TURN_MAX):
            works = [partial(_settle, layout, objects, switch, each) for each in lot[at : at + _TURN_MAX]]
            done += sum(layout.host.together(works))
            yield len(works)
            give_way()
    return done


def _is_free(layout: Layout, directory: str) -> bool:
    """Whether no writer holds the session just now."""
    with suppress(AgentSessionError):
        lock = layout.host.fs.lock(f"{directory}/{LOCK_NAME}", exclusive=True)
        if lock is not None:
            lock.release()
            return True
    return False


def _settle(layout: Layout, objects: ObjectDatabase, switch: Switch, directory: str) -> int:
    """Settle one session if that can be done now; returns how many were."""
    try:
        lock = layout.host.fs.lock(f"{directory}/{LOCK_NAME}", exclusive=True, note=layout.host.process)
    except AgentSessionError:
        return 0
    if lock is None:
        return 0
    try:
        with switch():
            return int(settle(layout.host, objects, directory))
    except StoreLocked:
        raise
    except AgentSessionError:
        return 0
    finally:
        lock.release()
