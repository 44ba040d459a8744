"""A session's entries out of its rows: the prefix first, then the log's rows, then the journal's.

Owns the numbering between positions (format: file order) and rows. The indexes over rows, and what is known of the
prefix, are made when first asked for, as far as they are asked, and only ever follow the rows. Bodies load from the
journal's records or the object database and are verified as they load. Writes nothing.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Final

from agentsession_cas.core.ancestry import Ancestry, RunPath
from agentsession_cas.core.contextwalk import ContextHashes
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.envelope import Envelope, read_envelope
from agentsession_cas.core.facts import Code, Facts, Flag, Kind, call_digest, facts_of
from agentsession_cas.core.framing import Record
from agentsession_cas.core.identity import HASH_PREFIX, is_hash
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.rows import (
    NO_DIGEST,
    PARENTS_BIT,
    REF_BASE,
    REF_ELSEWHERE,
    REF_ROOT,
    ROW_SIZE,
    TS_BIT,
    Row,
    ref_to,
    row_of_ref,
)
from agentsession_cas.errors import Corrupt
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.callindex import CallIndex
from agentsession_cas.sessions.idindex import IdIndex
from agentsession_cas.sessions.log import RowTable
from agentsession_cas.sessions.prefix import Prefix
from agentsession_cas.sessions.rowentry import ROW_TYPES, row_entries, row_entry
from agentsession_cas.sessions.rowmaker import digest_of
from agentsession_cas.sessions.rowruns import is_run, row_runs

__all__ = ["RowSource", "hash_of"]

_NEAR: Final = 8
"""Rows looked through one by one rather than by an index that may have to be built."""
_SHORT: Final = 2048
"""Entries looked through for a turn rather than by an index that may have to be built."""
_NO_ENTRY: Final = -2


def hash_of(digest: bytes) -> str:
    """The ``sha256:`` text of 32 raw bytes."""
    return HASH_PREFIX + digest.hex()


def _checked(content: bytes, digest: bytes, where: str) -> bytes:
    if hashlib.sha256(content).digest() != digest:
        raise Corrupt("a body in the journal does not hash to its name", where=where, next_step="run fsck")
    return content


class RowSource:
    """An :class:`EntrySource` over rows. ``push`` and ``cut`` are its owner's, under the owner's mutex."""

    def __init__(self, table: RowTable, objects: ObjectDatabase, base: str, prefix: Prefix | None) -> None:
        """``base`` is the id of the base, "" for none; a listing may do without the prefix."""
        self.table = table
        self.base = base
        self._objects = objects
        self._prefix = prefix
        self._ids = IdIndex(table)
        self._calls = CallIndex(table)
        self._ancestry = Ancestry()
        self._ancestry_guard = threading.Lock()
        self._contexts = ContextHashes(self, self._context_of_row)
        self._legacy: dict[str, int] | None = None
        self._newest = ("", -1)
        self._noted = ("", REF_ROOT)
        self._last = _NO_ENTRY
        if prefix is None:
            self.base_count = 0

    # --- positions and rows ---

    @cached_property
    def base_count(self) -> int:
        """How many entries the prefix has: found when it is first asked for, and so is every position."""
        return len(self._prefix) if self._prefix is not None else 0

    def __len__(self) -> int:
        return self.base_count + self.table.entries

    def number(self, position: int) -> int:
        """The row of an own entry's position."""
        return self.table.number_of(position - self.base_count)

    def position(self, number: int) -> int:
        """The position of an entry's row."""
        return self.base_count + self.table.ordinal(number)

    def position_of_ref(self, ref: int) -> int:
        """The position a parent or head reference names; -1 for the universal root."""
        if ref == REF_ROOT:
            return -1
        return self.base_count - 1 if ref == REF_BASE else self.position(row_of_ref(ref))

    def ref_of(self, position: int) -> int:
        """The reference to a position: root, base, or an own row; REF_ELSEWHERE inside the prefix."""
        if position < 0:
            return REF_ROOT
        if position >= self.base_count:
            return ref_to(self.number(position))
        return REF_BASE if position == self.base_count - 1 else REF_ELSEWHERE

    def id_of_ref(self, ref: int) -> str:
        """The entry id a reference names, "" for the universal root."""
        number = row_of_ref(ref)
        if number >= 0:
            return hash_of(self._id_at(number))
        return "" if ref == REF_ROOT else self.base

    # --- EntrySource ---

    def entry_id(self, position: int) -> str:
        """The id at a position."""
        if position < self.base_count:
            assert self._prefix is not None
            return self._prefix.source.entry_id(self._prefix.position(position))
        buffer, offset = self.table.locate(self.number(position))
        return HASH_PREFIX + buffer[offset : offset + 32].hex()

    def parent(self, position: int) -> int:
        """The position of the parent."""
        if position < self.base_count:
            return position - 1
        buffer, offset = self.table.locate(self.number(position))
        return self.position_of_ref(int.from_bytes(buffer[offset + 96 : offset + 100], "little"))

    def entry(self, position: int) -> Entry:
        """The entry at a position; its body loads when it is asked for."""
        if position < self.base_count:
            assert self._prefix is not None
            return self._prefix.source.entry(self._prefix.position(position))
        return self._own_entry(self.number(position))

    def entries(self) -> Iterator[Entry]:
        """Every entry there is now, in file order: as :meth:`entry` gives it, a piece of the log at a time."""
        bodies = self._objects.in_order(Space.CONTENTS)
        own = row_entries(self.table, len(self.table), bodies, self.id_of_ref, self._own_entry)
        return chain(map(self.entry, range(self.base_count)), own)

    def _own_entry(self, number: int) -> Entry:
        row, fetch = self._row(number), self._fetcher(number)
        id_ = hash_of(row.entry)
        if row.flags & (PARENTS_BIT | TS_BIT) or row.code not in ROW_TYPES:
            type_, parent, parents, ts, content = self._envelope(number, row)
            return Entry.stored(id_, type_, parent, ts, content, partial(fetch, row.content), parents=parents)
        return row_entry(id_, ROW_TYPES[row.code], self.id_of_ref(row.parent), row.ts, row.content, fetch)

    def _row(self, number: int) -> Row:
        return self.table.row(number)

    def _fetcher(self, number: int) -> Callable[[bytes], bytes]:
        """What gives the verified body of a row by its raw hash."""
        record = self.table.record(number)
        if record is not None:
            return lambda digest: _checked(record.content, digest, f"row {number}")
        return partial(self._objects.get, Space.CONTENTS)

    def _envelope(self, number: int, row: Row) -> Envelope:
        record = self.table.record(number)
        if record is not None:
            return read_envelope(record.envelope)
        return read_envelope(self._objects.get(Space.ENTRIES, row.entry))

    def facts(self, position: int) -> Facts:
        """What the row says; a body is loaded only where a target lies outside the session's own entries."""
        if position < self.base_count:
            assert self._prefix is not None
            return self._prefix.source.facts(self._prefix.position(position))
        row = self._row(self.number(position))
        if row.target == REF_ELSEWHERE:
            entry = self._own_entry(self.number(position))
            return facts_of(entry.type, entry.body, blobs=bool(row.flags & Flag.BLOBS))
        target = self.id_of_ref(row.target) if row.target else ""
        flags = row.flags & ~(PARENTS_BIT | TS_BIT)
        return Facts(Code(row.code), Kind(row.kind), flags, row.call, target)

    def context_digest(self, position: int) -> bytes:
        """The context hash (store.md A13) at a position, raw: its row holds it, or bodies are read for it."""
        if position < self.base_count:
            assert self._prefix is not None
            return self._prefix.source.context_digest(self._prefix.position(position))
        buffer, offset = self.table.locate(self.number(position))
        digest = buffer[offset + 64 : offset + 96]
        return digest if digest != NO_DIGEST else digest_of(self._contexts.at(position))

    def _context_of_row(self, position: int) -> str:
        """The context hash that a row holds; "" for none, and in the prefix."""
        if position < self.base_count:
            return ""
        buffer, offset = self.table.locate(self.number(position))
        digest = buffer[offset + 64 : offset + 96]
        return hash_of(digest) if digest != NO_DIGEST else ""

    @property
    def flags(self) -> int:
        """What any row has of flags, and perhaps more: those of the whole session a prefix is from among them."""
        return self.table.flags | (self._prefix.source.flags if self._prefix is not None else 0)

    # --- indexes ---

    def find(self, entry_id: str) -> int:
        """The position of an entry id, or -1; for what is no id too."""
        known, position = self._newest
        if entry_id == known:
            return position
        known, ref = self._noted
        if entry_id == known:
            return self.position_of_ref(ref)
        if not is_hash(entry_id):
            return -1
        number = self._ids.find(digest_of(entry_id))
        if number >= 0:
            return self.position(number)
        return self._prefix.place(self._prefix.source.find(entry_id)) if self._prefix is not None else -1

    def find_child(self, parent: int, entry_id: str) -> int:
        """:meth:`find` for an id that only a child of position ``parent`` can have.

        A child comes after its parent, so below the newest rows no index is needed: the common append.
        """
        if parent == self._last:
            return -1
        if parent < self.base_count - 1:
            return self.find(entry_id)
        first, end = self.number(parent) + 1 if parent >= self.base_count else 0, len(self.table)
        if first == end:
            return -1
        digest = digest_of(entry_id)
        if end - first > _NEAR:
            number = self._ids.find(digest, first)
            return self.position(number) if number >= 0 else -1
        return next((self.position(number) for number in range(first, end) if self._id_at(number) == digest), -1)

    def _id_at(self, number: int) -> bytes:
        buffer, offset = self.table.locate(number)
        return buffer[offset : offset + 32]

    def with_call(self, call_id: str) -> Sequence[int]:
        """Positions of every entry with that call_id, in file order."""
        found: list[int] = []
        if self._prefix is not None:
            found += self._prefix.places(self._prefix.source.with_call(call_id))
        for number in self._calls.numbers(call_digest(call_id)):
            position = self.position(number)
            if self.entry(position).call_id == call_id:
                found.append(position)
        return found

    @property
    def known_calls(self) -> Container[int] | None:
        """The digests of all calls an entry is about, and perhaps others; None where they are not at hand."""
        return self._calls.known if self._prefix is None else None

    def about_call(self, position: int) -> Sequence[int]:
        """Positions after a call's of what may belong to it."""
        call = self.facts(position).call
        if position >= self.base_count:
            return list(map(self.position, self._calls.numbers_behind(self.number(position), call)))
        assert self._prefix is not None
        source = self._prefix.source
        found = self._prefix.places(source.about_call(self._prefix.position(position)))
        return [*found, *map(self.position, self._calls.numbers_behind(-1, call))]

    def continued(self) -> int:
        """The position of the session's own newest ``continued_in`` link, -1 for none."""
        number = self.table.continued
        return self.position(number) if number >= 0 else -1

    def is_above(self, position: int, leaf: int) -> bool:
        """Whether ``position`` is on the path to ``leaf``."""
        ancestry = self._ancestry
        if ancestry.size < len(self):
            if self.base_count <= position <= leaf < position + _SHORT and self._is_run(position, leaf):
                return True
            self._index_paths()
        return ancestry.is_above(position, leaf)

    def path(self, position: int) -> RunPath:
        """The path to a position, as runs."""
        if self._ancestry.size < len(self):
            self._index_paths()
        return self._ancestry.path(position)

    def _is_run(self, position: int, leaf: int) -> bool:
        """Whether every row behind that of an own entry, up to that of another, hangs from the one before."""
        number = self.number(position) + 1
        for rows in self.table.spans(number, self.number(leaf) + 1):
            if not is_run(rows, number):
                return False
            number += len(rows) // ROW_SIZE
        return True

    def _index_paths(self) -> None:
        """Tell the ancestry of the entries it has not heard of, runs of them at once."""
        ancestry = self._ancestry
        with self._ancestry_guard:
            if not ancestry.size and self.base_count:
                ancestry.add(-1)
                ancestry.add_run(self.base_count - 1)
            size = ancestry.size
            before = ref_to(self.number(size - 1)) if size > self.base_count else REF_BASE if size else REF_ROOT
            number = row_of_ref(before) + 1
            for rows in self.table.spans(number, len(self.table)):
                for at, ref, more in row_runs(rows, number):
                    ancestry.add(ancestry.size - 1 if ref == before else self.position_of_ref(ref))
                    ancestry.add_run(more)
                    before = ref_to(at + more)
                number += len(rows) // ROW_SIZE

    def find_legacy(self, legacy_id: str) -> int:
        """The position of the entry with that ``legacy_id``, or -1."""
        if self._legacy is None:
            self._legacy = {}
            for position in range(len(self)):
                if self.facts(position).flags & Flag.LEGACY:
                    name = self.entry(position).body.get("legacy_id")
                    if isinstance(name, str):
                        self._legacy.setdefault(name, position)
        return self._legacy.get(legacy_id, -1)

    def close(self) -> None:
        """Let the files go, those of the prefix's session among them."""
        self.table.close()
        if self._prefix is not None:
            self._prefix.source.close()

    # --- growing, under the owner's mutex ---

    def push(self, record: Record, row: Row, entry_id: str = "") -> int:
        """Add a row; returns its number. ``entry_id`` is the id of the entry it is of."""
        self._legacy = None
        number = self.table.push(record)
        self._calls.push(number, row)
        if not entry_id:
            self._last = _NO_ENTRY
            return number
        last = self._last
        last = self._last = last + 1 if last != _NO_ENTRY else self.position(number)
        self._newest = (entry_id, last)
        return number

    def extend(self, records: Sequence[Record], calls: Mapping[int, list[int]], entry_id: str) -> None:
        """Add rows of items; ``calls``: numbers of those about a call by its digest; the last is ``entry_id``."""
        self._legacy = None
        first = self.table.extend(records)
        self._calls.extend(first, len(records), calls)
        last = self._last
        number = first + len(records) - 1
        last = self._last = last + len(records) if last != _NO_ENTRY else self.position(number)
        self._newest = (entry_id, last)

    def remember(self, entry_id: str, ref: int) -> None:
        """Note where an entry lies that will be asked for: the head, before anything was pushed."""
        self._noted = (entry_id, ref)

    def cut(self, count: int) -> None:
        """Take back the rows from ``count`` on; the indexes follow."""
        self._newest = ("", -1)
        self._last = _NO_ENTRY
        if row_of_ref(self._noted[1]) >= count:
            self._noted = ("", REF_ROOT)
        self._ids.cut(count)
        self._calls.cut(count)
        self._legacy = None
        self.table.cut(count)
        self._ancestry.cut(len(self))
