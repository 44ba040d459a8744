"""Canonical JSON (format.md §4) against RFC 8785's own vectors, the ``rfc8785`` package and exact arithmetic."""

from __future__ import annotations

import copy
import datetime
import enum
import struct
import uuid
from collections import OrderedDict
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentsession_cas.core.canonical import LEVELS_MAX, canonical, check, pointer_of, utf16_key
from agentsession_cas.core.numbers import number_text
from agentsession_cas.core.parsing import parse
from agentsession_cas.errors import BadJSON, LimitExceeded

TEXT = st.text(st.characters(codec="utf-8"))
# Names around the place where the orders by UTF-16 and by code point part.
NAMES = TEXT | st.text(st.sampled_from("a\ue000\uffff\U00010000\U0010ffff"), max_size=3)
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [-0.0, 0.0, 1.0, 100.0, 1e-5, 1e-6, 9.5e-6, 1e-7, 1e15, 1e16, 1e20, 1e21, 5e-324, 1.7976931348623157e308, 0.1]
)
INTEGERS = st.integers(-(2**53) + 1, 2**53 - 1)
SCALARS = st.none() | st.booleans() | INTEGERS | FLOATS | TEXT
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(NAMES, inner, max_size=5), max_leaves=20
)

# RFC 8785, appendix B.
RFC_NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


def nested(levels: int, make: Callable[[Any], Any], value: Any = "x") -> Any:
    for _ in range(levels):
        value = make(value)
    return value


@pytest.mark.parametrize(("bits", "text"), RFC_NUMBERS)
def test_numbers_of_the_rfc(bits: str, text: str) -> None:
    number = struct.unpack(">d", bytes.fromhex(bits))[0]
    assert canonical(number) == text.encode()
    assert canonical({"n": [number]}) == f'{{"n":[{text}]}}'.encode()
    assert number_text(number) == text


def test_member_order_of_the_rfc() -> None:
    members = {
        "€": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\U0001f600": "Emoji: Grinning Face",
        "\u0080": "Control",
        "ö": "Latin Small Letter O With Diaeresis",
    }
    order = ["\r", "1", "\u0080", "ö", "€", "\U0001f600", "\ufb33"]
    assert list(parse(canonical(members))) == order
    assert sorted(members, key=utf16_key) == order


@given(VALUES)
@settings(max_examples=400, deadline=None)
@example({"\U0001f600": 1, "\ufb33": [{"\U0001f600": 1.0, "\ufb33": 2}]})
@example({"é": "\U0001f600", "\ufb33": ["\uff0c", {"\ue000": 1}]})
@example([1.0, {"a": [1e16, {"b": [[[[[[-0.0]]]]]]}]}])
def test_equals_rfc8785(value: Any) -> None:
    before = copy.deepcopy(value)
    data = canonical(value)
    assert data == rfc8785.dumps(value)
    assert repr(value) == repr(before)
    assert canonical(parse(data)) == data


SMALL = st.floats(-(2.0**53), 2.0**53)


@given(
    st.recursive(
        SCALARS.filter(lambda v: type(v) is not float) | SMALL, lambda v: st.lists(v) | st.dictionaries(NAMES, v)
    )
)
@settings(max_examples=200, deadline=None)
def test_parsing_gives_the_value_back(value: Any) -> None:
    assert parse(canonical(value)) == value


@given(FLOATS | st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]))
@settings(max_examples=500, deadline=None)
def test_every_float_equals_rfc8785(number: float) -> None:
    if number - number != 0:
        with pytest.raises(BadJSON):
            canonical(number)
    else:
        assert canonical([number]) == rfc8785.dumps([number])


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (2**53, "9007199254740992"),
        (-(2**53), "-9007199254740992"),
        (2**53 + 2, "9007199254740994"),
        (2**60, "1152921504606847000"),
        (1152921504606847000, "1152921504606847000"),
        (2**64, "18446744073709552000"),
        (10**20, "100000000000000000000"),
        (2**70, "1.1805916207174113e+21"),
        (10**23, "1e+23"),
        (-(2**70), "-1.1805916207174113e+21"),
        (2**1023, "8.98846567431158e+307"),
    ],
)
def test_whole_numbers_past_2_53_are_the_binary64_they_stand_for(number: int, text: str) -> None:
    assert canonical({"n": number, "t": 1.0}) == f'{{"n":{text},"t":1}}'.encode()


