"""Successors, children and origins: what they agree on with the session they are about, and what is refused."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import ALL_RECORDS, Harness, SessionWriter, Store, entry
from agentsession_cas.core.header import new_header
from agentsession_cas.core.settings import EMPTY, Settings, apply
from agentsession_cas.errors import (
    AgentSessionError,
    BadEntry,
    BadInput,
    LinkMismatch,
    MirrorError,
    NoEntry,
    NoSession,
    OriginChain,
    SessionExists,
    SessionLocked,
    Superseded,
)
from agentsession_cas.exchange.continuation import ORIGINS_MAX, config_of
from agentsession_cas.testing.simfs import Sim
from tests.helpers.legal import grown, ticking_store

Json = dict[str, Any]

PARENT = "01995b2a-0000-7000-8000-000000000001"
SUMMARY = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "So far: …"}]}
NOWHERE = "sha256:" + "0" * 64


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.memory() as store:
        yield store


def conversation(store: Store, **header: Any) -> SessionWriter:
    """A session with every setting there is, a name, and a message."""
    session = store.create(**header)
    parts = [{"id": "a", "text": "A", "source": "file"}, {"id": "b", "text": "B"}]
    request = {
        "model": "m-1",
        "instructions": "A\n\nB",
        "tools": [{"type": "function", "name": "t"}],
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "low"},
        "temperature": 0.5,
    }
    session.append(entry.config_from_request(request, parts=parts))
    message = session.append(entry.user("hi")).id
    session.append(entry.config(instructions_omitted=[{"id": "c", "reason": "budget"}], omit={"items": [message]}))
    session.append(entry.info("first name"))
    session.append(entry.info("the name"))
    return session


# --- successors ------------------------------------------------------------------------------------------------------


def test_a_successor_begins_where_the_session_was(store: Store) -> None:
    header = {"cwd": "/src", "harness": Harness("h", "1"), "records": ALL_RECORDS, "media": "sidecar"}
    with conversation(store, **header, extra={"acme:x": 1}) as old, store.continue_session(old, SUMMARY) as new:
        assert [each.type for each in new] == ["config", "item", "info"]
        assert new.settings() == old.settings()
        assert new.context().items == [SUMMARY]
        assert new.name == "the name"
        made = new.header
        assert (made.parent_session, made.cwd, made.harness, made.records, made.media) == (old.id, *header.values())
        assert (made.spawned_by, made.base) == ("", "")
        assert "acme:x" not in made.members()
        assert old.superseded_by == new.id
        assert [each.type for each in old][-1] == "link"
        request = new.context().request()
        response = new.record_response(request, {"id": "r", "output": []})[-1].id
        new.verify(response)
    assert store.fsck().ok


def test_a_power_cut_leaves_no_link_to_a_successor_that_is_not_there() -> None:
    """Cut before every effect: whatever the disk kept, a link names a successor that has all it begins with."""
    sim = Sim()
    store = Store.open("/store", create=True, host=sim.host, background=False)
    old = conversation(store)
    old.commit()
    seen = set()

    def look(budget: int) -> None:
        for image in sim.images(budget):
            with Store.open("/store", host=image.host, background=False) as left:
                named = left.read(old.id).superseded_by
                others = [each for each in left.session_ids() if each != old.id]
                seen.add((bool(named), len(others)))
                assert others == [named] if named else len(others) < 2
                assert not named or [each.type for each in left.read(named)] == ["config", "item", "info"]
                assert left.fsck().ok

    sim.watch(lambda *_: look(6))
    new = store.continue_session(old, SUMMARY)
    sim.watch(None)
    assert seen == {(False, 0), (False, 1), (True, 1)}
    seen.clear()
    look(40)
    assert seen == {(True, 1)}
    assert old.superseded_by == new.id


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_fails_leaves_no_link_to_a_successor_that_is_not_there(code: int) -> None:
    """The n-th operation fails, for every n until none does: the link and what it names are there, or neither."""
    for at in count(1):
        sim = Sim()
        store = Store.open("/store", create=True, host=sim.host, background=False)
        old = conversation(store)
        old.commit()
        fault = sim.fail(at, code)
        try:
            store.continue_session(old, SUMMARY)
        except AgentSessionError:
            pass
        if not fault.hits:
            return
        with Store.open("/store", host=sim.clone().host, background=False) as left:
            named = left.read(old.id).superseded_by
            assert not named or [each.type for each in left.read(named)] == ["config", "item", "info"], at
    raise AssertionError("unreachable")


def test_a_listing_of_current_sessions_has_the_successor(store: Store) -> None:
    with conversation(store) as old:
        pass
    with store.continue_session(old.id) as new:
        pass
    assert [each.id for each in store.list(current=True)] == [new.id]
    assert {each.id: each.superseded_by for each in store.list()} == {new.id: "", old.id: new.id}
    assert [each.id for each in store.list(parent=old.id)] == [new.id]


def test_what_a_session_lacks_its_successor_lacks(store: Store) -> None:
    with store.create() as old, store.continue_session(old) as new:
        assert [each.type for each in new] == ["config"]
        assert new.settings() == EMPTY


def test_the_head_says_which_settings(store: Store) -> None:
    with conversation(store) as old:
        first = old.path(old.leaf)[0].id
        old.set_head(old.leaf, first)
        with store.continue_session(old) as new:
            assert new.settings() == old.settings(first)


def test_a_header_may_say_otherwise(store: Store) -> None:
    with conversation(store, cwd="/src") as old, store.continue_session(old, id="next", cwd="/other") as new:
        assert (new.id, new.header.cwd, new.header.parent_session) == ("next", "/other", old.id)


def test_a_session_continues_once(store: Store) -> None:
    with conversation(store) as old:
        store.continue_session(old).close()
        before = sorted(store.session_ids()), len(old)
        with pytest.raises(Superseded, match=old.superseded_by):
            store.continue_session(old)
        assert (sorted(store.session_ids()), len(old)) == before
        with store.continue_session(old.superseded_by) as third:
            assert third.header.parent_session == old.superseded_by


def test_a_refused_link_takes_the_successor_with_it(store: Store) -> None:
    with conversation(store) as old:
        pass
    with ticking_store() as other:
        lines = b"\n".join([old.header.line, *(each.line for each in store.read(old.id))])
        other.import_file(lines)
        with pytest.raises(MirrorError):
            other.continue_session(old.id)
        assert other.session_ids() == [old.id]
        assert other.read(old.id).superseded_by == ""
        assert other.fsck().ok


def test_nothing_is_made_of_a_summary_that_is_no_item(store: Store) -> None:
    with conversation(store) as old:
        with pytest.raises(BadEntry):
            store.continue_session(old, {"type": "item_reference", "id": "x"})
        with pytest.raises(SessionExists):
            store.continue_session(old, id=old.id)
        assert store.session_ids() == [old.id]
        assert old.superseded_by == ""


def test_a_session_that_another_writes_is_not_continued(store: Store) -> None:
    with conversation(store) as old:
        with pytest.raises(SessionLocked):
            store.continue_session(old.id)
        with pytest.raises(NoSession):
            store.continue_session("absent")
        assert store.session_ids() == [old.id]
        assert not old.superseded_by
        assert old.append(entry.user("still here")).outcome == "continued"


def test_a_fork_continues_like_any_other(store: Store) -> None:
    with conversation(store) as origin, store.fork(origin.id, origin.leaf) as fork:
        with store.continue_session(fork) as new:
            assert (new.header.parent_session, new.header.base) == (fork.id, "")
            assert new.settings() == origin.settings()
        assert not origin.superseded_by


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=10, max_size=50))
def test_any_session_and_its_successor_send_the_same_settings(seeds: list[int]) -> None:
    with ticking_store() as store, grown(store, seeds).session as old, store.continue_session(old, SUMMARY) as new:
        assert new.settings() == old.settings()
        assert new.context().request() == {**old.context().request(), "input": [SUMMARY]}


@pytest.mark.parametrize(
    ("deltas", "body"),
    [
        ([], {}),
        ([{"instructions": "I"}], {"instructions": "I"}),
        ([{"instructions_parts": [{"id": "b", "hash": NOWHERE}], "instructions": "sent"}], {"instructions": "sent"}),
        ([{"instructions_parts": [{"id": "a", "text": "A"}, {"id": "b", "hash": NOWHERE}]}], {"instructions": "A\n\n"}),
        ([{"instructions_parts": [{"id": "a"}, {"id": "a", "text": "A"}]}], {"instructions": "\n\nA"}),
        ([{"instructions_parts": [{"id": "a"}]}], {"instructions_parts": [{"id": "a", "text": ""}]}),
        (
            [{"instructions_omitted": [{"keep": 3}, {"id": "b", "reason": "r"}, {"keep": 1, "of": NOWHERE}, {}]}],
            {"instructions_omitted": [{"id": "b", "reason": "r"}]},
        ),
        ([{"instructions_omitted": [{"keep": 3}]}], {}),
    ],
)
def test_a_full_config_of_settings_a_path_could_not_resolve(deltas: list[Json], body: Json) -> None:
    state: Settings = EMPTY
    for number, delta in enumerate(deltas):
        state = apply(state, str(number), delta)
    assert config_of(state) == {"replace": True, **body}
    with Store.memory() as store, store.create() as session:
        session.append({"type": "config", **config_of(state)})
        instructions = {"instructions": state.instructions} if state.instructions else {}
        assert session.context().request() == {**instructions, "store": False}


# --- children --------------------------------------------------------------------------------------------------------


def test_a_subsession_has_the_id_and_the_header_its_link_wants(store: Store) -> None:
    with store.create(id=PARENT, cwd="/src", harness=Harness("h"), records=ALL_RECORDS) as parent:
        call = parent.append(entry.function_call("call_1", "task", "{}")).id
        with store.subsession(parent.id, "call_1") as child:
            assert child.id == "91d0242a-bd8b-551a-a26c-d3b0d4889b4f"
            made = child.header
            assert (made.parent_session, made.spawned_by, made.cwd) == (PARENT, "call_1", "/src")
            assert (made.harness, made.records) == (Harness("h"), ALL_RECORDS)
            child.append(entry.user("do it"))
        parent.append(entry.subsession(child.id, "call_1"))
        parent.append(entry.dispatch("call_1", call))
        with store.subsession(parent.id, "call_1", retry=1) as again:
            assert again.id == "156c0f2e-8ea1-508b-a4e2-f64732571306"
        parent.append(entry.subsession(again.id, "call_1"))
    store.verify_links(PARENT)
    with store.subsession(PARENT, "call_1") as child:
        assert len(child) == 1
        with pytest.raises(SessionLocked):
            store.subsession(PARENT, "call_1")
    assert [each.id for each in store.list(top_level=True)] == [PARENT]


def test_a_subsession_of_a_parent_held_elsewhere(store: Store) -> None:
    with store.subsession(PARENT, "call_1", cwd="/x") as child:
        assert (child.header.parent_session, child.header.cwd) == (PARENT, "/x")


@pytest.mark.parametrize(("call_id", "retry"), [("", 0), ("c", -1)])
def test_a_subsession_has_a_call(store: Store, call_id: str, retry: int) -> None:
    with pytest.raises(BadInput):
        store.subsession(PARENT, call_id, retry=retry)
    assert store.session_ids() == []


def test_links_are_held_against_the_headers_in_the_store(store: Store) -> None:
    with store.create(id=PARENT) as parent:
        parent.append(entry.function_call("call_1", "task", "{}"))
        parent.append(entry.subsession("never-started", "call_1"))
        parent.append(entry.remote_subsession("call_1", url="https://x.test", session="other"))
        parent.append(entry.peer("call_1", session="other"))
        store.create(id="other").close()
        store.verify_links(PARENT)
        wrong = parent.append(entry.subsession("other", "call_1")).id
        with pytest.raises(LinkMismatch, match="parent_session") as caught:
            store.verify_links(PARENT)
        assert caught.value.where == wrong
    with pytest.raises(NoSession):
        store.verify_links("absent")
    with store.fork(PARENT, wrong) as fork:
        store.verify_links(fork.id)


# --- origins ---------------------------------------------------------------------------------------------------------


def called(store: Store, **header: Any) -> tuple[SessionWriter, str]:
    """A session with one call, and the call's entry."""
    session = store.create(records=ALL_RECORDS, **header)
    return session, session.append(entry.function_call("call_1", "task", "{}")).id


