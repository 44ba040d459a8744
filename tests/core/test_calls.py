"""Calls: binding, withdrawn pairs, predicates and states, row by row of context.md §2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentsession_cas.core.calls import Call, calls, dispatches, pending_calls
from agentsession_cas.core.jsonl import read_session
from tests.helpers.tape import PROMISED, Tape

FIXTURES = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"


def one(tape: Tape) -> Call:
    """The one call on the path."""
    (call,) = calls(tape.source, tape.at)
    return call


def after(events: str, records: tuple[str, ...] = PROMISED) -> tuple[Tape, Call]:
    """A session with one call and what happened to it."""
    tape = Tape(records=records)
    tape.play(events, tape.call())
    return tape, one(tape)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ("", "never_started"),
        ("hold", "held"),
        ("hold proceed", "never_started"),
        ("proceed", "never_started"),
        ("dispatch", "in_flight"),
        ("dispatch hold", "held"),
        ("dispatch hold dispatch", "in_flight"),
        ("dispatch proceed", "in_flight"),
        ("dispatch answer", "answered"),
        ("reject", "rejected"),
        ("hold reject", "rejected"),
        ("output", "completed"),
        ("hold output", "completed"),
        ("dispatch output", "completed"),
        ("reject output", "completed"),
        ("dispatch answer output", "completed"),
        ("dispatch withdraw", "never_started"),
        ("hold dispatch withdraw", "held"),
        ("dispatch dispatch withdraw", "in_flight"),
        ("dispatch hold dispatch withdraw", "held"),
        ("dispatch withdraw dispatch", "in_flight"),
        ("dispatch hold withdraw", "rejected"),
        ("withdraw", "rejected"),
        ("dispatch withdraw withdraw", "rejected"),
        # answered comes before rejected, whatever the order of the two
        ("reject answer", "answered"),
    ],
)
def test_state_is_the_first_that_holds(events: str, state: str) -> None:
    tape, call = after(events)
    assert call.state(tape.header).value == state


def test_state_without_a_promise_is_unknown() -> None:
    tape, call = after("hold proceed", records=("run",))
    assert call.state(tape.header) == "unknown"


def test_state_of_a_call_of_the_prefix_is_unknown_until_it_is_dispatched() -> None:
    tape = Tape()
    call = tape.call()
    tape.base()
    tape.user()
    assert one(tape).state(tape.header) == "unknown"
    assert not one(tape).own
    tape.dispatch(call)
    assert one(tape).state(tape.header) == "in_flight"


def test_state_of_a_call_dispatched_on_another_branch_is_unknown() -> None:
    tape = Tape()
    call = tape.call()
    dispatch = tape.dispatch(call)
    tape.branch(call)
    tape.user()
    assert one(tape).state(tape.header) == "unknown"
    assert one(tape).dispatched_elsewhere()
    assert dispatches(tape.source, call) == [dispatch]


def test_dispatches_list_a_withdrawn_one_which_another_branch_counts() -> None:
    tape = Tape()
    call = tape.call()
    dispatch = tape.dispatch(call)
    tape.withdraw(call)
    assert dispatches(tape.source, call) == [dispatch]
    assert one(tape).state(tape.header) == "never_started"
    tape.branch(call)
    tape.user()
    assert one(tape).state(tape.header) == "unknown"


def test_a_withdrawn_pair_leaves_both_lists() -> None:
    tape = Tape()
    call = tape.call()
    first = tape.dispatch(call)
    second, reject = tape.dispatch(call), tape.withdraw(call)
    found = one(tape)
    assert found.dispatches == [first]
    assert found.decisions == []
    assert found.withdrawn == [(second, reject)]
    assert not found.rejected


def test_a_pair_is_one_among_the_entries_of_its_own_call() -> None:
    tape = Tape()
    one_call, other = tape.call("c1"), tape.call("c2")
    dispatch = tape.dispatch(one_call)
    tape.dispatch(other, "c2")
    tape.user()
    reject = tape.withdraw(one_call)
    first, second = calls(tape.source, tape.at)
    assert first.withdrawn == [(dispatch, reject)]
    assert second.in_flight


@pytest.mark.parametrize(
    ("verdict", "withdrawn"), [("hold", True), ("proceed", True), ("reject", False), ("reject", "yes")]
)
def test_withdrawn_on_another_verdict_or_not_true_means_nothing(verdict: str, withdrawn: object) -> None:
    tape = Tape()
    call = tape.call()
    tape.dispatch(call)
    decision = tape.decide(call, verdict, withdrawn=withdrawn)
    assert one(tape).decisions == [decision]
    assert one(tape).withdrawn == []


def test_a_decision_and_a_dispatch_belong_to_the_call_their_target_names() -> None:
    tape = Tape()
    first, second = tape.call("c1"), tape.call("c2")
    decision = tape.decide(first, "hold", "c2")
    dispatch = tape.dispatch(second, "c1")
    one_call, other = calls(tape.source, tape.at)
    assert one_call.decisions == [decision]
    assert other.dispatches == [dispatch]


def test_a_bad_target_falls_to_the_latest_earlier_call_with_the_call_id() -> None:
    tape = Tape()
    tape.call("c1")
    later = tape.call("c1")
    message = tape.user()
    decision = tape.decide(message, "hold", "c1")
    elsewhere = tape.add("dispatch", {"call_id": "c1", "target": "sha256:" + "0" * 64})
    nobody = tape.add("dispatch", {"call_id": "c9", "target": "sha256:" + "0" * 64})
    first, second = calls(tape.source, tape.at)
    assert (first.decisions, first.dispatches) == ([], [])
    assert second.position == later
    assert second.decisions == [decision]
    assert second.dispatches == [elsewhere]
    assert nobody not in second.dispatches


def test_a_target_on_another_branch_names_no_call() -> None:
    tape = Tape()
    root = tape.user()
    other = tape.call("c1")
    tape.branch(root)
    here = tape.call("c1")
    dispatch = tape.dispatch(other)
    found = one(tape)
    assert found.position == here
    assert found.dispatches == [dispatch]


def test_an_output_belongs_to_the_latest_call_or_to_nobody() -> None:
    tape = Tape()
    tape.call("c1")
    tape.call("c1")
    output = tape.output("c1")
    tape.output("c1")
    tape.output("c2")
    first, second = calls(tape.source, tape.at)
    assert first.pending
    assert second.output == output


def test_an_empty_call_id_names_no_call() -> None:
    tape = Tape()
    call = tape.call("")
    tape.output("")
    decision = tape.decide(call, "hold", "c1")
    found = one(tape)
    assert found.pending
    assert found.decisions == [decision]


@pytest.mark.parametrize(
    ("events", "in_flight", "held"),
    [
        ("", False, False),
        ("dispatch", True, False),
        ("dispatch proceed", True, False),
        ("dispatch hold", False, True),
        ("dispatch answer", False, False),
        ("dispatch hold dispatch", True, False),
        ("dispatch hold proceed", False, False),
        ("hold dispatch", True, False),
        ("dispatch output", False, False),
        ("hold output", False, True),
    ],
)
def test_in_flight_and_held(events: str, in_flight: bool, held: bool) -> None:
    _, call = after(events)
    assert (call.in_flight, call.held) == (in_flight, held)


def test_args_are_the_last_rewrite_an_answer_aside() -> None:
    tape = Tape()
    call = tape.call(arguments='{"a": 1}')
    assert one(tape).args == '{"a": 1}'
    assert one(tape).dispatched_args == ""
    assert one(tape).idempotency_key == ""
    tape.decide(call, "proceed", args={"b": 2, "a": 1})
    tape.dispatch(call, idempotency_key="k1")
    tape.decide(call, "hold", args={"a": 3})
    assert one(tape).args == '{"a":3}'
    assert one(tape).dispatched_args == '{"a":1,"b":2}'
    assert one(tape).idempotency_key == "k1"
    tape.dispatch(call)
    assert one(tape).dispatched_args == '{"a":3}'
    assert one(tape).idempotency_key == ""
    tape.decide(call, "answer", args={"a": 4})
    assert one(tape).args == '{"a":3}'


def test_args_of_the_last_dispatch_are_the_calls_own_when_nothing_rewrote_them_before() -> None:
    tape = Tape()
    call = tape.call(arguments="{}")
    tape.dispatch(call)
    tape.decide(call, "hold", args=[1])
    assert one(tape).dispatched_args == "{}"


def test_args_are_a_rewrites_though_a_later_decision_carries_none() -> None:
    tape = Tape()
    call = tape.call(arguments="{}")
    tape.decide(call, "proceed", args={"a": 1})
    tape.decide(call, "hold")
    tape.decide(call, "proceed", args=None)
    assert one(tape).args == '{"a":1}'


def test_dispatches_of_another_call_of_the_same_call_id_are_not_the_calls() -> None:
    tape = Tape()
    first = tape.call("c1")
    second = tape.call("c1")
    here = tape.dispatch(second)
    assert dispatches(tape.source, second) == [here]
    assert dispatches(tape.source, first) == []


def test_a_withdrawn_dispatch_that_another_branch_hangs_from_is_not_elsewhere() -> None:
    """It is on this path, and taken back here: the call is what it was before. On the other path it is in flight."""
    tape = Tape()
    call = tape.call()
    dispatch = tape.dispatch(call)
    tape.withdraw(call)
    withdrawn = tape.at
    tape.branch(dispatch)
    tape.user()
    assert one(tape).state(tape.header) == "in_flight"
    tape.branch(withdrawn)
    assert one(tape).state(tape.header) == "never_started"


def test_a_withdrawal_takes_back_no_other_calls_dispatch() -> None:
    tape = Tape()
    first, second = tape.call("c1"), tape.call("c2")
    tape.dispatch(second, "c2")
    reject = tape.withdraw(first)
    untouched, other = calls(tape.source, tape.at)
    assert untouched.decisions == [reject]
    assert other.in_flight


def test_a_call_without_an_output_has_none_failed_and_none_taken_from_a_child() -> None:
    tape = Tape()
    tape.call("c1")
    tape.call("c2")
    item = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    tape.add("item", {"item": item, "failed": True}, ({"session": "child", "entry": tape.id(0)},))
    done, pending = calls(tape.source, tape.at)
    assert done.failed
    assert not pending.failed
    assert done.output_from
    assert pending.output_from == []
    assert pending.to_json(tape.header)["output"] is None
    assert pending.to_json(tape.header)["failed"] is False


def test_a_withdrawn_dispatch_hands_nothing_over() -> None:
    tape = Tape()
    call = tape.call()
    tape.dispatch(call, idempotency_key="k1")
    tape.dispatch(call, idempotency_key="k2")
    tape.withdraw(call)
    assert one(tape).idempotency_key == "k1"


@pytest.mark.parametrize(("failed", "reads"), [(True, True), (False, False), ("true", False), (1, False)])
def test_failed_is_true_alone_and_completes_the_call(failed: object, reads: bool) -> None:
    tape = Tape()
    tape.call()
    tape.output(failed=failed)
    assert one(tape).failed is reads
    assert one(tape).state(tape.header) == "completed"


def test_output_from_names_what_the_output_converges() -> None:
    tape = Tape()
    leaf = tape.user("child")
    tape.call()
    assert one(tape).output_from == []
    reference = {"session": "child", "entry": tape.id(leaf)}
    item = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    tape.add("item", {"item": item}, (reference,))
    assert one(tape).output_from == [reference]


def test_pending_calls_have_no_output() -> None:
    tape = Tape()
    tape.call("c1")
    tape.call("c2")
    tape.output("c1")
    assert [call.call_id for call in pending_calls(tape.source, tape.at)] == ["c2"]
    assert calls(tape.source, -1) == []


def test_the_json_of_a_call() -> None:
    tape = Tape()
    call = tape.call(arguments='{"a":1}')
    tape.dispatch(call)
    tape.withdraw(call)
    tape.decide(call, "proceed", args={"a": 2})
    tape.dispatch(call, idempotency_key="k")
    output = tape.output(failed=True)
    assert one(tape).to_json(tape.header) == {
        "call_id": "c1",
        "entry": tape.id(call),
        "name": "tool",
        "state": "completed",
        "dispatches": 1,
        "decisions": ["proceed"],
        "withdrawn": 1,
        "args": '{"a":2}',
        "dispatched_args": '{"a":2}',
        "idempotency_key": "k",
        "output": tape.id(output),
        "failed": True,
    }


def test_the_calls_of_the_reference_runs() -> None:
    session = read_session((FIXTURES / "runs.jsonl").read_bytes())
    found = [call.to_json(session.header) for call in calls(session.source, session.leaf_position)]
    told = [(each["call_id"], each["state"], each["dispatches"], each["decisions"]) for each in found]
    assert told == [
        ("call_1", "completed", 1, ["hold"]),
        ("call_2", "completed", 1, ["proceed"]),
        ("call_3", "completed", 0, ["reject"]),
    ]
    assert json.loads(found[1]["dispatched_args"]) == {"cmd": "ls -la"}


def test_a_long_path_is_read_once() -> None:
    tape = Tape()
    for number in range(5000):
        call = tape.call(f"c{number}")
        tape.dispatch(call, f"c{number}")
        tape.output(f"c{number}")
    found = calls(tape.source, tape.at)
    assert len(found) == 5000
    assert not any(call.pending for call in found)
