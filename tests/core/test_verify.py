"""The ``verify`` report (cli.md): verdicts on the reference files, and what counts as what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.jsonl import projection_lines, read_session
from agentsession_cas.core.request import request_hash
from agentsession_cas.core.tree import Session
from agentsession_cas.core.verify import verify, verify_file
from tests.helpers.tape import Tape

FIXTURES = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"
WHOLE = ["basic", "branch", "fork", "compaction", "runs", "normalised", "parts", "omit", "duplicate-id", "v0.4/basic"]
WRONG = "sha256:" + "0" * 64


def reference(name: str) -> bytes:
    """The bytes of a reference file."""
    return (FIXTURES / f"{name}.jsonl").read_bytes()


def report_of(tape: Tape) -> dict[str, Any]:
    """The report on a session made by hand."""
    session = Session(tape.header, tape.source, leaf=tape.id(tape.at) if tape.at >= 0 else "")
    return verify(session)


def codes(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Code and severity of each problem."""
    return [(problem["code"], problem["severity"]) for problem in report["problems"]]


# --- the reference files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WHOLE)
def test_whole_reference_files_are_ok(name: str) -> None:
    report, status = verify_file(reference(name))
    assert (report["ok"], status) == (True, 0)
    assert report["responses"]["mismatched"] == 0
    assert report["responses"]["other_form"] == 0
    assert report["truncated"] is None
    assert report["leaf"].startswith("sha256:")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("bad-records", {"code": "record_missing", "line": 6}),
        ("bad-first-kept", {"code": "first_kept", "line": 3}),
        ("truncated", {"code": "truncated", "line": 10}),
        ("bad-parent", {"code": "no_entry", "line": 4}),
        ("bad-base-root", {"code": "base_rule", "line": 10}),
    ],
)
def test_broken_reference_files_exit_3_with_their_one_problem(name: str, problem: dict[str, Any]) -> None:
    report, status = verify_file(reference(name))
    assert (report["ok"], status) == (False, 3)
    (found,) = report["problems"]
    assert found["severity"] == "error"
    assert {key: found[key] for key in problem} == problem
    readable = name not in ("bad-parent", "bad-base-root")
    assert (report["entries"] > 0) is readable
    assert report["session"].startswith("01995b2a")


def test_the_shape_of_a_report() -> None:
    report, _ = verify_file(reference("duplicate-id"))
    assert list(report) == [
        "ok",
        "format",
        "session",
        "entries",
        "leaf",
        "responses",
        "truncated",
        "repeated",
        "problems",
    ]
    assert report["entries"] == len(reference("duplicate-id").splitlines()) - 2
    assert len(report["repeated"]) == 1
    assert report["responses"] == {"verified": 2, "no_hash": 0, "mismatched": 0, "other_form": 0}
    json.dumps(report)


def test_a_report_gives_the_format_the_header_declares() -> None:
    for name in ("basic", "v0.4/basic"):
        declared = json.loads(reference(name).splitlines()[0])["format"]
        assert verify_file(reference(name))[0]["format"] == declared


def test_a_migrated_file_is_noted() -> None:
    report, status = verify_file(reference("v0.4/basic"))
    assert codes(report) == [("migrated", "note")]
    assert status == 0


def test_a_truncated_file_tells_line_and_error() -> None:
    report, _ = verify_file(reference("truncated"))
    assert report["truncated"]["line"] == 10
    assert report["truncated"]["error"]
    assert report["responses"]["verified"] == 2


# --- what cannot be read, and what holds nothing ---------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"{}", b"[]\n", b"\xff\xfe", b"nonsense\n"])
def test_what_is_no_session_file_is_a_report_not_a_traceback(data: bytes) -> None:
    report, status = verify_file(data)
    assert (report["ok"], status) == (False, 3)
    assert len(report["problems"]) == 1
    assert (report["format"], report["session"], report["leaf"]) == ("", "", None)


def test_a_later_format_is_named() -> None:
    data = reference("basic").replace(b'"agentsession/0.5"', b'"agentsession/0.99"', 1)
    if b"0.99" not in data:
        lines = reference("basic").splitlines(keepends=True)
        header = {**json.loads(lines[0]), "format": "agentsession/0.99"}
        data = json.dumps(header).encode() + b"\n" + b"".join(lines[1:])
    report, status = verify_file(data)
    assert codes(report) == [("unsupported_format", "error")]
    assert status == 3


def test_a_corrupt_middle_line_is_named() -> None:
    lines = reference("basic").splitlines(keepends=True)
    lines[3] = lines[3].replace(b"2+2", b"2+3") if b"2+2" in lines[3] else lines[3].replace(b'"ts"', b'"tz"')
    report, status = verify_file(b"".join(lines))
    assert status == 3
    assert report["problems"][0]["line"] == 4
    assert report["entries"] == 0


def test_a_header_alone_is_nothing_to_verify() -> None:
    report, status = verify_file(reference("basic").splitlines(keepends=True)[0])
    assert (report["ok"], status) == (False, 1)
    assert codes(report) == [("nothing_to_verify", "error")]
    assert (report["entries"], report["leaf"]) == (0, None)


