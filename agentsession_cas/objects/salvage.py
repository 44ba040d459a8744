"""Reading what does not read: objects in files and blocks that are damaged, for a repair to judge by their hashes.

Owns how far reading goes on behind damage. Nothing here is ever served under a name it was looked for by: whoever takes
it hashes it and believes that. Must not: write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agentsession_cas.core.packformat import Block, Space
from agentsession_cas.core.pieces import Stored, decode_loose, digest_of_stored
from agentsession_cas.effects.host import Fs
from agentsession_cas.errors import Corrupt, DiskError
from agentsession_cas.objects.loose import Loose
from agentsession_cas.objects.pack import Pack
from agentsession_cas.objects.packfile import PackFile

__all__ = ["open_pack", "salvage", "salvage_block", "salvage_file"]


def salvage(fs: Fs, loose: Loose, packs: Iterable[Pack]) -> Iterator[tuple[Space, Stored]]:
    """Everything in loose files under another's name and in blocks that fail their checksum, as it is stored."""
    for space in Space:
        for path, digest in loose.walk(space):
            stored = salvage_file(fs, path)
            if stored is not None and digest_of_stored(stored) != digest:
                yield space, stored
    for pack in packs:
        file = open_pack(pack)
        if file is not None:
            with file:
                for number in range(file.table.blocks):
                    yield from _spoilt(file, number)


def salvage_file(fs: Fs, path: str) -> Stored | None:
    """What a loose file holds, whatever it hashes to; None when it is no whole frame."""
    try:
        data = fs.read(path)
        return decode_loose(data) if data else None
    except (Corrupt, DiskError):
        return None


def open_pack(pack: Pack) -> PackFile | None:
    """A pack opened by its own table, else by the one its idx has; None when neither is whole."""
    try:
        return pack.open()
    except (Corrupt, DiskError):
        pass
    try:
        return pack.open(pack.index().table)
    except (Corrupt, DiskError):
        return None


def salvage_block(file: PackFile, number: int) -> tuple[Space, Block] | None:
    """A block, also one that fails its checksum; None when nothing of it can be read."""
    try:
        space = file.table.block(number).space
    except Corrupt:
        return None
    for read in (file.block, file.unsummed):
        try:
            return space, read(number)
        except (Corrupt, DiskError):
            continue
    return None


def _spoilt(file: PackFile, number: int) -> Iterator[tuple[Space, Stored]]:
    try:
        file.block(number)
    except (Corrupt, DiskError):
        found = salvage_block(file, number)
        if found is not None:
            space, block = found
            for at in range(block.first, block.first + len(block)):
                yield space, block.stored(at)
