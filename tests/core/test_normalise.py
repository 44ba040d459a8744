"""Normalisation (format.md §4): the changes, their record, and what is refused."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentsession_cas.core.canonical import canonical, utf16_key
from agentsession_cas.core.normalise import merge_normalised, normalise, normalise_bytes, normalised_body
from agentsession_cas.core.parsing import parse
from agentsession_cas.core.payload import ENTRY, ITEM, body_place
from agentsession_cas.errors import BadJSON, BadNormalisation, LimitExceeded

REFERENCE = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions" / "normalised.jsonl"
ENVELOPE = ("id", "parent", "parents", "ts", "type")


def reference_bodies() -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in REFERENCE.read_bytes().splitlines()[1:]]
    return [{name: value for name, value in line.items() if name not in ENVELOPE} for line in lines]


def with_sources_put_back(body: dict[str, Any]) -> bytes:
    """A body as it was before another writer normalised it, from the record that writer left."""
    body = copy.deepcopy(body)
    pieces: list[tuple[bytes, bytes]] = []
    for number, record in enumerate(body.pop("normalised", [])):
        node: Any = body
        *steps, last = record["at"].split("/")[1:]
        for step in steps:
            node = node[int(step) if isinstance(node, list) else step]
        node[last] = f"@{number}@"
        source = base64.b64decode(record["raw"]) if "raw" in record else record["was"].encode()
        pieces.append((f'"@{number}@"'.encode(), source))
    data = json.dumps(body, ensure_ascii=False).encode()
    for mark, source in pieces:
        data = data.replace(mark, source)
    return data


@pytest.mark.parametrize("body", reference_bodies())
def test_the_reference_bodies_come_out_of_their_sources(body: dict[str, Any]) -> None:
    value, changes = normalise_bytes(with_sources_put_back(body))
    assert changes == body.get("normalised", [])
    assert canonical(value) == canonical({name: held for name, held in body.items() if name != "normalised"})


@pytest.mark.parametrize(
    ("source", "value", "change"),
    [
        (b"9007199254740993", 9007199254740992, {"was": "9007199254740993"}),
        (b"-9007199254740993.0", -9007199254740992, {"was": "-9007199254740993.0"}),
        (b"9.007199254740993e15", 9007199254740992, {"was": "9.007199254740993e15"}),
        (b"1234567890123456789", 1234567890123456800, {"was": "1234567890123456789"}),
        (b"1180591620717411303425", 2**70, {"was": "1180591620717411303425"}),
        (rb'"\ud83d"', "\ufffd", {"was": r'"\ud83d"'}),
        (rb'"\uDE00\uD83d\n"', "\ufffd\ufffd\n", {"was": r'"\uDE00\uD83d\n"'}),
        (rb'"\ud83d\ude00\ud83d"', "\U0001f600\ufffd", {"was": r'"\ud83d\ude00\ud83d"'}),
        (b'"a\xe2\x82"', "a\ufffd", {"raw": base64.b64encode(b'"a\xe2\x82"').decode()}),
        (b'"\xed\xa0\xbd"', "\ufffd" * 3, {"raw": base64.b64encode(b'"\xed\xa0\xbd"').decode()}),
        (b'"\\ud83d\xff\\""', '\ufffd\ufffd"', {"raw": base64.b64encode(b'"\\ud83d\xff\\""').decode()}),
    ],
)
def test_source_bytes(source: bytes, value: Any, change: dict[str, str]) -> None:
    data = b'{"a/b":[1, ' + source + b"]}"
    fixed, changes = normalise_bytes(data, prefix="/item")
    assert canonical(fixed) == canonical({"a/b": [1, value]})
    assert changes == [{"at": "/item/a~1b/1", **change}]


@pytest.mark.parametrize(
    ("held", "value", "was"),
    [
        (9007199254740993, 9007199254740992, "9007199254740993"),
        (-1234567890123456789, -1234567890123456800, "-1234567890123456789"),
        (2**70 + 1, 2**70, str(2**70 + 1)),
        ('a"\ud83d', 'a"\ufffd', r'"a\"\ud83d"'),
        ("\udfff\U0001f600\u0001", "\ufffd\U0001f600\u0001", '"\\udfff\U0001f600\\u0001"'),
        ("\ud83d\ude00\udc00", "\U0001f600\ufffd", '"\U0001f600\\udc00"'),
    ],
)
def test_decoded_values(held: Any, value: Any, was: str) -> None:
    body = {"a": [{"~": held}], "b": 1.0}
    before = copy.deepcopy(body)
    fixed, changes = normalise(body)
    assert canonical(fixed) == canonical({"a": [{"~": value}], "b": 1.0})
    assert changes == [{"at": "/a/0/~0", "was": was}]
    assert body == before


def test_a_surrogate_pair_is_the_character_it_spells() -> None:
    assert normalise(["\ud83d\ude00"]) == (["\U0001f600"], [])


@pytest.mark.parametrize("value", [{}, [], "é", 1, None, {"a": [1.5, {"b": "x"}]}, 2**70, 1152921504606847000])
def test_what_passes_is_left(value: Any) -> None:
    assert normalise(value) == (value, [])
    assert normalise_bytes(json.dumps(value).encode()) == (value, [])
    assert normalise_bytes(canonical(value))[1] == []


def test_records_are_sorted_by_utf16() -> None:
    names = ["\U0001f600", "\ufb33", "z", "a", "a/b", "a~b", "B"]
    _, changes = normalise(dict.fromkeys(names, 2**53 + 1), prefix="/x")
    found = [change["at"] for change in changes]
    assert found == sorted(found, key=utf16_key)
    assert found.index("/x/\U0001f600") < found.index("/x/\ufb33")
    assert normalise_bytes(json.dumps(dict.fromkeys(names, 2**53 + 1)).encode(), prefix="/x")[1] == changes


BIG = 2**53 + 1
DIGITS = "9007199254740993"
TEXT = "/item/content/0/text"


@pytest.mark.parametrize(
    ("type_", "body", "kept"),
    [
        ("item", {"item": {"type": "function_call", "call_id": BIG, "x": 1}}, ["/item/call_id"]),
        ("item", {"item": {"type": "function_call_output", "call_id": "c", "output": BIG}}, ["/item/output"]),
        ("item", {"item": {"type": "message", "content": [{"type": "input_text", "text": BIG}]}}, [TEXT]),
        ("item", {"item": {"type": "message", "content": [BIG]}}, []),
        ("item", {"item": {"type": "message", "content": [{"type": "acme:part", "text": BIG}]}}, []),
        ("item", {"item": {"type": "acme:note", "id": BIG, "body": BIG}}, ["/item/id"]),
        ("item", {"item": {"type": "reasoning", "content": [{"type": "text", "text": BIG}]}}, [TEXT]),
        ("item", {"item": {"call_id": BIG}, "visible": BIG}, []),
        ("item", {"item": {"type": "output_text", "text": BIG}}, []),
        ("queued", {"item": {"type": "message", "id": BIG}, "ref": BIG}, ["/item/id"]),
        ("config", {"model": BIG, "extra": {"metadata": {"k": BIG}, "seed": BIG}}, ["/model", "/extra/metadata/k"]),
        ("config", {"tools_added": [{"type": "function", "name": BIG, "x": {"name": BIG}}]}, ["/tools_added/0/name"]),
        ("compaction", {"pinned": [{"type": "message", "id": BIG}]}, ["/pinned/0/id"]),
        ("compaction", {"summary": {"role": BIG}, "config": {"model": BIG}}, ["/config/model"]),
        ("response", {"response_id": BIG, "latency_ms": BIG, "error": {"code": BIG}}, ["/response_id", "/error/code"]),
        ("custom", {"ns": "x", "data": {"type": "function_call", "call_id": BIG}}, []),
        ("acme:thing", {"item": {"type": "function_call", "call_id": BIG}}, []),
    ],
)
def test_digits_stay_where_the_payload_has_a_string(type_: str, body: dict[str, Any], kept: list[str]) -> None:
    fixed, changes = normalise(body, body_place(type_))
    spelled = json.dumps(body).replace(str(BIG), "9007199254740993.0")
    from_source, source_changes = normalise_bytes(spelled.encode(), body_place(type_))
    line, line_changes = normalise_bytes(spelled.replace("{", f'{{"type":"{type_}",', 1).encode(), ENTRY)
    assert from_source == fixed
    assert line == {**fixed, "type": type_}
    assert len(changes) == json.dumps(body).count(str(BIG))
    assert changes == [{**change, "was": DIGITS} for change in source_changes]
    assert {change["was"] for change in line_changes} == {"9007199254740993.0"}
    for change in changes:
        node: Any = fixed
        for step in change["at"].split("/")[1:]:
            node = node[int(step) if isinstance(node, list) else step]
        assert node == (DIGITS if change["at"] in kept else 2**53)
    assert set(kept) <= {change["at"] for change in changes}


def test_the_type_may_come_after_the_member() -> None:
    data = b'{"call_id":9007199254740993.0,"type":"function_call"}'
    assert normalise_bytes(data, ITEM)[0] == {"call_id": DIGITS, "type": "function_call"}


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [float("nan"), "\ud800"]}, "/a/0"),
        ({"a": float("inf")}, "/a"),
        ({"a": [10**400]}, "/a/0"),
        ({"a": {"\ud800": 1}}, "/a/\\ud800"),
        ({"a": (1,)}, "/a"),
        ({"a": {1: 1}}, "/a"),
    ],
)
def test_what_no_rewrite_reaches_is_refused(value: Any, where: str) -> None:
    with pytest.raises(BadJSON) as caught:
        normalise(value)
    assert caught.value.where == where


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (rb'{"a":["\ud800",1e400]}', "/a/1"),
        (b'{"a":"\xff","a":1}', "/a"),
        (rb'{"a":"\ud800","\u0061":1}', "/a"),
        (b'{"a":{"\xff":1}}', "/a/\\udcff"),
        (rb'{"a":{"\ud800":1}}', "/a/\\ud800"),
        (b'{"a":"\xff"', ""),
        (b'{"a":NaN}', "/a"),
        (b'{"a":"\xff\n"}', "/a"),
        (b"\xff", ""),
        (b"", ""),
    ],
)
def test_bytes_no_rewrite_reaches_are_refused(data: bytes, where: str) -> None:
    with pytest.raises(BadJSON) as caught:
        normalise_bytes(data)
    assert caught.value.where == where


def test_levels() -> None:
    value: Any = "\ud800"
    for _ in range(256):
        value = [value]
    fixed, changes = normalise(value)
    assert changes == [{"at": "/0" * 256, "was": '"\\ud800"'}]
    data = json.dumps(value).encode()
    assert normalise_bytes(data) == (fixed, changes)
    cycle: list[Any] = []
    cycle += [cycle, cycle]
    for deep in ([value], cycle):
        with pytest.raises(LimitExceeded):
            normalise(deep)
    with pytest.raises(LimitExceeded):
        normalise_bytes(b"[" + data + b"]")


# The byte ranges of Unicode 3.9, table 3-7: what may follow a lead byte, in order.
TAIL = range(0x80, 0xC0)
WELL_FORMED = [
    (range(0xC2, 0xE0), [TAIL]),
    (range(0xE0, 0xE1), [range(0xA0, 0xC0), TAIL]),
    (range(0xE1, 0xED), [TAIL, TAIL]),
    (range(0xED, 0xEE), [range(0x80, 0xA0), TAIL]),
    (range(0xEE, 0xF0), [TAIL, TAIL]),
    (range(0xF0, 0xF1), [range(0x90, 0xC0), TAIL, TAIL]),
    (range(0xF1, 0xF4), [TAIL, TAIL, TAIL]),
    (range(0xF4, 0xF5), [range(0x80, 0x90), TAIL, TAIL]),
]


def decoded_by_table(data: bytes) -> str:
    """UTF-8 with one U+FFFD for each maximal subpart of what is ill-formed, straight from the table."""
    out = []
    at = 0
    while at < len(data):
        tails = next((tails for leads, tails in WELL_FORMED if data[at] in leads), [])
        end = at + 1
        for tail in tails:
            if end == len(data) or data[end] not in tail:
                break
            end += 1
        whole = data[at] < 0x80 or (bool(tails) and end == at + 1 + len(tails))
        out.append(data[at:end].decode() if whole else "\ufffd")
        at = end
    return "".join(out)


LEADS = st.sampled_from(b"\x80\x90\x9f\xa0\xbf\xc0\xc2\xe0\xed\xef\xf0\xf4\xf5\xffa")


@given(st.binary(max_size=12) | st.lists(LEADS, max_size=10).map(bytes))
@settings(max_examples=400, deadline=None)
@example(b"\xf0\x90\x80\xe2\x82\xed\xa0\x80\xf4\x90")
def test_each_maximal_subpart_becomes_one_replacement(data: bytes) -> None:
    data = bytes(byte for byte in data if byte >= 0x20 and byte not in b'"\\')
    text, changes = normalise_bytes(b'"' + data + b'"')
    assert text == decoded_by_table(data)
    try:
        data.decode()
    except UnicodeDecodeError:
        assert changes == [{"at": "", "raw": base64.b64encode(b'"' + data + b'"').decode()}]
    else:
        assert changes == []


ANY_TEXT = st.text(st.characters(), max_size=6) | st.text(st.sampled_from("a\ud800\udbff\udc00\udfff"), max_size=4)
NAMES = st.text(st.characters(codec="utf-8"), max_size=4)
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
ANY_VALUE = st.recursive(
    st.none() | st.booleans() | NUMBERS | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(ANY_VALUE)
@settings(max_examples=300, deadline=None)
def test_what_is_normalised_passes_and_stays(value: Any) -> None:
    fixed, changes = normalise(value)
    data = canonical(fixed)
    assert normalise(fixed) == (fixed, [])
    assert canonical(parse(data)) == data
    try:
        unchanged = canonical(value) == data
    except BadJSON:
        unchanged = False
    assert unchanged or changes or "\\ud" in json.dumps(value)
    for change in changes:
        assert change["at"].startswith("/") or change["at"] == ""
        json.loads(change["was"])


@given(ANY_VALUE)
@settings(max_examples=300, deadline=None)
def test_source_text_and_decoded_values_come_to_the_same(value: Any) -> None:
    data = json.dumps(value).encode()
    fixed, changes = normalise_bytes(data)
    assert canonical(fixed) == canonical(normalise(value)[0])
    decoded = json.loads(data)  # pairs of surrogates become characters
    assert [change["at"] for change in changes] == [change["at"] for change in normalise(decoded)[1]]


@given(st.binary())
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_a_value_or_a_declared_error(data: bytes) -> None:
    for document in (data, b'"' + data + b'"', b'{"a":"' + data + b'","b":[2,"' + data + b'"]}'):
        try:
            value, changes = normalise_bytes(document)
        except (BadJSON, LimitExceeded):
            continue
        canonical([value, changes])


def test_merging_keeps_what_the_caller_saw() -> None:
    existing = [{"at": "/b", "raw": "ImEi", "acme": 1}, {"at": "/a", "was": '"\\ud83d"'}]
    new = [{"at": "/c", "was": "9007199254740993"}, {"at": "/a", "was": '"x"'}]
    assert merge_normalised(existing, new) == [existing[1], existing[0], new[0]]
    assert merge_normalised(None, new) == [new[1], new[0]]
    assert merge_normalised([], []) == []


@pytest.mark.parametrize(
    "existing",
    [
        {},
        "x",
        [1],
        [{}],
        [{"was": "1"}],
        [{"at": "/a"}],
        [{"at": 1, "was": "1"}],
        [{"at": "", "was": "1"}],
        [{"at": "a", "was": "1"}],
        [{"at": "/\ud800", "was": "1"}],
        [{"at": "/a", "was": "1", "raw": "ImEi"}],
        [{"at": "/a", "was": 1}],
        [{"at": "/a", "was": None}],
        [{"at": "/a", "was": ""}],
        [{"at": "/a", "was": "x"}],
        [{"at": "/a", "was": '"\ud800"'}],
        [{"at": "/a", "was": "[" * 300}],
        [{"at": "/a", "raw": ""}],
        [{"at": "/a", "raw": "ImEi="}],
        [{"at": "/a", "raw": "Ig"}],
        [{"at": "/a", "raw": "Ih=="}],
        [{"at": "/a", "raw": "I-_i"}],
        [{"at": "/a", "raw": "é==="}],
        [{"at": "/a", "was": "1"}, {"at": "/a", "was": "2"}],
    ],
)
def test_elements_the_format_cannot_carry_are_refused(existing: Any) -> None:
    with pytest.raises(BadNormalisation) as caught:
        merge_normalised(existing, [])
    assert caught.value.where.startswith("/normalised")
    with pytest.raises(BadNormalisation):
        normalised_body("info", {"normalised": existing})


def test_a_body_is_normalised_with_its_record() -> None:
    body = {
        "item": {"type": "function_call", "call_id": BIG, "n": BIG},
        "normalised": [{"at": "/item/name", "raw": "ImEi"}],
    }
    before = copy.deepcopy(body)
    decoded = [{"at": "/item/id", "was": '"\\ud800"'}]
    assert normalised_body("item", body, decoded) == {
        "item": {"type": "function_call", "call_id": DIGITS, "n": 2**53},
        "normalised": [
            {"at": "/item/call_id", "was": DIGITS},
            {"at": "/item/id", "was": '"\\ud800"'},
            {"at": "/item/n", "was": DIGITS},
            {"at": "/item/name", "raw": "ImEi"},
        ],
    }
    assert body == before


@pytest.mark.parametrize("written", [{}, {"normalised": []}, {"normalised": None}])
def test_a_body_with_nothing_to_change_stays_as_written(written: dict[str, Any]) -> None:
    body = {"name": "x", **written}
    assert normalised_body("info", body) == body


@pytest.mark.parametrize("place", [ITEM, body_place("item"), body_place("nothing:known")])
def test_a_place_says_nothing_of_other_shapes(place: Any) -> None:
    inside: Callable[[Any, str | int], Any] = place.inside
    containers: list[Any] = [[], [1], {"type": 1}, {"type": ["x"]}, {"type": {}}, {}]
    for container in containers:
        assert inside(container, 0).text is False
