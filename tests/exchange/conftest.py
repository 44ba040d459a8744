"""Stores that exchange sessions, all of one simulated disk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentsession_cas.testing.simfs import Sim
from tests.helpers.exchange import A, B, C, Three, stores


@pytest.fixture
def three() -> Iterator[Three]:
    """Three empty stores."""
    with stores(Sim().host, A, B, C) as (a, b, c):
        yield a, b, c
