"""Push and fetch between two endpoints (store.md A11): who asks what, in which order, and what is remembered of it.

A push is: where does the session stand there; what is new here (told by what is remembered, when both stores prove to
be the same still, else by asking for every entry); which objects are missing; those, in pieces; then the delivery. A
fetch is the same with the sides exchanged. What changed between question and delivery is asked again, a few times.
Knows no store and no disk: both sides are endpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from agentsession_cas.errors import AgentSessionError, CallIDRepeated, Changed, MirrorError, NoSession
from agentsession_cas.exchange.endpoint import Delivery, Endpoint, Item, Manifest, Name, Object, Position, Receipt
from agentsession_cas.exchange.local import names_of
from agentsession_cas.exchange.remembered import Place, Remembered, Seen
from agentsession_cas.sessions.services import Mark

__all__ = ["Carried", "HeadMove", "OnRefused", "Progress", "Wish", "fetch_session", "push_session", "push_sessions"]

_PIECE_BYTES: Final = 4 << 20
_NAMES: Final = 20_000
_TRIES: Final = 4
_TOGETHER: Final = 128
_SMALL_BYTES: Final = 8 << 20
"""Sessions delivered at once, and bytes of their objects."""

Progress = Callable[[int, int], None]
"""Called with the objects carried so far, and how many there are, for each session anew."""

OnRefused = Callable[[str, AgentSessionError], None]
"""Called with the id of a session that could not be exchanged, and why; the others go on."""

T = TypeVar("T")


class Wish(NamedTuple):
    """What a push is to do about the head: ``expected`` None is what was last seen there."""

    expected: str | None = None
    force: bool = False


class HeadMove(NamedTuple):
    """What became of the receiver's head: ``current`` is where it is ("" the universal root).

    ``why`` says why it is not the sender's, "" when it is; ``forced`` that it was moved from where nobody expected it.
    """

    moved: bool
    forced: bool
    current: str
    why: str


class Carried(NamedTuple):
    """What an exchange of one session did, before refs and marks."""

    created: bool
    admitted: int
    objects: int
    size: int
    head: HeadMove
    mark: int


def push_session(
    source: Endpoint, target: Endpoint, memory: Remembered, session: str, wish: Wish, progress: Progress
) -> Carried:
    """Bring the record of a session, and then its head, to the target.

    Raises NoSession, MirrorError for a mirror, NoBlob, and what :meth:`Endpoint.receive` does.
    """
    return _again(lambda: _push(source, target, memory, session, wish, progress))


def push_sessions(
    source: Endpoint,
    target: Endpoint,
    memory: Remembered,
    sessions: Iterable[str],
    wish: Wish,
    progress: Progress,
    refused: OnRefused,
) -> Iterator[tuple[str, Carried]]:
    """As :func:`push_session`, of many: small ones that the target lacks are delivered several at a time.

    What cannot be pushed is told to ``refused``; the others go on.
    """
    waiting: list[_Sent] = []
    again: list[str] = []
    for session in sessions:
        try:
            sent = _sent(source, target, memory, session, wish, progress)
            if not sent.is_small:
                yield session, _pushed(memory, sent, _delivered(source, target, sent))
                continue
        except Changed:
            again.append(session)
        except AgentSessionError as error:
            refused(session, error)
        else:
            waiting.append(sent)
            if len(waiting) >= _TOGETHER or sum(each.size for each in waiting) > _SMALL_BYTES:
                yield from _together(target, memory, waiting, again, refused)
                waiting = []
    yield from _together(target, memory, waiting, again, refused)
    for session in again:
        try:
            yield session, push_session(source, target, memory, session, wish, progress)
        except AgentSessionError as error:
            refused(session, error)


def _together(
    target: Endpoint, memory: Remembered, waiting: list[_Sent], again: list[str], refused: OnRefused
) -> Iterator[tuple[str, Carried]]:
    """Deliver new sessions at once; those of which something was not true any more go to ``again``."""
    received: list[Receipt | AgentSessionError]
    try:
        received = target.receive_new([each.delivery for each in waiting]) if waiting else []
    except AgentSessionError as error:
        received = [error] * len(waiting)
    for sent, what in zip(waiting, received, strict=True):
        if isinstance(what, Receipt):
            yield sent.session, _pushed(memory, sent, what)
        elif isinstance(what, Changed):
            again.append(sent.session)
        else:
            refused(sent.session, what)


def fetch_session(
    source: Endpoint, target: Endpoint, memory: Remembered, session: str, progress: Progress
) -> Carried:
    """Bring a session, whatever its mark, from the source; ``memory`` is the target's. Raises as a push does."""
    return _again(lambda: _fetch(source, target, memory, session, progress))


