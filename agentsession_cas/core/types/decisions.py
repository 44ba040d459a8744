"""``dispatch`` and ``decision``: what happened to a call outside the conversation (format.md §5, §9).

A call is named by its ``function_call`` entry, or by its call_id and that entry's id.
"""

from __future__ import annotations

from typing import Any

from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.facts import Kind
from agentsession_cas.core.reading import text
from agentsession_cas.core.required import DECIDERS, VERDICTS
from agentsession_cas.core.types.members import Json, View, composed, need, one_of
from agentsession_cas.errors import BadEntry

__all__ = [
    "DecisionView",
    "DispatchView",
    "answer",
    "decision",
    "dispatch",
    "hold",
    "proceed",
    "reject",
    "withdrawal",
]


class DispatchView(View):
    """A ``dispatch`` entry: one hand-off of a call to its tool."""

    __slots__ = ()

    @property
    def call_id(self) -> str:
        """The call's id."""
        return text(self.body, "call_id")

    @property
    def target(self) -> str:
        """The entry of the call."""
        return text(self.body, "target")

    @property
    def idempotency_key(self) -> str:
        """The key the tool was given for this hand-off, or ""."""
        return text(self.body, "idempotency_key")


class DecisionView(View):
    """A ``decision`` entry."""

    __slots__ = ()

    @property
    def call_id(self) -> str:
        """The call's id."""
        return text(self.body, "call_id")

    @property
    def target(self) -> str:
        """The entry of the call."""
        return text(self.body, "target")

    @property
    def verdict(self) -> str:
        """``proceed``, ``reject``, ``hold`` or ``answer``."""
        return text(self.body, "verdict")

    @property
    def by(self) -> str:
        """Who decided: ``human``, ``policy``, ``agent``, or ""."""
        by = text(self.body, "by")
        return by if by in DECIDERS else ""

    @property
    def reason(self) -> str:
        """The decider's words, or ""."""
        return text(self.body, "reason")

    @property
    def args(self) -> Any:
        """The arguments the tool ran with, when the decision rewrote them; else None."""
        return self.body.get("args")

    @property
    def withdrawn(self) -> bool:
        """Whether a reject withdraws the dispatch it directly follows."""
        return self.verdict == "reject" and self.body.get("withdrawn") is True


def dispatch(call: Entry | str, target: str = "", *, idempotency_key: str = "") -> Draft:
    """A call about to be handed to its tool; a hand-off repeated carries the first one's key."""
    return Draft("dispatch", composed(_call(call, target), idempotency_key=idempotency_key))


def decision(
    call: Entry | str,
    target: str = "",
    *,
    verdict: str,
    by: str = "",
    reason: str = "",
    args: Any = None,
    withdrawn: bool = False,
) -> Draft:
    """A call's fate, decided outside its tool. A reject needs its reason; ``withdrawn`` is for a reject alone."""
    one_of("verdict", verdict, VERDICTS)
    if by:
        one_of("by", by, DECIDERS)
    if verdict == "reject":
        need("reason", reason)
    elif withdrawn:
        raise BadEntry("only a reject withdraws a dispatch", where="/withdrawn")
    return Draft(
        "decision",
        composed(
            {**_call(call, target), "verdict": verdict},
            by=by,
            reason=reason,
            args=args,
            withdrawn=withdrawn or None,
        ),
    )


def proceed(call: Entry | str, target: str = "", *, by: str = "", reason: str = "", args: Any = None) -> Draft:
    """The call may run, with ``args`` when the decision rewrote them."""
    return decision(call, target, verdict="proceed", by=by, reason=reason, args=args)


def hold(call: Entry | str, target: str = "", *, by: str = "", reason: str = "") -> Draft:
    """The call waits for somebody."""
    return decision(call, target, verdict="hold", by=by, reason=reason)


def reject(call: Entry | str, target: str = "", *, reason: str, by: str = "") -> Draft:
    """The call will not run; ``reason`` is what the model gets as its output."""
    return decision(call, target, verdict="reject", by=by, reason=reason)


def answer(call: Entry | str, target: str = "", *, by: str = "", reason: str = "") -> Draft:
    """The call, which may have run, ends with an output the harness writes."""
    return decision(call, target, verdict="answer", by=by, reason=reason)


def withdrawal(call: Entry | str, target: str = "", *, reason: str, by: str = "") -> Draft:
    """The dispatch directly before was never handed over; ``reason`` says why."""
    return decision(call, target, verdict="reject", by=by, reason=reason, withdrawn=True)


def _call(call: Entry | str, target: str) -> Json:
    if isinstance(call, str):
        return {"call_id": need("call_id", call), "target": need("target", target)}
    if target or not isinstance(call, Entry) or call.facts.kind != Kind.FUNCTION_CALL:
        raise BadEntry(
            "a call is named by its function_call entry, or by its call_id and that entry's id",
            where="/target",
            next_step="a pending call has its entry as call.entry",
        )
    return {"call_id": need("call_id", call.call_id), "target": call.id}
