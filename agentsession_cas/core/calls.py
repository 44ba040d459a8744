"""Calls: each function call of a path, and everything that happened to it there (format.md §9, context.md §2).

A :class:`CallBook` reads a path one entry at a time and binds decisions, dispatches and outputs to their calls; what a
:class:`Call` then says of itself is the predicates and the state of context.md §2. Calls name entries by position,
which grows along a path, so "before" and "after" are comparisons. Bodies load only for call_ids and arguments.

Nothing here judges: a path that breaks a rule reads as the format says, and :mod:`~agentsession_cas.core.records` says
what it broke.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.entry import Entry, Reference
from agentsession_cas.core.facts import Code, Facts, Flag, Kind
from agentsession_cas.core.header import Header
from agentsession_cas.core.reading import text
from agentsession_cas.core.source import EntrySource, path_positions
from agentsession_cas.core.undo import Onward, Undo

__all__ = [
    "Call",
    "CallBook",
    "CallState",
    "Withdrawal",
    "calls",
    "dispatches",
    "is_call",
    "is_output",
    "pending_calls",
]


class CallState(StrEnum):
    """What a path says happened to a call: the first of these that holds (context.md §2)."""

    COMPLETED = "completed"
    ANSWERED = "answered"
    REJECTED = "rejected"
    HELD = "held"
    IN_FLIGHT = "in_flight"
    NEVER_STARTED = "never_started"
    UNKNOWN = "unknown"


class Withdrawal(NamedTuple):
    """The positions of a dispatch, and of the reject directly after it that says it was never handed off."""

    dispatch: int
    reject: int


def is_call(facts: Facts) -> bool:
    """Whether an entry holds a function call."""
    return facts.code == Code.ITEM and facts.kind == Kind.FUNCTION_CALL


def is_output(facts: Facts) -> bool:
    """Whether an entry holds a function call output."""
    return facts.code == Code.ITEM and facts.kind == Kind.FUNCTION_CALL_OUTPUT


class Call:
    """One function call on a path.

    ``position`` is its own entry's; ``decisions`` and ``dispatches`` are positions in path order, withdrawn pairs taken
    out into ``withdrawn``; ``output`` is the output's position, -1 while there is none; ``last`` is the last entry that
    belongs to the call, withdrawn or not, -1 before the first. Only a :class:`CallBook` changes one.
    """

    __slots__ = (
        "answers",
        "call_id",
        "decisions",
        "dispatches",
        "last",
        "output",
        "position",
        "rejects",
        "source",
        "withdrawn",
    )

    def __init__(self, source: EntrySource, position: int) -> None:
        self.source = source
        self.position = position
        self.call_id = source.entry(position).call_id
        self.decisions: list[int] = []
        self.dispatches: list[int] = []
        self.withdrawn: list[Withdrawal] = []
        self.answers = 0
        self.rejects = 0
        self.output = -1
        self.last = -1

    @property
    def entry(self) -> Entry:
        """The entry that holds the function call."""
        return self.source.entry(self.position)

    @property
    def item(self) -> dict[str, Any]:
        """The function call item. Shared: do not change it."""
        item: dict[str, Any] = self.entry.body["item"]
        return item

    @property
    def name(self) -> str:
        """The name of the tool called, "" when the item has none."""
        return text(self.item, "name")

    @property
    def own(self) -> bool:
        """Whether the session made the call itself, after its base."""
        return self.position >= self.source.base_count

    @property
    def pending(self) -> bool:
        """Whether the call has no output on the path."""
        return self.output < 0

    @property
    def answered(self) -> bool:
        """Whether a decision ended the call with an output the harness writes."""
        return self.answers > 0

    @property
    def rejected(self) -> bool:
        """Whether a decision ended the call without running it."""
        return self.rejects > 0

    @property
    def held(self) -> bool:
        """Whether the call waits on an answer to a hold. With earlier dispatches, it may have run."""
        if not self.decisions:
            return False
        latest = self.decisions[-1]
        return self.source.facts(latest).kind == Kind.HOLD and not (self.dispatches and self.dispatches[-1] > latest)

    @property
    def in_flight(self) -> bool:
        """Whether the call was handed to its tool and nothing has been heard since."""
        if self.output >= 0 or not self.dispatches:
            return False
        for position in reversed(self.decisions):
            if position < self.dispatches[-1]:
                break
            if self.source.facts(position).kind in (Kind.HOLD, Kind.ANSWER):
                return False
        return True

    @property
    def failed(self) -> bool:
        """Whether the output is marked failed. The call is completed all the same."""
        return self.output >= 0 and self.source.entry(self.output).body.get("failed") is True

    @property
    def output_from(self) -> list[Reference]:
        """The ``parents`` of the output: the leaf of the child session an answer was taken from."""
        return self.source.entry(self.output).parents if self.output >= 0 else []

    @property
    def args(self) -> str:
        """The arguments a new hand-off runs with, as JSON text: the last rewrite's, else the call's own."""
        return self._args(len(self.source))

    @property
    def dispatched_args(self) -> str:
        """The arguments of the last hand-off, as JSON text; "" when there was none."""
        return self._args(self.dispatches[-1]) if self.dispatches else ""

    @property
    def idempotency_key(self) -> str:
        """The key of the last hand-off; "" when there was none, or it had none."""
        return text(self.source.entry(self.dispatches[-1]).body, "idempotency_key") if self.dispatches else ""

    def _args(self, before: int) -> str:
        for position in reversed(self.decisions):
            if position < before and self.source.facts(position).kind != Kind.ANSWER:
                args = self.source.entry(position).body.get("args")
                if args is not None:
                    return canonical(args).decode()
        return text(self.item, "arguments")

    def withdraws(self, facts: Facts) -> bool:
        """Whether a decision next on the path would withdraw the call's last dispatch."""
        if not facts.flags & Flag.WITHDRAWN or self.last < 0:
            return False
        return self.source.facts(self.last).code == Code.DISPATCH

    def dispatched_elsewhere(self) -> bool:
        """Whether the session holds a dispatch of the call that is not on this path.

        A withdrawn one of this path is on it, and taken back here, whatever else of the session hangs from it.
        """
        here = {*self.dispatches, *(pair.dispatch for pair in self.withdrawn)}
        return any(position not in here for position in dispatches(self.source, self.position))

    def state(self, header: Header) -> CallState:
        """What the path says happened to the call; ``header`` says what its absence of a dispatch means."""
        if self.output >= 0:
            return CallState.COMPLETED
        if self.answered:
            return CallState.ANSWERED
        if self.rejected:
            return CallState.REJECTED
        if self.held:
            return CallState.HELD
        if self.dispatches:
            return CallState.IN_FLIGHT
        if self.own and header.promises("dispatch") and not self.dispatched_elsewhere():
            return CallState.NEVER_STARTED
        return CallState.UNKNOWN

    def to_json(self, header: Header) -> dict[str, Any]:
        """The call as ``calls --json`` has it (cli.md)."""
        return {
            "call_id": self.call_id,
            "entry": self.source.entry_id(self.position),
            "name": self.name,
            "state": self.state(header).value,
            "dispatches": len(self.dispatches),
            "decisions": [self.source.facts(position).kind.name.lower() for position in self.decisions],
            "withdrawn": len(self.withdrawn),
            "args": self.args,
            "dispatched_args": self.dispatched_args,
            "idempotency_key": self.idempotency_key,
            "output": self.source.entry_id(self.output) if self.output >= 0 else None,
            "failed": self.failed,
        }


