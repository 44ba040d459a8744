"""Journal bytes: frames and generations come back, a scan ends where the whole ends, no bytes surprise a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core import framing
from agentsession_cas.core.framing import (
    FRAME_HEAD,
    FRAMES_OFFSET,
    HEAD_SIZE,
    ZEROS_MAX,
    Framer,
    Generation,
    HeadHint,
    Record,
    Scan,
    align,
    behind,
    decode_head,
    decode_records,
    encode_frame,
    encode_generation,
    encode_head,
    encode_settled,
    record_codes,
    record_packer,
    scan_journal,
    told_scan,
)
from agentsession_cas.core.rows import BLOCK_SIZE, ROW_SIZE, Newest, decode_row, whole_rows
from agentsession_cas.errors import Corrupt, LimitExceeded

SALT = b"saltsalt"
OTHER = b"tlastlas"
words = st.integers(0, 2**32 - 1)
longs = st.integers(0, 2**64 - 1)
salts = st.binary(min_size=8, max_size=8)
digests = st.binary(min_size=32, max_size=32)
generations = st.builds(
    Generation,
    salt=salts,
    birth=st.binary(min_size=16, max_size=16),
    log=words,
    base=st.integers(0, 2**32),
    newest=st.builds(Newest, words, words, words, words),
    base_context=digests,
    packed=st.just(0),
).flatmap(lambda made: st.integers(0, min(made.base, 2**32 - 1)).map(lambda packed: made._replace(packed=packed)))
records = st.builds(
    Record, st.binary(min_size=124, max_size=124), st.binary(max_size=200), st.binary(max_size=9000)
)
hints = st.builds(HeadHint, salts, longs, words, digests, longs, longs)


def tail_of(base: int) -> bytes:
    """Bytes as long as a generation's tail is; what is in them is not framing's to ask."""
    return bytes(range(1, 129)) * (base - whole_rows(base))


def packed(group: Sequence[Record]) -> bytes:
    return record_packer()(list(group))


def journal(groups: Sequence[int], *, base: int = 0, committed: Sequence[int] = (), aligned: bool = False) -> bytes:
    """A journal whose frames have so many rows each, and say that so many rows were committed."""
    data = encode_generation(Generation(SALT, bytes(16), 0, base), tail_of(base))
    sequence = base
    for number, count in enumerate(groups):
        if aligned:
            data = data.ljust(align(len(data)), b"\0")
        payload = packed([Record(bytes([number]) * 124, b"envelope", b"content")] * count)
        known = committed[number] if committed else 0
        data += encode_frame(SALT, len(data), sequence, known, count, payload)
        sequence += count
    return data


# --- round trips ------------------------------------------------------------------------------------------------------


@given(generations, st.integers(0, 3 * FRAMES_OFFSET))
def test_a_settled_generation_comes_back(generation: Generation, zeros: int) -> None:
    """Short, or with the zeros before its first frame."""
    generation = generation._replace(base=generation.packed)
    data = encode_settled(generation)
    assert len(data) < 200
    scan = scan_journal(data + bytes(zeros))
    assert (scan.generation, scan.tail, scan.frames, scan.end, scan.zero) == (generation, b"", [], FRAMES_OFFSET, True)
    with pytest.raises(Corrupt):
        scan_journal(data[:-1])


@given(generations)
def test_a_generation_comes_back(generation: Generation) -> None:
    tail = tail_of(generation.base)
    data = encode_generation(generation, tail)
    assert len(data) == FRAMES_OFFSET
    scan = scan_journal(data)
    assert (scan.generation, scan.tail) == (generation, tail)
    assert (scan.frames, scan.end, scan.sequence, scan.zero) == ([], FRAMES_OFFSET, generation.base, True)


@given(st.lists(records, max_size=5))
def test_records_come_back(group: list[Record]) -> None:
    payload = packed(group)
    assert decode_records(payload, len(group)) == group
    assert decode_records(memoryview(payload), len(group)) == group
    assert record_codes(memoryview(payload), len(group)) == {decode_row(record.row).code for record in group}


@given(st.lists(st.lists(records, min_size=1, max_size=3), max_size=4), st.booleans(), st.integers(0, 9000))
def test_frames_come_back_behind_each_other_and_on_blocks(
    groups: list[list[Record]], aligned: bool, zeros: int
) -> None:
    data = encode_generation(Generation(SALT, bytes(16), 3, 40), tail_of(40))
    sequence = 40
    for group in groups:
        if aligned:
            data = data.ljust(align(len(data)), b"\0")
        data += encode_frame(SALT, len(data), sequence, 40, len(group), packed(group))
        sequence += len(group)
    scan = scan_journal(data + bytes(zeros))
    found = [decode_records(data[frame.payload_at : frame.end], frame.rows) for frame in scan.frames]
    assert found == groups
    assert (scan.end, scan.sequence, scan.zero, scan.attested) == (len(data), sequence, True, 0)


@given(hints, st.binary(max_size=20))
def test_head_comes_back(hint: HeadHint, behind: bytes) -> None:
    data = encode_head(hint)
    assert len(data) == HEAD_SIZE
    assert decode_head(data + behind) == hint


# --- where a journal ends ---------------------------------------------------------------------------------------------


def ends(scan: Scan) -> tuple[int, bool, int]:
    return len(scan.frames), scan.zero, scan.attested


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("broken", range(5))
def test_a_journal_ends_at_the_first_frame_that_is_not_whole(broken: int, aligned: bool) -> None:
    data = journal([1, 2, 1, 3, 1], committed=[0, 1, 3, 3, 7], aligned=aligned)
    at = scan_journal(data).frames[broken]
    for offset in (at.offset, at.payload_at, at.end - 1):
        spoiled = bytearray(data)
        spoiled[offset] ^= 1
        frames, zero, attested = ends(scan_journal(bytes(spoiled)))
        assert frames == broken
        assert not zero
        # the frames behind say what had been committed when they were written
        assert attested == (7 if broken < 4 else 0)


def test_only_later_frames_attest() -> None:
    data = journal([1, 1, 1], committed=[0, 1, 1])
    second = scan_journal(data).frames[1]
    spoiled = bytearray(data)
    spoiled[second.payload_at] ^= 1
    scan = scan_journal(bytes(spoiled))
    assert (scan.sequence, scan.attested) == (1, 1)


def test_frames_of_another_generation_are_bytes_like_any_other() -> None:
    data = journal([1])
    stale = encode_frame(OTHER, len(data), 1, 99, 1, packed([Record(bytes(124), b"", b"")]))
    assert ends(scan_journal(data + stale)) == (1, False, 0)


def test_a_frame_counts_at_its_own_offset_alone() -> None:
    data = journal([1])
    frame = encode_frame(SALT, len(data) + 1, 1, 9, 1, packed([Record(bytes(124), b"", b"")]))
    assert ends(scan_journal(data + frame)) == (1, False, 0)
    assert ends(scan_journal(data + b"\0" + frame)) == (1, False, 9)


def test_a_frame_out_of_its_turn_ends_the_journal() -> None:
    data = journal([1])
    later = encode_frame(SALT, len(data), 2, 2, 1, packed([Record(bytes(124), b"", b"")]))
    assert ends(scan_journal(data + later)) == (1, False, 2)


@given(st.integers(0, 2 * BLOCK_SIZE + 3000))
def test_a_journal_cut_anywhere_loses_whole_frames(cut: int) -> None:
    data = journal([1, 2, 1, 1])
    try:
        scan = scan_journal(data[:cut])
    except Corrupt:
        assert cut < FRAMES_OFFSET
    else:
        assert scan.frames == [frame for frame in scan_journal(data).frames if frame.end <= cut]


@given(st.integers(0, FRAMES_OFFSET - 1), st.integers(1, 255))
def test_a_flip_in_the_first_blocks_is_corrupt_or_in_their_padding(at: int, mask: int) -> None:
    data = bytearray(journal([2], base=37))
    used = [*range(96 + 4), *range(BLOCK_SIZE, BLOCK_SIZE + 5 * ROW_SIZE)]
    data[at] ^= mask
    try:
        scan = scan_journal(bytes(data))
    except Corrupt:
        assert at in used
    else:
        assert at not in used
        assert len(scan.frames) == 1


# --- any bytes --------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=400), st.integers(0, 9000))
def test_any_bytes_are_a_journal_or_corrupt(data: bytes, zeros: int) -> None:
    with pytest.raises(Corrupt):
        scan_journal(data + bytes(zeros))


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 12_000), st.binary(min_size=1, max_size=40)), max_size=4))
def test_a_journal_scribbled_over_is_one_or_corrupt(scribbles: list[tuple[int, bytes]]) -> None:
    data = bytearray(journal([1, 3, 2], base=33, committed=[33, 34, 37]).ljust(12_100, b"\0"))
    for at, words_ in scribbles:
        data[at : at + len(words_)] = words_
    try:
        scan = scan_journal(bytes(data))
    except Corrupt:
        return
    for frame in scan.frames:
        assert len(decode_records(bytes(data[frame.payload_at : frame.end]), frame.rows)) == frame.rows


@given(st.binary(max_size=300), st.integers(0, 5))
def test_any_bytes_are_records_or_corrupt(data: bytes, count: int) -> None:
    try:
        found = decode_records(data, count)
    except Corrupt:
        with suppress(Corrupt):
            record_codes(data, count)
        return
    assert len(found) == count
    assert len(record_codes(data, count)) <= count


packable = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(max_size=130),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


@given(packable, st.integers(0, 5))
def test_any_message_is_records_or_corrupt(message: object, count: int) -> None:
    try:
        decode_records(msgpack.packb(message), count)
    except Corrupt:
        with suppress(Corrupt):
            record_codes(msgpack.packb(message), count)


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\x3f\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\x7f\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 5000,
        b"\xc1",
        b"\xd6\xff\x00\x00\x00\x00",
        b"\xc7\x0c\xff" + b"\xff" * 12,
        b"\x81\x90\x01",
        b"",
    ],
)
def test_messages_that_claim_what_is_not_there_are_corrupt(data: bytes) -> None:
    for read in (decode_records, record_codes):
        with pytest.raises(Corrupt):
            read(data, 1)


@given(st.none() | st.binary(max_size=200))
def test_any_bytes_are_a_hint_or_none(data: bytes | None) -> None:
    assert decode_head(data) is None


@given(hints, st.integers(0, HEAD_SIZE - 1), st.integers(1, 255))
def test_a_torn_or_flipped_head_is_none(hint: HeadHint, at: int, mask: int) -> None:
    """Where only what it tells of the journal's end is spoilt, or absent as in those of old, the rest stands."""
    data = bytearray(encode_head(hint))
    left = None if at < 64 else hint._replace(last=0, end=0)
    assert decode_head(bytes(data[:at])) == left
    data[at] ^= mask
    assert decode_head(bytes(data)) == left


