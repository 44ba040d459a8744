"""Pack, idx and frame bytes: round trips, any bytes, and what a flipped bit may do."""

from __future__ import annotations

import os
import struct
import zlib
from itertools import pairwise
from typing import NoReturn

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core import packer as packing
from agentsession_cas.core import zframes
from agentsession_cas.core.packer import Packer
from agentsession_cas.core.packformat import (
    HEADER_SIZE,
    TRAILER_SIZE,
    Block,
    BlockRef,
    Codec,
    Grade,
    Space,
    Table,
    decode_block,
    decode_header,
    decode_trailer,
    table_size,
)
from agentsession_cas.core.packindex import Index, encode_index, index_slices, key_of, keys_of
from agentsession_cas.core.slices import drain
from agentsession_cas.core.zframes import Dictionary
from agentsession_cas.errors import Corrupt
from tests.helpers.objects import digest, whole

Objects = list[tuple[Space, bytes]]


def pack(objects: Objects) -> tuple[bytes, bytes]:
    """Pack bytes and idx bytes of these objects."""
    packer = Packer()
    pieces = [packer.add(space, digest(data), data) for space, data in objects]
    end = packer.finish()
    data = b"".join([*pieces, end.tail])
    assert (end.size, end.name) == (len(data), digest(data))
    return data, encode_index(end.name, end.size, end.table, end.keys)


def table_of(data: bytes) -> Table:
    assert decode_header(data[:HEADER_SIZE]) is Grade.FRESH
    trailer = decode_trailer(data[-TRAILER_SIZE:])
    assert trailer.digest == digest(data[:-TRAILER_SIZE])
    table = data[len(data) - TRAILER_SIZE - table_size(trailer.blocks) : -TRAILER_SIZE]
    assert trailer.table_crc == zlib.crc32(table)
    return Table(table, trailer.blocks)


def read_block(data: bytes, table: Table, number: int, dictionary: Dictionary | None = None) -> tuple[BlockRef, Block]:
    """A block of a pack, with the table's words about it."""
    ref = table.block(number)

    def find(wanted: int) -> Dictionary:
        assert dictionary is not None
        assert dictionary.id == wanted
        return dictionary

    frame = data[ref.offset : ref.offset + ref.size]
    block = decode_block(ref, frame, find, lambda: read_block(data, table, number - 1, dictionary)[1])
    assert (len(block), block.served) == (ref.objects, ref.served)
    return ref, block


def contents(data: bytes, dictionary: Dictionary | None = None) -> Objects:
    """Every object of a pack, by its own table."""
    table = table_of(data)
    found: Objects = []
    for number in range(table.blocks):
        ref, block = read_block(data, table, number, dictionary)
        found += [(ref.space, whole(block, at)) for at in range(ref.first, ref.first + ref.objects)]
    return found


def alone(ref: BlockRef, frame: bytes) -> Block:
    """A block that needs nothing but its frame."""

    def nothing(*_: object) -> NoReturn:
        raise AssertionError("it asks for more")

    return decode_block(ref, frame, nothing, nothing)


bodies = st.binary(max_size=200) | st.builds(bytes, st.integers(60_000, 70_000))
objects_lists = st.lists(st.tuples(st.sampled_from(Space), bodies), min_size=1, max_size=40)


@given(objects_lists)
@settings(max_examples=60, deadline=None)
def test_pack_yields_what_was_put_in(objects: Objects) -> None:
    data, idx = pack(objects)
    assert sorted(contents(data)) == sorted(objects)
    index = Index(idx)
    table = table_of(data)
    assert (index.objects, index.pack_name, index.pack_size) == (len(objects), digest(data), len(data))
    assert bytes(index.table.data) == bytes(table.data)
    for space, body in objects:
        places = index.places(space, key_of(digest(body)))
        assert len(places) == objects.count((space, body))
        for block, number in places:
            ref, held = read_block(data, table, block)
            assert (ref.space, whole(held, number)) == (space, body)
    assert index.places(Space.MEDIA, key_of(digest(b"nowhere"))) == []
    lying = [key_of(digest(body)) for _, body in contents(data)]
    assert list(index.keys()) == lying
    assert {key for part in index.key_parts() for key in part} == set(lying)
    assert index.among([key_of(digest(b"nowhere")), *lying[:3]]) == lying[:3]


def test_one_digest_in_two_spaces() -> None:
    _, idx = pack([(Space.CONTENTS, b"same"), (Space.MEDIA, b"same"), (Space.MEDIA, b"other")])
    index = Index(idx)
    table = index.table
    for space in (Space.CONTENTS, Space.MEDIA):
        [(block, _)] = index.places(space, key_of(digest(b"same")))
        assert table.block(block).space is space
    assert index.places(Space.ENTRIES, key_of(digest(b"same"))) == []
    assert index.places(Space.CONTENTS, key_of(digest(b"other"))) == []


