"""Links: callees and what became of them, judges, successors, and subsession links against their targets."""

from __future__ import annotations

import pytest

from agentsession_cas.core.header import Header, new_header
from agentsession_cas.core.links import callees, judges, link_problems, superseded_by, verify_links
from agentsession_cas.errors import LinkMismatch, NoSession
from tests.helpers.tape import Tape


def told(tape: Tape) -> list[tuple[int, int, bool, bool]]:
    """Each callee: its link, its dispatch (-1: none), cancelled, answered."""
    return [
        (tape.source.find(each.link.id), tape.source.find(each.dispatch), each.cancelled, each.answered)
        for each in callees(tape.source, tape.at)
    ]


def notice(tape: Tape, link: int, rel: str = "subsession", call_id: str = "c1") -> int:
    """A cancel notice."""
    return tape.link(rel, "", call_id=call_id, cancel="sent", target=tape.id(link))


def test_a_callee_of_this_store_belongs_to_the_first_dispatch_after_its_link() -> None:
    tape = Tape()
    call = tape.call()
    tape.dispatch(call)
    link = tape.link("subsession", "child", call_id="c1")
    assert told(tape) == [(link, -1, False, False)]
    second = tape.dispatch(call)
    tape.dispatch(call)
    assert told(tape) == [(link, second, False, False)]


def test_a_callee_of_another_system_belongs_to_the_latest_dispatch_before_its_link() -> None:
    tape = Tape()
    call = tape.call()
    tape.dispatch(call)
    second = tape.dispatch(call)
    link = tape.link("peer", "", call_id="c1", url="https://x")
    tape.dispatch(call)
    assert told(tape) == [(link, second, False, False)]


def test_a_withdrawn_dispatch_starts_no_callee() -> None:
    tape = Tape()
    call = tape.call()
    link = tape.link("subsession", "child", call_id="c1")
    tape.dispatch(call)
    tape.withdraw(call)
    assert told(tape) == [(link, -1, False, False)]


def test_answered_by_the_callee_of_the_last_dispatch_before_the_output() -> None:
    tape = Tape()
    call = tape.call()
    first_dispatch = tape.dispatch(call)
    first = tape.link("peer", "", call_id="c1", url="https://x")
    second_dispatch = tape.dispatch(call)
    second = tape.link("peer", "", call_id="c1", url="https://x")
    tape.output()
    assert told(tape) == [(first, first_dispatch, False, False), (second, second_dispatch, False, True)]


def test_not_answered_when_cancelled_or_when_the_harness_answered() -> None:
    tape = Tape()
    call = tape.call()
    link = tape.link("subsession", "child", call_id="c1")
    dispatch = tape.dispatch(call)
    before = tape.at
    notice(tape, link)
    tape.output()
    assert told(tape) == [(link, dispatch, True, False)]
    tape.branch(before)
    tape.decide(call, "answer")
    tape.output()
    assert told(tape) == [(link, dispatch, False, False)]
    tape.branch(before)
    tape.output()
    assert told(tape) == [(link, dispatch, False, True)]
    tape.link("peer", "", call_id="c1", url="https://late")
    assert told(tape)[1][3] is False


def test_a_callee_without_a_dispatch_answered_nothing() -> None:
    tape = Tape()
    tape.call()
    link = tape.link("subsession", "child", call_id="c1")
    tape.output()
    assert told(tape) == [(link, -1, False, False)]


def test_a_callee_linked_after_the_output_answered_nothing() -> None:
    tape = Tape()
    call = tape.call()
    dispatch = tape.dispatch(call)
    tape.output()
    link = tape.link("peer", "", call_id="c1", url="https://x")
    assert told(tape) == [(link, dispatch, False, False)]


def test_only_an_answer_between_link_and_output_is_the_harness_answering() -> None:
    tape = Tape()
    call = tape.call()
    dispatch = tape.dispatch(call)
    tape.decide(call, "answer")
    link = tape.link("peer", "", call_id="c1", url="https://x")
    tape.decide(call, "hold")
    tape.output()
    tape.decide(call, "answer")
    assert told(tape) == [(link, dispatch, False, True)]


def test_a_dispatch_after_the_output_takes_no_answer_away() -> None:
    tape = Tape()
    call = tape.call()
    dispatch = tape.dispatch(call)
    link = tape.link("peer", "", call_id="c1", url="https://x")
    tape.output()
    tape.dispatch(call)
    assert told(tape) == [(link, dispatch, False, True)]


