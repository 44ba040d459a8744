"""One record rule broken at a time in a file that broke none: verify names that rule at that entry, and names it first.

Files are those of :mod:`tests.helpers.legal`, taken apart, changed in one place, and put together with every id made
anew. What each change breaks is worked out from format.md §9 and context.md §2 by its author's model of the paths.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import errors
from agentsession_cas.core.jsonl import read_session
from agentsession_cas.core.source import path_positions
from agentsession_cas.core.tree import Session
from agentsession_cas.core.verify import verify
from agentsession_cas.errors import RecordRule
from tests.helpers.legal import Harness, forked, grown, ticking_store
from tests.helpers.pathmodel import CallModel, PathModel, RunModel
from tests.helpers.remade import Line, Remade

pytestmark = pytest.mark.heavy

RECORD_CODES = {
    each.code for each in vars(errors).values() if isinstance(each, type) and issubclass(each, RecordRule)
} - {"superseded", "link_mismatch", "bad_withdrawal"}
SEEDS = st.lists(st.integers(0, 2**32 - 1), min_size=25, max_size=60)
REASONS = ("done", "stopped", "input_required", "aborted")


class Broken(NamedTuple):
    """The rule that was broken, and the name of the entry that breaks it."""

    error: type[RecordRule]
    entry: str


Breaker = Callable[[Harness, Remade, random.Random], Broken | None]
"""Changes a file; None when it holds nothing to break in that way."""


def record_problems(remade: Remade) -> tuple[list[tuple[str, str]], Session]:
    """The record problems of a file, in the order verify lists them, and the session."""
    session = read_session(remade.file())
    listed = [each for each in verify(session)["problems"] if each["code"] in RECORD_CODES]
    return [(each["code"], each["entry"]) for each in listed], session


# --- changing a line in place ----------------------------------------------------------------------------------------


def calls(remade: Remade) -> list[Line]:
    """The lines of function calls, in file order."""
    return [line for line in remade.lines if line.body.get("item", {}).get("type") == "function_call"]


def empty_call_id(author: Harness, remade: Remade, rng: random.Random) -> Broken | None:
    if not calls(remade):
        return None
    line = rng.choice(calls(remade))
    line.body["item"]["call_id"] = ""
    return Broken(errors.CallIDEmpty, line.name)


def repeat_call_id(author: Harness, remade: Remade, rng: random.Random) -> Broken | None:
    made = calls(remade)
    if len(made) < 2:
        return None
    first, second = sorted(rng.sample(range(len(made)), 2))
    made[second].body["item"]["call_id"] = made[first].body["item"]["call_id"]
    return Broken(errors.CallIDRepeated, made[second].name)


def misname_target(author: Harness, remade: Remade, rng: random.Random) -> Broken | None:
    about = [line for line in remade.lines if line.type in ("decision", "dispatch")]
    if not about:
        return None
    line = rng.choice(about)
    others = [each for each in remade.lines if each.name != line.body["target"] and each.name != line.name]
    if rng.random() < 0.5:
        line.body["target"] = rng.choice(others).name
    else:
        line.body["call_id"] += "-other"
    return Broken(errors.BadTarget, line.name)


def run_ends(author: Harness, remade: Remade) -> list[Line]:
    """The lines that end runs, of the session's own."""
    return [line for line in remade.lines if line.body.get("phase") == "end" and line.parent in author.models]


def misstate_reason(author: Harness, remade: Remade, rng: random.Random) -> Broken | None:
    ends = run_ends(author, remade)
    if not ends:
        return None
    line = rng.choice(ends)
    computed = author.models[line.parent].reason(author.session.path(line.parent))
    line.body["reason"] = rng.choice([each for each in REASONS if each != computed])
    return Broken(errors.ReasonMismatch, line.name)


def misstate_pending(author: Harness, remade: Remade, rng: random.Random) -> Broken | None:
    ends = run_ends(author, remade)
    if not ends:
        return None
    line = rng.choice(ends)
    pending = line.body["pending"]
    line.body["pending"] = pending[1:] if pending and rng.random() < 0.5 else [*pending, "nobody"]
    return Broken(errors.ReasonMismatch, line.name)


def flip_source(author: Harness, remade: Remade, rng: random.Random) -> Broken | None:
    starts = [line for line in remade.lines if line.body.get("phase") == "start" and line.name in author.models]
    flipped = {line.name: "input" if line.body["source"] == "resume" else "resume" for line in starts}
    shown = [line for line in starts if any(disagrees(run, flipped[line.name]) for run in ends_of(author, line.name))]
    if not shown:
        return None
    line = rng.choice(shown)
    line.body["source"] = flipped[line.name]
    return Broken(errors.SourceMismatch, line.name)


