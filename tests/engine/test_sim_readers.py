"""Readers without a lock, their steps anywhere between and inside a writer's effects: whole states, never an error."""

from __future__ import annotations

import pytest

from tests.helpers.engine_explorer import BUDGET
from tests.helpers.engine_readers import watched_readers
from tests.helpers.engine_scenarios import SCENARIOS

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("sector", [512, 4096])
@pytest.mark.parametrize("name", SCENARIOS)
def test_readers_see_whole_states(name: str, sector: int) -> None:
    tries = round((300 if name in ("rows", "raised") else 1200) * BUDGET)
    assert watched_readers(name, SCENARIOS[name], sector=sector, tries=tries) == tries


def test_a_session_made_anew_under_a_reader_is_not_mixed_with_the_old_one() -> None:
    watched_readers("delete", SCENARIOS["delete"], sector=512, tries=6000, seed=1)
