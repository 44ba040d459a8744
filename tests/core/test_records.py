"""What an append is refused (format.md §9): each refusal, that nothing changed, and what is accepted beside it."""

from __future__ import annotations

import pytest

from agentsession_cas.core.facts import facts_of
from agentsession_cas.core.records import check_append
from agentsession_cas.errors import (
    AnswerNotDispatched,
    BadTarget,
    BadWithdrawal,
    CallAnswered,
    CallCompleted,
    CalleeLink,
    CallIDEmpty,
    CallIDRepeated,
    CallRejected,
    RecordRule,
    RejectDispatched,
    Superseded,
)
from tests.helpers.tape import PROMISED, Tape

NOWHERE = "sha256:" + "0" * 64


def refused(tape: Tape, type_: str, body: dict[str, object], error: type[RecordRule]) -> None:
    """Check that an append below the last entry is refused with exactly that error, and that nothing changed."""
    before = [entry.id for entry in tape.source]
    with pytest.raises(RecordRule) as caught:
        check_append(tape.source, tape.header, tape.at, facts_of(type_, body), body)
    assert type(caught.value) is error
    assert [entry.id for entry in tape.source] == before


def accepted(tape: Tape, type_: str, body: dict[str, object]) -> None:
    """Check that an append below the last entry is not refused."""
    check_append(tape.source, tape.header, tape.at, facts_of(type_, body), body)


def decision(tape: Tape, call: int, verdict: str, call_id: str = "c1", **more: object) -> dict[str, object]:
    """The body of a decision."""
    return {"call_id": call_id, "target": tape.id(call), "verdict": verdict, "reason": "because", **more}


def dispatch(tape: Tape, call: int, call_id: str = "c1") -> dict[str, object]:
    """The body of a dispatch."""
    return {"call_id": call_id, "target": tape.id(call)}


def function_call(call_id: object) -> dict[str, object]:
    """The body of an item that holds a function call."""
    return {"item": {"type": "function_call", "call_id": call_id, "name": "t", "arguments": "{}"}}


def with_history(events: str, records: tuple[str, ...] = PROMISED) -> tuple[Tape, int]:
    """One call, and what happened to it."""
    tape = Tape(records=records)
    call = tape.call()
    tape.play(events, call)
    return tape, call


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call_id", ["", None, 7])
def test_a_call_without_a_call_id_is_refused(call_id: object) -> None:
    refused(Tape(), "item", function_call(call_id), CallIDEmpty)


def test_a_repeated_call_id_is_refused_on_any_branch() -> None:
    tape = Tape()
    root = tape.user()
    tape.call("c1")
    tape.branch(root)
    refused(tape, "item", function_call("c1"), CallIDRepeated)
    accepted(tape, "item", function_call("c2"))


def test_a_call_id_that_no_call_has_is_free_whatever_else_names_it() -> None:
    tape = Tape()
    root = tape.user()
    tape.output("c9")
    tape.decide(root, "hold", "c9")
    tape.dispatch(root, "c9")
    tape.link("peer", "s", call_id="c9")
    accepted(tape, "item", function_call("c9"))


def test_a_call_id_of_the_prefix_counts() -> None:
    tape = Tape()
    tape.call("c1")
    tape.base()
    refused(tape, "item", function_call("c1"), CallIDRepeated)


def test_a_target_that_is_not_the_call_on_the_path_is_refused() -> None:
    tape = Tape()
    root = tape.user()
    aside = tape.call("c2")
    tape.branch(root)
    call = tape.call("c1")
    for type_, more in (("dispatch", {}), ("decision", {"verdict": "hold"})):
        refused(tape, type_, {"call_id": "c1", "target": NOWHERE, **more}, BadTarget)
        refused(tape, type_, {"call_id": "c1", "target": tape.id(root), **more}, BadTarget)
        refused(tape, type_, {"call_id": "c2", "target": tape.id(call), **more}, BadTarget)
        refused(tape, type_, {"call_id": "c2", "target": tape.id(aside), **more}, BadTarget)
        accepted(tape, type_, {"call_id": "c1", "target": tape.id(call), **more})
    tape.branch(-1)
    refused(tape, "dispatch", dispatch(tape, call), BadTarget)


