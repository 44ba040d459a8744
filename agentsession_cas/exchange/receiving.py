"""Taking what another store sends (store.md A11): tested, then admitted in one step, then the head.

Owns the order of a receive (architecture §3): the session's lock where there is a session, the store lock shared, and
under it, until the rows are committed: every entry put together from what arrived and what is held, and tested as a
line of a file is; links looked up among both; blobs made the store's; the rows. A new session is made with its objects
as one pack and its head in place; for one that is held, the bodies ride in its journal, as an append's do, and the next
checkpoint makes objects of them. What was held when it was asked for and is gone makes the sender ask again. Nothing of
a refused delivery stays but what the next sweep takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final, NamedTuple

from agentsession_cas.core.entry import Entry, sidecar_blobs
from agentsession_cas.core.facts import Flag
from agentsession_cas.core.identity import HASH_PREFIX, is_hash
from agentsession_cas.core.jsonl import read_session
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.spans import check_redacted
from agentsession_cas.core.tree import Session
from agentsession_cas.errors import AgentSessionError, BadID, Changed, Corrupt, NoObject, NoSession, SessionExists
from agentsession_cas.exchange.building import build_session
from agentsession_cas.exchange.catalogue import Catalogue
from agentsession_cas.exchange.endpoint import Delivery, Object, Position, Receipt
from agentsession_cas.exchange.intake import make_session, make_sessions
from agentsession_cas.exchange.projection import session_blobs
from agentsession_cas.exchange.quarantine import Arrived
from agentsession_cas.layout import Layout
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.opening import open_writer
from agentsession_cas.sessions.receiver import Receiver
from agentsession_cas.sessions.records import newest_entry
from agentsession_cas.sessions.reffile import RefTarget
from agentsession_cas.sessions.refs import RefDatabase
from agentsession_cas.sessions.rowmaker import digest_of
from agentsession_cas.sessions.services import Mark, Services
from agentsession_cas.sessions.source import hash_of

__all__ = ["Parts", "hold", "marked", "receive", "receive_new"]

_LOCK_WAIT_S: Final = 60.0
"""How long a delivery waits for whoever holds the session."""
_FRAME_BYTES: Final = 256 << 20
"""Entries merged at once, whole or not at all, have about so many bytes; a longer delivery lands in several steps."""
_WHOLE: Final = 10_000
_WHOLE_BYTES: Final = 16 << 20
"""Entries, and bytes that arrived, past which a new session is not made in memory."""
_BUILT_BYTES: Final = 2 << 20
"""Bytes of such a session that are in memory at a time."""
_FRONT: Final = len(f'{{"content":"{HASH_PREFIX}",') + 64

Received = Receipt | AgentSessionError

UpdateRef = Callable[[str, RefTarget | None, RefTarget, str], bool]


class Parts(NamedTuple):
    """What of a store an exchange works on."""

    layout: Layout
    objects: ObjectDatabase
    catalogue: Catalogue
    services: Services
    refs: RefDatabase
    update_ref: UpdateRef


def receive(parts: Parts, delivery: Delivery, arrived: Arrived) -> Receipt:
    """Make a session, or merge into the one held, durably; ``arrived`` are objects beside those of the store.

    Raises Changed when the question has to be asked again, and what :meth:`Endpoint.receive` says.
    """
    incoming = _Incoming(parts.objects, arrived)
    if not delivery.birth:
        try:
            return _made(parts, delivery, incoming)
        except SessionExists as error:
            raise _changed(delivery) from error
    try:
        with hold(parts, delivery.header.id) as held:
            if held.birth != delivery.birth:
                raise _changed(delivery)
            return _merged(parts, delivery, incoming, held)
    except NoSession as error:
        raise _changed(delivery) from error


def marked(parts: Parts, session: str, mark: int) -> bool:
    """Mark a session a record or a mirror, durably; whether it was not. Raises NoSession, SessionLocked."""
    with hold(parts, session) as held:
        before = held.mark
        held.set_mark(mark)
        return before != mark


@contextmanager
def hold(parts: Parts, session: str, wait_s: float = _LOCK_WAIT_S) -> Iterator[Receiver]:
    """Hold a session to take entries, a head or a mark. Raises NoSession; SessionLocked after ``wait_s`` seconds."""
    layout = parts.layout
    directory = layout.session_dir(session)
    held = open_writer(
        parts.services, layout.sessions, directory, session, parts.catalogue.prefix_of, wait_s, Receiver
    )
    try:
        yield held
    except BaseException:
        held.abandon()
        raise
    held.close()


def _changed(delivery: Delivery) -> Changed:
    return Changed("what the receiver held has changed meanwhile", where=delivery.header.id, next_step="try again")


# --- a session that is not held -------------------------------------------------------------------------------------


def receive_new(parts: Parts, given: Sequence[tuple[Delivery, Arrived]]) -> list[Received]:
    """Make sessions without a base that share the syncs of their objects and names, each with what arrived for it.

    Of each its receipt, or why there is none. Raises what concerns them all.
    """
    layout = parts.layout
    received: dict[str, Received] = {}
    sessions: list[Session] = []
    blobs: list[Object] = []
    with layout.shared():
        layout.settle()
        for delivery, arrived in given:
            incoming = _Incoming(parts.objects, arrived)
            try:
                session = _read(parts, delivery, incoming)
                blobs += incoming.blobs(session_blobs(session))
            except AgentSessionError as error:
                received[delivery.header.id] = error
            else:
                sessions.append(session)
        refused = make_sessions(layout, parts.catalogue, parts.services, sessions, Mark.MIRROR, blobs)
    _tidy(parts)
    received.update((each.id, why) for each, why in zip(sessions, refused, strict=True) if why is not None)
    ids = [(delivery, delivery.header.id) for delivery, _ in given]
    return [received[id_] if id_ in received else _receipt(parts, delivery) for delivery, id_ in ids]


def _made(parts: Parts, delivery: Delivery, incoming: _Incoming) -> Receipt:
    layout = parts.layout
    with layout.shared():
        layout.settle()
        if not delivery.header.base and (len(delivery.own) > _WHOLE or incoming.size > _WHOLE_BYTES):
            _built(parts, delivery, incoming)
        else:
            session = _read(parts, delivery, incoming)
            blobs = incoming.blobs(session_blobs(session))
            make_session(layout, parts.catalogue, parts.services, session, Mark.MIRROR, blobs)
    _tidy(parts)
    return _receipt(parts, delivery)


def _built(parts: Parts, delivery: Delivery, incoming: _Incoming) -> None:
    """Make a session that is too long to be held in memory."""
    header = read_session([delivery.header.line]).header
    if parts.catalogue.holds(header.id):
        raise _changed(delivery)
    if parts.services.redacted_only:
        check_redacted(header, ())
    batches = _settled(parts, delivery.own, incoming, _BUILT_BYTES)
    build_session(parts.layout, parts.catalogue, parts.services, header, batches, _first_head(delivery))


def _settled(parts: Parts, own: Iterable[str], incoming: _Incoming, size_max: int) -> Iterator[list[Entry]]:
    """Entries, every hash made again, so many bytes of them at a time; the blobs they name are the store's by then."""
    for entries in _batches(map(incoming.entry, own), size_max):
        naming = (entry.content for entry in entries if entry.facts.flags & Flag.BLOBS)
        blobs = dict.fromkeys(blob for content in naming for blob in sidecar_blobs(content))
        if blobs:
            parts.objects.publish(incoming.blobs(blobs))
        yield entries


