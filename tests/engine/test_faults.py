"""Every operation fails once, or for ever: errors are typed, nothing refused is seen, nothing acknowledged is lost.

A full disk takes a part of a write. A failed sync leaves the cache new and the disk old, and the next one succeeds. The
process goes on as a harness would, opening again what was poisoned; then a second process does; then the power fails.
"""

from __future__ import annotations

import errno
from typing import Final

import pytest

from agentsession_cas.testing.simfs import READS
from tests.helpers.engine_explorer import Explorer
from tests.helpers.engine_scenarios import SCENARIOS, init

pytestmark = pytest.mark.heavy

STRIDE: Final = {
    "durable": 5,
    "lazy": 5,
    "batch": 5,
    "during": 5,
    "grow": 5,
    "held": 5,
    "blobs": 5,
    "rows": 37,
    "raised": 29,
}
USUAL: Final = 17
"""One in so many operations fails, another one for each kind of fault."""
FAULTS: Final = {
    "EIO": (errno.EIO, None),
    "ENOSPC": (errno.ENOSPC, None),
    "EMFILE": (errno.EMFILE, None),
    "EIO on reads": (errno.EIO, READS),
    "EIO on syncs": (errno.EIO, frozenset({"sync", "sync_dir"})),
}


@pytest.mark.parametrize("forever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_operation_fails(name: str, fault: str, forever: bool) -> None:
    code, kinds = FAULTS[fault]
    explorer = Explorer(density=0.01, seed=list(FAULTS).index(fault))
    explorer.faults(name, SCENARIOS[name], code, forever=forever, kinds=kinds, stride=STRIDE.get(name, USUAL))


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_the_store_itself_cannot_be_made(code: int) -> None:
    explorer = Explorer(density=0.02)
    explorer.faults("init", init, code, fresh=True)
    assert explorer.images >= 100
