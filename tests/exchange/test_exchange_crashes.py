"""Exchanges cut short by power cuts and kills, at every effect that settles something (store.md A11)."""

from __future__ import annotations

from tests.helpers.exchange_scenes import killed, power


def test_power_cuts() -> None:
    assert power(2, every=8) > 150


def test_kills() -> None:
    assert killed(1, 9) > 20