def test_the_sessions_own_dispatches_come_first(store: Store) -> None:
    origin, call = called(store)
    with origin, store.fork(origin.id, call) as fork:
        origin.append(entry.dispatch("call_1", call))
        own = fork.append(entry.dispatch("call_1", call, idempotency_key="k")).id
        found = store.origin_dispatches(fork, call)
        assert found is not None
        assert (found.session, [each.id for each in found.dispatches]) == (fork.id, [own])


def test_a_prefix_call_may_have_been_dispatched_in_any_session_above(store: Store) -> None:
    origin, call = called(store)
    with origin, store.fork(origin.id, call) as middle, store.fork(middle.id, call) as fork:
        assert store.origin_dispatches(fork, call) is None
        first = origin.append(entry.dispatch("call_1", call, idempotency_key="k")).id
        origin.append(entry.withdrawal("call_1", call, reason="no"))
        found = store.origin_dispatches(fork, call)
        assert found is not None
        assert (found.session, [each.id for each in found.dispatches]) == (origin.id, [first])
        assert found.dispatches[0].body["idempotency_key"] == "k"
        between = middle.append(entry.dispatch("call_1", call)).id
        found = store.origin_dispatches(fork, call)
        assert found is not None
        assert (found.session, [each.id for each in found.dispatches]) == (middle.id, [between])
        assert [each.state(fork.header) for each in fork.calls()] == ["unknown"]


