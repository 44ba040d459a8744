"""The object database: canonical bytes under their SHA-256, in loose files and packs (store.md A1 and Part B).

Composes loose objects, packs and the publisher into what other parts use. Invariants: what is returned hashes to its
name, on every read; an object is called absent only after the packs were listed once more, for a repack may have moved
it, and never while a pack that may hold it cannot be read. Must not: interpret objects, decide what is retained, or
take the store lock (the caller of ``publish`` holds it).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, NamedTuple, Self
from weakref import WeakSet

from agentsession_cas.core.packformat import Space
from agentsession_cas.core.packindex import keys_of
from agentsession_cas.core.pieces import Cut, Named, Skeleton, Stored, join, names_in
from agentsession_cas.effects.host import Host
from agentsession_cas.effects.pace import Rest, no_rest
from agentsession_cas.errors import AgentSessionError, Closed, Corrupt, DiskError, NoFile, NoObject
from agentsession_cas.objects.ahead import Helpers
from agentsession_cas.objects.check import Finding, Gather, check_objects, gather_alone
from agentsession_cas.objects.consolidate import PACKABLE, Consolidator
from agentsession_cas.objects.dictionaries import Dictionaries
from agentsession_cas.objects.inorder import InOrder
from agentsession_cas.objects.loose import Copy, Loose
from agentsession_cas.objects.pack import Pack
from agentsession_cas.objects.packfile import CACHE_MAX, BlockCache, Note, note_nothing
from agentsession_cas.objects.packs import Packs
from agentsession_cas.objects.publish import LOOSE_BELOW, Published, Publisher
from agentsession_cas.objects.salvage import salvage

__all__ = ["Location", "ObjectDatabase", "ObjectStats"]


_LISTED_MIN: Final = 4096


class Location(NamedTuple):
    """Where a copy of an object lies: the file, and of a pack the block (None in a loose file)."""

    space: Space
    digest: bytes
    path: str
    block: int | None


@dataclass(frozen=True, slots=True)
class ObjectStats:
    """Counts and bytes. An object with two copies counts twice. Idx files count among ``pack_bytes``.

    ``logical_bytes`` are those of all copies, of bodies without their pieces: these are counted by themselves.
    """

    loose: int
    loose_bytes: int
    packed: int
    packs: int
    pack_bytes: int
    logical_bytes: int


def _together(names: Iterable[Named]) -> Named:
    """What any of them names, each once."""
    pieces: dict[bytes, None] = {}
    blobs: dict[bytes, None] = {}
    for named in names:
        pieces.update(dict.fromkeys(named.pieces))
        blobs.update(dict.fromkeys(named.blobs))
    return Named(tuple(pieces), tuple(blobs))


class ObjectDatabase:
    """The objects of the store at ``root``, whose directories ``Layout.create`` made. Safe for threads.

    Digests are raw SHA-256, 32 bytes. At most ``cache_max`` bytes of blocks are kept in memory. A context manager;
    closing it closes nothing on disk.
    """

    def __init__(self, host: Host, root: str, *, cache_max: int = CACHE_MAX) -> None:
        self._host = host
        self._fs = host.fs
        self._dir = f"{root}/objects"
        self._tmp_dir = f"{root}/tmp"
        self._loose = Loose(host.fs, self._dir, self._whole)
        self._dictionaries = Dictionaries(host.fs, f"{self._dir}/dict")
        self._packs = Packs(host.fs, f"{self._dir}/pack", self._dictionaries, BlockCache(cache_max), self._whole)
        self._publisher = Publisher(host, self._tmp_dir, self._loose, self._packs)
        self._helpers = Helpers()
        self._readers: WeakSet[InOrder] = WeakSet()
        self._closed = False

    def get(self, space: Space, digest: bytes) -> bytes:
        """The object's bytes, hashed again on every read (store.md A1).

        Raises NoObject when it is absent; Corrupt or DiskError when no copy of it can be read.
        """
        self._use()
        while True:
            listed = self._packs.listed
            errors: list[AgentSessionError] = []
            copy = self._packs.get(space, digest, errors) or self._get_loose(space, digest, errors)
            if copy is not None:
                return copy.data
            self._packs.relist()
            if self._packs.listed is listed:
                break
        if errors:
            raise errors[0]
        raise NoObject(f"no {space.name.lower()} object sha256:{digest.hex()}", where=self._dir)

    def in_order(self, space: Space) -> InOrder:
        """A reader for many objects of a space, quick where they are asked for about in the order they were stored.

        Its ``get`` is :meth:`get`: every object is hashed, and the same errors come.
        """
        self._use()
        reader = InOrder(self._packs, space, self._use, self.get, self._glimpse, self._helpers)
        self._readers.add(reader)
        return reader

    def get_many(self, space: Space, digests: Iterable[bytes]) -> Iterator[bytes]:
        """The bytes of many objects, in the order of ``digests``: as :meth:`get` gives each, when it is its turn."""
        return map(self.in_order(space).get, digests)

    def holds(self, space: Space, digest: bytes) -> bool:
        """Whether a good copy is there, which means read and hashed. Raises DiskError when that cannot be told."""
        try:
            self.get(space, digest)
        except (NoObject, Corrupt):
            return False
        return True

    def lacking(self, names: Sequence[tuple[Space, bytes]]) -> list[tuple[Space, bytes]]:
        """Those of many objects of which no good copy is there, in order. Raises DiskError when that cannot be told."""
        self._use()
        self._packs.relist()
        keys = keys_of([digest for _, digest in names])
        # the keys of all packs are joined for many names alone: a few are looked for one by one
        packed = self._packs.among(set(keys)) if len(names) >= _LISTED_MIN else set(keys)
        filed = self._filed(names)
        return [
            name
            for key, name in zip(keys, names, strict=True)
            if (key not in packed or self._packs.get(*name, []) is None)
            and not (name in filed and self._lies_loose(*name))
        ]

    def _filed(self, names: Sequence[tuple[Space, bytes]]) -> Container[tuple[Space, bytes]]:
        """Those of the names that may have a file of their own: of many, directories tell with less ado."""
        if len(names) < _LISTED_MIN:
            return frozenset(names)
        fans = {(space, digest[0]) for space, digest in names}
        return {(space, digest) for space, first in fans for digest in self._loose.fan(space, first)}

    def _lies_loose(self, space: Space, digest: bytes) -> bool:
        try:
            return self._loose.get(space, digest) is not None
        except Corrupt:
            return False

    def holds_any(self, space: Space) -> bool:
        """Whether there may be objects of a space: True also while a pack does not say."""
        self._use()
        if next(self._loose.files(space), None) is not None:
            return True
        for pack in self.packs():
            try:
                if space in pack.index().table.spaces():
                    return True
            except (Corrupt, DiskError):
                return True
        return False

    def publish(
        self, objects: Sequence[tuple[Space, bytes, bytes]], *, loose_below: int = LOOSE_BELOW, rest: Rest = no_rest
    ) -> Published:
        """Store what is lacking of ``objects`` (space, digest, bytes); all of them are durable on return.

        Fewer than ``loose_below`` lacking ones go out loose, more as one pack and its idx; objects past ``PACKED_MAX``
        bytes lie loose always. A copy whose bytes are wrong is replaced by the ones given. Hold the store lock shared
        around this (architecture §3). Raises Corrupt when bytes given do not hash to their digest, before anything is
        written; DiskError, DiskFull and their like with nothing half-visible: what was put in place is whole. Calls
        ``rest`` where others may run.
        """
        self._use()
        return self._publisher.publish(objects, loose_below, rest)

    def renew(self, space: Space, digest: bytes, data: bytes) -> None:
        """Store an object, held or not, as if it came new: durable on return, and young to a sweep.

        It lies loose, for there it has an age of its own. Hold the store lock shared around this. Raises as
        :meth:`publish`.
        """
        self._use()
        self._publisher.renew((space, digest, data))

    def names(self, digest: bytes) -> Named:
        """What a body names: pieces, by any of its copies, and blobs. Its pieces are not read.

        Raises NoObject when there is no copy, Corrupt or DiskError when there is none that reads.
        """
        self._use()
        self._packs.relist()
        copies, errors = self._packs.stored(Space.CONTENTS, digest)
        try:
            loose = self._loose.stored(Space.CONTENTS, digest)
            copies += [] if loose is None else [loose]
        except (Corrupt, DiskError) as error:
            errors.append(error)
        if copies:
            return _together(names_in(stored) for stored in copies)
        if errors:
            raise errors[0]
        raise NoObject(f"no contents object sha256:{digest.hex()}", where=self._dir)

    def skeletons(self, wanted: Callable[[str], bool] = lambda _: True) -> Iterator[Skeleton]:
        """Every copy of a body that lies without its pieces, in files whose path is ``wanted``: what needs pieces.

        Pieces are not read. As :meth:`iterate`: what moves meanwhile may come twice, and what cannot be read is told
        at the end, when all else was given. Raises Corrupt, DiskError.
        """
        self._use()
        error: AgentSessionError | None = None
        for digest, path in self._loose.files(Space.CONTENTS):
            try:
                stored = self._loose.stored(Space.CONTENTS, digest) if wanted(path) else None
            except (Corrupt, DiskError) as failed:
                error = error or failed
                continue
            if isinstance(stored, Skeleton):
                yield stored
        for pack in self._every_pack():
            try:
                if wanted(pack.path):
                    yield from (skeleton for _, skeleton in pack.skeletons())
            except NoFile:
                continue
            except (Corrupt, DiskError) as failed:
                error = error or failed
        if error is not None:
            raise error

    def forget(self) -> None:
        """Trust nothing seen so far to be durable, or to be there: call it when the sweep epoch has moved."""
        self._publisher.forget()
        self._packs.relist()

    def packs(self) -> list[Pack]:
        """Every pack there is, listed anew, whether it reads or not."""
        self._use()
        self._packs.relist()
        return list(self._packs.listed.values())

    def sound_packs(self) -> list[Pack]:
        """Every pack whose idx is good or can be made, but for those that a repack found not to read."""
        sound: list[Pack] = []
        for pack in self.packs():
            with suppress(Corrupt, DiskError):
                pack.index()
                pack.grade()
                if pack.stem not in self._packs.spoilt:
                    sound.append(pack)
        return sound

    def loose_digests(self, space: Space) -> list[bytes]:
        """The digest of every object of a space that lies loose."""
        self._use()
        return [digest for digest, _ in self._loose.files(space)]

    def loose_fan(self, space: Space, first: int) -> list[bytes]:
        """The digest of every object of a space that lies loose and whose digest begins with the byte ``first``."""
        self._use()
        return self._loose.fan(space, first)

    def loose_path(self, space: Space, digest: bytes) -> str:
        """The file an object has when it lies loose."""
        return self._loose.path(space, digest)

    def estimate_loose(self) -> int:
        """About how many loose objects a repack would pack; one directory of each space is listed."""
        self._use()
        return sum(self._loose.estimate(space) for space in PACKABLE)

    def consolidator(self, switch: Callable[[], AbstractContextManager[None]]) -> Consolidator:
        """The moves of a repack; ``switch`` holds the store lock shared. One repack at a time may use it."""
        self._use()
        return Consolidator(self._host, self._tmp_dir, self._loose, self._packs, self._dictionaries, switch)

    def iterate(self, space: Space | None = None) -> Iterator[Location]:
        """Every copy of every object, of one space or (None) of all: loose ones by digest, packs as they lie.

        Packs are read, for only its bytes tell an object's name; loose files are not, so nothing is said of what is in
        them. An object moved meanwhile may come twice and is never missed. Raises Corrupt or DiskError at the end, when
        all else was given, if a pack or some of its blocks cannot be read.
        """
        self._use()
        for wanted in Space if space is None else (space,):
            for digest, path in self._loose.files(wanted):
                yield Location(wanted, digest, path, None)
        error: AgentSessionError | None = None
        for pack in self._every_pack():
            try:
                for found, digest, block in pack.locations():
                    if space is None or found is space:
                        yield Location(found, digest, pack.path, block)
            except NoFile:
                continue
            except (Corrupt, DiskError) as failed:
                error = error or failed
        if error is not None:
            raise error

    def check(self, note: Note = note_nothing, gather: Gather = gather_alone) -> Iterator[Finding]:
        """Read everything and tell what is wrong: the objects' part of fsck (store.md A12); codes in ``check``.

        ``note`` hears of every object that :meth:`iterate` would give; ``gather`` reads the blocks of a pack.
        """
        self._use()
        piece = partial(self.get, Space.PIECES)
        shows = self.in_order(Space.CONTENTS).shows
        return check_objects(
            self._fs, self._dir, self._loose, self._packs, self._dictionaries, piece, shows, note, gather
        )

    def salvage(self) -> Iterator[tuple[Space, bytes]]:
        """What lies where it cannot be served: the bytes of misnamed files and of blocks that fail their checksum.

        Nothing vouches for them but their own hashes. Everything is read.
        """
        self._use()
        for space, stored in salvage(self._fs, self._loose, self._every_pack()):
            with suppress(Corrupt, DiskError):
                yield space, self.joined(stored)

    def joined(self, stored: Stored) -> bytes:
        """The bytes of an object as it is stored; a body is put together and tested. Raises Corrupt, DiskError."""
        return self._whole(stored) if isinstance(stored, Skeleton) else stored

    def stats(self) -> ObjectStats:
        """Counts and bytes. Lists every loose object and opens each; a pack that cannot be read counts as a file."""
        self._use()
        loose = loose_bytes = packed = packs = pack_bytes = logical = 0
        for space in Space:
            for digest, _ in self._loose.files(space):
                size, expanded = self._loose.sizes(space, digest)
                loose += 1
                loose_bytes += size
                logical += expanded
        self._packs.relist()
        for pack in self._packs.listed.values():
            packs += 1
            pack_bytes += sum(found.size for path in (pack.path, pack.idx_path) if (found := self._fs.stat(path)))
            try:
                index = pack.index()
            except (Corrupt, DiskError):
                continue
            packed += index.objects
            logical += index.table.served_size()
        return ObjectStats(loose, loose_bytes, packed, packs, pack_bytes, logical)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> None:
        """Let go of everything held; again is a no-op. Later calls raise Closed."""
        self._closed = True
        self._helpers.close()
        self._packs.close()
        for reader in list(self._readers):
            reader.let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _use(self) -> None:
        if self._closed:
            raise Closed("the object database is closed", where=self._dir)

    def _get_loose(self, space: Space, digest: bytes, errors: list[AgentSessionError]) -> Copy | None:
        try:
            return self._loose.get(space, digest)
        except (Corrupt, DiskError) as error:
            errors.append(error)
            return None

    def _whole(self, skeleton: Skeleton) -> bytes:
        """A body put together. Its own hash vouches for its pieces; they are hashed if it does not come out right."""
        with suppress(Corrupt):
            data = join(skeleton, self._glimpse)
            if hashlib.sha256(data).digest() == skeleton.digest:
                return data
        data = join(skeleton, self._piece)
        found = hashlib.sha256(data)
        if found.digest() != skeleton.digest:
            raise Corrupt(
                f"what should be sha256:{skeleton.digest.hex()} is put together to sha256:{found.hexdigest()}",
                where=self._dir,
                next_step="run fsck",
            )
        return data

    def _glimpse(self, cut: Cut) -> bytes:
        stored = self._packs.glimpse(Space.PIECES, cut.digest) or self._loose.glimpse(Space.PIECES, cut.digest)
        return stored if isinstance(stored, bytes) else self._piece(cut)

    def _piece(self, cut: Cut) -> bytes:
        """A piece. Raises Corrupt when there is no good copy: the body it belongs to is lost; DiskError."""
        try:
            return self.get(Space.PIECES, cut.digest)
        except NoObject as error:
            what = f"a piece sha256:{cut.digest.hex()} is missing"
            raise Corrupt(what, where=self._dir, next_step="run fsck") from error

    def _every_pack(self) -> Iterator[Pack]:
        """Each pack once, until a listing shows no other."""
        seen: set[str] = set()
        while True:
            self._packs.relist()
            new = [pack for stem, pack in self._packs.listed.items() if stem not in seen]
            if not new:
                return
            for pack in new:
                seen.add(pack.stem)
                yield pack
