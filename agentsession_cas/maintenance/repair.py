"""repair: what damage left of a session, or of the whole store, made to open and read again (store.md A12).

Owns the order: idx files first, then the sessions, for they say which objects are needed and can make some anew; forks
after what they continue from; packs and loose files last: none leaves its place before all was taken from it; refs at
the end, when there is what they lead to. Damage in one session keeps no other from being repaired. Must not: guess;
what nothing proves is lost, and is said.
"""

from __future__ import annotations

from collections.abc import Callable

from agentsession_cas.effects.durable import move
from agentsession_cas.errors import AgentSessionError, Damaged, NoSession, SessionLocked
from agentsession_cas.layout import Layout, directory_name, session_id_of
from agentsession_cas.maintenance.repair_objects import repairing_objects
from agentsession_cas.maintenance.repair_pool import Pool
from agentsession_cas.maintenance.repair_refs import repair_refs
from agentsession_cas.maintenance.repair_report import RepairReport, SessionRepair
from agentsession_cas.maintenance.repair_session import repair_session
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.opening import lock_session, read_header
from agentsession_cas.sessions.recovery import read_state

__all__ = ["Progress", "repair"]

Progress = Callable[[int, int], None]
"""Called with how many steps are done and how many there are: each session is one, the objects are two."""


def repair(
    layout: Layout,
    objects: ObjectDatabase,
    session: str | None = None,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> RepairReport:
    """Repair one session, or (None) all of them and the objects; ``dry_run`` says what would be done.

    Raises NoSession, SessionLocked for one session that is held, Damaged for one whose id is lost, StoreLocked, and
    DiskError and its like. Of all sessions, one that cannot be looked at is in the report, with why.
    """
    objects.forget()  # what was seen to be durable may be what is damaged now
    pool, report = Pool(layout, objects), RepairReport(dry_run)
    if session is not None:
        name = directory_name(session)
        if layout.host.fs.stat(f"{layout.sessions}/{name}") is None:
            raise NoSession("the store holds no such session", where=session)
        report.sessions.append(repair_session(layout, objects, pool, name, dry_run=dry_run))
        return report
    names = _in_order(layout)
    tell = progress or _tell_nobody
    tell(0, len(names) + 2)
    with repairing_objects(layout, objects, pool, dry_run=dry_run) as finish:
        for done, name in enumerate(names, 1):
            tell(done, len(names) + 2)
            report.sessions.append(_one_of_all(layout, objects, pool, name, dry_run))
        tell(len(names) + 1, len(names) + 2)
        report.objects = finish()
        report.refs = repair_refs(layout, dry_run=dry_run)
    tell(len(names) + 2, len(names) + 2)
    return report


def _tell_nobody(done: int, total: int) -> None:
    """Nobody watches."""


def _in_order(layout: Layout) -> list[str]:
    """The directories of all sessions, forks behind what they may continue from."""
    fs = layout.host.fs
    keys: list[tuple[bool, str, str]] = []
    for name in fs.listdir(layout.sessions):
        if not layout.is_session(name):
            continue
        try:
            header = read_header(fs, f"{layout.sessions}/{name}")
            keys.append((bool(header.base), header.created_at, name))
        except AgentSessionError:
            keys.append((False, "", name))
    return [name for *_, name in sorted(keys)]


def _one_of_all(layout: Layout, objects: ObjectDatabase, pool: Pool, name: str, dry_run: bool) -> SessionRepair:
    try:
        right = _right_name(layout, name)
        if right != name and not dry_run:
            _rename(layout, name, right)
        found = repair_session(layout, objects, pool, name if dry_run else right, dry_run=dry_run)
        if right != name:
            found.changed = True
            found.notes.append(f"its directory was called {name}")
        return found
    except SessionLocked as error:
        try:
            read_state(layout.host.fs, f"{layout.sessions}/{name}").table.close()
        except (Damaged, NoSession):
            return SessionRepair(session_id_of(name) or name, error=str(error))
        return SessionRepair(session_id_of(name) or name)
    except (Damaged, NoSession) as error:
        return SessionRepair(session_id_of(name) or name, error=str(error))


def _right_name(layout: Layout, name: str) -> str:
    """The name a session's directory has to have, its own when that is not known or taken."""
    try:
        right = directory_name(read_header(layout.host.fs, f"{layout.sessions}/{name}").id)
    except AgentSessionError:
        return name
    return name if layout.host.fs.stat(f"{layout.sessions}/{right}") is not None else right


def _rename(layout: Layout, name: str, right: str) -> None:
    lock = lock_session(layout.host, f"{layout.sessions}/{name}", right, 0.0)
    try:
        with layout.shared():
            move(layout.host.fs, f"{layout.sessions}/{name}", f"{layout.sessions}/{right}")
    finally:
        lock.release()
