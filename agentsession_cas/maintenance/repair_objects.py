"""The repair of a store's objects: idx files made anew, packs and loose files that do not read set aside.

Owns the order: what can be read of a damaged pack is in a new one, under a durable name, before the damaged one goes to
``damaged/``, which keeps it. A pack that is whole stays, whatever its blocks need that is not there. One
repack, sweep or repair of objects at a time; the store lock is held shared while files move. Must not: decide who needs
an object, or delete one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Final

from agentsession_cas.core.packformat import PACKED_MAX, Grade, Space
from agentsession_cas.core.packindex import key_of
from agentsession_cas.core.pieces import Skeleton, Stored, digest_of_stored
from agentsession_cas.core.slices import drain
from agentsession_cas.effects.durable import ensure_dir, publish
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import Corrupt, DiskError, NoFile
from agentsession_cas.layout import DAMAGED, Layout
from agentsession_cas.maintenance.repair_pool import Pool
from agentsession_cas.maintenance.repair_report import ObjectRepair
from agentsession_cas.maintenance.turn import turn
from agentsession_cas.objects.check import Finding
from agentsession_cas.objects.consolidate import Consolidator
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.objects.pack import Pack
from agentsession_cas.objects.packfile import PackFile
from agentsession_cas.objects.salvage import open_pack, salvage_block, salvage_file

__all__ = ["repairing_objects"]

_PIECE: Final = 1 << 20
_DERIVED: Final = frozenset({"missing_idx", "corrupt_idx", "idx_mismatch", "dictionary_copy"})
_LOOSE: Final = frozenset({"corrupt_object", "misnamed_object"})

_Object = tuple[Space, bytes, Stored]


@contextmanager
def repairing_objects(
    layout: Layout, objects: ObjectDatabase, pool: Pool, *, dry_run: bool
) -> Iterator[Callable[[], ObjectRepair]]:
    """Find what is wrong with the objects and mend what is derived, idx files above all; what it gives does the rest.

    Between the two sessions are repaired: they need whole idx files, and what is set aside later. ``dry_run`` says what
    would be done and writes nothing. Raises StoreLocked when a repack runs, DiskError and its like; what was done by
    then stays.
    """
    with nullcontext() if dry_run else turn(layout):
        work = _Repair(layout, objects, pool, dry_run)
        work.begin()
        yield work.finish


class _Repair:
    """One repair under way."""

    def __init__(self, layout: Layout, objects: ObjectDatabase, pool: Pool, dry_run: bool) -> None:
        self._layout = layout
        self._host: Host = layout.host
        self._objects = objects
        self._pool = pool
        self._moves: Consolidator = objects.consolidator(partial(layout.shared))
        self._dry_run = dry_run
        self._report = ObjectRepair()
        self._found: list[Finding] = []
        self._bad: list[Pack] = []

    def begin(self) -> None:
        """Find what is wrong; mend what can be made of the rest."""
        report, found = self._report, list(self._objects.check())
        packs = {pack.path: pack for pack in self._objects.packs()}
        bad = dict.fromkeys(each.path for each in found if _is_bad(each))
        self._found = found
        self._bad = [packs[path] for path in bad if path in packs]
        aside = {pack.idx_path for pack in self._bad}
        report.packs = [pack.path for pack in self._bad]
        report.indexes = [each.path for each in found if each.code in _DERIVED and each.path not in aside]
        report.loose = [each.path for each in found if each.code in _LOOSE]
        mismatched = {each.path for each in found if each.code == "idx_mismatch"}
        lying = [pack for pack in packs.values() if pack.idx_path in mismatched and pack not in self._bad]
        if self._dry_run:
            for pack in lying:
                pack.reindex()
        elif any(each.code in _DERIVED or each.code == "bare_idx" for each in found):
            self._moves.mend()
            for pack in lying:
                self._index(pack)
        for each in found if not self._dry_run else ():
            if each.code == "misnamed_object":
                self._name(each)

    def finish(self) -> ObjectRepair:
        """Set aside what does not read, once what reads of it is elsewhere."""
        if self._dry_run:
            self._report.salvaged = sum(1 for pack in self._bad for _ in self._readable(pack))
            return self._report
        for pack in self._bad:
            self._pack(pack)
        for each in self._found:
            if each.code in _LOOSE:
                self._loose(each)
        return self._report

    def _index(self, pack: Pack) -> None:
        try:
            data, _ = pack.make_idx()
        except (Corrupt, NoFile):
            return
        publish(self._host, self._layout.tmp, pack.idx_path, data)
        self._host.fs.sync_dir(self._moves.packs.directory)
        self._moves.packs.forget(pack.stem)
        self._moves.packs.relist()

    # --- packs ---

    def _pack(self, pack: Pack) -> None:
        writer, stem = self._moves.writer(Grade.FRESH, None), ""
        loose: list[tuple[Space, bytes, bytes]] = []
        try:
            for space, digest, stored in self._readable(pack):
                if isinstance(stored, Skeleton) or len(stored) <= PACKED_MAX:
                    writer.add(space, digest, stored)
                else:
                    loose.append((space, digest, stored))
                self._report.salvaged += 1
            stem = drain(writer.finish()) if writer.objects else ""
            with self._moves.switch():
                top = self._aside()
                if stem == pack.stem:  # made anew byte for byte: the damaged one is copied, for its name is needed
                    self._copy(pack.path, f"{top}/{pack.stem}.pack")
                    self._host.fs.sync_dir(top)
                if stem:
                    self._moves.put(writer, stem)
                if loose:
                    self._objects.publish(loose)
                if stem != pack.stem:
                    self._set_aside(pack.path, f"{top}/{pack.stem}.pack")
                    self._set_aside(pack.idx_path, f"{top}/{pack.stem}.idx")
        finally:
            writer.abandon()
        self._moves.packs.forget(pack.stem)
        self._moves.packs.relist()

    def _readable(self, pack: Pack) -> Iterator[_Object]:
        """Every object of a damaged pack that reads, once; of a block that fails its sum, what its bytes prove."""
        file = open_pack(pack)
        if file is None:
            return
        keys = _keys(pack)
        seen: set[tuple[Space, bytes]] = set()
        with file:
            for number in range(file.table.blocks):
                try:
                    file.block(number)
                    good = True
                except (Corrupt, DiskError):
                    good = False
                found = salvage_block(file, number)
                if found is None:
                    self._report.unread += _count(file, number)
                    continue
                space, block = found
                for at in range(block.first, block.first + len(block)):
                    stored = block.stored(at)
                    digest = digest_of_stored(stored)
                    proven = keys is not None and keys[at] == key_of(digest) and not isinstance(stored, Skeleton)
                    if not (good or proven):
                        self._report.unread += 1
                    elif (space, digest) not in seen:
                        seen.add((space, digest))
                        yield space, digest, stored

    # --- loose files ---

    def _name(self, found: Finding) -> None:
        """What a misnamed file holds is put where it belongs."""
        stored = salvage_file(self._host.fs, found.path)
        if stored is not None and found.space is not None:
            with self._layout.shared(), suppress(Corrupt):
                data = self._objects.joined(stored)
                self._objects.publish([(found.space, digest_of_stored(stored), data)])

    def _loose(self, found: Finding) -> None:
        space, digest = found.space, found.digest
        assert space is not None
        assert digest is not None
        stored = salvage_file(self._host.fs, found.path)
        if stored is not None and digest_of_stored(stored) == digest:
            return  # a session's repair put it there anew
        with self._layout.shared():
            self._set_aside(found.path, f"{self._aside()}/{space.name.lower()}-{digest.hex()}")
            good = self._pool.get(space, digest)
            if good is not None:
                self._objects.publish([(space, digest, good)])
                self._report.salvaged += 1

    # --- what is replaced ---

    def _aside(self) -> str:
        """The directory of this repair in ``damaged/``."""
        if not self._report.replaced:
            fs, top = self._host.fs, f"{self._layout.root}/{DAMAGED}"
            ensure_dir(fs, top)
            numbers = [int(name) for name in fs.listdir(top) if name.isdigit()]
            self._report.replaced = f"{top}/{max(numbers, default=0) + 1}"
            ensure_dir(fs, self._report.replaced)
        return self._report.replaced

    def _set_aside(self, path: str, target: str) -> None:
        fs = self._host.fs
        try:
            fs.rename(path, target)
        except NoFile:
            return
        fs.sync_dir(self._aside())
        fs.sync_dir(path.rpartition("/")[0])

    def _copy(self, path: str, target: str) -> None:
        source, copy = self._host.fs.open(path), self._host.fs.create(target)
        try:
            for at in range(0, source.size(), _PIECE):
                copy.pwrite(source.pread(_PIECE, at), at)
            copy.sync()
        finally:
            source.close()
            copy.close()


def _is_bad(found: Finding) -> bool:
    return found.path.endswith(".pack") and found.code in ("corrupt_pack", "unreadable_file")


def _keys(pack: Pack) -> list[int] | None:
    """The key of every object by number, when the idx has them."""
    try:
        mapping, index = pack.load_idx()
        with mapping:
            return list(index.keys())
    except (Corrupt, DiskError):
        return None


def _count(file: PackFile, number: int) -> int:
    try:
        return file.table.block(number).objects
    except Corrupt:
        return 0
