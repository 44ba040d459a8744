"""Turns of long work: one thread of a process at a time, in the order they came, and nobody who hurries waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread, current_thread

import pytest

from agentsession_cas import SessionWriter, Store, entry
from agentsession_cas.effects.host import SystemClock, real_host
from agentsession_cas.effects.pace import Turns, turns_of
from agentsession_cas.sessions import writer as writing

WAIT_S = 30


def started(work: Callable[[], None]) -> Thread:
    thread = Thread(target=work, daemon=True)
    thread.start()
    return thread


def in_line(turns: Turns, count: int, thread: Thread) -> None:
    """Wait until so many stand in the line, the thread behind them."""
    while len(turns._line) < count:
        assert thread.is_alive()
        thread.join(0.001)


def lined_up(turns: Turns, work: Callable[[int], None], count: int) -> tuple[list[Thread], list[Event]]:
    """Threads that came one after the other, behind the one whose turn it is, and their events."""
    hurries = [Event() for _ in range(count)]

    def stand(number: int) -> None:
        with turns.taken(hurries[number]):
            work(number)

    threads = []
    for number in range(count):
        threads.append(started(lambda number=number: stand(number)))  # type: ignore[misc]
        in_line(turns, number + 2, threads[-1])
    return threads, hurries


def test_one_at_a_time_in_the_order_they_came() -> None:
    turns, order, inside = Turns(), list[int](), list[int]()

    def work(number: int) -> None:
        inside.append(number)
        assert inside == [number]
        order.append(number)
        inside.remove(number)

    with turns.taken(Event()):
        threads, _ = lined_up(turns, work, 8)
        assert order == []
    for thread in threads:
        thread.join(WAIT_S)
    assert order == list(range(8))
    assert not turns._line


def test_who_hurries_waits_for_nobody() -> None:
    turns, done = Turns(), list[int]()
    with turns.taken(Event()):
        threads, hurries = lined_up(turns, done.append, 3)
        hurries[1].set()
        turns.stir()
        threads[1].join(WAIT_S)
        assert done == [1]
        hurry = Event()
        hurry.set()
        with turns.taken(hurry):
            done.append(9)
        assert done == [1, 9]
    for thread in threads:
        thread.join(WAIT_S)
    assert done == [1, 9, 0, 2]


def test_giving_way_lets_each_have_one_turn() -> None:
    turns, order = Turns(), list[int]()
    mine = Event()
    with turns.taken(mine):
        turns.give_way(mine)  # to nobody
        threads, _ = lined_up(turns, order.append, 3)
        turns.give_way(mine)
        assert order == [0, 1, 2]
        mine.set()
        others, _ = lined_up(turns, order.append, 1)
        turns.give_way(mine)  # not when it hurries
        assert order == [0, 1, 2]
    for thread in threads + others:
        thread.join(WAIT_S)
    assert order == [0, 1, 2, 0]


def test_a_failure_ends_a_turn() -> None:
    turns = Turns()
    with pytest.raises(ZeroDivisionError), turns.taken(Event()):
        _ = 1 // 0
    with turns.taken(Event()):
        assert len(turns._line) == 1


def test_each_process_has_its_own_line() -> None:
    assert turns_of(1) is turns_of(1)
    assert turns_of(1) is not turns_of(2)


def grown(session: SessionWriter) -> Thread:
    """Append until the checkpoint thread was started."""
    while session._writer._thread is None:
        session.append_batch([entry.user(f"{number} " * 100) for number in range(40)])
    return session._writer._thread


def test_checkpoints_of_sessions_wait_for_each_other_and_no_one_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "CHECKPOINT_BYTES", 20_000)
    with Store.open(tmp_path / "store", create=True) as store:
        sessions = [store.create(id=f"s-{number}") for number in range(4)]
        turns = sessions[0]._writer._turns
        assert all(session._writer._turns is turns for session in sessions)
        with turns.taken(Event()):
            threads = []
            for number, session in enumerate(sessions):
                threads.append(grown(session))
                in_line(turns, number + 2, threads[-1])
            assert [session._writer.source.table.base for session in sessions] == [0] * 4
            assert sessions[0].checkpoint()
            assert sessions[0]._writer.source.table.base > 0
            sessions[1].close()  # ends its thread first
            assert not threads[1].is_alive()
        for thread in threads:
            thread.join(WAIT_S)
        assert all(session._writer.source.table.base > 0 for session in sessions[2:])
        for session in sessions:
            session.close()
        assert not turns._line
        assert store.fsck().findings == []


class _Counted(SystemClock):
    """The real clock, which counts how often this thread slept."""

    def __init__(self) -> None:
        self.slept = 0
        self._whose = current_thread()

    def sleep(self, seconds: float) -> None:
        self.slept += current_thread() is self._whose
        super().sleep(seconds)


def test_appends_wait_once_a_checkpoint_is_far_behind_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "CHECKPOINT_BYTES", 20_000)
    monkeypatch.setattr(writing, "HELD_UP_BYTES", 100_000)
    clock = _Counted()
    with Store.open(tmp_path / "store", create=True, host=replace(real_host(), clock=clock)) as store:
        session = store.create(id="burst")
        writer = session._writer
        with writer._turns.taken(Event()):  # the checkpoint has no turn yet
            while writer.journal_bytes < 100_000 - 10_000:
                session.append(entry.user("a word " * 500))
            assert clock.slept == 0
            while writer.journal_bytes < 100_000:
                session.append(entry.user("a word " * 500))
            before = clock.slept
            for _ in range(3):
                session.append(entry.user("one more"))
            assert clock.slept == before + 3
        assert session.checkpoint()
        waited = clock.slept
        session.append(entry.user("after it"))
        assert clock.slept == waited
        session.close()
        assert store.fsck().findings == []
