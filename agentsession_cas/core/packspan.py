"""Neighbouring blocks of a pack at once: for less than one by one, and mostly without the interpreter.

Pure. Invariants: what comes out is what ``packformat.decode_block`` gives of each; one that is not what its table says
ends it. Must not: verify objects against names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from zlib import crc32

from agentsession_cas.core.packformat import Block, BlockRef, expanded_block
from agentsession_cas.core.zframes import Dictionary, Frames
from agentsession_cas.errors import Corrupt

__all__ = ["Frame", "Span"]

Frame = tuple[int, BlockRef, bytes]
"""A block as it lies in its pack: its number, what the table says of it, its frame."""


class Span:
    """Blocks of bodies and pieces, in order. ``dictionaries`` has all they were made with."""

    __slots__ = ("_refs", "_runs")

    def __init__(self, frames: Sequence[Frame], dictionaries: Mapping[int, Dictionary]) -> None:
        sound = len(frames)
        for at, (_, ref, frame) in enumerate(frames):
            if crc32(frame) != ref.crc or len(frame) != ref.size:
                sound = at
                break
        self._refs = [(number, ref) for number, ref, _ in frames[:sound]]
        self._runs: list[tuple[list[int], Frames]] = []
        for made_with in {ref.dictionary for _, ref in self._refs}:
            same = [(number, ref.raw, frame) for number, ref, frame in frames[:sound] if ref.dictionary == made_with]
            numbers, sizes, held = (list(column) for column in zip(*same, strict=True))
            self._runs.append((numbers, Frames(held, sizes, dictionaries.get(made_with))))

    def expand(self) -> None:
        """What takes time: any thread may do it."""
        for _, frames in self._runs:
            frames.expand()

    def blocks(self) -> Iterator[tuple[int, BlockRef, Block]]:
        """The blocks by their numbers, up to the first that is not what its table says."""
        held: dict[int, bytes] = {}
        for numbers, frames in self._runs:
            held.update(zip(numbers, frames.held(), strict=False))
        with suppress(Corrupt):
            for number, ref in self._refs:
                data = held.get(number)
                if data is None:
                    return
                yield number, ref, expanded_block(ref, data)
