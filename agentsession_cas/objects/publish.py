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
from typing import Final

from agentsession_cas.core.packer import Packer
from agentsession_cas.core.packformat import PACKED_MAX, Space
from agentsession_cas.core.packindex import encode_index, keys_of
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

_TAGS: Final = [bytes([space]) for space in Space]
"""What tells apart objects of one digest in several spaces."""


@dataclass(frozen=True, slots=True)
class Published:
    """What a publish did with the objects handed over, each counted once: ``held`` ones the store had already.

    ``pack`` is the stem of the pack written, "" when none was.
    """

    held: int
    loose: int
    packed: int
    pack: str = ""


_Object = tuple[Space, bytes, bytes]


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
        self._durable: dict[bytes, None] = {}
        self._made: set[str] = set()

    def forget(self) -> None:
        """Remember nothing as durable: something may have been deleted since."""
        with self._guard:
            self._durable = {}
            self._made = set()

    def publish(self, objects: Sequence[tuple[Space, bytes, bytes]], loose_below: int) -> Published:
        """See ``ObjectDatabase.publish``."""
        given = {_TAGS[wanted[0]] + wanted[1]: wanted for wanted in objects}
        remembered = self._durable
        unsure = [wanted for tag, wanted in given.items() if tag not in remembered]
        if not unsure:
            return Published(len(given), 0, 0)
        for wanted in unsure:
            _check_name(wanted)
        work = _Work()
        self._seek(unsure, loose_below, work)
        for wanted in work.loose:
            self._write_loose(wanted, work)
        pack = self._write_pack(work) if work.packed else ""
        for changed in sorted(work.syncs):
            self._host.fs.sync_dir(changed)
        self._remember(given, work.made)
        loose, packed = len(work.loose), len(work.packed)
        return Published(len(given) - loose - packed, loose, packed, pack)

    def renew(self, wanted: _Object) -> None:
        """See ``ObjectDatabase.renew``: the file is written anew, which is what makes the object young again."""
        _check_name(wanted)
        work = _Work()
        self._write_loose(wanted, work)
        for changed in sorted(work.syncs):
            self._host.fs.sync_dir(changed)
        self._remember((_TAGS[wanted[0]] + wanted[1],), work.made)

    def _seek(self, unsure: list[_Object], loose_below: int, work: _Work) -> None:
        """Tell what is lacking, and how it goes out.

        Loose copies of what goes into a pack are not looked for: another copy costs its bytes until a repack, looking
        costs as much time as writing it.
        """
        lacking = self._not_packed(unsure, work)
        if len(lacking) >= loose_below:
            work.packed = [wanted for wanted in lacking if len(wanted[2]) <= PACKED_MAX]
            lacking = [wanted for wanted in lacking if len(wanted[2]) > PACKED_MAX]
        for wanted in lacking:
            space, digest, _ = wanted
            try:
                there = self._loose.get(space, digest) is not None
            except (Corrupt, DiskError):
                there = False  # put in the place of the rotten copy
            if there:
                self._stand(self._loose.directory(space, digest), work)
            else:
                work.loose.append(wanted)

    def _not_packed(self, unsure: list[_Object], work: _Work) -> list[_Object]:
        """Those of which no pack has a good copy."""
        self._packs.relist()
        keys = keys_of([digest for _, digest, _ in unsure])
        maybe = self._packs.among(set(keys))
        if not maybe:
            return unsure
        lacking: list[_Object] = []
        for key, wanted in zip(keys, unsure, strict=True):
            if key in maybe and self._packs.get(wanted[0], wanted[1], []) is not None:
                work.syncs.add(self._packs.directory)
            else:
                lacking.append(wanted)
        return lacking

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
        space, digest, data = wanted
        self._stand(self._loose.directory(space, digest), work)
        durable.publish(self._host, self._tmp_dir, self._loose.path(space, digest), compress(data))

    def _write_pack(self, work: _Work) -> str:
        packer = Packer()
        pieces = [packer.add(*wanted) for wanted in work.packed]
        end = packer.finish()
        stem = pack_stem(end.name)
        path = f"{self._packs.directory}/{stem}"
        # the idx first: without its pack it is nothing, and who finds the pack finds it too
        idx = encode_index(end.name, end.size, end.table, end.keys)
        durable.publish(self._host, self._tmp_dir, f"{path}.idx", idx)
        durable.publish(self._host, self._tmp_dir, f"{path}.pack", b"".join([*pieces, end.tail]))
        work.syncs.add(self._packs.directory)
        self._packs.forget(stem)
        self._packs.relist()
        return stem

    def _remember(self, tags: Iterable[bytes], made: set[str]) -> None:
        with self._guard:
            self._made |= made
            self._durable.update(dict.fromkeys(tags))
            for tag in list(islice(self._durable, max(0, len(self._durable) - REMEMBERED_MAX))):
                del self._durable[tag]


def _check_name(wanted: _Object) -> None:
    _, digest, data = wanted
    if hashlib.sha256(data).digest() != digest:
        raise Corrupt(f"bytes that do not hash to sha256:{digest.hex()} cannot be stored under it", where="publish")
