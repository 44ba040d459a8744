"""Refs read without a lock, step by step, while they are moved: each read is what a ref held, its log no other's."""

from __future__ import annotations

import pytest

from agentsession_cas import RefTarget, Store
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import NoRef, NoSession
from tests.helpers.refs_world import World, machine, scenario, seen
from tests.helpers.stores import opened

pytestmark = pytest.mark.heavy


def read(host: Host, name: str) -> tuple[RefTarget | None, list[tuple[RefTarget | None, RefTarget | None, str]]]:
    """What a name holds, and then its log, oldest first."""
    with Store.open("/store", host=host, read_only=True, background=False) as store:
        try:
            held: RefTarget | None = store.resolve_ref(name)
        except NoRef:
            held = None
        except NoSession as error:
            held = RefTarget(*error.target) if error.target else None
        assert set(seen(store)) <= {"main", "keep/this", "chat"}
        return held, [(each.old, each.new, each.reason) for each in store.ref_log(name)][::-1]


def test_readers_beside_a_writer() -> None:
    sim, world = machine(), World()
    sim.record()
    with opened(sim.host) as store:
        scenario(store, world)
    names = list(world.log)
    found: set[tuple[str, int]] = set()
    for number, (_, host) in enumerate(sim.readers(600)):
        name = names[number % len(names)]
        held, log = read(host, name)
        whole = world.log[name]
        assert log == whole[: len(log)]
        assert held in (None, *(to for _, to, _ in whole))
        if held is not None:  # the log is read afterwards, and has that update at least
            assert held in [to for _, to, _ in log]
        found.add((name, len(log)))
    assert found >= {("main", length) for length in range(len(world.log["main"]) + 1)}
