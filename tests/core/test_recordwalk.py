"""What stored paths break of the record rules (context.md §2, Record checks), over a path and over a tree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.facts import facts_of
from agentsession_cas.core.jsonl import read_session
from agentsession_cas.core.records import check_append
from agentsession_cas.core.recordwalk import RecordWalk, record_problems, verify_records
from agentsession_cas.core.source import path_positions
from agentsession_cas.errors import (
    AnswerNotDispatched,
    BadFromLink,
    BadTarget,
    CallAnswered,
    CallCompleted,
    CalleeLink,
    CallIDEmpty,
    CallIDRepeated,
    CallRejected,
    ReasonMismatch,
    RecordMissing,
    RecordRule,
    RejectDispatched,
    SourceMismatch,
)
from tests.helpers.tape import PROMISED, Tape

FIXTURES = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"
NOWHERE = "sha256:" + "0" * 64


def with_history(events: str, records: tuple[str, ...] = PROMISED) -> Tape:
    """One call, the first entry, and what happened to it."""
    tape = Tape(records=records)
    tape.play(events, tape.call())
    return tape


def found(tape: Tape) -> list[tuple[type[RecordRule], int]]:
    """Every problem of the session: its error and its entry."""
    return [(problem.error, problem.position) for problem in record_problems(tape.source, tape.header)]


def first(tape: Tape) -> tuple[type[RecordRule], str] | None:
    """What ``verify_records`` raises for the path to the last entry."""
    try:
        verify_records(tape.source, tape.header, tape.at)
    except RecordRule as error:
        return type(error), error.where
    return None


@pytest.mark.parametrize(
    ("events", "error", "at"),
    [
        ("dispatch answer", None, 0),
        ("reject output", None, 0),
        ("dispatch output proceed hold", None, 0),
        ("dispatch withdraw reject output", None, 0),
        ("dispatch withdraw dispatch output", None, 0),
        ("reject dispatch", CallRejected, 2),
        ("dispatch answer dispatch", CallAnswered, 3),
        ("dispatch answer hold", CallAnswered, 3),
        ("reject proceed", CallRejected, 2),
        ("dispatch reject", RejectDispatched, 2),
        ("dispatch hold withdraw", RejectDispatched, 3),
        ("withdraw", None, 0),
        ("dispatch output dispatch", CallCompleted, 3),
        ("reject output reject", CallRejected, 3),
        ("dispatch output answer", CallCompleted, 3),
        ("dispatch output reject", RejectDispatched, 3),
        ("answer", AnswerNotDispatched, 1),
        ("dispatch withdraw answer output", None, 0),
        ("output", RecordMissing, 1),
        ("proceed output", RecordMissing, 2),
        ("dispatch withdraw output", RecordMissing, 3),
        # what a withdrawal takes back is none of the broken rules
        ("reject dispatch withdraw", None, 0),
        ("dispatch output dispatch withdraw", None, 0),
    ],
)
def test_each_call_rule_names_the_entry_that_breaks_it(events: str, error: type[RecordRule] | None, at: int) -> None:
    tape = with_history(events)
    assert found(tape) == ([] if error is None else [(error, at)])
    assert first(tape) == (None if error is None else (error, tape.id(at)))


def test_rules_that_rest_on_a_promise_need_it_and_are_the_sessions_own() -> None:
    tape = with_history("output", records=("run",))
    assert found(tape) == []
    tape = Tape()
    tape.call()
    tape.output()
    tape.base()
    tape.user()
    assert found(tape) == []
    tape = Tape()
    tape.call()
    tape.base()
    output = tape.output()
    assert found(tape) == [(RecordMissing, output)]


def test_call_ids_are_the_whole_sessions() -> None:
    tape = Tape()
    root = tape.user()
    tape.call("c1")
    tape.branch(root)
    empty = tape.call("")
    again = tape.call("c1")
    third = tape.call("c1")
    assert found(tape) == [(CallIDEmpty, empty), (CallIDRepeated, again), (CallIDRepeated, third)]
    tape.branch(root)
    assert first(tape) == (CallIDEmpty, tape.id(empty))


def test_a_target_is_an_earlier_call_of_its_path_with_its_call_id() -> None:
    tape = Tape()
    root = tape.user()
    aside = tape.call("c2")
    tape.branch(root)
    call = tape.call("c1")
    wrong = [tape.decide(root, "hold"), tape.dispatch(aside, "c2"), tape.decide(call, "hold", "c9")]
    assert found(tape) == [(BadTarget, position) for position in wrong]


def test_run_problems_come_reason_pending_source() -> None:
    tape = Tape()
    tape.call()
    start = tape.start(source="input")
    tape.output()
    end = tape.end("done", ("c1",))
    problems = record_problems(tape.source, tape.header)
    assert [(problem.error, problem.position) for problem in problems[:3]] == [
        (ReasonMismatch, end),
        (ReasonMismatch, end),
        (SourceMismatch, start),
    ]
    assert "segment says" in problems[0].detail
    assert "pending" in problems[1].detail
    assert first(tape) == (ReasonMismatch, tape.id(end))


def test_a_run_cut_by_another_or_by_the_path_has_its_source_checked() -> None:
    tape = Tape()
    first_start = tape.start(source="resume")
    message = tape.user()
    tape.start("run-2")
    second = tape.start("run-3", source="resume")
    tape.add("config", {"model": "m"})
    assert found(tape) == [(SourceMismatch, first_start), (SourceMismatch, second)]
    tape.branch(first_start)
    tape.end("interrupted")
    assert first(tape) is None
    assert message > first_start


def test_an_empty_resume_is_accepted() -> None:
    tape = Tape()
    tape.start(source="resume")
    tape.add("env", {"cwd": "/"})
    tape.end("error")
    assert found(tape) == []


def test_callee_links_in_a_file_are_held_to_less() -> None:
    tape = Tape()
    tape.call()
    tape.link("peer", "s")
    tape.link("peer", "", call_id="c1")
    unnamed = tape.link("peer", "", url="https://x")
    callee = tape.link("subsession", "s", call_id="c1")
    tape.link("subsession", "", call_id="c1", cancel="sent", target=tape.id(callee))
    wrong = tape.link("peer", "", call_id="c1", cancel="sent", target=tape.id(callee))
    tape.link("peer", "", call_id="c1", cancel="later", target=tape.id(callee))
    assert found(tape) == [(CalleeLink, unnamed), (CalleeLink, wrong)]


def test_from_link_names_a_peer_link_before_it() -> None:
    tape = Tape()
    root = tape.call()
    peer = tape.link("peer", "s", call_id="c1")
    sub = tape.link("subsession", "s", call_id="c1")
    notice = tape.link("peer", "", call_id="c1", cancel="sent", target=tape.id(peer))
    item = {"type": "message", "role": "user", "content": []}
    tape.add("item", {"item": item, "from_link": tape.id(peer)})
    wrong = [tape.add("item", {"item": item, "from_link": tape.id(each)}) for each in (sub, notice, root)]
    tape.add("item", {"item": item, "from_link": 7})
    tape.branch(root)
    off_path = tape.add("item", {"item": item, "from_link": tape.id(peer)})
    assert found(tape) == [(BadFromLink, position) for position in [*wrong, off_path]]


def test_a_link_of_another_branch_is_none_before_the_item_or_the_notice() -> None:
    tape = Tape()
    root = tape.call()
    item = tape.add("item", {"item": {"type": "message", "role": "user", "content": []}, "from_link": NOWHERE})
    notice = tape.link("peer", "", call_id="c1", cancel="sent", target=NOWHERE)
    tape.branch(root)
    tape.link("peer", "s", call_id="c1")
    assert found(tape) == [(CalleeLink, notice), (BadFromLink, item)]


def test_an_empty_from_link_names_nothing() -> None:
    tape = Tape()
    item = {"type": "message", "role": "user", "content": []}
    odd: list[object] = ["", None, 7, [], {}]
    for each in odd:
        tape.add("item", {"item": item, "from_link": each})
    assert found(tape) == []


def test_calls_without_a_call_id_repeat_none() -> None:
    tape = Tape()
    calls = [tape.call(""), tape.call("")]
    assert found(tape) == [(CallIDEmpty, position) for position in calls]


def test_only_an_item_has_a_from_link() -> None:
    tape = Tape()
    item = {"type": "message", "role": "user", "content": []}
    tape.add("custom", {"ns": "acme", "from_link": NOWHERE})
    tape.add("acme:item", {"item": item, "from_link": NOWHERE})
    tape.add("queued", {"item": item, "mode": "steer", "from_link": NOWHERE})
    assert found(tape) == []


def test_the_order_is_that_of_the_checks() -> None:
    tape = Tape()
    call = tape.call("c1")
    item = {"type": "message", "role": "user", "content": []}
    from_link = tape.add("item", {"item": item, "from_link": NOWHERE})
    link = tape.link("peer", "", url="https://x")
    answer = tape.decide(call, "answer")
    start = tape.start(source="resume")
    tape.user()
    end = tape.end("interrupted", ("c9",))
    target = tape.dispatch(call, "c9")
    again = tape.call("c1")
    assert found(tape) == [
        (CallIDRepeated, again),
        (BadTarget, target),
        (ReasonMismatch, end),
        (SourceMismatch, start),
        (CallAnswered, target),
        (CalleeLink, link),
        (BadFromLink, from_link),
    ]
    assert answer not in {position for _, position in found(tape)}


def test_the_checks_of_one_call_come_in_their_order_and_not_the_files() -> None:
    tape = with_history("dispatch answer hold dispatch proceed")
    assert found(tape) == [(CallAnswered, 4), (CallAnswered, 3), (CallAnswered, 5)]
    tape = with_history("reject hold dispatch")
    assert found(tape) == [(CallRejected, 3), (CallRejected, 2)]
    tape = with_history("dispatch output dispatch reject")
    assert found(tape) == [(RejectDispatched, 4), (CallCompleted, 3)]
    tape = with_history("output answer hold")
    assert found(tape) == [(CallAnswered, 3), (CallCompleted, 2), (RecordMissing, 1)]
    tape = with_history("answer output dispatch")
    assert found(tape) == [(CallAnswered, 3)]


def test_a_run_is_judged_where_its_segment_ends_and_not_before() -> None:
    tape = Tape()
    call = tape.call()
    tape.response()
    tape.start(source="resume")
    tape.user()
    tape.dispatch(call)
    tape.output()
    tape.end("stopped")
    assert found(tape) == []


def test_a_dispatch_withdrawn_on_one_branch_is_reported_for_the_other() -> None:
    tape = with_history("reject")
    wrong = tape.dispatch(0)
    tape.withdraw(0)
    assert found(tape) == []
    tape.branch(wrong)
    tape.user()
    assert found(tape) == [(CallRejected, wrong)]


def test_a_dispatch_withdrawn_on_its_branch_is_nothing_to_the_one_beside() -> None:
    tape = with_history("reject")
    rejected = tape.at
    tape.dispatch(0)
    tape.withdraw(0)
    tape.branch(rejected)
    tape.user()
    assert found(tape) == []
    assert first(tape) is None


def test_the_reference_files_break_what_their_readme_says() -> None:
    broken = {"bad-records": [RecordMissing]}
    for name in ("basic", "branch", "fork", "compaction", "runs", "parts", "omit", "normalised", "bad-records"):
        session = read_session((FIXTURES / f"{name}.jsonl").read_bytes())
        problems = record_problems(session.source, session.header)
        assert [problem.error for problem in problems] == broken.get(name, []), name


# --- properties -----------------------------------------------------------------------------------------------------

CALLS = ("c1", "c2")
OF_CALLS = ("call", "output", "dispatch", "withdraw", "proceed", "hold", "reject", "answer")
EVENTS = (*OF_CALLS, "start", "end", "response", "peer", "cancel", "report", "user")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(EVENTS),
        st.sampled_from(CALLS),
        st.integers(0, 30),
    ),
    min_size=6,
    max_size=30,
)


def _body(tape: Tape, event: str, call_id: str, pick: int) -> tuple[str, dict[str, object]]:
    """A random entry, its references picked among the entries there are."""
    some = tape.id(pick % len(tape.source))
    calls = [position for position in tape.source.with_call(call_id) if "item" in tape.source.entry(position).body]
    target = tape.id(calls[0]) if calls and pick % 5 else some
    message = {"type": "message", "role": "user", "content": []}
    function_call = {"type": "function_call", "call_id": call_id, "name": "t", "arguments": "{}"}
    bodies: dict[str, tuple[str, dict[str, object]]] = {
        "call": ("item", {"item": function_call, "response": f"r{pick % 2}"}),
        "output": ("item", {"item": {"type": "function_call_output", "call_id": call_id, "output": ""}}),
        "dispatch": ("dispatch", {"call_id": call_id, "target": target}),
        "start": ("run", {"run_id": call_id, "phase": "start", "source": ["input", "resume"][pick % 2]}),
        "end": ("run", {"run_id": call_id, "phase": "end", "reason": "done", "pending": ["c1"] * (pick % 2)}),
        "response": ("response", {"response_id": f"r{pick % 2}"}),
        "peer": ("link", {"rel": "peer", "session": "s" * (pick % 2), "call_id": call_id, "url": "u" * (pick % 3)}),
        "cancel": ("link", {"rel": "peer", "session": "", "call_id": call_id, "cancel": "sent", "target": some}),
        "report": ("item", {"item": message, "from_link": some}),
        "user": ("item", {"item": message}),
    }
    if event in bodies:
        return bodies[event]
    verdict = "reject" if event == "withdraw" else event
    more = {"withdrawn": True} if event == "withdraw" else {}
    return "decision", {"call_id": call_id, "target": target, "verdict": verdict, "reason": "x", **more}


def _grow(steps: list[tuple[str, str, int]], allow: Callable[[Tape, str, dict[str, object]], bool]) -> Tape:
    tape = Tape()
    tape.user()
    for event, call_id, pick in steps:
        if pick % 7 == 0:
            tape.branch(pick % len(tape.source))
        type_, body = _body(tape, event, call_id, pick)
        if allow(tape, type_, body):
            tape.add(type_, body)
    return tape


def _would_accept(tape: Tape, type_: str, body: dict[str, object]) -> bool:
    try:
        check_append(tape.source, tape.header, tape.at, facts_of(type_, body), body)
    except RecordRule:
        return False
    return True


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_what_an_append_accepts_breaks_no_rule_an_append_tests(steps: list[tuple[str, str, int]]) -> None:
    tape = _grow(steps, _would_accept)
    untested = {RecordMissing, ReasonMismatch, SourceMismatch, BadFromLink}
    assert [problem for problem in found(tape) if problem[0] not in untested] == []


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_walking_the_tree_finds_what_each_path_shows(steps: list[tuple[str, str, int]]) -> None:
    tape = _grow(steps, lambda *_: True)
    parents = {tape.source.parent(position) for position in range(len(tape.source))}
    leaves = [position for position in range(len(tape.source)) if position not in parents]
    together: set[tuple[type[RecordRule], int]] = set()
    for leaf in leaves:
        walk = RecordWalk(tape.source, tape.header)
        walk.check_call_ids(range(len(tape.source)))
        for position in path_positions(tape.source, leaf):
            walk.read(position)
        walk.end_path()
        together |= {(problem.error, problem.position) for problem in walk.problems()}
    problems = found(tape)
    assert set(problems) == together
    kinds = [(problem.error, problem.position, problem.detail) for problem in record_problems(tape.source, tape.header)]
    assert len(set(kinds)) == len(kinds)


def test_a_comb_of_branches_costs_its_entries() -> None:
    tape = Tape()
    tape.start()
    spine = tape.at
    for number in range(3000):
        tape.branch(spine)
        spine = tape.call(f"c{number}")
        tape.dispatch(spine, f"c{number}")
        tape.output(f"c{number}")
    assert found(tape) == []