def test_the_search_ends_where_the_call_was_made_or_nothing_is_held(store: Store) -> None:
    origin, call = called(store)
    with store.create(id="else") as other:
        other.append(entry.user("hi"))
    with origin, store.fork(origin.id, call) as fork, store.create(base=call, parent_session="else") as stray:
        origin.append(entry.dispatch("call_1", call))
        own = fork.append(entry.function_call("call_2", "task", "{}")).id
        assert store.origin_dispatches(fork, own) is None
        assert store.origin_dispatches(stray, call) is None
        with pytest.raises(NoEntry):
            store.origin_dispatches(fork, NOWHERE)
        assert store.origin_dispatches(fork, call) is not None
        origin.close()
        store.delete(origin.id)
        assert store.origin_dispatches(store.read(fork.id), call) is None


def test_a_chain_that_comes_back_to_itself_is_told(store: Store) -> None:
    origin, call = called(store)
    origin.close()
    store.create(new_header(id="one", created_at="2026-01-01T00:00:00Z", base=call, parent_session="two")).close()
    store.create(new_header(id="two", created_at="2026-01-01T00:00:00Z", base=call, parent_session="one")).close()
    with pytest.raises(OriginChain, match="comes back to itself"):
        store.origin_dispatches(store.read("one"), call)


def test_a_chain_is_followed_only_so_far(store: Store) -> None:
    origin, call = called(store, id="fork-0")
    for number in range(1, ORIGINS_MAX + 2):
        store.fork(f"fork-{number - 1}", call, id=f"fork-{number}").close()
    origin.append(entry.dispatch("call_1", call))
    origin.close()
    found = store.origin_dispatches(store.read(f"fork-{ORIGINS_MAX}"), call)
    assert found is not None
    assert found.session == "fork-0"
    with pytest.raises(OriginChain, match="64"):
        store.origin_dispatches(store.read(f"fork-{ORIGINS_MAX + 1}"), call)
