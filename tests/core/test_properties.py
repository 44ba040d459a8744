"""What holds of any session a correct harness writes: grown at random through a store, read back from what it wrote.

Sessions hold branches, runs, calls with every verdict, withdrawals, compactions, instruction parts, omit, links, queued
inputs and forks; see :mod:`tests.helpers.legal`, whose author judges by the format alone.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.calls import Call
from agentsession_cas.core.jsonl import projection_lines, read_session
from agentsession_cas.core.queue import queued_json
from agentsession_cas.core.tree import Session
from agentsession_cas.core.verify import verify
from agentsession_cas.errors import NoHash
from agentsession_cas.store import Store
from tests.helpers.legal import Harness, forked, grown, ticking_store

pytestmark = pytest.mark.heavy

SEEDS = st.lists(st.integers(0, 2**32 - 1), min_size=12, max_size=70)
FORK = st.one_of(st.none(), st.tuples(st.integers(0, 200), st.lists(st.integers(0, 2**32 - 1), max_size=20)))
Grown = tuple[Store, list[Harness]]


def grow(seeds: list[int], fork: tuple[int, list[int]] | None, promised: bool) -> Grown:
    """A store with a session and maybe a fork of it, their authors."""
    store = ticking_store()
    authors = [grown(store, seeds, promised=promised)]
    if fork is not None:
        above = authors[0]
        bases = [name for name, model in above.models.items() if name and model.open_ended and name not in above.labels]
        if bases:
            authors.append(forked(store, above, bases[fork[0] % len(bases)], fork[1], promised=not promised))
    return store, authors


GROWN = st.builds(grow, SEEDS, FORK, st.booleans())


def said(session: Session, leaf: str) -> dict[str, Any]:
    """Everything a session says at a leaf."""
    context = session.context(leaf)
    return {
        "calls": [call.to_json(session.header) for call in session.calls(leaf)],
        "runs": [run.to_json(session.source) for run in session.runs(leaf)],
        "queue": [queued_json(entry) for entry in session.pending_queued(leaf)],
        "callees": [(each.link.id, each.dispatch, each.cancelled, each.answered) for each in session.callees(leaf)],
        "judges": [entry.id for entry in session.judges(leaf)],
        "settings": context.settings.checkpoint(),
        "request": context.request_json(),
        "omitted": (context.omitted, context.replaced),
        "context_hash": session.context_hash(leaf),
    }


def history(call: Call) -> tuple[list[str], list[str], list[str]]:
    """The entries of a call's decisions, its dispatches and its output."""
    outputs = [call.output] if call.output >= 0 else []
    decisions, dispatches, output = (
        [call.source.entry_id(at) for at in each] for each in (call.decisions, call.dispatches, outputs)
    )
    return decisions, dispatches, output


@settings(max_examples=60, deadline=None)
@given(GROWN)
def test_every_recorded_request_hash_verifies_and_no_rule_is_broken(made: Grown) -> None:
    for author in made[1]:
        report = verify(author.session)
        assert report["problems"] == []
        counts = {"verified": len(author.hashed), "no_hash": len(author.unhashed), "mismatched": 0, "other_form": 0}
        assert report["responses"] == counts
        for response in author.hashed:
            author.session.verify(response)
        for response in author.unhashed:
            with pytest.raises(NoHash):
                author.session.verify(response)


@settings(max_examples=60, deadline=None)
@given(GROWN)
def test_the_file_says_of_every_path_what_memory_says(made: Grown) -> None:
    store, authors = made
    for author in authors:
        session = author.session
        read = read_session(b"\n".join(projection_lines(session)))
        assert read.leaf == session.leaf
        beside = store.read(session.id)
        for leaf in {*session.leaves(), session.leaf}:
            there = said(session, leaf)
            assert said(read, leaf) == there
            assert said(beside, leaf) == there


