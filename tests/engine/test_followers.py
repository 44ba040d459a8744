"""Followers beside a writer, their steps anywhere between and inside its effects, and across power cuts.

Each entry is told once and in order, or a Reset says that what was told is void; what a follower of committed entries
was told is never void.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.testing.simfs import Sim
from tests.helpers.engine import Player, observe
from tests.helpers.engine_explorer import BUDGET
from tests.helpers.engine_followers import Listener, followed_inside, watched_followers
from tests.helpers.engine_model import World
from tests.helpers.engine_scenarios import SCENARIOS, Scenario
from tests.helpers.stores import opened

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("sector", [512, 4096])
@pytest.mark.parametrize("name", sorted(SCENARIOS.keys() - {"blobs"}))
def test_followers_are_told_everything_once(name: str, sector: int) -> None:
    tries = round((40 if name in ("rows", "raised") else 150) * BUDGET)
    assert watched_followers(name, SCENARIOS[name], sector=sector, tries=tries) > tries // 2


def appends(player: Player) -> None:
    """Some durable, some not, a batch, a branch, a head move."""
    for size, durable in ((90, False), (700, True), (3000, False), (60, False), (5000, True)):
        player.append("s", size, durable=durable)
    player.append("s", 50, 60, 70)
    player.append("s", 100, under=0)
    player.set_head("s", 2, durable=True)
    player.append("s", 80)


def checkpoints(player: Player) -> None:
    """Rows that are told before, while and after they move to the log."""
    player.append("s", *[20] * 34)
    player.on("sync", "/log-0", lambda: player.append("s", 400, durable=True))
    player.checkpoint("s")
    player.append("s", 60)
    player.on("create", "/tmp/", lambda: player.append("s", 700))
    player.on("sync", "/log-0", lambda: player.append("s", 80))
    player.checkpoint("s")
    player.append("s", 60, durable=True)


def recoveries(player: Player) -> None:
    """Writers that went without a word, and what the next one makes of what they left."""
    player.append("s", 250, durable=True)
    for size in (120, 3000):
        player.append("s", size)
        player.append("s", 60, 60)
        player.abandon("s")
        player.open("s")
        player.append("s", size, durable=size > 200)
    player.checkpoint("s")
    player.append("s", 70)
    player.reopen("s")
    player.append("s", 90)


@pytest.mark.parametrize("sector", [512, 4096])
@pytest.mark.parametrize("scenario", [appends, checkpoints, recoveries])
def test_inside_every_effect_and_across_a_power_cut(scenario: Scenario, sector: int) -> None:
    assert followed_inside(scenario, Sim(sector=sector, seed=1), round(3 * BUDGET)) > 10


_STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(st.sampled_from([20, 300, 5000]), min_size=1, max_size=3), st.booleans()),
    st.tuples(st.just("branch"), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("head"), st.integers(-1, 9), st.booleans()),
    st.tuples(st.sampled_from(["checkpoint", "commit", "reopen", "abandon"])),
    st.tuples(st.just("look"), st.integers(0, 1), st.integers(1, 4)),
    st.tuples(st.just("again"), st.integers(0, 1)),
    st.tuples(st.just("crash"), st.integers(0, 5)),
)


@settings(max_examples=round(60 * BUDGET), deadline=None)
@given(steps=st.lists(_STEPS, min_size=3, max_size=25))
def test_any_interleaving_tells_each_entry_once_or_resets(steps: list[tuple[Any, ...]]) -> None:
    """Looks of two followers, one of committed entries, between appends, checkpoints, recoveries and power cuts."""
    beside = Beside()
    for step in (*steps, ("look", 0, 1000), ("look", 1, 1000)):
        beside.act(*step)
    visible, committed = beside.listeners
    own = [entry.line for entry in beside.player.world.sessions["s"].own]
    assert visible.own == own
    assert committed.own == own[: len(committed.own)]
    assert committed.resets == 0


class Beside:
    """A machine, a writer of session ``s`` and two followers beside it."""

    def __init__(self) -> None:
        self.sim = Sim()
        self.player = Player(self.sim.host, World())
        self.player.create("s")
        self.player.append("s", 50, durable=True)
        self._store = opened(self.sim.process("p2"))
        self.listeners = [Listener(self._store, "s", committed=committed) for committed in (False, True)]

    def act(self, what: str, *how: Any) -> None:
        """One step."""
        player = self.player
        match what:
            case "append":
                player.append("s", *how[0], durable=how[1])
            case "branch":
                player.append("s", 40, under=how[0], durable=how[1])
            case "head":
                player.set_head("s", how[0], durable=how[1])
            case "look":
                listener = self.listeners[how[0]]
                for _ in range(how[1]):
                    listener.look()
            case "again":
                self._resume(how[0])
            case "crash":
                self._crash(how[0])
            case _:
                getattr(player, what)("s")

    def _resume(self, which: int) -> None:
        """Follow anew from the cursor told last."""
        old = self.listeners[which]
        old.close()
        self.listeners[which] = old.resumed(self._store)

    def _crash(self, keep: int) -> None:
        """The power fails, and the machine goes on with what its disk may have kept."""
        images = list(self.sim.images(6))
        self.sim = images[keep % len(images)]
        world = self.player.world
        self.player = Player(self.sim.host, world)
        self.player.world = world.settle(observe(self.player.store, "crash"), "crash")
        self._store = opened(self.sim.process("p2"))
        for which in (0, 1):
            self._resume(which)
