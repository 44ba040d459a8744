"""The header: what it must hold, what it keeps, how it is named and raised (format.md §3, §11)."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.header import ALL_RECORDS, FORMAT, PAYLOAD, Harness, Header, check_new, new_header
from agentsession_cas.errors import (
    AgentSessionError,
    BadHeader,
    BadInput,
    BadJSON,
    BadTimestamp,
    NoRaise,
    RedactedFrom,
    UnsupportedFormat,
)

SESSIONS = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"
BASE = "sha256:" + "ab" * 32
PLAIN: dict[str, Any] = {
    "type": "session",
    "format": "agentsession/0.14",
    "id": "s1",
    "created_at": "2026-01-01T00:00:00Z",
    "payload": "openresponses/2026-04-24",
}


def header(**members: Any) -> Header:
    return Header.parse({**PLAIN, **members})


@pytest.mark.parametrize("path", sorted(SESSIONS.rglob("*.jsonl")), ids=lambda path: path.stem)
def test_a_reference_header_reads_and_keeps_every_member(path: Path) -> None:
    line = path.read_bytes().splitlines()[0]
    read = Header.parse(line)
    assert read.members() == json.loads(line)
    assert read.line == rfc8785.dumps(json.loads(line))
    assert read.harness == (Harness("fixture", "1") if b'"harness"' in line else None)


def test_every_member_reads() -> None:
    full = header(
        harness={"name": "h", "version": "2", "x": 1},
        records=["run", "queued"],
        cwd="/work",
        parent_session="p",
        spawned_by="call_1",
        base=BASE,
        media="sidecar",
        redacted=True,
        redacted_from={"session": "o", "profile": "public@1", "acme:x": 1},
    )
    assert (full.id, full.format, full.minor, full.payload) == ("s1", FORMAT, 14, PAYLOAD)
    assert (full.harness, full.records) == (Harness("h", "2"), ("run", "queued"))
    assert (full.cwd, full.parent_session, full.spawned_by, full.base) == ("/work", "p", "call_1", BASE)
    assert (full.media, full.redacted, full.redacted_from) == ("sidecar", True, ("o", "public@1"))
    assert full.promises("run")
    assert not full.promises("dispatch")


def test_a_member_in_another_form_is_kept_and_reads_as_absent() -> None:
    odd = {
        "harness": "h",
        "records": "run",
        "cwd": 5,
        "parent_session": None,
        "spawned_by": [],
        "media": "tape",
        "redacted": "yes",
        "redacted_from": {"session": ""},
        "base": None,
        "CWD": "/x",
        "acme:x": {"\U0001f600": 1},
    }
    read = header(**odd)
    assert (read.harness, read.records, read.cwd, read.parent_session, read.spawned_by) == (None, (), "", "", "")
    assert (read.media, read.redacted, read.redacted_from, read.base) == ("inline", False, None, "")
    assert read.members() == {**PLAIN, **odd}


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"type": "item"}, BadHeader),
        ({"type": None}, BadHeader),
        ({"format": None}, BadHeader),
        ({"format": "agentsession/1.0"}, UnsupportedFormat),
        ({"format": "agentsession/0.15"}, UnsupportedFormat),
        ({"format": "agentsession/0.0"}, UnsupportedFormat),
        ({"format": "agentsession/0.05"}, UnsupportedFormat),
        ({"format": "agentsession/0.14 "}, UnsupportedFormat),
        ({"format": "other/0.1"}, UnsupportedFormat),
        ({"id": ""}, BadHeader),
        ({"id": 5}, BadHeader),
        ({"created_at": None}, BadHeader),
        ({"created_at": "yesterday"}, BadHeader),
        ({"payload": None}, BadHeader),
        ({"payload": "chat/2026-04-24"}, UnsupportedFormat),
        ({"payload": "openresponses/soon"}, UnsupportedFormat),
        ({"base": "e1"}, BadHeader),
        ({"base": 5}, BadHeader),
        ({"redacted_from": {"session": "o"}}, RedactedFrom),
        ({"redacted": True, "redacted_from": {"session": "s1"}}, RedactedFrom),
        ({"cwd": float("nan")}, BadJSON),
        ({"cwd": "\ud800"}, BadJSON),
    ],
)
def test_a_header_that_breaks_a_rule_is_refused(members: dict[str, Any], error: type[AgentSessionError]) -> None:
    with pytest.raises(error) as caught:
        header(**members)
    assert type(caught.value) is error


def test_an_unsupported_format_names_both() -> None:
    with pytest.raises(UnsupportedFormat, match=r"agentsession/0\.15.*agentsession/0\.14"):
        header(format="agentsession/0.15")


def test_another_date_of_the_payload_and_an_offset_time_read() -> None:
    read = header(payload="openresponses/2026-01-15", created_at="2026-01-01T02:00:00+02:00")
    assert (read.payload, read.created_at) == ("openresponses/2026-01-15", "2026-01-01T02:00:00+02:00")


def test_before_0_13_redacted_from_is_an_unknown_member() -> None:
    old = header(format="agentsession/0.12", redacted_from={"session": "s1"})
    assert old.redacted_from is None
    assert old.members()["redacted_from"] == {"session": "s1"}


def test_the_incarnation_is_the_hash_of_all_but_the_format() -> None:
    members = {**PLAIN, "cwd": "/x", "acme:x": [1.5]}
    del members["format"]
    expected = "sha256:" + hashlib.sha256(rfc8785.dumps(members)).hexdigest()
    assert header(cwd="/x", **{"acme:x": [1.5]}).ident == expected
    assert header(cwd="/x", **{"acme:x": [1.5]}, format="agentsession/0.9").ident == expected
    assert header(cwd="/y").ident != expected


def test_a_format_is_raised_and_never_lowered() -> None:
    old = header(format="agentsession/0.9", cwd="/x")
    raised = old.raised()
    assert (raised.format, raised.members()) == (FORMAT, {**old.members(), "format": FORMAT})
    assert raised.raised("agentsession/0.9") is raised
    assert old.raised("agentsession/0.12").minor == 12


@pytest.mark.parametrize("form", [{"session": "o"}, "text", None])
def test_a_header_from_before_0_13_with_redacted_from_is_not_raised_to_it(form: object) -> None:
    old = header(format="agentsession/0.11", redacted_from=form)
    assert old.raised("agentsession/0.12").minor == 12
    with pytest.raises(NoRaise):
        old.raised("agentsession/0.13")
    with pytest.raises(NoRaise):
        old.raised()


def test_what_the_caller_does_with_its_members_changes_nothing() -> None:
    members = {**PLAIN, "acme:x": {"n": [1]}}
    read = Header.parse(members)
    members["acme:x"]["n"].append(2)
    read.members()["acme:x"]["n"].append(3)
    assert read.members()["acme:x"] == {"n": [1]}
    assert read == header(**{"acme:x": {"n": [1]}})


# --- new ones --------------------------------------------------------------------------------------------------------


def test_a_new_header_writes_what_is_not_empty() -> None:
    made = new_header(id="s1", created_at=datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))))
    assert made.members() == PLAIN


def test_a_new_header_writes_what_it_is_given() -> None:
    made = new_header(
        id="s1",
        created_at="2026-01-01T00:00:00Z",
        harness=Harness("h"),
        records=[*ALL_RECORDS, "queued", "acme:step"],
        cwd="/x",
        parent_session="p",
        spawned_by="c",
        base=BASE,
        media="sidecar",
        redacted=True,
        redacted_from={"session": "o"},
        extra={"acme:user": "u"},
    )
    assert made.members() == {
        **PLAIN,
        "harness": {"name": "h"},
        "records": ["run", "dispatch", "decision", "queued", "acme:step"],
        "cwd": "/x",
        "parent_session": "p",
        "spawned_by": "c",
        "base": BASE,
        "media": "sidecar",
        "redacted": True,
        "redacted_from": {"session": "o"},
        "acme:user": "u",
    }


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"records": ["runs"]}, BadHeader),
        ({"records": "run"}, BadInput),
        ({"harness": "me"}, BadInput),
        ({"cwd": 5}, BadInput),
        ({"extra": "x"}, BadInput),
        ({"media": "tape"}, BadHeader),
        ({"harness": Harness("")}, BadHeader),
        ({"redacted": True, "redacted_from": {"profile": "p"}}, RedactedFrom),
        ({"redacted_from": {"session": "o"}}, RedactedFrom),
        ({"extra": {"cwd": "/x"}}, BadHeader),
        ({"extra": {"x": (1, 2)}}, BadJSON),
        ({"id": ""}, BadHeader),
        ({"created_at": "now"}, BadTimestamp),
        ({"created_at": datetime(2026, 1, 1)}, BadTimestamp),
        ({"format": "agentsession/0.15"}, UnsupportedFormat),
    ],
)
def test_a_wrong_new_header_is_hard_to_build(members: dict[str, Any], error: type[AgentSessionError]) -> None:
    with pytest.raises(error):
        new_header(**{"id": "s1", "created_at": "2026-01-01T00:00:00Z", **members})


def test_a_parsed_header_for_a_new_session_is_held_to_the_same() -> None:
    check_new(header(redacted=True, redacted_from={"session": "o"}))
    for odd in ({"media": "tape"}, {"redacted_from": {"session": ""}}, {"redacted_from": 5}):
        with pytest.raises(BadHeader):
            check_new(header(**odd))


@pytest.mark.parametrize("id_", ["../x", "a/b", "测试", "CON", "x" * 1000, "\x00", " "])
def test_any_text_is_a_session_id(id_: str) -> None:
    assert Header.parse(header(id=id_).line).id == id_


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=40) | st.dictionaries(st.sampled_from([*PLAIN, "base"]), st.none() | st.text(max_size=6)))
def test_anything_else_raises_only_declared_errors(source: Any) -> None:
    with pytest.raises(AgentSessionError):
        Header.parse(source)
