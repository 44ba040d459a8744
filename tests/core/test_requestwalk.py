"""All responses of a session in one walk: the verdicts are those of rebuilding each request whole (format.md §6)."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.context import build_context
from agentsession_cas.core.normalform import Form
from agentsession_cas.core.outputs import Verdict, output_positions, verify_response
from agentsession_cas.core.tree import Session
from agentsession_cas.core.verify import verify
from agentsession_cas.errors import FirstKept
from tests.helpers.tape import Tape

WRONG = "sha256:" + "0" * 64


def report(tape: Tape) -> dict[str, Any]:
    """The verify report on a session made by hand."""
    return verify(Session(tape.header, tape.source, leaf=tape.id(tape.at)))


CHECKPOINTS: list[dict[str, Any]] = [{}, {"config": {"model": "m2"}}, {"config": {}}]
CONFIGS: list[dict[str, Any]] = [
    {"model": "m1"},
    {"model": "m2"},
    {"replace": True, "model": "m1"},
    {"instructions": "Be brief."},
    {"extra": {"include": ["x"], "temperature": 1}},
    {"extra": {"include": None}},
    {"omit": {"reasoning": "other_models"}},
    {"omit": {}},
    {"omit": {"images": {"keep": 1, "placeholder": "gone"}}},
]
ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": "hi"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi", "note": 1}]},
    {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "data:x"}]},
    {"type": "reasoning", "summary": [], "id": "rs"},
    {"type": "function_call_output", "call_id": "c1", "output": "long"},
    {"type": "acme:thing", "b": 1, "a": None},
]
STEP = st.tuples(
    st.sampled_from(["item", "item", "output", "config", "omit", "response", "response", "compaction", "summary"]),
    st.integers(0, 60),
)


def _grow(steps: list[tuple[str, int]]) -> tuple[Tape, list[int]]:
    tape = Tape(records=())
    tape.add("config", {"model": "m1"})
    responses = []
    for kind, pick in steps:
        if pick % 6 == 0:
            tape.branch(pick % len(tape.source))
        some = tape.id(pick % len(tape.source))
        if kind == "item":
            tape.add("item", {"item": ITEMS[pick % len(ITEMS)]})
        elif kind == "output":
            tape.add("item", {"item": ITEMS[3 + pick % 2], "response": f"r{pick % 3}"})
        elif kind == "config":
            tape.add("config", CONFIGS[pick % len(CONFIGS)])
        elif kind == "omit":
            rule = {"items": [some]} if pick % 2 else {"outputs": {"text": "cut", "items": [some]}}
            tape.add("config", {"omit": rule})
        elif kind == "compaction":
            config = CHECKPOINTS[pick % 3]
            tape.add("compaction", {"first_kept": some, "summary": ITEMS[0], "pinned": [ITEMS[1]], **config})
        elif kind == "summary":
            tape.add("branch_summary", {"from": some, "summary": ITEMS[0]})
        else:
            responses.append(tape.add("response", _response(tape, pick)))
    return tape, responses


def _response(tape: Tape, pick: int) -> dict[str, Any]:
    """A response whose recorded hash is right, right in another form, of the request without omit, wrong or absent.

    It follows a bare one of the same id, whose request is its own: no item stands between.
    """
    body: dict[str, Any] = {"response_id": f"r{pick % 3}"}
    bare = tape.add("response", body)
    if pick % 8 > 5:
        return body if pick % 8 == 6 else {**body, "request_hash": WRONG}
    outputs = frozenset(output_positions(tape.source, bare))
    try:
        context = build_context(tape.source, tape.source.parent(bare), without=outputs, apply_rules=pick % 8 != 5)
    except FirstKept:
        return {**body, "request_hash": WRONG}
    return {**body, "request_hash": context.request_hash(list(Form)[pick % 3])}


CODES = {
    Verdict.VERIFIED: None,
    Verdict.NO_HASH: None,
    Verdict.OTHER_FORM: "other_form",
    Verdict.MISMATCH: "hash_mismatch",
    Verdict.OMIT_DIVERGENCE: "omit_divergence",
}


@settings(max_examples=250, deadline=None)
@given(st.lists(STEP, min_size=8, max_size=40))
def test_one_walk_finds_what_each_rebuilt_request_shows(steps: list[tuple[str, int]]) -> None:
    tape, responses = _grow(steps)
    expected: dict[str, str] = {}
    for position in responses:
        try:
            code = CODES[verify_response(tape.source, position).verdict]
        except FirstKept:
            code = "hash_mismatch"
        if code is not None:
            expected[tape.id(position)] = code
    problems = report(tape)["problems"]
    found = {problem["entry"]: problem["code"] for problem in problems if problem["code"] in CODES.values()}
    assert found == expected


def test_a_long_session_costs_its_entries() -> None:
    tape = Tape(records=())
    tape.add("config", {"model": "m1", "omit": {"reasoning": "other_models"}})
    for number in range(1500):
        tape.user(f"turn {number}")
        tape.response(f"r{number}", request_hash=current_hash(tape) if number % 500 == 499 else WRONG)
    found = report(tape)
    assert found["responses"] == {"verified": 3, "no_hash": 0, "mismatched": 1497, "other_form": 0}


def current_hash(tape: Tape) -> str:
    """The hash of the request a response next on the path answers."""
    return build_context(tape.source, tape.at).request_hash()
