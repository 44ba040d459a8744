"""Packs on disk: finding objects in them and reading the one block that holds each (store.md Part B).

Owns ``objects/pack``. A pack file is opened for one read at a time and idx files are mapped: nothing is held that a
repack could not take away, and a pack that went shows as NoFile. An idx that is missing, damaged or not of its pack is
rebuilt in memory from the pack. Nothing here says that an object is absent while a pack, or a block of one, cannot be
read: ``Pack.gap`` tells. Safe for threads. Must not: write, or serve bytes that do not hash to their name.
"""

from __future__ import annotations

import re
import threading
from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Final, NamedTuple

from agentsession_cas.core.packformat import HEADER_SIZE, Block, Grade, Space, Table, decode_header
from agentsession_cas.core.packindex import Index, encode_index, key_of
from agentsession_cas.core.pieces import Skeleton, Stored, digest_of_stored
from agentsession_cas.core.slices import Slices
from agentsession_cas.effects.host import Fs, MappedFile
from agentsession_cas.effects.pace import Rest, no_rest
from agentsession_cas.errors import AgentSessionError, Corrupt, DiskError, NoFile
from agentsession_cas.objects.dictionaries import Dictionaries
from agentsession_cas.objects.loose import Copy, Whole, copy_of
from agentsession_cas.objects.packfile import BlockCache, PackFile

__all__ = ["KNOWN_MAX", "Pack", "Packs", "Place", "is_pack_file", "pack_stem"]

KNOWN_MAX: Final = 1 << 17
"""Keys of objects in packs that are kept in memory, at most; packs past that are searched one by one."""

_RECENT_MAX: Final = 4
_ORDERED_MIN: Final = 4
"""Fewer packs than this are opened as fast as it is told which is the newest."""
"""Packs looked into before the others: bodies read now, and the pieces they share with older ones."""

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
        self, fs: Fs, directory: str, stem: str, cache: BlockCache, dictionaries: Dictionaries, whole: Whole
    ) -> None:
        self._fs = fs
        self._whole = whole
        self._cache = cache
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
        return copy_of(found[1], self._whole) if found is not None else None

    def find(self, space: Space, digest: bytes) -> tuple[int, Stored] | None:
        """The object's number in the pack, and the object as it is stored: a skeleton is believed what it notes.

        Raises as :meth:`get`.
        """
        for at, number in self.places(space, key_of(digest)):
            stored = self.block(at).stored(number)
            found = digest_of_stored(stored)
            if found == digest:
                return number, stored
            if key_of(found) != key_of(digest):
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

    def skeletons(self) -> Iterator[tuple[int, Skeleton]]:
        """Every body that lies here without its pieces, and its block. Raises as :meth:`locations`."""
        failed: AgentSessionError | None = None
        with self._open_any() as file:
            for number in range(file.table.blocks):
                if not file.table.has_skeletons(number):
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

    def bodies(self, at: int, ahead: int) -> Iterator[tuple[int, Block]]:
        """A block of bodies and those in the ``ahead`` bytes behind it, by their numbers; those of pieces are kept.

        Raises as :meth:`block` for the first; one behind it that does not read ends it.
        """
        yield at, self.block(at)
        with suppress(DiskError), self.open(self.index().table) as file:
            for number, space, block in file.behind(at, ahead):
                if space is Space.CONTENTS:
                    yield number, block
                else:
                    self._cache.put((self.stem, number), block)

    def block(self, at: int) -> Block:
        """A block by its number. Raises Corrupt, which names it, NoFile, DiskError."""
        block = self._cache.get((self.stem, at))
        if block is None:
            try:
                with self.open(self.index().table) as file:
                    block = file.block(at)
            except Corrupt as error:
                raise Corrupt(error.what, where=f"{self.path} block {at}", next_step="run fsck") from error
            self._cache.put((self.stem, at), block)
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


class Place(NamedTuple):
    """Where an object lies: its pack, and of that the block and the object's number."""

    pack: Pack
    block: int
    number: int


