"""Files of format 0.1 to 0.4, brought to this package's format in memory (format.md §11).

There an id was any string. Here each entry gets the hash of its line as id and keeps the old one in ``legacy_id``,
which is hashed; every member naming an entry names it by its new id, and ``ts`` gets its one spelling. What cannot be
rewritten with certainty is listed, and a session that holds any of it is never written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.entry import RESERVED, Draft, Entry, Reference
from agentsession_cas.core.facts import CODES
from agentsession_cas.core.header import REDACTION_MINOR, Header, format_of
from agentsession_cas.core.identity import ROOT
from agentsession_cas.core.normalise import normalised_body
from agentsession_cas.core.references import map_references
from agentsession_cas.core.required import check_line
from agentsession_cas.core.timestamps import canonical_ts
from agentsession_cas.errors import BadConvergence, BadFile, NoEntry

__all__ = ["Migration"]


class Migration:
    """One file on its way: give it every entry line in file order."""

    def __init__(self) -> None:
        self._made: dict[str, Entry] = {}  # by old id, in file order
        self._lines: dict[str, bytes] = {}  # by old id, the digest of its line
        self._opaque: set[str] = set()  # old ids of entries that were not understood whole
        self._left: list[tuple[str, str]] = []  # an old id that named nothing yet, and the old id of who names it
        self._redacted = False

    @property
    def unresolved(self) -> list[str]:
        """The new ids, in file order, of the entries that could not be rewritten.

        Extension entries, whose members may name anything; entries that converge another session's; bodies with a
        reserved member; and entries that name one further down, whose id no earlier line can hold.
        """
        opaque = self._opaque | {holder for named, holder in self._left if named in self._made}
        return [entry.id for old, entry in self._made.items() if old in opaque]

    def header(self, header: Header) -> Header:
        """The header of the migrated session: this package's format, or the last before ``redacted`` got a meaning."""
        if self._redacted or "redacted_from" in header.members():
            return header.raised(format_of(REDACTION_MINOR - 1))
        return header.raised()

    def convert(self, data: bytes) -> Entry:
        """The entry of one line; a repeat of a line gives the same entry again.

        Raises BadJSON or LimitExceeded for bytes that cannot be read, BadFile for what is no entry of such a file,
        NoEntry for a parent not met before, BadConvergence, BadTimestamp, BadEntry.
        """
        draft = Draft.of(data)
        if not draft.id:
            raise BadFile("the entry has no id", where="/id")
        line = sha256(canonical([draft.type, draft.body, draft.parent, draft.ts, list(draft.parents)])).digest()
        held = self._made.get(draft.id)
        if held is None:
            held = self._made[draft.id] = self._rewritten(draft, draft.id)
            self._lines[draft.id] = line
        elif self._lines[draft.id] != line:
            raise BadFile("another entry of the file has that id", where=draft.id)
        return held

    def _rewritten(self, draft: Draft, old: str) -> Entry:
        body = normalised_body(draft.type, draft.body, draft.changes) if draft.changes else draft.body
        check_line(draft.type, body)
        parent = ROOT
        if draft.parent:
            if draft.parent not in self._made:
                raise NoEntry("the parent is not in the file before it", where=draft.parent)
            parent = self._made[draft.parent].id
        parents = [self._reference(reference, old) for reference in draft.parents]
        if draft.type not in CODES or "legacy_id" in body or not RESERVED.isdisjoint(body):
            self._opaque.add(old)
        body = map_references(draft.type, body, lambda named: self._renamed(named, old))
        body["legacy_id"] = old
        self._redacted = self._redacted or "redacted" in body
        return Entry.seal(draft.type, body, parent, canonical_ts(draft.ts or ""), parents)

    def _reference(self, reference: Mapping[str, Any], old: str) -> Reference:
        """A convergence reference: one into this file is renamed, one into another session cannot be."""
        named = reference.get("entry") if isinstance(reference, Mapping) else None
        if not isinstance(named, str):
            raise BadConvergence("a reference names no entry", where="/parents")
        if reference.get("session"):
            self._opaque.add(old)
            return dict(reference)
        if named not in self._made:
            raise BadConvergence("a reference names no entry of this session", where=named)
        return {**reference, "entry": self._made[named].id}

    def _renamed(self, named: str, old: str) -> str:
        entry = self._made.get(named)
        if entry is not None:
            return entry.id
        self._left.append((named, old))
        return named
