"""Strict parsing (format.md §4) against an oracle made of the standard library's decoder and exact fractions."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.parsing import LINE_MAX, parse, parse_trusted
from agentsession_cas.errors import BadJSON, LimitExceeded

SURROGATE = re.compile("[\ud800-\udfff]")


class Refused(Exception):
    """The oracle's answer."""


def number_passes(literal: str) -> bool:
    """The I-JSON test, word for word."""
    mantissa, _, exponent = literal.lower().partition("e")
    if len(exponent) > 6:
        # Past what a fraction can hold, and past what a mantissa in these tests can outweigh.
        return exponent.startswith("-") or not mantissa.strip("-0.")
    exact = Fraction(literal)
    try:
        nearest = exact.numerator / exact.denominator
    except OverflowError:
        return False
    if math.isinf(nearest) or exact.denominator != 1:
        return not math.isinf(nearest)
    return Fraction(nearest) == exact or Fraction(rfc8785.dumps(nearest).decode()) == exact


def oracle(data: bytes) -> Any:
    """The value with every number as its binary64, by another road: Refused for what parse must refuse."""

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(members)) != len(members) or any(SURROGATE.search(name) for name, _ in members):
            raise Refused
        return dict(members)

    def number(literal: str) -> float:
        if not number_passes(literal):
            raise Refused
        return float(literal)

    def constant(word: str) -> Any:
        raise Refused

    def strings(value: Any) -> None:
        if isinstance(value, str) and SURROGATE.search(value):
            raise Refused
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            strings(inner)

    try:
        text = data.decode()
        if text.startswith("\ufeff"):
            raise Refused
        value = json.loads(text, object_pairs_hook=pairs, parse_int=number, parse_float=number, parse_constant=constant)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise Refused from error
    strings(value)
    return value


# Documents one step from JSON: pieces that are tokens, spaces, and a few that fit nowhere.
STRINGS = st.sampled_from(
    [
        *(
            r'"a"',
            r'"b"',
            r'"\u0061"',
            r'""',
            r'":"',
            r'"\u003a"',
            r'"\u003A"',
            r'"\\u003a"',
            r'"\ud83d\ude00"',
            '"😀"',
        ),
        *(
            r'"\ud83d"',
            r'"\ude00\ud83d"',
            '"é"',
            r'"\u0000"',
            r'"\x"',
            r'"\/\b"',
            r'"\u12"',
            '"',
            '"\x7f\u2028"',
            '"\n"',
        ),
    ]
)
NUMBERS = st.sampled_from(
    [
        *("0", "-0", "-0.0", "1", "1.0", "1.5", "1e2", "1E+2", "1e400", "-1e400", "1e-400", "1e20", "1e21", "1e23"),
        *("9007199254740992", "9007199254740993", "9007199254740993.0", "9.007199254740993e15", "9007199254740993.5"),
        *("90071992547409930e-1", "1152921504606846976", "1152921504606847000", "1152921504606847001"),
        *("1152921504606847000.0", "18446744073709551616", "18446744073709551617", "-9223372036854775809"),
        *("1180591620717411303424", "1180591620717411303425", "1.1805916207174113e+21"),
        *("01", "1.", ".5", "-", "+1", "NaN", "Infinity", "-Infinity", "0x1"),
    ]
)
LEAVES = STRINGS | NUMBERS | st.sampled_from(["true", "false", "null", "nul", ""])
SPACE = st.sampled_from(["", "", "", " ", "\n", "\t\r ", "\x0b", "\u00a0"])


def joined(parts: Any) -> Any:
    return parts.map("".join)


DOCUMENTS = st.recursive(
    joined(st.tuples(SPACE, LEAVES, SPACE)),
    lambda inner: (
        joined(st.tuples(st.just("["), st.lists(inner, max_size=4).map(",".join), st.just("]")))
        | st.lists(joined(st.tuples(STRINGS, st.just(":"), inner)), max_size=4).map(
            lambda members: "{" + ",".join(members) + "}"
        )
    ),
    max_leaves=8,
)


