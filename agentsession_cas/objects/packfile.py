"""A pack file read block by block; the files and the blocks used last (store.md Part B).

Owns the reading of one open pack: by its own table, or by one that its idx copied. Owns what is held between reads, so
many files and so many bytes of blocks at most. Must not: know the idx, list packs, or verify objects against names.
"""

from __future__ import annotations

import threading
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from agentsession_cas.core.packformat import (
    HEADER_SIZE,
    TRAILER_SIZE,
    Block,
    BlockRef,
    Codec,
    Space,
    Table,
    decode_block,
    decode_header,
    decode_trailer,
    table_size,
)
from agentsession_cas.core.packindex import keys_of
from agentsession_cas.core.packspan import Span
from agentsession_cas.core.pieces import Skeleton
from agentsession_cas.effects.host import Fs, OpenFile
from agentsession_cas.errors import Corrupt, DiskError
from agentsession_cas.objects.dictionaries import Dictionaries

__all__ = ["CACHE_MAX", "OPEN_MAX", "BlockCache", "BlockRead", "Note", "OpenPacks", "PackFile", "note_nothing"]


CACHE_MAX: Final = 32 << 20
"""Bytes of blocks kept in memory per store."""

OPEN_MAX: Final = 8
"""Pack files left open per store: opening and closing one costs as much as reading a small block."""


Note = Callable[[Space, Sequence[bytes]], None]
"""Hears of objects of a space that were read, by their digests."""


def note_nothing(space: Space, digests: Sequence[bytes]) -> None:
    """Hear nothing."""


class BlockRead(NamedTuple):
    """A block that was read: the digests of its objects, the skeletons among them; or ``why`` it cannot be read."""

    number: int
    digests: list[bytes]
    skeletons: list[Skeleton]
    why: str


