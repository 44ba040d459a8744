"""Objects to store, a place for them, and what of them can still be read when files are damaged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from agentsession_cas.core.packformat import Block
from agentsession_cas.effects.host import Fs, Host, real_host
from agentsession_cas.errors import Corrupt, NoObject
from agentsession_cas.objects import ObjectDatabase, Space
from agentsession_cas.testing.simfs import Sim

__all__ = [
    "Object",
    "body",
    "digest",
    "flipped",
    "held",
    "lay_out",
    "machine",
    "named",
    "opened",
    "readable",
    "some",
    "whole",
]

Object = tuple[Space, bytes, bytes]
_DIRECTORIES: Final = ("objects", "objects/pack", "tmp")


def digest(data: bytes) -> bytes:
    """What names an object."""
    return hashlib.sha256(data).digest()


def named(space: Space, data: bytes) -> Object:
    """An object by its name."""
    return space, digest(data), data


def body(data: bytes) -> Object:
    """The body of an entry by its name."""
    return named(Space.CONTENTS, data)


def some(n: int, start: int = 0) -> list[Object]:
    """Objects of three spaces, each like no other."""
    return [named(Space(k % 3), b"%d." % k * 60) for k in range(start, start + n)]


def whole(block: Block, number: int) -> bytes:
    """An object of a block that is no skeleton."""
    stored = block.stored(number)
    assert isinstance(stored, bytes)
    return stored


def lay_out(fs: Fs, root: str) -> None:
    """Make the directories that a layout makes."""
    for name in _DIRECTORIES:
        fs.mkdir(f"{root}/{name}")


def machine(seed: int = 0) -> Sim:
    """A simulated machine whose working directory is the root of a database; its directories will last."""
    sim = Sim(seed=seed)
    for path in _DIRECTORIES:
        sim.host.fs.mkdir(path)
    for path in (".", "objects"):
        sim.host.fs.sync_dir(path)
    return sim


def opened(root: Path) -> ObjectDatabase:
    """The database on a real disk."""
    return ObjectDatabase(real_host(), str(root))


def readable(root: Path, objects: Iterable[Object]) -> int:
    """How many objects can be read; the others must be called corrupt, not absent."""
    database = opened(root)
    good = 0
    for space, name, data in objects:
        try:
            assert database.get(space, name) == data
            good += 1
        except Corrupt:
            continue
    return good


def held(host: Host, objects: Sequence[Object], root: str = ".") -> int:
    """How many of the objects are there; each is whole or absent."""
    reader = ObjectDatabase(host, root)
    there = 0
    for space, name, data in objects:
        try:
            assert reader.get(space, name) == data
            there += 1
        except NoObject:
            continue
    return there


def flipped(data: bytes, at: int) -> bytes:
    """The same with a bit of one byte flipped."""
    return data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
