"""The context hash of an entry (store.md A13): over everything on its path that shapes a context.

Incremental, so that a store computes it as it appends: the hash at an entry follows from its parent's and its own body.
Two sessions whose contributing entries are alike share it, whatever else they recorded. It is not the request hash.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, Final

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.facts import Code
from agentsession_cas.core.identity import hash_bytes
from agentsession_cas.core.source import EntrySource, path_positions

__all__ = ["CONTRIBUTING", "EMPTY_CONTEXT_HASH", "Resolve", "context_hash_at", "next_context_hash"]

EMPTY_CONTEXT_HASH: Final = hash_bytes(b"null")
"""The hash at the universal root, and at every entry before the first that contributes."""

Resolve = Callable[[str], tuple[str, str] | None]
"""An entry id to its context hash and type when it is on the path above, else None."""

_NOWHERE: Final = frozenset({"legacy_id", "normalised", "redacted"})
_LEFT_OUT: Final = {
    "item": _NOWHERE | {"response", "source", "queued_from", "failed", "from_link"},
    "config": _NOWHERE,
    "compaction": _NOWHERE | {"first_kept"},
    "branch_summary": _NOWHERE | {"from"},
}
"""The types that contribute, and the members of each that do not."""
CONTRIBUTING: Final = frozenset({Code.ITEM, Code.CONFIG, Code.COMPACTION, Code.BRANCH_SUMMARY})
"""The types that shape a context: below any other the hash stays."""


def next_context_hash(
    parent_hash: str, type_: str, body: Mapping[str, Any], content_hash: str, resolve: Resolve
) -> str:
    """The context hash of an entry below one whose own is ``parent_hash`` (:data:`EMPTY_CONTEXT_HASH` below the root).

    ``content_hash`` is the body's own: it stands where nothing has to be left out. ``resolve`` is asked for a
    compaction's ``first_kept`` alone. Raises BadJSON for a body no line can hold.
    """
    left_out = _LEFT_OUT.get(type_)
    if left_out is None:
        return parent_hash
    if type_ != "compaction" and left_out.isdisjoint(body):
        return _chained(parent_hash, type_, content_hash)
    content = {name: value for name, value in body.items() if name not in left_out}
    if type_ == "compaction":
        first_kept = body.get("first_kept")
        found = resolve(first_kept) if isinstance(first_kept, str) else None
        content["first_kept"] = None if found is None else list(found)
    return _chained(parent_hash, type_, hash_bytes(canonical(content)))


def _chained(parent_hash: str, type_: str, content_hash: str) -> str:
    return hash_bytes(f'["{parent_hash}","{type_}","{content_hash}"]'.encode())


def context_hash_at(source: EntrySource, position: int) -> str:
    """The context hash at a position, from the root on: loads the body of every contributing entry of the path."""
    path = path_positions(source, position)
    hashes: list[str] = []

    def resolve(entry_id: str) -> tuple[str, str] | None:
        found = source.find(entry_id)
        at = bisect_left(path, found, hi=len(hashes))  # positions rise along a path
        if at == len(hashes) or path[at] != found:
            return None
        return hashes[at], source.entry(found).type

    current = EMPTY_CONTEXT_HASH
    for at in path:
        if source.facts(at).code in CONTRIBUTING:
            entry = source.entry(at)
            current = next_context_hash(current, entry.type, entry.body, entry.content_hash, resolve)
        hashes.append(current)
    return current
