"""Making objects durable in the store: what is lacking is written, what is there is trusted only when it may be.

Owns the rule "exists is neither durable nor right" (architecture §3): a copy that is there counts when its bytes hash
to its name and its directory was synced after it was seen. That is remembered per object, in bounded memory, until
``forget``. Large strings of bodies are cut out here (``core.pieces``); what counts for a body counts for the pieces it
needs. Invariants: a name appears only after its bytes are synced, a body's after its pieces are durable or in one pack
with it; on return every object handed over is in the store, whole and durable; a directory is synced at most once per
call, where there are pieces before the bodies and behind them; no object is ever deleted. The caller holds the store
lock shared, lest a sweep take away what was seen. Must not: read for others, or know what the objects mean.
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
from agentsession_cas.core.packindex import index_slices, keys_of
from agentsession_cas.core.pieces import PIECE_MIN, Skeleton, Stored, encode_loose, encoded_size, pieces_in, split
from agentsession_cas.core.slices import drain
from agentsession_cas.effects import durable
from agentsession_cas.effects.host import Host
from agentsession_cas.effects.pace import Rest, no_rest
from agentsession_cas.errors import Corrupt, DiskError, FileTaken
from agentsession_cas.objects.loose import Copy, Loose
from agentsession_cas.objects.pack import pack_stem
from agentsession_cas.objects.packs import Packs

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

    Pieces are not counted.

    ``pack`` is the stem of the pack written, "" when none was.
    """

    held: int
    loose: int
    packed: int
    pack: str = ""


_Given = tuple[Space, bytes, bytes]
_Object = tuple[Space, bytes, Stored]


