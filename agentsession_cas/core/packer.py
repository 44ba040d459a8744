"""Writing packs: which objects share a block, and the bytes of the whole (``packformat`` says what they mean).

Owns the making of pack bytes, piece by piece, so that a large pack never lies in memory. Invariant: the bytes depend on
nothing but objects, order, grade, dictionary and the version of zstd. Pure. Must not know where packs lie.

Bodies come as they are to be stored, whole or as skeletons; their pieces are objects like others.

| grade | blocks | level | dictionary | envelopes |
|---|---|---|---|---|
| FRESH | 64 KiB | fast | none | as they are |
| EVERYDAY | bodies 2, pieces 16, others 64 KiB | steady | small | in binary, bodies by hash: a block is read alone |
| ARCHIVE | 1 MiB | tight | large | in binary, each block behind the bodies it names |
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from array import array
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from agentsession_cas.core.envelopes import encode_envelopes
from agentsession_cas.core.packformat import (
    HEADER_SIZE,
    BlockRef,
    Codec,
    Grade,
    Space,
    encode_header,
    encode_table,
    encode_trailer,
)
from agentsession_cas.core.packindex import keys_of
from agentsession_cas.core.pieces import Skeleton, Stored, encode_stored, encoded_size
from agentsession_cas.core.zframes import FAST, STEADY, TIGHT, Dictionary, compress

__all__ = ["Packed", "Packer", "check_of"]

BLOCK_RAW: Final = {
    Grade.FRESH: dict.fromkeys(Space, 64 << 10),
    Grade.EVERYDAY: {**dict.fromkeys(Space, 64 << 10), Space.CONTENTS: 2 << 10, Space.PIECES: 16 << 10},
    Grade.ARCHIVE: dict.fromkeys(Space, 1 << 20),
}
"""A block takes objects until it holds this many bytes, or a longer one comes, which has a block of its own.

