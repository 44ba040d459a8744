"""Power cuts at every effect of every scenario: no legal disk breaks an invariant (architecture §4).

``ENGINE_IMAGES=8`` looks at about eight times as many images, at every effect and in more variants each.
"""

from __future__ import annotations

from typing import Final

import pytest

from agentsession_cas.sessions import staged, writer
from tests.helpers.engine import Player
from tests.helpers.engine_explorer import Explorer
from tests.helpers.engine_scenarios import SCENARIOS, init

pytestmark = pytest.mark.heavy

DISKS: Final = [(512, False), (512, True), (4096, False), (4096, True)]
DENSITY: Final = {
    "durable": 0.3,
    "lazy": 0.3,
    "batch": 0.4,
    "checkpoint": 0.15,
    "rows": 0.05,
    "busy": 0.12,
    "during": 0.25,
    "reopen": 0.15,
    "left": 0.08,
    "grow": 0.3,
    "head": 0.12,
    "held": 0.5,
    "fork": 0.09,
    "delete": 0.15,
    "raised": 0.08,
    "twins": 0.1,
    "blobs": 0.5,
}
"""Shares of the cuts that are looked at: the longer a scenario, the fewer."""
FLOOR: Final = 150
"""Images that each scenario gets on each disk, at the very least; most get several times that."""


@pytest.mark.parametrize(("sector", "tear"), DISKS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_power_cut_at_every_effect(name: str, sector: int, tear: bool) -> None:
    explorer = Explorer(sector=sector, tear=tear, density=DENSITY[name])
    explorer.power(name, SCENARIOS[name])
    assert explorer.images >= FLOOR


@pytest.mark.parametrize(("sector", "tear"), DISKS)
def test_power_cut_while_the_store_itself_is_made(sector: int, tear: bool) -> None:
    explorer = Explorer(sector=sector, tear=tear)
    explorer.power("init", init, fresh=True)
    assert explorer.images >= FLOOR


def ahead(player: Player) -> None:
    """Appends while a checkpoint copies what came meanwhile into the next generation."""
    player.create("s")
    player.append("s", 300, durable=True)
    for size in (60, 800):
        player.append("s", 200)
        player.on("sync", "/log-0", lambda: player.append("s", 400))
        batch = (size, 50, 70)
        player.on("sync", "/journal.next-", lambda batch=batch: player.append("s", *batch, durable=True))  # type: ignore[misc]
        player.checkpoint("s")
        player.append("s", 90, durable=True)
    player.reopen("s")


@pytest.mark.parametrize(("sector", "tear"), DISKS)
def test_power_cut_while_frames_are_copied_ahead(sector: int, tear: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_CARRIED_MAX", 0)
    monkeypatch.setattr(staged, "_PIECE", 256)
    explorer = Explorer(sector=sector, tear=tear, density=0.05)
    explorer.power("ahead", ahead)
    assert explorer.images >= FLOOR
