"""Packs on disk: finding objects in them and reading the one block that holds each (store.md Part B).

Owns ``objects/pack``. A pack file is opened for one read at a time and idx files are mapped: nothing is held that a
repack could not take away, and a pack that went shows as NoFile. An idx that is missing, damaged or not of its pack is
rebuilt in memory from the pack. Nothing here says that an object is absent while a pack, or a block of one, cannot be
read: ``Pack.gap`` tells. Safe for threads. Must not: write, or serve bytes that do not hash to their name.
"""

from __future__ import annotations

import hashlib
import re
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from agentsession_cas.core.packformat import (
    HEADER_SIZE,
    TRAILER_SIZE,
    Block,
    Space,
    Table,
    check_header,
    decode_block,
    decode_trailer,
    table_size,
)
from agentsession_cas.core.packindex import Index, Row, encode_index
from agentsession_cas.effects.host import Fs, MappedFile, OpenFile
from agentsession_cas.errors import AgentSessionError, Corrupt, DiskError, NoFile

__all__ = ["CACHE_MAX", "BlockCache", "Pack", "PackScan", "Packs", "is_pack_file", "pack_stem", "scan_pack"]

CACHE_MAX: Final = 32 << 20
"""Bytes of blocks kept in memory per store."""

_PACK: Final = re.compile(r"pack-[0-9a-f]{64}\.pack")
_PREFIX: Final = "pack-"


def is_pack_file(name: str) -> bool:
    """Whether a file by that name in ``objects/pack`` is a pack."""
    return _PACK.fullmatch(name) is not None


def pack_stem(name: bytes) -> str:
    """The file name, without its ending, of the pack with that raw digest."""
    return f"{_PREFIX}{name.hex()}"


class BlockCache:
    """The blocks read last, bounded in bytes."""

    def __init__(self, size_max: int = CACHE_MAX) -> None:
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
        """Keep a block; the ones used longest ago go."""
        with self._guard:
            old = self._blocks.pop(key, None)
            self._size += block.size - (old.size if old else 0)
            self._blocks[key] = block
            while self._size > self._size_max:
                _, gone = self._blocks.popitem(last=False)
                self._size -= gone.size


# --- reading a pack through ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PackScan:
    """What a pack says read block by block: its table and size, its objects, and the blocks that cannot be read."""

    table: Table
    size: int
    rows: list[Row]
    bad: dict[int, str]


def _read_table(file: OpenFile, size: int) -> Table:
    check_header(file.pread(HEADER_SIZE, 0))
    trailer = decode_trailer(file.pread(TRAILER_SIZE, max(0, size - TRAILER_SIZE)))
    length = table_size(trailer.blocks)
    start = size - TRAILER_SIZE - length
    if start < HEADER_SIZE:
        raise Corrupt("a pack too short for its table")
    data = file.pread(length, start)
    if zlib.crc32(data) != trailer.table_crc:
        raise Corrupt("a pack whose table fails its checksum")
    return Table(data, trailer.blocks)


def _read_block(file: OpenFile, table: Table, number: int) -> Block:
    ref = table.block(number)
    return decode_block(ref, file.pread(ref.size, ref.offset))


def scan_pack(fs: Fs, path: str, table: Table | None = None) -> PackScan:
    """Read a pack through, by its own table or by the one given; the idx is not asked.

    Raises Corrupt when its own table is wanted and lost, NoFile, DiskError.
    """
    file = fs.open(path)
    try:
        size = file.size()
        table = table or _read_table(file, size)
        rows: list[Row] = []
        bad: dict[int, str] = {}
        for number in range(table.blocks):
            try:
                block = _read_block(file, table, number)
            except (Corrupt, DiskError) as error:
                bad[number] = error.what
                continue
            objects = range(block.first, block.first + len(block))
            rows += [Row(hashlib.sha256(block.object(at)).digest(), at) for at in objects]
        return PackScan(table, size, rows, bad)
    finally:
        file.close()


# --- a pack ----------------------------------------------------------------------------------------------------------


