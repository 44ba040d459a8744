"""Making objects durable in the store: what is lacking is written, what is there is trusted only when it may be.

Owns the rule "exists is neither durable nor right" (architecture §3): a copy that is there counts when its bytes hash
to its name and its directory was synced after it was seen. That is remembered per object, in bounded memory, until
``forget``. Invariants: a name appears only after its bytes are synced; on return every object handed over is in the
store, whole and durable; a directory is synced at most once per call; no object is ever deleted. The caller holds the
store lock shared, lest a sweep take away what was seen. Must not: read for others, or know what the objects mean.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from agentsession_cas.core.packformat import PACKED_MAX, Packer, Space
from agentsession_cas.core.packindex import Row, encode_index
from agentsession_cas.core.zframes import compress
from agentsession_cas.effects import durable
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import Corrupt, DiskError, FileTaken
from agentsession_cas.objects.loose import Loose
from agentsession_cas.objects.packs import Packs, pack_stem

__all__ = ["LOOSE_BELOW", "Published", "Publisher"]

LOOSE_BELOW: Final = 64
"""Fewer lacking objects than this go out loose, more as one pack."""

REMEMBERED_MAX: Final = 1 << 16
"""Objects remembered as durable; the ones remembered longest go first."""


@dataclass(frozen=True, slots=True)
class Published:
    """What a publish did with the objects handed over, each counted once: ``held`` ones the store had already.

    ``pack`` is the stem of the pack written, "" when none was.
    """

    held: int
    loose: int
    packed: int
    pack: str = ""


class _Object(NamedTuple):
    space: Space
    digest: bytes
    data: bytes


@dataclass(slots=True)
class _Work:
    """One publish under way: what goes out loose and packed, and which directories are to be synced at its end."""

    loose: list[_Object] = field(default_factory=list)
    packed: list[_Object] = field(default_factory=list)
    syncs: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)


class Publisher:
    """The writing half of an object database. Safe for threads."""

    def __init__(self, host: Host, tmp_dir: str, loose: Loose, packs: Packs) -> None:
        self._host = host
        self._tmp_dir = tmp_dir
        self._loose = loose
        self._packs = packs
        self._guard = threading.Lock()
        self._durable: dict[tuple[Space, bytes], None] = {}
        self._made: set[str] = set()

    def forget(self) -> None:
        """Remember nothing as durable: something may have been deleted since."""
        with self._guard:
            self._durable = {}
            self._made = set()

    def publish(self, objects: Sequence[tuple[Space, bytes, bytes]], loose_below: int) -> Published:
        """See ``ObjectDatabase.publish``."""
        given = {(space, digest): _Object(space, digest, data) for space, digest, data in objects}
        unsure = [_checked(wanted) for key, wanted in given.items() if key not in self._durable]
        if not unsure:
            return Published(len(given), 0, 0)
        work = self._seek_all(unsure)
        if len(work.loose) + len(work.packed) < loose_below:
            work.loose += work.packed
            work.packed = []
        for wanted in work.loose:
            self._write_loose(wanted, work)
        pack = self._write_pack(work) if work.packed else ""
        for changed in sorted(work.syncs):
            self._host.fs.sync_dir(changed)
        self._remember(given, work.made)
        loose, packed = len(work.loose), len(work.packed)
        return Published(len(given) - loose - packed, loose, packed, pack)

    def _seek_all(self, unsure: list[_Object]) -> _Work:
        work = _Work()
        self._packs.relist()
        for wanted in unsure:
            if self._packs.get(wanted.space, wanted.digest, []) is not None:
                work.syncs.add(self._packs.directory)
                continue
            directory = self._loose.directory(wanted.space, wanted.digest)
            try:
                there = self._loose.get(wanted.space, wanted.digest) is not None
            except (Corrupt, DiskError):
                work.loose.append(wanted)  # put in the place of the rotten copy
                continue
            if there:
                self._stand(directory, work)
            elif len(wanted.data) > PACKED_MAX:
                work.loose.append(wanted)
            else:
                work.packed.append(wanted)
        return work

    def _stand(self, directory: str, work: _Work) -> None:
        """See that a fan-out directory is there, and that it and its name get synced."""
        work.syncs.add(directory)
        for path in (durable.parent(directory), directory):
            if path in self._made or path in work.made:
                continue
            with suppress(FileTaken):  # whoever made it may have crashed before he synced its name
                self._host.fs.mkdir(path)
            work.made.add(path)
            work.syncs.add(durable.parent(path))

    def _write_loose(self, wanted: _Object, work: _Work) -> None:
        self._stand(self._loose.directory(wanted.space, wanted.digest), work)
        path = self._loose.path(wanted.space, wanted.digest)
        durable.publish(self._host, self._tmp_dir, path, compress(wanted.data))

    def _write_pack(self, work: _Work) -> str:
        packer = Packer()
        pieces = [packer.add(*wanted) for wanted in work.packed]
        end = packer.finish()
        rows = [Row(digest, number) for number, digest in enumerate(end.digests)]
        stem = pack_stem(end.name)
        path = f"{self._packs.directory}/{stem}"
        # the idx first: without its pack it is nothing, and who finds the pack finds it too
        idx = encode_index(end.name, end.size, end.table, rows)
        durable.publish(self._host, self._tmp_dir, f"{path}.idx", idx)
        durable.publish(self._host, self._tmp_dir, f"{path}.pack", b"".join([*pieces, end.tail]))
        work.syncs.add(self._packs.directory)
        self._packs.forget(stem)
        self._packs.relist()
        return stem

    def _remember(self, keys: Iterable[tuple[Space, bytes]], made: set[str]) -> None:
        with self._guard:
            self._made |= made
            self._durable.update(dict.fromkeys(keys))
            for key in list(islice(self._durable, max(0, len(self._durable) - REMEMBERED_MAX))):
                del self._durable[key]


def _checked(wanted: _Object) -> _Object:
    if hashlib.sha256(wanted.data).digest() != wanted.digest:
        raise Corrupt(
            f"bytes that do not hash to sha256:{wanted.digest.hex()} cannot be stored under it", where="publish"
        )
    return wanted
