"""The reason a run's segment has, and whether its end agrees, row by row of context.md §2."""

from __future__ import annotations

import pytest

from agentsession_cas.core.runs import runs
from tests.helpers.tape import Tape, last_run


def test_reason_error_comes_first() -> None:
    tape = Tape()
    tape.start()
    tape.call()
    tape.response(error={"code": "server_error", "message": "no"})
    assert last_run(tape).computed_reason == "error"


def test_reason_error_is_of_the_last_response() -> None:
    tape = Tape()
    tape.start()
    tape.response(error={"code": "server_error", "message": "no"})
    tape.response("r2", error=None)
    assert last_run(tape).computed_reason == "done"


def test_reason_input_required_needs_a_held_call_and_none_in_flight() -> None:
    tape = Tape()
    tape.start()
    held, other = tape.call("c1"), tape.call("c2")
    tape.response()
    tape.decide(held, "hold")
    assert last_run(tape).computed_reason == "input_required"
    tape.dispatch(other, "c2")
    assert last_run(tape).computed_reason == "aborted"
    tape.output("c2")
    assert last_run(tape).computed_reason == "input_required"


def test_reason_input_required_for_a_call_held_after_a_dispatch() -> None:
    tape = Tape()
    tape.start()
    call = tape.call()
    tape.response()
    tape.dispatch(call)
    tape.decide(call, "hold")
    assert last_run(tape).computed_reason == "input_required"


def test_reason_input_required_for_an_earlier_call_that_the_run_holds() -> None:
    tape = Tape()
    call = tape.call()
    tape.response()
    tape.start(source="resume")
    tape.decide(call, "hold")
    assert last_run(tape).computed_reason == "input_required"


def test_a_held_call_of_no_concern_of_the_run_is_not_its() -> None:
    tape = Tape()
    call = tape.call()
    tape.response()
    tape.decide(call, "hold")
    tape.start()
    tape.user()
    tape.response("r2")
    assert last_run(tape).computed_reason == "done"


def test_reason_aborted_for_a_pending_call_or_an_incomplete_response() -> None:
    tape = Tape()
    tape.start()
    tape.call()
    tape.response()
    assert last_run(tape).computed_reason == "aborted"
    tape.output()
    tape.response("r2", incomplete={"reason": "max_output_tokens"})
    assert last_run(tape).computed_reason == "aborted"


def test_reason_aborted_for_a_pending_call_though_the_last_response_made_none() -> None:
    tape = Tape()
    tape.start()
    tape.call()
    tape.response()
    tape.response("r2")
    assert last_run(tape).computed_reason == "aborted"
    tape.output()
    assert last_run(tape).computed_reason == "done"


def test_reason_aborted_for_an_earlier_call_the_run_took_up_and_left_pending() -> None:
    tape = Tape()
    call = tape.call()
    tape.response()
    tape.start(source="resume")
    tape.dispatch(call)
    tape.response("r2")
    assert last_run(tape).computed_reason == "aborted"


def test_a_response_of_another_branch_is_none_of_the_run() -> None:
    tape = Tape()
    start = tape.start()
    here = tape.user()
    tape.branch(start)
    tape.response(error={"code": "server_error", "message": "no"})
    (run,) = runs(tape.source, here)
    assert run.computed_reason == "aborted"


def test_a_response_id_in_another_form_reads_as_none() -> None:
    tape = Tape()
    tape.start()
    item = {"type": "function_call", "call_id": "c1", "name": "tool", "arguments": "{}"}
    tape.add("item", {"item": item, "response": {"odd": True}})
    tape.add("response", {"response_id": ["odd"]})
    tape.output()
    assert last_run(tape).computed_reason == "stopped"


def test_reason_done_when_the_last_response_made_no_call() -> None:
    tape = Tape()
    tape.start()
    tape.call()
    tape.response()
    tape.output()
    tape.response("r2")
    assert last_run(tape).computed_reason == "done"


def test_status_is_never_read() -> None:
    tape = Tape()
    tape.start()
    tape.add("response", {"response_id": "r1", "status": "failed"})
    assert last_run(tape).computed_reason == "done"


def test_a_response_without_an_id_made_every_call_recorded_without_one() -> None:
    tape = Tape()
    tape.start()
    tape.call(response="")
    tape.add("response", {"status": "completed"})
    tape.output()
    assert last_run(tape).computed_reason == "stopped"


def test_reason_stopped_when_the_calls_of_the_last_response_on_the_path_are_answered() -> None:
    tape = Tape()
    call = tape.call()
    tape.response()
    tape.start(source="resume")
    tape.decide(call, "reject")
    tape.output()
    assert last_run(tape).computed_reason == "stopped"


def test_stopped_needs_the_last_response_on_the_path_to_have_made_calls() -> None:
    tape = Tape()
    tape.call()
    tape.response()
    tape.response("r2")
    tape.start(source="resume")
    tape.output()
    assert last_run(tape).computed_reason == "aborted"


def test_stopped_needs_a_response_on_the_path() -> None:
    tape = Tape()
    tape.call(response="")
    tape.start(source="resume")
    tape.output()
    assert last_run(tape).computed_reason == "aborted"


def test_an_old_call_without_an_output_keeps_later_runs_from_stopped() -> None:
    tape = Tape()
    tape.call("c0", response="r0")
    tape.response("r0")
    tape.start()
    tape.call()
    tape.response()
    tape.output()
    assert last_run(tape).computed_reason == "aborted"


def test_stopped_needs_an_output_or_a_decision_on_the_segment() -> None:
    tape = Tape()
    call = tape.call()
    tape.response()
    tape.output()
    tape.start()
    tape.user()
    assert last_run(tape).computed_reason == "aborted"
    tape.dispatch(call)
    assert last_run(tape).computed_reason == "aborted"
    tape.decide(call, "proceed")
    assert last_run(tape).computed_reason == "stopped"


def test_a_withdrawn_reject_is_no_decision_for_stopped() -> None:
    tape = Tape()
    call = tape.call()
    tape.response()
    tape.output()
    tape.start()
    tape.dispatch(call)
    tape.withdraw(call)
    assert last_run(tape).computed_reason == "aborted"


def test_reason_aborted_for_a_run_with_nothing() -> None:
    tape = Tape()
    tape.start()
    assert last_run(tape).computed_reason == "aborted"


@pytest.mark.parametrize(
    ("reason", "agrees"),
    [("error", True), ("interrupted", True), ("done", True), ("aborted", False), ("stopped", False)],
)
def test_error_and_interrupted_stand_over_anything(reason: str, agrees: bool) -> None:
    tape = Tape()
    tape.start()
    tape.response()
    tape.end(reason)
    assert last_run(tape).reason_agrees is agrees


def test_the_pending_list_is_compared_whatever_the_reason_and_order() -> None:
    tape = Tape()
    tape.start()
    tape.call("c2")
    tape.call("c1")
    tape.response()
    call_end = tape.at
    tape.end("interrupted", ("c1", "c2"))
    assert last_run(tape).pending_agrees
    tape.branch(call_end)
    tape.end("interrupted", ("c2", "c1"))
    assert last_run(tape).pending_agrees
    tape.branch(call_end)
    tape.end("interrupted", ("c1",))
    assert not last_run(tape).pending_agrees


def test_a_pending_list_in_another_form_reads_as_empty() -> None:
    tape = Tape()
    tape.start()
    tape.call("c1")
    tape.add("run", {"run_id": "run-1", "phase": "end", "reason": "interrupted", "pending": ["c1", 7]})
    assert last_run(tape).written_pending == ()
    assert not last_run(tape).pending_agrees
