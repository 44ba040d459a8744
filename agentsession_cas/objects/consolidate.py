"""Making few packs out of many, and small ones out of large: the moves of a repack (architecture §3).

Owns the order: what is to be replaced is read and verified, the replacement written, synced, read back and given its
name durably, and then, with the store lock held shared, what it replaces goes. Invariants: at every moment a good copy
of every object that had one is there under a durable name; a pack that came out under the name of one it replaces is
that pack and stays; a pack with anything in it that does not read stays as it is. Nothing is dropped: what nobody needs
is a sweep's to take. A crash or a stop at any point leaves at most more copies than one. Blobs that lie loose stay so,
for a sweep tells a young one by its file. The caller sees to it that one repack runs at a time. Must not: decide when.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Final, NamedTuple

from agentsession_cas.core.packformat import PACKED_MAX, Codec, Grade, Space
from agentsession_cas.core.packindex import Index
from agentsession_cas.core.pieces import Stored, digest_of_stored, encoded_size
from agentsession_cas.core.slices import Slices
from agentsession_cas.core.zframes import Dictionary
from agentsession_cas.effects import durable
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import Corrupt, DiskError, NoFile
from agentsession_cas.objects.dictionaries import Dictionaries
from agentsession_cas.objects.loose import Loose
from agentsession_cas.objects.pack import Pack
from agentsession_cas.objects.packs import Packs
from agentsession_cas.objects.packwriter import PackWriter

__all__ = ["PACKABLE", "Consolidator", "Moved"]

PACKABLE: Final = (Space.ENTRIES, Space.CONTENTS, Space.PIECES)
"""Spaces whose loose objects go into packs."""

_STALE_NS: Final = 3600 * 10**9
"""An idx untouched for so long is of no pack that is about to get its name."""

_TOGETHER: Final = 32
"""So many objects of a block are dealt with in one slice."""

_Object = tuple[Space, bytes]


class Moved(NamedTuple):
    """What a move did: the stems of packs written and removed, how many loose objects went, and what had to stay."""

    written: list[str]
    removed: list[str]
    loose: int
    kept: list[str]


class _Added:
    """What is added to a pack, each object once, and not what packs that stay have a good copy of.

    ``relied_on`` are those of them that have one.
    """

    def __init__(self, writer: PackWriter, staying: Sequence[Pack]) -> None:
        self._writer = writer
        self._staying = staying
        self._done: set[_Object] = set()
        self.relied_on: set[Pack] = set()

    def add(self, space: Space, digest: bytes, stored: Stored) -> None:
        """Take an object that hashes to ``digest``."""
        if (space, digest) not in self._done:
            self._done.add((space, digest))
            if not self._is_held(space, digest):
                self._writer.add(space, digest, stored)

    def _is_held(self, space: Space, digest: bytes) -> bool:
        for pack in self._staying:
            with suppress(Corrupt, DiskError):
                if pack.get(space, digest) is not None:
                    self.relied_on.add(pack)
                    return True
        return False


class Consolidator:
    """The moves of one store. ``switch`` holds the store lock shared; StoreLocked passes through."""

    def __init__(
        self,
        host: Host,
        tmp_dir: str,
        loose: Loose,
        packs: Packs,
        dictionaries: Dictionaries,
        switch: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.host = host
        self.tmp_dir = tmp_dir
        self.loose = loose
        self.packs = packs
        self.dictionaries = dictionaries
        self.switch = switch

    def writer(self, grade: Grade, dictionary: Dictionary | None) -> PackWriter:
        """A pack to fill."""
        return PackWriter(self.host, self.tmp_dir, self.packs.directory, self.dictionaries, grade, dictionary)

    # --- several into one ---

    def merge(
        self, inputs: Sequence[Pack], loose: Iterable[_Object], grade: Grade, dictionary: Dictionary | None
    ) -> Slices[Moved]:
        """Put packs and loose objects into one pack of a grade.

        Blocks of packs of that grade are copied as they are. What is in others is compressed anew, unless a pack that
        stays, or is copied, has a good copy. Raises Corrupt when an input does not read (``Packs.spoilt`` has it then),
        NoFile when one is gone, DiskError; nothing has changed then.
        """
        by_age = self._oldest_first(inputs)
        copied = [pack for pack in by_age if pack.grade() is grade]
        recoded = [pack for pack in by_age if pack not in copied]
        staying = [pack for pack in self.packs.listed.values() if pack not in recoded]
        writer = self.writer(grade, dictionary)
        try:
            blocks: set[bytes] = set()
            for pack in copied:
                yield from self._read(pack, _copy(pack, writer, blocks))
            added = _Added(writer, staying)
            for pack in recoded:
                yield from self._read(pack, _recode(pack, added))
            taken = yield from self._take_loose(loose, added)
            stem = (yield from writer.finish()) if writer.objects else ""
            with self.switch():
                for pack in (*inputs, *added.relied_on):
                    if self.host.fs.stat(pack.path) is None:
                        raise NoFile("a pack that was to be merged is gone", where=pack.path)
                if stem:
                    self.put(writer, stem)
                removed = self.remove([pack for pack in inputs if pack.stem != stem])
                self.remove_loose(taken)
            return Moved([stem] if stem else [], removed, len(taken), [])
        finally:
            writer.abandon()

    def _oldest_first(self, packs: Iterable[Pack]) -> list[Pack]:
        """Packs in the order they were made in: what a session wrote in turn is read in turn."""
        made: list[tuple[int, str, Pack]] = []
        for pack in packs:
            found = self.host.fs.stat(pack.path)
            made.append((found.mtime_ns if found is not None else 0, pack.stem, pack))
        return [pack for *_, pack in sorted(made)]

    def _read(self, pack: Pack, work: Slices[None]) -> Slices[None]:
        """Do the work; a pack that does not read is remembered."""
        try:
            yield from work
        except Corrupt:
            self.packs.spoilt.add(pack.stem)
            raise

    def _take_loose(self, loose: Iterable[_Object], added: _Added) -> Slices[list[_Object]]:
        """Add loose objects; returns those that are in a pack now. What does not read stays where it is."""
        taken: list[_Object] = []
        for space, digest in loose:
            with suppress(Corrupt, DiskError):
                copy = self.loose.get(space, digest)
                if copy is None or encoded_size(copy.stored) > PACKED_MAX:
                    continue
                added.add(space, digest, copy.stored)
                taken.append((space, digest))
            yield 1
        return taken

    # --- what both moves end with ---

    def put(self, writer: PackWriter, stem: str) -> None:
        """Put a finished pack in place, durably, and look at it anew."""
        writer.place()
        self.packs.forget(stem)
        self.packs.relist()

    def remove(self, packs: Sequence[Pack]) -> list[str]:
        """Remove packs whose objects are all elsewhere, durably; returns their stems.

        The pack goes before its idx: who finds one finds both, and an idx alone is nothing.
        """
        for pack in packs:
            for path in (pack.path, pack.idx_path):
                with suppress(NoFile):
                    self.host.fs.unlink(path)
        if packs:
            self.host.fs.sync_dir(self.packs.directory)
        self.packs.relist()
        return [pack.stem for pack in packs]

    def mend(self) -> None:
        """Write anew what can be made of what is there: copies of dictionaries, idx files; remove stale bare ones."""
        self.dictionaries.mend(self.host, self.tmp_dir)
        self.packs.relist()
        for pack in list(self.packs.listed.values()):
            try:
                with pack.load_idx()[0] as mapping:
                    Index(mapping.view).test()
            except (Corrupt, DiskError):
                with suppress(Corrupt, NoFile):
                    self._mend_idx(pack)
        for name in self.host.fs.listdir(self.packs.directory):
            path = f"{self.packs.directory}/{name}"
            bare = name.endswith(".idx") and name.removesuffix(".idx") not in self.packs.listed
            found = self.host.fs.stat(path) if bare else None
            if found is not None and self.host.clock.now_ns() - found.mtime_ns > _STALE_NS:
                self.host.fs.unlink(path)

    def _mend_idx(self, pack: Pack) -> None:
        data, gap = pack.make_idx()
        if not gap:
            durable.publish(self.host, self.tmp_dir, pack.idx_path, data)
            self.host.fs.sync_dir(self.packs.directory)
            self.packs.forget(pack.stem)
            self.packs.relist()

    def drop_dictionaries(self) -> None:
        """Remove the dictionaries no pack needs. Does nothing while a pack does not read."""
        self.packs.relist()
        needed: set[int] = set()
        for pack in self.packs.listed.values():
            try:
                with pack.open() as file:
                    needed |= file.table.dictionaries()
            except (Corrupt, DiskError):
                return
        for path, number, _ in list(self.dictionaries.files()):
            if number and number not in needed:
                self.host.fs.unlink(path)

    def remove_loose(self, objects: Iterable[_Object]) -> None:
        """Remove loose objects that are in packs. Should a crash undo it, a copy more is there."""
        for space, digest in objects:
            with suppress(NoFile):
                self.host.fs.unlink(self.loose.path(space, digest))


def _copy(pack: Pack, writer: PackWriter, copied: set[bytes]) -> Slices[None]:
    """All blocks of a pack as they are, but for those ``copied`` already: a merge that was cut off leaves both packs.

    Raises Corrupt when one fails its checksum, NoFile.
    """
    keys = yield from pack.key_slices()
    with pack.open() as file:
        if file.table.objects != len(keys):
            raise Corrupt("a pack whose idx is another's", where=pack.path)
        number = 0
        while number < file.table.blocks:
            together = [file.sound_frame(number)]
            number += 1
            if together[0][0].codec is not Codec.ENVELOPES and number < file.table.blocks:
                behind = file.sound_frame(number)
                if behind[0].codec is Codec.ENVELOPES:  # it may need the block it lies behind
                    together.append(behind)
                    number += 1
            told = [bytes((ref.space, ref.codec)) + frame for ref, frame in together]  # a frame says neither
            name = hashlib.sha256(b"".join(told)).digest()
            if name not in copied:
                copied.add(name)
                for ref, frame in together:
                    writer.copy(ref, frame, keys[ref.first : ref.first + ref.objects])
            yield sum(ref.objects for ref, _ in together)


def _recode(pack: Pack, added: _Added) -> Slices[None]:
    """All objects of a pack. Raises Corrupt when a block does not read, NoFile."""
    with pack.open() as file:
        for number in range(file.table.blocks):
            block = file.block(number)
            space = Space(file.table.space_of(number))
            end = block.first + len(block)
            for first in range(block.first, end, _TOGETHER):
                some = range(first, min(first + _TOGETHER, end))
                for at in some:
                    stored = block.stored(at)
                    added.add(space, digest_of_stored(stored), stored)
                yield len(some)