@dataclass(slots=True)
class _Work:
    """One publish under way: what goes out loose and packed, and which directories are to be synced.

    ``pieces`` are those that bodies need, held ones and new ones, by raw digest.
    """

    pieces: dict[bytes, bytes] = field(default_factory=dict)
    loose_pieces: list[_Object] = field(default_factory=list)
    packed_pieces: list[_Object] = field(default_factory=list)
    loose: list[_Object] = field(default_factory=list)
    packed: list[_Object] = field(default_factory=list)
    syncs: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    rest: Rest = no_rest


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

    def publish(self, objects: Sequence[tuple[Space, bytes, bytes]], loose_below: int, rest: Rest) -> Published:
        """See ``ObjectDatabase.publish``."""
        given = {_TAGS[wanted[0]] + wanted[1]: wanted for wanted in objects}
        remembered = self._durable
        unsure = [wanted for tag, wanted in given.items() if tag not in remembered]
        if not unsure:
            return Published(len(given), 0, 0)
        for each in unsure:
            _check_name(each)
            rest()
        work = _Work(rest=rest)
        self._seek(unsure, loose_below, work)
        for piece in work.loose_pieces:
            self._write_loose(piece, work)
        if work.pieces:
            self._sync(work)  # before anything that needs them has a name
        for wanted in work.loose:
            self._write_loose(wanted, work)
        pack = self._write_pack(work) if work.packed or work.packed_pieces else ""
        self._sync(work)
        self._remember([*given, *(_TAGS[Space.PIECES] + digest for digest in work.pieces)], work.made)
        loose, packed = len(work.loose), len(work.packed)
        return Published(len(given) - loose - packed, loose, packed, pack)

    def renew(self, wanted: _Given) -> None:
        """See ``ObjectDatabase.renew``: the file is written anew, which is what makes the object young again."""
        _check_name(wanted)
        work = _Work()
        self._write_loose(wanted, work)
        self._sync(work)
        self._remember((_TAGS[wanted[0]] + wanted[1],), work.made)

    def _sync(self, work: _Work) -> None:
        for changed in sorted(work.syncs):
            self._host.fs.sync_dir(changed)
        work.syncs.clear()

    def _seek(self, unsure: list[_Given], loose_below: int, work: _Work) -> None:
        """Tell what is lacking, and how it goes out.

        Loose copies of what goes into a pack are not looked for: another copy costs its bytes until a repack, looking
        costs as much time as writing it. Those of pieces, and of bodies that have some, are.
        """
        self._packs.relist()
        lacking = [wanted for each in self._not_packed(unsure, work) if (wanted := self._cut(each, work)) is not None]
        pieces = self._lacking_pieces(work)
        if len(lacking) + len(pieces) >= loose_below:
            work.packed, lacking = _by_size(lacking)
            work.packed_pieces, pieces = _by_size(pieces)
        work.loose_pieces = pieces
        work.loose = [each for each in lacking if isinstance(each[2], Skeleton) or not self._loose_copy(each, work)]

    def _not_packed(self, unsure: list[_Given], work: _Work) -> list[_Given]:
        """Those of which no pack has a good copy."""
        keys = keys_of([digest for _, digest, _ in unsure])
        maybe = self._packs.among(set(keys), work.rest)
        if not maybe:
            return unsure
        lacking: list[_Given] = []
        for key, wanted in zip(keys, unsure, strict=True):
            work.rest()
            copy = self._packs.get(wanted[0], wanted[1], []) if key in maybe else None
            if copy is None:
                lacking.append(wanted)
            else:
                work.syncs.add(self._packs.directory)
                _need_pieces(copy.stored, copy.data, work)
        return lacking

    def _cut(self, wanted: _Given, work: _Work) -> _Object | None:
        """The form in which to store an object that no pack has; None for a body of several parts that lies loose."""
        space, digest, data = wanted
        if len(data) < PIECE_MIN or space is not Space.CONTENTS:
            return wanted
        work.rest()
        stored = split(digest, data)
        if not isinstance(stored, Skeleton):
            return wanted
        if encoded_size(stored) > PACKED_MAX:
            return wanted  # it lies loose, and so whole
        copy = self._loose_copy(wanted, work)
        if copy is not None:
            _need_pieces(copy.stored, data, work)
            return None
        _need_pieces(stored, data, work)
        return space, digest, stored

    def _lacking_pieces(self, work: _Work) -> list[_Object]:
        """The pieces needed of which there is no good copy."""
        unsure: list[_Given] = [
            (Space.PIECES, digest, piece)
            for digest, piece in work.pieces.items()
            if _TAGS[Space.PIECES] + digest not in self._durable
        ]
        lacking = self._not_packed(unsure, work) if unsure else []
        return [piece for piece in lacking if self._loose_copy(piece, work) is None]

    def _loose_copy(self, wanted: _Object, work: _Work) -> Copy | None:
        """The good copy of an object that lies loose, whose directory gets synced; None to put one in its place."""
        space, digest, _ = wanted
        try:
            copy = self._loose.get(space, digest)
        except (Corrupt, DiskError):
            return None
        if copy is not None:
            self._stand(self._loose.directory(space, digest), work)
        return copy

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
        space, digest, stored = wanted
        self._stand(self._loose.directory(space, digest), work)
        durable.publish(self._host, self._tmp_dir, self._loose.path(space, digest), encode_loose(stored))

    def _write_pack(self, work: _Work) -> str:
        packer = Packer()
        parts: list[bytes] = []
        for wanted in (*work.packed_pieces, *work.packed):
            parts.append(packer.add(*wanted))
            work.rest()
        end = packer.finish()
        stem = pack_stem(end.name)
        path = f"{self._packs.directory}/{stem}"
        # the idx first: without its pack it is nothing, and who finds the pack finds it too
        idx = drain(index_slices(end.name, end.size, end.table, end.keys), work.rest)
        durable.publish(self._host, self._tmp_dir, f"{path}.idx", idx)
        durable.publish(self._host, self._tmp_dir, f"{path}.pack", b"".join([*parts, end.tail]))
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


def _check_name(wanted: _Given) -> None:
    _, digest, data = wanted
    if hashlib.sha256(data).digest() != digest:
        raise Corrupt(f"bytes that do not hash to sha256:{digest.hex()} cannot be stored under it", where="publish")


def _need_pieces(stored: Stored, data: bytes, work: _Work) -> None:
    """Note the pieces that a body, whose bytes are ``data``, needs as it is stored."""
    if isinstance(stored, Skeleton):
        work.pieces.update(pieces_in(stored, data))


def _by_size(objects: list[_Object]) -> tuple[list[_Object], list[_Object]]:
    """Those that a pack takes, and those too long for one."""
    unfit = [wanted for wanted in objects if encoded_size(wanted[2]) > PACKED_MAX]
    return ([wanted for wanted in objects if encoded_size(wanted[2]) <= PACKED_MAX] if unfit else objects), unfit
