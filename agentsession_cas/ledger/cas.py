"""Threads as sessions of a store (ledger.md): hashed, forkable, carried elsewhere with everything else.

Owns how transactions become entries. A thread is the session of its id. A new turn is a ``ledger:turn`` entry whose
parent is the entry of its parent turn as it is now, the universal root for a first turn. Anything else is a record
entry under the head, ``ledger:`` and the transaction's name: also a turn that is saved again, or under a parent that is
not there. A body is the transaction's payload. Invariants: entries in file order are the journal; an operation is
durable on return; a saved turn is the head, whoever the tip is.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.given import require
from agentsession_cas.core.identity import ROOT
from agentsession_cas.core.tree import Session
from agentsession_cas.errors import BadInput, NoSession, SessionExists
from agentsession_cas.ledger.journal import JournalEntry, TxType
from agentsession_cas.ledger.repository import Journaled
from agentsession_cas.ledger.thread import Clock
from agentsession_cas.ledger.turn import json_text
from agentsession_cas.sessions.handle import SessionWriter
from agentsession_cas.store import Store

__all__ = ["CasRepository"]

_NAMESPACE: Final = "ledger:"
_BORN: Final = "ledger:turn"
_TEXT: Final = "text"
"""The member of a body that holds a payload as its text, being one that canonical JSON does not hold as it is."""
_KNOWN_MAX: Final = 256
"""Threads whose turns are remembered."""


class _Known:
    """The entry of every turn of a session, up to an entry of it."""

    def __init__(self) -> None:
        self.count = 0
        self.last = ROOT
        self.entries: dict[str, str] = {}

    def fits(self, session: Session) -> bool:
        """Whether the session begins with what is known."""
        if self.count > len(session):
            return False
        return not self.count or session.source.entry_id(self.count - 1) == self.last

    def learn(self, session: Session) -> None:
        """Read the entries that are new."""
        for position in range(self.count, len(session)):
            entry = session.source.entry(position)
            found = _transaction_of(entry)
            if found is not None and found.tx_type == TxType.ADD_TURN:
                self.entries[found.payload["turn"]["id"]] = entry.id
            self.count, self.last = position + 1, entry.id


class CasRepository(Journaled):
    """The threads of a store. Processes may share them: each operation holds the session for as long as it takes.

    ``timeout_s`` is how long one waits for another to be done with a thread. Raises SessionLocked after that,
    MirrorError for a thread whose record is elsewhere, BadInput for a session that is no thread.
    """

    def __init__(self, store: Store, clock: Clock | None = None, *, timeout_s: float = 10.0) -> None:
        super().__init__(clock)
        self._store = require(store, Store, "a store", "give Store.open(path) or Store.memory()")
        self._timeout_s = timeout_s
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def journal(self, thread_id: str) -> list[JournalEntry]:
        """The transactions of a thread in order, up to the first that is malformed."""
        try:
            session = self._store.read(thread_id)
        except NoSession:
            return []
        return list(_transactions(session))

    def _record(self, thread_id: str, entry: JournalEntry) -> None:
        with self._held(thread_id) as session:
            known = self._known_of(session)
            result = session.append(_placed(entry, known), durable=True)
            if session.leaf != result.id:
                session.set_head(session.leaf, result.id)
            known.learn(session)

    def _held(self, thread_id: str) -> SessionWriter:
        try:
            return self._store.open_session(thread_id, self._timeout_s)
        except NoSession:
            try:
                return self._store.create(id=thread_id)
            except SessionExists:
                return self._store.open_session(thread_id, self._timeout_s)

    def _known_of(self, session: SessionWriter) -> _Known:
        known = self._known.get(session.id)
        if known is None or not known.fits(session):
            known = _Known()
        known.learn(session)
        if len(session) and not any(True for _ in _transactions(session)):
            raise BadInput("the session is no thread", where=f"session {session.id}", next_step="take another id")
        self._known[session.id] = known
        self._known.move_to_end(session.id)
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        return known


def _placed(entry: JournalEntry, known: _Known) -> Draft | Entry:
    """The entry of a transaction, where it belongs."""
    body = _body(entry)
    if entry.tx_type == TxType.ADD_TURN:
        turn = entry.payload["turn"]
        parent = turn.get("parent_id", "")
        if turn["id"] not in known.entries and (not parent or parent in known.entries):
            under = known.entries[parent] if parent else ROOT
            # with its id, no parent is the universal root and not the head
            return Entry.seal(_BORN, body, under, entry.timestamp, ())
    return Draft(_NAMESPACE + entry.tx_type, body, ts=entry.timestamp)


def _body(entry: JournalEntry) -> dict[str, Any]:
    """A payload as a body: its members, or its text when canonical JSON holds other numbers than it has."""
    payload = dict(entry.payload)
    try:
        exact = json.loads(canonical(payload)) == payload
    except BadInput:
        exact = False
    return payload if exact else {_TEXT: json_text(payload, "a transaction")}


def _transactions(session: Session) -> Iterator[JournalEntry]:
    """The transactions among the entries of a session, up to the first that is malformed."""
    for entry in session:
        if entry.type.startswith(_NAMESPACE):
            found = _transaction_of(entry)
            if found is None:
                return
            yield found


def _transaction_of(entry: Entry) -> JournalEntry | None:
    """The transaction an entry holds; None for an entry of another kind, and for a malformed one."""
    if not entry.type.startswith(_NAMESPACE):
        return None
    tx_type = TxType.ADD_TURN if entry.type == _BORN else entry.type.removeprefix(_NAMESPACE)
    payload = entry.body
    try:
        if _TEXT in payload:
            payload = json.loads(payload[_TEXT])
        return JournalEntry.of({"tx_type": tx_type, "timestamp": entry.ts, "payload": payload})
    except (BadInput, ValueError, TypeError, RecursionError):
        return None