def told(data: bytes, hint: HeadHint) -> Scan | None:
    """What HEAD tells of a journal, of which no more is read than that takes."""
    frame, rest = data[hint.last : hint.last + FRAME_HEAD], data[hint.end : hint.end + behind(hint.end)]
    return told_scan(data[:FRAMES_OFFSET], frame, rest, hint)


@given(st.lists(st.integers(1, 40), max_size=4), st.integers(0, 70), st.booleans(), st.integers(1, 40))
def test_an_end_that_head_tells_is_that_of_the_scan(groups: list[int], base: int, aligned: bool, more: int) -> None:
    data = journal(groups, base=base, aligned=aligned) + bytes(9000)
    scan = scan_journal(data)
    last = scan.frames[-1].offset if scan.frames else scan.end
    hint = HeadHint(SALT, scan.sequence, 0, bytes(32), last, scan.end)
    assert told(data, hint) == scan._replace(frames=[])
    others = [hint._replace(salt=OTHER), hint._replace(committed=scan.sequence + 1), hint._replace(last=last + 1)]
    assert not any(told(data, other) for other in others)
    longer = journal([*groups, more], base=base, aligned=aligned)
    assert told(longer + bytes(9000), hint) is None


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.data())
def test_a_flip_in_what_bears_head_out_is_noticed(groups: list[int], data: st.DataObject) -> None:
    whole = bytearray(journal(groups) + bytes(9000))
    scan = scan_journal(bytes(whole))
    last = scan.frames[-1].offset
    looked_at = [*range(100), *range(last, last + 24), *range(last + 32, last + 44), *range(scan.end, scan.end + 60)]
    whole[data.draw(st.sampled_from(looked_at))] ^= data.draw(st.integers(1, 255))
    with suppress(Corrupt):
        assert told(bytes(whole), HeadHint(SALT, scan.sequence, 0, bytes(32), last, scan.end)) is None


