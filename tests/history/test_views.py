"""Budgets, buffers and filters, against models that try everything."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import Store
from agentsession_cas.errors import BadInput, Usage
from agentsession_cas.history import (
    Batch,
    Budget,
    Buffer,
    CasStore,
    EstimateCounter,
    LoadOptions,
    MemoryStore,
    Message,
    TiktokenCounter,
    load_filtered,
)
from agentsession_cas.history.fitting import exchanges, fit
from agentsession_cas.history.tokens import text_of

KINDS = st.lists(st.sampled_from(["user", "assistant", "call", "output", "reasoning"]), max_size=14)
COUNTER = EstimateCounter()


def conversation(kinds: list[str]) -> list[Message]:
    """Messages of these kinds; outputs answer calls that wait, the oldest first, and are left out when none does."""
    messages: list[Message] = []
    waiting: list[str] = []
    for at, kind in enumerate(kinds):
        if kind == "call":
            waiting.append(f"c{at}")
            messages.append({"type": "function_call", "call_id": f"c{at}", "name": "f", "arguments": "x" * at})
        elif kind == "output" and waiting:
            messages.append({"type": "function_call_output", "call_id": waiting.pop(0), "output": "y" * 3 * at})
        elif kind == "reasoning":
            messages.append({"type": "reasoning", "summary": [], "n": at})
        elif kind != "output":
            messages.append({"type": "message", "role": kind, "content": "z" * at})
    return messages


def whole(messages: list[Message]) -> bool:
    """Whether nothing is split: every output has its call, and every message its turn's user message if it had one."""
    calls = {each["call_id"] for each in messages if each["type"] == "function_call"}
    return all(each["call_id"] in calls for each in messages if each["type"] == "function_call_output")


def _starts(messages: list[Message]) -> list[int]:
    return [at for at, each in enumerate(messages) if each.get("role") == "user" or at == 0]


@given(KINDS, st.integers(1, 60), st.integers(1, 15))
@settings(deadline=None, max_examples=400)
def test_what_fits_is_the_longest_that_may_stand(kinds: list[str], tokens: int, count: int) -> None:
    messages = conversation(kinds)
    found = fit(messages, Budget(tokens, count), COUNTER)
    assert len(found) <= count
    assert COUNTER.count_messages(found) <= tokens
    fitting = [
        messages[at:]
        for at in _starts(messages)
        if len(messages) - at <= count and COUNTER.count_messages(messages[at:]) <= tokens
    ]
    if fitting and messages:
        assert found == fitting[0]
        return
    newest = messages[_starts(messages)[-1] :] if messages else []
    assert whole(found) or not whole(newest)
    if found and newest[0].get("role") == "user":
        assert found[0] == newest[0]
        assert found[1:] == newest[len(newest) - len(found) + 1 :]


@given(KINDS)
@settings(deadline=None)
def test_exchanges_are_whole(kinds: list[str]) -> None:
    messages = conversation(kinds)
    groups = exchanges(messages)
    assert [each for group in groups for each in group] == messages
    for at in range(len(groups)):
        rest = [each for group in groups[at:] for each in group]
        assert whole(rest)
        assert at == 0 or groups[at - 1][-1]["type"] != "reasoning"


def test_no_budget_is_no_limit() -> None:
    messages = conversation(["user", "call", "output", "assistant"] * 5)
    assert fit(messages, Budget(), COUNTER) == messages
    assert Budget().is_zero
    assert not Budget(max_messages=1).is_zero
    for wrong in (-1, None, "5", True, 2.5):
        with pytest.raises(BadInput):
            Budget(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("memory", [True, False])
@given(kinds=KINDS, most=st.integers(1, 15), tokens=st.integers(0, 60), limit=st.integers(0, 15))
@settings(deadline=None, max_examples=40)
def test_a_buffer_is_what_fits(memory: bool, kinds: list[str], most: int, tokens: int, limit: int) -> None:
    store = MemoryStore() if memory else CasStore(Store.memory())
    buffer = Buffer(store, most)
    messages = conversation(kinds)
    for message in messages:
        buffer.append("c", [message])
    cap = min(most, limit or most)
    assert buffer.load("c", Budget(tokens, limit)) == fit(messages, Budget(tokens, cap), COUNTER)
    buffer.clear("c")
    assert buffer.load("c") == []


def test_a_buffer_keeps_at_least_one() -> None:
    for wrong in (0, -1, None, "5"):
        with pytest.raises(BadInput):
            Buffer(MemoryStore(), wrong)  # type: ignore[arg-type]


def test_estimates() -> None:
    """4 ASCII characters a token, 1.5 CJK characters a token, rounded up."""
    for text, tokens in (("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("测试测", 2), ("测" * 15, 10), ("é" * 4, 2)):
        assert COUNTER.count(text) == tokens
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "abcd" * 10}]}
    assert COUNTER.count_messages([message, message]) == 2 * 14
    assert text_of({"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}) == "f\n{}"


def test_tiktoken_is_an_extra() -> None:
    """Counts when it is installed, and says how to install it when it is not."""
    if find_spec("tiktoken") is None:
        with pytest.raises(Usage, match="tiktoken"):
            TiktokenCounter("gpt-4o")
    else:
        assert TiktokenCounter("gpt-4o").count("hello world") == 2


@pytest.fixture
def loaded() -> Buffer:
    store = MemoryStore()
    turn = conversation(["user", "reasoning", "call", "output", "assistant"])
    store.append(Batch("c", "a", turn + turn))
    return Buffer(store)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, range(10)),
        ({"include_tools": True}, range(10)),
        ({"since_seq": 1}, [1, 4, 5, 6, 9]),
        ({"since_seq": 1, "include_tools": True}, range(1, 10)),
        ({"since_seq": -3, "limit_n": 50}, [0, 1, 4, 5, 6, 9]),
        ({"roles": ("user",)}, [0, 5]),
        ({"roles": ("user", "assistant"), "limit_n": 3}, [4, 5, 9]),
        ({"roles": ("assistant",), "since_seq": 5}, [9]),
        ({"limit_n": 2, "include_tools": True}, [8, 9]),
        ({"budget": Budget(max_messages=5)}, [5, 6, 9]),
    ],
)
def test_filters_in_their_order(loaded: Buffer, options: dict[str, Any], kept: Any) -> None:
    everything = loaded.load("c")
    assert load_filtered(loaded, "c", LoadOptions(**options)) == [everything[at] for at in kept]


def test_a_history_with_filters_of_its_own_is_asked() -> None:
    class Own(Buffer):
        def load_filtered(self, conversation: str, options: LoadOptions) -> list[Message]:
            return [{"type": "mine", "of": conversation}]

    assert load_filtered(Own(MemoryStore()), "c") == [{"type": "mine", "of": "c"}]
