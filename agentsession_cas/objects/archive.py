"""Everything once, in an order given, as small as it gets: what ``repack --all`` does to objects (store.md Part B).

Owns one run of it. First the objects of the order, each from wherever it lies, go into packs of grade ARCHIVE; then
what the order left out; at last the packs and loose objects that held them go. What earlier runs made is left alone, so
that a run that was stopped is taken up where it was, and one with nothing to do writes nothing. Invariants: those of
``consolidate``; that an object is in the archive already is believed, before its copies go, of bytes that were read.
Memory: a byte for each object of the packs that go. Must not: know what the order means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from agentsession_cas.core.packformat import PACKED_MAX, Grade, Space
from agentsession_cas.core.packindex import key_of
from agentsession_cas.core.pieces import Skeleton, Stored, digest_of_stored, encoded_size
from agentsession_cas.core.slices import Slices
from agentsession_cas.core.zframes import Dictionary
from agentsession_cas.errors import Corrupt, DiskError, NoFile
from agentsession_cas.objects.consolidate import PACKABLE, Consolidator, Moved
from agentsession_cas.objects.pack import Pack
from agentsession_cas.objects.packwriter import PackWriter

__all__ = ["ARCHIVE_MAX", "Archiver"]

ARCHIVE_MAX: Final = 128 << 20
"""A pack is closed once it has so many bytes: what is done is kept when the rest is stopped."""

_Object = tuple[Space, bytes]


class Archiver:
    """One run. ``old`` are the packs to replace, ``dictionary`` is what blocks are made with."""

    def __init__(self, moves: Consolidator, old: Iterable[Pack], dictionary: Dictionary | None) -> None:
        self._moves = moves
        self._old = list(old)
        self._dictionary = dictionary
        self._archives = [pack for pack in moves.packs.listed.values() if _is_archive(pack)]
        self._done = {pack.stem: bytearray(pack.index().objects) for pack in self._old}
        self._loose: set[_Object] = set()
        self._rest: set[_Object] = set()
        self._pieces: set[bytes] = set()  # those of the pack being written
        self._kept: set[str] = set()
        self._written: list[str] = []
        self._writer: PackWriter | None = None

    def run(self, order: Iterable[_Object]) -> Slices[Moved]:
        """Do it all. Yields a 1 for each object looked at. Raises DiskError and its like, StoreLocked, Corrupt."""
        try:
            for space, digest in order:
                self._take(space, digest)
                yield from self._turn_over()
                yield 1
            yield from self._close()
            for pack in self._old:
                yield from self._take_rest(pack)
            yield from self._take_loose()
            yield from self._close()
            with self._moves.switch():
                going = [pack for pack in self._old if pack.stem not in self._kept | set(self._written)]
                removed = self._moves.remove(going)
                self._moves.remove_loose(self._loose)
            return Moved(self._written, removed, len(self._loose), sorted(self._kept))
        finally:
            if self._writer is not None:
                self._writer.abandon()

    # --- what the order names ---

    def _take(self, space: Space, digest: bytes) -> None:
        """Add an object unless it is there, by its key: should that mislead, what the order left out is looked at."""
        key = key_of(digest)
        if any(pack.places(space, key) for pack in self._archives):
            return
        for pack in self._old:
            done = self._done[pack.stem]
            places = pack.places(space, key)
            if any(done[number] for _, number in places):
                return
            if not places:
                continue
            try:
                found = pack.find(space, digest)
            except (Corrupt, DiskError):
                continue  # told of when the pack is read through
            if found is not None:
                self._add(space, digest, found[1])
                done[found[0]] = 1
                return
        if space in PACKABLE and (space, digest) not in self._loose:
            self._take_one_loose(space, digest)

    def _take_one_loose(self, space: Space, digest: bytes) -> None:
        with suppress(Corrupt, DiskError):
            copy = self._moves.loose.get(space, digest)
            if copy is not None and encoded_size(copy.stored) <= PACKED_MAX:
                self._add(space, digest, copy.stored)
                self._loose.add((space, digest))

    def _add(self, space: Space, digest: bytes, stored: Stored) -> None:
        """Add an object and, that neighbours stay neighbours, the pieces it needs."""
        if space is Space.PIECES and digest in self._pieces:
            return
        if self._writer is None:
            self._writer = self._moves.writer(Grade.ARCHIVE, self._dictionary)
        self._writer.add(space, digest, stored)
        if space is Space.PIECES:
            self._pieces.add(digest)
        if isinstance(stored, Skeleton):
            for cut in stored.cuts:
                self._take(Space.PIECES, cut.digest)

    # --- what it left out ---

    def _take_rest(self, pack: Pack) -> Slices[None]:
        """What of a pack was not taken and is not archived: each object by its bytes, which are read."""
        done = self._done[pack.stem]
        try:
            with pack.open() as file:
                for number in range(file.table.blocks):
                    ref = file.table.block(number)
                    if not all(done[ref.first : ref.first + ref.objects]):
                        block = file.block(number)
                        for at in range(ref.first, ref.first + ref.objects):
                            if not done[at]:
                                self._take_left(ref.space, block.stored(at))
                    yield from self._turn_over()
                    yield ref.objects
        except (Corrupt, NoFile):
            self._kept.add(pack.stem)

    def _take_left(self, space: Space, stored: Stored) -> None:
        digest = digest_of_stored(stored)
        if (space, digest) not in self._rest and not self._archived(space, digest):
            self._rest.add((space, digest))
            self._add(space, digest, stored)

    def _archived(self, space: Space, digest: bytes) -> bool:
        """Whether the archive has a good copy, which means read and hashed."""
        for pack in self._archives:
            with suppress(Corrupt, DiskError):
                if pack.get(space, digest) is not None:
                    return True
        return False

    def _take_loose(self) -> Slices[None]:
        """Loose objects that the order left out, or that are packed as well."""
        for space, digest in self._loose_files():
            with suppress(Corrupt, DiskError):
                copy = self._moves.loose.get(space, digest)
                if copy is not None and encoded_size(copy.stored) <= PACKED_MAX:
                    self._take_left(space, copy.stored)
                    self._loose.add((space, digest))
            yield from self._turn_over()
            yield 1

    def _loose_files(self) -> Iterator[_Object]:
        for space in PACKABLE:
            for digest, _ in self._moves.loose.files(space):
                if (space, digest) not in self._loose:
                    yield space, digest

    # --- packs of the archive ---

    def _turn_over(self) -> Slices[None]:
        """Close the pack once it is large enough."""
        if self._writer is not None and self._writer.full(ARCHIVE_MAX):
            yield from self._close()

    def _close(self) -> Slices[None]:
        if self._writer is None:
            return
        stem = yield from self._writer.finish()
        with self._moves.switch():
            self._moves.put(self._writer, stem)
        self._writer = None
        self._pieces.clear()
        self._written.append(stem)
        self._archives.append(self._moves.packs.listed[stem])


def _is_archive(pack: Pack) -> bool:
    try:
        return pack.grade() is Grade.ARCHIVE
    except (Corrupt, DiskError):
        return False
