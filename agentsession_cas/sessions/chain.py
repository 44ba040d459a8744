"""The path to an entry read from envelopes alone: what is left of a session that was deleted.

Entries are found by their parents, so a chain is all there is: no rows, no other branch. Bodies load when they are
asked for, verified. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentsession_cas.core.ancestry import RunPath
from agentsession_cas.core.contexthash import context_hash_at
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.envelope import Envelope, read_envelope
from agentsession_cas.core.facts import Code, Facts, Flag, call_digest
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.rows import PARENTS_BIT
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.rowmaker import digest_of

__all__ = ["ChainSource"]


def _stored(envelope: Envelope, id_: str, objects: ObjectDatabase) -> Entry:
    digest = digest_of(envelope.content)
    return Entry.stored(
        id_,
        envelope.type,
        envelope.parent,
        envelope.ts,
        envelope.content,
        lambda: objects.get(Space.CONTENTS, digest),
        parents=envelope.parents,
    )


class ChainSource:
    """An :class:`~agentsession_cas.core.source.EntrySource` of one path."""

    def __init__(self, objects: ObjectDatabase, entry_id: str) -> None:
        """Walk up from ``entry_id``; raises NoObject when an envelope of the path is not held."""
        path: list[Entry] = []
        while entry_id:
            envelope = read_envelope(objects.get(Space.ENTRIES, digest_of(entry_id)))
            path.append(_stored(envelope, entry_id, objects))
            entry_id = envelope.parent
        path.reverse()
        self._path = path
        self._ids = {entry.id: position for position, entry in enumerate(path)}
        self._by_call: dict[int, list[int]] | None = None

    @property
    def base_count(self) -> int:
        """None of these is known to be another session's."""
        return 0

    def __len__(self) -> int:
        return len(self._path)

    def find(self, entry_id: str) -> int:
        """The position of an entry id, or -1."""
        return self._ids.get(entry_id, -1)

    def find_child(self, parent: int, entry_id: str) -> int:  # noqa: ARG002 - ids are found as fast without it
        """:meth:`find`."""
        return self.find(entry_id)

    def find_legacy(self, legacy_id: str) -> int:
        """The position of the entry with that ``legacy_id``, or -1."""
        return next((at for at, entry in enumerate(self._path) if entry.body.get("legacy_id") == legacy_id), -1)

    def entry_id(self, position: int) -> str:
        """The id at a position."""
        return self._path[position].id

    def entry(self, position: int) -> Entry:
        """The entry at a position."""
        return self._path[position]

    def parent(self, position: int) -> int:
        """The position of the parent: a chain."""
        return position - 1

    def facts(self, position: int) -> Facts:
        """The facts, from the body."""
        return self._path[position].facts

    def with_call(self, call_id: str) -> Sequence[int]:
        """Positions of every entry with that call_id."""
        named = self._calls().get(call_digest(call_id), ()) if call_id else ()
        return [at for at in named if self._path[at].call_id == call_id]

    def about_call(self, position: int) -> Sequence[int]:
        """Positions after a call's of what may belong to it."""
        calls = self._calls()
        return sorted({at for key in (self.facts(position).call, 0) for at in calls.get(key, ()) if at > position})

    def _calls(self) -> dict[int, list[int]]:
        """Positions by the digest of their call_id; under 0 the decisions and dispatches, whatever they name."""
        if self._by_call is None:
            self._by_call = {}
            for at, entry in enumerate(self._path):
                facts = entry.facts
                if facts.call:
                    self._by_call.setdefault(facts.call, []).append(at)
                if facts.code in (Code.DECISION, Code.DISPATCH):
                    self._by_call.setdefault(0, []).append(at)
        return self._by_call

    def continued(self) -> int:
        """The chain is a prefix: a link on it is another session's."""
        return -1

    @property
    def flags(self) -> int:
        """Any, since nothing was read but envelopes."""
        return PARENTS_BIT | Flag.REDACTED

    def context_digest(self, position: int) -> bytes:
        """The context hash (store.md A13) at a position, raw: the bodies up to there are read for it."""
        return digest_of(context_hash_at(self, position))

    def path(self, position: int) -> RunPath:
        """The path to a position: all there is up to it."""
        return RunPath([range(position + 1)])

    def close(self) -> None:
        """Nothing is held open."""

    def is_above(self, position: int, leaf: int) -> bool:
        """Whether ``position`` is on the path to ``leaf``: a chain."""
        return 0 <= position <= leaf
