"""What a fork asks of the session it continues from, and a pin of the one it pins in: that the path there is anchored.

A name from outside is anchored (architecture §3): what of the path still lies in a journal is published as objects
before the fork, or the ref, has its name, so that the origin may go. The caller holds the store lock shared. Owns the
checks of a fork's base too.
"""

from __future__ import annotations

from typing import NamedTuple

from agentsession_cas.core.facts import Flag
from agentsession_cas.core.framing import SALT_END, Record, salt_of
from agentsession_cas.core.header import REDACTION_MINOR, Header
from agentsession_cas.core.leaf import is_leaf_label
from agentsession_cas.core.rows import PARENTS_BIT
from agentsession_cas.core.source import path_positions
from agentsession_cas.effects.host import Fs
from agentsession_cas.errors import BadConvergence, HeadTarget, MediaDiffers, NoRaise
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.journal import JOURNAL_NAME
from agentsession_cas.sessions.opening import Snapshot
from agentsession_cas.sessions.prefix import Prefix
from agentsession_cas.sessions.records import publish_records

__all__ = ["Anchored", "anchor", "anchor_path", "check_base", "require_media"]


def require_media(header: Header, origin: Header) -> None:
    """Raise MediaDiffers for a fork whose media form is not its origin's (store.md A2)."""
    if header.media != origin.media:
        raise MediaDiffers(
            f"the session holding the base keeps its media {origin.media}",
            where=header.id,
            next_step="use the same media form",
        )


def check_base(header: Header, origin: Snapshot) -> None:
    """Refuse a base a fork may not have (store.md A2): HeadTarget, MediaDiffers, NoRaise, BadConvergence."""
    source = origin.source
    position = source.find(header.base)
    if is_leaf_label(source.facts(position)):
        raise HeadTarget("a base is never a leaf label", where=header.base, next_step="fork at what it labels")
    require_media(header, origin.header)
    early = origin.header.minor < REDACTION_MINOR <= header.minor
    if source.flags & (PARENTS_BIT | (Flag.REDACTED if early else 0)):
        _check_path(origin, position, early)


def _check_path(origin: Snapshot, position: int, early: bool) -> None:
    """Refuse a prefix that names an entry off itself, or one that holds redacted from before 0.13."""
    source = origin.source
    path = path_positions(source, position)
    held = {source.entry_id(at) for at in path}
    for at in path:
        entry = source.entry(at)
        if early and entry.facts.flags & Flag.REDACTED:
            raise NoRaise("an entry of the prefix holds redacted from before 0.13", where=entry.id)
        own = (r for r in entry.parents if not r.get("session") or r.get("session") == origin.header.id)
        if any(reference["entry"] not in held for reference in own):
            raise BadConvergence(
                "the prefix converges an entry off it", where=entry.id, next_step="fork before that entry"
            )


class Anchored(NamedTuple):
    """A path made durable: where a fork reads it from, and the raw context hash at its end."""

    prefix: Prefix
    context: bytes


def anchor(fs: Fs, objects: ObjectDatabase, directory: str, origin: Snapshot, base: str) -> Anchored:
    """Make the path to ``base`` durable. ``directory`` is the origin's, whose source the prefix goes on to read."""
    position = anchor_path(fs, objects, directory, origin, base)
    return Anchored(Prefix(origin.source, position), origin.source.context_digest(position))


def anchor_path(fs: Fs, objects: ObjectDatabase, directory: str, origin: Snapshot, entry: str) -> int:
    """Make the path to ``entry`` durable; returns its position. ``directory`` is the origin's.

    The journal there is committed through the entry first, then what lies in it becomes objects.
    """
    source, table = origin.source, origin.source.table
    position = found = source.find(entry)
    named = origin.state.is_named
    records: list[Record] = []
    while position >= source.base_count and source.number(position) >= table.base:
        records.append(table.pending[source.number(position) - table.base])
        position = source.parent(position)
    if records:
        journal = fs.open(f"{directory}/{JOURNAL_NAME}", write=True)
        try:
            journal.sync()
            # a checkpoint may have come since: then it is the next generation that was synced, and not what was read
            named = named and salt_of(journal.pread(SALT_END, 0)) == origin.state.scan.generation.salt
        finally:
            journal.close()
        publish_records(objects, records)
    if found >= source.base_count and not named:
        fs.sync_dir(directory)
    return found
