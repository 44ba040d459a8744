"""What append checks, walks and listings need of an entry without its body.

A log row keeps exactly these (store.md Part B), so a huge session is walked and an append is checked without loading
bodies. ``facts_of`` is the only place that derives them from a body; a stored row and a body must always agree.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from agentsession_cas.core.reading import text

__all__ = ["CODES", "ITEM_KINDS", "Code", "Facts", "Flag", "Kind", "call_digest", "code_of", "facts_of"]


class Code(IntEnum):
    """A type as a row holds it. ``OTHER`` is any type without a code of its own, extensions among them."""

    OTHER = 0
    ITEM = 1
    RESPONSE = 2
    CONFIG = 3
    COMPACTION = 4
    BRANCH_SUMMARY = 5
    RUN = 6
    DISPATCH = 7
    DECISION = 8
    QUEUED = 9
    LABEL = 10
    INFO = 11
    ENV = 12
    OUTCOME = 13
    LINK = 14
    CUSTOM = 15


class Kind(IntEnum):
    """What kind of item, verdict, phase, relation or label; meaningful beside its code alone."""

    NONE = 0
    # item
    MESSAGE = 1
    FUNCTION_CALL = 2
    FUNCTION_CALL_OUTPUT = 3
    REASONING = 4
    # decision
    PROCEED = 10
    REJECT = 11
    HOLD = 12
    ANSWER = 13
    # run
    START = 20
    END = 21
    # link
    SUBSESSION = 30
    FORK_OF = 31
    CONTINUED_IN = 32
    JUDGED_BY = 33
    PEER = 34
    # label
    LEAF = 40


class Flag:
    """What else a row says of a body: bits of a plain int, since an append computes with them."""

    NONE: Final = 0
    WITHDRAWN: Final = 1
    CANCEL: Final = 2
    URL: Final = 4
    NAMED: Final = 8
    """An ``info`` entry with a non-empty name."""
    BLOBS: Final = 16
    """The body names a sidecar blob."""
    LEGACY: Final = 32
    """The body has a ``legacy_id``."""
    REDACTED: Final = 64
    """The body has a ``redacted`` member."""
    REASONING_FROM: Final = 128
    """A reasoning item that carries a ``response``."""


CODES: Final[dict[str, Code]] = {code.name.lower(): code for code in Code if code is not Code.OTHER}
ITEM_KINDS: Final = {
    "message": Kind.MESSAGE,
    "function_call": Kind.FUNCTION_CALL,
    "function_call_output": Kind.FUNCTION_CALL_OUTPUT,
    "reasoning": Kind.REASONING,
}
_KINDS: Final[dict[Code, tuple[str, dict[str, Kind]]]] = {
    Code.DECISION: (
        "verdict",
        {"proceed": Kind.PROCEED, "reject": Kind.REJECT, "hold": Kind.HOLD, "answer": Kind.ANSWER},
    ),
    Code.RUN: ("phase", {"start": Kind.START, "end": Kind.END}),
    Code.LINK: (
        "rel",
        {
            "subsession": Kind.SUBSESSION,
            "fork_of": Kind.FORK_OF,
            "continued_in": Kind.CONTINUED_IN,
            "judged_by": Kind.JUDGED_BY,
            "peer": Kind.PEER,
        },
    ),
    Code.LABEL: ("label", {"leaf": Kind.LEAF}),
}
_TARGETED: Final = frozenset({Code.DECISION, Code.DISPATCH, Code.LABEL, Code.OUTCOME, Code.LINK})
_TOLD: Final = _TARGETED | {Code.RUN, Code.INFO}
"""Codes whose bodies say more than what they have in common."""
_make: Final = tuple.__new__  # what a NamedTuple is made with, without the call around it


class Facts(NamedTuple):
    """The facts of one entry: ``call`` is :func:`call_digest` of its call_id, 0 for none, ``target`` an id or ""."""

    code: Code
    kind: Kind
    flags: int
    call: int
    target: str


def code_of(type_: str) -> Code:
    """The code of a type; ``Code.OTHER`` for one without."""
    return CODES.get(type_, Code.OTHER)


def call_digest(call_id: str) -> int:
    """32 bits of a call_id, never 0: equal digests are a hint, the body decides."""
    return (zlib.crc32(call_id.encode("utf-8", "surrogatepass")) or 1) if call_id else 0


def facts_of(type_: str, body: Mapping[str, Any], *, blobs: bool = False) -> Facts:
    """Derive the facts of a body. ``blobs`` says whether it names a sidecar blob, which its caller knows."""
    code = CODES.get(type_, Code.OTHER)
    kind = Kind.NONE
    flags: int = Flag.BLOBS if blobs else Flag.NONE
    call = target = ""
    if code is Code.ITEM:
        item = body.get("item")
        if isinstance(item, dict):
            kind = ITEM_KINDS.get(text(item, "type"), Kind.NONE)
            if kind is Kind.FUNCTION_CALL or kind is Kind.FUNCTION_CALL_OUTPUT:
                call = text(item, "call_id")
            elif kind is Kind.REASONING and text(body, "response"):
                flags |= Flag.REASONING_FROM
    elif code in _TOLD:
        kind, call, target, more = _told(code, body)
        flags |= more
    if "legacy_id" in body:
        flags |= Flag.LEGACY
    if "redacted" in body:
        flags |= Flag.REDACTED
    return _make(Facts, (code, kind, flags, call_digest(call) if call else 0, target))


def _told(code: Code, body: Mapping[str, Any]) -> tuple[Kind, str, str, int]:
    """What a body says of its kind, its call, its target, and as flags: of the codes of :data:`_TOLD`."""
    kind, call, flags = Kind.NONE, "", Flag.NONE
    named = _KINDS.get(code)
    if named is not None:
        kind = named[1].get(text(body, named[0]), Kind.NONE)
    if named is not None or code is Code.DISPATCH:
        call = text(body, "call_id")
    if code is Code.DECISION and kind is Kind.REJECT and body.get("withdrawn") is True:
        flags = Flag.WITHDRAWN
    elif code is Code.LINK:
        if body.get("cancel") == "sent" and text(body, "target"):
            flags |= Flag.CANCEL
        if text(body, "url"):
            flags |= Flag.URL
    elif code is Code.INFO and text(body, "name"):
        flags = Flag.NAMED
    return kind, call, text(body, "target") if code in _TARGETED else "", flags
