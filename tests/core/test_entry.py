"""One line at a time: hashes against an independent computation, what makes a line malformed, and what is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.entry import Draft, Entry, sidecar_blobs
from agentsession_cas.core.facts import Code, Flag, Kind
from agentsession_cas.errors import (
    AgentSessionError,
    BadConvergence,
    BadEntry,
    BadFile,
    BadID,
    BadJSON,
    BadTimestamp,
    LimitExceeded,
    ReservedMember,
)

REFERENCE = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"
WHOLE = ("basic", "branch", "fork", "compaction", "runs", "normalised", "parts", "omit", "bad-records")
TS = "2026-01-01T00:00:00Z"
HASH = "sha256:" + "ab" * 32
OTHER = "sha256:" + "cd" * 32
USER = {"item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}}

Json = dict[str, Any]


def reference_lines() -> list[bytes]:
    return [line for name in WHOLE for line in (REFERENCE / f"{name}.jsonl").read_bytes().splitlines()[1:]]


def loads(line: bytes) -> Any:
    """A line decoded so that ``rfc8785`` takes it: whole numbers past 2^53 as the binary64 they are."""
    return json.loads(line, parse_int=lambda text: int(text) if abs(int(text)) < 2**53 else float(text))


def independent_hashes(members: Json) -> tuple[str, str]:
    """Both hashes, computed from format.md §4 and with nothing of the package."""
    envelope_names = ("id", "type", "parent", "parents", "ts")
    content = {name: value for name, value in members.items() if name not in envelope_names}
    content_hash = "sha256:" + hashlib.sha256(rfc8785.dumps(content)).hexdigest()
    envelope = {"type": members["type"], "parent": members.get("parent"), "ts": members["ts"], "content": content_hash}
    if members.get("parents"):
        envelope["parents"] = members["parents"]
    return "sha256:" + hashlib.sha256(rfc8785.dumps(envelope)).hexdigest(), content_hash


def line_of(type_: str = "item", body: Json | None = None, **envelope: Any) -> bytes:
    """A line with its right id, written by ``json`` and hashed by :func:`independent_hashes`."""
    members = {"type": type_, "parent": None, "ts": TS, **(USER if body is None else body), **envelope}
    members.setdefault("id", independent_hashes(members)[0])
    return json.dumps(members).encode()


# --- hashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", reference_lines())
def test_every_reference_line_verifies_and_is_written_back_as_it_was(line: bytes) -> None:
    entry = Entry.from_line(line)
    members = loads(line)
    assert (entry.id, entry.content_hash) == independent_hashes(members)
    assert entry.line == line
    assert entry.members() == json.loads(line)
    assert "sha256:" + hashlib.sha256(entry.envelope).hexdigest() == members["id"]


def test_the_spelling_of_a_line_does_not_matter() -> None:
    spaced = json.dumps(json.loads(line_of()), indent=1).encode()
    assert Entry.from_line(spaced) == Entry.from_line(line_of())
    assert Entry.from_line(spaced).line == rfc8785.dumps(json.loads(spaced))


def test_an_absent_parent_reads_as_null_and_is_written_so() -> None:
    members = json.loads(line_of())
    del members["parent"]
    entry = Entry.from_line(json.dumps(members).encode())
    assert entry.parent == ""
    assert json.loads(entry.line)["parent"] is None


@pytest.mark.parametrize("parents", [None, []])
def test_empty_parents_hash_as_absent_and_are_not_written_back(parents: object) -> None:
    members = {**json.loads(line_of()), "parents": parents}
    entry = Entry.from_line(json.dumps(members).encode())
    assert entry.parents == []
    assert b'"parents"' not in entry.line


def test_parents_keep_their_order_and_their_own_members() -> None:
    parents = [{"session": "z", "entry": OTHER, "note": {"a": [1]}}, {"entry": HASH}]
    entry = Entry.from_line(line_of(parents=parents))
    assert entry.parents == parents
    assert json.loads(entry.line)["parents"] == parents


def test_unknown_members_are_kept_at_every_depth() -> None:
    body = {
        **USER,
        "CWD": 1,
        "acme:deep": {"\U0001f600": 1, "\ue000": [None, {"x": 1e-7, "n": 0.1}]},
        "response": 5,
    }
    entry = Entry.from_line(line_of(body=body))
    assert entry.body == body
    assert json.loads(entry.line)["acme:deep"] == body["acme:deep"]


@pytest.mark.parametrize("type_", ['a:"quoted"', "ns:\u2028", "ns:\U0001f600", "ns:back\\slash", "later"])
def test_an_odd_type_is_hashed_as_json_writes_it(type_: str) -> None:
    entry = Entry.from_line(line_of(type_, {"x": 1}))
    assert entry.type == type_
    assert json.loads(entry.envelope)["type"] == type_


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    # No lone surrogates: what no line may hold is refused, and tested where it is refused.
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)
bodies = st.dictionaries(st.sampled_from(["a", "b", "é", "\U0001f600", "\uffff"]), json_values, max_size=4)


@settings(max_examples=150, deadline=None)
@given(bodies, st.sampled_from(["ns:x", "later", "info"]), st.sampled_from(["", HASH]))
def test_what_is_sealed_reads_back_from_its_line(body: Json, type_: str, parent: str) -> None:
    sealed = Entry.seal(type_, body, parent, TS, [{"entry": OTHER}])
    read = Entry.from_line(sealed.line)
    assert read.id == sealed.id
    assert (read.id, read.content_hash) == independent_hashes(loads(sealed.line))
    assert canonical(read.body) == canonical(body)
    assert read.facts == sealed.facts


def test_a_sealed_entry_does_not_follow_the_dict_it_was_made_of() -> None:
    body = {"ns": "app", "data": {"n": [1]}}
    entry = Entry.seal("custom", body, "", TS)
    body["data"]["n"].append(2)  # type: ignore[index]
    assert entry.body == {"ns": "app", "data": {"n": [1]}}
    entry.members()["data"]["n"].append(3)
    assert entry.body == {"ns": "app", "data": {"n": [1]}}


def test_seal_refuses_a_parent_that_is_no_id() -> None:
    with pytest.raises(BadID):
        Entry.seal("info", {}, "abc", TS)


# --- malformed lines -------------------------------------------------------------------------------------------------


def changed(**members: Any) -> bytes:
    return json.dumps({**json.loads(line_of()), **members}).encode()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"[]", BadFile),
        (b"12", BadFile),
        (b"{}", BadFile),
        (b'{"type":""}', BadFile),
        (changed(type=5), BadFile),
        (changed(id=None), BadID),
        (changed(id="i0000001"), BadID),
        (changed(id=HASH), BadID),
        (changed(id=json.loads(line_of())["id"].upper()), BadID),
        (changed(parent=""), BadID),
        (changed(parent="i0000001"), BadID),
        (changed(parent=5), BadID),
        (changed(ts="2026-01-01T00:00:00.0Z"), BadID),
        (changed(ts="2026-01-01T00:00:00+00:00"), BadID),
        (changed(ts="2026-01-01t00:00:00Z"), BadID),
        (changed(ts=None), BadID),
        (changed(extra=1), BadID),
        (changed(content=HASH), ReservedMember),
        (changed(parents={}), BadConvergence),
        (changed(parents=[HASH]), BadConvergence),
        (changed(parents=[{"session": "s"}]), BadConvergence),
        (changed(parents=[{"entry": "i0000001"}]), BadConvergence),
        (changed(parents=[{"entry": HASH}, {"session": "s", "entry": HASH}]), BadConvergence),
        (changed(parent=HASH, parents=[{"session": "s", "entry": HASH}]), BadConvergence),
        (b"", BadJSON),
        (b"\x00\x00", BadJSON),
        (b'{"type":"item","type":"item"}', BadJSON),
        (b'{"type":"item","n":9007199254740993}', BadJSON),
        (b'{"type":"item","n":1e400}', BadJSON),
        (b'{"type":"item","n":NaN}', BadJSON),
        (b'{"type":"item","s":"\\ud800"}', BadJSON),
        (b'{"type":"item","s":"\xff"}', BadJSON),
        (b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", LimitExceeded),
    ],
)
def test_a_line_that_breaks_a_rule_is_refused(line: bytes, error: type[AgentSessionError]) -> None:
    with pytest.raises(error) as caught:
        Entry.from_line(line)
    assert type(caught.value) is error


GOOD: dict[str, Json] = {
    "item": USER,
    "compaction": {"first_kept": HASH, "summary": {"type": "x:y"}},
    "branch_summary": {"from": HASH, "summary": {"type": "x:y"}},
    "dispatch": {"call_id": "c", "target": HASH},
    "decision": {"call_id": "c", "target": HASH, "verdict": "proceed"},
    "queued": {"item": {"type": "x:y"}, "mode": "steer"},
}
STARTED = {"run_id": "r", "phase": "start", "source": "input"}
ENDED = {"run_id": "r", "phase": "end", "reason": "done"}
NEEDED = [(type_, body, name) for type_, body in GOOD.items() for name in body] + [
    ("run", STARTED, "run_id"),
    ("run", STARTED, "phase"),
    ("run", STARTED, "source"),
    ("run", ENDED, "reason"),
]
CLOSED = [needed for needed in NEEDED if needed[2] in ("verdict", "mode", "phase", "source", "reason")]
LACKING = [(*needed, value) for needed in NEEDED for value in ("missing", None, "", 5)]
LACKING += [(*needed, "outside") for needed in CLOSED]


@pytest.mark.parametrize(("type_", "body"), [*GOOD.items(), ("run", STARTED), ("run", ENDED)])
def test_a_line_with_what_its_type_needs_is_read(type_: str, body: Json) -> None:
    assert Entry.from_line(line_of(type_, body)).body == body


@pytest.mark.parametrize(("type_", "body", "name", "value"), LACKING)
def test_a_line_without_what_its_type_needs_is_malformed(type_: str, body: Json, name: str, value: object) -> None:
    lacking = {key: each for key, each in body.items() if key != name}
    if value != "missing":
        lacking[name] = value
    with pytest.raises(BadEntry) as caught:
        Entry.from_line(line_of(type_, lacking))
    assert caught.value.where == f"/{name}"


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        ("label", {}),
        ("label", {"target": 5, "label": 7}),
        ("outcome", {"kind": "odd"}),
        ("link", {}),
        ("custom", {"ns": None}),
        ("config", {"instructions_parts": "x", "omit": 3}),
        ("response", {"attempts": "two"}),
        ("env", {"workspace": []}),
        ("info", {"name": 3}),
        ("item", {"item": {"type": "item_reference", "id": "x"}}),
        ("item", {**USER, "normalised": "odd", "legacy_id": 5}),
        ("label", {"target": None, "label": "leaf", "synthetic": True}),
        ("later", {"x": 1}),
        ("ns:name", {"item": 5}),
        ("decision", {"call_id": "c", "target": HASH, "verdict": "reject"}),
    ],
)
def test_a_reader_takes_what_a_writer_may_not_write(type_: str, body: Json) -> None:
    assert Entry.from_line(line_of(type_, body)).body == body


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_raise_only_declared_errors(data: bytes) -> None:
    with pytest.raises(AgentSessionError):
        Entry.from_line(data)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 400), st.integers(0, 255))
def test_a_changed_byte_never_passes_for_the_entry(at: int, byte: int) -> None:
    line = bytearray(line_of())
    line[at % len(line)] = byte
    try:
        read = Entry.from_line(bytes(line))
    except AgentSessionError:
        return
    assert read.line == Entry.from_line(line_of()).line


# --- stored, facts, blobs --------------------------------------------------------------------------------------------


def test_a_stored_entry_loads_its_body_when_it_is_asked_for() -> None:
    sealed = Entry.from_line(line_of())
    loads: list[str] = []

    def load() -> bytes:
        loads.append("load")
        return sealed.content

    entry = Entry.stored(sealed.id, "item", "", TS, sealed.content_hash, load)
    assert (entry.envelope, entry == sealed, loads) == (sealed.envelope, True, [])
    assert (entry.body, entry.facts, entry.line) == (sealed.body, sealed.facts, sealed.line)
    assert loads == ["load"]


def test_call_id_is_the_items_or_the_bodys() -> None:
    call = {"item": {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}, "call_id": "no"}
    assert Entry.seal("item", call, "", TS).call_id == "c1"
    assert Entry.seal("dispatch", {"call_id": "c2", "target": HASH}, "", TS).call_id == "c2"
    assert Entry.seal("link", {"call_id": 5}, "", TS).call_id == ""


def test_facts_come_with_the_entry() -> None:
    entry = Entry.seal("label", {"target": HASH, "label": "leaf"}, "", TS)
    assert (entry.facts.code, entry.facts.kind, entry.facts.target) == (Code.LABEL, Kind.LEAF, HASH)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (f"sidecar:{HASH}", [HASH]),
        ([f"sidecar:{HASH}", {"x": f"sidecar:{OTHER}"}, f"sidecar:{HASH}"], [HASH, OTHER]),
        (f"see sidecar:{HASH}", []),
        (f'"sidecar:{HASH}"', []),
        ("sidecar:sha256:short", []),
        (f"sidecar:{HASH.upper()}", []),
    ],
)
def test_a_blob_is_named_by_a_url_that_is_a_whole_string(value: object, named: list[str]) -> None:
    entry = Entry.seal("custom", {"ns": "n", "data": value}, "", TS)
    assert sidecar_blobs(entry.content) == named
    assert bool(entry.facts.flags & Flag.BLOBS) is bool(named)


# --- drafts ----------------------------------------------------------------------------------------------------------


def test_a_draft_is_made_of_line_members() -> None:
    draft = Draft.of({"type": "custom", "ns": "n", "ts": TS, "parent": HASH, "parents": [{"entry": OTHER}]})
    assert (draft.type, draft.body, draft.id, draft.parent, draft.ts) == ("custom", {"ns": "n"}, None, HASH, TS)
    assert list(draft.parents) == [{"entry": OTHER}]
    assert Draft.of(draft) is draft


def test_a_draft_of_an_entry_says_everything_of_it() -> None:
    entry = Entry.from_line(line_of(parents=[{"entry": HASH}]))
    for source in (entry, entry.line, entry.members()):
        draft = Draft.of(source)
        assert (draft.id, draft.parent or "", draft.ts) == (entry.id, "", TS)
        assert (draft.body, list(draft.parents), list(draft.changes)) == (entry.body, entry.parents, [])


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ({}, BadEntry),
        ({"type": 5}, BadEntry),
        (b"[1]", BadEntry),
        ({"type": "info", "id": 5}, BadID),
        ({"type": "info", "ts": 5}, BadID),
        ({"type": "info", "parent": ["x"]}, BadID),
        ({"type": "info", "parents": "x"}, BadConvergence),
        (b"{", BadJSON),
        (b'{"type":"info","x":1e999}', BadJSON),
        (b'{"type":"info","parents":[{"entry":"\\ud800"}]}', BadJSON),
    ],
)
def test_what_is_no_entry_makes_no_draft(source: Any, error: type[AgentSessionError]) -> None:
    with pytest.raises(error):
        Draft.of(source)


def test_bytes_that_no_line_may_hold_are_normalised_with_their_source_text() -> None:
    data = b'{"type":"info","name":"a\\uD800b","n":9007199254740993,"bad":"\xff"}'
    draft = Draft.of(data)
    assert draft.body == {"name": "a\ufffdb", "n": 9007199254740992, "bad": "\ufffd"}
    assert list(draft.changes) == [
        {"at": "/bad", "raw": "Iv8i"},
        {"at": "/n", "was": "9007199254740993"},
        {"at": "/name", "was": '"a\\uD800b"'},
    ]


def test_digits_stay_where_the_payload_has_a_string() -> None:
    data = b'{"item":{"type":"function_call_output","call_id":12345678901234567891,"output":"x"},"type":"item"}'
    draft = Draft.of(data)
    assert draft.body["item"]["call_id"] == "12345678901234567891"
    assert list(draft.changes) == [{"at": "/item/call_id", "was": "12345678901234567891"}]


def test_a_draft_moves_and_respells_its_time() -> None:
    draft = Draft.of({**USER, "type": "item", "id": HASH})
    moved = draft.at(parent=OTHER, ts="2026-01-01T02:00:00.100+02:00", parents=[{"entry": HASH}])
    assert (moved.id, moved.parent, moved.ts, list(moved.parents)) == (
        None,
        OTHER,
        "2026-01-01T00:00:00.1Z",
        [{"entry": HASH}],
    )
    assert draft.id == HASH
    with pytest.raises(BadTimestamp):
        draft.at(ts="yesterday")


def test_errors_say_where() -> None:
    checks: list[Callable[[], object]] = [
        lambda: Entry.from_line(b'{"type":"item","a":{"b":1e999}}'),
        lambda: Draft.of(b'{"type":"info","a":{"b":1e999}}'),
    ]
    for check in checks:
        with pytest.raises(BadJSON) as caught:
            check()
        assert caught.value.where.startswith("/a/b")
