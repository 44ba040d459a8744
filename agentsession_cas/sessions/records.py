"""Journal records as a whole: published as objects, split into what was accepted together, asked for their mark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentsession_cas.core.framing import Record
from agentsession_cas.core.identity import HASH_PREFIX
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.rows import NO_DIGEST, RowCode
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.objects.publish import LOOSE_BELOW
from agentsession_cas.sessions.log import RowTable
from agentsession_cas.sessions.services import Mark

__all__ = ["in_groups", "mark_of", "newest_entry", "publish_records"]


def publish_records(objects: ObjectDatabase, records: Iterable[Record], *, packed: bool = False) -> None:
    """Make the objects of a journal's records durable in the store; ``packed``: never loose, however few."""
    wanted: list[tuple[Space, bytes, bytes]] = []
    for record in records:
        if record.envelope:
            wanted.append((Space.CONTENTS, record.row[32:64], record.content))
            wanted.append((Space.ENTRIES, record.row[:32], record.envelope))
    objects.publish(wanted, loose_below=1 if packed else LOOSE_BELOW)


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
