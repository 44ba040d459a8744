"""What a model call receives (context.md §1.4, §1.5), what it costs to know, and a slow second implementation."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.context import (
    Context,
    build_context,
    context_at,
    settings_at,
    unresolved_configs,
    unresolved_of,
)
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.memory import MemorySource
from agentsession_cas.core.request import request_hash
from agentsession_cas.core.settings import EMPTY, Settings, Unresolved, apply, from_checkpoint
from agentsession_cas.core.source import path_positions
from agentsession_cas.errors import FirstKept
from tests.helpers.paths import REFERENCE, Built, Step, config, image, item, reasoning, reference, said, text

Json = dict[str, Any]


# --- building ---------------------------------------------------------------------------------------------------------


def test_universal_root() -> None:
    assert context_at(MemorySource(), -1) == Context(EMPTY, [], [], [], [], [])


def test_entries_that_contribute_nothing_are_selected() -> None:
    built = Built(config(model="m"), item("a"), ("info", {"name": "n"}), ("response", {}), ("acme:x", {}), item("b"))
    context = built.at()
    assert said(context) == ["a", "b"]
    assert context.entries == [built.id(at) for at in range(6)]
    assert context.item_entries == [built.id(1), built.id(5)]
    assert context.settings == Settings(model="m")


def test_branches_do_not_meet() -> None:
    built = Built(item("a"), item("b"))
    built.add(*config(model="m"), parent=0)
    summary = built.add("branch_summary", {"from": built.id(1), "summary": text("was b", "system")})
    assert said(built.at(1)) == ["a", "b"]
    assert said(built.at(summary)) == ["a", "was b"]
    assert built.at(summary).item_entries == [built.id(0), built.id(summary)]


def compacted(kept_from: int, *rest: Step, **members: Any) -> Built:
    """config m, a, config n, b, then a compaction keeping from a position, then the rest."""
    built = Built(config(model="m", extra={"x": 1}), item("a"), config(model="n"), item("b"))
    built.add("compaction", {"first_kept": built.id(kept_from), "summary": text("sum", "system"), **members})
    for step in rest:
        built.add(*step)
    return built


def test_compaction_order() -> None:
    built = compacted(3, item("c"), config={"model": "k"}, pinned=[text("p"), text("q")])
    context = built.at()
    assert said(context) == ["sum", "p", "q", "b", "c"]
    assert context.item_entries == [built.id(at) for at in (4, 4, 4, 3, 5)]
    assert context.entries == [built.id(at) for at in (4, 3, 5)]


def test_checkpoint_starts_the_settings_and_the_kept_configs_are_not_replayed() -> None:
    built = compacted(1, config(extra={"y": 2}), config={"model": "k"})
    assert built.at().settings == Settings(model="k", extra={"y": 2})
    assert said(built.at()) == ["sum", "a", "b"]
    assert settings_at(built.source, 5) == built.at().settings
    assert settings_at(built.source, 3) == Settings(model="n", extra={"x": 1})


def test_empty_checkpoint_is_one() -> None:
    assert compacted(1, config={}).at().settings == EMPTY


@pytest.mark.parametrize("members", [{}, {"config": None}, {"config": "odd"}])
def test_without_a_checkpoint_the_configs_before_count(members: Json) -> None:
    built = compacted(3, config(extra={"y": 2}), **members)
    assert built.at().settings == Settings(model="n", extra={"x": 1, "y": 2})


def test_an_earlier_checkpoint_counts_where_the_last_compaction_has_none() -> None:
    built = compacted(1, config(extra={"y": 2}), item("c"), config={"model": "k"})
    built.add("compaction", {"first_kept": built.id(6), "summary": text("again")})
    assert built.at().settings == Settings(model="k", extra={"y": 2})


def test_an_earlier_compaction_in_the_window_contributes_nothing() -> None:
    built = compacted(3, item("c"), config={"model": "k"}, pinned=[text("p")])
    built.add("compaction", {"first_kept": built.id(3), "summary": text("again"), "config": {"model": "z"}})
    context = built.at()
    assert said(context) == ["again", "b", "c"]
    assert context.entries == [built.id(at) for at in (6, 3, 4, 5)]


def test_first_kept_may_be_any_entry_before() -> None:
    assert said(compacted(0, config={}).at()) == ["sum", "a", "b"]
    assert said(compacted(2, config={}).at()) == ["sum", "b"]


def test_first_kept_off_the_path() -> None:
    built = Built(item("a"), item("b"))
    off_path = built.add(*item("c"), parent=0)
    for first_kept in (built.id(off_path), "nobody", "sha256:" + "0" * 64, None, 5):
        body = {"first_kept": first_kept, "summary": text("s"), "config": {}}
        at = built.add("compaction", body, parent=1)
        inside = built.add(*item("d"), parent=at)
        for position in (at, inside):
            with pytest.raises(FirstKept) as caught:
                context_at(built.source, position)
            assert caught.value.where == built.id(at)
        assert settings_at(built.source, inside) == EMPTY
    built.add("compaction", {"first_kept": built.id(1), "summary": text("s"), "config": {}})
    assert said(built.at()) == ["s", "b", "d"]


def test_items_are_as_recorded_and_the_request_in_normal_form() -> None:
    loose = {"type": "message", "role": "user", "content": "hi", "acme": None}
    context = Built(("config", {"tools_added": [{"type": "function", "name": "t"}]}), ("item", {"item": loose})).at()
    assert context.items == [loose]
    request = {
        "store": False,
        "tools": [{"type": "function", "name": "t", "description": "", "parameters": None}],
        "input": [text("hi")],
    }
    assert context.request() == request
    assert context.request_json() == canonical(request)
    assert context.request_hash() == request_hash(request)


# --- omit -------------------------------------------------------------------------------------------------------------

RULE = {"reasoning": "other_models"}

OTHER_MODELS: dict[str, tuple[list[Step], list[int]]] = {
    "same model": ([config(model="m"), reasoning(), config(omit=RULE)], []),
    "other model": ([config(model="m"), reasoning(), config(model="n", omit=RULE)], [1]),
    "back again": ([config(model="m"), reasoning(), config(model="n", omit=RULE), config(model="m")], []),
    "both ways": (
        [config(model="m"), reasoning(), config(model="n", omit=RULE), reasoning(), config(model="m")],
        [3],
    ),
    "no response": ([config(model="m"), ("item", {"item": {"type": "reasoning"}}), config(model="n", omit=RULE)], []),
    "empty response": ([config(model="m"), reasoning(""), config(model="n", omit=RULE)], []),
    "no model known": ([reasoning(), config(model="n", omit=RULE)], []),
    "no model at the end": ([config(model="m"), reasoning(), config(replace=True, omit=RULE)], []),
    "replace resets": ([config(model="m"), config(replace=True), reasoning(), config(model="n", omit=RULE)], []),
    "empty model is none": ([config(model="m"), config(model=""), reasoning(), config(model="n", omit=RULE)], [2]),
    "another rule alone": ([config(model="m"), reasoning(), config(model="n", omit={"items": ["nobody"]})], []),
    "a model of another form is none": (
        [config(model="n"), config(model=5), reasoning(), config(omit=RULE)],
        [],
    ),
    "a message is no reasoning": ([config(model="m"), item("a", response="r"), config(model="n", omit=RULE)], []),
    "the response's own model is not read": (
        [config(model="m"), reasoning(), ("response", {"model": "n", "response_id": "r"}), config(omit=RULE)],
        [],
    ),
}


@pytest.mark.parametrize(("steps", "left_out"), OTHER_MODELS.values(), ids=OTHER_MODELS)
def test_other_models(steps: list[Step], left_out: list[int]) -> None:
    built = Built(*steps)
    context = built.at()
    assert context.omitted == [{"entry": built.id(at), "reason": "other_models"} for at in left_out]
    assert context.entries == [built.id(at) for at in range(len(steps))]
    assert not set(context.item_entries) & {built.id(at) for at in left_out}


@pytest.mark.parametrize(
    ("before", "checkpoint", "left_out"),
    [
        ([config(model="m")], {"model": "n", "omit": RULE}, True),
        ([config(model="n")], {"model": "n", "omit": RULE}, False),
        ([], {"model": "n", "omit": RULE}, False),
        ([config(model="m"), config(replace=True)], {"model": "n", "omit": RULE}, False),
        ([config(model="m")], {"omit": RULE}, False),
    ],
)
def test_other_models_in_a_kept_window(before: list[Step], checkpoint: Json, left_out: bool) -> None:
    built = Built(*before, item("first"))
    kept = built.add(*reasoning())
    built.add("compaction", {"first_kept": built.id(kept), "summary": text("s"), "config": checkpoint})
    assert built.at().omitted == ([{"entry": built.id(kept), "reason": "other_models"}] if left_out else [])


@pytest.mark.parametrize(
    ("compaction", "end", "left_out"),
    [
        ({"config": {"model": "n"}}, {"omit": RULE}, False),
        ({"config": {"model": "n"}}, {"omit": RULE, "model": "m"}, True),
        ({"config": {}}, {"omit": RULE, "model": "m"}, False),
        ({}, {"omit": RULE}, False),
        ({}, {"omit": RULE, "model": "n"}, True),
    ],
)
def test_other_models_behind_a_compaction_are_those_its_checkpoint_says(
    compaction: Json, end: Json, left_out: bool
) -> None:
    built = Built(config(model="m"), item("first"))
    built.add("compaction", {"first_kept": built.id(1), "summary": text("s"), **compaction})
    thought = built.add(*reasoning())
    built.add(*config(**end))
    assert built.at().omitted == ([{"entry": built.id(thought), "reason": "other_models"}] if left_out else [])


@pytest.mark.parametrize(("checkpoint", "left_out"), [({"model": "k"}, True), ({}, False)])
def test_other_models_looks_no_further_than_an_earlier_checkpoint(checkpoint: Json, left_out: bool) -> None:
    built = Built(config(model="m"), item("a"))
    built.add("compaction", {"first_kept": built.id(1), "summary": text("s"), "config": checkpoint})
    kept = built.add(*reasoning())
    built.add("compaction", {"first_kept": built.id(kept), "summary": text("s"), "config": {"model": "n"}})
    built.add(*config(omit=RULE))
    assert built.at().omitted == ([{"entry": built.id(kept), "reason": "other_models"}] if left_out else [])


def test_omit_at_the_end_is_evaluated_over_everything_selected() -> None:
    built = Built(item("a"), item("b"))
    built.add(*config(omit={"items": [built.id(0), "nobody"]}))
    built.add(*item("c"))
    assert said(built.at()) == ["b", "c"]
    assert built.at().omitted == [{"entry": built.id(0), "reason": "items"}]
    assert said(built.at(1)) == ["a", "b"]
    built.add(*config(omit={}))
    assert said(built.at()) == ["a", "b", "c"]


def test_building_without_the_rules() -> None:
    built = Built(item("a"))
    built.add(*config(omit={"items": [built.id(0)]}))
    assert said(build_context(built.source, 1, apply_rules=False)) == ["a"]


def test_images_before_an_entry_of_the_path() -> None:
    picture = {"type": "message", "role": "user", "content": [image("u")]}
    built = Built(("item", {"item": picture}), ("info", {"name": "n"}), ("item", {"item": picture, "acme": 1}))
    off_path = built.add(*item("off"), parent=1)
    for before, parts in ((0, []), (1, [0]), (2, [0]), (off_path, [])):
        at = built.add(*config(omit={"images": {"before": built.id(before), "placeholder": "-"}}), parent=2)
        assert built.at(at).replaced == [{"entry": built.id(n), "reason": "images", "parts": 1} for n in parts]
        assert built.at(at).items == [text("-") if n in parts else picture for n in (0, 2)]


def test_images_before_a_compaction() -> None:
    picture = {"type": "message", "role": "user", "content": [image("u")]}
    built = Built(("item", {"item": picture}), ("item", {"item": picture, "acme": 1}))
    fold = built.add("compaction", {"first_kept": built.id(1), "summary": picture, "pinned": [picture], "config": {}})
    built.add("item", {"item": picture, "acme": 2})
    built.add(*config(omit={"images": {"before": built.id(fold), "placeholder": "-"}}))
    assert built.at().items == [picture, picture, text("-"), picture]
    assert built.at().replaced == [{"entry": built.id(1), "reason": "images", "parts": 1}]
    built.add(*config(omit={"images": {"before": built.id(0), "placeholder": "-"}}))
    assert built.at().replaced == []


def test_pins_and_summaries_are_never_reached() -> None:
    picture = {"type": "message", "role": "user", "content": [image("u")]}
    built = Built(item("a"))
    built.add("branch_summary", {"from": built.id(0), "summary": picture})
    built.add("compaction", {"first_kept": built.id(1), "summary": picture, "pinned": [picture], "config": {}})
    ids = [built.id(1), built.id(2)]
    built.add(*config(omit={"items": ids, "images": {"keep": 0, "placeholder": "-"}}))
    context = built.at()
    assert context.items == [picture] * 3
    assert (context.omitted, context.replaced) == ([], [])


# --- cost -------------------------------------------------------------------------------------------------------------


def test_record_entries_and_what_is_compacted_away_load_no_body() -> None:
    built = Built(config(model="m"))
    for n in range(50):
        built.add(*item(f"old {n}"))
        built.add("response", {"response_id": f"r{n}"})
    kept = built.add(*item("kept"))
    built.add("dispatch", {"call_id": "c", "target": built.id(kept)})
    fold = built.add("compaction", {"first_kept": built.id(kept), "summary": text("s"), "config": {"model": "m"}})
    for type_ in ("response", "info", "acme:x"):
        built.add(type_, {})
    last = built.add(*item("last"))
    assert said(built.at()) == ["s", "kept", "last"]
    assert set(built.loads) == {kept, fold, last}
    settings_at(built.source, last)
    assert set(built.loads) == {kept, fold, last}


def test_the_model_of_a_kept_window_is_looked_for_only_when_it_matters() -> None:
    built = Built(config(model="m"), config(extra={"x": 1}), item("a"))
    kept = built.add(*item("kept"))
    fold = built.add("compaction", {"first_kept": built.id(kept), "summary": text("s"), "config": {"omit": RULE}})
    built.add(*config(model="n"))
    built.at()
    assert not {0, 1, 2} & set(built.loads)
    thought = built.add(*reasoning(), parent=kept)
    body = {"first_kept": built.id(thought), "summary": text("s"), "config": {"model": "n", "omit": RULE}}
    built.add("compaction", body)
    assert built.at().omitted == [{"entry": built.id(thought), "reason": "other_models"}]
    assert {0, 1} <= set(built.loads)
    assert 2 not in built.loads
    assert fold in built.loads


def test_long_chains_are_walked_not_recursed() -> None:
    built = Built(config(model="m"), item("a"))
    for n in range(20_000):
        built.add("info", {"name": str(n)})
    context = built.at()
    assert said(context) == ["a"]
    assert len(context.entries) == 20_002
    assert len(built.loads) == 2


# --- a slow second implementation -------------------------------------------------------------------------------------


def slow_omit(omit: Json, path: list[Entry], chosen: list[Entry], given_items: list[Json]) -> tuple[Any, ...]:
    """Rules 1 to 4 one after the other, each over everything (context.md §1.4)."""
    model = ""
    models = {}
    for entry in path:
        if entry.type == "compaction" and isinstance(entry.body.get("config"), dict):
            model = entry.body["config"].get("model", "")
        if entry.type == "config":
            model = entry.body.get("model") or ("" if entry.body.get("replace") else model)
        models[entry.id] = model
    omitted, replaced, sent = [], [], []
    for entry, thing in zip(chosen, given_items, strict=True):
        other = models[entry.id] not in ("", model) and model != ""
        foreign = thing["type"] == "reasoning" and entry.body.get("response") and other
        if entry.type == "item" and entry.id in omit.get("items", []):
            omitted.append((entry.id, "items"))
        elif entry.type == "item" and omit.get("reasoning") and foreign:
            omitted.append((entry.id, "other_models"))
        elif (
            entry.type == "item"
            and thing["type"] == "function_call_output"
            and entry.id in omit.get("outputs", {}).get("items", [])
        ):
            replaced.append((entry.id, 0))
            sent.append((entry, {**thing, "output": omit["outputs"]["text"]}))
        else:
            sent.append((entry, json.loads(json.dumps(thing))))
    images: list[tuple[Entry, list[Json], int]] = [
        (entry, parts or [], n)
        for entry, thing in sent
        if entry.type == "item"
        for parts in [thing.get("content") if thing["type"] == "message" else thing.get("output")]
        for n, part in enumerate(parts if isinstance(parts, list) else [])
        if part["type"] == "input_image"
    ]
    rule = omit.get("images", {})
    ids = [entry.id for entry in path]
    if "keep" in rule:
        images = images[: max(0, len(images) - rule["keep"])]
    else:
        before = ids.index(rule["before"]) if rule.get("before") in ids else 0
        images = [found for found in images if ids.index(found[0].id) < before]
    for entry, parts, n in images:
        parts[n] = {"type": "input_text", "text": rule["placeholder"]}
        replaced.append((entry.id, 1))
    return sent, omitted, replaced


def slow_context(path: list[Entry]) -> Context:
    """The algorithm of context.md §1.5 over a whole path, the plain way."""
    state = EMPTY
    folds = [n for n, entry in enumerate(path) if entry.type == "compaction"]
    for entry in path:
        if entry.type == "config":
            state = apply(state, entry.id, entry.body)
        elif entry.type == "compaction" and isinstance(entry.body.get("config"), dict):
            state = from_checkpoint(entry.body["config"])
    chosen: list[Entry] = []
    things: list[Json] = []
    entries = list(path)
    window = path
    if folds:
        fold = path[folds[-1]]
        ids = [entry.id for entry in path[: folds[-1]]]
        if fold.body["first_kept"] not in ids:
            raise FirstKept("not on the path")
        window = path[ids.index(fold.body["first_kept"]) : folds[-1]] + path[folds[-1] + 1 :]
        entries = [fold, *window]
        things = [fold.body["summary"], *fold.body.get("pinned", [])]
        chosen = [fold] * len(things)
    for entry in window:
        if entry.type in ("item", "branch_summary"):
            chosen.append(entry)
            things.append(entry.body["item" if entry.type == "item" else "summary"])
    sent, omitted, replaced = slow_omit(state.omit, path, chosen, things)
    totals: dict[str, int] = {}
    for id_, parts in replaced:
        totals[id_] = totals.get(id_, 0) + parts
    return Context(
        state,
        [thing for _, thing in sent],
        [entry.id for entry in entries],
        [entry.id for entry, _ in sent],
        [{"entry": id_, "reason": reason} for id_, reason in omitted],
        [
            {"entry": entry.id, "reason": "images" if totals[entry.id] else "outputs", "parts": totals[entry.id]}
            for entry, _ in sent
            if entry.type == "item" and entry.id in totals
        ],
    )


def steps(draw: Callable[..., Any], ids: list[str]) -> Step:
    """One entry, naming ids that exist, or none."""
    some = st.sampled_from([*ids, "nobody"])
    kind = draw(
        st.sampled_from(["user", "think", "output", "config", "config", "omit", "compaction", "summary", "record"])
    )
    parts = st.lists(st.sampled_from([image("u"), {"type": "input_text", "text": "t"}]), max_size=3)
    if kind == "user":
        return "item", {"item": {"type": "message", "role": "user", "content": draw(parts)}}
    if kind == "think":
        return reasoning(draw(st.sampled_from(["", "r1", "r2"])))
    if kind == "output":
        value = draw(st.one_of(st.just("text"), parts))
        return "item", {"item": {"type": "function_call_output", "call_id": "c", "output": value}}
    if kind == "config":
        body = {"model": draw(st.sampled_from(["", "m", "n"])), "extra": {"k": draw(st.sampled_from([None, 1, 2]))}}
        return "config", body | ({"replace": True} if draw(st.integers(0, 5)) == 0 else {})
    if kind == "omit":
        listed = st.lists(some, max_size=2)
        rules = {
            "reasoning": st.just("other_models"),
            "items": listed,
            "outputs": st.builds(lambda items: {"text": "gone", "items": items}, listed),
            "images": st.one_of(
                st.builds(lambda n: {"keep": n, "placeholder": "-"}, st.integers(0, 2)),
                st.builds(lambda id_: {"before": id_, "placeholder": "-"}, some),
            ),
        }
        return "config", {"omit": draw(st.fixed_dictionaries({}, optional=rules))}
    if kind == "compaction":
        body = {"first_kept": draw(some), "summary": text("sum")}
        if draw(st.booleans()):
            body["config"] = draw(st.sampled_from([{}, {"model": "m"}, {"model": "n", "omit": RULE}]))
        if draw(st.booleans()):
            body["pinned"] = [{"type": "message", "role": "user", "content": [image("pin")]}]
        return "compaction", body
    if kind == "summary":
        return "branch_summary", {"from": "x", "summary": text("branch")}
    record: Step = draw(st.sampled_from([("response", {"response_id": "r1"}), ("info", {"name": "n"}), ("acme:x", {})]))
    return record


@st.composite
def sessions(draw: Callable[..., Any]) -> Built:
    built = Built()
    parents = [-1]
    for n in range(draw(st.integers(1, 16))):
        above = draw(st.sampled_from(parents[-8:])) if draw(st.integers(0, 4)) == 0 else parents[-1]
        near = [built.id(at) for at in path_positions(built.source, above)]
        type_, body = steps(draw, near)
        parents.append(built.add(type_, {**body, "n": n}, parent=above))
    return built


@given(sessions())
@settings(max_examples=300, deadline=None)
def test_equals_the_slow_implementation(built: Built) -> None:
    for position in range(len(built.source)):
        path = [built.source.entry(at) for at in path_positions(built.source, position)]
        before = [entry.content for entry in path]
        try:
            expected = slow_context(path)
        except FirstKept:
            with pytest.raises(FirstKept):
                context_at(built.source, position)
            continue
        assert context_at(built.source, position) == expected
        assert settings_at(built.source, position) == expected.settings
        assert [canonical(entry.body) for entry in path] == before


# --- reference files --------------------------------------------------------------------------------------------------


def without_empties(value: Any) -> Any:
    """An absent member and an empty one are equal."""
    if isinstance(value, dict):
        members = {name: without_empties(member) for name, member in value.items()}
        return {name: member for name, member in members.items() if member not in (None, "", [], {})}
    return [without_empties(element) for element in value] if isinstance(value, list) else value


CONTEXTS = [
    (path.stem, leaf, expected)
    for path in sorted((REFERENCE / "context").glob("*.json"))
    for leaf, expected in json.loads(path.read_text()).items()
]


@pytest.mark.parametrize(
    ("name", "leaf", "expected"), CONTEXTS, ids=[f"{name}-{leaf[7:15]}" for name, leaf, _ in CONTEXTS]
)
def test_reference_contexts(name: str, leaf: str, expected: Json) -> None:
    source = reference(name)
    context = context_at(source, source.find(leaf))
    assert without_empties(context.settings.checkpoint()) == without_empties(expected["settings"])
    assert without_empties(context.items) == without_empties(expected["items"])
    assert context.entries == expected["entries"]
    assert context.item_entries == expected["item_entries"]
    assert context.omitted == expected.get("omitted", [])
    assert context.replaced == expected.get("replaced", [])


def test_reference_first_kept() -> None:
    source = reference("bad-first-kept")
    with pytest.raises(FirstKept, match="zzzz"):
        context_at(source, 1)


# --- what a path cannot resolve ---------------------------------------------------------------------------------------


def test_unresolved_configs() -> None:
    built = Built(config(instructions_omitted=[{"id": "a"}]))
    first = built.id(0)
    good = built.add(*config(instructions_omitted=[{"keep": 1, "of": first}]))
    bad_of = built.add(*config(instructions_omitted=[{"keep": 2, "of": first}]))
    bad_part = built.add(*config(instructions_parts=[{"keep": 1}], instructions="i"))
    both = built.add(*config(instructions_parts=[{"keep": 2}], instructions_omitted=[{"keep": 1, "of": "nobody"}]))
    built.add("compaction", {"first_kept": built.id(good), "summary": text("s")})
    built.add("custom", {"ns": "acme", "config": {}})
    still = built.add(*config(instructions_omitted=[{"keep": 1, "of": first}]))
    built.add("compaction", {"first_kept": built.id(good), "summary": text("s"), "config": {}})
    gone = built.add(*config(instructions_omitted=[{"keep": 1, "of": first}]))
    assert unresolved_configs(built.source, gone) == [
        (bad_of, Unresolved.OF),
        (bad_part, Unresolved.PART),
        (both, Unresolved.PART | Unresolved.OF),
        (gone, Unresolved.OF),
    ]
    assert unresolved_of(built.source, gone) == [bad_of, both, gone]
    assert unresolved_of(built.source, still) == [bad_of, both]
    assert unresolved_configs(built.source, -1) == []
