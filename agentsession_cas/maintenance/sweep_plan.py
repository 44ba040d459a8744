"""What a sweep takes away: the dead objects found, and the plan made of them.

Owns the judgement: dead is what no mark names, old is what lies in a file untouched for the grace period.
:func:`find_dead` reads names, indexes and ages, :func:`plan_sweep` is pure. Objects of a pack that does not read are
not dead. Memory: two bytes for each object in a pack, 32 for each dead one that lies loose. Must not: write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from agentsession_cas.core.marks import PARTS, mark_of_key
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.packindex import Index, key_of
from agentsession_cas.effects.host import Fs
from agentsession_cas.errors import Corrupt, DiskError, NoObject
from agentsession_cas.maintenance.sweep_pieces import Tied
from agentsession_cas.maintenance.sweep_roots import Needs
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.objects.pack import Pack

__all__ = ["DIGEST", "SWEPT", "Dead", "DeadFile", "DeadInPack", "Plan", "find_dead", "plan_sweep"]

SWEPT: Final = (Space.ENTRIES, Space.CONTENTS, Space.MEDIA, Space.PIECES)
"""The spaces whose objects may be dead, in the order loose ones go: bodies before their pieces."""

DIGEST: Final = 32
"""Bytes of a digest."""

_LOOKED_FOR: Final = 8
"""To look for an object in a pack takes as long as to look at so many."""


class DeadFile(NamedTuple):
    """How old a file with dead objects in it is, and how large."""

    mtime_ns: int
    size: int


@dataclass(slots=True)
class DeadInPack:
    """A pack with dead objects: ``dead`` says it of each by its number."""

    pack: Pack
    dead: bytearray
    file: DeadFile

    @property
    def dead_count(self) -> int:
        """How many are dead."""
        return sum(self.dead)

    @property
    def dead_size(self) -> int:
        """The bytes of its files that go with them, about."""
        return self.file.size * self.dead_count // len(self.dead)

    def spare(self, marks: set[int]) -> bool:
        """Objects with these marks live; whether one of them was called dead."""
        before = self.dead_count
        index = self.pack.tested_index()
        if len(marks) * _LOOKED_FOR < len(self.dead):
            for mark in marks:
                for _, number in index.places(mark & 3, mark >> 2):
                    self.dead[number] = 0
        else:
            self._spare_among(marks, index)
        return self.dead_count < before

    def _spare_among(self, marks: set[int], index: Index) -> None:
        """As :meth:`spare`, by a look at every object: there are more marks than objects, or about as many."""
        keys = index.keys()
        for number in range(index.table.blocks):
            ref = index.table.block(number)
            for at in range(ref.first, ref.first + ref.objects):
                if self.dead[at] and mark_of_key(ref.space, keys[at]) in marks:
                    self.dead[at] = 0


@dataclass(slots=True)
class Dead:
    """Every dead object there is: packs with some, and of each space the digests of loose ones, end to end.

    ``tied`` are the pieces that are left out until dead bodies are gone.
    """

    packs: list[DeadInPack] = field(default_factory=list)
    loose: dict[Space, bytearray] = field(default_factory=dict)
    tied: int = 0

    def spare(self, marks: set[int]) -> None:
        """Objects with these marks are not dead after all."""
        for each in self.packs:
            each.spare(marks)
        self.packs = [each for each in self.packs if each.dead_count]
        for space, digests in self.loose.items():
            if marks:
                living = (digest for digest in _split(digests) if mark_of_key(space, key_of(digest)) not in marks)
                self.loose[space] = bytearray(b"".join(living))

    def some(self, most: int) -> Dead:
        """Take out the packs and at most so many loose objects, in the order of ``SWEPT``; the others stay."""
        taken = Dead(self.packs)
        self.packs = []
        for space in SWEPT:
            digests = self.loose.get(space, bytearray())
            taken.loose[space] = digests[: most * DIGEST]
            del digests[: most * DIGEST]
            most -= len(taken.loose[space]) // DIGEST
        return taken


@dataclass(slots=True)
class Plan:
    """What goes: packs all of whose objects are dead, packs to be written anew without some, loose objects.

    ``young`` counts the dead objects that stay for now, ``loose_size`` is the bytes of the loose files.
    """

    whole: list[DeadInPack] = field(default_factory=list)
    partly: list[DeadInPack] = field(default_factory=list)
    loose: dict[Space, bytearray] = field(default_factory=dict)
    young: int = 0
    loose_size: int = 0

    def loose_digests(self, space: Space) -> Iterator[bytes]:
        """The raw digests of the loose objects of a space that go, in ascending order."""
        return _split(self.loose.get(space, bytearray()))


def _split(digests: bytearray) -> Iterator[bytes]:
    """Digests that lie end to end."""
    return (bytes(digests[at : at + DIGEST]) for at in range(0, len(digests), DIGEST))


# --- finding ---------------------------------------------------------------------------------------------------------


class _Sifted:
    """A pack whose objects are told from their marks, part by part."""

    def __init__(self, pack: Pack, index: Index, swept: tuple[Space, ...]) -> None:
        self.pack = pack
        self.dead = bytearray(index.objects)
        self._swept = swept
        self._index = index
        self._spaces = bytearray(index.objects)
        for number in range(index.table.blocks):
            ref = index.table.block(number)
            self._spaces[ref.first : ref.first + ref.objects] = bytes([ref.space]) * ref.objects

    def sift(self, part: int, living: set[int], found: set[int], tied: Tied) -> int:
        """Note which objects of a part are dead; ``found`` takes the marks of the living. How many are tied."""
        spaces, dead, held = self._spaces, self.dead, 0
        for key, number in self._index.rows(part):
            mark = mark_of_key(spaces[number], key)
            if mark in living:
                found.add(mark)
            elif tied.stays(mark, self.pack.stem):
                held += 1
            elif spaces[number] in self._swept:
                dead[number] = 1
        return held


def find_dead(fs: Fs, objects: ObjectDatabase, needs: Needs, tell: Callable[[int, int], None]) -> Dead:
    """Every object that is not marked, but for pieces that are tied.

    Raises NoObject when one that has to be there is not, DiskError.
    """
    swept = SWEPT if needs.pieces else tuple(space for space in SWEPT if space is not Space.PIECES)
    tied = needs.tied
    sound = {pack.stem for pack in objects.sound_packs()}
    sifted: list[_Sifted] = []
    for pack in objects.packs():
        with suppress(Corrupt, DiskError):
            sifted.append(_Sifted(pack, pack.tested_index(), swept))
    dead = Dead(loose={space: bytearray() for space in SWEPT})
    for part in range(PARTS):
        must = needs.needed.part(part)
        living = must | needs.kept.part(part)
        found: set[int] = set()
        for each in sifted:
            dead.tied += each.sift(part, living, found, tied)
        for space in SWEPT:
            for digest in objects.loose_fan(space, part):
                mark = mark_of_key(space, key_of(digest))
                if mark in living:
                    found.add(mark)
                elif tied.stays(mark, ""):
                    dead.tied += 1
                elif space in swept:
                    dead.loose[space] += digest
        if must - found:
            raise _missing(min(must - found))
        tell(part + 1, PARTS)
    for each in sifted:
        if any(each.dead) and each.pack.stem in sound and not each.pack.gap:
            dead.packs.append(DeadInPack(each.pack, each.dead, _age(fs, each.pack.path, each.pack.idx_path)))
    return dead


_NOUNS: Final = {
    Space.ENTRIES: "an envelope",
    Space.CONTENTS: "a body",
    Space.MEDIA: "a blob",
    Space.PIECES: "a piece of a body",
}


def _missing(mark: int) -> NoObject:
    what = _NOUNS[Space(mark & 3)]
    return NoObject(
        f"{what} that a session needs is in no pack and no file; nothing is deleted while something is missing",
        where=f"sha256:{mark >> 2:012x}…",
        next_step="run fsck, which says whose it is",
    )


def _age(fs: Fs, *paths: str) -> DeadFile:
    """The age of the first of these files, the bytes of all."""
    found = [each for path in paths if (each := fs.stat(path)) is not None]
    return DeadFile(found[0].mtime_ns if found else 0, sum(each.size for each in found))


# --- planning --------------------------------------------------------------------------------------------------------


def plan_sweep(dead: Dead, age_of: Callable[[Space, bytes], DeadFile], before_ns: int) -> Plan:
    """What goes of what is dead: all that lies in files last written at ``before_ns`` (since 1970) or earlier.

    ``age_of`` gives the file of a loose object.
    """
    plan = Plan()
    for each in dead.packs:
        count = each.dead_count
        if each.file.mtime_ns > before_ns:
            plan.young += count
            continue
        (plan.whole if count == len(each.dead) else plan.partly).append(each)
    for space, digests in dead.loose.items():
        going = plan.loose[space] = bytearray()
        for digest in _split(digests):
            file = age_of(space, digest)
            if file.mtime_ns > before_ns:
                plan.young += 1
            else:
                going += digest
                plan.loose_size += file.size
    return plan
