"""Many objects read about in the order they were stored in, as a session reads its bodies.

Owns the objects of a few blocks: once a second one is wanted of one, all of them are hashed at once, and those that
follow need no index. A reader that goes on has the next blocks read ahead (``ahead``). Of a body's pieces the one
behind the piece read last is tried first, and where the others lie is remembered. Invariants: what is returned hashes
to its name; where none of this shows an object, the database's own ``get`` answers, or says what is wrong. Memory: so
many bytes of blocks as the figures here say, and one block. Safe for threads: each thing held is one value, and a stale
one costs time and no more. Must not: open files, or hold one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Final, NamedTuple

from agentsession_cas.core.packformat import Block, Space
from agentsession_cas.core.pieces import Cut, Skeleton, join, join_encoded
from agentsession_cas.errors import Corrupt, DiskError
from agentsession_cas.objects.ahead import Ahead, Helpers
from agentsession_cas.objects.pack import Pack
from agentsession_cas.objects.packs import Packs, Place

__all__ = ["InOrder"]

_RUNS_MAX: Final = 3
"""Runs of blocks whose objects are held: sessions that share their first bodies go to and fro."""
_NEAR: Final = 512
"""So many blocks behind a run is onwards still: pieces and envelopes lie in between."""
_SHORT: Final = 1 << 18
"""Bytes of blocks that are read with the first one of a run, should more be wanted."""
_LONG: Final = 4 << 20
"""The same behind another run: more is wanted. As many are read ahead of that."""
_PIECES_MAX: Final = 4096
"""Places of pieces that are remembered."""


class _Run(NamedTuple):
    """Blocks ``first`` to ``last`` of a pack: their whole objects, and their skeletons, encoded, by digest."""

    pack: Pack
    first: int
    last: int
    whole: dict[bytes, bytes]
    split: dict[bytes, bytes]


class _Next(NamedTuple):
    """The piece that is expected: its pack, None for none, block and number."""

    pack: Pack | None
    at: int
    block: Block
    number: int

    def next(self) -> _Next:
        """The one behind it."""
        return _make(_Next, (self.pack, self.at, self.block, self.number + 1))

    def behind(self, read: Callable[[Pack, int], Block]) -> _Next:
        """The first one of the next block of pieces, which ``read`` gives; none where there is no such block."""
        with suppress(Corrupt, DiskError):
            at = self.pack.next_of(Space.PIECES, self.at) if self.pack is not None else -1
            if self.pack is not None and at >= 0:
                block = read(self.pack, at)
                return _Next(self.pack, at, block, block.first)
        return _NOTHING


_NOTHING: Final = _Next(None, 0, Block(b"", (0,), 0), 0)
_make: Final = tuple.__new__  # what a NamedTuple is made with, without the call around it


class InOrder:
    """Reads objects of one space. ``use`` raises Closed once nothing may be read, ``get`` is the database's.

    ``piece`` gives what is probably the piece that a cut names, untested; what it raises of Corrupt or DiskError says
    that a body cannot be read in this way. ``whole`` holds objects that are at hand, by digest.
    """

    __slots__ = (
        "__weakref__",
        "_ahead",
        "_at",
        "_get",
        "_helpers",
        "_kept",
        "_next_piece",
        "_packs",
        "_piece",
        "_pieces",
        "_runs",
        "_space",
        "_split",
        "_use",
        "whole",
    )

    def __init__(
        self,
        packs: Packs,
        space: Space,
        use: Callable[[], None],
        get: Callable[[Space, bytes], bytes],
        piece: Callable[[Cut], bytes],
        helpers: Helpers,
    ) -> None:
        self._packs = packs
        self._space = space
        self._use = use
        self._get = get
        self._piece = piece
        self._helpers = helpers
        self.let_go()

    def let_go(self) -> None:
        """Hold nothing: what was held takes memory."""
        self.whole: dict[bytes, bytes] = {}
        self._split: dict[bytes, bytes] = {}
        self._at: tuple[Pack | None, int] = (None, 0)
        self._runs: tuple[_Run, ...] = ()
        self._ahead: Ahead | None = None
        self._next_piece = _NOTHING
        self._kept: Mapping[int, Block] = {}
        self._pieces: dict[bytes, Place] = {}

    def get(self, digest: bytes) -> bytes:
        """The object's bytes, hashed. Raises as ``ObjectDatabase.get`` does."""
        self._use()
        data = self.whole.get(digest)
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
        self._next_piece = _NOTHING
        self._pieces.clear()
        return False

    def _found(self, digest: bytes) -> bytes | None:
        """The object where a skeleton at hand or else an index shows it; None when neither does."""
        split = self._split.get(digest)
        try:
            found = self._sought(digest) if split is None else join_encoded(split, self._probable)
        except (Corrupt, DiskError):
            return None
        if found is None or sha256(found).digest() == digest:
            return found
        self._next_piece = _NOTHING
        self._pieces.clear()
        return None

    def _sought(self, digest: bytes) -> bytes | None:
        """What an index shows, its hash untested."""
        place = self._packs.seek(self._space, digest)
        if place is None:
            return None
        pack, at, number = place
        run = self._run_at(pack, at)
        if run is not None:
            self.whole, self._split = run.whole, run.split
            if digest in run.whole:
                return run.whole[digest]
            if digest in run.split:
                return join_encoded(run.split[digest], self._probable)
        self._at = (pack, at)
        stored = pack.block(at).stored(number)
        return join(stored, self._probable) if isinstance(stored, Skeleton) else stored

    def _run_at(self, pack: Pack, at: int) -> _Run | None:
        """The run that a block is in, read when it is the second time, or behind a run; None when it is neither."""
        runs = self._runs
        for known in runs:
            if known.pack is pack and known.first <= at <= known.last:
                return known
        behind = next((run for run in runs if run.pack is pack and run.last < at <= run.last + _NEAR), None)
        if behind is None and self._at != (pack, at):
            return None
        run = self._read_on(pack, at, behind) if self._space is Space.CONTENTS else None
        if run is None:
            if pack.index().table.block(at).raw > _LONG:
                return None  # one long object: who wants it again reads it again
            run = _Run(pack, at, at, *pack.block(at).sorted_out())
        self._runs = (run, *runs)[:_RUNS_MAX]
        return run

    def _read_on(self, pack: Pack, at: int, behind: _Run | None) -> _Run | None:
        """Blocks of bodies and pieces from one on; behind a run more of them, and the next are read ahead.

        The pieces go to the blocks that are kept. None when that one does not read.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is None or not ahead.covers(pack, at):
            ahead = Ahead(pack, at, _SHORT if behind is None else _LONG)
        taken = ahead.taken()
        if taken.last < at:
            return None
        if behind is not None:
            self._ahead = Ahead(pack, taken.last + 1, _LONG, self._helpers)
        self._keep(pack, taken.pieces)
        return _Run(pack, ahead.first, taken.last, taken.whole, taken.split)

    def _keep(self, pack: Pack, pieces: Mapping[int, Block]) -> None:
        """Have blocks of pieces at hand while what was read lately is."""
        if pieces is not self._kept:
            self._kept = pieces
            for number, block in pieces.items():
                pack.keep(number, block)

    def _piece_block(self, pack: Pack, at: int) -> Block:
        """A block of pieces, which may be among those that are being read ahead."""
        ahead = self._ahead
        if ahead is not None and ahead.covers(pack, at):
            self._keep(pack, ahead.pieces())
        return pack.block(at)

    def _probable(self, cut: Cut) -> bytes | memoryview:
        """What is probably the piece: the next one if it is as long, else what lies where an index shows it."""
        expected = self._next_piece
        found = expected.block.view(expected.number)
        if not found:
            expected = self._next_piece = expected.behind(self._piece_block)
            found = expected.block.view(expected.number)
        if len(found) == cut.length:
            self._next_piece = expected.next()
            return found
        place = self._pieces.get(cut.digest) or self._packs.seek(Space.PIECES, cut.digest)
        if place is None:
            return self._piece(cut)
        pack, at, number = place
        block = self._piece_block(pack, at)
        if expected.pack is not pack or number > expected.number:  # or else one that came before
            self._next_piece = _Next(pack, at, block, number + 1)
        if len(self._pieces) >= _PIECES_MAX:
            self._pieces.clear()
        self._pieces[cut.digest] = place
        return block.view(number)