Those of everyday packs are read for one object mostly: 4 KiB of bodies and 64 KiB of pieces would save 2% of the bytes,
and cost a body half as much again to read, one with a piece three times as much.
"""

_LEVELS: Final = {Grade.FRESH: FAST, Grade.EVERYDAY: STEADY, Grade.ARCHIVE: TIGHT}


class Packed(NamedTuple):
    """The end of a pack being written, the name of the whole (a raw digest), and what an index and a check of it need.

    ``keys`` are those of the objects by number, as ``packindex`` has them. ``sums`` has of each block the SHA-256 of
    what ``check_of`` says of its objects, b"" of one that was copied.
    """

    tail: bytes
    name: bytes
    size: int
    table: bytes
    keys: array[int]
    sums: list[bytes]


def check_of(digest: bytes, stored: Stored) -> bytes:
    """What vouches for every byte of an object that is stored: its digest, or the SHA-256 of its skeleton."""
    return hashlib.sha256(encode_stored(stored)).digest() if isinstance(stored, Skeleton) else digest


class _Group:
    """Objects of one space that wait for their block to fill."""

    __slots__ = ("digests", "objects", "size")

    def __init__(self) -> None:
        self.digests: list[bytes] = []
        self.objects: list[Stored] = []
        self.size = 0


class Packer:
    """Writes one pack, piece by piece: write what each call returns in that order, then the tail ``finish`` returns.

    Small objects of one space share blocks in the order they come.
    """

    def __init__(self, grade: Grade = Grade.FRESH, dictionary: Dictionary | None = None) -> None:
        header = encode_header(grade)
        self._grade = grade
        self._dictionary = dictionary
        self._archive = grade is Grade.ARCHIVE
        self._block_raw = [BLOCK_RAW[grade][space] for space in Space]
        self._hash = hashlib.sha256(header)
        self._unwritten = header
        self._groups = [_Group() for _ in Space]
        self._refs: list[BlockRef] = []
        self._end = HEADER_SIZE
        self._keys = array("Q")
        self._sums: list[bytes] = []

    @property
    def size(self) -> int:
        """Bytes so far, without the objects that wait for their block to fill."""
        return self._end

    @property
    def objects(self) -> int:
        """Objects so far."""
        return len(self._keys) + sum(len(group.digests) for group in self._groups)

    def add(self, space: Space, digest: bytes, stored: Stored) -> bytes:
        """Take an object of at most ``PACKED_MAX`` bytes named ``digest``; returns the bytes to write now, if any."""
        size, most = encoded_size(stored) + 4, self._block_raw[space]
        if size > most:  # those before it come before it, so that what is read in turn lies in turn
            return (b"" if self._archive else self._flush(space)) + self._block(space, [digest], [stored])
        group = self._groups[space]
        closed = b""
        if self._archive and group.size + size > most:
            # closed by what no longer fits: behind the last body there is room for its envelope
            closed = self._close(space)
            group = self._groups[space]
        group.digests.append(digest)
        group.objects.append(stored)
        group.size += size
        return closed if self._archive or group.size < most else self._flush(space)

    def copy(self, ref: BlockRef, frame: bytes, keys: Sequence[int]) -> bytes:
        """Take a block of another pack as it is; blocks that lay side by side there are to come one after the other."""
        return self._place(frame, ref, keys, b"")

    def finish(self) -> Packed:
        """The rest of the pack. At least one object must have been added."""
        # bodies last but for their envelopes, and envelopes without bodies at the very end
        last = b"".join([self._flush(space) for space in (Space.PIECES, Space.MEDIA, Space.CONTENTS, Space.ENTRIES)])
        table = encode_table(self._refs)
        self._hash.update(table)
        trailer = encode_trailer(len(self._refs), table, self._hash.digest())
        self._hash.update(trailer)
        size = self._end + len(table) + len(trailer)
        return Packed(last + table + trailer, self._hash.digest(), size, table, self._keys, self._sums)

    def _close(self, space: Space) -> bytes:
        """Close a block of an archive: envelopes never without the bodies that wait."""
        bodies = self._flush(Space.CONTENTS) if space is Space.ENTRIES else b""
        return bodies + self._flush(space)

    def _flush(self, space: Space) -> bytes:
        """Close the block of a space; with one of bodies, in an archive, that of the envelopes that wait."""
        group = self._take(space)
        if not group.digests:
            return b""
        if space is Space.ENTRIES and self._grade is not Grade.FRESH:
            return self._envelopes(group, {})
        closed = self._block(space, group.digests, group.objects)
        if space is Space.CONTENTS and self._archive:
            bodies = {digest: place for place, digest in enumerate(group.digests)}
            closed += self._envelopes(self._take(Space.ENTRIES), bodies)
        return closed

    def _take(self, space: Space) -> _Group:
        group, self._groups[space] = self._groups[space], _Group()
        return group

    def _envelopes(self, group: _Group, bodies: Mapping[bytes, int]) -> bytes:
        if not group.digests:
            return b""
        envelopes = [encode_stored(envelope) for envelope in group.objects]
        raw = encode_envelopes(list(zip(group.digests, envelopes, strict=True)), bodies)
        return self._write(Space.ENTRIES, Codec.ENVELOPES, group.digests, group.objects, raw)

    def _block(self, space: Space, digests: list[bytes], objects: list[Stored]) -> bytes:
        encoded = [encode_stored(stored) for stored in objects]
        split = [at for at, stored in enumerate(objects) if isinstance(stored, Skeleton)]
        front = [len(split), *split] if split else []
        lengths = [*front, *map(len, encoded)]
        raw = b"".join([struct.pack(f"<{len(lengths)}I", *lengths), *encoded])
        return self._write(space, Codec.SPLIT if split else Codec.PLAIN, digests, objects, raw)

    def _write(self, space: Space, codec: Codec, digests: list[bytes], objects: list[Stored], raw: bytes) -> bytes:
        frame = compress(raw, _LEVELS[self._grade], self._dictionary)
        made_with = self._dictionary.id if self._dictionary is not None else 0
        served = sum(map(encoded_size, objects))
        ref = BlockRef(0, len(frame), len(raw), served, zlib.crc32(frame), made_with, 0, len(digests), space, codec)
        checks = b"".join(map(check_of, digests, objects))
        return self._place(frame, ref, keys_of(digests), hashlib.sha256(checks).digest())

    def _place(self, frame: bytes, ref: BlockRef, keys: Sequence[int], checksum: bytes) -> bytes:
        self._hash.update(frame)
        self._refs.append(ref._replace(offset=self._end, first=len(self._keys)))
        self._end += len(frame)
        self._keys.extend(keys)
        self._sums.append(checksum)
        frame, self._unwritten = self._unwritten + frame, b""
        return frame
