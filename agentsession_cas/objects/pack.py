"""One pack on disk: finding objects in it and reading the one block that holds each (store.md Part B).

Owns a pack's two files. The idx is mapped; one that is missing, damaged or not of its pack is rebuilt in memory from
the pack. The pack is left open between reads of blocks (``packfile.OpenPacks``): its bytes never change, so one that
was removed serves what it holds until it is let go, and one that does not read is opened anew before it is called
damaged. Nothing here says that an object is absent while the pack, or a block of it, cannot be read: ``Pack.gap``
tells. Safe for threads. Must not: write, or serve bytes that do not hash to their name.
"""

from __future__ import annotations

import re
import threading
from array import array
from collections.abc import Container, Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Final

from agentsession_cas.core.packformat import HEADER_SIZE, Block, Grade, Space, Table, decode_header
from agentsession_cas.core.packindex import Index, encode_index, key_of
from agentsession_cas.core.packspan import Span
from agentsession_cas.core.pieces import Skeleton, Stored
from agentsession_cas.core.slices import Slices
from agentsession_cas.effects.host import Fs, MappedFile
from agentsession_cas.errors import AgentSessionError, Corrupt, DiskError
from agentsession_cas.objects.dictionaries import Dictionaries
from agentsession_cas.objects.loose import Copy, Whole
from agentsession_cas.objects.packfile import BlockCache, OpenPacks, PackFile

__all__ = ["Pack", "is_pack_file", "pack_stem"]

_PACK: Final = re.compile(r"pack-[0-9a-f]{64}\.pack")
_PREFIX: Final = "pack-"


def is_pack_file(name: str) -> bool:
    """Whether a file by that name in ``objects/pack`` is a pack."""
    return _PACK.fullmatch(name) is not None


def pack_stem(name: bytes) -> str:
    """The file name, without its ending, of the pack with that raw digest."""
    return f"{_PREFIX}{name.hex()}"