def _read(parts: Parts, delivery: Delivery, incoming: _Incoming) -> Session:
    """The session delivered, every line of it tested, its head where it is to be."""
    header = delivery.header
    if parts.catalogue.holds(header.id):
        raise _changed(delivery)
    ids = chain(delivery.prefix, delivery.own)
    session = read_session(chain((header.line,), (incoming.line(each) for each in ids)))
    if session.truncated is not None:
        raise BadID("the last entry is no line", where=delivery.own[-1] if delivery.own else header.id)
    if parts.services.redacted_only:
        check_redacted(session.header, session)
    session.leaf = _first_head(delivery)
    return session


def _first_head(delivery: Delivery) -> str:
    """Where the head of a session that was not held is to be: nobody can have moved it."""
    base = delivery.header.base
    return delivery.head if delivery.force or delivery.follow or delivery.expected in (None, base) else base


def _tidy(parts: Parts) -> None:
    if parts.services.background:
        parts.services.merge(lambda: True, thorough=False)  # or many pushes leave as many packs


def _receipt(parts: Parts, delivery: Delivery) -> Receipt:
    header, head = delivery.header, _first_head(delivery)
    found = parts.catalogue.snapshot(header.id)
    found.source.close()
    birth, rows = found.state.scan.generation.birth, len(found.source.table)
    last = delivery.own[-1] if delivery.own else ""
    position = Position(header, birth, rows, head, Mark.MIRROR, last)
    why = "" if head == delivery.head else f"there was no session, and its head was to be {delivery.expected}"
    return Receipt(True, len(delivery.own), head != header.base, False, why, position)


