"""Turns of long work: one thread of a process at a time, in the order they came, and nobody who hurries waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest

from agentsession_cas import SessionWriter, Store, entry
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
