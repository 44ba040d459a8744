"""``label``, ``info``, ``outcome``, ``custom`` and extensions: what is said of a session beside it (format.md §5)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from agentsession_cas.core.entry import Draft
from agentsession_cas.core.given import as_object
from agentsession_cas.core.identity import ROOT
from agentsession_cas.core.reading import integer, members, text
from agentsession_cas.core.required import OUTCOME_KINDS, is_extension
from agentsession_cas.core.types.members import View, composed, need, one_of
from agentsession_cas.errors import BadEntry

__all__ = [
    "CustomView",
    "InfoView",
    "LabelView",
    "OutcomeView",
    "clear_label",
    "custom",
    "extension",
    "info",
    "label",
    "leaf_label",
    "outcome",
]


class LabelView(View):
    """A ``label`` entry."""

    __slots__ = ()

    @property
    def target(self) -> str:
        """The entry labelled, "" for the universal root."""
        return text(self.body, "target")

    @property
    def label(self) -> str:
        """The label; "" clears the one before."""
        return text(self.body, "label")

    @property
    def synthetic(self) -> bool:
        """Whether a projection wrote it to name the head (store.md A10)."""
        return self.body.get("synthetic") is True


class InfoView(View):
    """An ``info`` entry."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The session's display name, or ""."""
        return text(self.body, "name")


class OutcomeView(View):
    """An ``outcome`` entry: a judgement."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """What kind of judgement; "" for one the format does not list."""
        kind = text(self.body, "kind")
        return kind if kind in OUTCOME_KINDS else ""

    @property
    def target(self) -> str:
        """The entry judged, or ""."""
        return text(self.body, "target")

    @property
    def score(self) -> float | None:
        """The score, on the judge's own scale."""
        score = self.body.get("score")
        return score if isinstance(score, (int, float)) and not isinstance(score, bool) else None

    @property
    def passed(self) -> bool | None:
        """The verdict, when there is one: the ``pass`` member."""
        passed = self.body.get("pass")
        return passed if isinstance(passed, bool) else None

    @property
    def label(self) -> str:
        """The scale the score is on, or ""."""
        return text(self.body, "label")

    @property
    def details(self) -> Any:
        """Whatever the judge adds."""
        return self.body.get("details")


class CustomView(View):
    """A ``custom`` entry: state of an application, never in context."""

    __slots__ = ()

    @property
    def ns(self) -> str:
        """Whose state it is."""
        return text(self.body, "ns")

    @property
    def data(self) -> Any:
        """The state."""
        return self.body.get("data")

    @property
    def call_id(self) -> str:
        """The call the record belongs to, or ""."""
        return text(self.body, "call_id")

    @property
    def model_calls(self) -> int:
        """How many calls of a model it records: those of a ``data`` with the payload's usage (format.md §5)."""
        data = members(self.body, "data") or {}
        usage = members(data, "usage") or {}
        if any(integer(usage, name) is None for name in ("input_tokens", "output_tokens", "total_tokens")):
            return 0
        attempts = integer(data, "attempts")
        return attempts if attempts is not None and attempts > 0 else 1


def label(target: str, label: str) -> Draft:
    """A label on an entry; another one later replaces it."""
    return Draft("label", {"target": need("target", target), "label": need("label", label)})


def leaf_label(target: str) -> Draft:
    """The label that makes ``target`` the leaf (format.md §4); "" is the universal root."""
    return Draft("label", {"target": target or None, "label": "leaf"})


def clear_label(target: str) -> Draft:
    """Take the label off an entry, "" being the universal root."""
    return Draft("label", {"target": target or None, "label": None})


def info(name: str = "", **members: Any) -> Draft:
    """Display metadata: the session's name, and anything else."""
    return Draft("info", composed({}, members, name=name))


def outcome(
    kind: str,
    target: str = ROOT,
    *,
    score: float | None = None,
    passed: bool | None = None,
    label: str = "",
    details: Any = None,
) -> Draft:
    """A judgement of an entry, or of the session as a whole; ``label`` names the scale of the score."""
    one_of("kind", kind, OUTCOME_KINDS)
    if score is not None and not (isinstance(score, (int, float)) and math.isfinite(score)):
        raise BadEntry("a score is a finite number", where="/score")
    body = composed({"kind": kind}, target=target, score=score, label=label, details=details)
    if passed is not None:
        body["pass"] = passed
    return Draft("outcome", body)


def custom(ns: str, data: Any = None, *, call_id: str = "") -> Draft:
    """State of an application that the model does not see; ``call_id`` names the call it belongs to."""
    return Draft("custom", composed({"ns": need("ns", ns)}, data=data, call_id=call_id))


def extension(type_: str, members: Mapping[str, Any]) -> Draft:
    """An entry of a type of your own, called ``ns:name``."""
    if not isinstance(type_, str) or not is_extension(type_):
        raise BadEntry(f"an extension type is called ns:name, not {type_!r:.40}", where="/type")
    return Draft(type_, dict(as_object(members, "members")))
