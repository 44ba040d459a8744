"""Threads as sessions: where entries hang, what the log shows, forks and files, any history, several processes."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import Store, entry
from agentsession_cas.errors import BadInput, SessionLocked
from agentsession_cas.ledger import CasRepository, MemoryRepository, RecordedThread, Role, Text, Thread, Turn
from tests.helpers.commands import Commands

TIMES = [f"2026-01-31T12:00:{second:02}Z" for second in range(60)]


def _types(store: Store, session: str) -> list[str]:
    return [each.type for each in store.read(session)]


def test_turns_hang_as_the_tree_does() -> None:
    """And what edits them is beside the tree."""
    store = Store.memory()
    repository = CasRepository(store)
    thread = RecordedThread(repository, "t")
    first = thread.append(Role.USER, Text("hi"))
    one = thread.append(Role.ASSISTANT, Text("one"))
    thread.set_current_tip(first.id)
    two = thread.append(Role.ASSISTANT, Text("two"))
    session = store.read("t")
    turns = {each.body["turn"]["id"]: each for each in session if each.type == "ledger:turn"}
    assert turns[first.id].parent == ""
    assert turns[one.id].parent == turns[two.id].parent == turns[first.id].id
    assert _types(store, "t").count("ledger:update_tip") == 4
    assert store.fsck().ok


def test_a_saved_turn_is_the_head() -> None:
    store = Store.memory()
    repository = CasRepository(store)
    for turn in (Turn("a"), Turn("b", "a"), Turn("c", "a"), Turn("a")):
        repository.save_turn("t", turn)
        session = store.read("t")
        assert session.entry(session.leaf).body["turn"] == turn.to_json()
    assert _types(store, "t") == ["ledger:turn", "ledger:turn", "ledger:turn", "ledger:add_turn"]


def test_several_roots_and_unknown_parents() -> None:
    """A turn without a parent is a root; one whose parent is not there is a record."""
    store = Store.memory()
    repository = CasRepository(store)
    for turn in (Turn("a"), Turn("b"), Turn("c", "gone"), Turn("d", "c")):
        repository.save_turn("t", turn)
    entries = list(store.read("t"))
    assert [each.parent for each in entries] == ["", "", entries[1].id, entries[2].id]
    assert [each.type.removeprefix("ledger:") for each in entries] == ["turn", "turn", "add_turn", "turn"]


def test_a_session_of_another_kind_is_left_alone() -> None:
    store = Store.memory()
    with store.create(id="chat") as session:
        session.append(entry.user("hi"))
    repository = CasRepository(store)
    assert repository.hydrate_thread("chat") == ({}, "")
    with pytest.raises(BadInput, match="no thread"):
        repository.save_turn("chat", Turn("t"))
    assert _types(store, "chat") == ["item"]


def test_a_thread_that_is_held_says_so() -> None:
    store = Store.memory()
    CasRepository(store).save_turn("t", Turn("a"))
    with store.open_session("t"), pytest.raises(SessionLocked):
        CasRepository(store, timeout_s=0).save_turn("t", Turn("b"))


def test_a_fork_of_a_thread_is_a_thread() -> None:
    """From any turn: what lies on its path comes along."""
    store = Store.memory()
    thread = RecordedThread(CasRepository(store), "t")
    for text in ("a", "b", "c"):
        thread.append(Role.USER, Text(text))
    at = next(each.id for each in store.read("t") if each.body.get("turn", {}).get("id") == thread.turns()[1].id)
    store.fork("t", at, id="forked").close()
    again = RecordedThread(CasRepository(store), "forked")
    assert [turn.id for turn in again.all_turns()] == [turn.id for turn in thread.turns()[:2]]
    again.set_current_tip(thread.turns()[1].id)
    again.append(Role.USER, Text("d"))
    assert RecordedThread(CasRepository(store), "forked").turns() == again.turns()
    assert len(thread.turns()) == 3


def test_a_thread_travels_as_a_file(tmp_path: Path) -> None:
    with Store.open(tmp_path / "one", create=True) as store:
        thread = RecordedThread(CasRepository(store), "t")
        thread.append(Role.USER, Text("hi"))
        store.project("t", tmp_path / "t.jsonl")
    with Store.open(tmp_path / "two", create=True) as store:
        store.import_file(tmp_path / "t.jsonl")
        assert CasRepository(store).hydrate_thread("t").thread().turns() == thread.turns()


def test_the_whole_history_shows_in_the_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cli = Commands(monkeypatch, tmp_path)
    with Store.open(cli.store, create=True) as store:
        thread = RecordedThread(CasRepository(store), "thread-1")
        first = thread.append(Role.USER, Text("hello out there"))
        thread.append(Role.ASSISTANT, Text("hi"))
        thread.set_control(first.id, "skip")
        thread.set_parent(first.id, "elsewhere")
    shown = cli.ok("log", "--all", "thread-1").text
    for kind in ("turn", "update_tip", "update_control", "update_parent"):
        assert f"ledger:{kind}" in shown
    assert "hello out there" in shown
    assert '"control":"skip"' in shown


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["save", "save", "tip", "control", "parent"]),
        st.integers(0, 5),
        st.integers(-1, 5),
        st.integers(0, 59),
        st.booleans(),
    ),
    max_size=25,
)


@given(EDITS)
@settings(deadline=None, max_examples=60)
def test_any_history_round_trips(edits: list[tuple[str, int, int, int, bool]]) -> None:
    """At times that repeat and go back, through handles that are opened anew now and then."""
    time = TIMES[0]

    def clock() -> str:
        return time

    store = Store.memory()
    model, repository = MemoryRepository(clock), CasRepository(store, clock)
    for kind, one, two, second, anew in edits:
        time = TIMES[second]
        if anew:
            repository = CasRepository(store, clock)
        parent = f"t{two}" if two >= 0 else ""
        for each in (model, repository):
            if kind == "save":
                each.save_turn("t", Turn(f"t{one}", parent, artifacts=(Text(f"{second}"),), timestamp=time))
            elif kind == "tip":
                each.update_thread_tip("t", f"t{one}")
            elif kind == "control":
                each.update_turn_control("t", f"t{one}", ("continue", "stop", "skip", "", "x", "y")[one])
            else:
                each.update_turn_parent("t", f"t{one}", parent)
    found, wanted = CasRepository(store).hydrate_thread("t"), model.hydrate_thread("t")
    assert found == wanted
    assert list(found.turns) == list(wanted.turns)
    assert found.thread(Thread()).turns() == wanted.thread(Thread()).turns()
    assert repository.journal("t") == model.journal("t")


def _write(path: str, name: str) -> None:
    with Store.open(path) as store:
        repository = CasRepository(store, timeout_s=60)
        for number in range(10):
            repository.save_turn("t", Turn(f"{name}-{number}", f"{name}-{number - 1}" if number else ""))


def test_processes_share_a_thread(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True):
        pass
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(str(tmp_path), f"p{number}")) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    with Store.open(tmp_path) as store:
        assert len(CasRepository(store).hydrate_thread("t").turns) == 30
        assert store.fsck().ok
