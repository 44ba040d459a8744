"""Windows over whole turns, against a model that tries every suffix."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.errors import InvalidWindow, WindowTooSmall
from agentsession_cas.history import Batch, MemoryStore, Message, WindowReader
from agentsession_cas.history.turns import split_turns

KINDS = st.lists(st.sampled_from(["user", "assistant", "system", "developer", "call", "output"]), max_size=14)


def _message(kind: str, at: int) -> Message:
    if kind in ("call", "output"):
        return {"type": f"function_call{'_output' * (kind == 'output')}", "call_id": "c", "at": at}
    return {"type": "message", "role": kind, "content": f"{at}"}


def _window(messages: list[Message], limit: int) -> list[Message]:
    store = MemoryStore()
    if messages:
        store.append(Batch("c", "a", messages))
    return WindowReader(store, limit).read("c")


@given(KINDS, st.integers(1, 16))
@settings(deadline=None, max_examples=300)
def test_the_longest_suffix_of_whole_turns(kinds: list[str], limit: int) -> None:
    messages = [_message(kind, at) for at, kind in enumerate(kinds)]
    system = [each for each in messages if each.get("role") in ("system", "developer")]
    rest = [each for each in messages if each not in system]
    starts = [at for at, each in enumerate(rest) if each.get("role") == "user" or at == 0]
    left = limit - bool(system)
    fitting = [rest[at:] for at in starts if len(rest[at:]) <= left]
    if (rest and not fitting) or left < 0:
        with pytest.raises(WindowTooSmall):
            _window(messages, limit)
        return
    found = _window(messages, limit)
    assert found[bool(system) :] == (fitting[0] if fitting else [])
    assert len(found) <= limit
    if system:
        assert found[0]["role"] == system[0]["role"]
        assert found[0]["content"] == "\n\n".join(each["content"] for each in system)


@pytest.mark.parametrize("limit", [0, -1, None, "5", 2.0, True])
def test_a_window_holds_a_message(limit: Any) -> None:
    with pytest.raises(InvalidWindow):
        WindowReader(MemoryStore(), limit)


def test_a_window_only_reads() -> None:
    window = WindowReader(MemoryStore(), 5)
    assert not hasattr(window, "append")
    assert not hasattr(window, "clear")


def test_system_messages_of_parts_are_merged_part_by_part() -> None:
    parts = [{"type": "input_text", "text": "b"}]
    first = {"type": "message", "role": "system", "content": "a", "id": "m"}
    found = _window([first, _message("user", 1), {**first, "content": parts}], 3)
    assert found[0] == {**first, "content": [{"type": "input_text", "text": "a"}, *parts]}


def test_turns() -> None:
    messages = [_message(kind, at) for at, kind in enumerate(["assistant", "user", "call", "output", "user"])]
    assert [len(turn) for turn in split_turns(messages)] == [1, 3, 1]
