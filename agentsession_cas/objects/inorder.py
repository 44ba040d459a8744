"""Many objects read about in the order they were stored in, as a session reads its bodies.

Owns the objects of a few blocks: once a second one is wanted of one, all of them are hashed at once, and those that
follow need no index. Of a body's pieces the one behind the piece read last is tried first, and where the others lie is
remembered. Invariants: what is returned hashes to its name; where none of this shows an object, the database's own
``get`` answers, or says what is wrong. Safe for threads: each thing held is one value, and a stale one costs time and
no more. Must not: open files, or hold one.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final

from agentsession_cas.core.packformat import Block, Space
from agentsession_cas.core.pieces import Cut, Skeleton, join
from agentsession_cas.errors import Corrupt, DiskError
from agentsession_cas.objects.packs import Pack, Packs, Place

__all__ = ["InOrder"]

_NO_BLOCK: Final = Block(b"", (0,), 0)
_HELD_MAX: Final = 4
"""Blocks whose objects are held: sessions that share their first bodies go to and fro."""
_PIECES_MAX: Final = 4096
"""Places of pieces that are remembered."""


class InOrder:
    """Reads objects of one space. ``use`` raises Closed once nothing may be read, ``get`` is the database's.

    ``piece`` gives what is probably the piece that a cut names, untested; what it raises of Corrupt or DiskError says
    that a body cannot be read in this way.
    """

    __slots__ = (
        "_at",
        "_get",
        "_held",
        "_next_piece",
        "_packs",
        "_piece",
        "_pieces",
        "_space",
        "_split",
        "_use",
        "_whole",
    )

    def __init__(
        self,
        packs: Packs,
        space: Space,
        use: Callable[[], None],
        get: Callable[[Space, bytes], bytes],
        piece: Callable[[Cut], bytes],
    ) -> None:
        self._packs = packs
        self._space = space
        self._use = use
        self._get = get
        self._piece = piece
        self._at: tuple[Pack, int] | None = None
        self._held: dict[tuple[Pack, int], tuple[dict[bytes, bytes], dict[bytes, tuple[Block, int]]]] = {}
        self._whole: dict[bytes, bytes] = {}
        self._split: dict[bytes, tuple[Block, int]] = {}
        self._next_piece = (_NO_BLOCK, 0)
        self._pieces: dict[bytes, Place] = {}

    def get(self, digest: bytes) -> bytes:
        """The object's bytes, hashed. Raises as ``ObjectDatabase.get`` does."""
        self._use()
        data = self._whole.get(digest)
        if data is None:
            data = self._found(digest)
        return self._get(self._space, digest) if data is None else data

    def _found(self, digest: bytes) -> bytes | None:
        """The object where a skeleton of the block or else an index shows it; None when neither does."""
        try:
            lies = self._split.get(digest) or self._sought(digest)
            if lies is None:
                return None
            block, number = lies
            stored = block.stored(number)
            if isinstance(stored, Skeleton):
                stored = join(stored, self._probable)
        except (Corrupt, DiskError):
            return None
        if sha256(stored).digest() == digest:
            return stored
        self._next_piece = (_NO_BLOCK, 0)
        self._pieces.clear()
        return None

    def _sought(self, digest: bytes) -> tuple[Block, int] | None:
        place = self._packs.seek(self._space, digest)
        if place is None:
            return None
        pack, at, number = place
        block = pack.block(at)
        held = self._held.get((pack, at))
        if held is None and self._at == (pack, at):
            whole, skeletons = block.by_digest()
            held = whole, {noted: (block, where) for noted, where in skeletons.items()}
            if len(self._held) >= _HELD_MAX:
                self._held.pop(next(iter(self._held)), None)
            self._held[pack, at] = held
        if held is not None:
            self._whole, self._split = held
        self._at = (pack, at)
        return block, number

    def _probable(self, cut: Cut) -> bytes | memoryview:
        """What is probably the piece: the next one if it is as long, else what lies where an index shows it."""
        block, number = self._next_piece
        found = block.view(number)
        if len(found) == cut.length:
            self._next_piece = (block, number + 1)
            return found
        known = self._pieces.get(cut.digest)
        place = known or self._packs.seek(Space.PIECES, cut.digest)
        if place is None:
            return self._piece(cut)
        block = place.pack.block(place.block)
        if known is None:
            self._next_piece = (block, place.number + 1)
            if len(self._pieces) >= _PIECES_MAX:
                self._pieces.clear()
            self._pieces[cut.digest] = place
        return block.view(place.number)
