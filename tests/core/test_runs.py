"""Runs: segments, their calls and their source, row by row of context.md §2; open runs and how they are ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsession_cas.core.jsonl import read_session
from agentsession_cas.core.runs import end_run, open_run, runs
from agentsession_cas.errors import BadEntry
from tests.helpers.tape import Tape, last_run

FIXTURES = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"


def test_a_segment_goes_from_its_start_to_the_end_with_its_run_id() -> None:
    tape = Tape()
    tape.user()
    start = tape.start("run-1")
    tape.end("done", run_id="run-9")
    inside = tape.response()
    end = tape.end("done", run_id="run-1")
    tape.user()
    (run,) = runs(tape.source, tape.at)
    assert (run.start, run.end, run.last) == (start, end, end)
    assert run.computed_reason == "done"
    assert inside < end


def test_a_new_start_closes_the_open_run() -> None:
    tape = Tape()
    tape.start("run-1")
    tape.call()
    cut = tape.response()
    second = tape.start("run-2")
    tape.end("done", run_id="run-1")
    first, run = runs(tape.source, tape.at)
    assert (first.run_id, first.end, first.last) == ("run-1", -1, cut)
    assert (run.run_id, run.start, run.end) == ("run-2", second, -1)
    assert first.pending == ("c1",)
    assert run.pending == ()


def test_the_same_run_id_started_again_is_a_run_of_its_own() -> None:
    tape = Tape()
    tape.start()
    tape.start()
    end = tape.end("aborted")
    assert [run.end for run in runs(tape.source, tape.at)] == [-1, end]


def test_the_calls_of_a_run_are_its_own_and_those_it_took_up() -> None:
    tape = Tape()
    before, untouched = tape.call("c1"), tape.call("c2")
    tape.start()
    tape.dispatch(before)
    own = tape.call("c3")
    assert last_run(tape).calls == (before, own)
    assert last_run(tape).pending == ("c1", "c3")
    assert untouched not in last_run(tape).calls


def test_a_call_withdrawn_again_was_not_taken_up() -> None:
    tape = Tape()
    before = tape.call("c1")
    tape.start()
    tape.dispatch(before)
    tape.withdraw(before)
    assert last_run(tape).calls == ()
    assert last_run(tape).computed_source == "input"


# --- sources ---------------------------------------------------------------------------------------------------------


def test_source_resume_takes_up_a_call_pending_at_the_start() -> None:
    for event in ("dispatch", "output", "proceed"):
        tape = Tape()
        call = tape.call()
        tape.start(source="resume")
        tape.user()
        if event == "dispatch":
            tape.dispatch(call)
        elif event == "output":
            tape.output()
        else:
            tape.decide(call, event)
        assert last_run(tape).computed_source == "resume"
        assert last_run(tape).source_agrees


def test_source_input_when_the_first_event_is_of_the_runs_own_call() -> None:
    tape = Tape()
    before = tape.call("c0")
    tape.start()
    own = tape.call("c1")
    tape.dispatch(own)
    tape.dispatch(before, "c0")
    assert last_run(tape).computed_source == "input"


def test_source_input_when_the_call_had_its_output_already() -> None:
    tape = Tape()
    call = tape.call()
    tape.output()
    tape.start()
    tape.dispatch(call)
    assert last_run(tape).computed_source == "input"


def test_source_input_for_an_output_bound_to_no_call() -> None:
    tape = Tape()
    call = tape.call()
    tape.start()
    tape.output("c9")
    tape.dispatch(call)
    assert last_run(tape).computed_source == "input"


def test_a_decision_bound_to_no_call_is_passed_over() -> None:
    tape = Tape()
    call = tape.call()
    message = tape.user()
    tape.start(source="resume")
    tape.decide(message, "hold", "c9")
    tape.dispatch(call)
    assert last_run(tape).computed_source == "resume"


def test_a_withdrawn_pair_is_passed_over_for_the_source() -> None:
    tape = Tape()
    first, second = tape.call("c1"), tape.call("c2")
    tape.output("c1")
    tape.start(source="resume")
    tape.dispatch(first)
    tape.withdraw(first)
    tape.dispatch(second, "c2")
    assert last_run(tape).computed_source == "resume"


@pytest.mark.parametrize(
    ("added", "empty"),
    [
        ("nothing", True),
        ("env", True),
        ("acme:note", True),
        ("withdrawn", True),
        ("item", False),
        ("config", False),
        ("branch_summary", False),
        ("response", False),
        ("unbound", False),
        ("output", False),
    ],
)
def test_a_resume_that_took_nothing_up_is_accepted_over_records_alone(added: str, empty: bool) -> None:
    tape = Tape()
    call = tape.call()
    message = tape.user()
    tape.start(source="resume")
    if added == "env":
        tape.add("env", {"cwd": "/"})
    elif added == "acme:note":
        tape.add("acme:note", {"x": 1})
    elif added == "withdrawn":
        tape.dispatch(call)
        tape.withdraw(call)
    elif added == "item":
        tape.user()
    elif added == "config":
        tape.add("config", {"model": "m"})
    elif added == "branch_summary":
        tape.add("branch_summary", {"from": tape.id(message), "summary": {"type": "message", "role": "system"}})
    elif added == "response":
        tape.response()
    elif added == "unbound":
        tape.decide(message, "hold", "c9")
    elif added == "output":
        tape.output("c9")
    end = tape.end("interrupted")
    run = last_run(tape)
    assert (run.end, run.computed_source) == (end, "input")
    assert run.took_nothing is empty
    assert run.source_agrees is empty


def test_a_written_input_over_a_resume_disagrees() -> None:
    tape = Tape()
    tape.call()
    tape.start(source="input")
    tape.output()
    assert not last_run(tape).source_agrees


# --- open, end, json -------------------------------------------------------------------------------------------------


def test_open_run_is_the_one_without_an_end() -> None:
    tape = Tape()
    assert open_run(tape.source, tape.at) is None
    start = tape.start()
    found = open_run(tape.source, tape.at)
    assert found is not None
    assert found.start == start
    tape.end("aborted")
    assert open_run(tape.source, tape.at) is None


def test_end_run_lists_what_is_pending() -> None:
    tape = Tape()
    tape.start()
    tape.call("c2")
    tape.call("c1")
    draft = end_run(tape.source, tape.at, "interrupted", "rewind")
    assert draft.type == "run"
    assert draft.body == {
        "run_id": "run-1",
        "phase": "end",
        "reason": "interrupted",
        "pending": ["c1", "c2"],
        "ref": "rewind",
    }
    assert "ref" not in end_run(tape.source, tape.at, "error").body


def test_end_run_refuses_a_reason_of_its_own_and_a_path_with_no_open_run() -> None:
    tape = Tape()
    with pytest.raises(BadEntry):
        end_run(tape.source, tape.at, "done")
    tape.start()
    with pytest.raises(BadEntry):
        end_run(tape.source, tape.at, "finished")


def test_the_runs_of_the_reference() -> None:
    session = read_session((FIXTURES / "runs.jsonl").read_bytes())
    first, second = (run.to_json(session.source) for run in runs(session.source, session.leaf_position))
    assert first["run_id"] == "run-1"
    assert (first["source"], first["computed_source"]) == ("input", "input")
    assert (first["reason"], first["computed_reason"], first["pending"]) == ("input_required",) * 2 + (["call_1"],)
    assert first["ok"]
    assert (second["source"], second["computed_source"]) == ("resume", "resume")
    assert (second["reason"], second["computed_reason"], second["pending"], second["ok"]) == ("done", "done", [], True)


def test_a_run_without_an_end_agrees_whatever_is_pending() -> None:
    tape = Tape()
    tape.start()
    tape.call()
    run = last_run(tape)
    assert run.pending == ("c1",)
    assert run.pending_agrees
    assert run.reason_agrees
    assert run.to_json(tape.source)["ok"] is True


@pytest.mark.parametrize(
    ("source", "reason", "pending", "ok"),
    [
        ("input", "aborted", ("c1",), True),
        ("resume", "aborted", ("c1",), False),
        ("input", "done", ("c1",), False),
        ("input", "aborted", (), False),
    ],
)
def test_a_run_is_ok_when_source_reason_and_pending_agree(
    source: str, reason: str, pending: tuple[str, ...], ok: bool
) -> None:
    tape = Tape()
    tape.start(source=source)
    tape.call()
    tape.end(reason, pending)
    assert last_run(tape).to_json(tape.source)["ok"] is ok


def test_the_end_of_a_run_on_another_branch_is_none_here() -> None:
    tape = Tape()
    tape.start()
    here = tape.call()
    end = tape.end("interrupted", ("c1",))
    (open_here,) = (run.to_json(tape.source) for run in runs(tape.source, here))
    (ended,) = (run.to_json(tape.source) for run in runs(tape.source, end))
    assert (open_here["end"], open_here["reason"], open_here["pending"]) == (None, None, ["c1"])
    assert (ended["end"], ended["reason"], ended["pending"]) == (tape.id(end), "interrupted", ["c1"])
    assert runs(tape.source, here)[0].written_pending == ()


def test_the_json_of_an_open_run_has_no_end_and_no_reason() -> None:
    tape = Tape()
    start = tape.start()
    assert last_run(tape).to_json(tape.source) == {
        "run_id": "run-1",
        "start": tape.id(start),
        "end": None,
        "source": "input",
        "computed_source": "input",
        "reason": None,
        "computed_reason": "aborted",
        "pending": [],
        "ok": True,
    }
