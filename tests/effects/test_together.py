"""Works done at once: what they come to, what an error of one does, and that the simulated ones take turns."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.effects.durable import write_new
from agentsession_cas.effects.host import Host, real_host
from agentsession_cas.effects.memory import memory_host
from agentsession_cas.effects.together import AT_ONCE
from agentsession_cas.errors import DiskFull
from agentsession_cas.testing.simfs import PowerCut, Sim

HOSTS: dict[str, Callable[[], Host]] = {
    "real": real_host,
    "memory": memory_host,
    "simulated": lambda: Sim().host,
}


@pytest.mark.parametrize("make", HOSTS.values(), ids=HOSTS)
def test_all_are_done_and_told_in_order(make: Callable[[], Host]) -> None:
    together = make().together
    assert together([]) == []
    for count in (1, 2, 3, 50):
        assert together([partial(divmod, number, 7) for number in range(count)]) == [
            divmod(number, 7) for number in range(count)
        ]


@pytest.mark.parametrize("make", HOSTS.values(), ids=HOSTS)
def test_an_error_leaves_nothing_under_way(make: Callable[[], Host]) -> None:
    begun, ended = list[int](), list[int]()

    def work(number: int) -> None:
        begun.append(number)
        if number == 3:
            ended.append(number)
            raise DiskFull("there is no room")
        ended.append(number)

    with pytest.raises(DiskFull):
        make().together([partial(work, number) for number in range(5000)])
    assert sorted(begun) == sorted(ended)
    assert len(begun) < 5000
    assert not [each for each in threading.enumerate() if each.name.startswith("agentsession-together")]


def test_the_real_ones_wait_together() -> None:
    """As many as are said: each waits until all of them are there."""
    there = threading.Barrier(AT_ONCE)
    assert len(real_host().together([partial(there.wait, 60.0)] * AT_ONCE)) == AT_ONCE


@pytest.mark.parametrize("threads", range(3))
def test_where_no_threads_can_be_had_the_caller_does_the_rest(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    began = threading.Thread.start
    left = iter([True] * threads)

    def start(self: threading.Thread) -> None:
        if not next(left, False):
            raise RuntimeError("can't start new thread")
        began(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    assert real_host().together([partial(abs, -number) for number in range(50)]) == list(range(50))


def test_settling_is_done_while_the_interpreter_ends(tmp_path: Path) -> None:
    """A thread that outlives the main one gets no help from ``concurrent.futures``."""
    program = """
import concurrent.futures.thread as pools, sys, threading
from agentsession_cas import Store, entry

store = Store.open(sys.argv[1], create=True)
for number in range(3):
    with store.create(id=f"s{number}") as session:
        session.append(entry.user("hi"))

def settle():
    while not pools._shutdown:
        pass
    print(store.repack().settled)
    store.close()

threading.Thread(target=settle).start()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "st")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_an_append_whose_checkpoint_no_thread_can_be_had_for_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    texts = [f"{number}" * 50_000 for number in range(60)]
    with Store.open(tmp_path / "st", create=True) as store:
        with store.create(id="a") as session:
            for text in texts:
                session.append(entry.user(text))
            assert store.objects.stats().loose + store.objects.stats().packed >= 20, "what left the journal"
        assert [each.body["item"]["content"][0]["text"] for each in store.read("a")] == texts


def test_reading_and_settling_while_the_interpreter_is_taken_apart(tmp_path: Path) -> None:
    """The last objects are finalised when no thread runs any more."""
    program = """
import sys
from agentsession_cas import Store, entry

class Last:
    def __init__(self, store):
        self.store = store

    def __del__(self):
        assert sys.is_finalizing()
        print(sum(len(each.content) > 1400 for each in self.store.read("s1")))
        for number in range(2):
            with self.store.open_session(f"s{number}") as session:
                session.append(entry.user("bye"))
        print(self.store.repack().settled)
        self.store.close()

store = Store.open(sys.argv[1], create=True)
for number in range(2):
    with store.create(id=f"s{number}") as session:
        session.append_batch([entry.user(f"{at:4} " * 280) for at in range(4000)])
store.repack()
sys.modules["kept until the end"] = Last(store)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "st")], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("4000\n2\n", "")


def written(sim: Sim) -> list[str]:
    """What a few works write, in the order it came."""
    sim.host.fs.mkdir("/d")
    sim.log.clear()

    def work(name: str) -> None:
        for at in range(4):
            write_new(sim.host.fs, f"/d/{name}{at}", b"x")

    sim.host.together([partial(work, name) for name in "abcde"])
    return [each.path for each in sim.log]


def test_simulated_ones_take_turns_as_the_seed_has_it() -> None:
    runs = {seed: written(Sim(seed=seed)) for seed in range(5)}
    assert runs == {seed: written(Sim(seed=seed)) for seed in range(5)}
    assert len({tuple(run) for run in runs.values()}) == len(runs)
    for run in runs.values():
        switches = sum(one[3] != other[3] for one, other in pairwise(run))
        assert switches > 10
        for name in "abcde":  # each in its own order
            own = [path for path in run if path[3] == name]
            assert own == sorted(own)
            assert len(own) == 12


def test_a_power_cut_ends_all_of_them() -> None:
    whole = len(written(Sim()))
    for at in range(1, whole + 1):
        sim = Sim()
        sim.cut_after(at)
        with pytest.raises(PowerCut):
            written(sim)
        assert sim.count == at


def test_what_a_watcher_does_is_in_order() -> None:
    """He holds the machine up: no other thread of it could go on."""
    sim = Sim()
    other = sim.process("p2")
    seen = list[list[int]]()
    sim.watch(lambda _kind, _path: seen.append(other.together([partial(abs, -number) for number in range(3)])))
    written(sim)
    sim.watch(None)
    assert set(map(tuple, seen)) == {(0, 1, 2)}
