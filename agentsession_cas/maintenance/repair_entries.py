"""Which entries a damaged session still has, and in what order: from its rows, and from what names them.

Owns the search for entries whose rows are lost. An entry is believed when its envelope hashes to a name that something
whole gives: a row, a child's parent, HEAD, a fork's base, a pin; or when a row that fails its seal agrees with it in
all it says. An envelope that is lost is made anew from its row, and has to hash to the id there. Leaves that nothing
names are looked for last, among the entries no session holds, and never more of them than rows were lost. Reads only.
Must not: make rows, or write.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.envelope import Envelope, read_envelope
from agentsession_cas.core.facts import Code, code_of
from agentsession_cas.core.identity import ROOT, is_hash
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.rows import (
    NO_DIGEST,
    PARENTS_BIT,
    REF_BASE,
    REF_ROOT,
    TS_BIT,
    Row,
    RowCode,
    decode_row,
    row_of_ref,
)
from agentsession_cas.core.timestamps import is_canonical_ts, ts_from_ns, ts_to_ns
from agentsession_cas.errors import Corrupt
from agentsession_cas.maintenance.repair_files import Doubt, Evidence
from agentsession_cas.maintenance.repair_pool import Pool
from agentsession_cas.sessions.rowmaker import digest_of
from agentsession_cas.sessions.source import hash_of

__all__ = ["Found", "Search", "parent_digest", "rebuilt_envelope"]

_TYPES: Final = {int(code): code.name.lower() for code in Code if code is not Code.OTHER}
_SPECIALS: Final = frozenset(RowCode)
_BLANK: Final = 90
"""So many of a row's 96 bytes of hashes are zero, and it is no entry's."""

Key = tuple[int, int, int]
"""Where an entry comes: by number of a row, before (0), at (1) or behind (2) it, and which of several."""


@dataclass(slots=True)
class Found:
    """An entry that is there, or (``digest`` b"") a row that is none. ``parent`` is a raw digest, b"" at a root.

    ``row`` is its row where that is believed, ``slot`` the number it had, -1 if that is not known. ``doubt`` is a row
    that fails its seal and agrees with the envelope: what to go by when the body is lost.
    """

    key: Key
    slot: int
    digest: bytes
    parent: bytes
    row: Row | None
    envelope: bytes = b""
    doubt: Row | None = None


@dataclass(slots=True)
class Search:
    """What was found: ``items`` in order; ``unhung`` are entries of believed rows whose parent nothing tells.

    ``recovered`` counts entries whose rows were lost, ``base`` is the raw digest of the session's base, b"" for none.
    """

    evidence: Evidence
    pool: Pool
    base: bytes
    prefix: frozenset[bytes]
    items: list[Found] = field(default_factory=list)
    unhung: list[bytes] = field(default_factory=list)
    known: dict[bytes, Found] = field(default_factory=dict)
    texts: dict[bytes, bytes] = field(default_factory=dict)
    """Envelopes and bodies of the session's own journal, and envelopes made anew, by what they hash to."""
    recovered: int = 0
    specials: int = 0
    _named: dict[int, bytes] = field(default_factory=dict)
    _pending: list[tuple[int, Row]] = field(default_factory=list)
    _doubtful: dict[bytes, Row] = field(default_factory=dict)

    def run(self, named: Iterable[bytes]) -> None:
        """Find everything; ``named`` are entries that others say the session holds."""
        self._collect()
        self._believe()
        lost = self.evidence.lost
        if lost:
            self._settle_doubts()
        self._settle_pending()
        if lost:
            for slot, digest in sorted(self._named.items()):
                self._recover(digest, (slot, 1, 0), slot)
            for digest in named:
                self._recover(digest, (len(self.evidence.rows), 1, 0), -1)
            self._descend(len(lost) - self.recovered - self.specials)
        self.items.sort(key=lambda found: found.key)

    def envelope(self, digest: bytes) -> bytes | None:
        """An envelope by its id, from wherever it is."""
        return self.texts.get(digest) or self.pool.get(Space.ENTRIES, digest)

    def content(self, digest: bytes) -> bytes | None:
        """A body by its hash, from wherever it is."""
        return self.texts.get(digest) or self.pool.get(Space.CONTENTS, digest)

    def _collect(self) -> None:
        pairs = [(record.envelope, record.content) for record in self.evidence.records.values()]
        pairs += [(doubt.envelope, doubt.content) for doubt in self.evidence.doubts]
        for text in (text for pair in pairs for text in pair if text):
            self.texts[hashlib.sha256(text).digest()] = text

    # --- rows that are believed ---

    def _believe(self) -> None:
        rows = self.evidence.rows
        ids = [row[:32] if row is not None else b"" for row in rows]
        for number, data in enumerate(rows):
            if data is None:
                continue
            row = decode_row(data)
            if row.code in _SPECIALS:
                self.items.append(Found((number, 1, 0), number, b"", b"", row))
                continue
            parent = self._parent_of(row, number, ids)
            if parent is None:
                self._pending.append((number, row))
            else:
                self._keep(Found((number, 1, 0), number, row.entry, parent, row))

    def _parent_of(self, row: Row, number: int, ids: list[bytes]) -> bytes | None:
        """The parent's raw digest; None when only the envelope can tell."""
        if row.parent == REF_ROOT:
            return b""
        if row.parent == REF_BASE:
            return self.base or None
        at = row_of_ref(row.parent)
        return ids[at] or None if at < number else None

    def _settle_pending(self) -> None:
        """Entries below lost rows: their envelopes name the parent, or one that is named makes the envelope."""
        waiting: list[tuple[int, Row]] = []
        for number, row in self._pending:
            data = self.envelope(row.entry)
            parent = parent_digest(data) if data is not None else None
            if parent is None:
                waiting.append((number, row))
                continue
            self._keep(Found((number, 1, 0), number, row.entry, parent, row))
            if row_of_ref(row.parent) >= 0 and parent not in self.prefix:
                self._named[row_of_ref(row.parent)] = parent
        for number, row in waiting:
            parent = self._named.get(row_of_ref(row.parent), b"")
            if parent and rebuilt_envelope(row, parent):
                self._keep(Found((number, 1, 0), number, row.entry, parent, row))
            else:
                self.unhung.append(row.entry)

    def _keep(self, found: Found) -> bool:
        if found.digest in self.known or found.digest in self.prefix:
            return False
        self.known[found.digest] = found
        self.items.append(found)
        return True

    # --- rows that are not ---

    def _settle_doubts(self) -> None:
        """Name the entries that doubtful rows lead to, and keep such rows as can only be head moves or marks."""
        counts: dict[int, int] = {}
        believed = {found.row for found in self.items}
        for doubt in self.evidence.doubts:
            slot = doubt.slot
            if not doubt.placed:
                slot += counts.get(doubt.slot, 0)
                counts[doubt.slot] = counts.get(doubt.slot, 0) + bool(doubt.row or doubt.envelope)
            row = decode_row(doubt.row) if doubt.row else None
            if row is not None and not doubt.envelope and _is_special(row):
                if row not in believed:  # a copy that strayed here
                    believed.add(row)
                    self.items.append(Found((slot, 1, 0), -1, b"", b"", row))
                    self.specials += 1
                continue
            digest = self._named_by(doubt, row)
            if digest and digest not in self.known:
                self._named.setdefault(slot, digest)
                if row is not None:
                    self._doubtful[digest] = row

    def _named_by(self, doubt: Doubt, row: Row | None) -> bytes:
        """The entry a doubt leads to, b"" when nothing vouches for one."""
        if row is None or row.entry == NO_DIGEST:
            return b""
        if doubt.derived:
            return row.entry if self.pool.held(Space.ENTRIES, row.entry) is not None else b""
        at = row_of_ref(row.parent)
        made = _made(row, self._id_at(at) if at >= 0 else b"" if row.parent == REF_ROOT else self.base)
        digest = hashlib.sha256(made).digest()
        if made and (digest == row.entry or made == doubt.envelope):
            self.texts[digest] = made
            return digest
        if self.envelope(row.entry) is not None:
            return row.entry
        # it may be the id alone that is hurt: one that is held is the right one
        return digest if made and self.pool.held(Space.ENTRIES, digest) is not None else b""

    def _id_at(self, slot: int) -> bytes:
        rows = self.evidence.rows
        data = rows[slot] if 0 <= slot < len(rows) else None
        return data[:32] if data is not None else self._named.get(slot, b"")

    def _recover(self, digest: bytes, key: Key, slot: int) -> None:
        """Take an entry that something names, and all above it that is not known yet."""
        above: list[Found] = []
        while digest and digest not in self.known and digest not in self.prefix:
            data = self.envelope(digest)
            parent = parent_digest(data) if data is not None else None
            if data is None or parent is None:
                break
            at = key if not above else (key[0], 0, -len(above))
            doubt = self._doubtful.get(digest)
            agrees = doubt is not None and _agree(doubt, data)
            above.append(Found(at, slot if not above else -1, digest, parent, None, data, doubt if agrees else None))
            digest = parent
        for found in above:
            self.recovered += self._keep(found)

    def _descend(self, most: int) -> None:
        """Look for leaves that nothing names, oldest first."""
        if most <= 0:
            return
        holes = self.evidence.lost
        new: list[tuple[str, Found]] = []
        todo = deque([*self.known, *([self.base] if self.base else [])])
        while todo:
            parent = todo.popleft()
            for digest in self.pool.children(parent):
                data = self.envelope(digest)
                if data is not None and digest not in self.known and digest not in self.prefix:
                    above = self.known.get(parent)
                    after = above.key[0] if above is not None else -1
                    hole = next((at for at in holes if at >= after), len(self.evidence.rows))
                    new.append((read_envelope(data).ts, Found((hole, 2, len(new)), -1, digest, parent, None, data)))
                    todo.append(digest)
        new.sort(key=lambda each: each[0])
        for _, found in new[:most]:
            self.recovered += self._keep(found)


