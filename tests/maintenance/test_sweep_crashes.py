"""sweep and gc cut short, killed and lied to: nothing that is needed is ever lost, and in the end the dead are gone."""

from __future__ import annotations

import pytest

from agentsession_cas.maintenance import sweep
from tests.helpers.sweep_scenes import collected, cut_short, deleted_in_part, lying_disk, resumed, swept

pytestmark = pytest.mark.heavy


def test_power_cut_at_every_effect_of_a_sweep() -> None:
    assert cut_short(swept) > 100


def test_power_cut_at_effects_of_a_sweep_that_holds_the_store_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_AT_ONCE", 2)
    assert cut_short(swept, 2) > 100


def test_power_cut_at_every_effect_of_a_gc() -> None:
    assert cut_short(collected, 2) > 100


def test_killed_at_every_other_effect_of_a_sweep() -> None:
    assert resumed(swept, stride=2) > 30


def test_killed_at_effects_of_a_gc() -> None:
    assert resumed(collected, stride=7) > 60


def test_a_session_that_may_come_back_finds_its_objects() -> None:
    assert deleted_in_part() >= 3


def test_a_pack_that_reads_back_wrong_replaces_nothing() -> None:
    lying_disk()