class CallBook:
    """The calls of a path read so far, in path order; ``outstanding`` counts those without an output.

    ``withdrawn`` holds the positions of every withdrawn dispatch and withdrawal.
    """

    __slots__ = ("_by_call_id", "_by_entry", "_source", "_undo", "calls", "outstanding", "withdrawn")

    def __init__(self, source: EntrySource, undo: Undo) -> None:
        self._source = source
        self._undo = undo
        self._by_entry: dict[str, Call] = {}
        self._by_call_id: dict[str, Call] = {}
        self.calls: list[Call] = []
        self.withdrawn: dict[int, bool] = {}
        self.outstanding = 0

    def at(self, entry_id: str) -> Call | None:
        """The call an entry of the path made."""
        return self._by_entry.get(entry_id)

    def named(self, call_id: str) -> Call | None:
        """The latest call on the path with a call_id."""
        return self._by_call_id.get(call_id)

    def bind(self, position: int, facts: Facts) -> Call | None:
        """The call a decision, a dispatch or an output next on the path belongs to (context.md §2)."""
        if is_output(facts):
            call = self.named(self._source.entry(position).call_id) if facts.call else None
            return call if call is not None and call.pending else None
        if facts.code not in (Code.DECISION, Code.DISPATCH):
            return None
        call = self.at(facts.target)
        return self.named(self._source.entry(position).call_id) if call is None else call

    def read(self, position: int, facts: Facts) -> Call | None:
        """Read the next entry of the path; the call it makes or belongs to."""
        if is_call(facts):
            return self._open(position)
        call = self.bind(position, facts)
        if call is not None:
            self._note(call, position, facts)
        return call

    def _open(self, position: int) -> Call:
        call = Call(self._source, position)
        self._undo.append(self.calls, call)
        self._undo.put(self._by_entry, self._source.entry_id(position), call)
        if call.call_id:
            self._undo.put(self._by_call_id, call.call_id, call)
        self._undo.set(self, "outstanding", self.outstanding + 1)
        return call

    def _note(self, call: Call, position: int, facts: Facts) -> None:
        undo = self._undo
        if facts.code == Code.ITEM:
            undo.set(call, "output", position)
            undo.set(self, "outstanding", self.outstanding - 1)
        elif facts.code == Code.DISPATCH:
            undo.append(call.dispatches, position)
        elif call.withdraws(facts):
            dispatch = undo.pop(call.dispatches)
            undo.append(call.withdrawn, Withdrawal(dispatch, position))
            undo.put(self.withdrawn, dispatch, True)
            undo.put(self.withdrawn, position, True)
        else:
            undo.append(call.decisions, position)
            if facts.kind == Kind.REJECT:
                undo.set(call, "rejects", call.rejects + 1)
            elif facts.kind == Kind.ANSWER:
                undo.set(call, "answers", call.answers + 1)
        undo.set(call, "last", position)


def calls(source: EntrySource, position: int) -> list[Call]:
    """The calls on the path to ``position``, in path order, each with what the path holds for it (context.md §2)."""
    book = CallBook(source, Onward())
    for each in path_positions(source, position):
        book.read(each, source.facts(each))
    return book.calls


def pending_calls(source: EntrySource, position: int) -> list[Call]:
    """The calls on the path to ``position`` without an output: what a resume has to deal with."""
    return [call for call in calls(source, position) if call.pending]


def dispatches(source: EntrySource, call_position: int) -> list[int]:
    """Every dispatch of a call in the session, on whatever branch, withdrawn ones included, in file order."""
    call_id, target = source.entry(call_position).call_id, source.entry_id(call_position)
    return [
        position
        for position in source.with_call(call_id)
        if (facts := source.facts(position)).code == Code.DISPATCH and facts.target == target
    ]
