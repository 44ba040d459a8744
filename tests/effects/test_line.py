"""Locks that are waited for in line: nobody waits for ever while others come and go."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pytest

from agentsession_cas.effects.host import Fs, Host, Lock, real_host, translate
from agentsession_cas.effects.line import is_awaited, lock_in_line
from agentsession_cas.testing.simfs import Sim
from tests.helpers.crashes import Through


def test_it_is_a_lock_like_any_other() -> None:
    sim = Sim()
    host, other = sim.host, sim.process("p2")
    held = lock_in_line(host, "/lock", timeout_s=1.0, note="somebody")
    assert held is not None
    assert other.fs.lock_note("/lock") == "somebody"
    assert other.fs.lock("/lock", exclusive=False) is None
    assert not is_awaited(other, "/lock")
    assert lock_in_line(other, "/lock", timeout_s=1.0) is None
    held.release()
    again = lock_in_line(other, "/lock", timeout_s=0.0)
    assert again is not None
    again.release()


def test_who_waits_is_seen_and_the_next_waits_behind_him() -> None:
    sim = Sim()
    first, second, third = sim.host, sim.process("p2"), sim.process("p3")
    held = first.fs.lock("/lock", exclusive=False)
    assert held is not None
    seen = list[bool]()
    behind = list[Lock | None]()

    def meanwhile() -> None:
        sim.clock.on_sleep = None
        seen.append(is_awaited(third, "/lock"))
        behind.append(lock_in_line(third, "/lock", timeout_s=0.5))
        held.release()

    sim.clock.on_sleep = meanwhile
    assert lock_in_line(second, "/lock", timeout_s=5.0) is not None
    assert (seen, behind) == ([True], [None])
    assert not is_awaited(third, "/lock")


def test_a_process_that_dies_in_line_leaves_it() -> None:
    sim = Sim()
    other = sim.process("p2")
    assert other.fs.lock("/lock-next", exclusive=True) is not None
    assert is_awaited(sim.host, "/lock", timeout_s=1.0)
    sim.kill("p2")
    assert not is_awaited(sim.host, "/lock")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EACCES])
def test_where_there_can_be_no_line_the_lock_is_had_without(code: int) -> None:
    """Above all on a full disk: what waits in line is what makes room."""
    sim = Sim()
    host = replace(sim.host, fs=cast(Fs, Refusing(sim.host.fs, code)))
    held = lock_in_line(host, "/lock", timeout_s=1.0)
    assert held is not None
    assert not is_awaited(host, "/lock", timeout_s=1.0)
    assert lock_in_line(host, "/lock", timeout_s=1.0) is None
    held.release()


class Refusing(Through):
    """A file system that makes no file for a line."""

    def __init__(self, inner: Any, code: int) -> None:
        super().__init__(inner)
        self._code = code

    def lock(self, path: str, *, exclusive: bool, timeout_s: float = 0.0, note: str = "") -> Lock | None:
        if path.endswith("-next"):
            raise translate(OSError(self._code, "refused"), "lock", path)
        return cast(Lock | None, self._inner.lock(path, exclusive=exclusive, timeout_s=timeout_s, note=note))


@pytest.mark.parametrize("polite", [True, False])
def test_those_who_come_and_go_hold_nobody_up(tmp_path: Path, polite: bool) -> None:
    """Some always share the lock: who looks for the line lets him have it, and else he would never."""
    host, path = real_host(), str(tmp_path / "lock")
    got = list[Lock | None]()
    waiter = Thread(target=lambda: got.append(lock_in_line(host, path, timeout_s=60.0 if polite else 1.0)))
    held = shared(host, path)
    waiter.start()
    while waiter.is_alive():
        if not polite or not is_awaited(host, path):
            behind = host.fs.lock(path, exclusive=False)
            if behind is not None:
                held.release()
                held = behind
        else:
            held.release()
    waiter.join()
    assert (got[0] is not None) is polite
    held.release()


def shared(host: Host, path: str) -> Lock:
    held = host.fs.lock(path, exclusive=False)
    assert held is not None
    return held
