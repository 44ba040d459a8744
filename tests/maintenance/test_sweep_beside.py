"""Another process at every step of a sweep: nobody loses anything, whatever he believed before."""

from __future__ import annotations

import pytest

from agentsession_cas.maintenance import sweep
from tests.helpers.sweep_scenes import ACTS, beside, within

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("name", ACTS)
def test_another_process_acts_at_every_step(name: str) -> None:
    start, stride = (0, 2) if name in ("twin", "name") else (len(name) % 3, 3)
    assert beside(ACTS[name], start=start, stride=stride, warm=name in ("twin", "put")) > 30


@pytest.mark.parametrize("name", ACTS)
def test_a_sweep_within_each_effect_of_another_process(name: str) -> None:
    assert within(ACTS[name], stride=1 if name == "name" else 3) > 5


@pytest.mark.parametrize("name", ["twin", "put"])
def test_another_process_acts_between_the_times_a_sweep_holds_the_store(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_AT_ONCE", 1)
    assert beside(ACTS[name], start=1, stride=3, warm=True) > 60
