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
from typing import Final, NamedTuple

from agentsession_cas.core.packformat import Block, Space
from agentsession_cas.core.pieces import Cut, Skeleton, join
from agentsession_cas.errors import Corrupt, DiskError
from agentsession_cas.objects.pack import Pack
from agentsession_cas.objects.packs import Packs, Place

__all__ = ["InOrder"]

_NO_BLOCK: Final = Block(b"", (0,), 0)
_RUNS_MAX: Final = 4
"""Runs of blocks whose objects are held: sessions that share their first bodies go to and fro."""
_NEAR: Final = 32
"""So many blocks behind a run is onwards still: pieces and envelopes lie in between."""
_AHEAD: Final = 1 << 16
"""Bytes of a pack that are read ahead then."""
_PIECES_MAX: Final = 4096
"""Places of pieces that are remembered."""


class _Run(NamedTuple):
    """Blocks ``first`` to ``last`` of a pack: their whole objects, and where their skeletons lie, by digest."""

    pack: Pack
    first: int
    last: int
    whole: dict[bytes, bytes]
    split: dict[bytes, tuple[Block, int]]


class InOrder:
    """Reads objects of one space. ``use`` raises Closed once nothing may be read, ``get`` is the database's.

    ``piece`` gives what is probably the piece that a cut names, untested; what it raises of Corrupt or DiskError says
    that a body cannot be read in this way.
    """

    __slots__ = (
        "_at",
        "_get",
        "_next_piece",
        "_packs",
        "_piece",
        "_pieces",
        "_runs",
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
        self._at: tuple[Pack | None, int] = (None, 0)
        self._runs: tuple[_Run, ...] = ()
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

    def shows(self, skeleton: Skeleton) -> bool:
        """Whether a body comes out right of what are probably its pieces, which these are then; False says nothing."""
        try:
            if sha256(join(skeleton, self._probable)).digest() == skeleton.digest:
                return True
        except (Corrupt, DiskError):
            pass
        self._next_piece = (_NO_BLOCK, 0)
        self._pieces.clear()
        return False

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
        run = self._run_at(pack, at)
        if run is not None:
            self._whole, self._split = run.whole, run.split
        self._at = (pack, at)
        return self._split.get(digest) or (pack.block(at), number)

    def _run_at(self, pack: Pack, at: int) -> _Run | None:
        """The run that a block is in, read when it is the second time, or behind a run; None when it is neither."""
        runs = self._runs
        for run in runs:
            if run.pack is pack and run.first <= at <= run.last:
                return run
        behind = any(run.pack is pack and run.last < at <= run.last + _NEAR for run in runs)
        if not behind and self._at != (pack, at):
            return None
        run = self._read_on(pack, at)
        self._runs = (run, *runs)[:_RUNS_MAX]
        return run

    def _read_on(self, pack: Pack, first: int) -> _Run:
        """A block and what is read ahead of it."""
        last = first
        whole: dict[bytes, bytes] = {}
        split: dict[bytes, tuple[Block, int]] = {}
        blocks = pack.bodies(first, _AHEAD) if self._space is Space.CONTENTS else ((first, pack.block(first)),)
        for last, block in blocks:  # noqa: B007 - the last one ends the run
            objects, skeletons = block.by_digest()
            whole |= objects
            split |= {noted: (block, number) for noted, number in skeletons.items()}
        return _Run(pack, first, last, whole, split)

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
