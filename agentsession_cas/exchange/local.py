"""A store on this disk as one side of an exchange (store.md A11): what it holds, what it gives.

Reads as any reader does, without a lock; what it tells of is committed first. How it takes is ``exchange.receiving``.
Sessions are read anew for every question: nothing is held in between, and a caller behind a wire is served alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Final

from agentsession_cas.core.entry import Entry, sidecar_blobs
from agentsession_cas.core.facts import Flag
from agentsession_cas.core.header import Header
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.rows import NO_DIGEST, REF_BASE, row_of_ref
from agentsession_cas.errors import AgentSessionError, CallIDRepeated, Changed, Damaged, NoBlob, NoObject, NoSession
from agentsession_cas.exchange.endpoint import Delivery, Item, Manifest, Name, Object, Position, Receipt, State
from agentsession_cas.exchange.quarantine import Quarantine
from agentsession_cas.exchange.receiving import Parts, marked, receive, receive_new
from agentsession_cas.sessions.journal import JOURNAL_NAME
from agentsession_cas.sessions.opening import Snapshot, read_header
from agentsession_cas.sessions.records import mark_of, newest_entry
from agentsession_cas.sessions.recovery import Verdict, read_state
from agentsession_cas.sessions.reffile import Ref, RefTarget
from agentsession_cas.sessions.refs import birth_of
from agentsession_cas.sessions.rowmaker import digest_of
from agentsession_cas.sessions.services import Mark
from agentsession_cas.sessions.source import RowSource, hash_of

__all__ = ["LocalEndpoint", "names_of", "position_of"]

_YOUNG_NS: Final = 2_000_000_000
"""A file's time this near may be the time of its next change too: no file system's clock ticks more slowly."""


class LocalEndpoint:
    """An :class:`~agentsession_cas.exchange.endpoint.Endpoint` over a store's parts."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._layout = parts.layout
        self._fs = parts.layout.host.fs
        self._objects = parts.objects

    @property
    def address(self) -> str:
        """Where the store lies."""
        return self._layout.root

    # --- where sessions stand ---

    def stamps(self) -> dict[str, str]:
        """What tells a session's journal from any other it has had: whatever happens to a session happens there.

        A file written twice within a tick of the clock keeps its time: one written just now has no stamp.
        """
        stat, sessions = self._fs.stat, self._layout.sessions
        young = self._layout.host.clock.now_ns() - _YOUNG_NS
        found: dict[str, str] = {}
        for name in self._fs.listdir(sessions):
            journal = stat(f"{sessions}/{name}/{JOURNAL_NAME}")
            if journal is None or journal.mtime_ns >= young:
                found[name] = ""
            else:
                found[name] = f"{journal.device}.{journal.inode}.{journal.size}.{journal.mtime_ns}"
        return found

    def states(self, names: Iterable[str]) -> Iterator[State]:
        """The state of those sessions that read: their files alone, no body and no prefix."""
        wanted = set(names)
        for name in self._fs.listdir(self._layout.sessions):
            if name in wanted:
                directory = f"{self._layout.sessions}/{name}"
                with suppress(AgentSessionError):
                    yield self._state(directory, read_header(self._fs, directory))

    def _state(self, directory: str, header: Header) -> State:
        state = read_state(self._fs, directory)
        with closing(state.table):
            rows = len(state.table)
            ref = state.table.row(rows - 1).head if rows else REF_BASE
            number = row_of_ref(ref)
            if number >= 0:
                head = state.table.row(number).entry
            else:
                head = digest_of(header.base) if ref == REF_BASE and header.base else NO_DIGEST
            return State(header.id, state.scan.generation.birth, rows, head)

    def position(self, session: str, at: int) -> Position | None:
        """Where a session stands, with the proof of its first ``at`` rows; None when it is not held."""
        try:
            found = self._parts.catalogue.snapshot(session)
        except NoSession:
            return None
        with closing(found.source):
            return position_of(found, at)

    # --- what it gives ---

    def manifest(self, session: str, after: int, *, prefix: bool) -> Manifest:
        """Commit a session, and tell its entries from row ``after`` on."""
        found = self._parts.catalogue.snapshot(session)
        with closing(found.source):
            if found.state.verdict is not Verdict.CLEAN:  # a witness is written behind the syncs it tells of
                self._commit(session)
            source = found.source
            first = source.base_count + source.table.ordinal(min(after, len(source.table)))
            before = _items(source, range(source.base_count)) if prefix else []
            return Manifest(position_of(found, 0), before, _items(source, range(first, len(source))))

    def _commit(self, session: str) -> None:
        """Make what was read durable, whoever wrote it: its bytes, their name, and the session's."""
        directory = self._layout.session_dir(session)
        journal = self._fs.open(f"{directory}/{JOURNAL_NAME}", write=True)
        try:
            journal.sync()
        finally:
            journal.close()
        self._fs.sync_dir(directory)
        self._fs.sync_dir(self._layout.sessions)

    def load(self, session: str, items: Sequence[Item], wanted: set[Name]) -> Iterator[Object]:
        """The wanted objects of some of a manifest's entries, blobs and bodies before the envelopes that need them."""
        found = self._parts.catalogue.snapshot(session)
        left = set(wanted)
        with closing(found.source):
            if items and max(item.place for item in items) >= len(found.source):
                raise _another(session)
            for item, entry in zip(items, _entries(found.source, [item.place for item in items]), strict=True):
                if entry.id != item.entry:
                    raise _another(session)
                for name in names_of(item):
                    if name in left:
                        left.discard(name)
                        space = name[0]
                        data = entry.content if space is Space.CONTENTS else entry.envelope
                        yield (*name, self._blob(name[1]) if space is Space.MEDIA else data)

    def _blob(self, digest: bytes) -> bytes:
        try:
            return self._objects.get(Space.MEDIA, digest)
        except NoObject as error:
            raise NoBlob(
                "the session names a blob that is not held, and so goes nowhere",
                where=hash_of(digest),
                next_step="put the blob first",
            ) from error

    # --- what it lacks and takes ---

    def lacking(self, session: str, entries: Sequence[str]) -> list[str]:
        """Those that are no entries of the session, in order; all of them when it is not held."""
        try:
            found = self._parts.catalogue.snapshot(session)
        except NoSession:
            return list(entries)
        with closing(found.source):
            return [each for each in entries if found.source.find(each) < 0]

    def is_above(self, session: str, entry: str, leaf: str) -> bool:
        """Whether an entry, "" the universal root, is on the path to another; never for one that is not held."""
        found = self._parts.catalogue.snapshot(session)
        with closing(found.source):
            at, end = (found.source.find(each) if each else -1 for each in (entry, leaf))
            return not entry or (min(at, end) >= 0 and found.source.is_above(at, end))

    def missing(self, session: str, names: Sequence[Name]) -> list[Name]:
        """Those that are neither held nor arrived for this session."""
        arrived = self._quarantine(session).objects()
        return self._objects.lacking([name for name in names if name not in arrived])

    def take(self, session: str, objects: Sequence[Object]) -> None:
        """Keep objects aside for a delivery."""
        self._quarantine(session).add(objects)

    def _quarantine(self, session: str) -> Quarantine:
        return Quarantine(self._layout.host, self._layout.tmp, session)

    def receive(self, delivery: Delivery) -> Receipt:
        """Make a session, or merge into the one held, durably."""
        quarantine = self._quarantine(delivery.header.id)
        try:
            receipt = receive(self._parts, delivery, quarantine.objects())
        except (Changed, CallIDRepeated):
            raise
        except AgentSessionError:
            quarantine.drop()
            raise
        quarantine.drop()
        return receipt

    def receive_new(self, deliveries: Sequence[Delivery]) -> list[Receipt | AgentSessionError]:
        """Make sessions that share what it costs to make them last."""
        kept = [self._quarantine(each.header.id) for each in deliveries]
        given = [(delivery, quarantine.objects()) for delivery, quarantine in zip(deliveries, kept, strict=True)]
        try:
            received = receive_new(self._parts, given)
        except AgentSessionError:
            for quarantine in kept:
                quarantine.drop()
            raise
        for quarantine, what in zip(kept, received, strict=True):
            if not isinstance(what, Changed):
                quarantine.drop()
        return received

    def drop(self, session: str) -> None:
        """Let go of what was kept aside."""
        self._quarantine(session).drop()

    def make_record(self, session: str) -> None:
        """Mark a session the record, durably."""
        marked(self._parts, session, Mark.RECORD)

    # --- refs ---

    def ref(self, name: str) -> RefTarget | None:
        """What a ref holds, dangling or not; None for no ref."""
        held = self._parts.refs.read(name)
        return None if held is None else held.target

    def refs(self) -> list[Ref]:
        """Every ref that reads and leads to a session that is there, in the order of names."""
        database, found = self._parts.refs, list[Ref]()
        for name in database.names():
            with suppress(Damaged, NoSession):
                held = database.read(name)
                if held is not None and held.birth == birth_of(self._fs, self._layout.session_dir(held.target.session)):
                    found.append(Ref(name, held.target))
        return found

    def move_ref(self, name: str, expected: RefTarget | None, to: RefTarget) -> bool:
        """Move a ref by compare-and-swap, durably; whether that changed anything."""
        return self._parts.update_ref(name, expected, to, "pushed")


