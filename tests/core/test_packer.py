"""Packs of every grade: what goes in comes out, blocks may be carried from one pack to another, dictionaries work."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.packer import BLOCK_RAW, Packed, Packer
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
from agentsession_cas.core.packindex import key_of
from agentsession_cas.core.zframes import Dictionary, compress, expand_sized, train
from agentsession_cas.errors import Corrupt
from tests.helpers.objects import digest, whole

Object = tuple[Space, bytes]


def written(objects: Sequence[Object], grade: Grade, dictionary: Dictionary | None = None) -> tuple[bytes, Packed]:
    packer = Packer(grade, dictionary)
    pieces = [packer.add(space, digest(data), data) for space, data in objects]
    end = packer.finish()
    data = b"".join([*pieces, end.tail])
    assert (end.size, end.name) == (len(data), digest(data))
    return data, end


class Read:
    """A pack in memory."""

    def __init__(self, data: bytes, dictionaries: Sequence[Dictionary] = ()) -> None:
        trailer = decode_trailer(data[-TRAILER_SIZE:])
        self.grade = decode_header(data[:HEADER_SIZE])
        self.table = Table(data[-TRAILER_SIZE - table_size(trailer.blocks) : -TRAILER_SIZE], trailer.blocks)
        self.refs = [self.table.block(number) for number in range(trailer.blocks)]
        self._data = data
        self._dictionaries = {each.id: each for each in dictionaries}

    def frame(self, ref: BlockRef) -> bytes:
        return self._data[ref.offset : ref.offset + ref.size]

    def block(self, number: int) -> Block:
        ref = self.refs[number]
        return decode_block(ref, self.frame(ref), self._dictionaries.__getitem__, lambda: self.block(number - 1))

    def objects(self) -> list[Object]:
        found: list[Object] = []
        for number, ref in enumerate(self.refs):
            block = self.block(number)
            found += [(ref.space, whole(block, at)) for at in range(ref.first, ref.first + ref.objects)]
        return found


def session(count: int, seed: int = 0, size: int = 3000) -> list[Object]:
    """Bodies and envelopes as a checkpoint has them."""
    chance = random.Random(seed)
    words = [f"word{chance.randrange(400)}" for _ in range(5000)]
    objects: list[Object] = []
    parent = ""
    for k in range(count):
        at = chance.randrange(4000)
        body = {"n": k, "text": " ".join(words[at : at + chance.randrange(size // 6)])}
        entry = Entry.seal("item", body, parent, f"2026-01-01T00:{k // 60 % 60:02}:{k % 60:02}Z")
        objects += [(Space.CONTENTS, entry.content), (Space.ENTRIES, entry.envelope)]
        parent = entry.id
    return objects


@pytest.fixture(scope="module")
def dictionary() -> Dictionary:
    trained = train([data for space, data in session(600, seed=9) if space is Space.CONTENTS], 32 << 10)
    assert trained is not None
    return trained


bodies = st.binary(max_size=200) | st.builds(bytes, st.integers(60_000, 70_000))
objects_lists = st.lists(st.tuples(st.sampled_from(Space), bodies), min_size=1, max_size=40)


@pytest.mark.parametrize("grade", Grade)
@given(objects=objects_lists)
@settings(max_examples=30, deadline=None)
def test_what_goes_in_comes_out(grade: Grade, objects: list[Object]) -> None:
    data, end = written(objects, grade)
    read = Read(data)
    found = read.objects()
    assert read.grade is grade
    assert sorted(found) == sorted(objects)
    assert list(end.keys) == [key_of(digest(each)) for _, each in found]
    assert read.table.served_size() == sum(len(each) for _, each in objects)
    for number, checksum in enumerate(end.sums):
        block = read.block(number)
        digests = [digest(whole(block, at)) for at in range(block.first, block.first + len(block))]
        assert checksum == digest(b"".join(digests))


@pytest.mark.parametrize("grade", Grade)
def test_a_session_keeps_its_order_and_takes_little(grade: Grade, dictionary: Dictionary) -> None:
    objects = session(900)
    made_with = None if grade is Grade.FRESH else dictionary
    data, _ = written(objects, grade, made_with)
    read = Read(data, [dictionary])
    found = read.objects()
    for space in (Space.CONTENTS, Space.ENTRIES):
        assert [each for its, each in found if its is space] == [each for its, each in objects if its is space]
    assert read.table.dictionaries() == ({dictionary.id} if made_with else set())
    assert all(ref.raw <= BLOCK_RAW[grade][ref.space] + 10_000 for ref in read.refs)
    envelopes = [ref for ref in read.refs if ref.space is Space.ENTRIES]
    assert {ref.codec for ref in envelopes} == {Codec.PLAIN if grade is Grade.FRESH else Codec.ENVELOPES}


def test_envelopes_of_an_archive_lie_behind_their_bodies() -> None:
    data, _ = written(session(2500), Grade.ARCHIVE)
    refs = Read(data).refs
    assert len(refs) >= 4
    assert [ref.space for ref in refs] == [Space.CONTENTS, Space.ENTRIES] * (len(refs) // 2)
    # a hash written out has 32 bytes that nothing compresses
    assert all(ref.size < 12 * ref.objects for ref in refs if ref.space is Space.ENTRIES)


def test_envelopes_without_their_bodies() -> None:
    """More than a block's worth, and the bodies that are there come too late."""
    objects = session(6000, size=60)
    envelopes = [each for each in objects if each[0] is Space.ENTRIES]
    late = [each for each in objects if each[0] is Space.CONTENTS]
    for mixed in (envelopes, [*envelopes, *late], [*late[:50], *envelopes, *late[50:]]):
        data, _ = written(mixed, Grade.ARCHIVE)
        assert sorted(Read(data).objects()) == sorted(mixed)


