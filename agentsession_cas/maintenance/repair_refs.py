"""Refs that are lost, or do not read, set anew as their logs say (store.md A6, A12).

Owns the judgement: what the newest record of a name says it holds, it holds, unless the ref itself reads. A ref means
the session that has the id now; when there is none, or it was created after the update, the ref dangles as it would
have. What does not read is moved to ``damaged/`` first. Must not: judge what a pin needs, or touch a ref that reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from agentsession_cas.core.timestamps import ts_to_ns
from agentsession_cas.effects.durable import ensure_dir, move
from agentsession_cas.errors import Damaged, DiskError, NoSession
from agentsession_cas.layout import DAMAGED, Layout
from agentsession_cas.sessions.opening import read_header
from agentsession_cas.sessions.reffile import Held, LogRecord
from agentsession_cas.sessions.refs import RefDatabase, birth_of

__all__ = ["RefRepair", "repair_refs"]

_NOBODY: Final = bytes(16)
"""The birth of no session: a ref with it dangles."""


@dataclass(slots=True)
class RefRepair:
    """The refs that were, or would be, set anew, and those that do not read and whose logs tell nothing."""

    restored: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The refs' part of the ``repair`` shape."""
        return {"restored": self.restored, "lost": self.lost}


def repair_refs(layout: Layout, *, dry_run: bool) -> RefRepair:
    """Set anew every ref that its log knows and that is not there, or does not read. Raises StoreLocked, DiskError."""
    refs = RefDatabase(layout.host, layout.root, layout.tmp)
    report = RefRepair()
    missing = refs.missing()
    for name in sorted({*missing, *_unreadable(refs)}):
        record = missing.get(name) or refs.logs.newest(name)
        if record is None or record.update.new is None:
            report.lost.append(name)
            continue
        report.restored.append(name)
        if not dry_run:
            held = Held(record.update.new, _birth(layout, record), record.number)
            with layout.shared():
                refs.restore(name, held, partial(_set_aside, layout, refs, name))
    return report


def _unreadable(refs: RefDatabase) -> list[str]:
    found: list[str] = []
    for name in refs.present():
        try:
            refs.read(name)
        except (Damaged, DiskError):
            found.append(name)
    return found


def _birth(layout: Layout, record: LogRecord) -> bytes:
    """The birth of the session that an update meant, if that is still there."""
    assert record.update.new is not None
    directory = layout.session_dir(record.update.new.session)
    try:
        header = read_header(layout.host.fs, directory)
        is_later = ts_to_ns(header.created_at) > ts_to_ns(record.update.time)
        return _NOBODY if is_later else birth_of(layout.host.fs, directory)
    except (NoSession, Damaged):
        return _NOBODY


def _set_aside(layout: Layout, refs: RefDatabase, name: str) -> None:
    """Move what lies in a ref's place to ``damaged/``."""
    fs, top, path = layout.host.fs, f"{layout.root}/{DAMAGED}", refs.path_of(name)
    if fs.stat(path) is None:
        return
    ensure_dir(fs, top)
    numbers = [int(each) for each in fs.listdir(top) if each.isdigit()]
    kept = f"{top}/{max(numbers, default=0) + 1}"
    ensure_dir(fs, kept)
    move(fs, path, f"{kept}/ref-{path.rpartition('/')[2]}")
