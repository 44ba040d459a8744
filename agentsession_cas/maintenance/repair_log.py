"""What is left of a log, plain and packed: its rows by number, and the seed that seals them.

Owns the guess at a seed: when the journal that names the log is lost, whole rows and the front of a packed log yield
it, for a CRC can be undone. Pure: bytes in, values out; nothing raises. Must not: decide what a session is.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Final

import zstandard

from agentsession_cas.core.framing import Generation
from agentsession_cas.core.packedrows import PIECE_ROWS, decode_front, decode_piece, front_size, sum_of
from agentsession_cas.core.rows import ROW_SIZE, log_seed, sealed_ok, whole_rows
from agentsession_cas.errors import Corrupt

__all__ = ["LogRemains", "sealed", "seed_of"]

_BODY: Final = ROW_SIZE - 4
_VOTES: Final = 64
"""Rows asked for the seed, at most; the front of a packed log counts as many."""
_PACKED_ROWS: Final = slice(8, 12)
"""Where the front of a packed log says how many rows it has."""
_ROWS_MAX: Final = 1 << 28


class LogRemains:
    """A log: ``plain`` and ``packed`` are the bytes of its two files, b"" for one that is not there.

    ``seed`` seals its rows, ``packed`` of them are, or should be, packed, ``count`` is how many it may have at all.
    """

    def __init__(
        self, plain: bytes, packed: bytes, generation: Generation | None, tail: bytes, guess: Generation | None
    ) -> None:
        self._plain = plain
        self.packed = generation.packed if generation is not None else 0
        if generation is None and packed:
            self.packed = min(int.from_bytes(packed[_PACKED_ROWS], "little"), _ROWS_MAX)
        self._start = whole_rows(self.packed)
        if generation is not None:
            self.seed = log_seed(generation.birth, generation.log)
        else:
            self.seed = self._voted(packed, tail, guess)
        self._believed: dict[int, bytes] = {}
        self._doubts: dict[int, bytes] = {}
        if packed and self.packed:
            self._unpack(packed)
        self.count = max(self.packed, self._start + len(plain) // ROW_SIZE)

    @property
    def believed(self) -> int:
        """The number behind the last row that is believed."""
        plain = range(self.count - 1, self._start - 1, -1)
        last = next((at + 1 for at in plain if self._plain_row(at) is not None), 0)
        return max(last, 1 + max(self._believed, default=-1))

    def row(self, number: int) -> bytes | None:
        """The 124 bytes of a row that is believed, else None."""
        found = self._believed.get(number)
        return self._plain_row(number) if found is None else found

    def doubt(self, number: int) -> bytes:
        """What may be left of a row that is not believed, b"" for nothing."""
        offset = (number - self._start) * ROW_SIZE
        return self._doubts.get(number) or (self._plain[offset : offset + _BODY] if offset >= 0 else b"")

    def _plain_row(self, number: int) -> bytes | None:
        at = number - self._start
        return sealed(self._plain, at, number, self.seed) if at >= 0 else None

    # --- packed rows ---

    def _unpack(self, data: bytes) -> None:
        """Rows of pieces whose sum holds are believed, of others that decode all the same doubted."""
        places: Sequence[tuple[int, int, int | None]]
        try:
            places = decode_front(data[: front_size(self.packed)], self.packed, self.seed).frames
        except Corrupt:
            places = _frames(data, front_size(self.packed))
        for index, (offset, size, crc) in enumerate(places):
            first = index * PIECE_ROWS
            count = min(PIECE_ROWS, self.packed - first)
            frame = data[offset : offset + size]
            try:
                rows = decode_piece(frame, first, count)
            except (Corrupt, ValueError):
                continue
            found = self._believed if crc is not None and sum_of(frame, self.seed) == crc else self._doubts
            found.update((first + at, rows[at * ROW_SIZE :][:_BODY]) for at in range(count))

    # --- the seed ---

    def _voted(self, packed: bytes, tail: bytes, guess: Generation | None) -> int:
        plain = self._plain
        places = [(plain, at, self._start + at) for at in range(min(len(plain) // ROW_SIZE, _VOTES))]
        places += [(tail, at, at) for at in range(len(tail) // ROW_SIZE)]  # of a session without a log
        votes = Counter(seed_of(data, at, number) for data, at, number in places if data[at * ROW_SIZE :][:1])
        if packed:
            front = packed[: front_size(self.packed)]
            votes[_undone(front[:-4], int.from_bytes(front[-4:], "little"))] += _VOTES
        if guess is not None:
            seed = log_seed(guess.birth, guess.log)
            votes[seed] += 1 if not packed else 2 * _VOTES * self._fits(packed, seed)
        return votes.most_common(1)[0][0] if votes else 0

    def _fits(self, packed: bytes, seed: int) -> bool:
        """Whether a packed log reads with a seed."""
        try:
            decode_front(packed[: front_size(self.packed)], self.packed, seed)
        except Corrupt:
            return False
        return True


def _frames(data: bytes, at: int) -> list[tuple[int, int, int | None]]:
    """Zstd frames one behind the other, without a sum: offset and size of each."""
    found: list[tuple[int, int, int | None]] = []
    while at < len(data):
        expander = zstandard.ZstdDecompressor().decompressobj()
        try:
            expander.decompress(data[at:])
        except zstandard.ZstdError:
            return found
        if not expander.eof:
            return found
        size = len(data) - at - len(expander.unused_data)
        found.append((at, size, None))
        at += size
    return found


def sealed(data: bytes, at: int, number: int, seed: int) -> bytes | None:
    """The 124 bytes of the row at place ``at`` when they are sealed as row ``number``, else None."""
    offset = at * ROW_SIZE
    return data[offset : offset + _BODY] if sealed_ok(data, offset, number, seed) else None


def seed_of(data: bytes, at: int, number: int) -> int:
    """The seed under which the row at place ``at`` would be sealed as row ``number``."""
    body, crc = data[at * ROW_SIZE : at * ROW_SIZE + _BODY], data[at * ROW_SIZE + _BODY : (at + 1) * ROW_SIZE]
    return _undone(number.to_bytes(8, "little") + body, int.from_bytes(crc, "little"))


def _undone(data: bytes, crc: int) -> int:
    """What a CRC-32 over ``data`` was seeded with when it came out as ``crc``."""
    changed = crc ^ zlib.crc32(data)
    seed = 0
    for column, image, made in _undoing(len(data)):
        if changed & column:
            seed ^= made
            changed ^= image
    return seed


@cache
def _undoing(size: int) -> list[tuple[int, int, int]]:
    """Which bits of a CRC over ``size`` bytes come from which bits of its seed: a bit, its image, what makes it.

    A CRC of a given length is the sum of a part that only the bytes decide and one that only the seed does.
    """
    zeros = bytes(size)
    nothing = zlib.crc32(zeros)
    left = [(zlib.crc32(zeros, 1 << bit) ^ nothing, 1 << bit) for bit in range(32)]
    steps: list[tuple[int, int, int]] = []
    for bit in reversed(range(32)):
        pivot = next(pair for pair in left if pair[0] >> bit & 1)
        left.remove(pivot)
        left = [(image ^ pivot[0], made ^ pivot[1]) if image >> bit & 1 else (image, made) for image, made in left]
        steps.append((1 << bit, *pivot))
    return steps
