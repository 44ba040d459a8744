"""Pieces of large strings that only dead bodies name.

Owns the rule that a body never stays without its pieces, not even a dead one, whenever the power fails: a piece is
*tied* to the dead bodies that name it. It goes together with them when all of them lie in one pack with it, and else
not before they are gone, which is in another round. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentsession_cas.core.marks import mark_of_key
from agentsession_cas.core.packformat import Space

__all__ = ["Tied"]


class Tied:
    """Such pieces by their marks, and the one pack that all their bodies lie in, if there is one."""

    def __init__(self) -> None:
        self._packs: dict[int, str] = {}

    def tie(self, keys: Iterable[int], stem: str) -> None:
        """A dead body that names the pieces of these keys lies in a pack, or ("") in a file."""
        for key in keys:
            mark = mark_of_key(Space.PIECES, key)
            if self._packs.setdefault(mark, stem) != stem:
                self._packs[mark] = ""

    def stays(self, mark: int, stem: str) -> bool:
        """Whether a piece that lies in a pack, or ("") in a file, has to outlive the dead bodies."""
        return mark in self._packs and (not stem or self._packs[mark] != stem)
