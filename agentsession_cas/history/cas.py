"""Conversations as sessions of a store (history.md H1): hashed, forked, pushed and checked with everything else.

A conversation is the session that the ref ``history/`` and the SHA-256 of its id leads to; its header holds the id. The
messages are the items on the path of its head. Beside them hangs what makes an append happen once: a ``history:append``
entry that holds the append id, at the root and of a fixed time, so that its own id is known beforehand; and below it a
``history:receipt`` with the digest. They land with the messages, as one batch. A cleared conversation leaves a ref
``history-closed/`` and that hash, which dangles once the session is gone, and is what says that it is closed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.given import require
from agentsession_cas.core.tree import Session
from agentsession_cas.errors import BadInput, NoRef, NoSession, RefMoved
from agentsession_cas.history.batch import Batch, Message, Receipt
from agentsession_cas.history.casreading import MESSAGE, RECEIPT, CasReading
from agentsession_cas.history.encoding import encode
from agentsession_cas.history.ids import ConversationId
from agentsession_cas.history.memory import check_retry, closed
from agentsession_cas.history.protocols import Note, Reading, sealed
from agentsession_cas.maintenance.freeze import freeze
from agentsession_cas.sessions.handle import SessionWriter
from agentsession_cas.sessions.reffile import RefTarget
from agentsession_cas.store import Store

__all__ = ["CasStore"]

_OPEN: Final = "history/"
_CLOSED: Final = "history-closed/"
_HEADER_MEMBER: Final = "history:conversation"
_WAIT_S: Final = 30.0


class CasStore:
    """The conversations of a store. Processes and threads of execution may share them.

    ``timeout_s`` is how long an append waits for another process to be done with the conversation; SessionLocked is
    raised after that, with nothing appended.
    """

    def __init__(self, store: Store, *, timeout_s: float = _WAIT_S) -> None:
        self._store = require(store, Store, "a store", "give Store.open(path) or Store.memory()")
        self._timeout_s = timeout_s

    # --- appending ---

    def append(self, batch: Batch) -> Receipt:
        """Accept a batch once, durably. Raises AppendConflict, ConversationClosed, SessionLocked."""
        require(batch, Batch, "what is appended", "make a Batch")
        conversation = batch.conversation
        self._require_open(conversation)
        with self._held(conversation) as session:
            # asked again with the session held: who clears the conversation has to wait for it, and closes it before
            if self._is_closed(conversation):
                session.close()
                self._remove(conversation)
                raise closed(conversation)
            key = _key_of(batch)
            if not check_retry(batch, _digest_under(session, key)):
                self._land(session, batch, key)
        return Receipt.of(batch)

    def _land(self, session: SessionWriter, batch: Batch, key: Entry) -> None:
        count = CasReading(session).count() + len(batch)
        body = {"append_id": str(batch.append_id), "digest": batch.digest, "messages": count}
        receipt = Draft(RECEIPT, body, parent=key.id)
        try:
            session.append_batch([*map(_as_item, batch.messages), key, receipt], durable=True)
        except BadInput:
            # a rule of the format, which conversations do not know: a call id that comes again, an output of no call
            session.append_batch([*map(_as_text, batch.messages), key, receipt], durable=True)

    def _held(self, conversation: ConversationId) -> SessionWriter:
        extra = {_HEADER_MEMBER: str(conversation)}
        return self._store.session_for(_OPEN + _hex(conversation), timeout_s=self._timeout_s, extra=extra)

    # --- reading ---

    def read(self, conversation: str) -> list[Message]:
        """The messages in stored order, a copy; none for an unknown or a closed conversation."""
        return list(self.reading(conversation).tail())[::-1]

    def conversations(self) -> list[str]:
        """The ids of those open, sorted."""
        gone = {ref.name.removeprefix(_CLOSED) for ref in self._store.list_refs(_CLOSED)}
        found = set()
        for ref in self._store.list_refs(_OPEN):
            header = self._store.header_of(ref.target.session)
            if header is not None and ref.name.removeprefix(_OPEN) not in gone:
                found.add(str(header.members().get(_HEADER_MEMBER, "")))
        return sorted(found - {""})

    def _session(self, conversation: str) -> Session | None:
        """The session as it is now; None for an unknown or a closed conversation."""
        checked = ConversationId(conversation)
        if self._is_closed(checked):
            return None
        try:
            return self._store.read(self._store.resolve_ref(_OPEN + _hex(checked)).session)
        except (NoRef, NoSession):
            return None

    # --- a transcript ---

    def reading(self, conversation: str) -> Reading:
        """A conversation as it is now."""
        return CasReading(self._session(conversation))

    def keep(self, conversation: str, notes: Sequence[Note]) -> None:
        """Keep notes as one step, durably. Raises ConversationClosed, SessionLocked."""
        checked = ConversationId(conversation)
        self._require_open(checked)
        with self._held(checked) as session:
            if self._is_closed(checked):
                session.close()
                self._remove(checked)
                raise closed(checked)
            session.append_batch([sealed(note.kind, note.body) for note in notes], durable=True)

    def freeze(self, conversation: str, start: int, end: int) -> str:
        """Put messages ``start`` to before ``end`` into a pack of the highest compression; the name of its file.

        They are read as before; what they took elsewhere goes with the next repack. Raises StoreLocked, SessionLocked.
        """
        checked = ConversationId(conversation)
        self._require_open(checked)
        with self._held(checked) as session:
            session.checkpoint()
            contents = CasReading(session).contents(start, end)
        return freeze(self._store.layout, self._store.objects, contents)

    # --- closing ---

    def clear(self, conversation: str) -> None:
        """Close a conversation for ever, then remove what it held.

        Raises SessionLocked and the like while somebody writes it: it is closed then, and another clear removes it.
        """
        checked = ConversationId(conversation)
        if not self._is_closed(checked):
            self._close(checked)
        self._remove(checked)

    def _close(self, conversation: ConversationId) -> None:
        with self._held(conversation) as session, suppress(RefMoved):  # by another clear, just now
            self._store.update_ref(_CLOSED + _hex(conversation), None, RefTarget(session.id), "cleared")

    def _remove(self, conversation: ConversationId) -> None:
        name = _OPEN + _hex(conversation)
        while (held := self._store.refs.read(name)) is not None:
            with suppress(NoSession):
                self._store.resolve_ref(name)
                self._store.delete(held.target.session, self._timeout_s)
            with suppress(RefMoved):
                self._store.update_ref(name, held.target, None, "cleared")

    def _is_closed(self, conversation: ConversationId) -> bool:
        return self._store.refs.read(_CLOSED + _hex(conversation)) is not None

    def _require_open(self, conversation: ConversationId) -> None:
        if self._is_closed(conversation):
            raise closed(conversation)


def _hex(conversation: str) -> str:
    return hashlib.sha256(conversation.encode()).hexdigest()


def _key_of(batch: Batch) -> Entry:
    """The entry whose presence says that an append id was used."""
    return sealed("append", {"append_id": str(batch.append_id)})


def _digest_under(session: Session, key: Entry) -> str | None:
    if session.source.find(key.id) < 0:
        return None
    receipts = [session.entry(each) for each in session.children(key.id)]
    return next(str(each.body["digest"]) for each in receipts if each.type == RECEIPT)


def _as_item(message: Message) -> Draft:
    """A message as an item; as its text when canonical JSON holds it with other numbers."""
    try:
        exact = encode(json.loads(canonical(message))) == encode(message)
    except BadInput:
        exact = False
    return Draft("item", {"item": message}) if exact else _as_text(message)


def _as_text(message: Message) -> Draft:
    return Draft(MESSAGE, {"text": encode(message).decode()})