class BlockCache:
    """The blocks read last, bounded in bytes."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._size = 0
        self._blocks: OrderedDict[tuple[str, int], Block] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, key: tuple[str, int]) -> Block | None:
        """The block of a pack (its stem) by number, if it is kept."""
        with self._guard:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
            return block

    def put(self, key: tuple[str, int], block: Block) -> None:
        """Keep a block; the ones used longest ago go. One that is too large for that is not kept."""
        if block.size > self._size_max:
            return
        with self._guard:
            old = self._blocks.pop(key, None)
            self._size += block.size - (old.size if old else 0)
            self._blocks[key] = block
            while self._size > self._size_max:
                _, gone = self._blocks.popitem(last=False)
                self._size -= gone.size

    def clear(self) -> None:
        """Keep none of them."""
        with self._guard:
            self._blocks.clear()
            self._size = 0


class OpenPacks:
    """Pack files left open between reads, the ones used last. Safe for threads.

    A file is lent to one read at a time: none is closed, and its descriptor used for another, under a reader's hands.
    Only packs that are wanted have one, so that the space of those that went is given back.
    """

    def __init__(self) -> None:
        self._files: dict[object, PackFile] = {}
        self._wanted: frozenset[object] = frozenset()
        self._guard = threading.Lock()

    def lend(self, pack: object) -> PackFile | None:
        """The file that was left open of a pack, for the caller alone; None when there is none."""
        with self._guard:
            return self._files.pop(pack, None)

    def leave(self, pack: object, file: PackFile) -> None:
        """Leave a file open, or close it."""
        file.forget()
        surplus: PackFile | None = file
        with self._guard:
            if pack in self._wanted:
                surplus = self._files.pop(pack, None)
                self._files[pack] = file
                if len(self._files) > OPEN_MAX:
                    surplus = self._files.pop(next(iter(self._files)), None)
        if surplus is not None:
            surplus.close()

    def want(self, packs: Iterable[object]) -> None:
        """Leave files of these packs open from now on, and no others."""
        with self._guard:
            self._wanted = frozenset(packs)
            gone = [self._files.pop(pack, None) for pack in [*self._files] if pack not in self._wanted]
        for file in gone:
            if file is not None:
                file.close()


def _read_table(file: OpenFile, size: int) -> Table:
    decode_header(file.pread(HEADER_SIZE, 0))
    trailer = decode_trailer(file.pread(TRAILER_SIZE, max(0, size - TRAILER_SIZE)))
    length = table_size(trailer.blocks)
    start = size - TRAILER_SIZE - length
    if start < HEADER_SIZE:
        raise Corrupt("a pack too short for its table")
    data = file.pread(length, start)
    if zlib.crc32(data) != trailer.table_crc:
        raise Corrupt("a pack whose table fails its checksum")
    return Table(data, trailer.blocks)


class PackFile:
    """A pack held open. A context manager."""

    def __init__(self, fs: Fs, path: str, dictionaries: Dictionaries, table: Table | None = None) -> None:
        """By its own table, or by the one given. Raises Corrupt when its own is wanted and lost, NoFile, DiskError."""
        self._file = fs.open(path)
        self._dictionaries = dictionaries
        self._last: tuple[int, Block | None] = (-1, None)
        try:
            self.table = table or _read_table(self._file, self._file.size())
        except BaseException:
            self._file.close()
            raise

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._file.size()

    def frame(self, number: int) -> tuple[BlockRef, bytes]:
        """The block of that number as it lies there. Raises Corrupt, DiskError."""
        ref = self.table.block(number)
        return ref, self._file.pread(ref.size, ref.offset)

    def sound_frame(self, number: int) -> tuple[BlockRef, bytes]:
        """:meth:`frame` when it passes its checksum. Raises Corrupt, DiskError."""
        ref, frame = self.frame(number)
        if len(frame) != ref.size or zlib.crc32(frame) != ref.crc:
            raise Corrupt(f"block {number} fails its checksum", where=self._file.path, next_step="run fsck")
        return ref, frame

    def block(self, number: int) -> Block:
        """The block of that number; the one read before it is kept at hand. Raises Corrupt, DiskError."""
        ref = self.table.block(number)
        frame = self._file.pread(ref.size, ref.offset)  # as frame does, without the call
        block = decode_block(ref, frame, self._dictionaries.get, lambda: self._before(number))
        self._last = (number, block)
        return block

    def span(self, first: int, size: int) -> Span:
        """The blocks of bodies and pieces from one on that hold ``size`` bytes at most. Raises Corrupt, DiskError."""
        span = Span(self.table, first, size)
        data = self._file.pread(span.size, span.start) if span.size else b""
        span.fill(data, {number: self._dictionaries.get(number) for number in span.dictionaries()})
        return span

    def unsummed(self, number: int) -> Block:
        """A block whose checksum is not asked: its objects' hashes tell which are whole. Raises as ``block``."""
        ref, frame = self.frame(number)
        summed = ref._replace(crc=zlib.crc32(frame))
        return decode_block(summed, frame, self._dictionaries.get, lambda: self._before(number))

    def _before(self, number: int) -> Block:
        kept, block = self._last
        if block is not None and kept == number - 1:
            return block
        ref = self.table.block(number - 1) if number else None
        if ref is None or ref.codec is Codec.ENVELOPES:
            raise Corrupt("a block of envelopes that lies behind no block of bodies")
        return self.block(number - 1)

    def digests(self, number: int) -> list[bytes]:
        """The digests of a block's objects. Raises Corrupt, DiskError."""
        return self.block(number).digests()

    def gather_keys(self, keys: array[int], note: Note = note_nothing) -> dict[int, str]:
        """Read all of it; note each object's key at its number. Returns the blocks that cannot be read, and why.

        ``note`` is given the digests of each block.
        """
        bad: dict[int, str] = {}
        for each in self.each_block(0, self.table.blocks):
            if each.why:
                bad[each.number] = each.why
            else:
                self.take_block(each.number, each.digests, keys, note)
        return bad

    def forget(self) -> None:
        """Keep no block at hand."""
        self._last = (-1, None)

    def each_block(self, first: int, end: int) -> Iterator[BlockRead]:
        """Read the blocks from ``first`` to before ``end``, whether each can be read or not."""
        for number in range(first, end):
            try:
                block = self.block(number)
                yield BlockRead(number, block.digests(), block.skeletons(), "")
            except (Corrupt, DiskError) as error:
                yield BlockRead(number, [], [], error.what)

    def take_block(self, number: int, digests: Sequence[bytes], keys: array[int], note: Note) -> None:
        """Note the objects of a block that was read, and their keys at their numbers."""
        note(Space(self.table.space_of(number)), digests)
        found = keys_of(digests)
        first = self.table.block(number).first
        keys[first : first + len(found)] = array("Q", found)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
