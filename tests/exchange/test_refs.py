"""Refs as store.md A6 has them, a sentence a test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from agentsession_cas import RefTarget, SessionWriter, Store, entry
from agentsession_cas.errors import (
    BadInput,
    BadJSON,
    Closed,
    ContinuationCycle,
    Damaged,
    NoEntry,
    NoRef,
    NoSession,
    ReadOnly,
    RefMoved,
    RefName,
    SessionExists,
    SessionLocked,
    StoreLocked,
    Superseded,
)
from agentsession_cas.sessions.chain import ChainSource
from agentsession_cas.sessions.reflog import SEGMENT_SIZE
from agentsession_cas.testing.simfs import Sim

ONE, TWO = RefTarget("one"), RefTarget("two")


@pytest.fixture
def store() -> Iterator[Store]:
    """Two sessions, one with an entry."""
    with Store.memory() as store:
        store.create(id="one").close()
        store.create(id="two").close()
        yield store


def grown(store: Store, session: str, *texts: str) -> list[str]:
    with store.open_session(session) as held:
        return [held.append(entry.user(text)).id for text in texts]


def moves(store: Store, name: str) -> list[tuple[RefTarget | None, RefTarget | None, str]]:
    return [(each.old, each.new, each.reason) for each in store.ref_log(name)]


# --- compare-and-swap ------------------------------------------------------------------------------------------------


def test_none_expected_creates_and_none_next_deletes(store: Store) -> None:
    assert store.update_ref("main", None, ONE)
    assert store.resolve_ref("main") == ONE
    assert store.update_ref("main", ONE, TWO)
    assert store.resolve_ref("main") == TWO
    assert store.update_ref("main", TWO, None)
    with pytest.raises(NoRef):
        store.resolve_ref("main")


@pytest.mark.parametrize("expected", [None, TWO, RefTarget("one", "sha256:" + "0" * 64), RefTarget("none")])
@pytest.mark.parametrize("to", [None, ONE, TWO, RefTarget("none"), RefTarget("two", "x")])
def test_a_moved_ref_says_what_it_holds_and_is_told_first(
    store: Store, expected: RefTarget | None, to: RefTarget | None
) -> None:
    store.update_ref("main", None, ONE)
    with pytest.raises(RefMoved) as caught:
        store.update_ref("main", expected, to)
    assert caught.value.current == ONE
    assert store.resolve_ref("main") == ONE
    assert len(moves(store, "main")) == 1


def test_no_ref_where_one_is_expected(store: Store) -> None:
    with pytest.raises(RefMoved) as caught:
        store.update_ref("main", ONE, TWO)
    assert caught.value.current is None
    assert moves(store, "main") == []


def test_what_is_not_held(store: Store) -> None:
    with pytest.raises(NoSession):
        store.update_ref("main", None, RefTarget("three"))
    with pytest.raises(NoEntry):
        store.update_ref("main", None, RefTarget("one", "sha256:" + "0" * 64))
    with pytest.raises(NoEntry):
        store.update_ref("main", None, RefTarget("one", "HEAD"))
    assert store.list_refs() == []
    assert moves(store, "main") == []


def test_own_base_and_prefix_entries_are_held(store: Store) -> None:
    first, second, third = grown(store, "one", "a", "b", "c")
    with store.fork("one", second, id="fork") as fork:
        own = fork.append(entry.user("d")).id
    for number, each in enumerate((own, second, first)):
        assert store.update_ref(f"pin-{number}", None, RefTarget("fork", each))
    with pytest.raises(NoEntry):
        store.update_ref("pin", None, RefTarget("fork", third))


def test_a_leaf_label_may_be_pinned(store: Store) -> None:
    [first] = grown(store, "one", "a")
    with store.open_session("one") as held:
        label = held.append(entry.label(first, "here")).id
    assert store.update_ref("pin", None, RefTarget("one", label))


def test_moving_what_a_writer_holds(store: Store) -> None:
    with store.open_session("one") as held:
        id_ = held.append(entry.user("a"), durable=False).id
        assert store.update_ref("main", None, RefTarget("one", id_))
    assert store.resolve_ref("main") == RefTarget("one", id_)


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a//b", "con", "a.", "../a", "x" * 201])
def test_a_bad_name_is_refused_everywhere(store: Store, name: str) -> None:
    for call in (store.resolve_ref, store.ref_log, store.session_for, store.resolve_current, store.continue_ref):
        with pytest.raises(RefName):
            call(name)
    with pytest.raises(RefName):
        store.update_ref(name, None, ONE)
    assert sorted(store.session_ids()) == ["one", "two"]


def test_names_that_clash(store: Store) -> None:
    store.update_ref("agents/Main", None, ONE)
    for name in ("agents", "agents/Main/x", "agents/main", "Agents/x", "AGENTS"):
        with pytest.raises(RefName):
            store.update_ref(name, None, ONE)
    store.update_ref("agents/other", None, ONE)
    store.update_ref("agents/Main", ONE, None)
    store.update_ref("agents/main", None, TWO)
    assert [each.name for each in store.list_refs()] == ["agents/main", "agents/other"]
    assert moves(store, "agents/Main") == [(ONE, None, ""), (None, ONE, "")]
    assert moves(store, "agents/main") == [(None, TWO, "")]


def test_a_name_becomes_a_directory_of_names_and_back(store: Store) -> None:
    for name in ("a", "a/b", "a/b/c", "a"):
        store.update_ref(name, None, ONE)
        store.update_ref(name, ONE, None)
    assert len(moves(store, "a")) == 4
    assert len(moves(store, "a/b")) == 2


def test_a_list_is_in_the_order_of_names(store: Store) -> None:
    names = ["b", "a/x", "a-b", "C", "a.b"]
    for name in names:
        store.update_ref(name, None, ONE)
    assert [each.name for each in store.list_refs()] == sorted(names)
    assert [each.name for each in store.list_refs("a")] == ["a-b", "a.b", "a/x"]
    assert [each.name for each in store.list_refs("a/")] == ["a/x"]
    assert store.list_refs("A") == []
    with pytest.raises(RefName):
        store.list_refs("a//")


# --- incarnations ----------------------------------------------------------------------------------------------------


def test_a_deleted_sessions_ref_dangles(store: Store) -> None:
    store.update_ref("main", None, ONE)
    store.delete("one")
    with pytest.raises(NoSession) as caught:
        store.resolve_ref("main")
    assert caught.value.target == ONE
    assert [tuple(each) for each in store.list_refs()] == [("main", ONE)]
    store.create(id="one").close()
    with pytest.raises(NoSession) as again:
        store.resolve_ref("main")
    assert again.value.target == ONE


def test_a_dangling_ref_can_be_moved_and_deleted(store: Store) -> None:
    for name in ("a", "b", "c", "d"):
        store.update_ref(name, None, ONE)
    store.delete("one")
    with pytest.raises(NoSession):
        store.update_ref("a", ONE, ONE)
    assert store.update_ref("b", ONE, None)
    assert store.update_ref("c", ONE, TWO)
    store.create(id="one").close()
    assert store.update_ref("d", ONE, ONE, "the new one")  # another session: that is a change
    assert store.resolve_ref("d") == ONE
    assert moves(store, "d")[0] == (ONE, ONE, "the new one")


def test_a_ref_outlives_checkpoints_and_reopens(store: Store) -> None:
    store.update_ref("main", None, ONE)
    for _ in range(3):
        with store.open_session("one") as held:
            held.append(entry.user("a"))
            held.checkpoint()
        assert store.resolve_ref("main") == ONE


# --- the log ---------------------------------------------------------------------------------------------------------


def test_the_log_has_old_new_time_and_reason_newest_first_and_outlives_the_ref(store: Store) -> None:
    [id_] = grown(store, "two", "a")
    pinned = RefTarget("two", id_)
    store.update_ref("main", None, ONE, "first")
    store.update_ref("main", ONE, pinned, "päckchen\n\t\"")
    store.update_ref("main", pinned, None)
    log = list(store.ref_log("main"))
    assert [(each.name, each.old, each.new, each.reason) for each in log] == [
        ("main", pinned, None, ""),
        ("main", ONE, pinned, "päckchen\n\t\""),
        ("main", None, ONE, "first"),
    ]
    assert [each.time for each in log] == sorted((each.time for each in log), reverse=True)
    assert list(store.ref_log("other")) == []


def test_what_changes_nothing_is_not_logged(store: Store) -> None:
    assert not store.update_ref("main", None, None)
    store.update_ref("main", None, ONE)
    assert not store.update_ref("main", ONE, ONE, "nothing")
    assert len(moves(store, "main")) == 1


def test_a_refused_update_is_not_logged(store: Store) -> None:
    store.update_ref("main", None, ONE)
    with pytest.raises(RefMoved):
        store.update_ref("main", TWO, ONE)
    with pytest.raises(NoSession):
        store.update_ref("main", ONE, RefTarget("gone"))
    assert len(moves(store, "main")) == 1


def test_a_long_log_goes_on_in_the_next_segment(store: Store) -> None:
    at: RefTarget | None = None
    reason = "because " * 40
    for number in range(3 * SEGMENT_SIZE // len(reason)):
        to = (ONE, TWO)[number % 2]
        store.update_ref("main", at, to, f"{number} {reason}")
        at = to
    log = list(store.ref_log("main"))
    assert [each.reason.split()[0] for each in reversed(log)] == [str(n) for n in range(number + 1)]
    assert all(before.new == after.old for after, before in pairwise(log))
    assert len(store.refs.logs.segments("main")) > 2


@pytest.mark.parametrize("kept", [1, 40, 90])
def test_a_torn_last_line_is_tolerated_and_goes(tmp_path: Path, kept: int) -> None:
    with Store.open(tmp_path / "st", create=True) as store:
        store.create(id="one").close()
        store.create(id="two").close()
        store.update_ref("main", None, ONE, "a")
        store.update_ref("main", ONE, TWO, "b")
        [segment] = (tmp_path / "st" / "logs" / "refs" / "main").iterdir()
        first, second, _ = segment.read_bytes().split(b"\n")
        segment.write_bytes(first + b"\n" + second[:kept])
        assert moves(store, "main") == [(None, ONE, "a")]
        store.update_ref("main", TWO, ONE, "c")
        assert moves(store, "main") == [(TWO, ONE, "c"), (None, ONE, "a")]


def test_a_damaged_line_is_told_and_stands_in_nobodys_way(tmp_path: Path) -> None:
    with Store.open(tmp_path / "st", create=True) as store:
        store.create(id="one").close()
        store.create(id="two").close()
        store.update_ref("main", None, ONE, "a")
        store.update_ref("main", ONE, TWO, "b")
        [segment] = (tmp_path / "st" / "logs" / "refs" / "main").iterdir()
        data = bytearray(segment.read_bytes())
        data[20] ^= 1
        segment.write_bytes(data)
        with pytest.raises(Damaged):
            list(store.ref_log("main"))
        store.update_ref("main", TWO, ONE, "c")
        assert next(iter(store.ref_log("main"))).reason == "c"
        assert segment.read_bytes() == data
        assert store.resolve_ref("main") == ONE


@pytest.mark.parametrize("data", [b"", b"{}\n", b"\xff" * 90, b"null\t00000000\n"])
def test_a_damaged_ref_is_told_and_hides_no_other(tmp_path: Path, data: bytes) -> None:
    with Store.open(tmp_path / "st", create=True) as store:
        store.create(id="one").close()
        store.create(id="two").close()
        for name in ("a", "b"):
            store.update_ref(name, None, TWO, "made")
            store.update_ref(name, TWO, ONE, "moved")
        (tmp_path / "st" / "refs" / "a").write_bytes(data)
        told: list[str] = []
        assert [each.name for each in store.list_refs(on_damage=lambda name, _: told.append(name))] == ["b"]
        assert told == ["a"]
        for call in (store.resolve_ref, store.session_for, store.resolve_current):
            with pytest.raises(Damaged):
                call("a")
        with pytest.raises(Damaged):
            store.update_ref("a", ONE, None)
        assert moves(store, "a") == [(TWO, ONE, "moved"), (None, TWO, "made")]
        (tmp_path / "st" / "refs" / "a").unlink()
        store.update_ref("a", None, ONE, "again")
        assert moves(store, "a") == [(None, ONE, "again"), (TWO, ONE, "moved"), (None, TWO, "made")]


def test_a_ref_to_a_damaged_session_can_still_be_moved(tmp_path: Path) -> None:
    with Store.open(tmp_path / "st", create=True) as store:
        for session in ("one", "two"):
            store.create(id=session).close()
        store.update_ref("a", None, ONE)
        journal = tmp_path / "st" / "sessions" / "one" / "journal"
        whole = journal.read_bytes()
        for spoil in (journal.unlink, lambda: journal.write_bytes(b"?" * len(whole))):
            spoil()
            with pytest.raises(Damaged):  # it may be the one that is meant, or not
                store.resolve_ref("a")
            assert [each.name for each in store.list_refs()] == ["a"]
        with pytest.raises(Damaged):
            store.update_ref("b", None, ONE)
        assert store.update_ref("a", ONE, TWO)


def test_every_flipped_byte_of_a_ref_is_noticed(tmp_path: Path) -> None:
    with Store.open(tmp_path / "st", create=True) as store:
        store.create(id="one").close()
        store.update_ref("a", None, ONE)
        path = tmp_path / "st" / "refs" / "a"
        whole = path.read_bytes()
        for at in range(len(whole)):
            data = bytearray(whole)
            data[at] ^= 0x41
            path.write_bytes(data)
            with pytest.raises(Damaged):
                store.resolve_ref("a")


# --- pins ------------------------------------------------------------------------------------------------------------


def test_a_pin_makes_its_path_independent_of_the_session(tmp_path: Path) -> None:
    with Store.open(tmp_path / "st", create=True) as store:
        store.create(id="one").close()
        ids = grown(store, "one", "a", "b", "c")
        store.update_ref("pin", None, RefTarget("one", ids[1]))
        store.delete("one")
        [pin] = store.refs.pins()
        assert (pin.name, pin.session, pin.entry) == ("pin", "one", ids[1])
        chain = ChainSource(store.objects, ids[1])
        assert [chain.entry_id(at) for at in range(len(chain))] == ids[:2]
        assert [chain.entry(at).body["item"]["role"] for at in range(2)] == ["user", "user"]


def test_pins_fail_where_a_ref_does_not_read(tmp_path: Path) -> None:
    with Store.open(tmp_path / "st", create=True) as store:
        store.create(id="one").close()
        store.update_ref("a", None, ONE)
        (tmp_path / "st" / "refs" / "a").write_bytes(b"")
        with pytest.raises(Damaged):
            list(store.refs.pins())


# --- session_for -----------------------------------------------------------------------------------------------------


def test_session_for_creates_then_opens(store: Store) -> None:
    with store.session_for("main", cwd="/work") as made:
        made.append(entry.user("a"))
        with pytest.raises(SessionLocked):
            store.session_for("main")
    assert store.resolve_ref("main") == RefTarget(made.id)
    with store.session_for("main", cwd="/else") as again:
        assert (again.id, again.header.cwd, len(again)) == (made.id, "/work", 1)
    assert len(store.session_ids()) == 3
    assert len(moves(store, "main")) == 1


def test_session_for_with_a_header_given_whole(store: Store) -> None:
    header = store.read("one").header
    store.delete("one")
    with store.session_for("main", header) as made:
        assert made.id == "one"


def test_session_for_replaces_a_dangling_ref(store: Store) -> None:
    store.update_ref("main", None, ONE)
    store.delete("one")
    with store.session_for("main") as made:
        pass
    assert moves(store, "main")[0][:2] == (ONE, RefTarget(made.id))
    store.delete(made.id)
    with store.session_for("main", id=made.id) as again:  # the same id, another session
        assert again.id == made.id
    assert store.resolve_ref("main") == RefTarget(made.id)


def test_session_for_an_id_that_another_has(store: Store) -> None:
    with pytest.raises(SessionExists):
        store.session_for("main", id="one")
    with store.open_session("one"), pytest.raises(SessionLocked):
        store.session_for("main", id="one")
    assert store.list_refs() == []


def test_the_loser_opens_the_winners_and_deletes_its_own(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    create = store.create

    def beaten(*args: object, **members: object) -> SessionWriter:
        """Another process is faster, in between."""
        monkeypatch.undo()
        store.session_for("main", id="winner").close()
        return create(*args, **members)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "create", beaten)
    with store.session_for("main", id="loser") as held:
        assert held.id == "winner"
    assert sorted(store.session_ids()) == ["one", "two", "winner"]
    assert moves(store, "main") == [(None, RefTarget("winner"), "made for it")]


def test_session_for_a_name_that_clashes_leaves_nothing(store: Store) -> None:
    store.update_ref("a", None, ONE)
    with pytest.raises(RefName):
        store.session_for("a/b")
    assert sorted(store.session_ids()) == ["one", "two"]


# --- continuations ---------------------------------------------------------------------------------------------------


def test_resolve_current_follows_to_the_end(store: Store) -> None:
    store.update_ref("main", None, ONE)
    assert store.resolve_current("main") == ("one", False)
    store.continue_session("one", id="next").close()
    store.continue_session("next", id="last").close()
    assert store.resolve_current("main") == ("last", True)
    assert store.resolve_ref("main") == ONE  # which is literal


def test_resolve_current_stops_at_a_cycle(store: Store) -> None:
    store.update_ref("main", None, ONE)
    for session, successor in (("one", "two"), ("two", "one")):
        with store.open_session(session) as held:
            held.append(entry.continued_in(successor))
    with pytest.raises(ContinuationCycle):
        store.resolve_current("main")
    with pytest.raises(ContinuationCycle):
        store.continue_ref("main")


def test_resolve_current_where_a_session_is_gone(store: Store) -> None:
    store.update_ref("main", None, ONE)
    store.continue_session("one", id="next").close()
    store.delete("next")
    with pytest.raises(NoSession) as caught:
        store.resolve_current("main")
    assert caught.value.where == "next"
    store.delete("one")
    with pytest.raises(NoSession) as gone:
        store.resolve_current("main")
    assert gone.value.target == ONE
    with pytest.raises(NoRef):
        store.resolve_current("other")


def test_continue_ref_continues_the_end_and_moves_the_ref(store: Store) -> None:
    [id_] = grown(store, "one", "a")
    store.update_ref("main", None, RefTarget("one", id_))
    store.continue_session("one", id="next").close()  # and stopped before the ref was moved
    summary = {"type": "message", "role": "system", "content": "so far"}
    with store.continue_ref("main", summary, id="last", reason="full") as successor:
        assert successor.header.parent_session == "next"
        assert [each.type for each in successor] == ["config", "item"]
    assert store.resolve_ref("main") == RefTarget("last")  # the pin is not carried over
    assert moves(store, "main")[0] == (RefTarget("one", id_), RefTarget("last"), "full")
    assert store.read("next").superseded_by == "last"


def test_continue_ref_when_the_ref_moves_meanwhile(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.update_ref("main", None, ONE)
    continued = store.continue_session

    def beaten(*args: object, **members: object) -> SessionWriter:
        store.update_ref("main", ONE, TWO)
        return continued(*args, **members)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "continue_session", beaten)
    with pytest.raises(RefMoved) as caught:
        store.continue_ref("main", id="next")
    assert caught.value.current == TWO
    assert caught.value.successor == "next"
    assert "next" in caught.value.next_step
    store.open_session("next").close()
    assert store.read("one").superseded_by == "next"
    assert store.resolve_ref("main") == TWO


def test_two_that_continue_a_name(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.update_ref("main", None, ONE)
    current = store._current

    def beaten(target: RefTarget) -> object:
        found = current(target)
        monkeypatch.undo()
        store.continue_session("one", id="winner").close()
        return found

    monkeypatch.setattr(store, "_current", beaten)
    with pytest.raises(Superseded):
        store.continue_ref("main", id="loser")
    assert sorted(store.session_ids()) == ["one", "two", "winner"]


# --- locks ---------------------------------------------------------------------------------------------------------


def test_one_at_a_time_moves_a_ref() -> None:
    sim = Sim()
    with Store.open("/store", create=True, host=sim.host) as store:
        store.create(id="one").close()
        other = sim.process("p2").fs.lock("/store/locks/refs", exclusive=True, note="somebody")
        assert other is not None
        with pytest.raises(StoreLocked, match="somebody"):
            store.update_ref("main", None, ONE)
        sim.clock.on_sleep = other.release
        assert store.update_ref("main", None, ONE)
        sweep = sim.process("p2").fs.lock("/store/locks/store", exclusive=True)
        assert sweep is not None
        with pytest.raises(StoreLocked):
            store.update_ref("main", ONE, None)
        assert store.resolve_ref("main") == ONE  # which takes no lock


# --- doors -----------------------------------------------------------------------------------------------------------


def test_wrong_targets_and_reasons(store: Store) -> None:
    wrongs: tuple[object, ...] = ("one", ("one", ""), RefTarget(""), RefTarget(5), RefTarget("one", None), 5)  # type: ignore[arg-type]
    for wrong in wrongs:
        with pytest.raises(BadInput):
            store.update_ref("main", None, wrong)  # type: ignore[arg-type]
        with pytest.raises(BadInput):
            store.update_ref("main", wrong, ONE)  # type: ignore[arg-type]
    with pytest.raises(BadJSON):
        store.update_ref("main", None, ONE, "\udc00")
    with pytest.raises(BadInput):
        store.update_ref("main", None, ONE, "x" * 5000)
    with pytest.raises(BadInput):
        store.update_ref("main", None, ONE, None)  # type: ignore[arg-type]
    assert store.list_refs() == []


def test_read_only_resolves_and_lists(tmp_path: Path) -> None:
    with Store.open(tmp_path / "st", create=True) as store:
        store.create(id="one").close()
        store.update_ref("main", None, ONE)
    with Store.open(tmp_path / "st", read_only=True) as store:
        assert store.resolve_ref("main") == ONE
        assert [each.name for each in store.list_refs()] == ["main"]
        assert len(moves(store, "main")) == 1
        for call in (store.session_for, store.continue_ref):
            with pytest.raises(ReadOnly):
                call("main")
        with pytest.raises(ReadOnly):
            store.update_ref("main", ONE, None)
    with pytest.raises(Closed):
        store.resolve_ref("main")
