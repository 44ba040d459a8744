"""What an append decides: refusals in their order, outcomes, unresolved references, batches (store.md A1, A3)."""

from __future__ import annotations

from typing import Any

import pytest

from agentsession_cas import entry
from agentsession_cas.core.accept import (
    NOWHERE,
    Elsewhere,
    Outcome,
    Prepared,
    prepare,
    prepare_batch,
    raised_for_append,
)
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.header import FORMAT, Header, new_header
from agentsession_cas.core.memory import MemorySource
from agentsession_cas.errors import (
    AgentSessionError,
    BadConvergence,
    BadEntry,
    BadID,
    BadJSON,
    BadNormalisation,
    BaseRule,
    CallIDEmpty,
    CallIDRepeated,
    LimitExceeded,
    NoEntry,
    NoRaise,
    ReservedMember,
    SyntheticLabel,
)

TS = "2026-01-01T00:00:00Z"
LATER = "2026-01-02T00:00:00Z"
ABSENT = "sha256:" + "ab" * 32
OTHER = "sha256:" + "cd" * 32

Json = dict[str, Any]


class Chain:
    """A few info entries under one another; with ``base``, the first so many are the prefix of a fork."""

    def __init__(self, count: int = 3, *, base: int = 0) -> None:
        self.source = MemorySource(base_count=base)
        self.ids: list[str] = []
        for number in range(count):
            parent = self.ids[-1] if self.ids else ""
            held = Entry.seal("info", {"name": f"n{number}"}, parent, TS)
            self.source.add(held, number - 1)
            self.ids.append(held.id)
        self.header = new_header(id="s1", created_at=TS, base=self.ids[base - 1] if base else "")
        self.head = self.ids[-1] if self.ids else ""

    def prepare(self, draft: Any, *, elsewhere: Elsewhere = NOWHERE) -> Prepared:
        return prepare(self.source, self.header, self.head, Draft.of(draft), now=lambda: LATER, elsewhere=elsewhere)

    def add(self, draft: Any) -> Entry:
        prepared = self.prepare(draft)
        assert not prepared.held
        self.source.add(prepared.entry, prepared.parent_position)
        self.head = prepared.head_after
        return prepared.entry


# --- outcomes --------------------------------------------------------------------------------------------------------


def test_an_entry_without_a_parent_continues_from_the_head() -> None:
    chain = Chain()
    prepared = chain.prepare({"type": "info", "name": "x"})
    assert (prepared.entry.parent, prepared.parent_position) == (chain.head, 2)
    assert (prepared.outcome, prepared.head_after) == (Outcome.CONTINUED, prepared.entry.id)
    assert (prepared.entry.ts, prepared.unresolved, prepared.held) == (LATER, [], False)
    assert prepared.entry == Entry.seal("info", {"name": "x"}, chain.head, LATER)


def test_an_entry_elsewhere_is_a_branch_and_the_head_stays() -> None:
    chain = Chain()
    prepared = chain.prepare({"type": "info", "name": "x", "parent": chain.ids[0]})
    assert (prepared.parent_position, prepared.outcome, prepared.head_after) == (0, Outcome.BRANCHED, chain.head)


def test_a_null_parent_is_the_head_without_an_id_and_the_root_with_one() -> None:
    chain = Chain()
    assert chain.prepare({"type": "info", "name": "x", "parent": None}).entry.parent == chain.head
    rooted = Entry.seal("info", {"name": "x"}, "", TS)
    prepared = chain.prepare(rooted.members())
    assert (prepared.entry.parent, prepared.outcome, prepared.head_after) == ("", Outcome.BRANCHED, chain.head)
    chain.head = ""
    prepared = chain.prepare(rooted.members())
    assert (prepared.outcome, prepared.head_after) == (Outcome.CONTINUED, rooted.id)


def test_a_held_entry_moves_nothing_and_no_record_rule_is_asked() -> None:
    chain = Chain()
    call = chain.add(entry.function_call("c1", "f", "{}"))
    again = chain.prepare(call)
    assert (again.outcome, again.held, again.head_after, again.unresolved) == (Outcome.HELD, True, chain.head, [])
    assert chain.prepare(chain.source.entry(0)).head_after == chain.head


def test_a_leaf_label_moves_the_head_to_its_target_wherever_it_hangs() -> None:
    chain = Chain()
    for parent in (chain.ids[0], chain.head):
        prepared = chain.prepare(entry.leaf_label(chain.ids[1]).at(parent=parent))
        assert (prepared.outcome, prepared.head_after) == (Outcome.LEAF_MOVED, chain.ids[1])
    prepared = chain.prepare(entry.leaf_label(""))
    assert (prepared.outcome, prepared.head_after) == (Outcome.LEAF_MOVED, "")


