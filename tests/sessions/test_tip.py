"""The short way of an append against the long one: the same rows, bytes, results and refusals, whatever is appended."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import Draft, SessionWriter, entry
from agentsession_cas.core.facts import Flag
from agentsession_cas.core.rows import decode_row
from agentsession_cas.errors import AgentSessionError, CallIDRepeated
from agentsession_cas.sessions import tip
from agentsession_cas.sessions.tip import Tip
from tests.helpers.legal import ticking_store

Json = dict[str, Any]

TEXTS = st.sampled_from(
    ["", "x", "é\u2028\U0001f600", "\ud800", '","response":"', "sidecar:sha256:" + "a" * 64, 'a\\"b\x00', "y" * 3000]
)
CALLS: Any = st.sampled_from(["c0", "c1", "c2", "c3", "", None, 7, "\ud800"])
RESPONSES: Any = st.sampled_from(["r", "", '"}', "\ud800", '","response":"', None, 3, ["r"]])
VALUES: Any = st.one_of(
    TEXTS, st.floats(), st.integers(), st.none(), st.just((1,)), st.just({"\U0001f600": 1, "\uffff": 2})
)
KINDS: Any = st.sampled_from(
    ["message", "function_call", "function_call_output", "reasoning", "acme:x", "item_reference", "", None, ["message"]]
)
MORE: Any = st.sampled_from(
    [
        *({}, {}, {}, {"source": {"kind": "x"}}, {"queued_from": "nobody"}, {"normalised": []}, {"legacy_id": "l"}),
        *({"redacted": True}, {"id": "x"}, {"failed": True}, {"acme": 1.0}),
    ]
)


@st.composite
def plain_items(draw: st.DrawFn) -> Draft:
    """An item as most are."""
    kind = draw(st.sampled_from(["message", "function_call", "function_call_output", "reasoning"]))
    body: Json = {"item": {"type": kind, "call_id": f"c{draw(st.integers(0, 3))}", "text": draw(TEXTS)}}
    if draw(st.booleans()):
        body["item"]["more"] = draw(TEXTS)
    if draw(st.booleans()):
        body["response"] = draw(st.sampled_from(["r", '","response":"']))
    return Draft("item", body)


@st.composite
def items(draw: st.DrawFn) -> Draft:
    """An item as harnesses write them, or nearly so."""
    item: Json = {"type": draw(KINDS), "call_id": draw(CALLS), "text": draw(TEXTS)}
    if draw(st.integers(0, 4)) == 0:
        item["value"] = draw(VALUES)
    body: Json = {"item": item if draw(st.integers(0, 9)) else draw(VALUES), **draw(MORE)}
    if draw(st.booleans()):
        body["response"] = draw(RESPONSES)
    return Draft("item" if draw(st.integers(0, 9)) else "queued", body)


@st.composite
def placed(draw: st.DrawFn) -> Json:
    """A draft, and what else is said of it: an index for its parent, a ts, its id."""
    return {
        "draft": draw(plain_items() | items()),
        "parent": draw(st.none() | st.integers(0, 20)) if draw(st.integers(0, 4)) == 0 else None,
        "ts": draw(st.sampled_from([None, "2026-01-31T12:00:00Z"])) if draw(st.integers(0, 4)) == 0 else None,
        "converge": draw(st.integers(0, 9)) == 0,
    }


OTHERS: Any = st.sampled_from(["config", "hold", "dispatch", "label", "info", "again", "head", "checkpoint"])
STEPS = st.lists(st.one_of(placed(), st.lists(placed(), max_size=4), OTHERS), max_size=14)


def drafted(session: SessionWriter, step: Json) -> Draft:
    """The draft of a step, where the session is now."""
    draft: Draft = step["draft"]
    ids = [each.id for each in session]
    parent = ids[step["parent"] % len(ids)] if ids and step["parent"] is not None else None
    parents = [{"entry": ids[0]}] if ids and step["converge"] else []
    return Draft(draft.type, draft.body, parent=parent, ts=step["ts"], parents=parents)


def other(session: SessionWriter, step: str) -> Any:
    """Do something that is no plain item."""
    calls = [call.entry for call in session.calls() if call.call_id]
    last = session.leaf
    match step:
        case "hold" if calls:
            return session.append(entry.hold(calls[-1]))
        case "dispatch" if calls:
            return session.append(entry.dispatch(calls[-1]))
        case "label" if last:
            return session.append(entry.leaf_label(last))
        case "again" if last:
            return session.append(session.path(last)[-1])
        case "head" if last:
            return session.set_head(last, session.path(last)[0].id)
        case "checkpoint":
            return session.checkpoint()
        case "config":
            return session.append(entry.config(model="m", extra={"temperature": 1.0}))
        case _:
            return session.append(entry.info(name="n"))


def told(session: SessionWriter, step: Any) -> Any:
    """What a step gave: its results, or the error in full."""
    try:
        if isinstance(step, str):
            return other(session, step)
        if isinstance(step, list):
            return session.append_batch([drafted(session, each) for each in step])
        return session.append(drafted(session, step))
    except AgentSessionError as error:
        return type(error), str(error)


def played(steps: list[Any]) -> tuple[Any, ...]:
    """All that the steps give and leave behind."""
    with ticking_store() as store, store.create(id="s", cwd="/") as session:
        gave = [told(session, step) for step in steps]
        writer = session._writer
        held = writer._tip
        calls = [session.source.with_call(f"c{number}") for number in range(4)]
        rows = [tuple(record) for record in writer.source.table.pending]
        head = held.head, held.head_id, held.head_digest, held.newest, held._context_of_head()
        return gave, rows, head, calls, [each.id for each in session], session.leaf


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_both_ways_come_to_the_same(steps: list[Any]) -> None:
    short = played(steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tip, "_accept_plain", lambda *_: [])
        assert played(steps) == short


URL = "sidecar:sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("more", "named"),
    [
        *(({"image": URL}, True), ({URL: "x"}, True), ({"image": [URL]}, True), ({"a": {"b": URL}}, True)),
        *(({"image": URL + "b"}, False), ({"image": f'"{URL}"'}, False), ({}, False)),
    ],
)
@pytest.mark.parametrize("response", [None, "r", URL])
def test_a_blob_in_a_long_body_is_not_overlooked(more: Json, named: bool, response: str | None) -> None:
    body: Json = {"item": {"type": "message", "text": "y" * 3000, **more}}
    if response is not None:
        body["response"] = response
    first = {"draft": entry.user("the first needs the long way"), "parent": None, "ts": None, "converge": False}
    steps = [first, {**first, "draft": Draft("item", body)}]
    short = played(steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tip, "_accept_plain", lambda *_: [])
        assert played(steps) == short
    assert bool(decode_row(short[1][1][0], 0).flags & Flag.BLOBS) == (named or response == URL)


def test_a_conversation_goes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with ticking_store() as store, store.create(cwd="/") as session:
        session.append(entry.user("the first needs the long way"))

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("the long way")

        monkeypatch.setattr(tip, "prepare", refuse)
        session.append(entry.user("hello"))
        call = {"type": "function_call", "call_id": "c", "name": "t", "arguments": "{}"}
        session.append_batch(
            [entry.item({"type": "reasoning", "summary": []}, response="r"), entry.item(call, response="r")]
        )
        session.append(entry.function_call_output("c", "done"))
        assert [each.type for each in session] == ["item"] * 5
        with pytest.raises(AssertionError, match="the long way"):
            session.append(entry.item(call))


def test_a_batch_that_repeats_its_own_call_is_refused() -> None:
    with ticking_store() as store, store.create(cwd="/") as session:
        session.append(entry.user("first"))
        calls = [entry.function_call("c", "t", "{}"), entry.user("between"), entry.function_call("c", "t", "{}")]
        with pytest.raises(CallIDRepeated):
            session.append_batch(calls)
        assert len(session) == 1