class Pack:
    """One pack, its idx loaded when first asked."""

    def __init__(
        self,
        fs: Fs,
        directory: str,
        stem: str,
        cache: BlockCache,
        files: OpenPacks,
        dictionaries: Dictionaries,
        whole: Whole,
    ) -> None:
        self._fs = fs
        self._whole = whole
        self._cache = cache
        self._files = files
        self._dictionaries = dictionaries
        self._guard = threading.Lock()
        self._index: Index | None = None
        self._mapping: MappedFile | None = None
        self._grade: Grade | None = None
        self.stem = stem
        self.name = bytes.fromhex(stem.removeprefix(_PREFIX))
        self.path = f"{directory}/{stem}.pack"
        self.idx_path = f"{directory}/{stem}.idx"
        self.gap = ""
        """Why an object that is not found may be in this pack all the same, "" when it cannot be."""

    def get(self, space: Space, digest: bytes) -> Copy | None:
        """The object, None when it is not found here.

        Raises Corrupt when its block is damaged or its bytes do not hash to its name, NoFile when the pack is gone.
        """
        found = self.find(space, digest)
        if found is None:
            return None
        stored = found[1]
        return Copy(stored, self._whole(stored) if isinstance(stored, Skeleton) else stored)

    def find(self, space: Space, digest: bytes) -> tuple[int, Stored] | None:
        """The object's number in the pack, and the object as it is stored: a skeleton is believed what it notes.

        Raises as :meth:`get`.
        """
        key = key_of(digest)
        for at, number in self.places(space, key):
            block = self.block(at)
            stored = block.stored(number)
            found = stored.digest if isinstance(stored, Skeleton) else sha256(stored).digest()
            if found == digest:
                return number, stored
            if key_of(found) != key:
                raise Corrupt(f"object {number} does not hash to sha256:{digest.hex()}", where=self.path)
        return None

    def index(self) -> Index:
        """The idx when it is good, else one made from the pack. Raises Corrupt, NoFile, DiskError when neither is."""
        index = self._index
        if index is None:
            with self._guard:
                index = self._index = self._index or self._map() or self._rebuild()
        return index

    def tested_index(self) -> Index:
        """:meth:`index`, all its rows tested."""
        index = self.index()
        try:
            index.test()
        except Corrupt:
            return self._instead_of(index)
        return index

    def grade(self) -> Grade:
        """What the pack was made for. Raises Corrupt, NoFile, DiskError."""
        if self._grade is None:
            file = self._fs.open(self.path)
            try:
                self._grade = decode_header(file.pread(HEADER_SIZE, 0))
            finally:
                file.close()
        return self._grade

    def key_parts(self) -> Iterator[list[int]]:
        """The key of every object, some hundreds at a time, some twice if the idx is damaged. Raises as ``index``."""
        index = self.index()
        try:
            yield from index.key_parts()
        except Corrupt:
            yield from self._instead_of(index).key_parts()

    def key_slices(self) -> Slices[array[int]]:
        """The key of every object by number, in slices. Raises as ``index``."""
        index = self.index()
        try:
            return (yield from index.key_slices())
        except Corrupt:
            return (yield from self._instead_of(index).key_slices())

    def locations(self) -> Iterator[tuple[Space, bytes, int]]:
        """Space, digest and block of every object, in the order they lie: all of it is read.

        Raises Corrupt, DiskError at the end when a block cannot be read; NoFile.
        """
        failed: AgentSessionError | None = None
        with self._open_any() as file:
            for number in range(file.table.blocks):
                try:
                    digests = file.digests(number)
                except (Corrupt, DiskError) as error:
                    failed = failed or Corrupt(f"block {number}: {error.what}", where=self.path, next_step="run fsck")
                    continue
                space = Space(file.table.space_of(number))
                for digest in digests:
                    yield space, digest, number
        if failed is not None:
            raise failed

    def skeletons(self, but: Container[int] = ()) -> Iterator[tuple[int, Skeleton]]:
        """Every body that lies here without its pieces, and its block; none of ``but``. Raises as :meth:`locations`."""
        failed: AgentSessionError | None = None
        with self._open_any() as file:
            for number in range(file.table.blocks):
                if number in but or not file.table.has_skeletons(number):
                    continue
                try:
                    skeletons = file.block(number).skeletons()
                except (Corrupt, DiskError) as error:
                    failed = failed or Corrupt(f"block {number}: {error.what}", where=self.path, next_step="run fsck")
                    continue
                for skeleton in skeletons:
                    yield number, skeleton
        if failed is not None:
            raise failed

    def _open_any(self) -> PackFile:
        """The pack's file by its own table, or else by the one its idx has. Raises as :class:`PackFile`."""
        try:
            return self.open()
        except Corrupt:
            return self.open(self.index().table)

    def open(self, table: Table | None = None) -> PackFile:
        """The pack's file, read by its own table or by the one given. Raises as :class:`PackFile`."""
        return PackFile(self._fs, self.path, self._dictionaries, table)

    def load_idx(self) -> tuple[MappedFile, Index]:
        """The idx file, mapped. Raises NoFile when there is none, Corrupt when it is damaged or of another pack."""
        mapping = self._fs.map(self.idx_path)
        index = Index(mapping.view)
        if index.pack_name != self.name:
            raise Corrupt("an idx of another pack", where=self.idx_path)
        return mapping, index

    def close(self) -> None:
        """Let the idx go. A thread that is reading goes on."""
        with self._guard:
            self._index = None
            if self._mapping is not None:
                self._mapping.close()
                self._mapping = None

    def span(self, first: int, size: int) -> Span | None:
        """What ``PackFile.span`` gives; None when any of it cannot be read."""
        with suppress(Corrupt, DiskError):
            file = self._files.lend(self) or self.open(self.index().table)
            try:
                span = file.span(first, size)
            except BaseException:
                file.close()
                raise
            self._files.leave(self, file)
            return span
        return None

    def next_of(self, space: Space, at: int) -> int:
        """The first block of a space behind one, by its number, or -1. Raises as ``index``."""
        return self.index().table.next_of(space, at)

    def keep(self, at: int, block: Block) -> None:
        """Keep a block that was read, by its number."""
        self._cache.put((self.stem, at), block)

    def block(self, at: int) -> Block:
        """A block by its number. Raises Corrupt, which names it, NoFile, DiskError."""
        key = (self.stem, at)
        block = self._cache.get(key)
        if block is None:
            block = self._read_left_open(at) or self._read(at)
            self._cache.put(key, block)
        return block

    def _read_left_open(self, at: int) -> Block | None:
        """A block out of the file that was left open; None when none was, or when it does not read."""
        file = self._files.lend(self)
        if file is None:
            return None
        try:
            block = file.block(at)
        except BaseException as error:
            file.close()
            if isinstance(error, (Corrupt, DiskError)):
                return None  # another may lie there by now
            raise
        self._files.leave(self, file)
        return block

    def _read(self, at: int) -> Block:
        """A block out of the file that lies there now."""
        file = None
        try:
            file = self.open(self.index().table)
            block = file.block(at)
        except BaseException as error:
            if file is not None:
                file.close()
            if isinstance(error, Corrupt):
                raise Corrupt(error.what, where=f"{self.path} block {at}", next_step="run fsck") from error
            raise
        self._files.leave(self, file)
        return block

    def places(self, space: Space, key: int) -> list[tuple[int, int]]:
        """Block and number of every object of that key. Raises as ``index``."""
        index = self._index or self.index()
        try:
            return index.places(space, key)
        except Corrupt:
            return self._instead_of(index).places(space, key)

    def _instead_of(self, damaged: Index) -> Index:
        with self._guard:
            if self._index is damaged:
                self._index = self._rebuild()
        return self.index()

    def _map(self) -> Index | None:
        try:
            mapping, index = self.load_idx()
        except (Corrupt, DiskError):
            return None
        self._mapping = mapping
        return index

    def _rebuild(self) -> Index:
        data, self.gap = self.make_idx()
        return Index(data)

    def reindex(self) -> None:
        """Know the pack by itself from now on, whatever its idx says. Raises Corrupt, NoFile, DiskError."""
        with self._guard:
            self._index = self._rebuild()

    def make_idx(self) -> tuple[bytes, str]:
        """The bytes of an idx made out of the pack alone, and why it lacks objects, "" when it lacks none.

        Raises Corrupt, NoFile, DiskError.
        """
        try:
            with self.open() as file:
                keys = array("Q", bytes(8 * file.table.objects))
                bad = file.gather_keys(keys)
                data = encode_index(self.name, file.size, bytes(file.table.data), keys)
        except Corrupt as error:
            raise Corrupt(error.what, where=self.path, next_step="run fsck") from error
        return data, f"{len(bad)} blocks cannot be read" if bad else ""