def test_a_leaf_label_on_what_no_head_may_rest_on_moves_nothing() -> None:
    chain = Chain()
    mark = chain.add(entry.leaf_label(chain.ids[1]))
    head = chain.head
    for target, unresolved in ((ABSENT, [ABSENT]), (mark.id, [])):
        prepared = chain.prepare(entry.leaf_label(target))
        assert (prepared.outcome, prepared.head_after) == (Outcome.LEAF_NOT_MOVED, head)
        assert prepared.unresolved == unresolved
    fork = Chain(4, base=3)
    for target in (fork.ids[0], ""):
        assert fork.prepare(entry.leaf_label(target)).outcome is Outcome.LEAF_NOT_MOVED
    assert fork.prepare(entry.leaf_label(fork.ids[2])).head_after == fork.ids[2]


def test_other_labels_are_entries_like_any() -> None:
    chain = Chain()
    assert chain.prepare(entry.label(chain.ids[0], "good")).outcome is Outcome.CONTINUED
    assert chain.prepare(entry.clear_label("")).outcome is Outcome.CONTINUED


# --- the order of refusals -------------------------------------------------------------------------------------------


def broken() -> list[tuple[type[AgentSessionError], str, Json]]:
    """One entry per refusal, in their order, each with the members that break it and nothing before it."""
    reserved = {"content": 1}
    parent = {"parent": ABSENT}
    parents = {"parents": [{"entry": ABSENT}]}
    number = {"x": float("nan")}
    spelling = {"ts": "2026-01-01 00:00:00Z"}
    call = {"item": {"type": "function_call", "call_id": "", "name": "f", "arguments": ""}}
    label = {"type": "label", "target": ABSENT, "label": "leaf", "synthetic": True}
    item = {"type": "item", "item": {"type": "item_reference", "id": "x"}}
    return [
        (BadEntry, "/item", {"type": "item", **reserved, **parent, **parents, **number, **spelling}),
        (BadEntry, "/type", {"type": "step", **reserved, **parent, **parents, **number, **spelling}),
        (ReservedMember, "/content", {**label, **reserved, **parent, **parents, **number, **spelling}),
        (SyntheticLabel, "/synthetic", {**label, **parent, **parents, **number, **spelling}),
        (BadEntry, "/item", {**item, **parent, **parents, **number, **spelling}),
        (BadID, "/id", {"type": "item", **call, "id": "abc", **parent, **parents, **number, **spelling}),
        (NoEntry, ABSENT, {"type": "item", **call, **parent, **parents, **number, **spelling}),
        (BadConvergence, ABSENT, {"type": "item", **call, **parents, **number, **spelling}),
        (BadJSON, "/x", {"type": "item", **call, **number, **spelling}),
        (BadID, "/ts", {"type": "item", **call, **spelling}),
        (BadID, ABSENT, {"type": "item", **call, "ts": TS, "id": ABSENT}),
        (CallIDEmpty, "/item/call_id", {"type": "item", **call}),
    ]


@pytest.mark.parametrize(("error", "where", "members"), broken())
def test_the_first_refusal_wins(error: type[AgentSessionError], where: str, members: Json) -> None:
    chain = Chain()
    with pytest.raises(error) as caught:
        chain.prepare(members)
    # An id is tested with a null parent as the root's child; every other breaks exactly what it says.
    assert (type(caught.value), caught.value.where) == (error, where)


@pytest.mark.parametrize("type_", ["step", "Item", "", "ns:", ":x"])
def test_a_type_of_no_namespace_is_refused(type_: str) -> None:
    with pytest.raises(BadEntry):
        Chain().prepare({"type": type_, "item": {"type": "x:y"}})