def _again(attempt: Callable[[], T]) -> T:
    for _ in range(_TRIES - 1):
        with suppress(Changed):
            return attempt()
    return attempt()


def _push(
    source: Endpoint, target: Endpoint, memory: Remembered, session: str, wish: Wish, progress: Progress
) -> Carried:
    sent = _sent(source, target, memory, session, wish, progress)
    return _pushed(memory, sent, _delivered(source, target, sent))


def _sent(
    source: Endpoint, target: Endpoint, memory: Remembered, session: str, wish: Wish, progress: Progress
) -> _Sent:
    """All of a push but the delivery."""
    here, there, seen = _standing(source, target, memory, session)
    if here is None:
        raise NoSession("the store holds no such session", where=session)
    if here.mark != Mark.RECORD:
        raise MirrorError(
            "the session is a mirror, and only the record is pushed",
            where=session,
            next_step="push from where it is written, or declare this copy the record if that is gone",
        )
    told = source.manifest(session, seen.here.rows if seen else 0, prefix=there is None)
    own = told.own if seen or there is None else _lacking(target, session, told.own)
    expected = wish.expected
    if expected is None and there is not None:
        expected = _last_seen(source, told.position, there, seen)
    return _carry(source, target, told, (there, seen), own, progress, (expected, wish.force, False))


def _pushed(memory: Remembered, sent: _Sent, receipt: Receipt) -> Carried:
    """What came of a push; it is remembered."""
    seen, told = sent.seen, sent.told
    after = receipt.position
    head = after.head if not receipt.why else seen.head if seen else None
    if head is not None:  # a refusal is no look at the head: only a fetch takes it as seen
        fetched = _agreed(sent.there, receipt, seen.fetched if seen else -1)
        place = Place.of(after)
        memory.see(sent.session, Seen(Place.of(told.position), place, max(fetched, 0), head, told.position.mark))
    return sent.carried(receipt)


def _fetch(source: Endpoint, target: Endpoint, memory: Remembered, session: str, progress: Progress) -> Carried:
    here, there, seen = _standing(target, source, memory, session)
    if there is None:
        raise NoSession("the remote holds no such session", where=session)
    told = source.manifest(session, seen.fetched if seen else 0, prefix=here is None)
    own = told.own if here is None else _lacking(target, session, told.own)
    sent = _carry(source, target, told, (here, seen), own, progress, (None, False, True))
    receipt = _delivered(source, target, sent)
    after = receipt.position
    agreed = _agreed(here, receipt, seen.here.rows if seen else -1)
    sent_place = Place.of(after) if agreed == after.rows else seen.here if seen else Place(after.birth.hex(), 0, "")
    memory.see(
        session, Seen(sent_place, Place.of(told.position), told.position.rows, told.position.head, after.mark)
    )
    return sent.carried(receipt)


def _standing(
    ours: Endpoint, theirs: Endpoint, memory: Remembered, session: str
) -> tuple[Position | None, Position | None, Seen | None]:
    """Where a session stands on both sides, and what is remembered of it, if both prove to be the same still."""
    seen = memory.session(session)
    here = ours.position(session, seen.here.rows if seen else 0)
    there = theirs.position(session, seen.there.rows if seen else 0)
    holds = seen is not None and seen.here.holds(here) and seen.there.holds(there)
    return here, there, seen if holds else None


def _agreed(before: Position | None, receipt: Receipt, rows: int) -> int:
    """How many rows of the receiver the other side is known to have, when it was ``rows`` of them before.

    That is all of them when nobody else added any.
    """
    after = receipt.position
    if before is None:
        return after.rows
    alone = after.rows == before.rows + receipt.admitted + receipt.moved
    return after.rows if alone and rows == before.rows else rows


