"""Taking dead objects out of the store: the moves of a sweep on packs and loose files (architecture §3).

Owns the order: a pack that keeps some of its objects is written anew without the others, synced and read back
(:func:`write_pruned`), and given its name durably before the old one goes (:func:`replace_pack`). Invariants: no object
goes that the caller did not call dead; a pack that came out under the name of the one it replaces is that pack and
stays. A crash at any point leaves dead objects behind and nothing else. Only the writing may be done beside others: for
what takes something away, the caller holds the store lock exclusively. Must not: decide what is dead.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress

from agentsession_cas.core.packformat import BlockRef, Codec, Space
from agentsession_cas.core.packindex import key_of
from agentsession_cas.core.pieces import digest_of_stored
from agentsession_cas.core.slices import drain
from agentsession_cas.core.zframes import Dictionary
from agentsession_cas.effects import durable
from agentsession_cas.errors import Corrupt, NoFile
from agentsession_cas.objects.consolidate import Consolidator
from agentsession_cas.objects.pack import Pack
from agentsession_cas.objects.packfile import PackFile
from agentsession_cas.objects.packwriter import PackWriter

__all__ = ["prune_loose", "replace_pack", "write_pruned"]


def write_pruned(moves: Consolidator, pack: Pack, dead: Sequence[int]) -> tuple[PackWriter, str]:
    """Write a pack without its dead objects, to be put in place or abandoned; and its stem.

    ``dead`` says of every object by its number whether it is dead; some are not. Blocks without a dead object are
    copied as they are. Raises Corrupt when something of the pack does not read, NoFile, DiskError.
    """
    keys = drain(pack.key_slices())
    with pack.open() as file:
        writer = moves.writer(pack.grade(), _dictionary(moves, file))
        try:
            for blocks in _bound_together(file):
                _take(writer, pack, file, blocks, keys, dead)
            return writer, drain(writer.finish())
        except BaseException:
            writer.abandon()
            raise


def replace_pack(moves: Consolidator, pack: Pack, writer: PackWriter, stem: str) -> None:
    """Put what was written in the place of a pack."""
    moves.put(writer, stem)
    if stem != pack.stem:
        moves.remove([pack])


def _dictionary(moves: Consolidator, file: PackFile) -> Dictionary | None:
    """One that the pack was made with, if it was made with any."""
    for number in file.table.dictionaries():
        with suppress(Corrupt):
            return moves.dictionaries.get(number)
    return None


def _bound_together(file: PackFile) -> Iterable[list[BlockRef]]:
    """Blocks that have to stay side by side: envelopes may need the bodies they lie behind."""
    bound: list[BlockRef] = []
    for number in range(file.table.blocks):
        ref = file.table.block(number)
        if bound and not (ref.codec is Codec.ENVELOPES and bound[-1].codec is not Codec.ENVELOPES):
            yield bound
            bound = []
        bound.append(ref)
    if bound:
        yield bound


def _take(
    writer: PackWriter, pack: Pack, file: PackFile, blocks: list[BlockRef], keys: array[int], dead: Sequence[int]
) -> None:
    """Add what is not dead of blocks that lie side by side."""
    first, end = blocks[0].first, blocks[-1].first + blocks[-1].objects
    count = sum(dead[first:end])
    if count == end - first:
        return
    for ref in blocks:
        number = file.table.block_of(ref.first)
        if count:
            _add_living(writer, pack, file, number, keys, dead)
        else:
            writer.copy(*file.sound_frame(number), keys[ref.first : ref.first + ref.objects])


def _add_living(
    writer: PackWriter, pack: Pack, file: PackFile, number: int, keys: array[int], dead: Sequence[int]
) -> None:
    """Add the living objects of a block. What its idx called dead has to be what it called it."""
    block, space = file.block(number), Space(file.table.space_of(number))
    for at in range(block.first, block.first + len(block)):
        stored = block.stored(at)
        digest = digest_of_stored(stored)
        if key_of(digest) != keys[at]:
            raise Corrupt("a pack whose idx is another's", where=pack.path, next_step="run fsck")
        if not dead[at]:
            writer.add(space, digest, stored)


def prune_loose(moves: Consolidator, space: Space, digests: Iterable[bytes]) -> int:
    """Remove loose objects, durably on return; how many. Those in one directory come one after the other."""
    count, changed = 0, ""
    for digest in digests:
        path = moves.loose.path(space, digest)
        if changed not in ("", durable.parent(path)):
            moves.host.fs.sync_dir(changed)
        changed = durable.parent(path)
        with suppress(NoFile):
            moves.host.fs.unlink(path)
            count += 1
    if changed:
        moves.host.fs.sync_dir(changed)
    return count
