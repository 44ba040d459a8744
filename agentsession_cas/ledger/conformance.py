"""What every repository of threads has to do, as test classes to subclass (ledger.md).

A third party writes::

    class TestMine(RepositoryConformance):
        @pytest.fixture
        def reopen(self, tmp_path):
            return lambda: MyRepository(tmp_path)

``reopen()`` gives a repository over one and the same storage each time, empty at first. The classes need no test runner
to be imported, and their methods hold plain assertions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from agentsession_cas.ledger.recorded import RecordedThread
from agentsession_cas.ledger.repository import MemoryRepository, Repository
from agentsession_cas.ledger.thread import Thread
from agentsession_cas.ledger.turn import Artifact, Metadata, Role, Text, ToolCall, ToolResult, TraversalControl, Turn

__all__ = ["Reopen", "RepositoryConformance"]

Reopen = Callable[[], Repository]

_TIME: Final = "2026-01-31T12:00:00.000000007+02:00"
THREAD: Final = "thread-1"


def _turn(id: str, parent_id: str = "", text: str = "hi") -> Turn:
    return Turn(id, parent_id, Role.USER, (Text(text),), _TIME)


class RepositoryConformance:
    """Each method is a property; a backend that lacks it fails that method."""

    def test_a_thread_never_written_is_empty(self, reopen: Reopen) -> None:
        """No turns, no tip, no error."""
        assert reopen().hydrate_thread(THREAD) == ({}, "")

    def test_a_turn_comes_back_whole(self, reopen: Reopen) -> None:
        """Every member, known or not, and the order of the blocks."""
        blocks = (
            Text("a < b & \u2028 \U0001f600"),
            ToolCall("c1", "lookup", '{"q": 1.0,  "r":[]}'),
            ToolResult("c1", "", is_error=True),
            Artifact("mine:chart", {"points": [1, 2.5, None, {"deep": [True]}], "title": "t"}),
        )
        turn = Turn("t1", "", "narrator", blocks, _TIME, Metadata("stop", {"why": [1]}), {"more": {"x": None}})
        reopen().save_turn(THREAD, turn)
        assert reopen().hydrate_thread(THREAD).turns == {"t1": turn}

    def test_numbers_that_json_holds_come_back(self, reopen: Reopen) -> None:
        """Also one past 2^53, which a double does not hold."""
        turn = Turn("t1", artifacts=(Artifact("n", {"big": 2**53 + 1, "huge": 2**70, "small": 1e-7}),))
        reopen().save_turn(THREAD, turn)
        assert reopen().hydrate_thread(THREAD).turns["t1"] == turn

    def test_a_save_leaves_the_tip(self, reopen: Reopen) -> None:
        """Only an update of the tip moves it, also to a turn that is not there."""
        repository = reopen()
        repository.save_turn(THREAD, _turn("t1"))
        repository.update_thread_tip(THREAD, "t1")
        repository.save_turn(THREAD, _turn("t2", "t1"))
        assert reopen().hydrate_thread(THREAD).tip == "t1"
        repository.update_thread_tip(THREAD, "not-there")
        assert reopen().hydrate_thread(THREAD).tip == "not-there"

    def test_a_save_of_an_id_replaces(self, reopen: Reopen) -> None:
        """The turn is the last one saved."""
        repository = reopen()
        for turn in (_turn("t1"), _turn("t2", "t1"), _turn("t1", "t2", "other")):
            repository.save_turn(THREAD, turn)
        assert reopen().hydrate_thread(THREAD).turns == {"t1": _turn("t1", "t2", "other"), "t2": _turn("t2", "t1")}

    def test_saving_the_same_again_and_again_changes_nothing(self, reopen: Reopen) -> None:
        """At one time or at several."""
        repository = reopen()
        for _ in range(3):
            repository.save_turn(THREAD, _turn("t1"))
            repository.update_thread_tip(THREAD, "t1")
        assert reopen().hydrate_thread(THREAD) == ({"t1": _turn("t1")}, "t1")

    def test_a_parent_need_not_be_there(self, reopen: Reopen) -> None:
        """It may come later, or never."""
        repository = reopen()
        for turn in (_turn("late", "early"), _turn("early"), _turn("orphan", "never")):
            repository.save_turn(THREAD, turn)
        found = reopen().hydrate_thread(THREAD).turns
        assert {turn.id: turn.parent_id for turn in found.values()} == {"late": "early", "early": "", "orphan": "never"}

    def test_control_and_parent_change(self, reopen: Reopen) -> None:
        """And nothing else of the turn."""
        repository = reopen()
        repository.save_turn(THREAD, _turn("t1"))
        repository.save_turn(THREAD, _turn("t2", "t1"))
        repository.update_turn_control(THREAD, "t2", TraversalControl.SKIP)
        repository.update_turn_parent(THREAD, "t2", "elsewhere")
        found = reopen().hydrate_thread(THREAD).turns
        assert found == {"t1": _turn("t1"), "t2": _turn("t2", "elsewhere").controlled("skip")}

    def test_changes_of_unknown_turns_change_nothing(self, reopen: Reopen) -> None:
        """Nor does a turn that comes later have them."""
        repository = reopen()
        repository.update_turn_control(THREAD, "t1", "skip")
        repository.update_turn_parent(THREAD, "t1", "x")
        repository.save_turn(THREAD, _turn("t1"))
        assert reopen().hydrate_thread(THREAD).turns == {"t1": _turn("t1")}

    def test_threads_are_apart(self, reopen: Reopen) -> None:
        """Whatever their ids share."""
        repository = reopen()
        for id in ("a", "a.b", "A-b", "ab"):
            repository.save_turn(id, _turn(f"in-{id}"))
        for id in ("a", "a.b", "A-b", "ab"):
            assert list(reopen().hydrate_thread(id).turns) == [f"in-{id}"]

    def test_what_is_handed_out_is_a_copy(self, reopen: Reopen) -> None:
        """Changing it changes nothing that is kept."""
        repository = reopen()
        repository.save_turn(THREAD, _turn("t1"))
        first = repository.hydrate_thread(THREAD)
        first.turns.clear()
        assert repository.hydrate_thread(THREAD).turns == {"t1": _turn("t1")}

    def test_a_recorded_thread_comes_back(self, reopen: Reopen) -> None:
        """Its branches, its path and its tip, in another handle."""
        thread = RecordedThread(reopen(), THREAD)
        first = thread.append(Role.USER, Text("hi"))
        thread.append(Role.ASSISTANT, Text("one"))
        thread.set_current_tip(first.id)
        last = thread.append(Role.ASSISTANT, Text("two"))
        thread.set_control(first.id, "skip")
        again = RecordedThread(reopen(), THREAD)
        assert (again.current_tip, again.turns()) == (last.id, [last])
        assert again.all_turns() == thread.all_turns()

    def test_any_history_replays_to_what_memory_has(self, reopen: Reopen) -> None:
        """Two hundred random edits by two handles that take turns, cycles included."""
        model = MemoryRepository()
        handles = (reopen(), reopen())
        for number in range(200):
            kind, one, two, *_ = hashlib.sha256(b"%d" % number).digest()
            for repository in (model, handles[number % 2]):
                _edit(repository, kind % 5, f"t{one % 12}", f"t{two % 12}", number)
        found, wanted = reopen().hydrate_thread(THREAD), model.hydrate_thread(THREAD)
        assert found == wanted
        assert found.thread(Thread()).turns() == wanted.thread(Thread()).turns()


def _edit(repository: Repository, kind: int, one: str, two: str, number: int) -> None:
    if kind <= 1:
        repository.save_turn(THREAD, _turn(one, two if number % 3 else "", f"{number}"))
    elif kind == 2:
        repository.update_thread_tip(THREAD, one)
    elif kind == 3:
        repository.update_turn_control(THREAD, one, ("continue", "stop", "skip")[number % 3])
    else:
        repository.update_turn_parent(THREAD, one, two)