def ends_of(author: Harness, start: str) -> list[RunModel]:
    """A run as it is wherever its segment ends: at its end, at another start, where a path ends."""
    source = author.session.source
    found = []
    childless = set(author.session.leaves())
    for name, model in author.models.items():
        if model.run is None or model.run.start != start:
            continue
        after = [author.models[each] for each in author.session.children(name) if each in author.models]
        if name in childless or any(each.run is None or each.run.start != start for each in after):
            found.append(model.run)
    assert source.find(start) >= 0
    return found


def disagrees(run: RunModel, source: str) -> bool:
    """Whether a segment disagrees with a source."""
    if source == "resume" and not run.shaped and not run.touches:
        return False
    return source != (run.first or "input")


def misname_peer(author: Harness, remade: Remade, rng: random.Random) -> Broken | None:
    items = [line for line in remade.lines if line.type == "item" and line.name in author.models]
    if not items:
        return None
    line = rng.choice(items)
    peers = {name for name, (rel, _) in author.models[line.name].callees.items() if rel == "peer"}
    line.body["from_link"] = rng.choice([each.name for each in remade.lines if each.name not in {*peers, line.name}])
    return Broken(errors.BadFromLink, line.name)


def lose_dispatch(author: Harness, remade: Remade, rng: random.Random) -> Broken | None:
    """Take out the one dispatch of a call whose output is all that follows it."""
    answered = {line.body["target"] for line in remade.lines if line.body.get("verdict") == "answer"}
    lost = []
    for line in remade.lines:
        if line.type != "dispatch" or line.body["target"] in answered or line.name not in author.models:
            continue
        call = author.models[line.name].calls[line.body["target"]]
        after = [each for each in remade.lines if each.parent == line.name]
        is_output = len(after) == 1 and after[0].body.get("item", {}).get("call_id") == call.call_id
        if is_output and call.read.count("dispatch") == 1:
            lost.append((line.name, after[0].name))
    if not lost or not author.promised:
        return None
    dispatch, output = rng.choice(lost)
    if dispatch == author.session.header.base:
        return None
    remade.remove(dispatch)
    return Broken(errors.RecordMissing, output)


# --- adding a line at the end of some path ---------------------------------------------------------------------------


def broken_by(author: Harness, call: CallModel, event: str) -> type[RecordRule] | None:
    """The rule an event breaks of a call, first of those of context.md §2, Record checks, 4."""
    read = call.read
    if event == "output":
        unrecorded = author.promised and call.pending and not call.dispatched and not call.closed
        return errors.RecordMissing if unrecorded else None
    if "answer" in read:
        return errors.CallAnswered
    if "reject" in read:
        return errors.CallRejected
    if event == "reject" and call.dispatched:
        return errors.RejectDispatched
    if event in ("dispatch", "answer", "reject") and not call.pending:
        return errors.CallCompleted
    if event == "answer" and author.promised and call.own and call.entry not in author.dispatched:
        return errors.AnswerNotDispatched
    return None


def body_of(call: CallModel, event: str) -> tuple[str, dict[str, Any]]:
    """An entry that is the event."""
    if event == "output":
        return "item", {"item": {"type": "function_call_output", "call_id": call.call_id, "output": "late"}}
    named = {"call_id": call.call_id, "target": call.entry}
    return ("dispatch", named) if event == "dispatch" else ("decision", {**named, "verdict": event, "reason": "why"})


def paths(author: Harness) -> list[tuple[str, PathModel]]:
    """Where a line may be added that leaves the run there as sound as it was."""
    return [(name, model) for name, model in author.models.items() if name and model.open_ended]


def add_event(event: str, error: type[RecordRule]) -> Breaker:
    """Add an event that breaks one rule of its call."""

    def add(author: Harness, remade: Remade, rng: random.Random) -> Broken | None:
        able = [
            (name, call)
            for name, model in paths(author)
            for call in model.calls.values()
            if (model.run is None or model.run.would_take(call.entry)) and broken_by(author, call, event) is error
        ]
        if not able:
            return None
        parent, call = rng.choice(able)
        type_, body = body_of(call, event)
        if event == "reject" and call.events[-1] != "dispatch" and rng.random() < 0.5:
            body["withdrawn"] = True  # in the wrong place: a reject like any other
        return Broken(error, remade.add(type_, body, parent))

    return add


