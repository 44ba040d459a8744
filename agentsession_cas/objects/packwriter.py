"""A pack being written: staged, synced, read back, and only then put in place (architecture §3).

Owns the order of these steps for packs too large to hold in memory. Invariants: a name appears in ``objects/pack`` only
after the bytes under it were synced and read back whole; what is given up leaves nothing there. The caller decides what
may be deleted afterwards. Must not: choose objects, or delete any.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from agentsession_cas.core.packer import Packed, Packer, check_of
from agentsession_cas.core.packformat import OBJECTS_MAX, Block, BlockRef, Grade, Space
from agentsession_cas.core.packindex import index_slices
from agentsession_cas.core.pieces import Stored, digest_of_stored
from agentsession_cas.core.slices import Slices
from agentsession_cas.core.zframes import Dictionary
from agentsession_cas.effects.host import Host, OpenFile
from agentsession_cas.errors import Corrupt, DiskError
from agentsession_cas.objects.dictionaries import Dictionaries
from agentsession_cas.objects.pack import pack_stem
from agentsession_cas.objects.packfile import PackFile

__all__ = ["PackWriter"]

SYNC_EVERY: Final = 1 << 20
"""Bytes written between two syncs: a long one would hold up the commits of others."""

PIECE: Final = 1 << 20


class PackWriter:
    """Writes one pack: ``add`` and ``copy``, ``finish``, ``place``; or ``abandon`` at any time before.

    Raises DiskError and its like; after that, abandon it.
    """

    def __init__(
        self,
        host: Host,
        tmp_dir: str,
        packs_dir: str,
        dictionaries: Dictionaries,
        grade: Grade,
        dictionary: Dictionary | None,
    ) -> None:
        self._host = host
        self._packs_dir = packs_dir
        self._dictionaries = dictionaries
        self._packer = Packer(grade, dictionary)
        self._staged = f"{tmp_dir}/{host.entropy.take(10).hex()}"
        self._file: OpenFile | None = host.fs.create(f"{self._staged}.pack")
        self._written = 0
        self._synced = 0
        self._stem = ""

    def full(self, size: int) -> bool:
        """Whether it has ``size`` bytes, or as many objects as it should."""
        return self._packer.size >= size or self._packer.objects >= OBJECTS_MAX // 2

    @property
    def objects(self) -> int:
        """Objects so far."""
        return self._packer.objects

    def add(self, space: Space, digest: bytes, stored: Stored) -> None:
        """Take an object whose bytes hash to ``digest``."""
        self._write(self._packer.add(space, digest, stored))

    def copy(self, ref: BlockRef, frame: bytes, keys: Sequence[int]) -> None:
        """Take a block of another pack as it is."""
        self._write(self._packer.copy(ref, frame, keys))

    def _write(self, data: bytes) -> None:
        if not data:
            return
        assert self._file is not None
        self._file.pwrite(data, self._written)
        self._written += len(data)
        if self._written - self._synced >= SYNC_EVERY:
            self._file.sync()
            self._synced = self._written

    def finish(self) -> Slices[str]:
        """Write the rest and the idx, sync both, read both back; returns the stem of the pack. At least one object.

        Raises Corrupt when something reads back other than it was written.
        """
        packed = self._packer.finish()
        self._write(packed.tail)
        assert self._file is not None
        self._file.sync()
        idx = yield from index_slices(packed.name, packed.size, packed.table, packed.keys)
        yield from self._write_idx(idx)
        yield from self._verify(packed, idx)
        self._stem = pack_stem(packed.name)
        return self._stem

    def _write_idx(self, idx: bytes) -> Slices[None]:
        file = self._host.fs.create(f"{self._staged}.idx")
        try:
            for start in range(0, len(idx), SYNC_EVERY):
                file.pwrite(idx[start : start + SYNC_EVERY], start)
                file.sync()
                yield 0
        finally:
            file.close()

    def _verify(self, packed: Packed, idx: bytes) -> Slices[None]:
        """Read back what was staged: the whole by its hash, new blocks by their objects', copied ones by their sums."""
        found = hashlib.sha256()
        assert self._file is not None
        for start in range(0, packed.size + 1, PIECE):
            found.update(self._file.pread(PIECE, start))
            yield 0
        if found.digest() != packed.name or self._host.fs.read(f"{self._staged}.idx") != idx:
            raise Corrupt("a pack reads back other than it was written", where=self._staged)
        with PackFile(self._host.fs, f"{self._staged}.pack", self._dictionaries) as file:
            for number, wanted in enumerate(packed.sums):
                if wanted:
                    good = hashlib.sha256(b"".join(_checks(file.block(number)))).digest() == wanted
                else:
                    ref, frame = file.frame(number)
                    good = zlib.crc32(frame) == ref.crc
                if not good:
                    raise Corrupt(f"block {number} reads back other than it was written", where=self._staged)
                yield 0

    def place(self) -> None:
        """Give pack and idx their names, durably. Only after ``finish``."""
        assert self._stem
        path = f"{self._packs_dir}/{self._stem}"
        # the idx first: without its pack it is nothing, and who finds the pack finds it too
        self._host.fs.rename(f"{self._staged}.idx", f"{path}.idx")
        self._host.fs.rename(f"{self._staged}.pack", f"{path}.pack")
        self._host.fs.sync_dir(self._packs_dir)
        self._close()

    def abandon(self) -> None:
        """Take away what is staged; a no-op once it has its names."""
        if self._file is None:
            return
        self._close()
        for ending in ("pack", "idx"):
            with suppress(DiskError):
                self._host.fs.unlink(f"{self._staged}.{ending}")

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _checks(block: Block) -> Iterator[bytes]:
    """What vouches for each object of a block, as it was read back."""
    for number in range(block.first, block.first + len(block)):
        stored = block.stored(number)
        yield check_of(digest_of_stored(stored), stored)
