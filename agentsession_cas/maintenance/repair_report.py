"""What a repair did, or would do: of one session, of the objects, of the whole.

Owns the ``repair`` shape. Must not: read or write anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agentsession_cas.maintenance.repair_refs import RefRepair

__all__ = ["ObjectRepair", "RepairReport", "SessionRepair"]


@dataclass(slots=True)
class SessionRepair:
    """One session. ``kept`` counts its entries afterwards, ``recovered`` those among them whose rows were lost.

    ``changed`` says that it was, or would be, repaired. ``header`` is "mended" (exactly), "rebuilt" (of pieces) or "".
    ``objects`` counts objects put back. ``lost_rows`` counts rows that nothing tells of, ``orphans`` are ids of entries
    that are there but hang from what is lost, ``missing`` the hashes of envelopes and bodies that are nowhere.
    ``replaced`` is the directory that keeps what was replaced. ``error`` is what kept it from being looked at.
    """

    session: str
    changed: bool = False
    kept: int = 0
    recovered: int = 0
    header: str = ""
    objects: int = 0
    lost_rows: int = 0
    orphans: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    replaced: str = ""
    notes: list[str] = field(default_factory=list)
    error: str = ""

    @property
    def whole(self) -> bool:
        """Whether nothing of it is lost."""
        return not (self.lost_rows or self.orphans or self.missing or self.error or self.header == "rebuilt")

    def to_json(self) -> dict[str, Any]:
        """The session's part of the ``repair`` shape."""
        return {
            "session": self.session,
            "changed": self.changed,
            "whole": self.whole,
            "kept": self.kept,
            "recovered": self.recovered,
            "header": self.header,
            "objects": self.objects,
            "lost_rows": self.lost_rows,
            "orphans": self.orphans,
            "missing": self.missing,
            "replaced": self.replaced,
            "notes": self.notes,
            "error": self.error,
        }


@dataclass(slots=True)
class ObjectRepair:
    """The objects. ``indexes`` (and copies of dictionaries) were made anew, ``packs`` and ``loose`` files set aside;
    ``salvaged`` objects are elsewhere now.

    ``unread`` counts objects of those packs that could not be read.
    """

    indexes: list[str] = field(default_factory=list)
    packs: list[str] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)
    salvaged: int = 0
    unread: int = 0
    replaced: str = ""

    @property
    def changed(self) -> bool:
        """Whether anything was, or would be, done."""
        return bool(self.indexes or self.packs or self.loose or self.salvaged)

    def to_json(self) -> dict[str, Any]:
        """The objects' part of the ``repair`` shape."""
        return {
            "indexes": self.indexes,
            "packs": self.packs,
            "loose": self.loose,
            "salvaged": self.salvaged,
            "unread": self.unread,
            "replaced": self.replaced,
        }


@dataclass(slots=True)
class RepairReport:
    """A whole repair: the sessions looked at, and (None for a repair of one session) the objects and the refs."""

    dry_run: bool
    sessions: list[SessionRepair] = field(default_factory=list)
    objects: ObjectRepair | None = None
    refs: RefRepair | None = None

    @property
    def changed(self) -> bool:
        """Whether anything was, or would be, repaired."""
        others = (self.objects is not None and self.objects.changed, self.refs is not None and self.refs.restored)
        return any(each.changed for each in self.sessions) or any(others)

    @property
    def whole(self) -> bool:
        """Whether nothing that was looked at is lost."""
        return all(each.whole for each in self.sessions) and not (self.refs is not None and self.refs.lost)

    def to_json(self) -> dict[str, Any]:
        """The ``repair`` shape, without ``schema``: the sessions that were changed, or are not whole."""
        told = [each.to_json() for each in self.sessions if each.changed or not each.whole]
        objects = self.objects.to_json() if self.objects is not None else None
        return {
            "dry_run": self.dry_run,
            "changed": self.changed,
            "whole": self.whole,
            "checked": len(self.sessions),
            "sessions": told,
            "objects": objects,
            "refs": self.refs.to_json() if self.refs is not None else None,
        }
