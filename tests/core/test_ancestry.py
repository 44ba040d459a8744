"""Who is above whom: against a walk, for every shape of tree, and at a cost that does not grow with it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.ancestry import Ancestry

CHOICES = st.lists(st.integers(0, 1_000_000), max_size=120)


def parents_of(choices: list[int]) -> list[int]:
    """A tree: each node hangs from the one before, mostly, or from any other, or from the root."""
    return [at - 1 if pick % 3 else pick // 3 % (at + 1) - 1 for at, pick in enumerate(choices)]


def is_above(parents: list[int], position: int, leaf: int) -> bool:
    """The same by walking."""
    while leaf > position:
        leaf = parents[leaf]
    return leaf == position >= 0


@settings(max_examples=150, deadline=None)
@given(CHOICES)
def test_it_says_what_a_walk_says(choices: list[int]) -> None:
    parents, ancestry = parents_of(choices), Ancestry()
    for parent in parents:
        ancestry.add(parent)
    every = range(-1, len(parents))
    for leaf in every:
        assert [ancestry.is_above(at, leaf) for at in every] == [is_above(parents, at, leaf) for at in every]


@settings(max_examples=150, deadline=None)
@given(CHOICES)
def test_a_path_is_what_a_walk_goes_through(choices: list[int]) -> None:
    parents, ancestry = parents_of(choices), Ancestry()
    for parent in parents:
        ancestry.add(parent)
    for leaf in range(-1, len(parents)):
        walked, at = [], leaf
        while at >= 0:
            walked.append(at)
            at = parents[at]
        walked.reverse()
        path = ancestry.path(leaf)
        assert [path[index] for index in range(len(path))] == walked
        places = {position: index for index, position in enumerate(walked)}
        assert [path.index(at) for at in range(-1, len(parents) + 1)] == [
            places.get(at, -1) for at in range(-1, len(parents) + 1)
        ]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1_000_000), st.integers(0, 9)), min_size=1, max_size=60))
def test_a_run_added_at_once_is_one_added_bit_by_bit(steps: list[tuple[int, int]]) -> None:
    single, runs = Ancestry(), Ancestry()
    for pick, count in steps:
        parent = pick % (single.size + 1) - 1
        single.add(parent)
        runs.add(parent)
        runs.add_run(count)
        for _ in range(count):
            single.add(single.size - 1)
    every = range(-1, single.size)
    assert runs.size == single.size
    assert all(runs.is_above(at, leaf) == single.is_above(at, leaf) for leaf in every for at in every)


@settings(max_examples=100, deadline=None)
@given(CHOICES, CHOICES, st.integers(0, 120))
def test_what_is_cut_is_forgotten(before: list[int], after: list[int], size: int) -> None:
    ancestry = Ancestry()
    kept = parents_of(before)[:size]
    for parent in parents_of(before):
        ancestry.add(parent)
    ancestry.cut(size)
    assert ancestry.size == len(kept)
    more = [at - 1 if pick % 3 else pick // 3 % (at + 1) - 1 for at, pick in enumerate(after, len(kept))]
    for parent in more:
        ancestry.add(parent)
    parents = kept + more
    leaf = len(parents) - 1
    assert [ancestry.is_above(at, leaf) for at in range(leaf + 1)] == [
        is_above(parents, at, leaf) for at in range(leaf + 1)
    ]


def test_a_comb_of_fifty_thousand_turns_takes_few_steps() -> None:
    """A spine of which every entry is a turn: the worst a session can be."""
    ancestry = Ancestry()
    ancestry.add(-1)
    spine = 0
    for _ in range(50_000):
        ancestry.add(spine)
        ancestry.add(spine)
        spine = ancestry.size - 1
    asked: list[int] = []
    jumps = ancestry._jumps

    class Counting:
        """The jumps, noting which are looked at."""

        def __getitem__(self, at: int) -> int:
            asked.append(at)
            return jumps[at]

    ancestry._jumps = Counting()  # type: ignore[assignment]
    for position in (0, 2, spine // 2, spine // 2 + 1, spine - 1):
        asked.clear()
        assert ancestry.is_above(position, spine) is (position % 2 == 0)
        assert len(asked) <= 60
