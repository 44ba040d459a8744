"""Journal records as a whole: published as objects, split into what was accepted together, asked for their mark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from agentsession_cas.core.framing import Record
from agentsession_cas.core.identity import HASH_PREFIX
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.rows import NO_DIGEST, RowCode
from agentsession_cas.effects.pace import Rest, no_rest
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.objects.publish import LOOSE_BELOW
from agentsession_cas.sessions.log import RowTable
from agentsession_cas.sessions.services import Mark

__all__ = ["in_groups", "in_parts", "mark_of", "newest_entry", "publish_records"]

_PART_MAX: Final = 2048
_PART_BYTES: Final = 4 << 20
"""A part has fewer than twice as many records, or bytes of bodies."""


def publish_records(
    objects: ObjectDatabase, records: Iterable[Record], *, packed: bool = False, rest: Rest = no_rest
) -> None:
    """Make the objects of a journal's records durable in the store; ``packed``: never loose, however few."""
    wanted: list[tuple[Space, bytes, bytes]] = []
    for record in records:
        if record.envelope:
            wanted.append((Space.CONTENTS, record.row[32:64], record.content))
            wanted.append((Space.ENTRIES, record.row[:32], record.envelope))
        rest()
    objects.publish(wanted, loose_below=1 if packed else LOOSE_BELOW, rest=rest)


def in_parts(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Records in parts to be published one by one, so that no step takes long; none is so small as to go out loose."""
    size = sum(len(record.content) for record in records)
    count = max(1, min(len(records) // LOOSE_BELOW, max(len(records) // _PART_MAX, size // _PART_BYTES)))
    for at in range(count):
        yield records[len(records) * at // count : len(records) * (at + 1) // count]


def in_groups(records: Sequence[Record], sizes: Sequence[int]) -> list[Sequence[Record]]:
    """Records in the groups they were accepted in."""
    groups: list[Sequence[Record]] = []
    at = 0
    for size in sizes:
        groups.append(records[at : at + size])
        at += size
    return groups


def mark_of(table: RowTable) -> int:
    """The mark in force: that of the newest mark row, a record when there is none."""
    for number in reversed(table.specials()):
        row = table.row(number)
        if row.code == RowCode.MARK:
            return row.kind
    return Mark.RECORD


def newest_entry(table: RowTable, rows: int) -> str:
    """The id of the newest entry among the first ``rows``, "" for none."""
    for number in range(rows - 1, -1, -1):
        digest = table.row(number).entry
        if digest != NO_DIGEST:
            return HASH_PREFIX + digest.hex()
    return ""
