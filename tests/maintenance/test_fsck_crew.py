"""fsck with the help of other processes says what it says alone, whatever becomes of them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from agentsession_cas import entry
from agentsession_cas.effects.host import Host, real_host
from agentsession_cas.effects.workers import Lost, StartWorkers, Worker, no_workers, start_workers
from agentsession_cas.layout import Layout
from agentsession_cas.maintenance.findings import FsckReport
from agentsession_cas.maintenance.fsck import Progress, fsck
from agentsession_cas.maintenance.fsck_crew import Crew, Look
from agentsession_cas.maintenance.survey import Survey
from agentsession_cas.objects.database import ObjectDatabase
from tests.helpers.damage import Bench, flip
from tests.helpers.damages import DAMAGE

LIMIT_S = 60


class Here:
    """A worker in this process: what it is asked and what it says passes through bytes, as in a pipe."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer
        self.asked: list[str] = []

    def ask(self, question: Any) -> Any:
        self.asked.append(question)
        return pickle.loads(pickle.dumps(self._answer(question)))

    def end(self) -> None:
        pass


class Dies(Here):
    """One that answers once."""

    def ask(self, question: Any) -> Any:
        if self.asked:
            raise Lost("gone")
        return super().ask(question)


def here(kind: type[Here], make: Callable[..., Callable[[Any], Any]], given: tuple[Any, ...]) -> list[Worker]:
    return [kind(make(*pickle.loads(pickle.dumps(given)))) for _ in range(2)]


def check(root: Path, workers: StartWorkers, progress: Progress | None = None, *, fast: bool = False) -> FsckReport:
    """The store checked with workers from the first session on."""
    host = replace(real_host(), workers=workers)
    with ObjectDatabase(host, str(root)) as objects:
        return fsck(Layout(host, str(root)), objects, progress=progress, patience_s=0, fast=fast)


@pytest.mark.heavy
@pytest.mark.parametrize("code", DAMAGE)
@pytest.mark.parametrize("kind", [Here, Dies])
def test_every_damage_is_told_as_without_help(bench: Bench, code: str, kind: type[Here]) -> None:
    DAMAGE[code](bench)
    assert check(bench.root, partial(here, kind)) == check(bench.root, no_workers)


def hurt(bench: Bench) -> None:
    """Damage in a session, in another one's log, in an object that a third and its fork need; a deleted origin."""
    with bench.store() as store:
        for number in range(12):
            store.fork("beta", bench.beta[number], id=f"fork-{number}").close()
            with store.create(id=f"more-{number}") as session:
                session.append_batch([entry.user(f"{number} {at}") for at in range(5)])
        store.delete("delta")
    flip(bench.session("alpha") / "journal", 9000)
    flip(bench.session("more-3") / "journal", 8300)
    bench.loose("contents", bench.content_hash("gamma", bench.gamma[0])).unlink()


def test_a_process_says_what_this_one_says(bench: Bench) -> None:
    hurt(bench)
    alone = check(bench.root, no_workers)
    assert not alone.ok
    assert check(bench.root, partial(start_workers, 2)) == alone


def test_objects_listed_that_do_not_read_are_no_other_finding_with_help(bench: Bench) -> None:
    """What is listed is held, good or not, where a session itself does not read and of blobs: only here it is known."""
    with bench.store() as store:
        blob = store.put_blob(b"pixels" * 100)
        with store.create(id="0", media="sidecar") as session:
            session.append(entry.user([{"type": "input_image", "detail": "auto", "image_url": f"sidecar:{blob}"}]))
        with store.create(id="1") as session:
            for batch in range(2):
                session.append_batch([entry.user(f"{batch} {at}") for at in range(20)])
                session.checkpoint()
        first = next(iter(store.read("1"))).id
    body = bench.content_hash("1", first)
    flip(bench.session("1") / "log-0", 1000)
    for path in (bench.loose("contents", body), bench.loose("media", blob)):
        path.write_bytes(path.read_bytes()[:-3])
    alone = check(bench.root, no_workers)
    assert [each.code for each in alone.findings] [:3] == ["corrupt_object", "corrupt_object", "log_row"]
    assert check(bench.root, partial(here, Here)) == alone


def test_a_fast_check_asks_nobody(bench: Bench) -> None:
    def refuse(make: object, given: object) -> list[Worker]:
        raise AssertionError((make, given))

    assert check(bench.root, refuse, fast=True) == check(bench.root, no_workers, fast=True)


def test_progress_only_rises_and_counts_every_session(bench: Bench) -> None:
    hurt(bench)
    seen: list[tuple[int, int]] = []
    check(bench.root, partial(here, Here), lambda *step: seen.append(step))
    assert seen == [(done, len(seen)) for done in range(1, len(seen) + 1)]
    assert len(seen) == 1 + len(list((bench.root / "sessions").iterdir()))


class Watched:
    """A worker that says when it has answered ``wanted`` questions, and whether it was ended."""

    def __init__(self, worker: Worker, wanted: int) -> None:
        self._worker = worker
        self._wanted = wanted
        self.answered: list[str] = []
        self.ready = Event()
        self.ended = False

    def ask(self, question: Any) -> Any:
        answer = self._worker.ask(question)
        self.answered.append(question)
        if len(self.answered) == self._wanted:
            self.ready.set()
        return answer

    def end(self) -> None:
        self._worker.end()
        self.ended = True


def watched(into: list[Worker], wanted: int, make: Callable[..., Any], given: tuple[Any, ...]) -> list[Worker]:
    into.extend(Watched(worker, wanted) for worker in start_workers(1, make, given))
    return into


def test_a_process_takes_what_this_one_is_too_busy_for(bench: Bench) -> None:
    started: list[Worker] = []
    host: Host = replace(real_host(), workers=partial(watched, started, 3))
    mine: list[str] = []

    def own(name: str) -> Look:
        mine.append(name)
        (worker,) = started
        assert isinstance(worker, Watched)
        assert worker.ready.wait(LIMIT_S)
        return Look()

    with ObjectDatabase(host, str(bench.root)) as objects:
        survey = Survey(objects, lambda _: None, fast=False)
        with Crew(Layout(host, str(bench.root)), survey, own, 0) as crew:
            looks = dict(crew.look_at(["alpha", "beta", "gamma", "delta"]))
    (worker,) = started
    assert isinstance(worker, Watched)
    assert len(mine) <= 1
    assert worker.ended
    assert sorted([*mine, *worker.answered]) == ["alpha", "beta", "delta", "gamma"]
    counts = {"alpha": 6, "beta": 110, "gamma": 5, "delta": 3}
    assert {name: looks[name].entries for name in worker.answered} == {name: counts[name] for name in worker.answered}


def test_an_interrupt_ends_the_processes(bench: Bench) -> None:
    hurt(bench)
    started: list[Worker] = []

    def interrupt(done: int, _total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(bench.root, partial(watched, started, 1), interrupt)
    assert [worker.ended for worker in started if isinstance(worker, Watched)] == [True]


def test_a_check_that_is_soon_done_starts_nothing(bench: Bench) -> None:
    def refuse(make: object, given: object) -> list[Worker]:
        raise AssertionError((make, given))

    host = replace(real_host(), workers=refuse)
    with ObjectDatabase(host, str(bench.root)) as objects:
        assert fsck(Layout(host, str(bench.root)), objects, patience_s=inf).ok
