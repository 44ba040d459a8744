"""Which objects are needed: a set of them that grows to millions, at eight bytes apiece.

Owns how an object is named in such a set: by its space and the first 48 bits of its digest, as an idx has them. Two
objects of one name are a matter of chance (one in ten million, in a store of as many objects), so what is *not* in a
set is surely not, and what is in it may now and then be another: the error is on the side of keeping. Pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import chain
from typing import Final

from agentsession_cas.core.packindex import key_of

__all__ = ["PARTS", "Marks", "mark_of_key"]

PARTS: Final = 256
"""A set lies in so many parts, by the first byte of the digests: who reads it whole has one part in memory."""

_DUE: Final = 1 << 20
"""Marks added since repeated ones were last dropped, at least, before that is done again."""


def mark_of_key(space: int, key: int) -> int:
    """What stands for the object of a space with that key (``packindex``)."""
    return key << 2 | space


class Marks:
    """A set of objects. What is added twice is there once, in the end."""

    def __init__(self) -> None:
        self._parts = [array("Q") for _ in range(PARTS)]
        self._added = 0
        self._due = _DUE

    def add(self, space: int, digest: bytes) -> None:
        """Add the object with that raw digest."""
        self.add_keys(space, (key_of(digest),))

    def add_keys(self, space: int, keys: Iterable[int]) -> None:
        """Add objects of a space by their keys."""
        parts, added = self._parts, 0
        for key in keys:
            parts[key >> 40].append(key << 2 | space)
            added += 1
        self._added += added
        if self._added > self._due:
            self._drop_repeated()

    def part(self, number: int) -> set[int]:
        """The marks of one part."""
        return set(self._parts[number])

    def all(self) -> set[int]:
        """Every mark."""
        return set(chain.from_iterable(self._parts))

    def _drop_repeated(self) -> None:
        for number, part in enumerate(self._parts):
            self._parts[number] = array("Q", set(part))
        self._added = sum(map(len, self._parts))
        self._due = 2 * self._added + _DUE
