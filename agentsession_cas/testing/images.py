"""What a disk may hold after a power cut.

Owns the choice. A *unit* is one thing that may be old or new by itself: a sector of a file, a file's size, a name in a
directory. Its versions are what it was when last synced and all it has been since. Every choice of one version per unit
is a legal image, but that a directory is never in two places. Sectors of space never written may hold zeros or what a
dead file left there; with ``tear`` a sector being written may be destroyed. Must not: change the disk it looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from math import prod
from random import Random
from typing import Final, NamedTuple

from agentsession_cas.effects.disk import Directory, File
from agentsession_cas.testing.pages import SimDirectory, SimFile, Version
from agentsession_cas.testing.simdisk import DEAD_MAX, SimDisk

__all__ = ["Story", "copied", "images"]

NAME, SIZE, SECTOR = "name", "size", "sector"
ZEROS, STALE, MIXED = "zeros", "stale bytes", "zeros and stale bytes"
WHOLE, ONE, MANY = "", "one sector torn", "many sectors torn"
SHEAR: Final = 64
"""A sector may be cut at multiples of this many bytes."""
FLEETING_MAX: Final = 4
VARIANTS: Final = 4
TRIES: Final = 8
"""Random choices per image wanted, before all are taken to have been seen."""

Node = File | Directory
Pool = list[tuple[File | None, bytes]]


class Unit(NamedTuple):
    """One thing that may be old or new by itself. ``key`` is a name, a sector's number, or nothing for a size."""

    kind: str
    owner: Node
    key: str | int
    versions: list[Version[Node | bytes | int | None]]


class Choice(NamedTuple):
    """An image: the version of each unit, what space never written holds, and whether sectors were destroyed.

    ``variant`` tells apart those in which other bytes are stale, or other sectors torn.
    """

    pick: tuple[int, ...]
    never_written: str
    torn: str
    variant: int = 0


EVERYTHING: Final = Choice((), ZEROS, WHOLE)


@dataclass(frozen=True)
class Story:
    """What an image kept, for the message of a failing test."""

    units: list[Unit] = field(default_factory=list)
    choice: Choice = EVERYTHING
    paths: dict[Node, str] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.units:
            return "nothing was pending"
        old: dict[str, list[str]] = {}
        for unit, k in zip(self.units, self.choice.pick, strict=True):
            if k < len(unit.versions) - 1:
                of = f"{unit.kind} of {self.paths[unit.owner]}"
                old.setdefault(of, []).append(f"{unit.key}@{k}/{len(unit.versions) - 1}")
        kept = [f"{of}: {' '.join(keys)}" for of, keys in old.items()]
        return "; ".join(
            [*(kept or ["all landed"]), self.choice.never_written, self.choice.torn, f"#{self.choice.variant}"]
        )


# --- units -----------------------------------------------------------------------------------------------------------


def _paths(root: Node) -> dict[Node, str]:
    """Everything a name leads to or might after a crash, with a path of it."""
    found: dict[Node, str] = {root: ""}
    todo = [root]
    while todo:
        node = todo.pop()
        if isinstance(node, SimDirectory):
            for name, below in node.leads_to():
                if below not in found:
                    found[below] = f"{found[node]}/{name}"
                    todo.append(below)
    return found


