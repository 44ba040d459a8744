"""The request a response answered, and the verdict on its recorded hash (format.md §6, openresponses.md §2)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.normalform import Form
from agentsession_cas.core.normalise import normalised_body
from agentsession_cas.core.outputs import (
    Verdict,
    output_positions,
    request_context,
    request_hash_for,
    verify_response,
)
from agentsession_cas.core.request import config_body_from_request, record_response_bodies, request_hash
from agentsession_cas.errors import BadInput, BadJSON, HashMismatch, NoHash, OmitDivergence
from tests.helpers.paths import REFERENCE, Built, Step, config, image, item, reference, said, text

Json = dict[str, Any]

HASHES: list[Json] = json.loads((REFERENCE / "request_hashes.json").read_text())


@pytest.mark.parametrize("case", HASHES, ids=lambda case: f"{case['session']}-{case['response_id']}")
def test_reference_requests(case: Json) -> None:
    source = reference(case["session"].removesuffix(".jsonl"))
    found = [at for at in range(len(source)) if source.entry(at).body.get("response_id") == case["response_id"]]
    context = request_context(source, found[0])
    assert context.request_hash() == case["hash"]
    assert canonical(context.request()) == canonical(case["request"])


@pytest.mark.parametrize(
    ("name", "verified", "unhashed"),
    [
        ("basic", 2, 0),
        ("branch", 3, 0),
        ("compaction", 3, 0),
        ("fork", 2, 0),
        ("normalised", 0, 1),
        ("omit", 4, 0),
        ("parts", 3, 0),
        ("runs", 2, 0),
    ],
)
def test_reference_verdicts(name: str, verified: int, unhashed: int) -> None:
    source = reference(name)
    verdicts = Counter(
        verify_response(source, at).verdict for at in range(len(source)) if source.entry(at).type == "response"
    )
    assert verdicts == Counter({Verdict.VERIFIED: verified, Verdict.NO_HASH: unhashed})


def test_outputs_of_a_response() -> None:
    built = Built(item("other", response="r"), item("asked"))
    first = built.add(*item("one", response="r"))
    built.add("info", {"name": "between"})
    built.add(*config(model="n"))
    second = built.add(*item("one", response="r"))
    response = built.add("response", {"response_id": "r"})
    assert output_positions(built.source, response) == [first, second]
    context = request_context(built.source, response)
    assert said(context) == ["other", "asked"]
    assert context.entries == [built.id(at) for at in (0, 1, 3, 4)]
    assert context.settings.model == "n"


@pytest.mark.parametrize(
    ("outputs", "response", "count"),
    [
        ([item("a", response="r")], {}, 0),
        ([item("a", response="")], {"response_id": ""}, 0),
        ([item("a")], {"response_id": "r"}, 0),
        ([item("a", response="q")], {"response_id": "r"}, 0),
        ([item("a", response="r"), item("b", response="q")], {"response_id": "r"}, 0),
        ([item("a", response="r"), item("b")], {"response_id": "r"}, 0),
        ([item("a", response="r"), ("response", {"response_id": "r"})], {"response_id": "r"}, 1),
        ([item("a", response=5)], {"response_id": 5}, 0),
    ],
)
def test_what_is_an_output(outputs: list[Step], response: Json, count: int) -> None:
    built = Built(item("asked"), *outputs, ("response", response))
    assert len(output_positions(built.source, len(built.source) - 1)) == count


def test_outputs_before_a_compaction_are_dropped_by_identity() -> None:
    built = Built(item("asked"))
    answer = built.add(*item("answer", response="r"))
    built.add("compaction", {"first_kept": built.id(answer), "summary": text("s"), "config": {}})
    response = built.add("response", {"response_id": "r"})
    assert said(request_context(built.source, response)) == ["s"]


def test_only_a_response_has_a_request() -> None:
    built = Built(item("a"))
    for call in (request_context, verify_response):
        with pytest.raises(BadInput):
            call(built.source, 0)


def recorded(hash_: str | None, *steps: Step) -> Built:
    built = Built(*steps, item("answer", response="r"))
    built.add("response", {"response_id": "r"} | ({"request_hash": hash_} if hash_ is not None else {}))
    return built


LOOSE: list[Step] = [
    config(
        model="m",
        tools_added=[{"type": "function", "name": "t"}],
        reasoning={"effort": "low", "acme": 1},
        text={"verbosity": "low", "acme": 1},
    ),
    ("item", {"item": {"type": "message", "role": "user", "content": "hi", "acme": 1}}),
]
SENT: dict[Form, Json] = {
    Form.RECORDED: {
        "store": False,
        "model": "m",
        "tools": [{"type": "function", "name": "t"}],
        "reasoning": {"effort": "low", "acme": 1},
        "text": {"verbosity": "low", "acme": 1},
        "input": [{"type": "message", "role": "user", "content": "hi", "acme": 1}],
    },
    Form.NORMAL: {
        "store": False,
        "model": "m",
        "tools": [{"type": "function", "name": "t", "description": "", "parameters": None}],
        "reasoning": {"effort": "low", "summary": None, "acme": 1},
        "text": {"format": {"type": "text"}, "verbosity": "low", "acme": 1},
        "input": [{**text("hi"), "acme": 1}],
    },
    Form.TYPED: {
        "store": False,
        "model": "m",
        "tools": [{"type": "function", "name": "t", "description": "", "parameters": None}],
        "reasoning": {"effort": "low", "summary": None},
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "input": [text("hi")],
    },
}


@pytest.mark.parametrize("form", Form)
def test_verified_in_each_form(form: Form) -> None:
    built = recorded(request_hash(SENT[form]), *LOOSE)
    found = verify_response(built.source, len(built.source) - 1)
    assert found.verdict is (Verdict.VERIFIED if form is Form.NORMAL else Verdict.OTHER_FORM)
    assert found.form is form
    assert found.ok
    assert found.recorded == request_hash(SENT[form])
    assert found.rebuilt == request_hash(SENT[Form.NORMAL])
    found.require()


@pytest.mark.parametrize("hash_", [None, "", 5])
def test_no_hash(hash_: Any) -> None:
    built = recorded(hash_, *LOOSE)
    found = verify_response(built.source, len(built.source) - 1)
    assert found.verdict is Verdict.NO_HASH
    with pytest.raises(NoHash):
        found.require()


def test_mismatch() -> None:
    for hash_ in ("sha256:" + "0" * 64, "odd"):
        built = recorded(hash_, *LOOSE)
        found = verify_response(built.source, len(built.source) - 1)
        assert (found.verdict, found.form) == (Verdict.MISMATCH, None)
        with pytest.raises(HashMismatch) as caught:
            found.require()
        assert not isinstance(caught.value, OmitDivergence)


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize("rule", ["items", "images"])
def test_omit_divergence(form: Form, rule: str) -> None:
    picture = {"type": "message", "role": "user", "content": [image("u")]}
    first = Built(("item", {"item": picture}))
    omit = {"items": [first.id(0)]} if rule == "items" else {"images": {"keep": 0, "placeholder": "-"}}
    sent = {**SENT[form], "input": [picture, *SENT[form]["input"]]}
    built = recorded(request_hash(sent), ("item", {"item": picture}), *LOOSE, config(omit=omit))
    found = verify_response(built.source, len(built.source) - 1)
    assert (found.verdict, found.form) == (Verdict.OMIT_DIVERGENCE, form)
    with pytest.raises(OmitDivergence):
        found.require()


def test_an_omit_that_changed_nothing_is_no_divergence() -> None:
    built = recorded("sha256:" + "0" * 64, *LOOSE, config(omit={"items": ["nobody"]}))
    assert verify_response(built.source, len(built.source) - 1).verdict is Verdict.MISMATCH


@pytest.mark.parametrize("rule", ["items", "images"])
def test_a_hash_of_neither_request_is_no_divergence(rule: str) -> None:
    """Something was left out, and the recorded hash is that of another request altogether."""
    picture = {"type": "message", "role": "user", "content": [image("u")]}
    first = Built(("item", {"item": picture}))
    omit = {"items": [first.id(0)]} if rule == "items" else {"images": {"keep": 0, "placeholder": "-"}}
    built = recorded("sha256:" + "0" * 64, ("item", {"item": picture}), *LOOSE, config(omit=omit))
    found = verify_response(built.source, len(built.source) - 1)
    assert (found.verdict, found.form) == (Verdict.MISMATCH, None)
    with pytest.raises(HashMismatch) as caught:
        found.require()
    assert not isinstance(caught.value, OmitDivergence)


def test_a_recorded_response_verifies() -> None:
    built = Built()
    request = {
        "model": "m",
        "instructions": "i",
        "input": "hi",
        "tools": [{"type": "function", "name": "t"}],
        "top_p": 1,
    }
    answer: Json = {"type": "reasoning", "id": "rs", "summary": [], "content": None, "acme": {"n": None}}
    reply = {"id": "r1", "status": "completed", "output": [answer]}
    built.add("config", config_body_from_request(request))
    built.add(*item("hi"))
    for type_, body in record_response_bodies(request, reply):
        built.add(type_, body)
    built.add(*item("more"))
    again = built.at().request()
    for type_, body in record_response_bodies({**again, "stream": True}, {**reply, "id": "r2"}):
        built.add(type_, body)
    assert [verify_response(built.source, at).verdict for at in (3, 6)] == [Verdict.VERIFIED] * 2
    assert request_hash_for(built.source, 5, "r2") == built.source.entry(6).body["request_hash"]
    assert request_hash_for(built.source, -1, "r") == request_hash({"store": False})


def test_a_request_no_line_could_hold_is_hashed_as_its_entries_hold_it() -> None:
    request: Json = {
        "model": "m",
        "instructions": "cut \ud83d",
        "input": [{"type": "message", "role": "user", "content": "\udc00"}, {**text("x"), "acme": 2**53 + 1}],
        "seed": 2**53 + 1,
        "tools": [{"type": "function", "name": "t", "description": 2**60 + 1}],
    }
    built = Built(("config", normalised_body("config", config_body_from_request(request))))
    for each in request["input"]:
        built.add("item", normalised_body("item", {"item": each}))
    for type_, body in record_response_bodies(request, {"id": "r", "status": "completed", "output": []}):
        built.add(type_, body)
    assert verify_response(built.source, 3).verdict is Verdict.VERIFIED
    with pytest.raises(BadJSON):
        record_response_bodies({"temperature": float("nan")}, {"output": []})
