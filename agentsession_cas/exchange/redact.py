"""Redacted sessions in a store: made of the sessions it holds, grown as those grow, led back to them (format.md §10).

Owns what becomes of a redaction made in memory (:mod:`~agentsession_cas.core.redaction`). A session is made in one
step; what is there already is never changed: it has to be what the redaction gives again, and what is new is appended.
A fork is a fork of its origin's redaction, which is made or grown first. A sidecar blob that holds what is to go
refuses the redaction: blobs are not rewritten.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from builtins import list as list_
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from agentsession_cas.core.entry import Entry, sidecar_blobs
from agentsession_cas.core.facts import Flag
from agentsession_cas.core.given import require_callback
from agentsession_cas.core.redaction import Redacted, redact_session
from agentsession_cas.core.rewrite import Rewrite
from agentsession_cas.core.spans import redacted_of
from agentsession_cas.core.tree import Session
from agentsession_cas.errors import NoBlob, NoSession, NotRedacted, ProfileDiffers, StaleOriginal
from agentsession_cas.sessions.handle import SessionWriter
from agentsession_cas.sessions.listing import Summary

__all__ = ["Redaction", "Redactions"]

_BATCH: Final = 256


class Redaction(NamedTuple):
    """What a redaction did. ``base`` and ``head`` are entry ids, "" for none and for the universal root.

    ``created`` tells a session that was made from one that grew by ``added`` entries; ``moved`` whether its head moved.
    ``origins`` are the redacted sessions it is a fork of, nearest last, ``unchecked`` the blobs not held, in which
    nobody looked; ``opaque`` counts extension entries, whose own members may name anything as written, ``dropped``
    references to other sessions' entries that were left out, ``unmapped`` references to nothing of the original, which
    stand as written.
    """

    session: str
    base: str
    head: str
    created: bool
    added: int
    moved: bool
    origins: list[str]
    unchecked: list[str]
    opaque: int
    dropped: int
    unmapped: int


class Redactions(ABC):
    """What a store offers on redacted sessions. The store is this class with its own methods filled in."""

    @abstractmethod
    def holds(self, session: str) -> bool:
        """Whether the store holds a session."""

    @abstractmethod
    def read(self, session: str) -> Session:
        """A session as it is now."""

    @abstractmethod
    def open_session(self, session: str, timeout_s: float = 0.0) -> SessionWriter:
        """Hold a session for writing."""

    @abstractmethod
    def list(self, *, limit: int = 0, **filters: Any) -> list_[Summary]:
        """Sessions newest first."""

    @abstractmethod
    def blob(self, name: str) -> bytes:
        """The bytes of a blob. Raises NoBlob."""

    @abstractmethod
    def _reading(self, session: str) -> AbstractContextManager[Session]:
        """A session as it is now, let go behind the work."""

    @abstractmethod
    def _settle(self, session: str) -> None:
        """Make what was read of a session survive a crash: a copy never outlives what it is a copy of."""

    @abstractmethod
    def _keep_whole(self, session: Session) -> None:
        """Make a session that is in memory, durably and in one step, as its record. Raises SessionExists."""

    def redact(self, session: str, profile: str, rewrite: Rewrite) -> Redaction:
        """Make the redacted session of a session under a profile, or grow it durably (format.md §10).

        ``rewrite`` says what each string of text becomes. What is there already is never changed: it has to be what the
        redaction gives again. A head that an entry appended natively has is left where it is.

        Raises NoSession; what :func:`~agentsession_cas.core.redaction.redact_session` does; NotRedacted for a blob that
        holds what is to go; StaleOriginal when the copy knows more of the original than the store; ProfileDiffers when
        it holds what the rules do not give; SessionLocked; MirrorError.
        """
        require_callback(rewrite, "what rewrites a text")
        prefix: Mapping[str, Entry] = {}
        origins: list_[str] = []
        for name in _lineage(self, session):
            with self._reading(name) as original:
                self._settle(name)
                redacted = redact_session(original, profile, rewrite, prefix=prefix)
            done = _keep(self, redacted, rewrite)
            prefix = redacted.made
            origins.append(done.session)
        return done._replace(origins=origins[:-1])

    def original(self, session: str) -> tuple[Session, dict[str, list_[str]]]:
        """The session a redacted one was made from; and for each redacted entry's id, those it was made from, in order.

        A position counts in the original of the session whose own entry it is: a fork's prefix is led back through
        ``parent_session``, as far as those sessions and their originals are held, and is left out where they are not.
        Entries appended natively, and those the redaction added, are left out. Raises NotRedacted for a session that is
        not redacted, NoSession when it names no original or one that is not held, StaleOriginal.
        """
        with self._reading(session) as redacted:
            made_from = _originals(redacted, self._reading)
            origin = redacted.header.redacted_from
        assert origin is not None
        return self.read(origin.session), made_from

    def redactions(self, session: str) -> list_[Summary]:
        """The sessions redacted from a session, newest first."""
        return self.list(redacted_from=session)


def _lineage(store: Redactions, session: str) -> list[str]:
    """The sessions a fork continues from, as far as they are held, the first of all first; the session last."""
    names = [session]
    while True:
        with store._reading(names[-1]) as fork:
            base, above = fork.header.base, fork.header.parent_session
        if not base or not above or above in names or not store.holds(above):
            break
        with store._reading(above) as origin:
            if origin.source.find(base) < 0:
                break
        names.append(above)
    names.reverse()
    return names


def _keep(store: Redactions, redacted: Redacted, rewrite: Rewrite) -> Redaction:
    header = redacted.header
    beside = (len(redacted.opaque), redacted.dropped, redacted.unmapped)
    done = Redaction(header.id, header.base, redacted.leaf, False, 0, False, [], [], *beside)
    if store.holds(header.id):
        with store._reading(header.id) as held:
            missing = _missing(redacted, held)
            settled = not missing and (held.leaf == redacted.leaf or _is_native(held))
            done = done._replace(head=held.leaf, unchecked=_check_blobs(store, missing, rewrite))
        return done if settled else _grown(store, redacted, missing, done)
    unchecked = _check_blobs(store, redacted.source, rewrite)
    store._keep_whole(Session(header, redacted.source, leaf=redacted.leaf))
    own = len(redacted.source) - redacted.source.base_count
    return done._replace(created=True, added=own, unchecked=unchecked)


def _missing(redacted: Redacted, held: Session) -> list[Entry]:
    """The entries a redacted session lacks, in file order, once what it holds is known to be of this redaction."""
    origin, source = redacted.header.redacted_from, redacted.source
    if held.header.redacted_from != origin or held.header.base != redacted.header.base:
        raise ProfileDiffers("the session of this id is not a redaction of this one", where=held.id)
    for entry in _own(held):
        spans = redacted_of(entry, held.header.minor)
        if not spans or source.find(entry.id) >= 0:
            continue
        if spans[-1].last > len(source):
            raise StaleOriginal(
                f"the redacted session knows {spans[-1].last} entries of the original, the store {len(source)}",
                where=held.id,
                next_step="fetch the original",
            )
        raise ProfileDiffers(
            "the redacted session holds an entry that the rules, as they are now, do not give",
            where=entry.id,
            next_step="give other rules another profile",
        )
    return [entry for entry in source if held.source.find(entry.id) < 0]


def _own(session: Session) -> Iterator[Entry]:
    return (session.source.entry(position) for position in range(session.source.base_count, len(session)))


def _grown(store: Redactions, redacted: Redacted, missing: list[Entry], done: Redaction) -> Redaction:
    with store.open_session(done.session) as writer:
        before = writer.leaf
        after = before if _is_native(writer) else redacted.leaf
        for first in range(0, len(missing), _BATCH):
            writer.append_batch(missing[first : first + _BATCH], durable=False)
        if writer.leaf != after:
            writer.set_head(writer.leaf, after)
        return done._replace(head=after, added=len(missing), moved=after != before)


def _is_native(session: Session) -> bool:
    """Whether the head is an entry that was appended to the redacted session and not redacted into it."""
    head = session.leaf_position
    return head >= session.source.base_count and redacted_of(session.source.entry(head)) is None


def _check_blobs(store: Redactions, entries: Iterable[Entry], rewrite: Rewrite) -> list[str]:
    """Refuse entries that name a blob the rewrite would change, read as text; the blobs that are not held."""
    unchecked: list[str] = []
    named = (blob for entry in entries if entry.facts.flags & Flag.BLOBS for blob in sidecar_blobs(entry.content))
    for blob in dict.fromkeys(named):
        try:
            text = store.blob(blob).decode("utf-8", "replace")
        except NoBlob:
            unchecked.append(blob)
            continue
        if rewrite(text) != text:
            raise NotRedacted(
                "a blob holds what is to go, and blobs are not rewritten",
                where=blob,
                next_step="redact a session that does not name it",
            )
    return unchecked


def _originals(
    session: Session, reading: Callable[[str], AbstractContextManager[Session]]
) -> dict[str, list[str]]:
    """Every redacted entry of a session led back, its prefix through the sessions that own it."""
    if not session.header.redacted:
        raise NotRedacted("the session is not redacted, so it has no original", where=session.id)
    found = _led_back(session, _own(session), reading)
    left = {session.source.entry_id(position) for position in range(session.source.base_count)}
    seen, above = {session.id}, session.header.parent_session
    while left and above and above not in seen:
        seen.add(above)
        try:
            with reading(above) as owner:
                own = [entry for entry in _own(owner) if entry.id in left]
                above = owner.header.parent_session
                left.difference_update(entry.id for entry in own)
                found.update(_led_back(owner, own, reading))
        except NoSession:
            continue
    return found


def _led_back(
    session: Session,
    entries: Iterable[Entry],
    reading: Callable[[str], AbstractContextManager[Session]],
) -> dict[str, list[str]]:
    """Entries of a redacted session led back into the original it names."""
    origin = session.header.redacted_from
    if origin is None:
        raise NoSession("the redacted session names no original", where=session.id)
    with reading(origin.session) as original:
        source = original.source
        found: dict[str, list[str]] = {}
        for entry in entries:
            spans = redacted_of(entry, session.header.minor)
            if not spans:
                continue
            if spans[-1].last > len(source):
                raise StaleOriginal(
                    f"an entry was made from position {spans[-1].last} of the original, which has {len(source)} here",
                    where=entry.id,
                    next_step="fetch the original",
                )
            found[entry.id] = [source.entry_id(at - 1) for span in spans for at in range(span.first, span.last + 1)]
        return found
