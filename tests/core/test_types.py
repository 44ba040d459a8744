"""Constructors make entries a writer may append, and refuse the others; views read what is in its described form."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import entry
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.facts import CODES
from agentsession_cas.core.required import check_items, check_required, check_synthetic
from agentsession_cas.core.types.members import View
from agentsession_cas.errors import AgentSessionError, BadEntry

SESSIONS = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"
TS = "2026-01-01T00:00:00Z"
HASH = "sha256:" + "ab" * 32
SUMMARY = {"type": "message", "role": "system", "content": "short"}

Json = dict[str, Any]


def sealed(draft: Draft) -> Entry:
    """The draft as an entry of its own, after the checks of its form that an append makes."""
    check_required(draft.type, draft.body)
    check_synthetic(draft.type, draft.body)
    check_items(draft.type, draft.body)
    return Entry.from_line(Entry.seal(draft.type, draft.body, "", TS).line)


CALL = sealed(entry.function_call("c1", "bash", {"b": 1, "a": [2]}))
QUEUED = sealed(entry.queued(SUMMARY, mode="steer", trigger=entry.trigger("human", ref="m1", extra={"due": 5})))
PEER = sealed(entry.peer("c1", url="https://a", task="t", context="x"))


def text_part(text: str) -> Json:
    return {"type": "input_text", "text": text}


@pytest.mark.parametrize(
    ("draft", "body"),
    [
        (entry.user("hi"), {"item": {"type": "message", "role": "user", "content": [text_part("hi")]}}),
        (
            entry.user(["a", {"type": "input_image", "image_url": "u"}], source=entry.trigger("human")),
            {
                "item": {
                    "type": "message",
                    "role": "user",
                    "content": [text_part("a"), {"type": "input_image", "image_url": "u", "detail": "auto"}],
                },
                "source": {"kind": "human"},
            },
        ),
        (
            entry.system("s", visible=False),
            {"item": {"type": "message", "role": "system", "content": [text_part("s")]}, "visible": False},
        ),
        (
            entry.developer("d"),
            {"item": {"type": "message", "role": "developer", "content": [text_part("d")]}},
        ),
        (
            entry.assistant("yes", response="r1"),
            {
                "item": {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "yes", "annotations": []}],
                },
                "response": "r1",
            },
        ),
        (
            entry.function_call("c1", "bash", {"b": 1, "a": [2]}),
            {"item": {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"a":[2],"b":1}'}},
        ),
        (
            entry.function_call_output("c1", "done", failed=True, from_link=HASH),
            {
                "item": {"type": "function_call_output", "call_id": "c1", "output": "done"},
                "failed": True,
                "from_link": HASH,
            },
        ),
        (
            entry.function_call_output("c1", [{"type": "input_image", "image_url": "u"}]),
            {
                "item": {
                    "type": "function_call_output",
                    "call_id": "c1",
                    "output": [{"type": "input_image", "image_url": "u", "detail": "auto"}],
                }
            },
        ),
        (
            entry.item({"type": "acme:note", "z": None}, response="r", queued_from=HASH),
            {"item": {"type": "acme:note", "z": None}, "response": "r", "queued_from": HASH},
        ),
        (
            entry.response(response_id="r", model="m", status="completed", usage={"input_tokens": 1}, latency_ms=0),
            {"response_id": "r", "model": "m", "status": "completed", "usage": {"input_tokens": 1}, "latency_ms": 0},
        ),
        (
            entry.response(error={"code": "x"}, incomplete={"reason": "r"}, request_hash=HASH, attempts=2),
            {"error": {"code": "x"}, "incomplete": {"reason": "r"}, "request_hash": HASH, "attempts": 2},
        ),
        (
            entry.config(model="m", instructions="", instructions_omitted=[], omit={}, replace=True),
            {"model": "m", "instructions": "", "instructions_omitted": [], "omit": {}, "replace": True},
        ),
        (
            entry.config(
                instructions_parts=[{"keep": 2}, {"id": "a", "hash": HASH}, {"id": "b", "text": "t"}],
                reasoning={"effort": "low"},
                text={"verbosity": "low"},
                tools_added=[{"type": "function", "name": "f"}],
                tools_removed=["g"],
                extra={"temperature": None},
            ),
            {
                "instructions_parts": [{"keep": 2}, {"id": "a", "hash": HASH}, {"id": "b", "text": "t"}],
                "reasoning": {"effort": "low", "summary": None},
                "text": {"format": {"type": "text"}, "verbosity": "low"},
                "tools_added": [{"type": "function", "name": "f", "description": "", "parameters": None}],
                "tools_removed": ["g"],
                "extra": {"temperature": None},
            },
        ),
        (
            entry.compaction(HASH, SUMMARY, config={}, pinned=[SUMMARY], tokens_before=9),
            {"first_kept": HASH, "summary": SUMMARY, "config": {}, "pinned": [SUMMARY], "tokens_before": 9},
        ),
        (entry.branch_summary(HASH, SUMMARY), {"from": HASH, "summary": SUMMARY}),
        (
            entry.run_start("r1", source="resume", ref="x", trigger={"kind": "cron"}),
            {"run_id": "r1", "phase": "start", "source": "resume", "ref": "x", "trigger": {"kind": "cron"}},
        ),
        (
            entry.run_end("r1", reason="done", pending=()),
            {"run_id": "r1", "phase": "end", "reason": "done", "pending": []},
        ),
        (entry.dispatch(CALL), {"call_id": "c1", "target": CALL.id}),
        (
            entry.dispatch("c1", HASH, idempotency_key="k"),
            {"call_id": "c1", "target": HASH, "idempotency_key": "k"},
        ),
        (
            entry.proceed(CALL, by="policy", args={"x": 1}),
            {"call_id": "c1", "target": CALL.id, "verdict": "proceed", "by": "policy", "args": {"x": 1}},
        ),
        (entry.hold(CALL), {"call_id": "c1", "target": CALL.id, "verdict": "hold"}),
        (entry.reject(CALL, reason="no"), {"call_id": "c1", "target": CALL.id, "verdict": "reject", "reason": "no"}),
        (
            entry.answer("c1", HASH, by="human", reason="seen"),
            {"call_id": "c1", "target": HASH, "verdict": "answer", "by": "human", "reason": "seen"},
        ),
        (
            entry.withdrawal(CALL, reason="not sent"),
            {"call_id": "c1", "target": CALL.id, "verdict": "reject", "reason": "not sent", "withdrawn": True},
        ),
        (
            entry.drain(QUEUED),
            {"item": SUMMARY, "source": {"kind": "human", "ref": "m1", "due": 5}, "queued_from": QUEUED.id},
        ),
        (entry.label(HASH, "good"), {"target": HASH, "label": "good"}),
        (entry.leaf_label(HASH), {"target": HASH, "label": "leaf"}),
        (entry.leaf_label(""), {"target": None, "label": "leaf"}),
        (entry.clear_label(HASH), {"target": HASH, "label": None}),
        (entry.info("n", mood=1), {"name": "n", "mood": 1}),
        (
            entry.env(
                "/w",
                vcs={"system": "git", "dirty": False},
                read={"a": HASH},
                tools={"t": "1"},
                workspace=entry.workspace("container", ref="img", host="h", instance="i", extra={"zone": "z"}),
                extra={"acme:x": 1},
            ),
            {
                "cwd": "/w",
                "vcs": {"system": "git", "dirty": False},
                "files": {"read": {"a": HASH}},
                "tools": {"t": "1"},
                "workspace": {"kind": "container", "ref": "img", "host": "h", "instance": "i", "zone": "z"},
                "acme:x": 1,
            },
        ),
        (
            entry.outcome("eval", HASH, score=0, passed=False, label="judge", details=[1]),
            {"kind": "eval", "target": HASH, "score": 0, "pass": False, "label": "judge", "details": [1]},
        ),
        (entry.outcome("task"), {"kind": "task"}),
        (entry.subsession("s2", "c1"), {"rel": "subsession", "session": "s2", "call_id": "c1"}),
        (
            entry.remote_subsession("c1", url="u", task="t"),
            {"rel": "subsession", "session": "", "call_id": "c1", "url": "u", "task": "t"},
        ),
        (entry.peer("c1", session="s2"), {"rel": "peer", "session": "s2", "call_id": "c1"}),
        (
            entry.cancel_sent(PEER),
            {"rel": "peer", "session": "", "call_id": "c1", "target": PEER.id, "cancel": "sent"},
        ),
        (entry.judged_by("j", target=HASH), {"rel": "judged_by", "session": "j", "target": HASH}),
        (entry.continued_in("s2"), {"rel": "continued_in", "session": "s2"}),
        (entry.fork_of("s0"), {"rel": "fork_of", "session": "s0"}),
        (entry.custom("app", {"n": 1}, call_id="c1"), {"ns": "app", "data": {"n": 1}, "call_id": "c1"}),
        (entry.extension("acme:step", {"n": None}), {"n": None}),
    ],
    ids=lambda value: value.type if isinstance(value, Draft) else "",
)
def test_a_constructor_makes_an_entry_a_writer_may_append(draft: Draft, body: Json) -> None:
    assert draft.body == body
    assert (draft.id, draft.parent, draft.ts, list(draft.parents)) == (None, None, None, [])
    assert sealed(draft).body == body


WRONG: dict[str, Callable[[], object]] = {
    "an item_reference": lambda: entry.item({"type": "item_reference", "id": "x"}),
    "an item without a type": lambda: entry.item({"role": "user"}),
    "an item that is text": lambda: entry.item("hi"),  # type: ignore[arg-type]
    "failed on a message": lambda: entry.item({"type": "message", "role": "user", "content": []}, failed=True),
    "content that is one part": lambda: entry.user({"type": "input_text", "text": "x"}),
    "an output that is an object": lambda: entry.function_call_output("c", {"a": "x"}),  # type: ignore[dict-item]
    "a call without an id": lambda: entry.function_call("", "f", "{}"),
    "a call without a name": lambda: entry.function_call("c", "", "{}"),
    "a request hash of another form": lambda: entry.response(request_hash="abc"),
    "no attempt": lambda: entry.response(attempts=0),
    "a negative latency": lambda: entry.response(latency_ms=-1),
    "a part twice": lambda: entry.config(instructions_parts=[{"id": "a", "text": ""}, {"id": "a", "text": "b"}]),
    "a summary that is text": lambda: entry.compaction(HASH, "s", config={}),  # type: ignore[arg-type]
    "a pinned reference": lambda: entry.compaction(HASH, SUMMARY, config={}, pinned=[{"type": "item_reference"}]),
    "a null in a checkpoint": lambda: entry.compaction(HASH, SUMMARY, config={"extra": {"t": None}}),
    "a tool by name in a checkpoint": lambda: entry.compaction(HASH, SUMMARY, config={"tools": ["t"]}),
    "a compaction of nothing": lambda: entry.compaction("", SUMMARY, config={}),
    "a branch left without a name": lambda: entry.branch_summary("", SUMMARY),
    "a run without an id": lambda: entry.run_start(""),
    "a run of another source": lambda: entry.run_start("r", source="retry"),
    "a run ended for another reason": lambda: entry.run_end("r", reason="finished", pending=[]),
    "a pending list that is text": lambda: entry.run_end("r", reason="done", pending="c1"),
    "another mode": lambda: entry.queued(SUMMARY, mode="now"),
    "a drain of something else": lambda: entry.drain(CALL),
    "a dispatch of no call": lambda: entry.dispatch(QUEUED),
    "a call and a target": lambda: entry.dispatch(CALL, HASH),
    "a dispatch without a target": lambda: entry.dispatch("c1"),
    "another verdict": lambda: entry.decision(CALL, verdict="maybe"),
    "another decider": lambda: entry.hold(CALL, by="cat"),
    "a reject without a reason": lambda: entry.reject(CALL, reason=""),
    "a withdrawn hold": lambda: entry.decision(CALL, verdict="hold", withdrawn=True),
    "a label without a target": lambda: entry.label("", "x"),
    "a label without text": lambda: entry.label(HASH, ""),
    "another kind of outcome": lambda: entry.outcome("vibe"),
    "a score that is no number": lambda: entry.outcome("eval", score=float("nan")),
    "another workspace": lambda: entry.workspace("cloud"),
    "a member of the format as an extra": lambda: entry.env(extra={"cwd": "/x"}),
    "a member of a trigger as an extra": lambda: entry.trigger("k", extra={"ref": "x"}),
    "a subsession without a session": lambda: entry.subsession("", "c1"),
    "a subsession without a call": lambda: entry.subsession("s", ""),
    "a callee without a url": lambda: entry.remote_subsession("c1", url=""),
    "a peer without a url or a session": lambda: entry.peer("c1"),
    "a task without a url": lambda: entry.peer("c1", session="s", task="t"),
    "a notice about a notice": lambda: entry.cancel_sent(sealed(entry.cancel_sent(PEER))),
    "a notice about a fork": lambda: entry.cancel_sent(sealed(entry.fork_of("s"))),
    "a notice about a call": lambda: entry.cancel_sent(CALL),
    "a judge without a session": lambda: entry.judged_by(""),
    "custom state of nobody": lambda: entry.custom(""),
    "an extension without a namespace": lambda: entry.extension("step", {}),
    "an extension of nothing": lambda: entry.extension(":step", {}),
}


@pytest.mark.parametrize("build", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_entry_is_hard_to_build(build: Callable[[], object]) -> None:
    with pytest.raises(BadEntry):
        build()


def test_config_from_request_holds_the_settings_in_normal_form() -> None:
    request = {
        "model": "m",
        "instructions": "one\n\ntwo",
        "input": "hi",
        "tools": [{"type": "function", "name": "f"}],
        "temperature": 0.5,
        "stream": True,
    }
    tool = {"type": "function", "name": "f", "description": "", "parameters": None}
    whole = {"replace": True, "model": "m", "tools_added": [tool], "extra": {"temperature": 0.5}}
    assert entry.config_from_request(request).body == {**whole, "instructions": "one\n\ntwo"}
    parts = [{"id": "a", "text": "one", "source": "s"}, {"id": "b", "text": "two"}]
    assert entry.config_from_request(request, parts=parts).body == {**whole, "instructions_parts": parts}
    with pytest.raises(BadEntry):
        entry.config_from_request(request, parts=parts[:1])


# --- views -----------------------------------------------------------------------------------------------------------


def properties(view: View) -> dict[str, Any]:
    """Every property of a view, read."""
    names = [name for kind in type(view).__mro__ for name, each in vars(kind).items() if isinstance(each, property)]
    return {name: getattr(view, name) for name in names}


def test_views_read_what_is_there() -> None:
    read: dict[str, tuple[Entry, Json]] = {
        "item": (
            sealed(entry.function_call_output("c1", "x", failed=True)),
            {"kind": "function_call_output", "call_id": "c1", "failed": True, "visible": True, "source": None},
        ),
        "decision": (
            sealed(entry.withdrawal(CALL, reason="no", by="human")),
            {"verdict": "reject", "by": "human", "reason": "no", "withdrawn": True, "args": None, "target": CALL.id},
        ),
        "link": (PEER, {"rel": "peer", "url": "https://a", "task": "t", "context": "x", "cancel": False, "target": ""}),
        "notice": (sealed(entry.cancel_sent(PEER)), {"cancel": True, "target": PEER.id, "url": ""}),
        "queued": (QUEUED, {"mode": "steer", "item": SUMMARY, "trigger": {"kind": "human", "ref": "m1", "due": 5}}),
        "run": (sealed(entry.run_end("r", reason="done", pending=["c"])), {"phase": "end", "pending": ["c"]}),
        "label": (sealed(entry.leaf_label("")), {"target": "", "label": "leaf", "synthetic": False}),
        "response": (sealed(entry.response(attempts=3)), {"attempts": 3, "request_hash": "", "latency_ms": None}),
        "outcome": (sealed(entry.outcome("eval", score=1, passed=True)), {"score": 1, "passed": True, "kind": "eval"}),
    }
    for held, expected in read.values():
        assert expected.items() <= properties(entry.view(held)).items()


@pytest.mark.parametrize(
    ("data", "calls"),
    [
        ({"usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}, 1),
        ({"usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}, "attempts": 3}, 3),
        ({"usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}, "attempts": 0}, 1),
        ({"usage": {"input_tokens": 1}}, 0),
        ({"usage": 5}, 0),
        ([], 0),
        (None, 0),
    ],
)
def test_custom_entries_record_model_calls_by_their_usage(data: object, calls: int) -> None:
    view = entry.view(sealed(entry.custom("app", data)))
    assert isinstance(view, entry.CustomView)
    assert view.model_calls == calls


small = st.integers(-3, 3)
odd = (
    st.none() | st.booleans() | small | st.text(st.characters(codec="utf-8"), max_size=3) | st.lists(small, max_size=2)
)
FORMS = ("item", "target", "label", "score", "pass", "usage", "attempts", "url", "cancel", "rel", "files", "tools")
LISTS = ("data", "workspace", "pending", "extra", "omit", "args", "instructions_parts", "instructions_omitted")
names = st.sampled_from((*FORMS, *LISTS, "withdrawn"))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([*CODES, "acme:x", "later"]), st.dictionaries(names, odd | st.dictionaries(names, odd)))
def test_a_view_reads_any_body(type_: str, body: Json) -> None:
    held = Entry.seal(type_, body, "", TS)
    properties(entry.view(held))
    assert held.body == body


def test_members_in_another_form_read_as_absent() -> None:
    held = Entry.seal("response", {"attempts": True, "latency_ms": 1.5, "usage": [], "request_hash": "x"}, "", TS)
    read = properties(entry.view(held))
    assert [read[name] for name in ("attempts", "latency_ms", "usage", "request_hash")] == [1, None, None, ""]
    item = Entry.seal("item", {"item": {"type": "message"}, "failed": True, "visible": 0, "source": "x"}, "", TS)
    read = properties(entry.view(item))
    assert [read[name] for name in ("failed", "visible", "source")] == [False, True, None]
    held = Entry.seal("decision", {"verdict": "hold", "withdrawn": True, "by": "cat"}, "", TS)
    read = properties(entry.view(held))
    assert [read[name] for name in ("withdrawn", "by")] == [False, ""]


@pytest.mark.parametrize("path", sorted(SESSIONS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_reference_entry_has_its_view(path: Path) -> None:
    for line in path.read_bytes().splitlines()[1:]:
        try:
            held = Entry.from_line(line)
        except AgentSessionError:
            continue
        view = entry.view(held)
        assert type(view).__name__.removesuffix("View").lower() == held.type.replace("_", "")
        assert view.body == {k: v for k, v in json.loads(line).items() if k not in ("type", "id", "parent", "ts")}
        properties(view)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (None, None, True),
        (None, {}, False),
        ({}, {"kind": "", "ref": ""}, True),
        ({"kind": "local"}, {"kind": "local", "ref": ""}, True),
        ({"kind": "local"}, {"kind": "local", "host": ""}, False),
        ({"kind": "local", "host": "a"}, {"kind": "local", "host": "b"}, False),
        ({"kind": "local", "z": [1.0]}, {"z": [1], "kind": "local"}, True),
    ],
)
def test_a_workspace_is_substituted_when_any_member_differs(one: Json, other: Json, same: bool) -> None:
    assert entry.same_workspace(one, other) is same
    assert entry.same_workspace(other, one) is same