class Pack:
    """One pack, its idx loaded when first asked."""

    def __init__(self, fs: Fs, directory: str, stem: str, cache: BlockCache) -> None:
        self._fs = fs
        self._cache = cache
        self._guard = threading.Lock()
        self._index: Index | None = None
        self._mapping: MappedFile | None = None
        self.stem = stem
        self.name = bytes.fromhex(stem.removeprefix(_PREFIX))
        self.path = f"{directory}/{stem}.pack"
        self.idx_path = f"{directory}/{stem}.idx"
        self.gap = ""
        """Why an object that is not found may be in this pack all the same, "" when it cannot be."""

    def get(self, space: Space, digest: bytes) -> bytes | None:
        """The object's bytes, None when it is not found here.

        Raises Corrupt when its block is damaged or its bytes do not hash to its name, NoFile when the pack is gone.
        """
        found = self._find(space, digest)
        if found is None:
            return None
        at, number = found
        data = self._read(at).object(number)
        if hashlib.sha256(data).digest() != digest:
            raise Corrupt(f"object {number} does not hash to sha256:{digest.hex()}", where=self.path)
        return data

    def index(self) -> Index:
        """The idx when it is good, else one made from the pack. Raises Corrupt, NoFile, DiskError when neither is."""
        index = self._index
        if index is None:
            with self._guard:
                index = self._index = self._index or self._map() or self._rebuild()
        return index

    def locations(self) -> Iterator[tuple[Space, bytes, int]]:
        """Space, digest and block of every object, in the order they lie. Raises as ``index``."""
        index = self.index()
        try:
            index.test()
        except Corrupt:
            index = self._instead_of(index)
        for digest, number in index.rows():
            block = index.table.block_of(number)
            yield Space(index.table.space_of(block)), digest, block

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

    def _read(self, at: int) -> Block:
        block = self._cache.get((self.stem, at))
        if block is None:
            table = self.index().table
            file = self._fs.open(self.path)
            try:
                block = _read_block(file, table, at)
            except Corrupt as error:
                raise Corrupt(error.what, where=f"{self.path} block {at}", next_step="run fsck") from error
            finally:
                file.close()
            self._cache.put((self.stem, at), block)
        return block

    def _find(self, space: Space, digest: bytes) -> tuple[int, int] | None:
        index = self._index or self.index()
        try:
            return index.find(space, digest)
        except Corrupt:
            return self._instead_of(index).find(space, digest)

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
        try:
            scan = scan_pack(self._fs, self.path)
        except Corrupt as error:
            raise Corrupt(error.what, where=self.path, next_step="run fsck") from error
        self.gap = f"{len(scan.bad)} blocks cannot be read" if scan.bad else ""
        return Index(encode_index(self.name, scan.size, bytes(scan.table.data), scan.rows))


class Packs:
    """The packs of one store, as listed last."""

    def __init__(self, fs: Fs, directory: str) -> None:
        self._fs = fs
        self._cache = BlockCache()
        self._guard = threading.Lock()
        self._packs: dict[str, Pack] = {}
        self._recent: tuple[Pack, ...] = ()
        self.directory = directory

    @property
    def listed(self) -> Mapping[str, Pack]:
        """The packs listed last, by stem: the same object until a listing, of any thread, finds others."""
        return self._packs

    def get(self, space: Space, digest: bytes, errors: list[AgentSessionError]) -> bytes | None:
        """A good copy of the object, None when there is none; what could not be read is added to ``errors``.

        A pack that is gone is no error: whoever took it away has put its objects elsewhere. List again.
        """
        for pack in (*self._recent, *self._packs.values()):
            try:
                data = pack.get(space, digest)
            except NoFile:
                continue
            except (Corrupt, DiskError) as error:
                errors.append(error)
                continue
            if data is not None:
                self._recent = (pack,)
                return data
            if pack.gap:
                errors.append(Corrupt(f"sha256:{digest.hex()} may be lost: {pack.gap}", where=pack.path))
        return None

    def relist(self) -> None:
        """List again."""
        with self._guard:
            names = self._fs.listdir(self.directory)
            stems = [name.removesuffix(".pack") for name in names if is_pack_file(name)]
            old = self._packs
            if old.keys() != set(stems):
                self._replace({s: old.get(s) or Pack(self._fs, self.directory, s, self._cache) for s in stems})

    def forget(self, stem: str) -> None:
        """Know nothing of a pack, until it is listed again: its files were put in place anew."""
        with self._guard:
            self._replace({known: pack for known, pack in self._packs.items() if known != stem})

    def close(self) -> None:
        """Let all idx files go."""
        with self._guard:
            self._replace({})

    def _replace(self, packs: dict[str, Pack]) -> None:
        old, self._packs, self._recent = self._packs, packs, ()
        for stem in old.keys() - packs.keys():
            old[stem].close()