def _last_seen(source: Endpoint, told: Position, there: Position, seen: Seen | None) -> str | None:
    """The head the sender last saw there; None for never.

    That is what is remembered. What nobody remembers is seen now, if it is an entry the sender has. And a mirror, whose
    head others move only along with a session's, may have fetched from here: there a head that ours descends from is
    as good as seen, for nothing is undone.
    """
    session, head = told.header.id, there.head
    if seen is None:
        return None if head and source.lacking(session, [head]) else head
    if head != seen.head and there.mark == Mark.MIRROR and source.is_above(session, head, told.head):
        return head
    return seen.head


def _lacking(target: Endpoint, session: str, own: list[Item]) -> list[Item]:
    lacking = set(target.lacking(session, [item.entry for item in own])) if own else set()
    return [item for item in own if item.entry in lacking]


class _Sent(NamedTuple):
    """A session whose objects are with the target: what is left is to deliver it, where ``changes`` says so.

    ``there`` is where it stood with the target, ``seen`` what was remembered and proved true.
    """

    told: Manifest
    there: Position | None
    seen: Seen | None
    delivery: Delivery
    changes: bool
    objects: int
    size: int

    @property
    def session(self) -> str:
        """The session's id."""
        return self.delivery.header.id

    @property
    def is_small(self) -> bool:
        """Whether it may be made along with others: new to the target, read from nothing else, and short."""
        return self.there is None and not self.delivery.header.base and self.size <= _SMALL_BYTES

    def carried(self, receipt: Receipt) -> Carried:
        """What it came to."""
        head = HeadMove(receipt.moved, receipt.forced, receipt.position.head, receipt.why)
        mark = receipt.position.mark
        return Carried(receipt.created, receipt.admitted, self.objects, self.size, head, mark)


def _carry(
    source: Endpoint,
    target: Endpoint,
    told: Manifest,
    held: tuple[Position | None, Seen | None],
    own: list[Item],
    progress: Progress,
    rule: tuple[str | None, bool, bool],
) -> _Sent:
    """Send the objects of entries to a target that was found to hold ``held`` of the session."""
    header, head = told.position.header, told.position.head
    there, seen = held
    items = [*told.prefix, *own]
    count = size = 0
    wanted = _wanted(target, header.id, items) if items else set()
    for piece in _pieces(source.load(header.id, items, wanted)) if wanted else ():
        target.take(header.id, piece)
        count += len(piece)
        size += sum(len(data) for _, _, data in piece)
        progress(count, len(wanted))
    prefix, new = ([item.entry for item in part] for part in (told.prefix, own))
    delivery = Delivery(header, there.birth if there else b"", prefix, new, head, *rule)
    changes = there is None or bool(own) or not _is_there(there, told.position)
    return _Sent(told, there, seen, delivery, changes, count, size)


def _is_there(held: Position, told: Position) -> bool:
    """Whether header and head of a session are what they are to be."""
    same = (held.head, held.header.ident) == (told.head, told.header.ident)
    return same and held.header.minor >= told.header.minor


def _delivered(source: Endpoint, target: Endpoint, sent: _Sent) -> Receipt:
    """Deliver; a call_id that the target finds twice is no fault of the union when the source has both."""
    if sent.there is not None and not sent.changes:
        return Receipt(False, 0, False, False, "", sent.there)
    delivery = sent.delivery
    while True:
        try:
            return target.receive(delivery)
        except CallIDRepeated as error:
            if error.where in delivery.known or source.lacking(delivery.header.id, [error.where]):
                target.drop(delivery.header.id)
                raise
            delivery = delivery._replace(known=delivery.known | {error.where})


def _wanted(target: Endpoint, session: str, items: Iterable[Item]) -> set[Name]:
    names = iter(dict.fromkeys(name for item in items for name in names_of(item)))
    wanted: set[Name] = set()
    while some := list(islice(names, _NAMES)):
        wanted.update(target.missing(session, some))
    return wanted


def _pieces(objects: Iterable[Object]) -> Iterator[list[Object]]:
    piece: list[Object] = []
    size = 0
    for each in objects:
        piece.append(each)
        size += len(each[2])
        if size >= _PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
