"""What a checkpoint publishes at a time: all of it, in order, and never so little that it goes out loose."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.framing import Record
from agentsession_cas.objects.publish import LOOSE_BELOW
from agentsession_cas.sessions import records
from agentsession_cas.sessions.records import in_parts

SIZES = st.lists(st.integers(0, 300), max_size=400)


@settings(max_examples=100, deadline=None)
@given(SIZES, st.integers(LOOSE_BELOW, 3 * LOOSE_BELOW), st.integers(1, 20_000))
def test_parts_are_everything_in_order_and_none_is_small(sizes: list[int], part_max: int, part_bytes: int) -> None:
    taken = [Record(bytes([at % 256]), b"", b"x" * size) for at, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_PART_MAX", part_max)
        patch.setattr(records, "_PART_BYTES", part_bytes)
        parts = list(in_parts(taken))
    assert [each for part in parts for each in part] == taken
    assert len(parts) == 1 or min(map(len, parts)) >= LOOSE_BELOW
    if len(taken) >= 4 * LOOSE_BELOW:
        assert len(parts) > 1 or (part_max > len(taken) // 2 and 2 * part_bytes > sum(sizes))
