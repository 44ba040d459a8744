"""Identities, batches, receipts: what is the same and what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.errors import (
    AgentSessionError,
    BadInput,
    InvalidAppendId,
    InvalidBatch,
    InvalidConversationId,
    InvalidReceipt,
)
from agentsession_cas.history import AppendId, Batch, ConversationId, Receipt
from agentsession_cas.history.encoding import decode, encode

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)
MESSAGES = st.lists(
    st.dictionaries(TEXT, JSON, max_size=3).map(lambda rest: {**rest, "type": "x"}), min_size=1, max_size=3
)


def _text(messages: str) -> str:
    return f'{{"conversation":"c","append_id":"a","messages":{messages}}}'


def _digest(content: str) -> str:
    return Batch.from_json(_text(f'[{{"type":"x","content":{content}}}]')).digest


@pytest.mark.parametrize(("kind", "error"), [(ConversationId, InvalidConversationId), (AppendId, InvalidAppendId)])
def test_ids_are_checked_once(kind: Any, error: type[AgentSessionError]) -> None:
    for right in ("customer-42", "a b/c", "测试", "é" * 256, "\U0001f600"):
        assert kind(right) == right
        assert kind(kind(right)) is not None
    for wrong in ("", "a\x00", "\x1f", "\x7f", "\x85", "\ud800", "x" * 513, "é" * 257, None, 5, b"x"):
        with pytest.raises(error):
            kind(wrong)


@given(MESSAGES)
@settings(deadline=None, max_examples=200)
def test_a_batch_survives_json(messages: list[dict[str, Any]]) -> None:
    batch = Batch("c", "a", messages)
    again = Batch.from_json(batch.to_json())
    assert (again, again.digest, again.encoded, again.messages) == (batch, batch.digest, batch.encoded, batch.messages)
    assert json.loads(batch.encoded) == messages


@given(JSON, st.randoms())
@settings(deadline=None, max_examples=200)
def test_order_and_white_space_do_not_matter(value: Any, random: Any) -> None:
    """A value spelled another way, numbers apart, is the same."""

    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            names = list(value)
            random.shuffle(names)
            return {name: shuffled(value[name]) for name in names}
        return [shuffled(each) for each in value] if isinstance(value, list) else value

    spelled = json.dumps(shuffled(value), indent=random.choice([None, 1, 3]), ensure_ascii=random.random() < 0.5)
    assert encode(decode(spelled)) == encode(value)


def test_spellings_of_a_number_differ() -> None:
    spellings = ("1", "1.0", "1e0", "1E0", "10e-1", "1.00", '"1"', "true", "-0", "0", "0.0", "-0.0")
    assert len({_digest(each) for each in spellings}) == len(spellings)
    assert _digest("12345678901234567890123") != _digest("12345678901234567890124")
    assert _digest("1.00000000000000000000001") != _digest("1.0")


def test_a_number_of_python_is_spelled_as_python_does() -> None:
    for text in ("1", "1.0", "1e+16", "1e-07", "-0.0"):
        assert encode(json.loads(text)) == encode(decode(text)) == text.encode()


def test_strings_are_exact() -> None:
    """Arguments of a call keep the model's own text; normal forms of Unicode differ."""
    texts = ['{"a":1}', '{"a": 1}', '{"a":1.0}', "é", "e\u0301", "", " ", "\u2028"]
    assert len({_digest(json.dumps(each)) for each in texts}) == len(texts)
    assert _digest('"\\u00e9"') == _digest('"é"')


@pytest.mark.parametrize(
    "text",
    ["", "[]", "5", "null", "{}", _text("[]"), _text("{}"), _text("5"), _text("[5]"), _text('[{"role":"user"}]'),
     _text('[{"type":""}]'), _text('[{"type":"x","n":NaN}]'), _text('[{"type":"x","n":1e999}]'), "[" * 5000,
     _text('[{"type":"x","a":1,"a":2}]'), _text('[{"type":"x","s":"\\ud800"}]'), _text('[{"type":"x"}]')[:-1],
     '{"conversation":"c","append_id":"a","messages":[{"type":"x"}],"more":1}', _text("[" * 300 + "]" * 300),
     '{"conversation":5,"append_id":"a","messages":[{"type":"x"}]}', _text('[{"type":"x","n":' + "9" * 5000 + "}]")],
)  # fmt: skip
def test_what_is_no_batch(text: str) -> None:
    with pytest.raises((InvalidBatch, InvalidConversationId)):
        Batch.from_json(text)


@given(st.binary(max_size=40))
@settings(deadline=None)
def test_any_bytes(data: bytes) -> None:
    with pytest.raises(BadInput):
        Batch.from_json(data)


@pytest.mark.parametrize("messages", [None, [], "x", [None], [{}], [{"type": 5}], [{"type": "x", "n": float("nan")}],
                                      [{"type": "x", 5: 1}], [{"type": "x", "b": b""}], {"type": "x"}])  # fmt: skip
def test_wrong_messages(messages: Any) -> None:
    with pytest.raises(InvalidBatch):
        Batch("c", "a", messages)


def test_a_message_may_leave_out_its_type() -> None:
    given = Batch("c", "a", [{"role": "user", "content": "hi"}])
    assert given == Batch("c", "a", [{"type": "message", "role": "user", "content": "hi"}])
    assert len(given) == 1


def test_a_batch_never_changes() -> None:
    message = {"type": "x", "list": [1]}
    batch = Batch("c", "a", [message])
    message["list"] = []
    batch.messages[0]["list"].append(2)
    assert batch.messages == [{"type": "x", "list": [1]}]


def test_a_receipt_is_of_one_batch() -> None:
    batch = Batch("c", "a", [{"type": "x"}])
    Receipt.of(batch).validate_for(batch)
    for other in (Batch("d", "a", [{"type": "x"}]), Batch("c", "b", [{"type": "x"}]), Batch("c", "a", [{"type": "y"}])):
        with pytest.raises(InvalidReceipt):
            Receipt.of(other).validate_for(batch)