class Packs:
    """The packs of one store, as listed last."""

    def __init__(self, fs: Fs, directory: str, dictionaries: Dictionaries, cache: BlockCache, whole: Whole) -> None:
        self._fs = fs
        self._whole = whole
        self._dictionaries = dictionaries
        self._cache = cache
        self._guard = threading.Lock()
        self._packs: dict[str, Pack] = {}
        self._recent: tuple[Pack, ...] = ()
        self._order: tuple[Pack, ...] = ()
        """All of them, the newest first: what is resumed was written last, and an idx not asked is not opened."""
        self._made_ns: dict[str, int] = {}
        self._known_guard = threading.Lock()
        self._known: set[int] = set()
        self._joined: set[str] = set()
        self.directory = directory
        self.spoilt: set[str] = set()
        """The stems of packs that were found not to read when they were to be merged."""

    @property
    def listed(self) -> Mapping[str, Pack]:
        """The packs listed last, by stem: the same object until a listing, of any thread, finds others."""
        return self._packs

    def get(self, space: Space, digest: bytes, errors: list[AgentSessionError]) -> Copy | None:
        """A good copy of the object, None when there is none; what could not be read is added to ``errors``.

        A pack that is gone is no error: whoever took it away has put its objects elsewhere. List again.
        """
        for pack in chain(self._recent, self._order):
            try:
                found = pack.get(space, digest)
            except NoFile:
                continue
            except (Corrupt, DiskError) as error:
                errors.append(error)
                continue
            if found is not None:
                self._note(pack)
                return found
            if pack.gap:
                errors.append(Corrupt(f"sha256:{digest.hex()} may be lost: {pack.gap}", where=pack.path))
        return None

    def seek(self, space: Space, digest: bytes) -> Place | None:
        """Where the object probably is, by the idx files; None when none of them shows one."""
        key = key_of(digest)
        for pack in chain(self._recent, self._order):
            try:
                places = pack.places(space, key)
            except (Corrupt, DiskError):
                continue
            if places:
                self._note(pack)
                return Place(pack, *places[0])
        return None

    def _note(self, pack: Pack) -> None:
        """Look into this pack first from now on."""
        recent = self._recent
        if recent[:1] != (pack,):
            self._recent = (pack, *(other for other in recent if other is not pack))[:_RECENT_MAX]

    def glimpse(self, space: Space, digest: bytes) -> Stored | None:
        """What is probably the object, its hash untested; None when no pack shows one."""
        place = self.seek(space, digest)
        if place is not None:
            with suppress(Corrupt, DiskError):
                return place.pack.block(place.block).stored(place.number)
        return None

    def stored(self, space: Space, digest: bytes) -> tuple[list[Stored], list[AgentSessionError]]:
        """Every copy of the object as it is stored, and what could not be read."""
        copies: list[Stored] = []
        errors: list[AgentSessionError] = []
        for pack in self._packs.values():
            try:
                found = pack.find(space, digest)
            except NoFile:
                continue
            except (Corrupt, DiskError) as error:
                errors.append(error)
                continue
            if found is not None:
                copies.append(found[1])
            elif pack.gap:
                errors.append(Corrupt(f"sha256:{digest.hex()} may be lost: {pack.gap}", where=pack.path))
        return copies, errors

    def among(self, keys: set[int], rest: Rest = no_rest) -> set[int]:
        """Those of ``keys`` that an object of a pack may have; what this leaves out is in no pack that can be read.

        The cost hardly grows with the packs and their objects. Calls ``rest`` where others may run.
        """
        packs = self._packs
        with self._known_guard:
            self._join(packs, rest)
            found = keys & self._known
            others = [pack for stem, pack in packs.items() if stem not in self._joined]
        for pack in others:
            with suppress(Corrupt, DiskError):
                found.update(pack.index().among(keys - found))
        return found

    def _join(self, packs: Mapping[str, Pack], rest: Rest) -> None:
        """Add to the known keys those of packs that came, small ones first.

        The keys of packs that went are kept while there is room: they mostly went into another pack.
        """
        if self._joined - packs.keys() and 2 * len(self._known) > KNOWN_MAX:
            self._known, self._joined = set(), set()
        new: list[tuple[int, str]] = []
        for stem in packs.keys() - self._joined:
            with suppress(Corrupt, DiskError):
                new.append((packs[stem].index().objects, stem))
        for objects, stem in sorted(new):
            if objects + len(self._known) > KNOWN_MAX:
                break
            with suppress(Corrupt, DiskError):
                for keys in packs[stem].key_parts():
                    self._known.update(keys)
                    rest()
                self._joined.add(stem)

    def relist(self) -> None:
        """List again."""
        with self._guard:
            names: list[str] = []
            with suppress(NoFile):  # a copy may have left out an empty directory
                names = self._fs.listdir(self.directory)
            stems = [name.removesuffix(".pack") for name in names if is_pack_file(name)]
            old = self._packs
            if old.keys() != set(stems):
                self._replace({stem: old.get(stem) or self._pack(stem) for stem in stems})

    def _pack(self, stem: str) -> Pack:
        return Pack(self._fs, self.directory, stem, self._cache, self._dictionaries, self._whole)

    def forget(self, stem: str) -> None:
        """Know nothing of a pack, until it is listed again: its files were put in place anew."""
        with self._guard:
            self._replace({known: pack for known, pack in self._packs.items() if known != stem})

    def close(self) -> None:
        """Let all idx files go, and the blocks kept: whoever closed a store may hold on to it for long."""
        with self._guard:
            self._replace({})
        self._cache.clear()

    def _replace(self, packs: dict[str, Pack]) -> None:
        order = self._newest_first(packs)
        old, self._packs, self._order, self._recent = self._packs, packs, order, ()
        for stem in old.keys() - packs.keys():
            old[stem].close()

    def _newest_first(self, packs: Mapping[str, Pack]) -> tuple[Pack, ...]:
        if len(packs) < _ORDERED_MIN:
            return tuple(packs.values())
        made = self._made_ns
        for stem in packs.keys() - made.keys():
            with suppress(DiskError):
                found = self._fs.stat(packs[stem].path)
                made[stem] = found.mtime_ns if found is not None else 0
        return tuple(sorted(packs.values(), key=lambda pack: made.get(pack.stem, 0), reverse=True))
