"""What an append asks of a call's history, against reading the whole path: over a list, over rows, over a batch.

Sessions hold whatever a stored file may hold, entries with wrong targets among them; so they come in as files.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import SessionWriter, Store, entry
from agentsession_cas.core.calls import Call, calls
from agentsession_cas.core.jsonl import projection_lines, read_session
from agentsession_cas.core.memory import Overlay
from agentsession_cas.core.records import call_on_path
from agentsession_cas.core.source import EntrySource, path_positions
from agentsession_cas.core.tree import Appendable, Session
from agentsession_cas.errors import BadEntry, BadTarget
from tests.helpers.legal import ticking_store
from tests.helpers.tape import Tape

VERDICTS = ("proceed", "hold", "reject", "answer")
STEPS = st.lists(st.integers(0, 2**32 - 1), min_size=3, max_size=40)


def taped(seeds: list[int]) -> Tape:
    """A few calls on a few branches, and entries about them that are right or wrong."""
    tape = Tape()
    tape.user()
    made: list[int] = []
    for number, seed in enumerate(seeds):
        rng = random.Random(seed)
        if rng.random() < 0.2:
            tape.branch(rng.randrange(len(tape.source)))
        call_id = f"c{rng.randrange(4)}"
        target = rng.choice(made) if made and rng.random() < 0.9 else rng.randrange(len(tape.source))
        named = call_id if rng.random() < 0.3 else tape.source.entry(target).call_id or "c0"
        match rng.randrange(7):
            case 0:
                made.append(tape.call(f"c{len(made)}"))
            case 1:
                tape.dispatch(target, named)
            case 2:
                tape.withdraw(target, named)
            case 3:
                tape.output(call_id, str(number))
            case 4 | 5:
                tape.decide(target, rng.choice(VERDICTS), named)
            case _:
                tape.user(str(number))
    return tape


def history(call: Call) -> tuple[Any, ...]:
    """All that a call's history is."""
    return call.position, call.decisions, call.dispatches, call.withdrawn, call.output, call.last


def check(source: EntrySource) -> None:
    """Every call at every entry: what the index finds is what the path says."""
    for leaf in range(len(source)):
        path = set(path_positions(source, leaf))
        assert [source.is_above(at, leaf) for at in range(len(source))] == [at in path for at in range(len(source))]
        assert not source.is_above(-1, leaf)
        read = {call.position: history(call) for call in calls(source, leaf)}
        for position in range(len(source)):
            assert all(at > position for at in source.about_call(position))
            about = source.entry(position)
            try:
                found = call_on_path(source, leaf, about.id, about.call_id)
            except BadTarget:
                assert position not in read
                continue
            assert history(found) == read[position]


def imported(store: Store, tape: Tape) -> Session:
    """The tape as a store holds it."""
    lines = [tape.header.line, *(each.line for each in tape.source)]
    store.import_file(b"\n".join(lines), as_record=True)
    return store.read(tape.header.id)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_list_and_rows_find_what_the_path_says(seeds: list[int]) -> None:
    tape = taped(seeds)
    check(tape.source)
    with ticking_store() as store:
        check(imported(store, tape).source)


@settings(max_examples=40, deadline=None)
@given(STEPS, st.integers(0, 40))
def test_a_batch_over_either_does(seeds: list[int], size: int) -> None:
    tape = taped(seeds)
    overlay = Overlay(Tape().source)
    for position, held in enumerate(tape.source):
        overlay.add(held, tape.source.parent(position))
    check(overlay)
    with ticking_store() as store:
        entries = list(tape.source)[: max(1, size)]
        lines = b"\n".join([tape.header.line, *(each.line for each in entries)])
        store.import_file(lines, as_record=True)
        overlay = Overlay(store.read(tape.header.id).source)
        for position in range(len(entries), len(tape.source)):
            overlay.add(tape.source.entry(position), tape.source.parent(position))
        check(overlay)


@settings(max_examples=40, deadline=None)
@given(STEPS, STEPS, st.integers(0, 40))
def test_a_fork_does_with_its_origin_and_without(seeds: list[int], more: list[int], at: int) -> None:
    tape = taped(seeds)
    with ticking_store() as store:
        origin = imported(store, tape)
        base = origin.source.entry_id(at % len(origin))
        with store.fork(origin.id, base, id="fork") as fork:
            for seed in more:
                rng = random.Random(seed)
                places = range(fork.source.base_count - 1, len(fork))
                fork.branch(fork.source.entry_id(rng.choice(places)))
                touch_some(fork, rng)
            check(fork.source)
            read = read_session(b"\n".join(projection_lines(fork)))
            assert [history(call) for call in fork.calls()] == [history(call) for call in read.calls()]
        check(store.read("fork").source)
        store.delete(origin.id)
        check(store.read("fork").source)


def touch_some(fork: SessionWriter, rng: random.Random) -> None:
    """Say something about one of the calls there, if anything may be said."""
    able = [call for call in fork.calls() if call.pending and call.call_id and not call.rejected and not call.answered]
    if not able:
        fork.append(entry.user("nothing to do"))
        return
    call = rng.choice(able).entry
    done = entry.function_call_output(call.call_id, "x")
    fork.append(rng.choice([entry.hold(call), entry.proceed(call), entry.dispatch(call), done]))


def test_rows_that_are_taken_back_leave_no_trace() -> None:
    with Store.memory() as store, store.create() as session:
        call = session.append(entry.function_call("c", "t", "{}")).id
        session.append(entry.hold("c", call))
        for _ in range(3):
            batch: list[Appendable] = [entry.user("x"), entry.dispatch("c", call), entry.user("y"), {"type": "thing"}]
            with pytest.raises(BadEntry):
                session.append_batch(batch)
            check(session.source)
        session.set_head(session.leaf, call)
        session.append(entry.proceed("c", call))
        check(session.source)


def test_the_newest_successor_is_known_without_a_walk() -> None:
    """Through a batch, a refusal, a checkpoint, a head move, a fresh read, and not in a fork that carries the link."""
    with Store.memory() as store, store.create() as session:
        session.append(entry.user("x"))
        assert session.source.continued() == -1
        with pytest.raises(BadEntry):
            session.append_batch([entry.continued_in("lost"), {"type": "thing"}])
        assert session.superseded_by == ""
        session.append_batch([entry.user("y"), entry.continued_in("next"), entry.user("z")])
        session.set_head(session.leaf, session.path(session.leaf)[0].id)
        session.append(entry.user("aside"))
        assert (session.source.continued(), session.superseded_by) == (2, "next")
        session.checkpoint()
        session.append(entry.user("after"))
        for each in (session, store.read(session.id), read_session(b"\n".join(projection_lines(session)))):
            assert (each.source.continued(), each.superseded_by) == (2, "next")
        assert session.append(entry.continued_in("next")).outcome == "continued"
        assert session.source.continued() == len(session) - 1
        with store.fork(session.id, session.leaf) as fork:
            assert (fork.source.continued(), fork.superseded_by) == (-1, "")
            read = read_session(b"\n".join(projection_lines(fork)))
            assert (read.source.continued(), read.superseded_by) == (-1, "")
