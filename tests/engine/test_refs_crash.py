"""Refs under power cuts, kills and failing disks: an update is there whole, or not at all (architecture §3)."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from agentsession_cas.errors import AgentSessionError
from tests.helpers.refs_world import World, machine, power, resume, scenario, second
from tests.helpers.stores import opened

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("tear", [False, True])
def test_power_cut_at_every_effect(tear: bool) -> None:
    assert power(2, tear=tear) > 400


def test_a_second_process_goes_on_from_what_a_killed_one_left() -> None:
    assert resume(0, 4) > 30


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_a_failing_disk_changes_nothing_or_all(code: int) -> None:
    """Each operation fails once; what was refused is tried again, and holds then."""
    for at in range(1, 10_000, 4):
        sim, world = machine(), World()
        fault = sim.fail(at, code)
        with suppress(AgentSessionError), opened(sim.host) as store:
            scenario(store, world)
        if not fault.hits:
            break
        sim.kill("p1")
        sim.heal()
        second(sim, world, f"{errno.errorcode[code]} at {at}")
    assert at > 50