@pytest.mark.parametrize("grade", [Grade.EVERYDAY, Grade.ARCHIVE])
def test_blocks_may_be_carried_into_another_pack(grade: Grade, dictionary: Dictionary) -> None:
    packs = [written(session(700, seed), grade, dictionary if seed else None) for seed in range(3)]
    packer = Packer(grade)
    pieces: list[bytes] = []
    for data, end in packs:
        read = Read(data, [dictionary])
        for ref in read.refs:
            pieces.append(packer.copy(ref, read.frame(ref), end.keys[ref.first : ref.first + ref.objects]))
    more = session(5, seed=7)
    pieces += [packer.add(space, digest(data), data) for space, data in more]
    end = packer.finish()
    whole = b"".join([*pieces, end.tail])
    found = Read(whole, [dictionary]).objects()
    wanted = [each for data, _ in packs for each in Read(data, [dictionary]).objects()]
    assert found[: len(wanted)] == wanted
    assert sorted(found[len(wanted) :]) == sorted(more)
    assert list(end.keys) == [key_of(digest(data)) for _, data in found]
    assert [bool(checksum) for checksum in end.sums].count(False) == sum(len(Read(d).refs) for d, _ in packs)


def test_same_objects_same_bytes(dictionary: Dictionary) -> None:
    for grade in Grade:
        assert written(session(100), grade, dictionary) == written(session(100), grade, dictionary)


def no_dictionary(number: int) -> Dictionary:
    raise AssertionError(f"{number} was not used")


def test_a_block_of_envelopes_that_lost_the_bodies_before_it() -> None:
    data, _ = written(session(300), Grade.ARCHIVE)
    read = Read(data)
    ref = read.refs[1]
    others = Read(written([(Space.CONTENTS, b"%d" % k) for k in range(3)], Grade.ARCHIVE)[0])
    with pytest.raises(Corrupt):
        decode_block(ref, read.frame(ref), no_dictionary, lambda: others.block(0))


# --- dictionaries ----------------------------------------------------------------------------------------------------


def test_a_dictionary_tells_whether_it_is_whole(dictionary: Dictionary) -> None:
    assert Dictionary(dictionary.data).id == dictionary.id
    for at in (0, 3, 4, 7, 8, len(dictionary.data) // 2, len(dictionary.data) - 1):
        broken = bytearray(dictionary.data)
        broken[at] ^= 1
        with pytest.raises(Corrupt):
            Dictionary(bytes(broken))
    for size in (0, 7, 100, len(dictionary.data) - 1):
        with pytest.raises(Corrupt):
            Dictionary(dictionary.data[:size])


def test_frames_made_with_a_dictionary(dictionary: Dictionary) -> None:
    body = session(1, seed=5)[0][1] * 3
    other = train([data for space, data in session(600, seed=3) if space is Space.CONTENTS], 16 << 10)
    assert other is not None
    for level in (1, 3, 9):
        frame = compress(body, level, dictionary)
        assert len(frame) < len(compress(body, level))
        assert expand_sized(frame, len(body), dictionary) == body
        for wrong in (None, other):
            with pytest.raises(Corrupt):
                expand_sized(frame, len(body), wrong)


def test_too_little_to_train_on() -> None:
    assert train([], 1 << 16) is None
    assert train([b"a"], 1 << 16) is None
