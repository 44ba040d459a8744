"""The row of an entry: the one place where an entry's facts become the numbers of a row (store.md Part B)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from agentsession_cas.core.accept import Making
from agentsession_cas.core.contexthash import next_context_hash
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.rows import PARENTS_BIT, REF_ELSEWHERE, REF_ROOT, TS_BIT, Row

__all__ = ["RowTree", "digest_of", "make_row"]

_INT64: Final = 1 << 63
_make: Final = tuple.__new__  # what a NamedTuple is made with, without the call around it


class RowTree(Protocol):
    """What a row is made against: the entries before it, by position."""

    def find(self, entry_id: str) -> int:
        """The position of an entry id, or -1."""

    def entry(self, position: int) -> Entry:
        """The entry at a position; its type alone is asked for."""

    def is_above(self, position: int, leaf: int) -> bool:
        """Whether ``position`` is on the path to ``leaf``."""


def digest_of(text: str) -> bytes:
    """The 32 raw bytes of a ``sha256:`` hash."""
    return bytes.fromhex(text[7:])


def make_row(
    source: RowTree,
    entry: Entry,
    body: Mapping[str, Any],
    parent: int,
    head: int,
    *,
    parent_ref: int,
    before: str,
    ts: int,
    ref_of: Callable[[int], int],
    context_at: Callable[[int], str],
    made: Making | None = None,
) -> Row:
    """The row of an entry with that body, below position ``parent`` of ``source``.

    ``parent_ref`` is the reference of that position, ``before`` the context hash there, ``head`` the reference of the
    head after it, ``ts`` its time in nanoseconds; ``ref_of`` turns a position into a reference, ``context_at`` gives
    the context hash at one. ``made`` is what was computed already when the entry was.
    """
    code, kind, flags, call, named = entry.facts
    if entry.parents:
        flags |= PARENTS_BIT
    if not -_INT64 <= ts < _INT64:
        flags, ts = flags | TS_BIT, 0
    target = REF_ROOT
    if named:
        found = source.find(named)
        target = ref_of(found) if found >= 0 else REF_ELSEWHERE
    digests = made.digests if made is not None else digest_of(entry.id) + digest_of(entry.content_hash)

    def on_path(entry_id: str) -> tuple[str, str] | None:
        """What a compaction's ``first_kept`` names, when that is on the path."""
        found = source.find(entry_id)
        return (context_at(found), source.entry(found).type) if source.is_above(found, parent) else None

    context = digest_of(next_context_hash(before, entry.type, body, entry.content_hash, on_path))
    return _make(
        Row, (digests[:32], digests[32:], context, parent_ref, head, target, ts, int(code), int(kind), flags, call)
    )
