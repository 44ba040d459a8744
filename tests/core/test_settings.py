"""Config replay in the order of context.md §1.1, and the checkpoint shape of §1.5."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.settings import EMPTY, Replay, Settings, apply, from_checkpoint, tool_name

Json = dict[str, Any]


def tool(name: str, **members: Any) -> Json:
    return {"type": "function", "name": name, **members}


SEARCH: Json = {"type": "acme:search", "depth": 2}
NAMED: Json = {"type": "acme:search", "name": "search"}
BEFORE = Settings(
    model="m",
    instructions="i",
    reasoning={"effort": "low", "summary": "auto"},
    text={"verbosity": "low"},
    omit={"items": ["x"]},
    tools=(tool("a"), tool("b"), SEARCH),
    extra={"temperature": 0.5, "metadata": {"k": "v"}},
)


def changed(**members: Any) -> Settings:
    """BEFORE with members changed."""
    names = ("model", "instructions", "reasoning", "text", "omit", "tools", "extra", "instructions_parts")
    return Settings(**{name: getattr(BEFORE, name) for name in names} | members)


DELTAS: dict[str, tuple[Json, Settings]] = {
    "nothing": ({}, BEFORE),
    "unknown members": ({"acme": 1, "tools": [tool("z")], "temperature": 1}, BEFORE),
    "model": ({"model": "n"}, changed(model="n")),
    "empty model": ({"model": ""}, BEFORE),
    "model of another form": ({"model": 5}, BEFORE),
    "instructions": ({"instructions": "j"}, changed(instructions="j")),
    "empty instructions": ({"instructions": ""}, changed(instructions="")),
    "reasoning whole": ({"reasoning": {"effort": "high"}}, changed(reasoning={"effort": "high"})),
    "reasoning emptied": ({"reasoning": {}}, changed(reasoning={})),
    "reasoning null": ({"reasoning": None}, BEFORE),
    "reasoning of another form": ({"reasoning": "low"}, BEFORE),
    "text whole": ({"text": {"format": {"type": "text"}}}, changed(text={"format": {"type": "text"}})),
    "remove": ({"tools_removed": ["a", "nobody"]}, changed(tools=(tool("b"), SEARCH))),
    "remove the nameless": ({"tools_removed": ["", None]}, BEFORE),
    "remove of another form": ({"tools_removed": "a"}, BEFORE),
    "remove what is no name": ({"tools_removed": [{"name": "a"}, 7, "b"]}, changed(tools=(tool("a"), SEARCH))),
    "add": ({"tools_added": [tool("c")]}, changed(tools=(tool("a"), tool("b"), SEARCH, tool("c")))),
    "add of a name in force goes last": (
        {"tools_added": [tool("a", strict=True)]},
        changed(tools=(tool("b"), SEARCH, tool("a", strict=True))),
    ),
    "add twice": (
        {"tools_added": [tool("c"), tool("c", strict=True)]},
        changed(tools=(tool("a"), tool("b"), SEARCH, tool("c", strict=True))),
    ),
    "add the nameless": ({"tools_added": [SEARCH]}, changed(tools=(tool("a"), tool("b"), SEARCH, SEARCH))),
    "an extension tool's name": (
        {"tools_added": [NAMED, {"type": "function", "name": "search"}]},
        changed(tools=(tool("a"), tool("b"), SEARCH, tool("search"))),
    ),
    "remove before add": (
        {"tools_added": [tool("a", v=2)], "tools_removed": ["a", "b"]},
        changed(tools=(SEARCH, tool("a", v=2))),
    ),
    "add of another form": ({"tools_added": ["a"]}, BEFORE),
    "extra": ({"extra": {"top_p": 1}}, changed(extra={**BEFORE.extra, "top_p": 1})),
    "extra null": ({"extra": {"temperature": None, "nobody": None}}, changed(extra={"metadata": {"k": "v"}})),
    "extra is shallow": (
        {"extra": {"metadata": {"n": None}}},
        changed(extra={"temperature": 0.5, "metadata": {"n": None}}),
    ),
    "extra empties are values": (
        {"extra": {"include": [], "stream": False}},
        changed(extra={**BEFORE.extra, "include": [], "stream": False}),
    ),
    "extra of another form": ({"extra": [1]}, BEFORE),
    "omit": ({"omit": {"reasoning": "other_models"}}, changed(omit={"items": ["x"], "reasoning": "other_models"})),
    "omit cleared": ({"omit": {}}, changed(omit={})),
    "replace": ({"replace": True}, EMPTY),
    "replace not true": ({"replace": "yes"}, BEFORE),
    "replace first": (
        {"replace": True, "model": "n", "tools_added": [tool("a")], "extra": {"x": 1}},
        Settings(model="n", tools=(tool("a"),), extra={"x": 1}),
    ),
}


@pytest.mark.parametrize(("delta", "after"), DELTAS.values(), ids=DELTAS)
def test_applying_a_delta(delta: Json, after: Settings) -> None:
    before = BEFORE.checkpoint()
    assert apply(BEFORE, "entry", delta) == after
    assert BEFORE.checkpoint() == before


def test_empty_members_become_absent() -> None:
    after = apply(BEFORE, "x", {"tools_removed": ["a", "b"], "extra": {"temperature": None, "metadata": None}})
    assert after.checkpoint()["tools"] == [SEARCH]
    assert "extra" not in after.checkpoint()
    assert EMPTY.checkpoint() == {}
    assert "tools" not in apply(Settings(tools=(tool("a"),)), "x", {"tools_removed": ["a"]}).checkpoint()


@pytest.mark.parametrize(("value", "name"), [(tool("a"), "a"), (NAMED, "search"), (SEARCH, ""), ({"name": 5}, "")])
def test_tool_name(value: Json, name: str) -> None:
    assert tool_name(value) == name


def test_checkpoint_shape() -> None:
    state = apply(
        BEFORE,
        "1",
        {
            "instructions_parts": [{"id": "a", "text": "A", "source": "s"}, {"id": "b", "hash": "sha256:" + "0" * 64}],
            "instructions": "A and b",
            "instructions_omitted": [{"id": "c", "size": 1}, {"keep": 4}],
        },
    )
    assert state.checkpoint() == {
        "model": "m",
        "instructions": "A and b",
        "instructions_parts": [{"id": "a", "text": "A", "source": "s"}, {"id": "b", "hash": "sha256:" + "0" * 64}],
        "instructions_omitted": [{"id": "c", "size": 1}, {"keep": 4}],
        "omit": {"items": ["x"]},
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "low"},
        "tools": [tool("a"), tool("b"), SEARCH],
        "extra": {"temperature": 0.5, "metadata": {"k": "v"}},
    }
    assert from_checkpoint(state.checkpoint()) == state


@pytest.mark.parametrize(
    "config",
    [
        {"model": 5, "instructions": None, "instructions_parts": ["x"], "instructions_omitted": "x", "omit": []},
        {"reasoning": "low", "text": None, "tools": [1], "extra": {"x": None}, "acme": 1},
        {"omit": {"reasoning": "someday", "images": {"keep": -1, "placeholder": ""}}},
        {"omit": {"items": [1]}},
    ],
)
def test_checkpoint_members_that_do_not_decode_are_absent(config: Json) -> None:
    assert from_checkpoint(config) == EMPTY


def test_checkpoint_resolves_no_keep() -> None:
    state = from_checkpoint(
        {"instructions_parts": [{"id": "a", "text": "A"}, {"keep": 1}], "instructions_omitted": [{"keep": 1}]}
    )
    assert state.instructions_parts == ({"id": "a", "text": "A"}, {"keep": 1})
    assert state.instructions_omitted == ({"keep": 1},)
    assert state.instructions == ""


def test_checkpoint_parts_are_the_instructions_when_it_writes_none() -> None:
    assert from_checkpoint({"instructions_parts": [{"id": "a", "text": "A"}, {"id": "b"}]}).instructions == "A\n\n"


json_deltas = st.fixed_dictionaries(
    {},
    optional={
        "replace": st.sampled_from([True, False, None]),
        "model": st.sampled_from(["", "m", "n", 5]),
        "instructions": st.sampled_from(["", "i", None]),
        "instructions_parts": st.lists(
            st.sampled_from([{"id": "a", "text": "A"}, {"id": "b", "text": "B"}, {"keep": 1}, {"keep": 2}]), max_size=3
        ),
        "instructions_omitted": st.lists(
            st.sampled_from([{"id": "o"}, {"keep": 1}, {"keep": 1, "of": "0"}]), max_size=3
        ),
        "reasoning": st.sampled_from([{}, {"effort": "low"}, None]),
        "omit": st.sampled_from([{}, {"items": ["x"]}, {"reasoning": "other_models"}, {"outputs": {"text": "t"}}]),
        "tools_added": st.lists(st.sampled_from([tool("a"), tool("b", v=1), SEARCH]), max_size=2),
        "tools_removed": st.lists(st.sampled_from(["a", "b"]), max_size=2),
        "extra": st.dictionaries(st.sampled_from("xyz"), st.sampled_from([None, 0, [], {"n": None}])),
    },
)


@given(st.lists(json_deltas, max_size=8))
@settings(max_examples=200, deadline=None)
def test_one_replay_is_a_chain_of_applies_and_a_checkpoint_carries_it(deltas: list[Json]) -> None:
    replay = Replay()
    state = EMPTY
    for n, delta in enumerate(deltas):
        replay.config(str(n), delta)
        before = state.checkpoint()
        after = apply(state, str(n), delta)
        assert state.checkpoint() == before
        state = after
    assert replay.settings() == state
    assert from_checkpoint(state.checkpoint()) == state