# --- one that is ----------------------------------------------------------------------------------------------------


def _merged(parts: Parts, delivery: Delivery, incoming: _Incoming, held: Receiver) -> Receipt:
    with parts.layout.shared():
        parts.layout.settle()
        admitted = 0
        for entries in _settled(parts, delivery.own, incoming, _FRAME_BYTES):
            admitted += held.merge(delivery.header, entries, delivery.known)
        if not delivery.own:
            held.merge(delivery.header, (), ())  # a header of a later format
        moved, forced, why = _moved(delivery, held)
        held.land()
    last = newest_entry(held.source.table, held.rows)
    position = Position(held.header, held.birth, held.rows, held.head, held.mark, last)
    return Receipt(False, admitted, moved, forced, why, position)


def _batches(entries: Iterable[Entry], size_max: int) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        batch.append(entry)
        size += len(entry.content) + len(entry.envelope)
        if size >= size_max:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _moved(delivery: Delivery, held: Receiver) -> tuple[bool, bool, str]:
    """Move the head if it may be: whether it moved, by force, and why it did not, "" when it is where it should be."""
    head, to = held.head, delivery.head
    if head == to:
        return False, False, ""
    if delivery.follow:
        why = _may_follow(held, to)
        return (held.move_head(to), False, "") if not why else (False, False, why)
    if head == delivery.expected:
        return held.move_head(to), False, ""
    if delivery.force:
        return held.move_head(to), True, ""
    seen = "never seen" if delivery.expected is None else f"last seen at {delivery.expected or 'the universal root'}"
    return False, False, f"the head is {head or 'the universal root'}, and was {seen}"


def _may_follow(held: Receiver, to: str) -> str:
    """Why a fetch may not move the head there; "" when it may (store.md A11)."""
    source = held.source
    if not held.is_mirror:
        return "the session is a record here: its head is its own"
    if held.head and not source.is_above(source.find(held.head), source.find(to)):
        return "the head fetched does not descend from the head held"
    return ""


# --- what arrived ---------------------------------------------------------------------------------------------------


class _Incoming:
    """Objects that arrived, and behind them those of the store."""

    def __init__(self, objects: ObjectDatabase, arrived: Arrived) -> None:
        self._objects = objects
        self.size = arrived.size
        self._arrived = arrived

    def get(self, space: Space, digest: bytes) -> bytes:
        """An object's bytes. Raises Changed when it is neither here nor there."""
        data = self._arrived.get((space, digest))
        if data is not None:
            return data
        try:
            return self._objects.get(space, digest)
        except (NoObject, Corrupt) as error:
            raise Changed(
                "an object of the session is there no more", where=hash_of(digest), next_step="try again"
            ) from error

    def line(self, entry_id: str) -> bytes:
        """The line of an entry, to be read and so tested as a file's is. Raises BadID for an envelope that is none."""
        if not is_hash(entry_id):
            raise BadID("an entry is named by its hash", where=entry_id)
        envelope = self.get(Space.ENTRIES, digest_of(entry_id))
        named = envelope[12 : _FRONT - 2].decode("latin-1")
        if not envelope.startswith(b'{"content":"') or not is_hash(named):
            raise BadID("the bytes of that hash are no envelope", where=entry_id)
        body = self.get(Space.CONTENTS, digest_of(named))
        if not (body.startswith(b"{") and body.endswith(b"}")):
            raise BadID("the bytes of that hash are no body", where=named)
        joint = b"" if body == b"{}" else b","
        return b"".join((body[:-1], joint, b'"id":"', entry_id.encode(), b'",', envelope[_FRONT:]))

    def entry(self, entry_id: str) -> Entry:
        """An entry, every hash of it made again."""
        return Entry.from_line(self.line(entry_id))

    def blobs(self, names: Iterable[str]) -> list[Object]:
        """Blobs as objects to publish. Raises Changed as :meth:`get` does."""
        digests = [digest_of(name) for name in names]
        return [(Space.MEDIA, digest, self.get(Space.MEDIA, digest)) for digest in digests]
