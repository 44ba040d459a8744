"""Simulated inodes: what is in the cache, what is on the disk, and every version between.

Owns the model of un-synced state. The cache is what ``effects.disk`` holds. Beside it an inode keeps, for each sector
or name that changed since it was last synced, all versions in order, the durable one first; so a sync only forgets, and
costs nothing. Invariant: what is neither pending nor lost is on the disk as in the cache. Must not: choose what a crash
keeps; that is ``testing.images``.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

from agentsession_cas.effects.disk import Directory, File
from agentsession_cas.effects.protocols import Buffer

__all__ = ["SimDirectory", "SimFile", "Version", "settled"]

T = TypeVar("T")
Version = tuple[int, T]
"""When it came (the disk's stamp, 0 for what is durable) and what it is."""


def settled(versions: list[Version[T]], mark: int) -> list[Version[T]]:
    """What is pending once everything up to ``mark`` is durable; one version means nothing is."""
    last = max(k for k, (stamp, _) in enumerate(versions) if stamp <= mark)
    return [(0, versions[last][1]), *versions[last + 1 :]]


class SimFile(File):
    """A file with its pending sectors.

    ``versions``: sector → its versions, whole sectors; None is space never written. ``sizes``: pending sizes in bytes.
    ``lost``: sectors that a failed sync left marked clean, with what the disk has of them.
    """

    __slots__ = ("durable_size", "lost", "sizes", "versions")

    def __init__(self, number: int, data: bytes | bytearray = b"", mtime_ns: int = 0) -> None:
        super().__init__(number, data, mtime_ns)
        self.durable_size = len(data)
        self.versions: dict[int, list[Version[bytes | None]]] = {}
        self.sizes: list[Version[int]] = []
        self.lost: dict[int, bytes] = {}

    def copy(self) -> SimFile:
        """The same file on another disk, what is pending included."""
        copy = SimFile(self.number, self.frozen(), self.mtime_ns)
        copy.durable_size = self.durable_size
        copy.versions = {k: list(versions) for k, versions in self.versions.items()}
        copy.sizes = list(self.sizes)
        copy.lost = dict(self.lost)
        return copy

    def sector(self, k: int, width: int) -> bytes:
        """A sector as the cache has it, filled up with zeros."""
        return bytes(memoryview(self.data)[k * width : (k + 1) * width]).ljust(width, b"\0")

    def put(self, data: Buffer, offset: int, width: int, stamp: int) -> None:
        """Write into the cache and note what became pending."""
        if not data:
            return
        end = offset + len(data)
        touched = range(offset // width, (end - 1) // width + 1)
        for k in touched:
            if k not in self.versions:
                self.versions[k] = [(0, self._durable(k, width))]
        self.write(data, offset)
        for k in touched:
            new = self.sector(k, width)
            if new != self.versions[k][-1][1]:
                self.versions[k].append((stamp, new))
        if end > (self.sizes[-1][1] if self.sizes else self.durable_size):
            self.sizes.append((stamp, end))

    def _durable(self, k: int, width: int) -> bytes | None:
        if k in self.lost:
            return self.lost.pop(k)
        return None if k * width >= self.durable_size else self.sector(k, width)

    def settle(self, mark: int) -> bool:
        """A sync that began at ``mark`` succeeded. True when nothing is pending."""
        pending = {k: settled(versions, mark) for k, versions in self.versions.items() if versions[-1][0] > mark}
        self.versions = {k: versions for k, versions in pending.items() if len(versions) > 1}
        sizes = settled([(0, self.durable_size), *self.sizes], mark)
        self.durable_size = sizes[0][1]
        self.sizes = sizes[1:]
        return not (self.versions or self.sizes)

    def fail(self, rng: Random, stale: Callable[[], bytes], width: int) -> None:
        """A sync failed: some sectors landed, none is pending any more, and no later sync writes the rest."""
        for k, versions in self.versions.items():
            landed = rng.choice((0, 0, len(versions) - 1, rng.randrange(len(versions))))
            there = versions[landed][1]
            if there is None:
                there = stale() if rng.random() < 0.3 else bytes(width)
            if there != self.sector(k, width):
                self.lost[k] = there
        self.durable_size = rng.choice([self.durable_size, *(size for _, size in self.sizes)])
        self.versions = {}
        self.sizes = []

    def on_disk(self, chosen: dict[int, bytes], size: int, width: int) -> bytes | bytearray:
        """The bytes a reboot finds: ``chosen`` sectors, the lost ones as they are, ``size`` bytes of it all."""
        if not chosen and not self.lost and size == len(self.data):
            return self.frozen()
        data = bytearray(self.data)
        for patches in (self.lost, chosen):
            for k, sector in patches.items():
                data[k * width : (k + 1) * width] = sector
        if len(data) < size:
            data.extend(bytes(size - len(data)))
        del data[size:]
        return data


class SimDirectory(Directory):
    """A directory with its pending names. ``versions``: name → what it led to, None for nothing."""

    __slots__ = ("versions",)

    def __init__(self, number: int, names: dict[str, File | Directory] | None = None) -> None:
        super().__init__(number, names)
        self.versions: dict[str, list[Version[File | Directory | None]]] = {}

    def pend(self, name: str, node: File | Directory | None, stamp: int) -> None:
        """Note that a name is about to change in the cache."""
        self.versions.setdefault(name, [(0, self.names.get(name))]).append((stamp, node))

    def settle(self, mark: int) -> bool:
        """A sync that began at ``mark`` succeeded. True when nothing is pending."""
        pending = {name: settled(versions, mark) for name, versions in self.versions.items()}
        self.versions = {name: versions for name, versions in pending.items() if len(versions) > 1}
        return not self.versions

    def fail(self, rng: Random) -> None:
        """A sync failed: some names landed; the others stay pending, for a file system that loses them stops."""
        self.versions = {
            name: settled(versions, versions[-1][0]) if rng.random() < 0.5 else versions
            for name, versions in self.versions.items()
        }
        self.versions = {name: versions for name, versions in self.versions.items() if len(versions) > 1}

    def leads_to(self) -> list[tuple[str, File | Directory]]:
        """The names, with all they lead to in the cache or might after a crash."""
        found = list(self.names.items())
        for name, versions in self.versions.items():
            found += [(name, node) for _, node in versions if node is not None]
        return found
