"""The record rules an append is held to (format.md §9): who may say what of a call, and when.

:func:`check_append` looks at the one entry to come and at what the path says of the call it is about, never at the
whole path: it asks the source for the entries that may belong to the call and whether they are on the path, so that an
append costs the same however long the session is, and however far up the call. Rules that need a segment or a whole
path are no condition of acceptance; :mod:`~agentsession_cas.core.recordwalk` tells of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from agentsession_cas.core.calls import Call, CallBook, dispatches, is_call
from agentsession_cas.core.facts import Code, Facts, Flag, Kind
from agentsession_cas.core.header import Header
from agentsession_cas.core.links import callee_fault, is_callee, is_notice, superseded_by
from agentsession_cas.core.source import EntrySource
from agentsession_cas.core.undo import Onward
from agentsession_cas.errors import (
    AnswerNotDispatched,
    BadTarget,
    BadWithdrawal,
    CallAnswered,
    CallCompleted,
    CalleeLink,
    CallIDEmpty,
    CallIDRepeated,
    CallRejected,
    RecordRule,
    RejectDispatched,
    Superseded,
)

__all__ = ["call_on_path", "check_append", "fault"]

_NEXT: Final[dict[type[RecordRule], str]] = {
    CallAnswered: "append its output and nothing else",
    CallRejected: "append its output, with the reason, and nothing else",
    RejectDispatched: "answer it instead, or withdraw the dispatch directly after it",
    AnswerNotDispatched: "reject it instead",
}


def check_append(
    source: EntrySource, header: Header, parent_position: int, facts: Facts, body: Mapping[str, Any]
) -> None:
    """Raise the first record rule an entry would break as a child of ``parent_position`` (-1: the universal root).

    ``facts`` are the body's, which has passed the checks of its own form; the source does not hold the entry. In the
    order of format.md §9: CallIDEmpty, CallIDRepeated, BadTarget, CallAnswered and CallRejected, BadWithdrawal,
    RejectDispatched, CallCompleted, AnswerNotDispatched, CalleeLink, Superseded. An output is never refused.
    """
    if is_call(facts):
        _check_call_id(source, body["item"].get("call_id"))
    elif facts.code in (Code.DECISION, Code.DISPATCH):
        call = call_on_path(source, parent_position, body["target"], body["call_id"])
        promised = header.promises("dispatch")
        broken = fault(
            call, facts, promised=promised, dispatched=lambda: bool(dispatches(source, call.position)), appending=True
        )
        if broken is not None:
            raise broken[0](broken[1], where=f"call {call.call_id}", next_step=_NEXT.get(broken[0], ""))
    elif facts.code == Code.LINK:
        _check_link(source, parent_position, facts, body)


def _check_call_id(source: EntrySource, call_id: object) -> None:
    if not isinstance(call_id, str) or not call_id:
        raise CallIDEmpty("the function call has no call_id", where="/item/call_id")
    for position in source.with_call(call_id):
        if is_call(source.facts(position)):
            raise CallIDRepeated(
                f"the session already has a function call {call_id}",
                where=source.entry_id(position),
                next_step="give the call an id of its own",
            )


def _check_link(source: EntrySource, parent_position: int, facts: Facts, body: Mapping[str, Any]) -> None:
    if facts.kind == Kind.CONTINUED_IN:
        successor = superseded_by(source)
        if successor and successor != body.get("session"):
            raise Superseded(
                f"the session was continued in {successor}", where="/session", next_step=f"append to {successor}"
            )
        return
    callee = None
    if is_notice(facts):
        position = source.find(facts.target)
        if position >= 0 and is_callee(source.facts(position)) and source.is_above(position, parent_position):
            callee = source.entry(position)
    broken = callee_fault(facts, body, callee, appending=True)
    if broken:
        raise CalleeLink(broken, where="/link")


def call_on_path(source: EntrySource, leaf: int, target: str, call_id: str) -> Call:
    """The call the entry ``target`` made, as the path to ``leaf`` has it.

    Raises BadTarget when ``target`` is no function call with that call_id on the path.
    """
    position = source.find(target)
    if position < 0 or not is_call(source.facts(position)) or source.entry(position).call_id != call_id:
        raise BadTarget(f"the target is no function call {call_id}", where=target)
    if not source.is_above(position, leaf):
        raise BadTarget(f"the function call {call_id} is not on the path of the entry", where=target)
    book = CallBook(source, Onward())
    call = book.read(position, source.facts(position))
    assert call is not None
    for each in source.about_call(position):
        facts = source.facts(each)
        if source.is_above(each, leaf) and (facts.target == target or _names_no_call(source, each, facts)):
            book.read(each, facts)
    return call


def _names_no_call(source: EntrySource, position: int, facts: Facts) -> bool:
    """Whether a call_id alone says which call an entry belongs to: always, but for a target that names another call."""
    if facts.code not in (Code.DECISION, Code.DISPATCH):
        return True
    other = source.find(facts.target)
    return other < 0 or not is_call(source.facts(other)) or not source.is_above(other, position)


def fault(
    call: Call, facts: Facts, *, promised: bool, dispatched: Callable[[], bool], appending: bool
) -> tuple[type[RecordRule], str] | None:
    """The first rule a decision or a dispatch next on the path breaks of its call, and how; None when it breaks none.

    ``promised`` is whether the header promises dispatches, ``dispatched`` whether the session holds one for the call on
    any branch. A withdrawal in the wrong place is refused an append; a reader takes it for a plain reject.
    """
    what = "a dispatch" if facts.code == Code.DISPATCH else f"a decision ({facts.kind.name.lower()})"
    if facts.code == Code.DISPATCH and call.rejected:
        return CallRejected, f"{what} for a call that was rejected"
    if call.answered:
        return CallAnswered, f"{what} for a call that was answered"
    if call.rejected:
        return CallRejected, f"{what} for a call that was rejected"
    if facts.kind == Kind.REJECT:
        if appending and facts.flags & Flag.WITHDRAWN:
            return None if call.withdraws(facts) else (BadWithdrawal, "a withdrawal not directly after a dispatch")
        if call.dispatches:
            return RejectDispatched, "a reject for a call that was dispatched and may have run"
    if not call.pending and facts.kind not in (Kind.PROCEED, Kind.HOLD):
        return CallCompleted, f"{what} for a call that has its output"
    if facts.kind == Kind.ANSWER and promised and call.own and not dispatched():
        return AnswerNotDispatched, "an answer for a call that the record says never started"
    return None