# --- one buffer for many frames ---------------------------------------------------------------------------------------


made = st.tuples(st.lists(records, max_size=9), st.integers(0, ZEROS_MAX), st.sampled_from([1, 1, 400]))


@settings(deadline=None, max_examples=60)
@given(st.lists(made, max_size=6), salts, longs)
def test_a_framer_makes_the_frames_that_encode_frame_does(
    groups: list[tuple[list[Record], int, int]], salt: bytes, offset: int
) -> None:
    """Long frames, past what it keeps, and short ones in any order; zeros are zeros whatever lay there before."""
    framer = Framer()
    for group, zeros, times in groups:
        many = group * times
        frame = framer.frame(salt, offset, 3, 2, many)
        expected = encode_frame(salt, offset, 3, 2, len(many), packed(many))
        assert bytes(frame) == expected
        if zeros % 2:
            assert bytes(framer.with_zeros(frame, zeros)) == expected + bytes(zeros)


def test_a_frame_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "FRAME_MAX", 400)
    framer, record = Framer(), Record(bytes(124), b"e" * 100, b"c" * 100)
    for group in ([record] * 2, [record._replace(content=bytes(300))]):
        with pytest.raises(LimitExceeded, match="past the 400 that"):
            framer.frame(SALT, 0, 0, 0, group)
        with pytest.raises(LimitExceeded, match="past the 400 that"):
            encode_frame(SALT, 0, 0, 0, len(group), packed(group))
    assert bytes(framer.frame(SALT, 0, 0, 0, [record])) == encode_frame(SALT, 0, 0, 0, 1, packed([record]))


@pytest.mark.parametrize("count", [1, 2])
def test_the_longest_frame_there_may_be_is_made_and_read(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    group = [Record(bytes(124), b"e" * 100, b"c" * 100)] * count
    monkeypatch.setattr(framing, "FRAME_MAX", len(packed(group)))
    frame = encode_frame(SALT, 0, 0, 0, count, packed(group))
    assert bytes(Framer().frame(SALT, 0, 0, 0, group)) == frame
    found = framing.frame_at(memoryview(frame), 0, SALT)
    assert found is not None
    assert found[0].rows == count
    monkeypatch.setattr(framing, "FRAME_MAX", len(packed(group)) - 1)
    assert framing.frame_at(memoryview(frame), 0, SALT) is None
