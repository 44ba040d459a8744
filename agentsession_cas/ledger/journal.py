"""The journal of a thread (ledger.md): four transactions, how a line holds one, what replaying them gives.

Owns the line, as the Go package ``ledger`` writes it, and the rule that a replay ends at the first entry that is
malformed. Reads and writes no file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Self

from agentsession_cas.core.given import as_object, require
from agentsession_cas.core.timestamps import ts_to_ns
from agentsession_cas.errors import BadInput
from agentsession_cas.ledger.thread import Thread
from agentsession_cas.ledger.turn import Turn, copied, json_text

__all__ = [
    "Hydrated",
    "JournalEntry",
    "TxType",
    "add_turn",
    "read_lines",
    "replay",
    "update_control",
    "update_parent",
    "update_tip",
]

_HTML: Final = str.maketrans(
    {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"}
)
"""What Go's encoder escapes; in JSON none of them stands outside a string."""


class TxType(StrEnum):
    """What a transaction does to a thread."""

    ADD_TURN = "add_turn"
    UPDATE_TIP = "update_tip"
    UPDATE_CONTROL = "update_control"
    UPDATE_PARENT = "update_parent"


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One transaction. ``timestamp`` is an RFC 3339 time; ``payload`` a JSON object, by ``tx_type``."""

    tx_type: str
    timestamp: str
    payload: Mapping[str, Any]

    def __hash__(self) -> int:
        return hash((self.tx_type, self.timestamp))

    def line(self) -> bytes:
        """The line that holds it, with its end."""
        members = {"tx_type": str(self.tx_type), "timestamp": self.timestamp, "payload": dict(self.payload)}
        return json_text(members, "a transaction").translate(_HTML).encode() + b"\n"

    @classmethod
    def of(cls, members: object) -> Self:
        """The transaction of a line's members. Raises BadInput, BadTimestamp for what is none."""
        found = as_object(members, "a transaction")
        entry = cls(
            require(found.get("tx_type"), str, "tx_type"),
            require(found.get("timestamp"), str, "timestamp"),
            copied(as_object(found.get("payload"), "payload"), "payload"),
        )
        ts_to_ns(entry.timestamp)
        _change_of(entry)
        return entry


class Hydrated(NamedTuple):
    """What a journal comes to: its turns by id, in the order they first came, and the tip, "" for none."""

    turns: dict[str, Turn]
    tip: str

    def thread(self, thread: Thread | None = None) -> Thread:
        """Put it into a thread, a new one when none is given."""
        into = Thread() if thread is None else thread
        for turn in self.turns.values():
            Thread.save_turn(into, turn)
        Thread.set_current_tip(into, self.tip)
        return into


def add_turn(timestamp: str, turn: Turn) -> JournalEntry:
    """A turn is created, or replaced."""
    payload = {"timestamp": timestamp, "turn": require(turn, Turn, "a turn").to_json()}
    return JournalEntry(TxType.ADD_TURN, timestamp, payload)


def update_tip(timestamp: str, turn_id: str) -> JournalEntry:
    """The tip moves."""
    payload = {"timestamp": timestamp, "current_tip": _id(turn_id, "turn_id")}
    return JournalEntry(TxType.UPDATE_TIP, timestamp, payload)


def update_control(timestamp: str, turn_id: str, control: str) -> JournalEntry:
    """A turn gets another traversal control."""
    told = str(_id(control, "control"))
    payload = {"timestamp": timestamp, "turn_id": _id(turn_id, "turn_id"), "control": told}
    return JournalEntry(TxType.UPDATE_CONTROL, timestamp, payload)


def update_parent(timestamp: str, turn_id: str, parent_id: str) -> JournalEntry:
    """A turn gets another parent."""
    payload = {"timestamp": timestamp, "turn_id": _id(turn_id, "turn_id"), "parent_id": _id(parent_id, "parent_id")}
    return JournalEntry(TxType.UPDATE_PARENT, timestamp, payload)


def _id(value: object, name: str) -> str:
    text = require(value, str, name)
    json_text(text, name)
    return text


def replay(entries: Iterable[JournalEntry]) -> Hydrated:
    """Carry out transactions in order, up to the first that is malformed."""
    thread = Thread()
    for entry in entries:
        try:
            change = _change_of(entry)
        except BadInput:
            break
        change(thread)
    return Hydrated({turn.id: turn for turn in thread.all_turns()}, thread.current_tip)


def read_lines(data: bytes) -> tuple[list[JournalEntry], int]:
    """The transactions of a file up to the first line that is malformed, and the bytes they take.

    A last line without its end counts when it is whole otherwise. Blank lines are none.
    """
    entries: list[JournalEntry] = []
    end = 0
    for line in _lines(data):
        if line.strip():
            try:
                entries.append(JournalEntry.of(json.loads(line.decode(), parse_constant=_refuse)))
            except (ValueError, RecursionError, BadInput):
                break
        end += len(line)
    return entries, end


def _lines(data: bytes) -> list[bytes]:
    """Lines with their ends, which are LF alone: a CR is white space inside one."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _change_of(entry: JournalEntry) -> Callable[[Thread], None]:
    """What a transaction does to a thread. Raises BadInput, BadTimestamp for a malformed one."""
    payload = entry.payload

    def text(name: str) -> str:
        return require(payload.get(name) or "", str, name)

    if entry.tx_type == TxType.ADD_TURN:
        turn = Turn.from_json(as_object(payload.get("turn"), "turn"))
        return lambda thread: thread.save_turn(turn)
    if entry.tx_type == TxType.UPDATE_TIP:
        tip = text("current_tip")
        return lambda thread: thread.set_current_tip(tip)
    turn_id = text("turn_id")
    if entry.tx_type == TxType.UPDATE_CONTROL:
        control = text("control")
        return lambda thread: thread.set_control(turn_id, control)
    if entry.tx_type == TxType.UPDATE_PARENT:
        parent = text("parent_id")
        return lambda thread: thread.set_parent(turn_id, parent)
    raise BadInput(f"no transaction is called {entry.tx_type!r:.40}", where="/tx_type")
