"""The packs of a store: which there are, and which of them has an object (store.md Part B).

Owns ``objects/pack`` as it was listed last. Nothing is held that a repack could not take away, and a pack that went
shows as NoFile, or serves what it held until the next listing. Safe for threads. Must not: write, or read packs itself.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from typing import Final, NamedTuple

from agentsession_cas.core.packformat import Space
from agentsession_cas.core.packindex import key_of
from agentsession_cas.core.pieces import Stored
from agentsession_cas.effects.host import Fs
from agentsession_cas.effects.pace import Rest, no_rest
from agentsession_cas.errors import AgentSessionError, Corrupt, DiskError, NoFile
from agentsession_cas.objects.dictionaries import Dictionaries
from agentsession_cas.objects.loose import Copy, Whole
from agentsession_cas.objects.pack import Pack, is_pack_file
from agentsession_cas.objects.packfile import BlockCache, OpenPacks

__all__ = ["KNOWN_MAX", "Packs", "Place"]

KNOWN_MAX: Final = 1 << 17
"""Keys of objects in packs that are kept in memory, at most; packs past that are searched one by one."""

_RECENT_MAX: Final = 4
"""Packs looked into before the others: bodies read now, and the pieces they share with older ones."""
_ORDERED_MIN: Final = 4
"""Fewer packs than this are opened as fast as it is told which is the newest."""


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
        self._files = OpenPacks()
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
        return Pack(self._fs, self.directory, stem, self._cache, self._files, self._dictionaries, self._whole)

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
        self._files.want(packs.values())
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