def _sizes(file: SimFile, width: int, rng: Random) -> list[Version[Node | bytes | int | None]]:
    """The pending sizes; one that grows by more than a sector may also have grown in part."""
    versions: list[Version[Node | bytes | int | None]] = [(0, file.durable_size)]
    before = file.durable_size
    for stamp, size in file.sizes:
        if (size - 1) // width > before // width:
            versions.append((stamp, rng.randrange(before // width + 1, (size - 1) // width + 1) * width))
        versions.append((stamp, size))
        before = size
    return versions


def _units(nodes: dict[Node, str], width: int, rng: Random) -> list[Unit]:
    """All units. Names that came and went are but a few: nobody syncs ``tmp/``, and they would crowd out the others."""
    names: list[Unit] = []
    rest: list[Unit] = []
    for node in nodes:
        if isinstance(node, SimDirectory):
            names += [Unit(NAME, node, name, [*versions]) for name, versions in node.versions.items()]
        elif isinstance(node, SimFile):
            rest += [Unit(SECTOR, node, k, [*versions]) for k, versions in sorted(node.versions.items())]
            if node.sizes:
                rest.append(Unit(SIZE, node, 0, _sizes(node, width, rng)))
    fleeting = [unit for unit in names if unit.versions[0][1] is unit.versions[-1][1]]
    settled = {id(unit) for unit in sorted(fleeting, key=lambda unit: unit.versions[-1][0])[:-FLEETING_MAX]}
    return [unit for unit in names if id(unit) not in settled] + rest


# --- choices ---------------------------------------------------------------------------------------------------------


def _until(unit: Unit, stamp: int) -> int:
    """The version a unit had at that time."""
    return max(k for k, (came, _) in enumerate(unit.versions) if came <= stamp)


def _fixed(units: list[Unit]) -> Iterator[tuple[int, ...]]:
    """All new, all old, and all new of each kind of unit with the others old."""
    new = [len(unit.versions) - 1 for unit in units]
    yield tuple(new)
    yield (0,) * len(units)
    for landed in ((SIZE,), (NAME,), (NAME, SIZE), (SECTOR, SIZE), (NAME, SECTOR)):
        yield tuple(n if unit.kind in landed else 0 for unit, n in zip(units, new, strict=True))


def _by_time(units: list[Unit], rng: Random) -> list[int]:
    """Everything up to some effect, or only what came after it."""
    stamp = rng.choice(rng.choice(units).versions)[0]
    if rng.random() < 0.6:
        return [_until(unit, stamp) for unit in units]
    return [len(unit.versions) - 1 if unit.versions[-1][0] > stamp else 0 for unit in units]


def _by_owner(units: list[Unit], rng: Random) -> list[int]:
    """Each file, and each name, wholly new or wholly old."""
    fates: dict[tuple[Node, str | int], bool] = {}
    for unit in units:
        fates.setdefault((unit.owner, unit.key if unit.kind == NAME else 0), rng.random() < 0.5)
    return [(len(unit.versions) - 1) * fates[unit.owner, unit.key if unit.kind == NAME else 0] for unit in units]


def _but_one(units: list[Unit], rng: Random) -> list[int]:
    """One unit old among new ones, or one new among old ones whose names and sizes landed."""
    k = rng.randrange(len(units))
    last = [len(unit.versions) - 1 for unit in units]
    if rng.random() < 0.5:
        last[k] = rng.randrange(max(1, last[k]))
        return last
    return [n if j == k or units[j].kind != SECTOR else 0 for j, n in enumerate(last)]


def _at_random(units: list[Unit], rng: Random) -> list[int]:
    landed = rng.choice((0.15, 0.5, 0.85))
    return [
        rng.randrange(len(unit.versions)) if rng.random() < 0.2 else (len(unit.versions) - 1) * (rng.random() < landed)
        for unit in units
    ]


STRATEGIES: Final = (_by_time, _by_owner, _but_one, _at_random)


def _choices(units: list[Unit], rng: Random, budget: int, tear: bool) -> Iterator[Choice]:
    """Choices, the telling ones first; all there are when the budget allows."""
    fills = (ZEROS, STALE) if any(unit.versions[0][1] is None for unit in units) else (ZEROS,)
    for pick in _fixed(units):
        yield from (Choice(pick, fill, WHOLE) for fill in fills)
    if prod(len(unit.versions) for unit in units) * len(fills) <= budget:
        for every in product(*(range(len(unit.versions)) for unit in units)):
            yield from (Choice(every, fill, WHOLE) for fill in fills)
    tears = (WHOLE, ONE, MANY) if tear and any(unit.kind == SECTOR for unit in units) else (WHOLE,)
    for _ in range(TRIES * budget if units else 0):
        some = tuple(rng.choice(STRATEGIES)(units, rng))
        yield Choice(some, rng.choice((*fills, MIXED)), rng.choice(tears), rng.randrange(VARIANTS))


def _as_told(choice: Choice, units: list[Unit]) -> Choice:
    """The choice without what makes no difference to it, so that no image comes twice."""
    never = any(unit.versions[k][1] is None for unit, k in zip(units, choice.pick, strict=True) if unit.kind == SECTOR)
    if not never:
        choice = choice._replace(never_written=ZEROS)
    return choice if choice.torn or choice.never_written != ZEROS else choice._replace(variant=0)


# --- images ----------------------------------------------------------------------------------------------------------


class _Image:
    """The bytes and names of one choice."""

    def __init__(self, source: SimDisk, units: list[Unit], choice: Choice, pool: Pool, rng: Random) -> None:
        self.source = source
        self.width = source.sector
        self.choice = choice
        self.pool = pool
        self.rng = rng
        self.names: dict[Node, dict[str, Node]] = {}
        self.sectors: dict[Node, dict[int, bytes]] = {}
        self.sizes: dict[Node, int] = {}
        self.past: dict[Node, bytes] = {}
        moved: list[tuple[int, Node, str, Node]] = []
        torn = self._torn([j for j, unit in enumerate(units) if unit.kind == SECTOR])
        for j, (unit, k) in enumerate(zip(units, choice.pick, strict=True)):
            stamp, value = unit.versions[k]
            if isinstance(unit.owner, SimDirectory):
                self._name(unit.owner, str(unit.key), value)
                if isinstance(value, Directory) and unit.owner.names.get(str(unit.key)) is not value:
                    moved.append((stamp, unit.owner, str(unit.key), value))
            elif isinstance(value, int):
                self.sizes[unit.owner] = value
            else:
                sector = self._sector(unit, k) if j not in torn else self._destroyed(unit, k)
                self.sectors.setdefault(unit.owner, {})[int(unit.key)] = sector
        self._once(sorted(moved, key=lambda place: -place[0]))

    def _name(self, owner: SimDirectory, name: str, value: Node | bytes | int | None) -> None:
        names = self.names.setdefault(owner, dict(owner.names))
        if isinstance(value, File | Directory):
            names[name] = value
        else:
            names.pop(name, None)

    def _once(self, moved: list[tuple[int, Node, str, Node]]) -> None:
        """Take directories away from where they no longer were, if they are in a newer place."""
        if not moved:
            return
        gone = {node for _, _, _, node in moved}
        there: set[Node] = set()
        for owner in _paths(self.source.root):
            if isinstance(owner, SimDirectory):
                now = self.names.get(owner, owner.names)
                there |= {node for name, node in owner.names.items() if node in gone and now.get(name) is node}
        for _, owner, name, node in moved:
            if node in there:
                del self.names[owner][name]
            there.add(node)

    def _sector(self, unit: Unit, k: int) -> bytes:
        value = unit.versions[k][1]
        if isinstance(value, bytes):
            return value
        fill = self.choice.never_written
        if fill == STALE or (fill == MIXED and self.rng.random() < 0.5):
            return self._stale(unit.owner, int(unit.key))
        return bytes(self.width)

    def _stale(self, owner: Node, k: int) -> bytes:
        """What another file had at the same place, rather than elsewhere; most often the same one for all of a file."""
        others = [data for file, data in self.pool if file is not owner]
        for _ in range(6 if others else 0):
            data = self.rng.choice(others)
            if self.rng.random() < 0.6:
                data = self.past.setdefault(owner, data)
            at = k if self.rng.random() < 0.8 else self.rng.randrange(len(data) // self.width + 1)
            sector = data[at * self.width : (at + 1) * self.width]
            if len(sector) == self.width and any(sector):
                return sector
        return b"\xa5" * self.width

    def _torn(self, sectors: list[int]) -> set[int]:
        if self.choice.torn == ONE:
            return {self.rng.choice(sectors)}
        return {j for j in sectors if self.rng.random() < 0.5} if self.choice.torn == MANY else set()

    def _destroyed(self, unit: Unit, k: int) -> bytes:
        """Cut between two versions, or rubbish."""
        if self.rng.random() < 0.5:
            cut = self.rng.randrange(SHEAR, self.width, SHEAR)
            other = self.rng.randrange(len(unit.versions))
            return self._sector(unit, other)[:cut] + self._sector(unit, k)[cut:]
        return self.rng.choice((b"\x5a", b"\0", b"\xff")) * self.width

    def grow(self, target: SimDisk) -> None:
        """Fill a new disk with it."""
        target.numbers = self.source.numbers
        target.dead = [data for _, data in self.pool]
        made: dict[Node, Node] = {self.source.root: target.root}
        used = {target.root.number}
        todo: list[tuple[Directory, Directory]] = [(self.source.root, target.root)]
        while todo:
            old, new = todo.pop()
            for name, node in self.names.get(old, old.names).items():
                copy = made.get(node)
                if copy is None:
                    number = node.number if node.number not in used else target.new_number()
                    used.add(number)
                    if isinstance(node, SimFile):
                        copy = self._file(node, number)
                    else:
                        assert isinstance(node, SimDirectory)
                        copy = SimDirectory(number)
                        todo.append((node, copy))
                    made[node] = copy
                copy.links += 1
                new.names[name] = copy

    def _file(self, file: SimFile, number: int) -> SimFile:
        size = self.sizes.get(file, file.durable_size)
        return SimFile(number, file.on_disk(self.sectors.get(file, {}), size, self.width), file.mtime_ns)


def _pool(source: SimDisk, nodes: dict[Node, str]) -> Pool:
    """What may lie in space never written: the bytes of dead files, and of living ones, which are copied and die.

    Of a file's own bytes it may be only in the next life: what was lost of it then lies in space that is free.
    """
    living: Pool = [(node, node.frozen()) for node in nodes if isinstance(node, SimFile) and node.data]
    return [*((None, data) for data in source.dead), *living][-DEAD_MAX:]


def images(source: SimDisk, rng: Random, budget: int, tear: bool) -> Iterator[tuple[Callable[[SimDisk], None], Story]]:
    """Up to ``budget`` different images: what fills a new disk with each, and its story."""
    paths = _paths(source.root)
    units = _units(paths, source.sector, rng)
    pool = _pool(source, paths)
    seen: set[Choice] = set()
    for choice in _choices(units, rng, budget, tear):
        told = _as_told(choice, units)
        if told in seen:
            continue
        seen.add(told)
        yield _Image(source, units, told, pool, rng).grow, Story(units, told, paths)
        if len(seen) >= budget:
            return


def copied(source: SimDisk, target: SimDisk) -> None:
    """Fill a new disk with another's present state, what is pending included."""
    target.numbers = source.numbers
    target.stamp = source.stamp
    target.dead = list(source.dead)
    made: dict[Node, Node] = {source.root: target.root}
    for node in _paths(source.root):
        if isinstance(node, SimFile):
            made[node] = node.copy()
        elif node is not source.root:
            made[node] = SimDirectory(node.number)
    for node, copy in made.items():
        if isinstance(node, SimDirectory) and isinstance(copy, SimDirectory):
            copy.names = {name: made[below] for name, below in node.names.items()}
            copy.versions = {
                name: [(stamp, below and made[below]) for stamp, below in versions]
                for name, versions in node.versions.items()
            }
            for below in copy.names.values():
                below.links += 1
