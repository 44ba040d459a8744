"""One checksum over many rows against the test of each row."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.rows import ROW_SIZE, log_seed, seal_row, sealed_count
from agentsession_cas.core.rowsums import RowSums, row_sums

COUNTS = st.integers(0, 7).map(lambda power: 1 << power)
SEEDS = st.binary(min_size=16, max_size=16).map(lambda birth: log_seed(birth, 3))
PLACES = st.integers(0, 2**40)


def sealed(count: int, first: int, seed: int, chance: random.Random) -> bytes:
    """So many sound rows of any content."""
    return b"".join(seal_row(chance.randbytes(ROW_SIZE - 4), first + at, seed) for at in range(count))


@settings(deadline=None)
@given(COUNTS, PLACES, SEEDS, st.randoms(use_true_random=False))
def test_sound_rows_are_sound_together(count: int, place: int, seed: int, chance: random.Random) -> None:
    data = sealed(count, place * count, seed, chance)
    assert sealed_count(data, place * count, seed) == count
    assert RowSums(count).sound(data, place * count, seed)


@settings(deadline=None, max_examples=200)
@given(COUNTS, PLACES, SEEDS, st.randoms(use_true_random=False), st.integers(1, 9))
def test_damage_is_seen_as_it_is_row_by_row(
    count: int, place: int, seed: int, chance: random.Random, strokes: int
) -> None:
    data = bytearray(sealed(count, place * count, seed, chance))
    for _ in range(strokes):
        start = chance.randrange(len(data))
        with_what = chance.choice([bytes(1), bytes(ROW_SIZE), bytes(512), chance.randbytes(9), bytes([1 << 5])])
        data[start : start + len(with_what)] = with_what[: len(data) - start]
    rows = bytes(data)
    assert RowSums(count).sound(rows, place * count, seed) == (sealed_count(rows, place * count, seed) == count)


@settings(deadline=None)
@given(COUNTS, PLACES, PLACES, SEEDS, SEEDS, st.randoms(use_true_random=False))
def test_rows_of_another_place_or_log_are_not_taken(
    count: int, place: int, other: int, seed: int, strange: int, chance: random.Random
) -> None:
    sums, data = RowSums(count), sealed(count, place * count, seed, chance)
    assert sums.sound(data, other * count, seed) == (other == place)
    assert sums.sound(data, place * count, strange) == (strange == seed)


def test_rows_that_changed_places_are_seen() -> None:
    chance, seed = random.Random(1), log_seed(bytes(16), 0)
    data = sealed(512, 1024, seed, chance)
    rows = [data[at : at + ROW_SIZE] for at in range(0, len(data), ROW_SIZE)]
    rows[3], rows[400] = rows[400], rows[3]
    assert row_sums(512).sound(data, 1024, seed)
    assert not row_sums(512).sound(b"".join(rows), 1024, seed)
    assert not row_sums(512).sound(data[:-ROW_SIZE], 1024, seed)
