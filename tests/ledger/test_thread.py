"""Turns, threads and views: the tree, its walk, its JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.errors import BadInput, BadTimestamp
from agentsession_cas.ledger import (
    Artifact,
    MemoryRepository,
    Metadata,
    Reasoning,
    RecordedThread,
    Role,
    State,
    Text,
    Thread,
    ToolCall,
    ToolResult,
    TraversalControl,
    Turn,
    View,
    generate_turn_id,
    prepend,
    register,
)
from agentsession_cas.ledger.turn import artifact_of

NOW = "2026-01-31T12:00:00Z"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ARTIFACTS = st.builds(
    artifact_of,
    st.builds(
        lambda kind, rest: {**rest, "kind": kind},
        st.sampled_from(["text", "tool_call", "mine:x"]) | NAMES,
        st.dictionaries(TEXT, JSON, max_size=3),
    ),
)
EXTRA = st.dictionaries(TEXT.map(lambda name: f"x{name}"), JSON, max_size=2)
TURNS = st.builds(
    Turn,
    NAMES,
    TEXT,
    st.sampled_from(list(Role)) | TEXT,
    st.lists(ARTIFACTS, max_size=3).map(tuple),
    st.sampled_from(["", NOW, "2026-01-31T12:00:00.10+02:00"]),
    st.builds(Metadata, st.sampled_from(["", *TraversalControl]), EXTRA),
    EXTRA,
)


def _thread() -> Thread:
    return Thread(clock=lambda: NOW)


def _said(state: State) -> list[str]:
    return [block.content for turn in state.turns() for block in turn.artifacts if isinstance(block, Text)]


@given(TURNS)
@settings(deadline=None, max_examples=200)
def test_a_turn_survives_json(turn: Turn) -> None:
    assert Turn.from_json(json.loads(json.dumps(turn.to_json()))) == turn


def test_the_json_of_a_turn() -> None:
    """An id always; what is empty is left out; the order of the struct."""
    assert Turn("t", role="user").to_json() == {"id": "t", "role": "user", "artifacts": []}
    turn = Turn("t", "p", Role.TOOL, (Text("hi"),), NOW, Metadata(TraversalControl.SKIP))
    assert list(turn.to_json()) == ["id", "parent_id", "role", "artifacts", "timestamp", "metadata"]
    assert turn.to_json()["artifacts"] == [{"kind": "text", "content": "hi"}]
    assert turn.to_json()["metadata"] == {"control": "skip"}


def test_null_and_absent_are_empty() -> None:
    """As Go reads them; and its zero time is none."""
    members = {"id": "t", "artifacts": None, "metadata": None, "parent_id": None, "timestamp": "0001-01-01T00:00:00Z"}
    assert Turn.from_json(members) == Turn("t", role="")


def test_a_datetime_is_a_timestamp() -> None:
    with_zone: Any = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert Turn("t", timestamp=with_zone).timestamp == NOW


@pytest.mark.parametrize(
    "members",
    [{}, {"id": ""}, {"id": 5}, {"id": "t", "role": 5}, {"id": "t", "artifacts": [{}]}, {"id": "t", "artifacts": {}},
     {"id": "t", "artifacts": [{"kind": 5}]}, {"id": "t", "metadata": []}, {"id": "t", "parent_id": 1}],
)  # fmt: skip
def test_what_is_no_turn(members: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Turn.from_json(members)


def test_what_json_cannot_carry_is_refused_at_once() -> None:
    for value in (float("nan"), "\ud800", {1, 2}, b"x"):
        with pytest.raises(BadInput):
            Artifact("mine", {"value": value})
    with pytest.raises(BadInput):
        Turn("t", "\ud800")
    with pytest.raises(BadTimestamp):
        Turn("t", timestamp="yesterday")


def test_views_of_known_kinds() -> None:
    call = artifact_of({"kind": "tool_call", "id": "c", "name": "f", "arguments": "{ }", "new": 1})
    assert isinstance(call, ToolCall)
    assert (call.id, call.name, call.arguments, call.get("new")) == ("c", "f", "{ }", 1)
    assert call.to_json() == {"kind": "tool_call", "id": "c", "name": "f", "arguments": "{ }", "new": 1}
    result = artifact_of(ToolResult("c", "no", is_error=True).to_json())
    assert isinstance(result, ToolResult)
    assert (result.tool_call_id, result.content, result.is_error) == ("c", "no", True)
    assert artifact_of(Reasoning("so").to_json()) == Reasoning("so")
    assert type(artifact_of({"kind": "unknown"})) is Artifact


def test_a_kind_can_be_registered() -> None:
    @register
    class Chart(Artifact):
        __slots__ = ()
        KIND = "test:chart"

        @property
        def points(self) -> int:
            return len(self.get("points", []))

    chart = artifact_of({"kind": "test:chart", "points": [1, 2]})
    assert isinstance(chart, Chart)
    assert chart.points == 2
    for wrong in (Artifact, str, 5):
        with pytest.raises(BadInput):
            register(wrong)  # type: ignore[type-var]


def test_nothing_handed_out_changes_what_is_kept() -> None:
    points = [1]
    block = Artifact("mine", {"points": points})
    points.append(2)
    block.get("points").append(3)
    block.to_json()["points"].append(4)
    assert block.to_json() == {"kind": "mine", "points": [1]}
    thread = _thread()
    thread.append(Role.USER, block)
    thread.turns().clear()
    thread.all_turns().clear()
    assert len(thread.turns()) == len(thread.all_turns()) == 1


def test_append_moves_the_tip_and_saving_does_not() -> None:
    thread = _thread()
    first = thread.append(Role.USER, Text("hi"))
    second = thread.append(Role.ASSISTANT, Text("hello"), Text("there"))
    assert (first.parent_id, second.parent_id, thread.current_tip) == ("", first.id, second.id)
    assert (second.timestamp, _said(thread)) == (NOW, ["hi", "hello", "there"])
    thread.save_turn(Turn("other", first.id))
    assert thread.current_tip == second.id
    assert [turn.id for turn in thread.all_turns()] == [first.id, second.id, "other"]
    thread.set_current_tip(first.id)
    assert _said(thread) == ["hi"]


def _chain(*controls: str) -> Thread:
    thread = _thread()
    for number, control in enumerate(controls):
        parent = f"{number - 1}" if number else ""
        thread.save_turn(Turn(f"{number}", parent, artifacts=(Text(f"{number}"),), metadata=Metadata(control)))
    thread.set_current_tip(f"{len(controls) - 1}")
    return thread


@given(st.lists(st.sampled_from(["", "continue", "stop", "skip", "unheard of"]), min_size=1, max_size=12))
@settings(deadline=None)
def test_the_walk_as_a_fold_over_the_path(controls: list[str]) -> None:
    """Everything behind the last stop, without what is skipped."""
    stops = [number for number, control in enumerate(controls) if control == "stop"]
    begin = stops[-1] if stops else 0
    wanted = [f"{number}" for number in range(begin, len(controls)) if controls[number] != "skip"]
    assert _said(_chain(*controls)) == wanted


def test_a_missing_parent_ends_the_walk() -> None:
    thread = _chain("", "", "")
    thread.set_parent("1", "gone")
    assert _said(thread) == ["1", "2"]
    thread.set_current_tip("gone")
    assert thread.turns() == []


@pytest.mark.parametrize("again", ["0", "1", "2"])
def test_a_cycle_ends_the_walk_and_is_reported(again: str, caplog: pytest.LogCaptureFixture) -> None:
    thread = _chain("", "", "")
    assert thread.cycle() == ""
    thread.set_parent("0", again)
    with caplog.at_level(logging.WARNING):
        assert _said(thread) == ["0", "1", "2"]
    assert thread.cycle() == again
    assert f"turn {again}" in caplog.text


def test_unknown_turns_are_no_ops() -> None:
    thread = _chain("")
    thread.set_control("x", "skip")
    thread.set_parent("x", "0")
    assert [turn.id for turn in thread.all_turns()] == ["0"]


def test_meta_is_shared_by_its_handles() -> None:
    thread = _thread()
    one, two = thread.meta(), thread.meta()
    one.set("a", "1")
    two.all().clear()
    assert (two.get("a"), two.get("b"), two.all()) == ("1", None, {"a": "1"})


def test_views_show_and_the_base_grows() -> None:
    thread = _chain("")
    shown = [Turn("v", artifacts=(Text("shown"),))]
    view = View(thread, shown)
    shown.clear()
    before = prepend(view, [Turn("w", artifacts=(Text("before"),))])
    before.append(Role.USER, Text("new"))
    before.meta().set("a", "1")
    assert (_said(view), _said(before), _said(thread)) == (["shown"], ["before", "shown"], ["0", "new"])
    assert thread.meta().get("a") == "1"
    assert _said(prepend(thread, [Turn("w", artifacts=(Text("before"),))])) == ["before", "0", "new"]


def test_a_view_of_nothing_is_the_base_itself() -> None:
    thread = _chain("")
    view = View(thread, [Turn("v")])
    assert View(thread, []) is thread
    assert prepend(thread, ()) is thread
    assert View(view, []) is view
    assert prepend(view, []) is view
    assert len(view.turns()) == 1


def test_turn_ids() -> None:
    ids = {generate_turn_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(each) == 16 and int(each, 16) >= 0 for each in ids)


@pytest.mark.parametrize("value", [None, 5, b"x", [], object()])
def test_wrong_values_at_the_door(value: Any) -> None:
    thread = _thread()
    acts: list[Callable[[Any], object]] = [
        thread.save_turn,
        thread.set_current_tip,
        lambda x: thread.append(x),
        lambda x: thread.append("user", x),
        lambda x: thread.set_control(x, "skip"),
        lambda x: thread.set_control("x", x),
        lambda x: thread.set_parent("x", x),
        lambda x: thread.meta().set("x", x),
        lambda x: View(thread, [x]),
        lambda x: RecordedThread(MemoryRepository(), x),
        Turn,
        artifact_of,
    ]
    for act in acts:
        with pytest.raises(BadInput):
            act(value)
    assert thread.all_turns() == []
