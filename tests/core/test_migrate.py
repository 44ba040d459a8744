"""Files of 0.1 to 0.4: what migrates to what, and what cannot be written again (format.md §11)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import entry
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.facts import CODES
from agentsession_cas.core.header import FORMAT
from agentsession_cas.core.jsonl import projection_lines, read_session, scan
from agentsession_cas.core.references import map_references
from agentsession_cas.core.tree import Session
from agentsession_cas.errors import (
    AgentSessionError,
    BadConvergence,
    BadEntry,
    BadFile,
    BadID,
    BadTimestamp,
    NoEntry,
    ScanMigrated,
    UnresolvedMigration,
)

SESSIONS = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"
MESSAGE = {"type": "message", "role": "user", "content": "hi"}

Json = dict[str, Any]


def old_file(*entries: Json, **header: Any) -> bytes:
    """A 0.4 file; an entry hangs from the one before unless it says otherwise."""
    first = {
        "type": "session",
        "format": "agentsession/0.4",
        "id": "s1",
        "created_at": "2025-01-01T00:00:00Z",
        "payload": "openresponses/2026-01-15",
        **header,
    }
    lines: list[Json] = [first]
    for held in entries:
        parent = lines[-1].get("id") if len(lines) > 1 else None
        lines.append({"parent": parent, "ts": "2025-01-01T00:00:01Z", **held})
    return b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"


def old(id_: str, type_: str = "info", **members: Any) -> Json:
    return {"type": type_, "id": id_, **members}


def migrated(*entries: Json, **header: Any) -> Session:
    return read_session(old_file(*entries, **header))


def test_the_reference_file_gives_exactly_the_entries_of_the_later_one() -> None:
    early = read_session((SESSIONS / "v0.4" / "basic.jsonl").read_bytes())
    late = read_session((SESSIONS / "basic.jsonl").read_bytes())
    assert [held.id for held in early] == [held.id for held in late]
    assert [held.line for held in early] == [held.line for held in late]
    assert (early.migrated, early.unresolved, early.leaf) == (True, [], late.leaf)
    assert (early.header.format, early.declared_format) == (FORMAT, "agentsession/0.1")
    assert early.entry("r0000002").body["response_id"] == "resp_2"
    lines = list(projection_lines(early))
    assert lines[1:] == [held.line for held in late]
    assert read_session(b"\n".join(lines)).declared_format == FORMAT


def test_an_entry_is_hashed_with_its_old_id_in_its_body() -> None:
    session = migrated(old("e1", name="x", ts="2025-01-01T02:00:00.50+02:00"))
    (held,) = session
    assert held == Entry.seal("info", {"name": "x", "legacy_id": "e1"}, "", "2025-01-01T00:00:00.5Z")
    assert session.entry("e1") == held


@pytest.mark.parametrize("minor", [1, 2, 3, 4])
def test_every_minor_before_0_5_is_migrated_alike(minor: int) -> None:
    entries = [old("a", "item", item=MESSAGE), old("b", "label", target="a", label="x")]
    session = migrated(*entries, format=f"agentsession/0.{minor}")
    assert (session.migrated, session.declared_format) == (True, f"agentsession/0.{minor}")
    assert [held.id for held in session] == [held.id for held in migrated(*entries)]
    assert session.entry("b").body["target"] == session.entry("a").id
    assert session.header.format == FORMAT


def test_every_member_that_names_an_entry_names_it_by_its_new_id() -> None:
    session = migrated(
        old("a", "queued", item=MESSAGE, mode="steer"),
        old("b", "item", item=MESSAGE, queued_from="a"),
        old("c", "item", item={"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}, from_link="b"),
        old("d", "dispatch", call_id="c", target="c"),
        old("e", "decision", call_id="c", target="c", verdict="hold"),
        old("f", "label", target="b", label="x"),
        old("g", "outcome", kind="task", target="b"),
        old("h", "branch_summary", summary=MESSAGE, **{"from": "b"}),
        old("i", "link", rel="judged_by", session="s", target="b"),
        old("j", "link", rel="subsession", session="s", target="b", cancel="sent"),
        old("k", "config", omit={"items": ["b", "zz"], "outputs": {"items": ["b"]}, "images": {"before": "b"}}),
        old("l", "config", instructions_omitted=[{"keep": 1, "of": "k"}, {"id": "x", "of": "k"}]),
        old("m", "compaction", first_kept="b", summary=MESSAGE, config={"omit": {"items": ["b"]}, "model": "b"}),
        old("n", parents=[{"entry": "c", "note": 1}, {"entry": "a"}]),
        old("o", "link", rel="fork_of", session="s", target="b"),
        old("p", target="b", item="b"),
    )
    assert session.unresolved == []
    ids = {held.body["legacy_id"]: held.id for held in session}
    body = {name: session.entry(name).body for name in ids}
    assert body["b"]["queued_from"] == ids["a"]
    assert (body["c"]["from_link"], body["c"]["item"]["call_id"]) == (ids["b"], "c")
    assert [body[name]["target"] for name in "defgij"] == [ids[name] for name in "ccbbbb"]
    assert body["h"]["from"] == ids["b"]
    assert body["k"]["omit"] == {
        "items": [ids["b"], "zz"],
        "outputs": {"items": [ids["b"]]},
        "images": {"before": ids["b"]},
    }
    assert body["l"]["instructions_omitted"] == [{"keep": 1, "of": ids["k"]}, {"id": "x", "of": "k"}]
    assert (body["m"]["first_kept"], body["m"]["config"]) == (ids["b"], {"omit": {"items": [ids["b"]]}, "model": "b"})
    assert session.entry("n").parents == [{"entry": ids["c"], "note": 1}, {"entry": ids["a"]}]
    assert (body["o"]["target"], body["p"]["target"], body["p"]["item"]) == ("b", "b", "b")
    assert [held.parent for held in session][1:] == [ids[name] for name in "abcdefghijklmno"]


UNRESOLVED: list[tuple[str, Json]] = [
    ("an extension", old("x", "acme:step", about="a")),
    ("a type of no namespace", old("x", "step")),
    ("a reference into another session", old("x", parents=[{"session": "t", "entry": "e9"}])),
    ("a body with a reserved member", old("x", content="c")),
    ("a body that had a legacy_id", old("x", legacy_id="older")),
]


@pytest.mark.parametrize(("held"), [held for _, held in UNRESOLVED], ids=[name for name, _ in UNRESOLVED])
def test_what_cannot_be_rewritten_is_listed_and_never_written(held: Json) -> None:
    session = migrated(old("a"), held, old("b"))
    assert session.unresolved == [session.entry("x").id]
    assert session.leaf == session.entry("b").id
    for name, value in held.items():
        if name in ("about", "content"):
            assert session.entry("x").body[name] == value
    with pytest.raises(UnresolvedMigration):
        projection_lines(session)


def test_a_name_of_an_entry_further_down_cannot_be_rewritten() -> None:
    session = migrated(old("a", "label", target="b", label="x"), old("b"))
    assert session.unresolved == [session.entry("a").id]
    assert session.entry("a").body["target"] == "b"


def test_a_name_of_nothing_stays() -> None:
    session = migrated(old("a", "outcome", kind="task", target="elsewhere"))
    assert (session.unresolved, session.entry("a").body["target"]) == ([], "elsewhere")


def test_values_no_line_may_hold_are_normalised_on_the_way() -> None:
    session = migrated(old("a", big=2**53 + 1, name="x\ud800"))
    assert session.entry("a").body == {
        "big": 2**53,
        "name": "x\ufffd",
        "legacy_id": "a",
        "normalised": [{"at": "/big", "was": "9007199254740993"}, {"at": "/name", "was": '"x\\ud800"'}],
    }


def test_a_mark_keeps_its_meaning() -> None:
    session = migrated(old("a"), old("b"), old("c", parent="a"), old("m", "label", target="b", label="leaf"))
    assert session.leaf == session.entry("b").id


def test_a_migrated_session_takes_appends() -> None:
    session = read_session(old_file(old("a")), clock=lambda: "2026-01-01T00:00:00Z")
    result = session.append(entry.user("more"))
    assert [held.body.get("legacy_id") for held in session.path(result.id)] == ["a", None]


def test_a_line_met_again_is_a_repeat() -> None:
    data = old_file(old("a"), old("b", parent="a"))
    session = read_session(data + data.splitlines()[2] + b"\n")
    assert (session.repeated, len(session)) == ([session.entry("b").id], 2)


def test_a_last_line_cut_short_is_told_of() -> None:
    session = read_session(old_file(old("a")) + b'{"type":"info","id":"b","par')
    assert session.truncated is not None
    assert (session.truncated.line, len(session)) == (3, 1)


@pytest.mark.parametrize(
    ("held", "error"),
    [
        (old("a", name="other"), BadFile),
        (old(""), BadFile),
        ({"type": "info"}, BadFile),
        ({"type": "info", "id": 5}, BadID),
        ({"id": "x"}, BadEntry),
        (old("x", parent="zz"), NoEntry),
        (old("x", parents=[{"entry": "zz"}]), BadConvergence),
        (old("x", parents=[{}]), BadConvergence),
        (old("x", ts=None), BadTimestamp),
        (old("x", ts="yesterday"), BadTimestamp),
        (old("x", "item"), BadEntry),
        (old("x", "run", run_id="r", phase="middle"), BadEntry),
    ],
)
def test_a_line_that_is_no_entry_makes_the_file_unreadable(held: Json, error: type[AgentSessionError]) -> None:
    with pytest.raises(error) as caught:
        migrated(old("a"), held, old("b", parent="a"))
    assert (type(caught.value), caught.value.line) == (error, 3)


@pytest.mark.parametrize(
    ("held", "header", "format_"),
    [
        (old("a"), {}, FORMAT),
        (old("a", redacted=[1]), {}, "agentsession/0.12"),
        (old("a"), {"redacted_from": 5}, "agentsession/0.12"),
        (old("a"), {"redacted": True}, FORMAT),
    ],
)
def test_a_migrated_session_takes_the_last_format_that_gives_nothing_a_meaning(
    held: Json, header: Json, format_: str
) -> None:
    session = migrated(held, **header)
    assert (session.header.format, session.declared_format) == (format_, "agentsession/0.4")


def test_an_early_file_has_nothing_to_scan() -> None:
    with pytest.raises(ScanMigrated):
        scan(old_file(old("a")))


values = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from(["", "a", "b", "zz"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["items", "outputs", "images", "before", "omit", "of", "keep", "id", "target"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
bodies = st.dictionaries(
    st.sampled_from(["target", "from", "first_kept", "omit", "config", "instructions_omitted", "rel", "queued_from"]),
    values,
    max_size=4,
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([*CODES, "acme:x"]), bodies)
def test_renaming_changes_names_and_nothing_else(type_: str, body: Json) -> None:
    before = json.dumps(body)
    assert map_references(type_, body, lambda name: name) == body
    there = map_references(type_, body, lambda name: f"<{name}>")
    assert map_references(type_, there, lambda name: name[1:-1]) == body
    assert json.dumps(body) == before
    assert json.dumps(there).replace("<", "").replace(">", "") == before
