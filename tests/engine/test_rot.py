"""Bytes that change at rest: named as damage or without effect, never served wrong, never taken for a lost tail."""

from __future__ import annotations

import pytest

from agentsession_cas.core.packformat import Space
from agentsession_cas.core.zframes import compress
from agentsession_cas.sessions.rowmaker import digest_of
from agentsession_cas.testing.simfs import Sim
from tests.helpers.engine import Player, observe
from tests.helpers.engine_explorer import BUDGET
from tests.helpers.engine_model import World
from tests.helpers.engine_rot import rot
from tests.helpers.engine_scenarios import SCENARIOS
from tests.helpers.stores import ROOT

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("name", ["durable", "batch", "checkpoint", "rows", "reopen", "head", "raised"])
def test_every_file_of_a_session(name: str) -> None:
    stride = max(1, round((211 if name == "rows" else 37) / BUDGET))
    assert rot(name, SCENARIOS[name], stride=stride) > 20


@pytest.mark.parametrize("name", ["durable", "checkpoint"])
def test_without_head_only_the_last_group_may_pass_for_lost(name: str) -> None:
    assert rot(name, SCENARIOS[name], stride=37, seed=1, headless=True) > 20


@pytest.mark.parametrize("space", [Space.CONTENTS, Space.ENTRIES])
def test_a_rotten_object_does_not_swallow_the_only_good_copy(space: Space) -> None:
    """The journal holds it until the checkpoint, which has to notice that what is there is not it."""
    sim = Sim()
    player = Player(sim.host, World())
    player.create("s")
    player.append("s", 300, durable=True)
    entry = player.world.sessions["s"].own[0]
    digest = digest_of(entry.content_hash if space is Space.CONTENTS else entry.id)
    directory = f"{ROOT}/objects/{space.name.lower()}"
    for path in (directory, f"{directory}/{digest[:1].hex()}"):
        sim.host.fs.mkdir(path)
    rotten = sim.host.fs.create(f"{directory}/{digest[:1].hex()}/{digest[1:].hex()}")
    rotten.pwrite(compress(b"rotten"), 0)
    rotten.close()
    player.checkpoint("s")
    for image in sim.images(20):
        player.world.settle(observe(Player(image.host, World(made=True)).store, "rotten"), "rotten")