@pytest.mark.parametrize("verdict", ["proceed", "hold", "reject", "answer"])
def test_nothing_but_the_output_follows_an_answer(verdict: str) -> None:
    tape, call = with_history("dispatch answer")
    refused(tape, "decision", decision(tape, call, verdict), CallAnswered)
    refused(tape, "decision", decision(tape, call, "reject", withdrawn=True), CallAnswered)
    refused(tape, "dispatch", dispatch(tape, call), CallAnswered)
    accepted(tape, "item", {"item": {"type": "function_call_output", "call_id": "c1", "output": ""}})


@pytest.mark.parametrize("verdict", ["proceed", "hold", "reject", "answer"])
def test_nothing_but_the_output_follows_a_reject(verdict: str) -> None:
    tape, call = with_history("reject")
    refused(tape, "decision", decision(tape, call, verdict), CallRejected)
    refused(tape, "dispatch", dispatch(tape, call), CallRejected)


def test_a_dispatch_tests_the_reject_first_and_a_decision_the_answer() -> None:
    tape, call = with_history("answer reject")
    refused(tape, "dispatch", dispatch(tape, call), CallRejected)
    refused(tape, "decision", decision(tape, call, "hold"), CallAnswered)


@pytest.mark.parametrize("events", ["", "hold", "dispatch hold", "dispatch withdraw hold", "dispatch output"])
def test_a_withdrawal_anywhere_but_directly_after_a_dispatch_is_refused(events: str) -> None:
    tape, call = with_history(events)
    refused(tape, "decision", decision(tape, call, "reject", withdrawn=True), BadWithdrawal)


def test_a_second_withdrawal_of_one_dispatch_is_refused() -> None:
    tape, call = with_history("dispatch withdraw")
    refused(tape, "decision", decision(tape, call, "reject", withdrawn=True), BadWithdrawal)


def test_a_withdrawal_right_behind_another_calls_dispatch_is_refused() -> None:
    tape, call = with_history("")
    other = tape.call("c2")
    tape.dispatch(other, "c2")
    refused(tape, "decision", decision(tape, call, "reject", withdrawn=True), BadWithdrawal)


def test_a_withdrawal_of_the_last_dispatch_is_accepted_with_others_calls_between() -> None:
    tape, call = with_history("dispatch dispatch")
    other = tape.call("c2")
    tape.dispatch(other, "c2")
    accepted(tape, "decision", decision(tape, call, "reject", withdrawn=True))


def test_after_a_withdrawal_the_call_is_what_it_was() -> None:
    tape, call = with_history("dispatch withdraw")
    accepted(tape, "decision", decision(tape, call, "reject"))
    accepted(tape, "dispatch", dispatch(tape, call))


def test_a_reject_of_a_dispatched_call_is_refused() -> None:
    tape, call = with_history("dispatch hold")
    refused(tape, "decision", decision(tape, call, "reject"), RejectDispatched)
    tape, call = with_history("dispatch output")
    refused(tape, "decision", decision(tape, call, "reject"), RejectDispatched)


def test_the_output_ends_the_call() -> None:
    tape, call = with_history("output")
    refused(tape, "decision", decision(tape, call, "answer"), CallCompleted)
    refused(tape, "decision", decision(tape, call, "reject"), CallCompleted)
    refused(tape, "dispatch", dispatch(tape, call), CallCompleted)
    accepted(tape, "decision", decision(tape, call, "proceed"))
    accepted(tape, "decision", decision(tape, call, "hold"))


def test_an_answer_needs_a_dispatch_where_one_is_promised() -> None:
    tape, call = with_history("hold")
    refused(tape, "decision", decision(tape, call, "answer"), AnswerNotDispatched)
    tape, call = with_history("dispatch hold")
    accepted(tape, "decision", decision(tape, call, "answer"))
    tape, call = with_history("hold", records=("run", "decision"))
    accepted(tape, "decision", decision(tape, call, "answer"))


def test_an_answer_counts_a_dispatch_of_any_branch_and_asks_none_of_a_prefix_call() -> None:
    tape, call = with_history("dispatch")
    tape.branch(call)
    accepted(tape, "decision", decision(tape, call, "answer"))
    tape = Tape()
    call = tape.call()
    tape.base()
    accepted(tape, "decision", decision(tape, call, "answer"))


def test_a_wrong_target_in_the_file_does_not_hide_what_it_says_of_the_call() -> None:
    tape = Tape()
    other, call = tape.call("c0"), tape.call("c1")
    tape.add("decision", {"call_id": "c1", "target": NOWHERE, "verdict": "reject", "reason": "x"})
    refused(tape, "dispatch", dispatch(tape, call), CallRejected)
    tape.branch(call)
    tape.decide(other, "reject", "c1")
    accepted(tape, "dispatch", dispatch(tape, call))
    refused(tape, "dispatch", dispatch(tape, other, "c0"), CallRejected)


