"""The session in memory: the tree and its questions, the leaf rule of a bare file, and long chains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import entry
from agentsession_cas.core.accept import Outcome
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.facts import facts_of
from agentsession_cas.core.header import FORMAT, Header, new_header
from agentsession_cas.core.jsonl import read_session
from agentsession_cas.core.leaf import resume_leaf
from agentsession_cas.core.memory import MemorySource, Overlay
from agentsession_cas.core.source import EntrySource
from agentsession_cas.core.tree import Session
from agentsession_cas.errors import (
    BadEntry,
    BadInput,
    BadTimestamp,
    BaseRule,
    CallIDRepeated,
    FirstKept,
    HashMismatch,
    HeadMoved,
    HeadTarget,
    NoEntry,
    NoHash,
    NoRaise,
    ReadOnly,
)

REFERENCE = Path(__file__).parents[2] / "fixtures" / "reference"
TS = "2026-01-01T00:00:00Z"
ABSENT = "sha256:" + "ab" * 32
HEADER = new_header(id="s1", created_at=TS)

Json = dict[str, Any]


def session() -> Session:
    return Session(HEADER, clock=lambda: TS)


def reference(name: str) -> Session:
    return read_session((REFERENCE / "sessions" / f"{name}.jsonl").read_bytes(), clock=lambda: TS)


class Script:
    """Entries by name: ``a`` under nothing, ``b:a`` under a.

    A leaf label is ``L>target``, a null label ``C>target``, another label ``G>target``; ``0`` is the universal root,
    ``?`` an entry that is not there, ``-`` no member at all.
    """

    def __init__(self, lines: str, *, base: int = 0) -> None:
        self.source = MemorySource(base_count=base)
        self.ids = {"0": "", "?": ABSENT}
        for line in lines.split():
            self._add(*line.split(":"))

    def _add(self, name: str, under: str = "0") -> None:
        kind, _, target = name.partition(">")
        type_, body = "info", {"name": name}
        if target:
            label = {"L": "leaf", "C": None, "G": "good"}[kind[0]]
            type_, body = "label", {"n": kind, "label": label}  # type: ignore[dict-item]
            if target != "-":
                body["target"] = self.ids[target] or None  # type: ignore[assignment]
        sealed = Entry.seal(type_, body, self.ids[under], TS)
        self.source.add(sealed, self.source.find(self.ids[under]) if under != "0" else -1)
        self.ids[kind] = sealed.id

    def leaf(self) -> str:
        found = resume_leaf(self.source)
        return next(name for name, id_ in self.ids.items() if id_ == found)


@pytest.mark.parametrize(
    ("lines", "leaf"),
    [
        ("", "0"),
        ("a b:a c:b", "c"),
        ("a b:a c:a", "c"),
        # A mark, and what follows it.
        ("a b:a c:a L>b:b", "b"),
        ("a b:a c:a L>b:c", "b"),
        ("a b:a c:a L>b:b d:b", "d"),
        ("a b:a c:a L>b:b d:b e:b", "e"),
        ("a b:a c:a L>b:b d:L", "d"),
        ("a b:a c:a L>b:b d:c", "b"),
        ("a b:a c:a L>b:b d:b e:c", "d"),
        ("a b:a c:b L>b:a", "b"),
        ("a b:a c:b L>b:a d:c", "d"),
        # Replaced for good, cleared, or left alone.
        ("a b:a c:a L1>b:b L2>c:c", "c"),
        ("a b:a c:a L>b:b C>b:c", "C"),
        ("a b:a c:a L>b:b C>c:a", "b"),
        ("a b:a c:a L1>b:b L2>c:c C>c:a d:b", "d"),
        ("a b:a c:a L1>b:b L2>c:c C>b:a", "c"),
        ("a b:a c:a L1>b:b C>b:a L2>b:a", "b"),
        ("a b:a c:a L>b:b G>b:a", "b"),
        ("a b:a c:a L>b:b G>b:b", "G"),
        # Marks without effect.
        ("a b:a L>?:b", "b"),
        ("a b:a c:a L1>b:b L2>?:c", "b"),
        ("a b:a c:a L1>b:b L2>L1:c", "b"),
        ("a b:a c:a L1>b:b L2>?:b", "b"),
        ("L>?", "0"),
        ("L1>? L2>L1:L1", "0"),
        # The universal root.
        ("a b:a L>0:b", "0"),
        ("a b:a L>0:b c:b", "c"),
        ("a b:a L>0:b c", "c"),
        ("a b:a L>-:b", "0"),
        ("a b:a L>0:b C>0:b", "C"),
        ("a b:a L>0:b C>-:b d:a", "d"),
        ("a b:a L1>0:b L2>?:b", "b"),
        ("a b:a L>0:b C>a:b", "C"),
    ],
)
def test_the_leaf_of_a_bare_file(lines: str, leaf: str) -> None:
    assert Script(lines).leaf() == leaf


@pytest.mark.parametrize(
    ("lines", "leaf"),
    [
        ("a b:a", "b"),
        ("a b:a c:b d:b", "d"),
        ("a b:a c:b L>b:c", "b"),
        ("a b:a c:b L>b:c d:b", "d"),
        ("a b:a c:b L>a:c", "c"),
        ("a b:a c:b L>0:c", "c"),
        ("a b:a L>a:b", "b"),
        ("a b:a c:b L1>c:c L2>a:b d:b", "c"),
    ],
)
def test_the_leaf_of_a_forks_file(lines: str, leaf: str) -> None:
    assert Script(lines, base=2).leaf() == leaf


def test_a_mark_on_an_entry_further_down_the_file_is_in_force() -> None:
    source = MemorySource()
    first = Entry.seal("info", {}, "", TS)
    below = Entry.seal("info", {}, first.id, TS)
    mark = Entry.seal("label", {"label": "leaf", "target": below.id}, first.id, TS)
    other = Entry.seal("info", {"name": "other"}, first.id, TS)
    for held, parent in ((first, -1), (mark, 0), (below, 0), (other, 0)):
        source.add(held, parent)
    assert resume_leaf(source) == below.id


def naive_leaf(source: EntrySource) -> str:
    """The resume rule of format.md §2 word for word, with no eye to cost."""

    def path(position: int) -> list[int]:
        found = [position]
        while found[-1] >= 0:
            found.append(source.parent(found[-1]))
        return found

    def is_mark(position: int) -> bool:
        held = source.entry(position)
        return held.type == "label" and held.body.get("label") == "leaf"

    mark: tuple[int, int] | None = None
    for position in range(len(source)):
        held = source.entry(position)
        if held.type != "label":
            continue
        named = held.body.get("target")
        target = source.find(named) if named else -1
        if is_mark(position):
            if named and (target < 0 or is_mark(target)):
                continue
            mark = position, target
        elif mark is not None and held.body.get("label") is None and target == mark[1] and (target >= 0 or not named):
            mark = None
    if mark is None:
        leaf = len(source) - 1
    else:
        below = [each for each in range(mark[0] + 1, len(source)) if mark[1] in path(each)]
        leaf = below[-1] if below else mark[1]
    while leaf >= 0 and is_mark(leaf):
        leaf = source.parent(leaf)
    return source.entry_id(leaf) if leaf >= 0 else ""


steps = st.lists(st.tuples(st.sampled_from("eeeLLCG"), st.integers(0, 40), st.integers(0, 41)), max_size=25)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_the_leaf_rule_on_random_trees(made: list[tuple[str, int, int]]) -> None:
    source = MemorySource()
    for number, (kind, under, target) in enumerate(made):
        parent = under % (number + 1) - 1
        body: Json = {"n": number}
        if kind != "e":
            ids = [None, ABSENT, *(source.entry_id(each) for each in range(number))]
            body.update(label={"L": "leaf", "C": None, "G": "good"}[kind], target=ids[target % len(ids)])
        above = source.entry_id(parent) if parent >= 0 else ""
        source.add(Entry.seal("info" if kind == "e" else "label", body, above, TS), parent)
    assert resume_leaf(source) == naive_leaf(source)


# --- the tree --------------------------------------------------------------------------------------------------------


def test_a_session_grows_branches_and_goes_back() -> None:
    tree = session()
    first = tree.append(entry.user("one"))
    second = tree.append(entry.user("two"))
    assert (first.outcome, first.durable, tree.leaf, len(tree)) == (Outcome.CONTINUED, False, second.id, 2)
    tree.branch(first.id)
    third = tree.append(entry.user("three"))
    assert [held.id for held in tree.path(third.id)] == [first.id, third.id]
    assert tree.path() == tree.path(tree.leaf)
    assert tree.children(first.id) == [second.id, third.id]
    assert tree.children("") == [first.id]
    assert tree.leaves() == [second.id, third.id]
    tree.reset_leaf()
    assert tree.leaf == ""
    fourth = tree.append(entry.user("four"))
    assert (fourth.outcome, tree.children("")) == (Outcome.CONTINUED, [first.id, fourth.id])
    assert [held.id for held in tree] == [first.id, second.id, third.id, fourth.id]
    assert tree.path("") == []


def test_a_branch_leaves_the_leaf_where_it_was() -> None:
    tree = session()
    first = tree.append(entry.user("one"))
    second = tree.append(entry.user("two"))
    result = tree.append(entry.user("three").at(parent=first.id))
    assert (result.outcome, tree.leaf) == (Outcome.BRANCHED, second.id)


def test_a_mark_makes_the_leaf_durable() -> None:
    tree = session()
    with pytest.raises(NoEntry):
        tree.mark_leaf()
    first = tree.append(entry.user("one"))
    tree.append(entry.user("two"))
    tree.branch(first.id)
    mark = tree.append(tree.mark_leaf())
    assert (mark.outcome, tree.leaf) == (Outcome.LEAF_MOVED, first.id)
    assert resume_leaf(tree.source) == first.id
    assert tree.entry(mark.id).parent == first.id
    assert tree.labels() == {first.id: "leaf"}


def test_a_head_label_is_a_compare_and_swap() -> None:
    tree = session()
    first = tree.append(entry.user("one"))
    second = tree.append(entry.user("two"))
    mark = tree.append(tree.head_label(second.id, first.id))
    assert tree.leaf == first.id
    with pytest.raises(HeadMoved) as moved:
        tree.head_label(second.id, ABSENT)
    assert moved.value.current == first.id
    with pytest.raises(NoEntry):
        tree.head_label(first.id, ABSENT)
    with pytest.raises(HeadTarget):
        tree.head_label(first.id, mark.id)
    tree.append(tree.head_label(first.id, ""))
    assert tree.leaf == ""


def test_a_leaf_is_never_moved_to_where_it_may_not_rest() -> None:
    tree = session()
    first = tree.append(entry.user("one"))
    mark = tree.append(entry.leaf_label(first.id))
    with pytest.raises(HeadTarget):
        tree.branch(mark.id)
    with pytest.raises(NoEntry):
        tree.branch(ABSENT)
    fork = reference("fork")
    with pytest.raises(BaseRule):
        fork.reset_leaf()
    with pytest.raises(BaseRule):
        fork.branch(next(iter(fork)).id)
    with pytest.raises(BaseRule):
        fork.head_label(fork.leaf, "")
    fork.branch(fork.header.base)
    assert fork.append(entry.user("again")).outcome is Outcome.CONTINUED


def test_a_forks_prefix_is_not_its_own() -> None:
    fork = reference("fork")
    assert fork.is_prefix(fork.header.base)
    assert not fork.is_prefix(fork.leaf)
    assert [held.id for held in fork][: fork.source.base_count] == [held.id for held in fork.path(fork.header.base)]


def test_labels_are_the_last_ones_not_cleared() -> None:
    tree = session()
    first, second = tree.append(entry.user("one")).id, tree.append(entry.user("two")).id
    tree.append_batch([entry.label(first, "a"), entry.label(first, "b"), entry.label(second, "c")])
    assert tree.labels() == {first: "b", second: "c"}
    tree.append_batch([entry.clear_label(first), entry.leaf_label("")])
    assert tree.labels() == {second: "c", "": "leaf"}


def test_names_and_successors_are_the_last_ones() -> None:
    tree = session()
    assert (tree.name, tree.superseded_by) == ("", "")
    tree.append_batch([entry.info("one"), entry.info("two"), entry.info(mood=1), entry.continued_in("s2")])
    assert (tree.name, tree.superseded_by) == ("two", "s2")


def test_an_entry_is_found_by_its_legacy_id() -> None:
    tree = reference("basic")
    second = list(tree)[1]
    assert tree.entry("i0000001") == tree.entry(second.id) == second
    assert [held.id for held in tree.path("i0000001")][-1] == second.id
    tree.branch("i0000001")
    assert tree.leaf == second.id
    for unknown in ("", "i9999999", ABSENT):
        with pytest.raises(NoEntry):
            tree.entry(unknown)


def test_a_refused_append_or_batch_changes_nothing() -> None:
    tree = session()
    tree.append(entry.function_call("c1", "f", "{}"))
    before = (tree.leaf, len(tree))
    with pytest.raises(CallIDRepeated):
        tree.append_batch([entry.user("x"), entry.function_call("c1", "f", "{}")])
    with pytest.raises(BadEntry):
        tree.append({"type": "item"})
    assert (tree.leaf, len(tree)) == before
    assert tree.leaves() == [before[0]]


def test_an_append_raises_the_header_and_a_held_one_does_not() -> None:
    tree = reference("basic")
    tree.append(tree.entry(tree.leaf))
    assert tree.header.format == tree.declared_format == "agentsession/0.11"
    tree.append(entry.user("more"))
    assert (tree.header.format, tree.declared_format) == (FORMAT, "agentsession/0.11")


def test_a_session_that_may_not_be_raised_takes_no_append() -> None:
    old = Header.parse({**HEADER.members(), "format": "agentsession/0.12", "redacted_from": 5})
    tree = Session(old, clock=lambda: TS)
    with pytest.raises(NoRaise):
        tree.append(entry.user("x"))
    assert (len(tree), tree.header) == (0, old)


def test_without_a_clock_an_entry_says_its_time() -> None:
    tree = Session(HEADER)
    with pytest.raises(BadTimestamp):
        tree.append(entry.user("x"))
    assert tree.append(entry.user("x").at(ts="2026-01-01T01:00:00+01:00")).outcome is Outcome.CONTINUED


def test_a_session_over_another_source_reads_and_refuses_appends() -> None:
    tree = session()
    first = tree.append(entry.user("one"))
    view = Session(HEADER, Overlay(tree.source), leaf=first.id, clock=lambda: TS)
    assert (view.children(""), view.context().items) == ([first.id], tree.context().items)
    # That it takes none comes before what would be wrong with one.
    for wanted in (entry.user("two"), tree.entry(first.id), {"type": "nonsense"}):
        with pytest.raises(ReadOnly):
            view.append(wanted)
        with pytest.raises(ReadOnly):
            view.append_batch([wanted])


# --- sources ---------------------------------------------------------------------------------------------------------


def test_an_overlay_is_the_source_with_a_batch_behind_it() -> None:
    whole = reference("runs")
    entries = [(whole.source.entry(at), whole.source.parent(at)) for at in range(len(whole))]
    for cut in (0, 5, len(entries)):
        source = MemorySource()
        for held, parent in entries[:cut]:
            source.add(held, parent)
        overlay = Overlay(source)
        for number, (held, parent) in enumerate(entries[cut:], cut):
            assert overlay.add(held, parent) == number
        assert_same(overlay, whole.source)
        assert len(source) == cut


def assert_same(one: EntrySource, other: EntrySource) -> None:
    assert (len(one), one.base_count) == (len(other), other.base_count)
    for at in range(len(other)):
        held = other.entry(at)
        assert (one.entry(at), one.entry_id(at), one.parent(at)) == (held, held.id, other.parent(at))
        assert one.facts(at) == other.facts(at)
        assert one.find(held.id) == at
        assert one.find_legacy(held.body["legacy_id"]) == at
        assert one.with_call(held.call_id) == other.with_call(held.call_id)
    assert one.find(ABSENT) == one.find_legacy("nothing") == -1


def test_calls_are_found_by_their_whole_id() -> None:
    # Two call_ids of one 32-bit digest.
    twins = ("plumless", "buckeroo")
    bodies = [{"call_id": name, "target": ABSENT} for name in twins]
    assert facts_of("dispatch", bodies[0]).call == facts_of("dispatch", bodies[1]).call
    source = MemorySource()
    for at, body in enumerate(bodies):
        source.add(Entry.seal("dispatch", body, "", TS), -1)
        assert source.with_call(twins[at]) == [at]
    assert source.with_call("") == []


def test_a_long_chain_is_ordinary() -> None:
    tree = Session(HEADER, clock=lambda: TS)
    source = MemorySource()
    count = 200_000
    content = b'{"name":"x"}'
    facts = facts_of("info", {"name": "x"})
    parent = ""
    for number in range(count):
        id_ = f"sha256:{number:064x}"
        source.add(Entry.stored(id_, "info", parent, TS, ABSENT, lambda: content, facts=facts), number - 1)
        parent = id_
    tree = Session(HEADER, source, leaf=parent, clock=lambda: TS)
    assert len(tree.path(parent)) == count
    assert tree.leaves() == [parent]
    assert resume_leaf(source) == parent
    assert tree.context().items == []
    mark = tree.append(entry.leaf_label(tree.children("")[0]))
    assert (mark.outcome, tree.leaf) == (Outcome.LEAF_MOVED, tree.children("")[0])
    assert resume_leaf(source) == tree.leaf


# --- what a session says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["basic", "branch", "compaction", "omit", "runs"])
def test_contexts_and_hashes_at_every_reference_leaf(name: str) -> None:
    tree = reference(name)
    expected = json.loads((REFERENCE / "context" / f"{name}.json").read_bytes())
    for leaf, context in expected.items():
        assert tree.context(leaf).items == context["items"]
        assert tree.context(leaf).settings == tree.settings(leaf)
    for held in tree:
        if held.type == "response":
            tree.verify(held.id)
            assert tree.request_context(held.id).request_hash() == held.body["request_hash"]


def test_a_conversation_in_memory_proves_itself() -> None:
    tree = session()
    request: Json = {"model": "m", "instructions": "Be brief.", "input": "hi"}
    tree.append(entry.config_from_request(request))
    tree.append(entry.user("hi"))
    output = [{"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}]
    response = {"id": "r1", "model": "m-1", "status": "completed", "output": output}
    sent = tree.context().request()
    results = tree.record_response(sent, response, latency_ms=5)
    assert [result.outcome for result in results] == [Outcome.CONTINUED] * 2
    tree.verify(results[-1].id)
    assert [call.call_id for call in tree.pending_calls()] == ["c1"]
    call = tree.entry(results[0].id)
    tree.append(entry.dispatch(call))
    assert [held.type for held in tree.dispatches(call.id)] == ["dispatch"]
    tree.append(entry.function_call_output("c1", "ok"))
    assert (tree.pending_calls(), len(tree.calls())) == ([], 1)
    tree.verify_records()
    with pytest.raises(NoHash):
        tree.verify(tree.append(entry.response(response_id="r2")).id)
    with pytest.raises(HashMismatch):
        tree.verify(tree.append(entry.response(response_id="r3", request_hash=ABSENT)).id)
    for wrong in ("", call.id):
        with pytest.raises(BadInput):
            tree.verify(wrong)


def test_runs_and_inputs_owed() -> None:
    tree = session()
    assert tree.open_run() is None
    with pytest.raises(BadEntry):
        tree.end_run("done")
    tree.append(entry.run_start("r1"))
    queued = tree.append(entry.queued({"type": "message", "role": "user", "content": "x"}, mode="steer"))
    assert [held.id for held in tree.pending_queued()] == [queued.id]
    tree.append(entry.drain(tree.entry(queued.id)))
    assert tree.pending_queued() == []
    open_run = tree.open_run()
    assert open_run is not None
    assert open_run.run_id == "r1"
    tree.append(tree.end_run("aborted"))
    assert (tree.open_run(), [run.run_id for run in tree.runs()]) == (None, ["r1"])


def test_callees_and_judges() -> None:
    tree = session()
    call = tree.append(entry.function_call("c1", "f", "{}"))
    tree.append(entry.dispatch(tree.entry(call.id)))
    link = tree.append(entry.subsession("s2", "c1"))
    judge = tree.append(entry.judged_by("j", target=call.id))
    assert [callee.link.id for callee in tree.callees()] == [link.id]
    assert [held.id for held in tree.judges()] == [judge.id]
    held: dict[str, Header] = {}
    tree.verify_links(lambda session_id: held.get(session_id))


def test_folds_carry_the_settings_in_force() -> None:
    tree = session()
    tree.append(entry.config(model="m", extra={"temperature": 1}))
    ids = [tree.append(entry.user(str(number))).id for number in range(4)]
    summary = {"type": "message", "role": "system", "content": "so far"}
    by_entry = tree.compact(ids[2], summary)
    assert by_entry.body == {
        "first_kept": ids[2],
        "summary": summary,
        "config": {"model": "m", "extra": {"temperature": 1}},
    }
    assert tree.compact_from(2, summary).body == tree.compact_keeping(2, summary).body == by_entry.body
    for index in (-1, 4):
        with pytest.raises(BadInput):
            tree.compact_from(index, summary)
    with pytest.raises(BadInput):
        tree.compact_keeping(0, summary)
    tree.append(by_entry)
    assert tree.context().items[0] == summary
    with pytest.raises(BadInput):
        tree.compact_from(0, summary)
    tree.branch(ids[0])
    with pytest.raises(FirstKept):
        tree.compact(ids[1], summary)
    assert tree.summarize_branch(ids[3], summary).body == {"from": ids[3], "summary": summary}
    assert tree.unresolved_of() == []
    assert tree.context_hash("") != tree.context_hash()
