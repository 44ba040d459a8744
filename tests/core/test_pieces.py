"""Bodies cut into skeletons and pieces: any bytes come back, long strings are found whole, nonsense raises Corrupt."""

from __future__ import annotations

import json
import random
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core import pieces as cutting
from agentsession_cas.core.canonical import canonical
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
    decode_trailer,
    table_size,
)
from agentsession_cas.core.pieces import (
    PIECE_MIN,
    Cut,
    Skeleton,
    Stored,
    decode_loose,
    decode_skeleton,
    digest_of_stored,
    encode_loose,
    encode_stored,
    encoded_size,
    join,
    names_in,
    pieces_in,
    split,
)
from agentsession_cas.core.zframes import compress
from agentsession_cas.errors import Corrupt
from tests.helpers.objects import digest


def cut(data: bytes) -> tuple[Stored, dict[bytes, bytes]]:
    """A body as it is stored, and its pieces by digest."""
    stored = split(digest(data), data)
    return stored, dict(pieces_in(stored, data)) if isinstance(stored, Skeleton) else {}


def skeleton_of(data: bytes) -> tuple[Skeleton, dict[bytes, bytes]]:
    stored, pieces = cut(data)
    assert isinstance(stored, Skeleton)
    return stored, pieces


def strings_of(value: Any) -> list[str]:
    """Every string of a JSON value, member names included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for name, member in value.items() for text in (name, *strings_of(member))]
    if isinstance(value, list):
        return [text for each in value for text in strings_of(each)]
    return []


def inside(text: str) -> bytes:
    """A string as canonical JSON writes it, without its quotes."""
    return canonical(text)[1:-1]


chars = st.sampled_from(["a", '"', "\\", "\n", "\x00", "\x1f", "é", "\u2028", "😀", "\ud7ff", "/", "{", ":", ","])
short = st.text(chars, max_size=8)
long = st.builds(lambda unit, more, count: (unit or "x") * count + more, short, short, st.integers(400, 3000))
texts = short | long
values = st.recursive(
    texts | st.integers(-9, 9) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(texts, values, max_size=4))
@settings(max_examples=80, deadline=None)
def test_bodies_come_back_and_every_long_string_is_a_piece(body: dict[str, Any]) -> None:
    data = canonical(body)
    stored, pieces = cut(data)
    wanted = {inside(text) for text in strings_of(body) if len(inside(text)) >= PIECE_MIN}
    assert set(pieces.values()) == wanted
    assert all(digest(piece) == name for name, piece in pieces.items())
    assert digest_of_stored(stored) == digest(data)
    assert set(names_in(stored).pieces) == set(pieces)
    if isinstance(stored, Skeleton):
        assert join(stored, lambda each: pieces[each.digest]) == data
        assert len(stored.rest) == len(data) - sum(each.length for each in stored.cuts)
        assert not any(piece in stored.rest for piece in wanted)
        json.loads(stored.rest)  # what is left has empty strings in their places
    else:
        assert stored == data
    assert decode_loose(encode_loose(stored)) == stored
    assert encoded_size(stored) == len(encode_stored(stored))


fragments = st.sampled_from([b'"', b"\\", b'\\"', b"\\\\", b"x" * PIECE_MIN, b'\\"' * PIECE_MIN, b"{", b"\xff", b"\n"])


LOOKS = [b'"', b"\\", b'\\"', b"\\\\", b"\1", b"\1\1", b"\\n", b'","', b"a" * 5]


@given(st.lists(fragments | st.binary(max_size=5), max_size=12))
@settings(max_examples=300, deadline=None)
def test_any_bytes_come_back(parts: list[bytes]) -> None:
    data = b"".join(parts)
    stored, pieces = cut(data)
    if isinstance(stored, Skeleton):
        assert join(decode_skeleton(encode_stored(stored)), lambda each: pieces[each.digest]) == data
    else:
        assert stored == data


@given(st.lists(fragments | st.binary(max_size=5) | st.sampled_from(LOOKS), max_size=30), st.sampled_from([1, 4, 4096]))
@settings(max_examples=600, deadline=None)
def test_both_ways_find_the_same_strings(parts: list[bytes], least: int) -> None:
    data = b"".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cutting, "PIECE_MIN", least)
        assert list(cutting._large_strings(data)) == list(cutting._strings_one_by_one(data))


@pytest.mark.parametrize(("length", "count"), [(PIECE_MIN - 1, 0), (PIECE_MIN, 1), (PIECE_MIN + 1, 1)])
def test_the_threshold(length: int, count: int) -> None:
    for text in ("a" * length, "\n" * (length // 2) + "a" * (length % 2)):
        _, pieces = cut(canonical({"text": text}))
        assert [len(piece) for piece in pieces.values()] == [length] * count


@pytest.mark.parametrize("offset", range(-3, 4))
def test_escapes_across_the_bounds_of_a_look(offset: int) -> None:
    text = "a" * ((1 << 16) + offset) + '"\\' * 5 + "b" * (1 << 16) + "\\"
    data = canonical({"a": text, "z": "end"})
    skeleton, pieces = skeleton_of(data)
    assert list(pieces.values()) == [inside(text)]
    assert join(skeleton, lambda each: pieces[each.digest]) == data


def test_blobs_are_named_whether_a_body_is_cut_or_not() -> None:
    blob = "sidecar:sha256:" + "ab" * 32
    for extra in ("", "x" * PIECE_MIN):
        body = {"a": blob, "b": [blob, f"no {blob}", f'"{blob}"'], "c": extra, "d": "sidecar:sha256:" + "cd" * 32}
        stored, pieces = cut(canonical(body))
        assert names_in(stored) == (tuple(pieces), (bytes.fromhex("ab" * 32), bytes.fromhex("cd" * 32)))


def test_a_piece_in_two_places_is_one() -> None:
    data = canonical({"a": "x" * 5000, "b": ["x" * 5000, "y" * 5000]})
    skeleton, pieces = skeleton_of(data)
    assert len(skeleton.cuts) == 3
    assert len(pieces) == 2
    assert join(skeleton, lambda each: pieces[each.digest]) == data


def test_a_piece_of_another_length_is_not_put_in() -> None:
    skeleton, _ = skeleton_of(canonical({"a": "x" * 5000}))
    with pytest.raises(Corrupt):
        join(skeleton, lambda _: b"x" * 4999)


@given(st.binary(max_size=200), st.integers(0, 3), st.lists(st.integers(0, 300), max_size=8))
@settings(max_examples=300, deadline=None)
def test_nonsense_raises_corrupt(data: bytes, count: int, numbers: list[int]) -> None:
    made = bytes(32) + count.to_bytes(4, "little") + b"".join(n.to_bytes(4, "little") for n in numbers) + data
    for each in (data, made):
        try:
            skeleton = decode_skeleton(each)
        except Corrupt:
            continue
        pieces = {one.digest: bytes(one.length) for one in skeleton.cuts}
        if len(pieces) == len(skeleton.cuts):
            joined = join(skeleton, lambda each: bytes(each.length))
            assert len(joined) == len(skeleton.rest) + sum(map(len, pieces.values()))
        assert encode_stored(skeleton) == each


@pytest.mark.parametrize("cuts", [[Cut(5, 4, b""), Cut(8, 1, b"")], [Cut(9, 4, b"")], [Cut(0, 1, b""), Cut(0, 1, b"")]])
def test_cuts_that_cannot_be(cuts: list[Cut]) -> None:
    skeleton = Skeleton(bytes(32), tuple(each._replace(digest=bytes(32)) for each in cuts), b"12345678")
    with pytest.raises(Corrupt):
        decode_skeleton(encode_stored(skeleton))


# --- in packs --------------------------------------------------------------------------------------------------------


def unpacked(data: bytes) -> list[tuple[Space, Codec, Stored, bytes]]:
    """Every object of a pack: space, codec, stored form, digest."""
    trailer = decode_trailer(data[-TRAILER_SIZE:])
    end = len(data) - TRAILER_SIZE
    table = Table(data[end - table_size(trailer.blocks) : end], trailer.blocks)
    found: list[tuple[Space, Codec, Stored, bytes]] = []
    blocks: list[Block] = []
    for number in range(table.blocks):
        ref = table.block(number)
        frame = data[ref.offset : ref.offset + ref.size]
        block = decode_block(ref, frame, lambda _: pytest.fail("no dictionary"), lambda: blocks[-1])
        assert block.served == ref.served
        assert table.has_skeletons(number) == (ref.codec is Codec.SPLIT)
        numbers = range(ref.first, ref.first + len(block))
        found += [(ref.space, ref.codec, block.stored(at), block.digest(at)) for at in numbers]
        blocks.append(block)
    assert data[:HEADER_SIZE].startswith(b"aspack")
    return found


words = st.integers(0, 9) | st.integers(0, (1 << 32) - 1)


@given(st.lists(words, max_size=12), st.binary(max_size=120), st.integers(1, 6))
@settings(max_examples=300, deadline=None)
def test_a_block_that_lies_under_a_good_checksum(front: list[int], tail: bytes, objects: int) -> None:
    raw = struct.pack(f"<{len(front)}I", *front) + tail
    skeletons = front[0] if front else 0
    frame = compress(raw)
    served = len(raw) - 4 * (1 + skeletons + objects)
    ref = BlockRef(
        16, len(frame), len(raw), served & 0xFFFFFFFF, zlib.crc32(frame), 0, 0, objects, Space.CONTENTS, Codec.SPLIT
    )
    try:
        block = decode_block(ref, frame, lambda _: pytest.fail("no dictionary"), lambda: pytest.fail("no block"))
    except Corrupt:
        return
    assert len(block) == objects
    for at in range(objects):
        try:
            block.stored(at)
            block.skeletons()
        except Corrupt:
            continue


@pytest.mark.parametrize("grade", Grade)
def test_packs_carry_skeletons_among_whole_bodies(grade: Grade) -> None:
    chance = random.Random(1)
    bodies = [canonical({"n": n, "text": chance.choice("abc") * chance.choice([10, 5000, 9000])}) for n in range(60)]
    packer = Packer(grade)
    parts: list[bytes] = []
    wanted: set[tuple[Space, Stored, bytes]] = set()
    for data in bodies:
        stored, pieces = cut(data)
        objects = [(Space.PIECES, piece, name) for name, piece in pieces.items()]
        for space, each, name in [*objects, (Space.CONTENTS, stored, digest(data))]:
            if (space, each, name) not in wanted:
                parts.append(packer.add(space, name, each))
                wanted.add((space, each, name))
    end = packer.finish()
    found = unpacked(b"".join([*parts, end.tail]))
    assert {(space, stored, name) for space, _, stored, name in found} == wanted
    assert len(found) == len(wanted) == 60 + 6
    assert {codec for space, codec, *_ in found if space is Space.CONTENTS} == {Codec.SPLIT}
    assert {codec for space, codec, *_ in found if space is Space.PIECES} == {Codec.PLAIN}