def add_notice(author: Harness, remade: Remade, rng: random.Random) -> Broken | None:
    """Add a cancel notice that is wrong in its target, its relation or its call."""
    parent, model = rng.choice(paths(author))
    links = {line.name: line.body for line in remade.lines if line.type == "link" and "cancel" not in line.body}
    here = [name for name in model.callees if name in links]
    if here and rng.random() < 0.6:
        link = links[target := rng.choice(here)]
        rel, call_id = link["rel"], link["call_id"]
        if rng.random() < 0.5:
            rel = "peer" if rel == "subsession" else "subsession"
        else:
            call_id += "-other"
    else:
        target = rng.choice([each.name for each in remade.lines if each.name not in model.callees])
        rel, call_id = "peer", "any"
    body = {"rel": rel, "session": "", "call_id": call_id, "cancel": "sent", "target": target}
    return Broken(errors.CalleeLink, remade.add("link", body, parent))


def add_nameless_peer(author: Harness, remade: Remade, rng: random.Random) -> Broken | None:
    parent, _ = rng.choice(paths(author))
    return Broken(errors.CalleeLink, remade.add("link", {"rel": "peer", "session": "", "url": "https://x"}, parent))


BREAKERS: dict[str, Breaker] = {
    "a call without call_id": empty_call_id,
    "a call_id twice": repeat_call_id,
    "another target": misname_target,
    "another reason": misstate_reason,
    "another pending list": misstate_pending,
    "the other source": flip_source,
    "an output without its dispatch": lose_dispatch,
    "dispatch after reject": add_event("dispatch", errors.CallRejected),
    "dispatch after answer": add_event("dispatch", errors.CallAnswered),
    "dispatch after output": add_event("dispatch", errors.CallCompleted),
    "proceed after answer": add_event("proceed", errors.CallAnswered),
    "hold after reject": add_event("hold", errors.CallRejected),
    "reject after reject": add_event("reject", errors.CallRejected),
    "reject after dispatch": add_event("reject", errors.RejectDispatched),
    "reject after output": add_event("reject", errors.CallCompleted),
    "answer after answer": add_event("answer", errors.CallAnswered),
    "answer after output": add_event("answer", errors.CallCompleted),
    "answer without dispatch": add_event("answer", errors.AnswerNotDispatched),
    "output without dispatch": add_event("output", errors.RecordMissing),
    "a wrong notice": add_notice,
    "a peer of no call": add_nameless_peer,
    "from_link without a peer": misname_peer,
}


def author_of(seeds: list[int], fork: bool, promised: bool) -> Harness:
    """A session, or a fork of it in the middle."""
    store = ticking_store()
    author = grown(store, seeds, promised=promised)
    if not fork:
        return author
    bases = [name for name, model in author.models.items() if name and model.open_ended and name not in author.labels]
    return forked(store, author, bases[len(bases) // 2], seeds[::-1], promised=True)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.booleans(), st.booleans(), st.randoms(use_true_random=False))
def test_the_first_problem_is_the_rule_that_was_broken(
    seeds: list[int], fork: bool, promised: bool, rng: random.Random
) -> None:
    author = author_of(seeds, fork, promised)
    assert record_problems(Remade(author.session))[0] == []
    for name, breaker in BREAKERS.items():
        remade = Remade(author.session)
        broken = breaker(author, remade, rng)
        if broken is None:
            continue
        found, session = record_problems(remade)
        entry = remade.ids[broken.entry]
        assert found[:1] == [(broken.error.code, entry)], name
        through = [leaf for leaf in session.leaves() if session.source.find(entry) in path_of(session, leaf)]
        shown = {first_of(session, leaf) for leaf in through}
        assert (broken.error, entry) in shown, name
        # A run's source shows where its segment ends; every other rule on every path through the entry.
        assert len(shown) == 1 or broken.error is errors.SourceMismatch


def path_of(session: Session, leaf: str) -> list[int]:
    """The positions of the path to a leaf."""
    return path_positions(session.source, session.position(leaf))


def first_of(session: Session, leaf: str) -> tuple[type[RecordRule], str] | None:
    """What ``verify_records`` raises at a leaf."""
    try:
        session.verify_records(leaf)
    except RecordRule as error:
        return type(error), error.where
    return None


def test_every_breaker_finds_something_to_break() -> None:
    used = set()
    for number in range(30):
        author = author_of(list(range(number * 100, number * 100 + 50)), number % 3 == 0, number % 4 != 0)
        rng = random.Random(number)
        used |= {name for name, breaker in BREAKERS.items() if breaker(author, Remade(author.session), rng)}
    assert set(BREAKERS) - used == set()
