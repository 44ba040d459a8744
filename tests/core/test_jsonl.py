"""Session files: what reads, what does not and on which line, and what a session is written as (format.md §2, A10)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import entry
from agentsession_cas.core.accept import Outcome
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.header import Header, new_header
from agentsession_cas.core.jsonl import Source, is_synthetic, projection_lines, read_session, scan
from agentsession_cas.core.tree import Session
from agentsession_cas.errors import (
    AgentSessionError,
    BadConvergence,
    BadEntry,
    BadFile,
    BadHeader,
    BadID,
    BadJSON,
    BaseRule,
    LimitExceeded,
    NoEntry,
    RedactedFrom,
    ReservedMember,
    UnsupportedFormat,
)

SESSIONS = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"
CONTEXTS = Path(__file__).parents[2] / "fixtures" / "reference" / "context"
WHOLE = (
    "basic",
    "branch",
    "fork",
    "compaction",
    "runs",
    "normalised",
    "parts",
    "omit",
    "bad-records",
    "bad-first-kept",
)
TS = "2026-01-01T00:00:00Z"
HEADER = new_header(id="s1", created_at=TS)
ABSENT = "sha256:" + "ab" * 32

Json = dict[str, Any]


def data_of(name: str) -> bytes:
    return (SESSIONS / f"{name}.jsonl").read_bytes()


def written(session: Session) -> bytes:
    return b"".join(line + b"\n" for line in projection_lines(session))


def chain(*bodies: Json, parent: str = "") -> list[Entry]:
    """Info entries, each under the one before."""
    entries = []
    for body in bodies:
        entries.append(Entry.seal("info", body, parent, TS))
        parent = entries[-1].id
    return entries


def file_of(*lines: Entry | bytes, header: Header = HEADER) -> bytes:
    pieces = [header.line, *(line.line if isinstance(line, Entry) else line for line in lines)]
    return b"".join(piece + b"\n" for piece in pieces)


# --- reference files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_file_is_written_back_byte_for_byte(name: str) -> None:
    data = data_of(name)
    session = read_session(data)
    assert (session.truncated, session.repeated, session.blank_lines, session.migrated) == (None, [], 0, False)
    assert [held.id for held in session] == [json.loads(line)["id"] for line in data.splitlines()[1:]]
    assert session.header.line == data.splitlines()[0]
    assert session.declared_format == json.loads(data.splitlines()[0])["format"]
    assert written(session) == data


@pytest.mark.parametrize("name", ["basic", "branch", "compaction", "omit", "runs"])
def test_the_leaf_is_one_the_reference_has_a_context_for(name: str) -> None:
    assert read_session(data_of(name)).leaf in json.loads((CONTEXTS / f"{name}.json").read_bytes())


def test_a_fork_opens_with_the_path_to_its_base() -> None:
    session = read_session(data_of("fork"))
    base = session.header.base
    assert session.source.entry_id(session.source.base_count - 1) == base
    assert [held.id for held in session.path(base)] == [held.id for held in session][: session.source.base_count]


def test_a_last_line_cut_short_is_told_of() -> None:
    data = data_of("truncated")
    session = read_session(data)
    assert session.truncated is not None
    assert (session.truncated.line, session.truncated.data) == (10, data.splitlines()[9])
    assert isinstance(session.truncated.error, BadJSON)
    assert written(session) == b"".join(data.splitlines(keepends=True)[:9])


def test_a_repeated_line_is_the_same_entry() -> None:
    session = read_session(data_of("duplicate-id"))
    lines = data_of("duplicate-id").splitlines()[1:]
    ids = [json.loads(line)["id"] for line in lines]
    assert session.repeated == [id_ for at, id_ in enumerate(ids) if id_ in ids[:at]] != []
    assert [held.id for held in session] == list(dict.fromkeys(ids))


@pytest.mark.parametrize(("name", "error", "line"), [("bad-parent", NoEntry, 4), ("bad-base-root", BaseRule, 10)])
def test_a_broken_file_is_unreadable_and_says_where(name: str, error: type[AgentSessionError], line: int) -> None:
    for read in (lambda data: read_session(data), lambda data: list(scan(data))):
        with pytest.raises(error) as caught:
            read(data_of(name))
        assert (type(caught.value), caught.value.line) == (error, line)
        assert caught.value.where.startswith(f"line {line}")


# --- spellings of a file ---------------------------------------------------------------------------------------------


def streams(data: bytes) -> Iterator[Source]:
    yield data
    yield io.BytesIO(data)
    yield data.splitlines(keepends=True)
    yield iter(data.split(b"\n"))


def test_every_kind_of_source_reads_alike() -> None:
    for source in streams(data_of("runs")):
        assert written(read_session(source)) == data_of("runs")


def test_crlf_a_bom_blank_lines_and_a_missing_last_lf_are_accepted() -> None:
    lines = data_of("basic").splitlines()
    odd = b"\xef\xbb\xbf\r\n" + b"\r\n".join(lines[:3]) + b"\r\n \t\r\n\n" + b"\r\n".join(lines[3:])
    for source in (odd, io.BytesIO(odd)):
        session = read_session(source)
        assert (session.blank_lines, session.truncated) == (3, None)
        assert written(session) == data_of("basic")


def test_lines_are_counted_with_the_blank_ones() -> None:
    first, second = chain({"n": 1}, {"n": 2})
    with pytest.raises(NoEntry) as caught:
        read_session(file_of(b"", second, first))
    assert caught.value.line == 3


def test_a_header_alone_is_an_empty_session() -> None:
    for data in (HEADER.line, HEADER.line + b"\n\n"):
        session = read_session(data)
        assert (len(session), session.leaf) == (0, "")
        assert written(session) == HEADER.line + b"\n"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", BadFile),
        (b"\n\n", BadFile),
        (b"\x00" * 4096, BadJSON),
        (b"\xff\xfe", BadJSON),
        (b'{"type":"session","format":"agen', BadJSON),
        (b"[]", BadHeader),
        (b"{}", BadHeader),
        (file_of().replace(b"0.14", b"0.15"), UnsupportedFormat),
        (file_of().replace(b"openresponses", b"chat"), UnsupportedFormat),
        (file_of().replace(b'"type"', b'"redacted_from":{"session":"o"},"type"'), RedactedFrom),
    ],
)
def test_a_file_without_a_header_it_can_be_read_by(data: bytes, error: type[AgentSessionError]) -> None:
    for read in (read_session, scan):
        with pytest.raises(error) as caught:
            read(data)
        assert (type(caught.value), caught.value.line) == (error, 1)


# --- lines that break a rule -----------------------------------------------------------------------------------------


A, B, C = chain({"n": 1}, {"n": 2}, {"n": 3})
OTHER_ROOT = Entry.seal("info", {"root": 2}, "", TS)


def with_members(held: Entry, **members: Any) -> bytes:
    return json.dumps({**held.members(), **members}).encode()


def resealed(parents: list[Json], type_: str = "info", body: Json | None = None, parent: str = A.id) -> Entry:
    return Entry.seal(type_, {"x": 1} if body is None else body, parent, TS, parents)


BROKEN: list[tuple[bytes, type[AgentSessionError]]] = [
    (b'{"cut', BadJSON),
    (b"12", BadFile),
    (b'{"type":"info","x":1e999}', BadJSON),
    (b'{"type":"info","x":"\\ud800"}', BadJSON),
    (b'{"type":"info","x":1,"x":1}', BadJSON),
    (b'{"x":' + b"[" * 300 + b"]" * 300 + b"}", LimitExceeded),
    (with_members(B, n=5), BadID),
    (with_members(B, ts="2026-01-01T00:00:00.0Z"), BadID),
    (with_members(B, content=1), ReservedMember),
    (resealed([{"entry": C.id}]).line, BadConvergence),
    (resealed([{"session": "s1", "entry": C.id}]).line, BadConvergence),
    (resealed([], "item", {"item": None}).line, BadEntry),
    (C.line, NoEntry),
    (HEADER.line, BadID),
]


@pytest.mark.parametrize(("line", "error"), BROKEN)
def test_a_line_in_the_middle_that_breaks_a_rule(line: bytes, error: type[AgentSessionError]) -> None:
    for read in (lambda data: read_session(data), lambda data: list(scan(data))):
        with pytest.raises(error) as caught:
            read(file_of(A, line, B))
        assert (type(caught.value), caught.value.line) == (error, 3)


@pytest.mark.parametrize(("line", "error"), BROKEN[1:])
def test_a_last_line_that_parses_is_held_to_the_rules(line: bytes, error: type[AgentSessionError]) -> None:
    for tail in (b"", b"\n", b"\r\n\n"):
        with pytest.raises(error) as caught:
            read_session(file_of(A) + line + tail)
        assert caught.value.line == 3


@pytest.mark.parametrize(
    "cut", [b'{"cut', b'{"a":1', b'{"a":"\xe2\x82', b"\x00\x00", b"{", b'{"a":1}}', b"nul", b"NaN"]
)
@pytest.mark.parametrize("tail", [b"", b"\n", b"\r\n", b"\n\n"])
def test_a_last_line_that_is_no_json_was_cut_short(cut: bytes, tail: bytes) -> None:
    data = file_of(A) + cut + tail
    session = read_session(data)
    assert session.truncated is not None
    assert (session.truncated.line, session.truncated.data) == (3, cut)
    assert session.leaf == A.id
    scanned = scan(io.BytesIO(data))
    assert [each.entry for each in scanned] == [A]
    assert scanned.truncated == session.truncated._replace(error=scanned.truncated.error)  # type: ignore[union-attr]


def test_references_into_other_sessions_and_back_are_read() -> None:
    joined = resealed([{"session": "s1", "entry": B.id}, {"session": "t", "entry": ABSENT}])
    assert read_session(file_of(A, B, joined)).leaf == joined.id


def test_several_roots_only_without_a_base() -> None:
    assert read_session(file_of(A, OTHER_ROOT)).children("") == [A.id, OTHER_ROOT.id]


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ([A, B, OTHER_ROOT], 4),
        ([A, B, Entry.seal("info", {"x": 1}, A.id, TS)], 4),
        ([A, Entry.seal("info", {"x": 1}, A.id, TS), B], 4),
        ([A, OTHER_ROOT, B], 3),
        ([A, C, B], 3),
        ([B], 2),
        ([A], 0),
        ([], 0),
        ([A, b'{"cut'], 0),
    ],
)
def test_the_lines_of_a_fork_keep_the_base_rule(lines: list[Entry | bytes], line: int) -> None:
    header = new_header(id="s2", created_at=TS, base=B.id)
    data = file_of(*lines, header=header)
    for read in (lambda data: read_session(data), lambda data: list(scan(data))):
        with pytest.raises(BaseRule) as caught:
            read(data)
        assert caught.value.line == line


def test_a_base_that_is_a_leaf_label_is_refused() -> None:
    mark = Entry.seal("label", {"label": "leaf", "target": A.id}, A.id, TS)
    with pytest.raises(BaseRule):
        read_session(file_of(A, mark, header=new_header(id="s2", created_at=TS, base=mark.id)))


def test_a_fork_may_repeat_a_line_of_its_prefix() -> None:
    session = read_session(file_of(A, B, A, C, header=new_header(id="s2", created_at=TS, base=B.id)))
    assert (session.repeated, session.source.base_count, session.leaf) == ([A.id], 2, C.id)


# --- scanning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*WHOLE, "duplicate-id", "truncated"])
def test_a_scan_meets_what_a_read_does(name: str) -> None:
    session = read_session(data_of(name))
    found = scan(data_of(name))
    lines = list(found)
    assert [each.entry.id for each in lines if not each.repeat] == [held.id for held in session]
    assert [each.entry.id for each in lines if each.repeat] == session.repeated
    assert [each.number for each in lines] == list(range(2, len(lines) + 2))
    assert (found.truncated is None) == (session.truncated is None)
    assert (found.header, found.blank_lines) == (session.header, session.blank_lines)


# --- writing ---------------------------------------------------------------------------------------------------------


def grown() -> Session:
    session = Session(HEADER, clock=lambda: TS)
    session.append_batch([entry.user("one"), entry.user("two").at(ts="2026-01-02T00:00:00Z"), entry.user("three")])
    return session


def test_a_head_the_file_would_not_resume_at_is_named_by_a_synthetic_label() -> None:
    session = grown()
    second = list(session)[1]
    session.branch(second.id)
    lines = list(projection_lines(session))
    label = Entry.from_line(lines[-1])
    assert len(lines) == len(session) + 2
    assert label.body == {"label": "leaf", "synthetic": True, "target": second.id}
    assert (label.parent, label.ts) == (list(session)[-1].id, second.ts)
    assert is_synthetic(label)
    assert not is_synthetic(second)
    again = read_session(b"\n".join(lines))
    assert (again.leaf, written(again)) == (second.id, b"".join(line + b"\n" for line in lines))


def test_a_head_at_the_universal_root_is_named_by_a_null_target() -> None:
    session = grown()
    session.reset_leaf()
    label = Entry.from_line(list(projection_lines(session))[-1])
    last = list(session)[-1]
    assert label.body == {"label": "leaf", "synthetic": True, "target": None}
    assert (label.parent, label.ts) == (last.id, last.ts)
    assert read_session(written(session)).leaf == ""


def test_a_mark_of_the_sessions_own_needs_no_other() -> None:
    session = grown()
    session.append(entry.leaf_label(next(iter(session)).id))
    assert len(list(projection_lines(session))) == len(session) + 1
    assert read_session(written(session)).leaf == session.leaf


acts = st.lists(st.tuples(st.sampled_from("aaabLLCR"), st.integers(0, 30), st.integers(0, 30)), max_size=20)


@settings(max_examples=200, deadline=None)
@given(acts, st.booleans())
def test_any_session_is_written_reads_back_and_is_written_again(made: list[tuple[str, int, int]], forked: bool) -> None:
    if forked:
        session = read_session(file_of(A, B, header=new_header(id="s2", created_at=TS, base=B.id)), clock=lambda: TS)
    else:
        session = Session(HEADER, clock=lambda: TS)
    for number, (act, under, target) in enumerate(made):
        own = list(session)[max(session.source.base_count - 1, 0) :]
        places = [held.id for held in own] if forked else ["", *(held.id for held in own)]
        place, named = places[under % len(places)], places[target % len(places)]
        draft = entry.info(f"n{number}") if act in "ab" else entry.leaf_label(named)
        if act == "C":
            draft = entry.clear_label(named)
        if act == "R":
            try:
                session.branch(named)
            except AgentSessionError:
                assert session.entry(named).type == "label"
            continue
        result = session.append(draft if act == "a" else draft.at(parent=place))
        assert result.outcome in Outcome
    data = written(session)
    again = read_session(data)
    assert (again.leaf, written(again)) == (session.leaf, data)
    assert [each.entry.id for each in scan(data)] == [held.id for held in again]


# --- anything at all -------------------------------------------------------------------------------------------------


def mangled() -> st.SearchStrategy[bytes]:
    """A reference file with a stretch of it replaced by other bytes, or cut there."""
    whole = st.sampled_from([data_of(name) for name in ("basic", "fork", "runs")])
    return st.builds(
        lambda data, at, length, other: data[: at % len(data)] + other + data[at % len(data) + length :],
        whole,
        st.integers(0, 10_000),
        st.integers(0, 3000),
        st.binary(max_size=8),
    )


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | mangled() | st.binary(max_size=80).map(lambda data: file_of() + data))
def test_any_bytes_raise_only_declared_errors_and_a_scan_agrees(data: bytes) -> None:
    refused = ""
    try:
        session = read_session(data)
    except AgentSessionError as error:
        refused = f"{type(error)} {error.line} {error}"
    try:
        scanned = list(scan(data))
    except AgentSessionError as error:
        assert f"{type(error)} {error.line} {error}" == refused  # noqa: PT017
        return
    assert refused == ""
    assert [each.entry.id for each in scanned if not each.repeat] == [held.id for held in session]
    assert read_session(written(session)).leaf == session.leaf


def test_a_file_of_very_long_lines_reads() -> None:
    long = Entry.seal("custom", {"ns": "n", "data": "x" * (64 * 1024 * 1024)}, A.id, TS)
    session = read_session(io.BytesIO(file_of(A, long)))
    assert session.leaf == long.id
