"""Taking steps back: what lets one reading of a path serve every branch of a tree.

A reading (calls, runs) grows as a path grows. Walking a tree in file order of children, it goes down one branch, takes
its steps back to where the next one leaves, and goes on: each entry is read once, however many branches share it. State
changed past an :class:`Undo` is out of step afterwards, so a reading changes nothing but through one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from agentsession_cas.core.source import EntrySource

__all__ = ["Onward", "Undo", "walk_tree"]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Undo:
    """Changes to lists, mappings and attributes, and the way back from them."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def mark(self) -> int:
        """Where we are now, to :meth:`rewind` to."""
        return len(self._steps)

    def rewind(self, mark: int) -> None:
        """Take back every change made since ``mark``, the last one first."""
        while len(self._steps) > mark:
            self._steps.pop()()

    def forget(self) -> None:
        """Nothing done so far is ever taken back: earlier marks are void."""
        self._steps.clear()

    def step(self, back: Callable[[], object]) -> None:
        """Remember the way back from a change made elsewhere."""
        self._steps.append(back)

    def append(self, items: list[T], item: T) -> None:
        """Append to a list."""
        items.append(item)
        self._steps.append(items.pop)

    def pop(self, items: list[T]) -> T:
        """Take the last one off a list."""
        item = items.pop()
        self._steps.append(partial(items.append, item))
        return item

    def put(self, mapping: dict[K, V], key: K, value: V) -> None:
        """Set a key of a mapping."""
        if key in mapping:
            self._steps.append(partial(mapping.__setitem__, key, mapping[key]))
        else:
            self._steps.append(partial(mapping.__delitem__, key))
        mapping[key] = value

    def set(self, holder: object, name: str, value: object) -> None:
        """Set an attribute."""
        self._steps.append(partial(setattr, holder, name, getattr(holder, name)))
        setattr(holder, name, value)


class Onward(Undo):
    """Changes that are never taken back: for a reading of one path, which would keep the way back from all of it."""

    __slots__ = ()

    def step(self, back: Callable[[], object]) -> None:
        """Nothing is remembered."""

    def append(self, items: list[T], item: T) -> None:
        """Append to a list."""
        items.append(item)

    def pop(self, items: list[T]) -> T:
        """Take the last one off a list."""
        return items.pop()

    def put(self, mapping: dict[K, V], key: K, value: V) -> None:
        """Set a key of a mapping."""
        mapping[key] = value

    def set(self, holder: object, name: str, value: object) -> None:
        """Set an attribute."""
        setattr(holder, name, value)


def walk_tree(source: EntrySource) -> Iterator[tuple[int, int, int]]:
    """Every entry once, a parent before its children, one branch after the other: (position, depth, children).

    Depth is 0 for a child of the universal root. Consecutive entries are parent and child, or the walk has gone back
    up: the entry's parent is then the last one yielded with the depth before its own.
    """
    count = len(source)
    first_child = [-1] * (count + 1)
    next_sibling = [-1] * count
    children = [0] * (count + 1)
    for position in range(count - 1, -1, -1):
        parent = source.parent(position)
        next_sibling[position] = first_child[parent]
        first_child[parent] = position
        children[parent] += 1
    position, depth = first_child[-1], 0
    turns: list[tuple[int, int]] = []
    while position >= 0:
        if next_sibling[position] >= 0:
            turns.append((next_sibling[position], depth))
        child = first_child[position]
        yield position, depth, children[position]
        if child >= 0:
            position, depth = child, depth + 1
        elif turns:
            position, depth = turns.pop()
        else:
            return