def test_a_header_and_a_cut_line_is_an_integrity_problem() -> None:
    header, line = reference("basic").splitlines(keepends=True)[:2]
    report, status = verify_file(header + line[:20])
    assert codes(report) == [("truncated", "error")]
    assert status == 3


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_damage_gives_a_report(data: st.DataObject) -> None:
    text = bytearray(reference(data.draw(st.sampled_from(["runs", "compaction", "fork"]))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    report, status = verify_file(bytes(text))
    assert status in (0, 1, 3)
    assert report["ok"] is (status == 0)


# --- problems --------------------------------------------------------------------------------------------------------


def test_an_unknown_type_is_an_error_and_an_extension_is_none() -> None:
    tape = Tape()
    tape.add("acme:note", {"x": 1})
    unknown = tape.add("memo", {"x": 1})
    report = report_of(tape)
    assert codes(report) == [("unknown_type", "error")]
    assert report["problems"][0]["entry"] == tape.id(unknown)


def test_a_mismatch_is_an_error_and_a_missing_hash_is_none() -> None:
    tape = Tape()
    tape.user()
    tape.response("r1")
    wrong = tape.response("r2", request_hash=WRONG)
    report = report_of(tape)
    assert report["responses"] == {"verified": 0, "no_hash": 1, "mismatched": 1, "other_form": 0}
    assert codes(report) == [("hash_mismatch", "error")]
    assert report["problems"][0]["entry"] == tape.id(wrong)


def test_a_request_in_another_form_is_a_note() -> None:
    tape = Tape()
    tape.add("config", {"model": "m", "tools_added": [{"type": "function", "name": "t"}]})
    tape.add("item", {"item": {"type": "message", "role": "user", "content": "hi"}})
    # openresponses.md §2, the worked example of the safe rule: the hash of the values as recorded.
    recorded = "sha256:0ed9683659596c3dac500d2a7dfdf679d6104129b99e500de65464d7bb8e860c"
    tape.response(request_hash=recorded)
    report = report_of(tape)
    assert report["responses"] == {"verified": 0, "no_hash": 0, "mismatched": 0, "other_form": 1}
    assert codes(report) == [("other_form", "note")]
    assert report["ok"]


def test_a_response_that_ignored_the_omit_is_told_apart() -> None:
    tape = Tape()
    message = tape.user()
    tape.user("second")
    tape.add("config", {"model": "m", "omit": {"items": [tape.id(message)]}})
    whole = {
        "model": "m",
        "store": False,
        "input": [tape.source.entry(position).body["item"] for position in (0, 1)],
    }
    tape.response(request_hash=request_hash(whole))
    report = report_of(tape)
    assert codes(report) == [("omit_divergence", "error")]
    assert report["responses"]["mismatched"] == 1


def test_a_response_below_a_broken_compaction_cannot_be_verified() -> None:
    tape = Tape()
    tape.user()
    summary = {"type": "message", "role": "system", "content": []}
    tape.add("compaction", {"first_kept": WRONG, "summary": summary, "config": {}})
    tape.response(request_hash=WRONG)
    tape.response("r2")
    report = report_of(tape)
    assert codes(report) == [("first_kept", "error"), ("hash_mismatch", "error")]
    assert report["responses"] == {"verified": 0, "no_hash": 1, "mismatched": 1, "other_form": 0}


def test_first_kept_on_another_branch_or_the_compaction_itself_is_off_its_path() -> None:
    tape = Tape()
    root = tape.user()
    aside = tape.user("aside")
    tape.branch(root)
    tape.user("here")
    summary = {"type": "message", "role": "system", "content": []}
    wrong = tape.add("compaction", {"first_kept": tape.id(aside), "summary": summary})
    tape.add("compaction", {"first_kept": tape.id(wrong), "summary": summary})
    report = report_of(tape)
    assert codes(report) == [("first_kept", "error")]
    assert report["problems"][0]["entry"] == tape.id(wrong)


def test_an_unresolved_of_or_part_is_a_warning() -> None:
    tape = Tape()
    of = tape.add("config", {"instructions_omitted": [{"keep": 1, "of": WRONG}]})
    part = tape.add("config", {"instructions_parts": [{"id": "a", "hash": WRONG}]})
    report = report_of(tape)
    assert codes(report) == [("unresolved_of", "warning"), ("unresolved_part", "warning")]
    assert [problem["entry"] for problem in report["problems"]] == [tape.id(of), tape.id(part)]
    assert report["ok"]


def test_every_branch_is_checked_and_each_problem_named_once() -> None:
    tape = Tape()
    call = tape.call()
    output = tape.output()
    tape.user()
    tape.branch(output)
    tape.user("other")
    tape.branch(call)
    tape.dispatch(call)
    wrong = tape.decide(call, "reject")
    report = report_of(tape)
    assert [(problem["code"], problem["entry"]) for problem in report["problems"]] == [
        ("reject_dispatched", tape.id(wrong)),
        ("record_missing", tape.id(output)),
    ]


def test_an_empty_resume_is_ok() -> None:
    tape = Tape()
    tape.start(source="resume")
    tape.end("interrupted")
    assert report_of(tape)["ok"]


def test_lines_are_those_of_the_file_with_blanks_and_repeats() -> None:
    lines = reference("bad-records").splitlines(keepends=True)
    data = b"\n\n" + lines[0] + b"\r\n" + lines[1] + lines[1] + b"".join(lines[2:])
    report, _ = verify_file(data)
    number = report["problems"][0]["line"]
    entry = report["problems"][0]["entry"]
    assert json.loads(data.split(b"\n")[number - 1])["id"] == entry


def test_a_written_session_reads_back_to_the_same_report() -> None:
    session = read_session(reference("runs"))
    data = b"".join(line + b"\n" for line in projection_lines(session))
    assert verify_file(data) == verify_file(reference("runs"))
