"""The hashed request: the encoding table of openresponses.md §2 row by row, worked hashes, and the ways in and out."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import entry
from agentsession_cas.core.normalform import Form, form_item, form_part, form_reasoning, form_text, form_tool
from agentsession_cas.core.request import (
    compose,
    config_body_from_request,
    config_body_from_request_parts,
    normal_form,
    record_response_bodies,
    request_hash,
)
from agentsession_cas.core.settings import EMPTY, Settings, apply
from agentsession_cas.errors import BadEntry, BadInput

Json = dict[str, Any]

REFERENCE = Path(__file__).parents[2] / "fixtures" / "reference"
HASHES: list[Json] = json.loads((REFERENCE / "request_hashes.json").read_text())


def user(text: str = "hi") -> Json:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def message(content: Any, role: str = "user", **members: Any) -> Json:
    return {"type": "message", "role": role, "content": content, **members}


ITEMS = {
    "message whole": (message([]), message([])),
    "message string": (message("hi"), user("hi")),
    "message empty string": (message(""), user("")),
    "message assistant string": (
        message("hi", "assistant"),
        message([{"type": "output_text", "text": "hi", "annotations": []}], "assistant"),
    ),
    "message system string": (message("hi", "system"), message([{"type": "input_text", "text": "hi"}], "system")),
    "message null content": (message(None), message([])),
    "message no content": ({"type": "message", "role": "user"}, message([])),
    "message empty members": (message([], id="", status="", phase=""), message([])),
    "message null members": (message([], id=None, status=None, phase=None, acme=None), message([])),
    "message members": (
        message([], id="m", status="completed", phase="commentary"),
        message([], id="m", status="completed", phase="commentary"),
    ),
    "message unnamed": (message([], acme=[]), message([], acme=[])),
    "message without a type": ({"role": "user", "content": "hi"}, user("hi")),
    "message null type": ({"type": None, "role": "user", "content": "hi"}, user("hi")),
    "message parts": (
        message([{"type": "input_image"}, {"type": "acme:part", "x": None}, "odd"]),
        message([{"type": "input_image", "image_url": "", "detail": "auto"}, {"type": "acme:part", "x": None}, "odd"]),
    ),
    "function_call": (
        {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}", "id": "", "status": None},
        {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"},
    ),
    "function_call bare": (
        {"type": "function_call", "id": "f", "status": "completed"},
        {"type": "function_call", "call_id": "", "name": "", "arguments": "", "id": "f", "status": "completed"},
    ),
    "function_call_output string": (
        {"type": "function_call_output", "call_id": "c", "output": "", "id": None, "status": ""},
        {"type": "function_call_output", "call_id": "c", "output": ""},
    ),
    "function_call_output list": (
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": None}]},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": ""}]},
    ),
    "function_call_output empty list": (
        {"type": "function_call_output", "call_id": "c", "output": []},
        {"type": "function_call_output", "call_id": "c", "output": []},
    ),
    "reasoning": (
        {"type": "reasoning", "content": [], "encrypted_content": "", "id": "", "status": None},
        {"type": "reasoning", "summary": []},
    ),
    "reasoning null content": (
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "content": None, "id": "r"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "id": "r"},
    ),
    "reasoning parts": (
        {"type": "reasoning", "summary": None, "content": [{"type": "reasoning_text"}, {"type": "text", "n": None}]},
        {
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": ""}, {"type": "text", "text": ""}],
        },
    ),
    "compaction": (
        {"type": "compaction", "encrypted_content": "e", "id": "", "status": "", "created_by": None},
        {"type": "compaction", "encrypted_content": "e"},
    ),
    "compaction members": (
        {"type": "compaction", "id": "i", "created_by": "a"},
        {"type": "compaction", "encrypted_content": "", "id": "i", "created_by": "a"},
    ),
    "item_reference": ({"type": "item_reference", "id": "i"}, {"type": "item_reference", "id": "i"}),
    "item_reference without a type": ({"id": "i"}, {"type": "item_reference", "id": "i"}),
    "extension": (
        {"type": "acme:note", "id": None, "content": "x", "empty": []},
        {"type": "acme:note", "id": None, "content": "x", "empty": []},
    ),
    "unknown type": ({"type": "later", "content": None}, {"type": "later", "content": None}),
    "no type at all": ({"id": "i", "x": None}, {"id": "i", "x": None}),
    "type of another form": ({"type": ["x"], "n": None}, {"type": ["x"], "n": None}),
}

PARTS = {
    "output_text": (
        {"type": "output_text", "text": "t", "annotations": None, "logprobs": []},
        {"type": "output_text", "text": "t", "annotations": []},
    ),
    "output_text logprobs": (
        {"type": "output_text", "text": "t", "logprobs": [{"token": "a", "logprob": -1, "bytes": None}]},
        {
            "type": "output_text",
            "text": "t",
            "annotations": [],
            "logprobs": [{"token": "a", "logprob": -1, "bytes": None}],
        },
    ),
    "url_citation": (
        {
            "type": "output_text",
            "text": "t",
            "annotations": [
                {"type": "url_citation", "url": "u", "title": None, "start_index": 0, "end_index": 1, "x": 1},
                {"type": "acme:cite", "n": None},
            ],
        },
        {
            "type": "output_text",
            "text": "t",
            "annotations": [
                {"type": "url_citation", "url": "u", "start_index": 0, "end_index": 1, "x": 1},
                {"type": "acme:cite", "n": None},
            ],
        },
    ),
    "input_text": ({"type": "input_text", "acme": None}, {"type": "input_text", "text": ""}),
    "summary_text": ({"type": "summary_text", "text": None}, {"type": "summary_text", "text": ""}),
    "reasoning_text": ({"type": "reasoning_text", "text": "r"}, {"type": "reasoning_text", "text": "r"}),
    "text": ({"type": "text"}, {"type": "text", "text": ""}),
    "refusal": ({"type": "refusal", "x": None}, {"type": "refusal", "refusal": ""}),
    "input_image null": (
        {"type": "input_image", "image_url": None, "detail": None, "file_id": None},
        {"type": "input_image", "image_url": "", "detail": "auto"},
    ),
    "input_image empty": (
        {"type": "input_image", "detail": "", "file_id": ""},
        {"type": "input_image", "image_url": "", "detail": "auto"},
    ),
    "input_image": (
        {"type": "input_image", "image_url": "u", "detail": "low", "file_id": "f"},
        {"type": "input_image", "image_url": "u", "detail": "low", "file_id": "f"},
    ),
    "input_file empty": (
        {"type": "input_file", "filename": "", "file_data": None, "file_url": "", "file_id": ""},
        {"type": "input_file"},
    ),
    "input_file": (
        {"type": "input_file", "filename": "a", "file_data": "b", "file_url": "c", "file_id": "d"},
        {"type": "input_file", "filename": "a", "file_data": "b", "file_url": "c", "file_id": "d"},
    ),
    "input_video": ({"type": "input_video"}, {"type": "input_video", "video_url": ""}),
    "unknown": ({"type": "acme:part", "text": None}, {"type": "acme:part", "text": None}),
}

TOOLS = {
    "bare": (
        {"type": "function", "name": "t"},
        {"type": "function", "name": "t", "description": "", "parameters": None},
    ),
    "nulls": (
        {"type": "function", "name": "t", "description": None, "parameters": None, "strict": None, "acme": None},
        {"type": "function", "name": "t", "description": "", "parameters": None},
    ),
    "strict false": (
        {"type": "function", "name": "t", "description": "d", "parameters": {"n": None}, "strict": False},
        {"type": "function", "name": "t", "description": "d", "parameters": {"n": None}, "strict": False},
    ),
    "unnamed": (
        {"type": "function", "name": "t", "description": "", "parameters": {}, "acme": 1},
        {"type": "function", "name": "t", "description": "", "parameters": {}, "acme": 1},
    ),
    "extension": ({"type": "acme:search", "depth": None}, {"type": "acme:search", "depth": None}),
}


@pytest.mark.parametrize(("recorded", "normal"), ITEMS.values(), ids=ITEMS)
def test_item_in_normal_form(recorded: Json, normal: Json) -> None:
    before = copy.deepcopy(recorded)
    assert form_item(recorded) == normal
    assert form_item(normal) == normal
    assert recorded == before
    assert form_item(recorded, Form.RECORDED) is recorded


@pytest.mark.parametrize(("recorded", "normal"), PARTS.values(), ids=PARTS)
def test_part_in_normal_form(recorded: Json, normal: Json) -> None:
    assert form_part(recorded) == normal
    assert form_part(normal) == normal
    holders = [
        {"type": "message", "role": "user", "content": [recorded]},
        {"type": "function_call_output", "call_id": "c", "output": [recorded]},
        {"type": "reasoning", "summary": [], "content": [recorded]},
    ]
    for holder, member in zip(holders, ("content", "output", "content"), strict=True):
        assert form_item(holder)[member] == [normal]


@pytest.mark.parametrize(("recorded", "normal"), TOOLS.values(), ids=TOOLS)
def test_tool_in_normal_form(recorded: Json, normal: Json) -> None:
    assert form_tool(recorded) == normal
    assert form_tool(recorded, Form.RECORDED) is recorded


def test_typed_form_drops_the_unnamed_members_of_known_types_alone() -> None:
    cite = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
    text = {"type": "output_text", "text": "t", "annotations": [{**cite, "acme": 1}], "acme": 1}
    item = message([text, {"type": "acme:p", "acme": 1}], "assistant", id="m", acme=1)
    assert form_item(item, Form.TYPED) == message(
        [{"type": "output_text", "text": "t", "annotations": [cite]}, {"type": "acme:p", "acme": 1}],
        "assistant",
        id="m",
    )
    tool = {"type": "function", "name": "t", "description": "", "parameters": {"acme": 1}, "strict": False, "acme": 1}
    assert form_tool(tool, Form.TYPED) == {name: value for name, value in tool.items() if name != "acme"}
    assert form_tool({"type": "acme:t", "acme": 1}, Form.TYPED) == {"type": "acme:t", "acme": 1}
    assert form_reasoning({"effort": "low", "acme": 1}, Form.TYPED) == {"effort": "low", "summary": None}
    assert form_text({"verbosity": "low", "acme": 1}, Form.TYPED) == {"verbosity": "low", "format": {"type": "text"}}


@pytest.mark.parametrize(
    ("recorded", "normal"),
    [
        ({}, {}),
        ({"effort": None, "summary": ""}, {}),
        ({"acme": 1}, {}),
        ({"effort": "low"}, {"effort": "low", "summary": None}),
        ({"summary": "auto", "effort": ""}, {"effort": None, "summary": "auto"}),
        ({"effort": "low", "acme": 1, "other": None}, {"effort": "low", "summary": None, "acme": 1}),
    ],
)
def test_reasoning_row(recorded: Json, normal: Json) -> None:
    assert form_reasoning(recorded) == normal
    assert compose(Settings(reasoning=recorded), []).get("reasoning", {}) == normal


@pytest.mark.parametrize(
    ("recorded", "normal"),
    [
        ({}, {}),
        ({"format": None, "verbosity": ""}, {}),
        ({"verbosity": "low"}, {"format": {"type": "text"}, "verbosity": "low"}),
        ({"verbosity": "low", "format": {}}, {"format": {"type": "text"}, "verbosity": "low"}),
        ({"format": {"type": "text"}, "verbosity": None}, {"format": {"type": "text"}}),
        ({"format": {"type": "json_object", "name": "", "schema": None}}, {"format": {"type": "json_object"}}),
        (
            {
                "format": {
                    "type": "json_schema",
                    "name": "n",
                    "description": None,
                    "schema": {"n": None},
                    "strict": False,
                }
            },
            {"format": {"type": "json_schema", "name": "n", "schema": {"n": None}, "strict": False}},
        ),
        ({"format": {"type": "acme:xml", "n": None}}, {"format": {"type": "acme:xml", "n": None}}),
        ({"format": {"type": ["odd"]}}, {"format": {"type": ["odd"]}}),
    ],
)
def test_text_row(recorded: Json, normal: Json) -> None:
    assert form_text(recorded) == normal
    assert compose(Settings(text=recorded), []).get("text", {}) == normal


def test_rows_of_the_request() -> None:
    assert compose(EMPTY, []) == {"store": False}
    tool = {"type": "function", "name": "t", "description": "", "parameters": None}
    settings = Settings(model="m", instructions="i", tools=(tool,), omit={"items": ["x"]})
    assert compose(settings, [user()]) == {
        "store": False,
        "model": "m",
        "instructions": "i",
        "tools": [tool],
        "input": [user()],
    }
    parts = ({"id": "a", "text": "i"},)
    assert compose(Settings(instructions="i", instructions_parts=parts, instructions_omitted=({"id": "b"},)), []) == {
        "store": False,
        "instructions": "i",
    }


def test_extra_is_written_as_recorded_unless_a_row_has_its_name() -> None:
    empties: Json = {"include": [], "stream": False, "user": "", "metadata": {"n": None}, "acme:region": {}}
    assert compose(Settings(extra=empties), []) == {"store": False, **empties}
    taken: Json = {"store": True, "previous_response_id": "r", "input": "x", "model": "other", "tools": ["odd"]}
    assert compose(Settings(extra=taken), []) == {"store": False, "model": "other", "tools": ["odd"]}
    assert compose(Settings(model="m", extra=taken), [user()])["model"] == "m"


@pytest.mark.parametrize("case", HASHES, ids=lambda case: f"{case['session']}-{case['response_id']}")
def test_reference_hashes(case: Json) -> None:
    request = case["request"]
    assert request_hash(normal_form(request)) == case["hash"]
    replayed = apply(EMPTY, "config", config_body_from_request(request))
    assert request_hash(compose(replayed, request["input"])) == case["hash"]


def test_worked_hashes() -> None:
    minimal = {"model": "gpt-5", "input": "hi"}
    assert request_hash(normal_form(minimal)) == (
        "sha256:6ace993e374880b1c11c68f9c8a31e630cf0fb43eae1d92aec32a37dd7e72b5f"
    )
    loose = {"store": False, "model": "m", "input": [message("hi")], "tools": [{"type": "function", "name": "t"}]}
    assert request_hash(loose) == "sha256:0ed9683659596c3dac500d2a7dfdf679d6104129b99e500de65464d7bb8e860c"
    assert request_hash(normal_form(loose)) == (
        "sha256:a7fd370bdd562a711a3878728940ee27f5cc256da44447f75b5f0ca75a3041e5"
    )
    note = {"a": 2, "id": "nt_1", "status": "completed", "text": "<hi> & bye", "type": "agentturn:note", "z": 1}
    assert request_hash(normal_form({"model": "gpt-5", "input": [user("hello"), note]})) == (
        "sha256:54c271723c0ccf37d2672f2d64a1e622a2dfb19bd8b155548e548efb2f5b3276"
    )


def test_normal_form_of_a_request_as_sent() -> None:
    sent: Json = {
        "model": "m",
        "instructions": None,
        "input": "hi",
        "store": True,
        "stream": True,
        "stream_options": {"include_obfuscation": False},
        "background": False,
        "previous_response_id": "r",
        "temperature": None,
        "include": [],
        "tools": [],
        "reasoning": {},
        "metadata": {"k": None},
    }
    assert normal_form(sent) == {
        "store": False,
        "model": "m",
        "input": [user()],
        "include": [],
        "metadata": {"k": None},
    }
    assert normal_form({"input": None}) == normal_form({"input": []}) == normal_form({}) == {"store": False}


@pytest.mark.parametrize(
    "member",
    [
        {"tools": [{"type": "function", "name": "t", "v": 1}, {"type": "function", "name": "t", "v": 2}]},
        {"tools": "all"},
        {"model": 5},
        {"instructions": ["i"]},
        {"reasoning": "low"},
        {"text": ["x"]},
    ],
)
def test_a_named_member_no_setting_can_hold_goes_through_extra(member: Json) -> None:
    assert normal_form(member) == {"store": False, **member}
    assert config_body_from_request(member) == {"replace": True, "extra": member}
    assert compose(apply(EMPTY, "config", config_body_from_request(member)), []) == {"store": False, **member}


@pytest.mark.parametrize("value", [5, {"type": "message"}, ["hi"]])
def test_input_of_another_form_is_refused(value: Any) -> None:
    with pytest.raises(BadInput, match="input"):
        normal_form({"input": value})


def test_config_from_a_request() -> None:
    sent: Json = {
        "model": "m",
        "instructions": "i",
        "input": [user()],
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "high"},
        "tools": [{"type": "function", "name": "t"}],
        "store": False,
        "stream": True,
        "stream_options": {},
        "background": True,
        "previous_response_id": "r",
        "temperature": 0.5,
        "acme:region": "eu",
        "top_p": None,
        "include": [],
    }
    assert config_body_from_request(sent) == {
        "replace": True,
        "model": "m",
        "instructions": "i",
        "reasoning": {"effort": "low", "summary": None},
        "text": {"verbosity": "high", "format": {"type": "text"}},
        "tools_added": [{"type": "function", "name": "t", "description": "", "parameters": None}],
        "extra": {"temperature": 0.5, "acme:region": "eu", "include": []},
    }
    assert config_body_from_request({}) == {"replace": True}


def test_config_from_a_request_with_parts() -> None:
    parts = [{"id": "a", "text": "x", "source": "s"}, {"id": "b", "text": "y"}, {"id": "c"}]
    body = config_body_from_request_parts({"model": "m", "instructions": "x\n\ny\n\n"}, parts)
    assert body == {
        "replace": True,
        "model": "m",
        "instructions_parts": [
            {"id": "a", "text": "x", "source": "s"},
            {"id": "b", "text": "y"},
            {"id": "c", "text": ""},
        ],
    }
    assert apply(EMPTY, "config", body).instructions == "x\n\ny\n\n"
    assert config_body_from_request_parts({"model": "m"}, []) == {"replace": True, "model": "m"}


@pytest.mark.parametrize(
    "parts",
    [
        [{"id": "a", "text": "other"}],
        [{"text": "x"}],
        [{"id": "", "text": "x"}],
        [{"id": "a", "hash": "sha256:" + "0" * 64}],
        [{"keep": 1}],
        [{"id": "a", "text": "x"}, {"id": "a", "text": "x"}],
        [],
    ],
)
def test_parts_that_are_not_the_instructions_are_refused(parts: list[Json]) -> None:
    with pytest.raises(BadEntry):
        config_body_from_request_parts({"instructions": "x"}, parts)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", "user", "message"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "name", "n"]), inner, max_size=3)
    ),
    max_leaves=6,
)
requests = st.dictionaries(
    st.sampled_from(["model", "instructions", "reasoning", "text", "tools", "store", "stream", "metadata", "acme:k"]),
    values,
)


@given(requests, st.lists(st.sampled_from([user(), message("hi"), {"type": "acme:n"}]), max_size=2))
@settings(max_examples=200, deadline=None)
def test_replaying_the_config_gives_the_request_whatever_it_holds(request: Json, items: list[Json]) -> None:
    sent = {**request, "input": items}
    replayed = apply(EMPTY, "config", config_body_from_request(sent))
    assert compose(replayed, items) == normal_form(sent)


@given(st.fixed_dictionaries({"type": st.sampled_from([*ITEMS, "message", "reasoning", "function_call"])}), values)
@settings(max_examples=200, deadline=None)
def test_normal_form_is_stable(item: Json, value: Any) -> None:
    for name in ("content", "summary", "output", "role", "n"):
        once = form_item({**item, name: value})
        assert form_item(once) == once


RESPONSE: Json = {
    "id": "resp_1",
    "object": "response",
    "status": "incomplete",
    "model": "m-2026",
    "output": [{"type": "reasoning", "summary": [], "content": None}, message("a", "assistant", id="m_1")],
    "usage": {"input_tokens": 1, "acme": None},
    "incomplete_details": {"reason": "max_output_tokens"},
    "error": None,
}


def test_recording_a_response() -> None:
    request = {"model": "m", "input": "hi", "stream": True}
    *items, (type_, body) = record_response_bodies(request, RESPONSE, 840)
    assert items == [("item", {"item": item, "response": "resp_1"}) for item in RESPONSE["output"]]
    assert type_ == "response"
    assert body == {
        "response_id": "resp_1",
        "model": "m-2026",
        "status": "incomplete",
        "usage": {"input_tokens": 1, "acme": None},
        "incomplete": {"reason": "max_output_tokens"},
        "request_hash": request_hash({"store": False, "model": "m", "input": [user()]}),
        "latency_ms": 840,
    }


def test_recording_leaves_out_what_is_not_there() -> None:
    request = {"model": "m", "previous_response_id": "resp_0"}
    assert record_response_bodies(request, {"status": "failed", "output": [], "error": {"code": "x"}}) == [
        ("response", {"status": "failed", "error": {"code": "x"}})
    ]
    entries = record_response_bodies({}, {"output": [user()], "status": "completed"}, latency_ms=0)
    assert entries == [("item", {"item": user()}), ("response", {"status": "completed"})]
    store_false = "sha256:" + hashlib.sha256(b'{"store":false}').hexdigest()
    (only,) = record_response_bodies({}, {"output": [], "status": "completed"}, latency_ms=0)
    assert only == ("response", {"status": "completed", "request_hash": store_false})


class Dumped:
    """What an SDK gives: an object that says itself as JSON."""

    def __init__(self, members: Json) -> None:
        self._members = members

    def model_dump(self, *, mode: str) -> Json:
        assert mode == "json"
        return self._members


def test_objects_of_an_sdk_are_what_they_say_they_are() -> None:
    """The request, the response, and the items of one that was put together by hand."""
    request: Json = {"model": "m", "input": "hi"}
    plain = record_response_bodies(request, RESPONSE)
    assert record_response_bodies(Dumped(request), Dumped(RESPONSE)) == plain
    by_hand = {**RESPONSE, "output": [Dumped(item) for item in RESPONSE["output"]]}
    assert record_response_bodies(request, by_hand) == plain
    assert entry.config_from_request(Dumped(request)).body == entry.config_from_request(request).body


@pytest.mark.parametrize(
    ("response", "says"),
    [
        ({"id": "c", "choices": [{"message": {"role": "assistant", "content": "hi"}}]}, "no output.* but id, choices"),
        (
            {"id": "m", "type": "message", "content": [{"type": "text", "text": "hi"}]},
            "no output.* but id, type, content",
        ),
        ({}, "no output, a list of items, but nothing"),
        ({"output": None, "status": "failed"}, "no output, a list of items, but status"),
        ({"output": "hi"}, "no output"),
        ({"output": {"type": "message"}}, "no output"),
        ({"output": ["hi"]}, "item 0 of the output is a JSON object, not 'hi'"),
        (None, "the response is a JSON object, not None"),
        ("hi", "the response is a JSON object"),
        (object(), "the response is a JSON object, not an object; give a dict, or an object that has model_dump"),
    ],
)
def test_a_response_in_another_form_is_refused(response: Any, says: str) -> None:
    """Recorded, it would be a turn in which nothing was said."""
    with pytest.raises(BadInput, match=says):
        record_response_bodies({"model": "m", "input": "hi"}, response)


def test_a_request_in_the_form_of_chat_completions_is_refused() -> None:
    """Its conversation would be a setting, and its tools have no name."""
    chat: Json = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    with pytest.raises(BadInput, match=r"messages.*/messages.*append the conversation as items"):
        entry.config_from_request(chat)
    with pytest.raises(BadInput, match="messages"):
        record_response_bodies(chat, RESPONSE)
    tool: Json = {"type": "function", "function": {"name": "t", "parameters": {}}}
    search = {"type": "acme:search"}  # needs none
    with pytest.raises(BadInput, match=r"has no name \(/tools/1\)"):
        entry.config_from_request({"model": "m", "tools": [search, tool]})
    with pytest.raises(BadInput, match=r"has no name \(/tools_added/1\)"):
        entry.config(tools_added=[search, tool])
    assert entry.config(tools_added=[search]).body["tools_added"] == [search]