@settings(max_examples=60, deadline=None)
@given(GROWN)
def test_calls_and_runs_are_what_their_author_knows(made: Grown) -> None:
    for author in made[1]:
        for leaf in author.session.leaves():
            states = {call.entry.id: call.state(author.session.header).value for call in author.session.calls(leaf)}
            assert states == {name: author.state(call, leaf) for name, call in author.models[leaf].calls.items()}
            histories = {call.entry.id: history(call) for call in author.session.calls(leaf)}
            assert histories == {name: call.history for name, call in author.models[leaf].calls.items()}
            open_run, model = author.session.open_run(leaf), author.models[leaf]
            assert [entry.id for entry in author.session.pending_queued(leaf)] == list(model.queued)
            if open_run is None or model.run is None:
                assert open_run is None
                assert model.run is None
                continue
            assert author.session.source.entry_id(open_run.start) == model.run.start
            assert open_run.computed_source == (model.run.first or "input")
            assert open_run.computed_reason == model.reason(author.session.path(leaf))


@settings(max_examples=40, deadline=None)
@given(GROWN)
def test_project_import_project_is_the_same_file(made: Grown) -> None:
    store, authors = made
    for author in authors:
        name = author.session.id
        author.session.close()
        store.project(name, "/first.jsonl")
        first = store.layout.host.fs.read("/first.jsonl")
        assert first is not None
        with ticking_store() as other:
            done = other.import_file(first)
            assert (done.session, done.head, done.repeated) == (name, store.read(name).leaf, [])
            other.project(name, "/second.jsonl")
            assert other.layout.host.fs.read("/second.jsonl") == first
            assert other.fsck().ok
    assert store.fsck().ok


def test_the_sessions_grown_hold_everything() -> None:
    """Lest the properties hold of little: what a hundred sessions are made of."""
    held: Counter[str] = Counter()
    for number in range(100):
        author = grown(ticking_store(), range(number * 1000, number * 1000 + 40), promised=number % 4 != 0)
        for entry in author.session:
            held[entry.type] += 1
            held[f"verdict {entry.body['verdict']}" if entry.type == "decision" else ""] += 1
            held[f"reason {entry.body['reason']}" if entry.body.get("phase") == "end" else ""] += 1
            held["normalised"] += "normalised" in entry.body
            for element in entry.body.get("instructions_parts", ()):
                held.update(f"part by {name}" for name in ("text", "hash", "keep") if name in element)
            for element in entry.body.get("instructions_omitted") or ():
                held.update(f"omitted by {name}" for name in ("id", "keep", "of") if name in element)
            held.update(f"link {entry.body['rel']}" for _ in [0] if entry.type == "link")
            held.update(name for name in ("failed", "from_link", "queued_from", "cancel") if name in entry.body)
        held["branches"] += len(author.session.leaves()) - 1
        for response in author.hashed:
            context = author.session.request_context(response)
            held.update(f"{each['reason']} changed" for each in (*context.omitted, *context.replaced))
            held["parts sent"] += bool(context.settings.instructions_parts)
            held["summaries sent"] += "compaction" in {author.session.entry(each).type for each in context.entries}
        for leaf in author.session.leaves():
            for call in author.session.calls(leaf):
                held[f"state {call.state(author.session.header)}"] += 1
                held["withdrawn"] += len(call.withdrawn)
    wanted = [
        *("item", "response", "config", "compaction", "branch_summary", "run", "dispatch", "decision", "queued"),
        *("label", "info", "env", "outcome", "link", "custom", "acme:thing", "normalised", "withdrawn"),
        *(f"verdict {each}" for each in ("proceed", "reject", "hold", "answer")),
        *(f"reason {each}" for each in ("done", "stopped", "interrupted", "input_required", "aborted", "error")),
        *(f"state {each}" for each in ("completed", "answered", "rejected", "held", "in_flight", "never_started")),
        "state unknown",
        *(f"part by {each}" for each in ("text", "hash", "keep")),
        *(f"omitted by {each}" for each in ("id", "keep", "of")),
        *(f"link {each}" for each in ("subsession", "peer", "judged_by")),
        *(f"{each} changed" for each in ("items", "other_models", "outputs", "images")),
        *("failed", "from_link", "queued_from", "cancel", "branches", "parts sent", "summaries sent"),
    ]
    assert {each: held[each] for each in wanted if held[each] < 5} == {}
