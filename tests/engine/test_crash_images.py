"""Power cuts at every effect of every scenario: no legal disk breaks an invariant (architecture §4).

``ENGINE_IMAGES=8`` looks at about eight times as many images, at every effect and in more variants each.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.helpers.engine_explorer import Explorer
from tests.helpers.engine_scenarios import SCENARIOS, init

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


def test_tens_of_thousands_of_images_run() -> None:
    assert FLOOR * len(DISKS) * len(SCENARIOS) >= 10_000
