"""The cyclic collector held off: off while anybody holds it off, and as it was before when the last one is done."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Event, Thread

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.effects.collector import held_off
from agentsession_cas.errors import BadHeader


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_it_comes_back() -> None:
    with held_off():
        assert not gc.isenabled()
        with held_off():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), held_off():
        _ = 1 // 0
    assert gc.isenabled()


def test_one_that_was_off_stays_so() -> None:
    gc.disable()
    with held_off():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_the_last_of_several_threads_brings_it_back() -> None:
    inside, seen, done = Barrier(5), list[bool](), Event()

    def hold(number: int) -> None:
        with held_off():
            inside.wait(30)
            seen.append(gc.isenabled())
            if not number:
                done.wait(30)

    threads = [Thread(target=hold, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    inside.wait(30)
    for thread in threads[1:]:
        thread.join(30)
    assert not gc.isenabled()
    done.set()
    threads[0].join(30)
    assert seen == [False] * 4
    assert gc.isenabled()


def test_an_import_holds_it_off(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    states: list[bool] = []

    def lines(data: bytes) -> Iterator[bytes]:
        for line in data.splitlines(keepends=True):
            states.append(gc.isenabled())
            yield line

    with Store.memory() as store, store.create(id="s") as session:
        session.append(entry.user("hello"))
        store.project("s", file)
    with Store.memory() as store:
        store.import_file(lines(file.read_bytes()))
        assert states == [False, False]
        assert gc.isenabled()
        with pytest.raises(BadHeader):
            store.import_file(b"[]\n")
        assert gc.isenabled()
