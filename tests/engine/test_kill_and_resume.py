"""A process dies at some effect, another goes on with what it sees, and then the power fails.

Only this finds that what exists is not yet durable: the second process sees names and bytes that no sync covered.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.helpers.engine_explorer import Explorer
from tests.helpers.engine_scenarios import SCENARIOS, init

pytestmark = pytest.mark.heavy

STRIDE: Final = {
    "rows": 19,
    "left": 19,
    "fork": 19,
    "raised": 17,
    "twins": 13,
    "busy": 13,
    "checkpoint": 11,
    "head": 11,
    "reopen": 11,
}
"""One in so many effects of a long scenario is where the first process dies."""


@pytest.mark.parametrize("torn", [False, True], ids=["between", "within"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_every_effect(name: str, torn: bool) -> None:
    explorer = Explorer(sector=4096 if torn else 512, density=0.03)
    explorer.resume(name, SCENARIOS[name], stride=STRIDE.get(name, 5), torn=torn)
    assert explorer.images >= 100


def test_killed_while_the_header_is_raised() -> None:
    """Found once: the new header was seen before its name was durable, under a HEAD that said all was."""
    explorer = Explorer(density=0.04)
    explorer.resume("raised", SCENARIOS["raised"], start=50, stop=65)
    assert explorer.images >= 100


def test_killed_while_the_store_itself_is_made() -> None:
    explorer = Explorer(density=0.02)
    explorer.resume("init", init, fresh=True)
    assert explorer.images >= 500