@pytest.mark.parametrize(
    "members",
    [
        {"type": "label", "target": ABSENT},
        {"type": "label", "label": "x"},
        {"type": "label", "target": ABSENT, "label": ""},
        {"type": "label", "target": None, "label": "x"},
        {"type": "label", "target": "", "label": "leaf"},
        {"type": "decision", "call_id": "c", "target": ABSENT, "verdict": "reject"},
        {"type": "run", "run_id": "r", "phase": "end", "reason": "done"},
        {"type": "run", "run_id": "r", "phase": "end", "reason": "done", "pending": [1]},
        {"type": "outcome", "kind": "vibe"},
        {"type": "outcome"},
        {"type": "link", "rel": "cousin", "session": "s"},
        {"type": "link", "rel": "fork_of"},
        {"type": "link", "rel": "fork_of", "session": "", "url": "u"},
        {"type": "link", "rel": "subsession", "session": ""},
        {"type": "custom"},
        {"type": "custom", "ns": ""},
        {"type": "queued", "item": {"type": "item_reference", "id": "x"}, "mode": "steer"},
        {"type": "item", "item": {"type": None, "id": "x"}},
        {"type": "item", "item": {"id": "x"}},
        {"type": "compaction", "first_kept": ABSENT, "summary": {"type": "x:y"}, "pinned": [{"id": "x"}]},
        {"type": "config", "instructions_parts": [{"id": "a"}, {"id": "a"}]},
        {"type": "config", "instructions_parts": [{"text": "a"}]},
        {"type": "config", "instructions_parts": ["a"]},
        {"type": "config", "instructions_parts": [{"keep": 0}]},
        {"type": "config", "instructions_parts": [{"keep": True}]},
        {"type": "config", "instructions_parts": [{"keep": 1, "text": "x"}]},
        {"type": "config", "instructions_parts": [{"keep": 1, "id": "a"}]},
        {"type": "config", "instructions_parts": [{"id": "a", "hash": "abc"}]},
        {"type": "config", "instructions_parts": [{"keep": 1}], "replace": True},
        {"type": "config", "instructions_parts": [{"id": "a", "hash": ABSENT}], "replace": True},
        {"type": "config", "instructions_parts": [{"id": "a", "text": "x"}, {"id": "b"}], "instructions": "x"},
        {"type": "config", "instructions_omitted": [{"keep": 1}], "replace": True},
        {"type": "config", "instructions_omitted": [{"keep": 1}, {"id": "a"}, {"id": "a"}]},
        {"type": "config", "instructions_omitted": [{"id": "a", "of": ABSENT}]},
        {"type": "config", "instructions_omitted": [{"keep": 1, "of": "c1"}]},
        {"type": "config", "omit": {"items": [ABSENT, ""]}},
        {"type": "config", "omit": {"outputs": {"text": "x", "items": [""]}}},
    ],
    ids=str,
)
def test_what_no_writer_may_write_is_refused(members: Json) -> None:
    with pytest.raises(BadEntry):
        Chain().prepare(members)


@pytest.mark.parametrize(
    "members",
    [
        {"type": "label", "target": None, "label": None},
        {"type": "label", "target": ABSENT, "label": "x", "synthetic": "yes"},
        {"type": "link", "rel": "subsession", "session": "", "url": "u"},
        {"type": "config", "instructions_parts": [{"id": "a", "text": "x"}, {"id": "b"}], "instructions": "x\n\n"},
        {"type": "config", "instructions_parts": [{"id": "a", "hash": ABSENT}], "replace": True, "instructions": "x"},
        {"type": "config", "instructions_parts": [{"keep": 3}], "instructions": "anything"},
        {"type": "config", "instructions_parts": []},
        {"type": "config", "instructions_omitted": [{"id": "a"}, {"id": "a"}, {"id": "b", "reason": "r", "size": 1}]},
        {"type": "config", "instructions_omitted": [{"keep": 1, "of": ABSENT}]},
        {"type": "config", "instructions_parts": 5, "omit": 5, "tools_added": 5},
        {"type": "response"},
        {"type": "info"},
        {"type": "env", "workspace": 5},
        {"type": "acme:step", "item": 5},
        {"type": "item", "item": {"role": "user", "content": "hi"}},
    ],
    ids=str,
)
def test_what_a_writer_may_write_is_accepted(members: Json) -> None:
    assert Chain().prepare(members).outcome is Outcome.CONTINUED


# --- the base rule ---------------------------------------------------------------------------------------------------


def test_an_own_entry_hangs_from_the_base_or_an_own_entry() -> None:
    fork = Chain(5, base=3)
    assert fork.prepare({"type": "info"}).entry.parent == fork.head
    assert fork.prepare({"type": "info", "parent": fork.ids[2]}).outcome is Outcome.BRANCHED
    with pytest.raises(BaseRule):
        fork.prepare({"type": "info", "parent": fork.ids[1]})
    with pytest.raises(BaseRule):
        fork.prepare(Entry.seal("info", {"name": "root"}, "", TS))


# --- convergence -----------------------------------------------------------------------------------------------------