@pytest.mark.parametrize("named", ["nothing", "a message", "a call of another branch"])
def test_what_names_no_call_of_its_path_is_of_the_latest_with_its_call_id(named: str) -> None:
    tape = Tape()
    root = tape.user()
    aside = tape.call("c2")
    tape.branch(root)
    call = tape.call("c1")
    target = {"nothing": NOWHERE, "a message": tape.id(root), "a call of another branch": tape.id(aside)}[named]
    tape.add("decision", {"call_id": "c1", "target": target, "verdict": "reject", "reason": "x"})
    refused(tape, "dispatch", dispatch(tape, call), CallRejected)


def test_a_refusal_says_what_and_what_next() -> None:
    tape, call = with_history("reject")
    for type_, body, what in (
        ("dispatch", dispatch(tape, call), "a dispatch for a call that was rejected"),
        ("decision", decision(tape, call, "hold"), "a decision (hold) for a call that was rejected"),
    ):
        with pytest.raises(CallRejected) as caught:
            check_append(tape.source, tape.header, tape.at, facts_of(type_, body), body)
        assert caught.value.what == what
        assert caught.value.where == "call c1"
        assert caught.value.next_step


def test_a_peer_link_names_its_call_and_a_url_or_a_session() -> None:
    tape = Tape()
    tape.call()
    refused(tape, "link", {"rel": "peer", "session": "s"}, CalleeLink)
    refused(tape, "link", {"rel": "peer", "session": "", "url": "https://x"}, CalleeLink)
    refused(tape, "link", {"rel": "peer", "session": "", "call_id": "c1"}, CalleeLink)
    accepted(tape, "link", {"rel": "peer", "session": "s", "call_id": "c1"})
    accepted(tape, "link", {"rel": "peer", "session": "", "url": "https://x", "call_id": "c1"})
    accepted(tape, "link", {"rel": "subsession", "session": "s"})
    accepted(tape, "link", {"rel": "judged_by", "session": "s"})
    accepted(tape, "link", {"rel": "fork_of", "session": "s"})


def test_a_cancel_notice_names_a_callee_of_its_relation_and_call_on_its_path() -> None:
    tape = Tape()
    root = tape.call()
    aside = tape.link("peer", "s", call_id="c1")
    tape.branch(root)
    link = tape.link("peer", "s", call_id="c1")
    message = tape.user()

    def notice(target: int, rel: str = "peer", call_id: str = "c1") -> dict[str, object]:
        return {"rel": rel, "session": "", "call_id": call_id, "cancel": "sent", "target": tape.id(target)}

    accepted(tape, "link", notice(link))
    refused(tape, "link", notice(link, rel="subsession"), CalleeLink)
    refused(tape, "link", notice(link, call_id="c2"), CalleeLink)
    refused(tape, "link", notice(message), CalleeLink)
    refused(tape, "link", notice(aside), CalleeLink)
    refused(tape, "link", {**notice(link), "target": NOWHERE}, CalleeLink)
    sent = tape.add("link", notice(link))
    accepted(tape, "link", notice(link))
    refused(tape, "link", notice(sent), CalleeLink)


def test_a_session_has_one_successor() -> None:
    tape = Tape()
    tape.user()
    accepted(tape, "link", {"rel": "continued_in", "session": "next"})
    tape.link("continued_in", "next")
    tape.branch(-1)
    refused(tape, "link", {"rel": "continued_in", "session": "another"}, Superseded)
    accepted(tape, "link", {"rel": "continued_in", "session": "next"})


def test_the_successor_of_an_origin_is_not_its_forks() -> None:
    tape = Tape()
    tape.link("continued_in", "next")
    tape.base()
    accepted(tape, "link", {"rel": "continued_in", "session": "another"})


def test_other_entries_are_not_refused() -> None:
    tape = Tape()
    accepted(tape, "item", {"item": {"type": "function_call_output", "call_id": "of nobody", "output": ""}})
    accepted(tape, "item", {"item": {"type": "message", "role": "user"}, "from_link": NOWHERE})
    accepted(tape, "run", {"run_id": "r", "phase": "end", "reason": "done", "pending": ["c9"]})
    accepted(tape, "acme:decision", {"call_id": "c1"})
