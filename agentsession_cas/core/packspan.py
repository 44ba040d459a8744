"""Neighbouring blocks of a pack at once: for less than one by one, and mostly without the interpreter.

Pure. Invariants: what comes out is what ``packformat.decode_block`` gives of each; one that is not what its table says
ends it. Objects are named by their bytes, and so right wherever they come from. Must not: read files.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Final
from zlib import crc32

from agentsession_cas.core.packformat import Block, Codec, Space, Table, plain_block
from agentsession_cas.core.zframes import Dictionary, Frames
from agentsession_cas.errors import Corrupt

__all__ = ["Span", "Taken"]

_BLOCKS_MAX: Final = 1536
_TOGETHER: Final = frozenset({int(Space.CONTENTS), int(Space.PIECES)})
_SPLIT: Final = int(Codec.SPLIT)
_NONE: Final[frozenset[int]] = frozenset()
_WORDS: Final = tuple(struct.Struct(f"<{count}I") for count in range(64))
_PIECES: Final = int(Space.PIECES)
_CODECS: Final = frozenset({int(Codec.PLAIN), int(Codec.SPLIT)})


class Taken:
    """What came of blocks: whole objects by digest, skeletons, encoded, by theirs; pieces as blocks by number.

    ``last`` is the number of the last block that was what its table says, -1 when none was.
    """

    __slots__ = ("last", "pieces", "split", "whole")

    def __init__(self, pieces: Mapping[int, Block]) -> None:
        self.whole: dict[bytes, bytes] = {}
        self.split: dict[bytes, bytes] = {}
        self.pieces = pieces
        self.last = -1


class Span:
    """The blocks of bodies and pieces from one on that hold ``size`` bytes at most; others count as they lie there.

    ``start`` and ``size`` say which bytes of the pack they are: :meth:`fill` takes these. ``first`` and ``last`` are
    block numbers, ``last`` -1 for no block.
    """

    __slots__ = ("_columns", "_expanded", "_frames", "_pieces", "_places", "first", "last", "size", "start")

    def __init__(self, table: Table, first: int, size: int) -> None:
        columns = table.columns(first, min(table.blocks, first + _BLOCKS_MAX))
        places: list[int] = []
        offsets, firsts = columns.offsets, columns.firsts
        for at, (raw, space) in enumerate(zip(columns.raws, columns.spaces, strict=True)):
            together = space in _TOGETHER
            size -= raw if together else offsets[at + 1] - offsets[at]
            if size < 0 or (together and columns.codecs[at] not in _CODECS):
                break
            if offsets[at] >= offsets[at + 1] or firsts[at] >= firsts[at + 1]:  # the table makes no sense
                break
            if together:
                places.append(at)
        self._columns = columns
        self._places = places
        self._frames: list[tuple[list[int], Frames]] = []
        self._expanded: dict[int, bytes] | None = None
        self._pieces: dict[int, Block] | None = None
        self.first = first
        self.last = first + places[-1] if places else -1
        self.start = offsets[places[0]] if places else 0
        self.size = max(0, offsets[places[-1] + 1] - self.start) if places else 0

    def dictionaries(self) -> set[int]:
        """The ids of the dictionaries they were made with."""
        return {self._columns.dictionaries[at] for at in self._places} - {0}

    def fill(self, data: bytes, dictionaries: Mapping[int, Dictionary]) -> None:
        """Take the bytes of the pack that hold them."""
        offsets, crcs, start = self._columns.offsets, self._columns.crcs, self.start
        frames = [data[offsets[at] - start : offsets[at + 1] - start] for at in self._places]
        for place, (at, frame) in enumerate(zip(self._places, frames, strict=True)):
            if crc32(frame) != crcs[at]:
                del self._places[place:]
                break
        made_with = [self._columns.dictionaries[at] for at in self._places]
        for number in set(made_with):
            same = [place for place, each in enumerate(made_with) if each == number]
            sizes = [self._columns.raws[self._places[place]] for place in same]
            held = Frames([frames[place] for place in same], sizes, dictionaries.get(number))
            self._frames.append(([self._places[place] for place in same], held))

    def expand(self) -> None:
        """What takes time: any thread may do it."""
        for _, frames in self._frames:
            frames.expand()

    def pieces(self) -> dict[int, Block]:
        """The blocks of pieces by number, but for those that do not read; each time the same."""
        if self._pieces is None:
            columns, held = self._columns, self._held()
            pieces: dict[int, Block] = {}
            for at in self._places:
                if columns.spaces[at] == _PIECES and at in held:
                    first, count = columns.firsts[at], columns.firsts[at + 1] - columns.firsts[at]
                    with suppress(Corrupt):
                        pieces[self.first + at] = plain_block(held[at], count, first, columns.codecs[at])
            self._pieces = pieces
        return self._pieces

    def _held(self) -> dict[int, bytes]:
        """What the frames hold, by place: whatever could be expanded."""
        if self._expanded is None:
            self._expanded = {}
            for places, frames in self._frames:
                self._expanded.update(zip(places, frames.held(), strict=False))
        return self._expanded

    def taken(self) -> Taken:
        """What they hold, up to the first that is not what its table says."""
        columns, held, taken = self._columns, self._held(), Taken(self.pieces())
        for at in self._places:
            count = columns.firsts[at + 1] - columns.firsts[at]
            if at not in held:
                break
            if columns.spaces[at] == _PIECES:
                if self.first + at not in taken.pieces:
                    break
            elif not _sort_out(held[at], count, columns.codecs[at], taken.whole, taken.split):
                break
            taken.last = self.first + at
        return taken


def _sort_out(data: bytes, count: int, codec: int, whole: dict[bytes, bytes], split: dict[bytes, bytes]) -> bool:
    """Add a block's whole objects by the digests of their bytes; its skeletons, encoded, by the digests these note.

    ``data`` is what its frame of codec PLAIN or SPLIT holds. False when it is none of ``count`` objects: what was added
    is right all the same.
    """
    words, places = count, _NONE
    if codec == _SPLIT:
        words += 1 + int.from_bytes(data[:4], "little")
    if 4 * words > len(data) or words > 2 * count + 1:
        return False
    lengths = (_WORDS[words] if words < len(_WORDS) else struct.Struct(f"<{words}I")).unpack_from(data)
    start = 4 * words
    if words > count:
        places, lengths = frozenset(lengths[1:-count]), lengths[-count:]
    for at, length in enumerate(lengths):
        each = data[start : start + length]
        start += length
        if at in places:
            split[each[:32]] = each
        else:
            whole[sha256(each).digest()] = each
    return start == len(data)
