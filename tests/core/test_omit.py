"""The omit object: merging and deltas by the table of context.md §1.4, and the four rules that apply it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.omit import OmitRules, Slot, apply_omit, omit_delta
from agentsession_cas.errors import BadInput

Json = dict[str, Any]


def merged(in_force: Json, *deltas: Any) -> Json:
    rules = OmitRules(in_force)
    for delta in deltas:
        rules.merge(delta)
    return rules.value()


KEEP: Json = {"keep": 2, "placeholder": "[image]"}
BEFORE: Json = {"before": "e9", "placeholder": "[image]"}
FULL: Json = {
    "reasoning": "other_models",
    "items": ["a", "b"],
    "outputs": {"text": "gone", "items": ["o"]},
    "images": KEEP,
}

MERGES: dict[str, tuple[Any, Json]] = {
    "null": (None, FULL),
    "another form": ([], FULL),
    "empty clears": ({}, {}),
    "only empty ids clear": ({"items": ["", ""]}, {}),
    "unknown members alone clear": ({"acme": 1}, {}),
    "nulls alone clear": ({"reasoning": None, "items": None, "outputs": None, "images": None}, {}),
    "empty rule clears": ({"reasoning": ""}, {}),
    "rule": ({"reasoning": "other_models"}, FULL),
    "another rule": ({"reasoning": "all"}, FULL),
    "another rule beside items": ({"reasoning": "all", "items": ["c"]}, {**FULL, "items": ["a", "b", "c"]}),
    "rule of another form": ({"reasoning": 5, "items": ["c"]}, FULL),
    "items in first-seen order": ({"items": ["c", "", "a", "c"]}, {**FULL, "items": ["a", "b", "c"]}),
    "items of another form": ({"items": ["c", 5]}, FULL),
    "items no list": ({"items": "abc"}, FULL),
    "items no list at all": ({"items": 5}, FULL),
    "outputs items of another form": ({"outputs": {"text": "cut", "items": [5]}}, FULL),
    "outputs": (
        {"outputs": {"text": "cut", "items": ["p", "o"]}},
        {**FULL, "outputs": {"text": "cut", "items": ["o", "p"]}},
    ),
    "outputs text alone": ({"outputs": {"text": "cut"}}, {**FULL, "outputs": {"text": "cut", "items": ["o"]}}),
    "outputs without a text": ({"outputs": {"items": ["p"]}}, FULL),
    "outputs text of another form": ({"outputs": {"text": None, "items": ["p"]}}, FULL),
    "outputs of another form": ({"outputs": "x"}, FULL),
    "odd outputs beside items": ({"outputs": 5, "items": ["c"]}, {**FULL, "items": ["a", "b", "c"]}),
    "images before": ({"images": BEFORE}, {**FULL, "images": BEFORE}),
    "images keep none": (
        {"images": {"keep": 0, "placeholder": ""}},
        {**FULL, "images": {"keep": 0, "placeholder": ""}},
    ),
    "images both": ({"images": {"keep": 1, "before": "e9", "placeholder": "x"}}, FULL),
    "images before another form": ({"images": {"before": 5, "placeholder": "x"}}, FULL),
    "images both, one null": ({"images": {**BEFORE, "keep": None}}, {**FULL, "images": BEFORE}),
    "images negative": ({"images": {"keep": -1, "placeholder": "x"}}, FULL),
    "images true": ({"images": {"keep": True, "placeholder": "x"}}, FULL),
    "images fraction": ({"images": {"keep": 1.5, "placeholder": "x"}}, FULL),
    "images before nothing": ({"images": {"before": "", "placeholder": "x"}}, FULL),
    "images no placeholder": ({"images": {"keep": 1}}, FULL),
    "images placeholder of another form": ({"images": {"keep": 1, "placeholder": None}}, FULL),
    "images neither": ({"images": {"placeholder": "x"}}, FULL),
    "images of another form": ({"images": 5}, FULL),
}


@pytest.mark.parametrize(("delta", "after"), MERGES.values(), ids=MERGES)
def test_merging(delta: Any, after: Json) -> None:
    before = copy.deepcopy(FULL)
    assert merged(FULL, delta) == after
    assert before == FULL


def test_merging_from_nothing() -> None:
    assert merged({}, FULL) == FULL
    assert merged({}, {"reasoning": "all"}) == {}
    assert merged({}, {"outputs": {"text": "t"}}) == {"outputs": {"text": "t"}}
    assert merged({}, {"items": ["a"], "acme": 1}) == {"items": ["a"]}


DELTAS: dict[str, tuple[Json, Json, Json | None]] = {
    "nothing": ({}, {}, None),
    "in force": (FULL, FULL, None),
    "in force, other order": ({"items": ["a", "b"]}, {"items": ["b", "a", ""]}, None),
    "first": ({}, FULL, FULL),
    "empty clears": (FULL, {}, {}),
    "empty ids clear": (FULL, {"items": [""]}, {}),
    "rule added": ({"items": ["a"]}, {"items": ["a"], "reasoning": "other_models"}, {"reasoning": "other_models"}),
    "items added": ({"items": ["a"]}, {"items": ["c", "a"]}, {"items": ["c"]}),
    "outputs added": (
        {"outputs": {"text": "t", "items": ["o"]}},
        {"outputs": {"text": "t", "items": ["o", "p"]}},
        {"outputs": {"text": "t", "items": ["p"]}},
    ),
    "outputs text": (
        {"outputs": {"text": "t", "items": ["o"]}},
        {"outputs": {"text": "u", "items": ["o"]}},
        {"outputs": {"text": "u"}},
    ),
    "outputs text from nothing": ({}, {"outputs": {"text": "t"}}, {"outputs": {"text": "t"}}),
    "images changed": ({"images": KEEP}, {"images": BEFORE}, {"images": BEFORE}),
}


@pytest.mark.parametrize(("in_force", "want", "delta"), DELTAS.values(), ids=DELTAS)
def test_delta(in_force: Json, want: Json, delta: Json | None) -> None:
    assert omit_delta(in_force, want) == delta


@pytest.mark.parametrize(
    ("in_force", "want"),
    [
        (FULL, {"items": ["a", "b"]}),
        ({"items": ["a", "b"]}, {"items": ["a"]}),
        ({"reasoning": "other_models", "items": ["a"]}, {"items": ["a", "b"]}),
        ({"outputs": {"text": "t", "items": ["o"]}}, {"outputs": {"text": "t", "items": ["p"]}}),
        ({"images": KEEP, "items": ["a"]}, {"items": ["a"]}),
        ({}, {"reasoning": "all"}),
        ({}, {"images": {"keep": -1, "placeholder": "x"}}),
        ({}, {"outputs": {"items": ["o"]}}),
        ({}, {"items": [5]}),
    ],
)
def test_no_single_delta(in_force: Json, want: Json) -> None:
    with pytest.raises(BadInput):
        omit_delta(in_force, want)


ids = st.lists(st.sampled_from("abc"), max_size=3, unique=True)
omits = st.fixed_dictionaries(
    {},
    optional={
        "reasoning": st.just("other_models"),
        "items": ids,
        "outputs": st.fixed_dictionaries({"text": st.sampled_from(["", "t", "u"])}, optional={"items": ids}),
        "images": st.sampled_from([KEEP, BEFORE]),
    },
)


def as_sets(omit: Json) -> Json:
    outputs = omit.get("outputs")
    return {
        **omit,
        "items": set(omit.get("items", ())),
        "outputs": outputs and (outputs["text"], set(outputs.get("items", ()))),
    }


@given(omits, omits)
@settings(max_examples=300, deadline=None)
def test_a_delta_gives_what_was_wanted(before: Json, want: Json) -> None:
    in_force, wanted = merged({}, before), merged({}, want)
    try:
        delta = omit_delta(in_force, want)
    except BadInput:
        # Refused only where a delta, which adds or clears all, cannot do: something goes and something stays.
        assert wanted
        assert as_sets(merged(in_force, wanted)) != as_sets(wanted)
        return
    assert as_sets(in_force if delta is None else merged(in_force, delta)) == as_sets(wanted)
    assert (delta is None) == (as_sets(in_force) == as_sets(wanted))


def image(n: int) -> Json:
    return {"type": "input_image", "image_url": f"u{n}", "detail": "auto"}


TEXT: Json = {"type": "input_text", "text": "[image]"}


def user(*parts: Any) -> Json:
    return {"type": "message", "role": "user", "content": list(parts)}


def output(value: Any) -> Json:
    return {"type": "function_call_output", "call_id": "c", "output": value}


def slots(*items: Json) -> list[Slot]:
    return [Slot(at, f"e{at}", item, reached=True) for at, item in enumerate(items)]


def sent(omit: Json, given_slots: list[Slot], **how: Any) -> tuple[list[Json], list[Json], list[Json]]:
    before = copy.deepcopy(given_slots)
    kept, omitted, replaced = apply_omit(omit, given_slots, how.get("foreign", ()), how.get("before", -1))
    assert given_slots == before
    return [slot.item for slot in kept], omitted, replaced


REASONING: Json = {"type": "reasoning", "summary": []}


def test_items_rule_comes_first() -> None:
    given_slots = slots(user(), REASONING, REASONING)
    assert sent({"items": ["e1"], "reasoning": "other_models"}, given_slots, foreign={1, 2}) == (
        [user()],
        [{"entry": "e1", "reason": "items"}, {"entry": "e2", "reason": "other_models"}],
        [],
    )


def test_items_rule_leaves_out_whatever_the_item() -> None:
    items, omitted, _ = sent({"items": ["e0", "e1", "nobody"]}, slots(user(), output("x"), user(TEXT)))
    assert items == [user(TEXT)]
    assert [report["entry"] for report in omitted] == ["e0", "e1"]


def test_outputs_rule() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}
    result = {**output([image(1)]), "id": "o", "acme": 1}
    given_slots = slots(call, result, output("kept"))
    assert sent({"outputs": {"text": "gone", "items": ["e0", "e1"]}}, given_slots) == (
        [call, {**result, "output": "gone"}, output("kept")],
        [],
        [{"entry": "e1", "reason": "outputs", "parts": 0}],
    )


def test_images_but_the_last() -> None:
    given_slots = slots(user(image(1), TEXT, image(2)), output([image(3), image(4)]), output("x"), user(image(5)))
    for keep, entries in (
        (5, {}),
        (4, {"e0": 1}),
        (3, {"e0": 2}),
        (2, {"e0": 2, "e1": 1}),
        (0, {"e0": 2, "e1": 2, "e3": 1}),
    ):
        items, omitted, replaced = sent({"images": {"keep": keep, "placeholder": "[image]"}}, given_slots)
        parts = [*items[0]["content"], *items[1]["output"], *items[3]["content"]]
        assert [part["image_url"] for part in parts if part["type"] == "input_image"] == [
            f"u{n}" for n in range(6 - keep, 6)
        ]
        assert parts.count(TEXT) == 1 + 5 - keep
        assert omitted == []
        assert replaced == [{"entry": entry, "reason": "images", "parts": n} for entry, n in entries.items()]


def test_images_before_an_entry() -> None:
    given_slots = slots(user(image(1)), user(image(2), image(3)), user(image(4)))
    rule = {"images": {"before": "e2", "placeholder": "[image]"}}
    items, _, replaced = sent(rule, given_slots, before=2)
    assert items == [user(TEXT), user(TEXT, TEXT), user(image(4))]
    assert [report["parts"] for report in replaced] == [1, 2]
    assert sent(rule, given_slots, before=-1) == ([slot.item for slot in given_slots], [], [])


def test_images_inside_a_replaced_output_and_of_a_left_out_entry_do_not_count() -> None:
    given_slots = slots(user(image(1)), output([image(2)]), user(image(3)), user(image(4)))
    omit = {
        "items": ["e3"],
        "outputs": {"text": "gone", "items": ["e1"]},
        "images": {"keep": 1, "placeholder": "[image]"},
    }
    assert sent(omit, given_slots) == (
        [user(TEXT), output("gone"), user(image(3))],
        [{"entry": "e3", "reason": "items"}],
        [
            {"entry": "e0", "reason": "images", "parts": 1},
            {"entry": "e1", "reason": "outputs", "parts": 0},
        ],
    )


def test_what_no_item_entry_gives_is_never_reached() -> None:
    given_slots = [Slot(at, "e0", item, reached=False) for at, item in enumerate((user(image(1)), output([image(2)])))]
    omit = {
        "items": ["e0"],
        "outputs": {"text": "gone", "items": ["e0"]},
        "images": {"keep": 0, "placeholder": "[image]"},
    }
    assert sent(omit, given_slots, foreign={0, 1}) == ([slot.item for slot in given_slots], [], [])


def test_a_part_that_is_no_object_is_no_image() -> None:
    given_slots = slots(user("input_image", image(1)))
    items, _, replaced = sent({"images": {"keep": 0, "placeholder": "p"}}, given_slots)
    assert items[0]["content"] == ["input_image", {"type": "input_text", "text": "p"}]
    assert replaced[0]["parts"] == 1


def test_images_elsewhere_are_not_parts() -> None:
    note = {"type": "acme:note", "content": [image(1)], "output": [image(2)], "": [image(3)]}
    strings = user()
    strings["content"] = "input_image"
    given_slots = slots(note, strings, {"content": [image(4)]})
    rule = {"images": {"keep": 0, "placeholder": "[image]"}}
    assert sent(rule, given_slots) == ([slot.item for slot in given_slots], [], [])