def _another(session: str) -> Changed:
    return Changed("the session is another than it was", where=session, next_step="try again")


def position_of(found: Snapshot, at: int) -> Position:
    """Where a session that was read stands, with the proof of its first ``at`` rows."""
    source = found.source
    rows = len(source.table)
    return Position(
        found.header,
        found.state.scan.generation.birth,
        rows,
        found.leaf,
        mark_of(source.table),
        newest_entry(source.table, rows),
        newest_entry(source.table, at) if at <= rows else None,
    )


def _items(source: RowSource, places: Sequence[int]) -> list[Item]:
    items: list[Item] = []
    for at, entry in zip(places, _entries(source, places), strict=True):
        blobs = tuple(sidecar_blobs(entry.content)) if source.facts(at).flags & Flag.BLOBS else ()
        items.append(Item(entry.id, entry.content_hash, blobs, at))
    return items


def _entries(source: RowSource, places: Sequence[int]) -> Iterator[Entry]:
    """Entries at ascending places: walked where they are most of what is there, which takes less for each."""
    if 2 * len(places) < len(source):
        yield from map(source.entry, places)
        return
    wanted = iter(places)
    place = next(wanted, -1)
    for at, entry in enumerate(source.entries()):
        if at == place:
            yield entry
            place = next(wanted, -1)


def names_of(item: Item) -> list[Name]:
    """The objects an entry needs, those that others name before those that name them."""
    blobs = [(Space.MEDIA, digest_of(blob)) for blob in item.blobs]
    return [*blobs, (Space.CONTENTS, digest_of(item.content)), (Space.ENTRIES, digest_of(item.entry))]