def test_only_a_notice_cancels() -> None:
    tape = Tape()
    tape.call()
    link = tape.link("peer", "s", call_id="c1")
    tape.link("judged_by", "judge", target=tape.id(link))
    tape.link("judged_by", "judge", target=tape.id(link), cancel="sent")
    tape.link("peer", "s", call_id="c1", target=tape.id(link), cancel="later")
    tape.add("label", {"target": tape.id(link), "label": "good"})
    tape.add("outcome", {"kind": "feedback", "target": tape.id(link)})
    assert [cancelled for _, _, cancelled, _ in told(tape)] == [False, False]


def test_a_notice_off_the_path_cancels_nothing() -> None:
    tape = Tape()
    tape.call()
    link = tape.link("subsession", "child", call_id="c1")
    notice(tape, link)
    assert told(tape) == [(link, -1, True, False)]
    tape.branch(link)
    tape.user()
    assert told(tape) == [(link, -1, False, False)]


def test_a_notice_is_no_callee_and_one_that_names_none_is_passed_over() -> None:
    tape = Tape()
    tape.call()
    message = tape.user()
    notice(tape, message)
    link = tape.link("peer", "child")
    tape.link("judged_by", "judge")
    assert told(tape) == [(link, -1, False, False)]


def test_judges_are_the_judged_by_links_of_the_path() -> None:
    tape = Tape()
    judged = tape.user()
    first = tape.link("judged_by", "judge", target=tape.id(judged))
    tape.link("subsession", "child", call_id="c1")
    second = tape.link("judged_by", "other")
    tape.branch(judged)
    tape.link("judged_by", "aside")
    assert [entry.id for entry in judges(tape.source, second)] == [tape.id(first), tape.id(second)]
    assert judges(tape.source, second)[0].body["target"] == tape.id(judged)


def test_superseded_by_the_last_successor_of_the_sessions_own() -> None:
    tape = Tape()
    tape.user()
    assert superseded_by(tape.source) == ""
    tape.link("continued_in", "next")
    assert superseded_by(tape.source) == "next"
    tape.base()
    assert superseded_by(tape.source) == ""
    tape.link("continued_in", "mine")
    assert superseded_by(tape.source) == "mine"


def child(tape: Tape, **members: str) -> Header:
    """The header of a subsession."""
    return new_header(
        id="child",
        created_at="2026-11-01T00:00:00Z",
        parent_session=members.get("parent_session", tape.header.id),
        spawned_by=members.get("spawned_by", "c1"),
    )


@pytest.mark.parametrize(
    ("members", "wrong"),
    [({}, ""), ({"parent_session": "another"}, "parent_session"), ({"spawned_by": "c2"}, "spawned_by")],
)
def test_a_subsession_link_agrees_with_its_targets_header(members: dict[str, str], wrong: str) -> None:
    tape = Tape()
    link = tape.link("subsession", "child", call_id="c1")
    problems = list(link_problems(tape.source, tape.header, lambda _: child(tape, **members)))
    if not wrong:
        assert problems == []
        verify_links(tape.source, tape.header, lambda _: child(tape, **members))
        return
    (problem,) = problems
    assert (problem.entry, problem.session) == (tape.id(link), "child")
    assert wrong in str(problem.error)
    with pytest.raises(LinkMismatch):
        verify_links(tape.source, tape.header, lambda _: child(tape, **members))


def test_what_is_passed_over() -> None:
    tape = Tape()
    tape.link("subsession", "of-the-prefix", call_id="c1")
    tape.base()
    link = tape.link("subsession", "elsewhere", call_id="c1", url="https://x")
    notice(tape, link)
    tape.link("subsession", "told-to-stop", call_id="c1", cancel="sent", target=tape.id(link))
    tape.link("subsession", "")
    tape.link("peer", "peer", call_id="c1")
    tape.link("judged_by", "judge")
    asked: list[str] = []

    def resolve(session: str) -> Header | None:
        asked.append(session)
        return None

    assert list(link_problems(tape.source, tape.header, resolve)) == []
    assert asked == []
    tape.link("subsession", "never-started", call_id="c1")
    assert list(link_problems(tape.source, tape.header, resolve)) == []
    assert asked == ["never-started"]


def test_an_error_of_the_resolver_is_reported_for_its_link_and_the_rest_go_on() -> None:
    tape = Tape()
    tape.link("subsession", "broken", call_id="c1")
    tape.link("subsession", "child", call_id="c9")

    def resolve(session: str) -> Header | None:
        if session == "broken":
            raise NoSession("damaged")
        return child(tape)

    first, second = link_problems(tape.source, tape.header, resolve)
    assert isinstance(first.error, NoSession)
    assert isinstance(second.error, LinkMismatch)
    with pytest.raises(NoSession):
        verify_links(tape.source, tape.header, resolve)
