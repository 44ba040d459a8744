"""Exchanges cut short by power cuts and kills, at every effect that settles something (store.md A11)."""

from __future__ import annotations

import pytest

from agentsession_cas.errors import AgentSessionError
from agentsession_cas.sessions import opening
from agentsession_cas.testing.simfs import Sim
from tests.helpers.exchange import A, B, grow, stores
from tests.helpers.exchange_scenes import killed, many_sessions, power

pytestmark = pytest.mark.heavy


def test_power_cuts() -> None:
    assert power(2, every=8) > 150


def test_kills() -> None:
    assert killed(1, 8) > 20


def test_power_cuts_while_many_sessions_are_made_at_once() -> None:
    assert many_sessions(lambda a: a.push(B, all=True)) > 25


def test_names_that_were_not_synced_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seeded mistake: the one sync of all names is left out."""

    held = opening.hold_placed

    def unsynced(services: object, sessions: str, *rest: object) -> object:
        fs = services.host.fs  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setattr(type(fs), "sync_dir", lambda *_: None)
            return held(services, sessions, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("agentsession_cas.exchange.intake.hold_placed", unsynced)
    with pytest.raises((AgentSessionError, AssertionError)):
        many_sessions(lambda a: a.push(B, all=True))


def test_many_sessions_share_their_syncs() -> None:
    """Three syncs each, of header, journal and directory, and a handful for all of them."""
    sim, syncs = Sim(), 0

    def count(kind: str, path: str) -> None:
        nonlocal syncs
        syncs += kind in ("sync", "sync_dir")

    with stores(sim.host, A, B) as (a, _):
        for number in range(40):
            grow(a, f"s{number}", "1", "2")
        sim.watch(count)
        assert len(a.push(B, all=True)) == 40
        sim.watch(None)
    assert syncs <= 3 * 40 + 8