def _is_special(row: Row) -> bool:
    """Whether a row that fails its seal can be none of an entry: a byte or two aside, it has no hashes."""
    blank = (row.entry + row.content + row.context).count(0) >= _BLANK
    return blank and row.code in _SPECIALS and not (row.flags or row.call) and row.ts > 0


def _agree(row: Row, envelope: bytes) -> bool:
    """Whether a doubtful row says what an envelope says of body, time and type."""
    said = _sound(envelope)
    if said is None or said.parents or row.flags & (PARENTS_BIT | TS_BIT):
        return False
    return (row.content, row.ts, row.code) == (digest_of(said.content), ts_to_ns(said.ts), int(code_of(said.type)))


def _sound(data: bytes) -> Envelope | None:
    """An envelope whose members are of their kinds."""
    try:
        said = read_envelope(data)
    except Corrupt:
        return None
    texts = isinstance(said.type, str) and isinstance(said.ts, str) and is_canonical_ts(said.ts)
    return said if texts and is_hash(said.content) and (said.parent == ROOT or is_hash(said.parent)) else None


def parent_digest(envelope: bytes) -> bytes | None:
    """The raw digest of the parent an envelope names, b"" for the root; None when it is no envelope."""
    said = _sound(envelope)
    if said is None:
        return None
    return digest_of(said.parent) if said.parent else b""


def rebuilt_envelope(row: Row, parent: bytes) -> bytes:
    """The envelope that a row is of, made anew from the row and the parent's digest; b"" when it cannot be."""
    made = _made(row, parent)
    return made if hashlib.sha256(made).digest() == row.entry else b""


def _made(row: Row, parent: bytes) -> bytes:
    """The envelope that says what a row says, b"" where a row does not say all; whether it is right, its hash tells."""
    if row.flags & (PARENTS_BIT | TS_BIT) or row.code not in _TYPES:
        return b""
    parent_id, ts = hash_of(parent) if parent else "", ts_from_ns(row.ts)
    return Entry.stored("", _TYPES[row.code], parent_id, ts, hash_of(row.content), bytes).envelope