@given(DOCUMENTS)
@settings(max_examples=1000, deadline=None)
@example('{"a":1,"\\u0061":2}')
@example('{"a":1,"a":":"}')
@example('{"a":1,"a":"\\u003a"}')
@example('{"a":1,"a":"\\u003A"}')
@example('{"a":{"b":1,"b":2},"a":"\\u003a\\u003a"}')
@example('[1e400,"')
def test_accepts_and_reads_as_the_oracle_does(text: str) -> None:
    data = text.encode()
    try:
        expected = oracle(data)
    except Refused:
        with pytest.raises(BadJSON):
            parse(data)
    else:
        assert canonical(parse(data)) == rfc8785.dumps(expected)


@given(st.binary() | DOCUMENTS.map(str.encode) | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
@settings(max_examples=500, deadline=None)
def test_any_bytes_give_a_value_or_a_declared_error(data: bytes) -> None:
    for decode in (parse, parse_trusted):
        try:
            decode(data)
        except (BadJSON, LimitExceeded):
            pass


@given(DOCUMENTS.map(str.encode), st.data())
@settings(max_examples=500, deadline=None)
def test_damaged_bytes_give_a_value_or_a_declared_error(data: bytes, more: st.DataObject) -> None:
    at = more.draw(st.integers(0, len(data)))
    damaged = data[:at] + more.draw(st.binary(max_size=2)) + data[at + more.draw(st.integers(0, 2)) :]
    try:
        expected = oracle(damaged)
    except Refused:
        with pytest.raises((BadJSON, LimitExceeded)):
            parse(damaged)
    else:
        assert canonical(parse(damaged)) == rfc8785.dumps(expected)


MANTISSAS = st.builds(
    lambda whole, fraction: f"{whole}{fraction}",
    st.integers(-(10**25), 10**25),
    st.sampled_from(["", ".0", ".5", ".00000000000000000001"]),
)


@given(MANTISSAS, st.integers(-30, 330))
@settings(max_examples=500, deadline=None)
@example("9007199254740993", 0)
@example("9007199254740993.0", 0)
@example("90071992547409930", -1)
def test_numbers_pass_by_value(mantissa: str, exponent: int) -> None:
    literal = f"{mantissa}e{exponent}" if exponent else mantissa
    if number_passes(literal):
        value = parse(literal.encode())
        assert canonical(value) == rfc8785.dumps(float(literal))
        assert type(value) is (int if literal.removeprefix("-").isdigit() else float)
    else:
        with pytest.raises(BadJSON):
            parse(b"[" + literal.encode() + b"]")


@pytest.mark.parametrize(
    ("data", "passes"),
    [
        (b"1e999999999", False),
        (b"-1e999999999999999999999999", False),
        (b"0e999999999", True),
        (b"0.0e-99999999999999999999", True),
        (b"1e-999999999", True),
        (b"9" * 5000, False),
        (b"9" * 1_000_000, False),
        (b"0." + b"0" * 1_000_000 + b"123e1000025", True),
        (b"0." + b"0" * 1_000_000 + b"9007199254740993e1000016", False),
        (b"9007199254740993" + b"0" * 400 + b"e-400", False),
        (b"9007199254740992" + b"0" * 400 + b"e-400", True),
        (b"1e+" + b"0" * 5000 + b"17", True),
        (b"9007199254740992." + b"1" * 1_000_000, True),
    ],
)
def test_huge_spellings_are_judged_by_value(data: bytes, passes: bool) -> None:
    if passes:
        parse(data)
    else:
        with pytest.raises(BadJSON):
            parse(data)


@pytest.mark.parametrize(
    ("data", "where", "offset"),
    [
        (b'{"a":{"b/~":[1,{"c":9007199254740993}]}}', "/a/b~1~0/1/c", 20),
        (b'{"a":1,"b":2,"\\u0061":3}', "/a", 13),
        (b'{"x":[{"a":1},{"a":1,"a":1}]}', "/x/1/a", 21),
        ('{"é":["\\ud800"]}'.encode(), "/é/0", 7),
        (b'{"a":"\xff"}', "/a", 5),
        (b'{"a\xff":1}', "/a\\udcff", 1),
        (b'{"\\udc00":1}', "/\\udc00", 1),
        (b"[1,2,1e400]", "/2", 5),
        (b"[1,2", "", 4),
        (b"[1,", "/1", 3),
        (b'{"a":1,}', "", 7),
        (b'{"a":[tru]}', "/a/0", 6),
        (b'{"a":"x\x00y"}', "/a", 7),
        (b'{"a" 1}', "/a", 5),
        (b"{} {}", "", 3),
        (b"[1]\xff", "", 3),
        (b"\xef\xbb\xbf{}", "", 0),
        (b"", "", 0),
        (b"\x00\x00\x00", "", 0),
        (b"[NaN]", "/0", 1),
        (b"[-Infinity]", "/0", 1),
        (b'{"a":[],"b":"', "/b", 12),
        (b"[", "/0", 1),
        (b'{"a":[{}', "/a", 8),
    ],
)
def test_an_error_names_the_place(data: bytes, where: str, offset: int) -> None:
    with pytest.raises(BadJSON) as caught:
        parse(data)
    assert caught.value.where == where
    assert f"at byte {offset}" in caught.value.what


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_levels(opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"
    for levels in (253, 254, 255, 256):
        data = opening * levels + b"1" + closing * levels
        assert canonical(parse(data)) == data
        assert parse_trusted(data) == parse(data)
        assert canonical(parse(b" " + data)) == data
    for levels in (257, 1024, 1025, 5000, 1_000_000):
        with pytest.raises(LimitExceeded) as caught:
            parse(opening * levels + b"1" + closing * levels)
        assert caught.value.where.count("/") == 256
        with pytest.raises((LimitExceeded, BadJSON)):
            parse(opening * levels)


def test_a_dropped_member_does_not_hide_its_depth() -> None:
    with pytest.raises(LimitExceeded):
        parse(b'{"a":' + b"[" * 300 + b"]" * 300 + b',"a":1}')


def test_a_line_has_a_largest_size() -> None:
    with pytest.raises(LimitExceeded):
        parse(bytes(LINE_MAX + 1))


def test_a_large_string() -> None:
    text = "x" * (64 << 20)
    data = b'{"text":"' + text.encode() + b'"}'
    value = parse(data)
    assert value["text"] == text
    assert canonical(value) == data


@pytest.mark.parametrize("text", ["\x00", "\u2028\u2029", "e\u0301", "\x7f", "\ufffe\uffff", "\ufeff", "\U0010ffff"])
def test_odd_text_survives(text: str) -> None:
    assert parse(canonical({text: text})) == {text: text}
    assert parse(json.dumps({text: text}).encode()) == {text: text}


def test_ways_of_writing_the_same() -> None:
    value = {"b": [1, 2.5, {"c": None}], "a": "é<&>:"}
    spellings = [
        json.dumps(value, indent=2),
        json.dumps(value, ensure_ascii=False, sort_keys=True),
        json.dumps(value).replace("<", "\\u003c").replace("a", "\\u0061"),
        json.dumps(value).replace(":", "\\u003a").replace('"\\u003a', '":').replace('\\u003a"', ':"'),
    ]
    for text in spellings:
        assert parse(text.encode()) == value


@given(st.integers(-(2**80), 2**80))
@settings(max_examples=200, deadline=None)
def test_trusted_bytes_read_as_strict_ones(number: int) -> None:
    data = canonical([float(number), {"a": "x"}])
    assert canonical(parse_trusted(data)) == canonical(parse(data)) == data