def test_references_are_sorted_and_their_members_kept() -> None:
    chain = Chain()
    parents: list[Json] = [
        {"session": "t", "entry": OTHER, "note": 1},
        {"session": "s1", "entry": chain.ids[1]},
        {"entry": chain.ids[0]},
        {"session": "\U0001f600", "entry": ABSENT},
    ]
    prepared = chain.prepare({"type": "info", "parents": parents})
    assert prepared.entry.parents == [parents[2], parents[1], parents[0], parents[3]]
    assert prepared.unresolved == [f"t@{OTHER}", f"\U0001f600@{ABSENT}"]
    given = Entry.seal("info", {}, chain.head, TS, parents)
    assert chain.prepare(given).entry.parents == parents


@pytest.mark.parametrize("parents", [None, [], ()])
def test_no_parents_at_all_are_not_written(parents: object) -> None:
    assert b"parents" not in Chain().prepare({"type": "info", "parents": parents}).entry.line


HEAD, FIRST = Chain().head, Chain().ids[0]


@pytest.mark.parametrize(
    "references",
    [
        [{"entry": HEAD}],
        [{"session": "t", "entry": HEAD}],
        [{"entry": FIRST}, {"session": "t", "entry": FIRST}],
        [{"entry": OTHER}],
        [{"session": "s1", "entry": OTHER}],
        [{"session": "", "entry": OTHER}],
        [{"session": 5, "entry": OTHER}],
        [{"session": "t", "entry": "e1"}],
        [{"session": "t"}],
        ["x"],
    ],
    ids=str,
)
def test_references_that_break_a_rule_are_refused(references: list[Any]) -> None:
    with pytest.raises(BadConvergence):
        Chain().prepare({"type": "info", "parents": references})


# --- values ----------------------------------------------------------------------------------------------------------


def test_values_no_line_may_hold_are_normalised_with_a_record() -> None:
    body = {"name": "a\ud800", "n": 2**53 + 1, "normalised": [{"at": "/zz", "was": "1"}]}
    prepared = Chain().prepare({"type": "info", **body})
    assert prepared.entry.body == {
        "name": "a\ufffd",
        "n": 2**53,
        "normalised": [
            {"at": "/n", "was": "9007199254740993"},
            {"at": "/name", "was": '"a\\ud800"'},
            {"at": "/zz", "was": "1"},
        ],
    }
    assert prepared.body == prepared.entry.body
    assert "name" in body
    assert body["n"] == 2**53 + 1


def test_bytes_of_a_provider_never_make_an_append_fail() -> None:
    line = b'{"type":"item","item":{"type":"function_call_output","call_id":"c","output":"\xff\\ud800 1"}}'
    prepared = Chain().prepare(line)
    assert prepared.entry.body["item"]["output"] == "\ufffd\ufffd 1"
    assert [change["at"] for change in prepared.entry.body["normalised"]] == ["/item/output"]


def test_a_line_that_comes_with_its_id_is_not_normalised() -> None:
    chain = Chain()
    given = Entry.seal("info", {"normalised": [{"at": "/b", "was": "1"}, {"at": "/a", "was": "1"}]}, chain.head, TS)
    assert chain.prepare(given).entry.body == given.body
    with pytest.raises(BadID):
        chain.prepare({**given.members(), "name": "\ud800"})


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"x": float("inf")}, BadJSON),
        ({"\ud800": 1}, BadJSON),
        ({"x": (1, 2)}, BadJSON),
        ({"x": {1: 2}}, BadJSON),
        ({"normalised": "x"}, BadNormalisation),
        ({"normalised": [{"at": "/x"}]}, BadNormalisation),
        ({"normalised": [{"at": "/x", "was": "1", "raw": "MQ=="}]}, BadNormalisation),
    ],
)
def test_what_has_no_normal_form_is_refused(body: Json, error: type[AgentSessionError]) -> None:
    with pytest.raises(error):
        Chain().prepare({"type": "info", **body})


def test_nesting_past_the_limit_is_refused() -> None:
    deep: Any = 0
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(LimitExceeded):
        Chain().prepare({"type": "info", "deep": deep})


@pytest.mark.parametrize(
    "ts", ["2026-01-01T00:00:00.0Z", "2026-01-01T00:00:60Z", "2026-01-01T00:00:00.1234567891Z", "\ud800", "now", ""]
)
def test_append_respells_no_time(ts: str) -> None:
    with pytest.raises(BadID):
        Chain().prepare({"type": "info", "ts": ts})


# --- unresolved references -------------------------------------------------------------------------------------------