@pytest.mark.parametrize(
    "number",
    [
        2**53 + 1,
        -(2**53) - 1,
        1234567890123456789,
        2**70 + 1,
        1180591620717411303425,
        10**400,
        pytest.param(10**5000, id="1e5000"),
    ],
)
def test_other_whole_numbers_are_refused(number: int) -> None:
    with pytest.raises(BadJSON) as caught:
        canonical({"a": [0, number]})
    assert caught.value.where == "/a/1"


@given(st.integers(2**53, 2**80) | st.integers(-(2**1025), 2**1025))
@settings(max_examples=300, deadline=None)
def test_whole_numbers_pass_by_exact_value(number: int) -> None:
    try:
        nearest = float(number)
    except OverflowError:
        passes = False
    else:
        rendered = Decimal(rfc8785.dumps(nearest).decode())
        passes = Decimal(nearest) == number or rendered == number
    if passes:
        assert canonical(number) == rfc8785.dumps(nearest)
    else:
        with pytest.raises(BadJSON):
            canonical(number)


class Text(str):
    """A subclass, which JSON has none of."""


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize(
    "odd",
    [
        (1, 2),
        {1, 2},
        b"bytes",
        1j,
        Text("x"),
        Colour.RED,
        OrderedDict(a=1),
        Decimal(1),
        uuid.UUID(int=1),
        datetime.date(2026, 1, 1),
        datetime.datetime(2026, 1, 1),
        object(),
        float("nan"),
        float("inf"),
        float("-inf"),
        "\ud800",
        "a\udfffb",
        "\ud83d\ude00",
    ],
)
def test_what_json_has_no_word_for_is_refused_with_its_place(odd: Any) -> None:
    for value, where in [
        (odd, ""),
        ([odd], "/0"),
        ({"a/~": [1.0, {"b": odd}]}, "/a~1~0/1/b"),
        ({"z": 2**60, "a": odd}, "/a"),
    ]:
        with pytest.raises(BadJSON) as caught:
            canonical(value)
        assert caught.value.where == where
        with pytest.raises(BadJSON):
            check(value)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({1: 2}, ""),
        ({"a": {None: 2}}, "/a"),
        ({"a": {Text("b"): 2, "c": 1.0}}, "/a"),
        ([{"\ud800": 1}], "/0/\\ud800"),
        ({b"a": 1}, ""),
    ],
)
def test_member_names_are_strings_without_lone_surrogates(value: Any, where: str) -> None:
    with pytest.raises(BadJSON) as caught:
        canonical(value)
    assert caught.value.where == where


@pytest.mark.parametrize("leaf", ["x", 1.0, 2**70, "\U0001f600"])
@pytest.mark.parametrize(
    "make", [lambda value: [value], lambda value: {"k": value}, lambda value: {"\U0001f600": value, "\U0001f601": 1.0}]
)
def test_levels(make: Callable[[Any], Any], leaf: Any) -> None:
    for levels in (199, 200, 201, 252, 253, 254, 255, LEVELS_MAX):
        value = nested(levels, make, leaf)
        rows = parse(canonical(value))
        for _ in range(levels):
            rows = rows[0] if isinstance(rows, list) else rows[min(rows)]
        assert rows == leaf
    for levels in (LEVELS_MAX + 1, 1000, 100_000):
        with pytest.raises(LimitExceeded) as caught:
            canonical(nested(levels, make))
        assert caught.value.where.count("/") == LEVELS_MAX


def test_a_cycle_is_past_the_limit() -> None:
    narrow: list[Any] = [1]
    narrow.append(narrow)
    wide: dict[str, Any] = {"f": 1.0}
    wide["a"] = wide["b"] = wide
    for value in (narrow, wide, [1.0, narrow], {"x": 2**60, "y": wide}):
        with pytest.raises(LimitExceeded) as caught:
            canonical(value)
        # The place is named whole, the message is one a person reads.
        assert caught.value.where.count("/") == LEVELS_MAX
        assert len(str(caught.value)) < 300
        assert "…" in str(caught.value)


def test_the_depth_of_the_caller_makes_no_difference() -> None:
    value = nested(LEVELS_MAX, lambda inner: {"a": inner, "f": 1.0})
    expected = canonical(value)

    def call(frames: int) -> bytes:
        return call(frames - 1) if frames else canonical(value)

    assert call(700) == expected


@given(st.lists(TEXT | st.integers(0, 10**6)))
def test_pointers_are_rfc_6901(names: list[str | int]) -> None:
    pointer = pointer_of(names)
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    assert steps == [str(name) for name in names]