def test_neighbours_share_blocks_and_long_objects_do_not() -> None:
    small = [(Space(k % 2), b"%d" % k * 100) for k in range(2000)]
    long = (Space.CONTENTS, bytes(100_000))
    data, _ = pack([*small[:1000], long, *small[1000:]])
    table = table_of(data)
    refs = [table.block(number) for number in range(table.blocks)]
    assert [ref.objects for ref in refs if ref.raw > 90_000] == [1]
    shared = [ref for ref in refs if ref.raw < 90_000]
    most = packing.BLOCK_RAW[Grade.FRESH][Space.CONTENTS]
    assert all(ref.raw <= most + 1000 for ref in shared)
    # the last one of each space, and the one before the long object
    assert sum(ref.raw >= most for ref in shared) == len(shared) - 3
    # within a space, objects lie in the order they came
    for space in (Space.ENTRIES, Space.CONTENTS):
        lying = [body for found, body in contents(data) if found is space]
        assert lying == [body for its, body in (*small[:1000], long, *small[1000:]) if its is space]
    assert table.served_size() == 100_000 + sum(len(body) for _, body in small)


def test_same_objects_same_name() -> None:
    objects = [(Space.ENTRIES, b"%d" % k) for k in range(100)]
    assert pack(objects) == pack(objects)


@pytest.mark.parametrize("count", [1, 255, 256, 1024, 1025, 70_000])
def test_idx_finds_each_of_many(count: int) -> None:
    digests = [digest(b"%d" % k) for k in range(count)]
    packer = Packer()
    for k in range(count):
        packer.add(Space.ENTRIES, digests[k], b"%d" % k)
    end = packer.finish()
    assert list(end.keys) == [key_of(name) for name in digests]
    index = Index(encode_index(end.name, end.size, end.table, end.keys))
    found = [index.places(Space.ENTRIES, key_of(name)) for name in digests]
    assert [number for [(_, number)] in found] == list(range(count))
    assert list(index.keys()) == list(end.keys)
    assert index.among(end.keys) == list(end.keys)
    absent = keys_of([digest(b"absent %d" % k) for k in range(2000)])
    assert len(index.among(absent)) <= 2


def test_an_idx_is_made_in_slices() -> None:
    packer = Packer()
    for k in range(5000):
        packer.add(Space.ENTRIES, digest(b"%d" % k), b"%d" % k)
    end = packer.finish()
    slices = index_slices(end.name, end.size, end.table, end.keys)
    assert sum(1 for _ in slices) > 5
    whole = drain(index_slices(end.name, end.size, end.table, end.keys))
    assert whole == encode_index(end.name, end.size, end.table, end.keys)