class Held:
    """A store that holds one blob and one entry of another session."""

    def has_blob(self, blob: str) -> bool:
        return blob == OTHER

    def has_entry(self, session: str, entry_id: str) -> bool:
        return (session, entry_id) == ("t", OTHER)


MESSAGE = {"type": "message", "role": "user", "content": []}


@pytest.mark.parametrize(
    ("draft", "missing"),
    [
        (entry.item(MESSAGE, queued_from=ABSENT, from_link=OTHER), [ABSENT]),
        (entry.compaction(ABSENT, MESSAGE, config={}), [ABSENT]),
        (entry.branch_summary(ABSENT, MESSAGE), [ABSENT]),
        (entry.label(ABSENT, "x"), [ABSENT]),
        (entry.clear_label(""), []),
        (entry.outcome("task", ABSENT), [ABSENT]),
        (entry.judged_by("j", target=ABSENT), [ABSENT]),
        (entry.fork_of("s"), []),
        (Draft("link", {"rel": "fork_of", "session": "s", "target": ABSENT}), []),
        (entry.user([{"type": "input_image", "image_url": f"sidecar:{ABSENT}"}]), [ABSENT]),
        (entry.user([{"type": "input_image", "image_url": f"sidecar:{OTHER}"}]), []),
        (entry.user(f"sidecar:{ABSENT} is a url"), []),
        (
            entry.info().at(parents=[{"session": "t", "entry": OTHER}, {"session": "u", "entry": ABSENT}]),
            [f"u@{ABSENT}"],
        ),
    ],
)
def test_what_cannot_be_resolved_is_listed_and_not_refused(draft: Draft, missing: list[str]) -> None:
    assert Chain().prepare(draft, elsewhere=Held()).unresolved == missing


def test_what_the_session_holds_is_resolved() -> None:
    chain = Chain()
    assert chain.prepare(entry.label(chain.ids[0], "x")).unresolved == []
    assert chain.prepare(entry.compaction(chain.ids[0], MESSAGE, config={})).unresolved == []


# --- batches ---------------------------------------------------------------------------------------------------------


def test_a_batch_sees_its_own_entries() -> None:
    chain = Chain()
    call = entry.function_call("c1", "f", "{}")
    sealed = Entry.seal("item", call.body, chain.head, LATER)
    drafts = [call, entry.dispatch("c1", sealed.id), entry.function_call_output("c1", "x"), entry.leaf_label(sealed.id)]
    batch = prepare_batch(chain.source, chain.header, chain.head, drafts, now=lambda: LATER)
    assert [each.outcome for each in batch] == [Outcome.CONTINUED] * 3 + [Outcome.LEAF_MOVED]
    assert [each.parent_position for each in batch] == [2, 3, 4, 5]
    assert (batch[0].entry, batch[-1].head_after) == (sealed, sealed.id)
    assert len(chain.source) == 3


def test_a_batch_is_refused_by_a_rule_between_its_entries() -> None:
    chain = Chain()
    call = entry.function_call("c1", "f", "{}")
    other = entry.function_call("c1", "g", "{}")
    with pytest.raises(CallIDRepeated):
        prepare_batch(chain.source, chain.header, chain.head, [call, other], now=lambda: LATER)


def test_an_entry_twice_in_a_batch_is_held_the_second_time() -> None:
    chain = Chain()
    given = Entry.seal("info", {}, chain.head, TS)
    batch = prepare_batch(chain.source, chain.header, chain.head, [Draft.of(given)] * 2, now=lambda: LATER)
    assert [each.outcome for each in batch] == [Outcome.CONTINUED, Outcome.HELD]
    assert batch[1].head_after == given.id


# --- raising the format ----------------------------------------------------------------------------------------------


def old_header(minor: int, **members: Any) -> Header:
    return Header.parse({**new_header(id="s", created_at=TS).members(), "format": f"agentsession/0.{minor}", **members})


def test_an_append_raises_the_format() -> None:
    assert raised_for_append(MemorySource(), old_header(9)).format == FORMAT


@pytest.mark.parametrize("value", [[1], [], "x", None])
def test_a_session_from_before_0_13_that_holds_redacted_is_not_raised(value: object) -> None:
    source = MemorySource()
    source.add(Entry.seal("info", {"redacted": value}, "", TS), -1)
    with pytest.raises(NoRaise):
        raised_for_append(source, old_header(12))
    assert raised_for_append(source, old_header(13)).format == FORMAT
    with pytest.raises(NoRaise):
        raised_for_append(MemorySource(), old_header(12, redacted_from={"session": "o"}))
