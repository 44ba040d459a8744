"""Processes that answer questions: they answer, or they are lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from operator import methodcaller
from typing import Any

import pytest

from agentsession_cas.effects.host import real_host
from agentsession_cas.effects.memory import memory_host
from agentsession_cas.effects.workers import Lost, Worker, start_workers


def one(make: Callable[..., Any], *given: Any) -> Worker:
    (worker,) = start_workers(1, make, given)
    return worker


def test_a_worker_answers_one_question_after_another() -> None:
    worker = one(methodcaller, "upper")
    try:
        assert [worker.ask(text) for text in ("a", "bc")] == ["A", "BC"]
        with pytest.raises(Lost):
            worker.ask(1)  # which has no such method: the process dies of it
        with pytest.raises(Lost):
            worker.ask("a")
    finally:
        worker.end()
        worker.end()


def test_a_worker_that_cannot_begin_is_lost() -> None:
    worker = one(methodcaller)
    with pytest.raises(Lost):
        worker.ask("a")
    worker.end()


def test_ending_a_worker_frees_who_waits_for_it() -> None:
    worker = one(methodcaller, "__call__")
    said: list[str] = []

    def wait() -> None:
        try:
            worker.ask(signal.pause)
        except Lost:
            said.append("lost")

    thread = threading.Thread(target=wait)
    thread.start()
    worker.end()
    thread.join(60)
    assert not thread.is_alive()
    assert said == ["lost"]


def test_a_host_in_memory_has_none_and_the_real_one_no_more_than_cores() -> None:
    assert memory_host().workers(methodcaller, ("upper",)) == []
    started = real_host().workers(methodcaller, ("upper",))
    for worker in started:
        worker.end()
    assert len({id(worker) for worker in started}) == len(started)