def test_digests_that_begin_alike() -> None:
    """Nobody can make many such objects, so the keys are made up; the idx must not rely on that."""
    packer = Packer()
    for k in range(6):
        packer.add(Space.ENTRIES, bytes(4) + bytes([k // 3]) * 2 + bytes([k]) * 26, b"%d" % k)
    end = packer.finish()
    index = Index(encode_index(end.name, end.size, end.table, end.keys))
    for k in range(6):
        places = index.places(Space.ENTRIES, key_of(bytes(4) + bytes([k // 3]) * 2 + bytes(26)))
        assert sorted(places) == [(0, k // 3 * 3 + j) for j in range(3)]
    assert index.places(Space.ENTRIES, key_of(bytes(4) + b"\x09" * 28)) == []


# --- damage ----------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_of_an_idx_is_noticed() -> None:
    objects = [(Space(k % 3), b"body %d" % k) for k in range(9)]
    _, idx = pack(objects)
    for at in range(len(idx)):
        broken = bytearray(idx)
        broken[at] ^= 1 << at % 8
        with pytest.raises(Corrupt):
            Index(bytes(broken)).test()


def test_a_damaged_row_is_not_an_absent_object() -> None:
    _, idx = pack([(Space.ENTRIES, b"body %d" % k) for k in range(9)])
    for at in range(len(idx) - 9 * 9, len(idx)):
        broken = bytearray(idx)
        broken[at] ^= 0x10
        index = Index(bytes(broken))
        for k in range(9):
            try:
                assert index.places(Space.ENTRIES, key_of(digest(b"body %d" % k)))
            except Corrupt:
                continue


def test_every_flipped_bit_of_a_block_is_noticed() -> None:
    data, _ = pack([(Space.ENTRIES, b"body %d" % k) for k in range(9)])
    ref = table_of(data).block(0)
    frame = data[ref.offset : ref.offset + ref.size]
    for at in range(len(frame)):
        broken = bytearray(frame)
        broken[at] ^= 1 << at % 8
        with pytest.raises(Corrupt):
            alone(ref, bytes(broken))
    with pytest.raises(Corrupt):
        alone(ref, frame[:-1])


def test_a_later_version_is_not_guessed_at() -> None:
    data, idx = pack([(Space.ENTRIES, b"a")])
    for at in (7, 8, 10):  # magic, version, grade or bits
        newer = bytearray(data[:HEADER_SIZE])
        newer[at] += 40
        with pytest.raises(Corrupt, match="version") as caught:
            decode_header(bytes(newer))
        assert caught.value.next_step
        newer = bytearray(idx)
        newer[at] += 40
        with pytest.raises(Corrupt, match="version"):
            Index(bytes(newer))


numbers = st.integers(0, 2**32 - 1)


@given(st.binary(max_size=400), st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_any_bytes_raise_corrupt_and_nothing_else(data: bytes, blocks: int) -> None:
    for decode in (decode_header, decode_trailer, Index, zframes.expand, zframes.claimed_size):
        try:
            decode(data)
        except Corrupt:
            continue
    padded = data.ljust(table_size(blocks), b"\0")[: table_size(blocks)]
    for number in range(blocks):
        try:
            ref = Table(padded, blocks).block(number)
            alone(ref._replace(dictionary=0, codec=Codec.PLAIN), data)
        except Corrupt:
            continue


@given(st.binary(max_size=300), st.lists(numbers, min_size=4, max_size=4), st.integers(0, 2), st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_an_idx_that_lies_under_good_checksums(body: bytes, fan: list[int], blocks: int, objects: int) -> None:
    """Bytes made by hand, every checksum right: still Corrupt, or answers, and nothing else."""
    fan = [value % (objects + 1) for value in fan[:3]] + [objects]
    widths = (4, 2, 2, 1)
    columns = body.ljust(9 * objects, b"\xff")[: 9 * objects]
    ends = [objects * sum(widths[:k]) for k in range(5)]
    parts = [columns[low:high] for low, high in pairwise(ends)]
    sums = []
    for low, high in pairwise([0, *fan]):
        crc = 0
        for part, width in zip(parts, widths, strict=True):
            crc = zlib.crc32(part[width * low : width * high], crc)
        sums.append(crc)
    table = body[::-1].ljust(table_size(blocks), b"\1")[: table_size(blocks)]
    firsts = struct.pack("<I", objects)
    at = 8 * (blocks + 1) + 4 * blocks
    table = table[:at] + firsts + table[at + 4 :]
    header = struct.pack("<8sHHII32sQ", b"aspidx02", 2, 2, blocks, objects, bytes(32), 99)
    front = table + struct.pack("<8I", *fan, *sums)
    crc = zlib.crc32(front, zlib.crc32(header))
    try:
        index = Index(header + struct.pack("<I", crc) + front + columns)
        index.places(Space.ENTRIES, key_of(body.ljust(32, b"\xff")[:32]))
        keys = index.keys()
        for key in keys:
            index.places(Space.ENTRIES, key)
    except Corrupt:
        return


@given(st.binary(max_size=200), st.lists(numbers, max_size=6), numbers)
@settings(max_examples=200, deadline=None)
def test_a_block_that_lies_under_a_good_checksum(tail: bytes, lengths: list[int], objects: int) -> None:
    raw = struct.pack(f"<{len(lengths)}I", *lengths) + tail
    frame = zframes.compress(raw)
    for count in (len(lengths), objects % (len(raw) // 4 + 1)):
        served = len(raw) - 4 * count
        ref = BlockRef(16, len(frame), len(raw), served, zlib.crc32(frame), 0, 0, count, Space.ENTRIES, Codec.PLAIN)
        try:
            block = alone(ref, frame)
        except Corrupt:
            continue
        assert sum(len(whole(block, at)) for at in range(count)) == len(raw) - 4 * count


# --- frames ----------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=5000))
@settings(max_examples=100, deadline=None)
def test_frames_round_trip(data: bytes) -> None:
    frame = zframes.compress(data)
    assert zframes.expand(frame) == data
    assert zframes.claimed_size(frame[: zframes.FRAME_HEAD_MAX]) == len(data)


@pytest.mark.parametrize("data", [bytes(3 << 20), os.urandom(3 << 20)], ids=["zeros", "noise"])
def test_long_frames(data: bytes) -> None:
    frame = zframes.compress(data)
    assert zframes.expand(frame) == data
    for broken in (frame[:-1], frame[: len(frame) // 2], frame + b"\0", frame + frame):
        with pytest.raises(Corrupt):
            zframes.expand(broken)


@pytest.mark.parametrize("claim", [2**33, 2**62])
def test_a_frame_that_claims_to_be_huge_allocates_nothing(claim: int) -> None:
    head = b"\x28\xb5\x2f\xfd" + bytes([0b11_0_0_0_0_00]) + bytes([0x38]) + claim.to_bytes(8, "little")
    frame = head + (1 | 3 << 3).to_bytes(3, "little") + b"abc"  # one raw last block of three bytes
    assert zframes.claimed_size(frame) == claim
    with pytest.raises(Corrupt):
        zframes.expand(frame)


def test_frames_not_ours() -> None:
    without_size = zstandard.ZstdCompressor(write_content_size=False).compress(b"abc")
    with pytest.raises(Corrupt):
        zframes.expand(without_size)
    with pytest.raises(Corrupt):
        zframes.expand_sized(zframes.compress(b"abc"), 4)
    with pytest.raises(Corrupt):
        zframes.expand(zframes.compress(b"abc") + b"x")
