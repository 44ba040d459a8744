"""Plain items: what most appends are, made in one loop that asks for little.

A plain item continues the head, and its draft says nothing else but, perhaps, its response: no rule can be against it,
it names nothing that could be missing, and nothing of it has to be normalised. What is made of it is what ``prepare``
and ``make_row`` make, letter for letter (tests/sessions/test_tip.py holds them against each other). Whatever is not
plain is left to those two, refusals included. Changes nothing: the caller adds the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from agentsession_cas.core.accept import PLAIN_MAX, Outcome
from agentsession_cas.core.canonical import canonical, fitted
from agentsession_cas.core.entry import SIDECAR, Draft, Json
from agentsession_cas.core.facts import ITEM_KINDS, Code, Flag, Kind, call_digest
from agentsession_cas.core.framing import Record
from agentsession_cas.core.rows import REF_FIRST, REF_ROOT, pack_row
from agentsession_cas.core.timestamps import ts_from_ns
from agentsession_cas.errors import BadJSON, LimitExceeded

__all__ = ["Accepted", "Run", "chain_items"]

_TIME_END: Final = 1 << 63
_ITEM: Final = int(Code.ITEM)
_KINDS: Final[dict[str, tuple[Kind, int, bool]]] = {
    name: (kind, int(kind), kind in (Kind.FUNCTION_CALL, Kind.FUNCTION_CALL_OUTPUT))
    for name, kind in ITEM_KINDS.items()
}
"""Of each kind of item: itself, its number, whether it is about a call."""
_URL_SIZE: Final = len("sidecar:sha256:") + 64
_LONG: Final = 1024
_FEW: Final = 16
_make: Final = tuple.__new__  # what a NamedTuple is made with, without the call around it


class Accepted(NamedTuple):
    """What an append came to: the entry's id, the outcome, references that name nothing, and what the entry is."""

    id: str
    outcome: Outcome
    unresolved: list[str]
    type: str
    code: Code
    kind: Kind


class Run(NamedTuple):
    """Items that hang one from the other: their records, and what each came to.

    ``calls`` has the row numbers of those about a call by its digest, ``flags`` what any row has of flags; ``context``
    is the context hash at the last.
    """

    records: list[Record]
    accepted: list[Accepted]
    calls: dict[int, list[int]]
    flags: int
    context: str


def chain_items(
    drafts: Sequence[Draft],
    number: int,
    head: int,
    head_id: str,
    context: str,
    known_calls: Container[int] | None,
    now_ns: Callable[[], int],
) -> Run:
    """Make entries of ``drafts`` up to the first that is not plain.

    ``number`` is that of the next row; the head, a reference and an id, is the row before, or the base of an empty
    session, and ``context`` the context hash there. ``known_calls`` are the digests of all calls the session knows of,
    None when they are not at hand.
    """
    records: list[Record] = []
    accepted: list[Accepted] = []
    calls: dict[int, list[int]] = {}
    all_flags = 0
    for draft in drafts:
        body = draft.body
        response = body.get("response")
        known = _known_kind(draft, body, response)
        if known is None:
            break
        kind, kind_number, about_call = known
        call = 0
        if about_call:
            call_id = body["item"].get("call_id")
            if type(call_id) is not str or not call_id:
                break
            call = call_digest(call_id)
            if kind is Kind.FUNCTION_CALL and (known_calls is None or call in known_calls or call in calls):
                break
        try:
            content = fitted(canonical(body))  # which is kept until a checkpoint
        except (BadJSON, LimitExceeded):
            break
        size = len(content)
        if ((size < _LONG or _may_name_blob(body["item"], response)) and SIDECAR in content) or size > PLAIN_MAX:
            break
        now = now_ns()
        if not 0 <= now < _TIME_END:
            break
        if response is None:
            hashed = sha256(content).digest()
            share = hex_ = hashed.hex()
        else:
            hashed, share = _hash_with_response(content)
            hex_ = hashed.hex()
        ts = ts_from_ns(now)
        envelope = f'{{"content":"sha256:{hex_}","parent":"{head_id}","ts":"{ts}","type":"item"}}'.encode()
        digest = sha256(envelope).digest()
        context_digest = sha256(f'["{context}","item","sha256:{share}"]'.encode()).digest()
        context = "sha256:" + context_digest.hex()
        flags = Flag.REASONING_FROM if response and kind is Kind.REASONING else 0
        above, head, head_id = head, number + REF_FIRST, "sha256:" + digest.hex()
        row = pack_row(digest, hashed, context_digest, above, head, REF_ROOT, now, _ITEM, kind_number, flags, call)
        records.append(_make(Record, (row, envelope, content)))
        accepted.append(_make(Accepted, (head_id, Outcome.CONTINUED, [], "item", Code.ITEM, kind)))
        if call:
            calls.setdefault(call, []).append(number)
        all_flags |= flags
        number += 1
    return _make(Run, (records, accepted, calls, all_flags, context))


def _known_kind(draft: Draft, body: Json, response: object) -> tuple[Kind, int, bool] | None:
    """The kind of the item of a draft that says nothing but it and its response; None for any other draft."""
    item = body.get("item")
    if (
        type(item) is not dict
        or len(body) != (1 if response is None else 2)
        or (response is not None and type(response) is not str)
        or draft.type != "item"
        or draft.id is not None
        or draft.ts is not None
        or draft.parent
        or draft.parents
        or draft.changes
    ):
        return None
    name = item.get("type")
    return _KINDS.get(name) if type(name) is str else None


def _may_name_blob(item: Json, response: str | None) -> bool:
    """Whether some string of a body may be a blob's URL: it is not when they are few, and none is as long as one."""
    if len(item) > _FEW or (response is not None and len(response) == _URL_SIZE):
        return True
    for name, value in item.items():
        if type(value) is not str or len(value) == _URL_SIZE or len(name) == _URL_SIZE:
            return True
    return False


def _hash_with_response(content: bytes) -> tuple[bytes, str]:
    """The hash of a body, raw, and in hex that of what of it shapes a context: all but its response.

    It ends in its response and a brace. No text holds what is looked for: a quote in one is escaped.
    """
    cut = content.rindex(b',"response":"')
    whole = sha256(content[:cut])
    shaping = whole.copy()
    whole.update(content[cut:])
    shaping.update(b"}")
    return whole.digest(), shaping.hexdigest()
