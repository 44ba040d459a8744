"""Packed rows: what goes in comes out but for context hashes; ids are made anew; no bytes surprise the decoder.

What the decoder does in columns is what reading row by row gives.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.envelopes import put_together
from agentsession_cas.core.facts import Code
from agentsession_cas.core.packedrows import (
    PIECE_ROWS,
    decode_front,
    encode_front,
    encode_piece,
    front_size,
)
from agentsession_cas.core.packedrows import decode_piece as decode_bytes
from agentsession_cas.core.rows import (
    NO_DIGEST,
    REF_BASE,
    REF_ELSEWHERE,
    REF_ROOT,
    ROW_SIZE,
    Row,
    RowCode,
    decode_rows,
    ref_to,
)
from agentsession_cas.core.timestamps import ts_to_ns
from agentsession_cas.core.zframes import compress, expand
from agentsession_cas.errors import Corrupt
from tests.helpers.slowrows import unpack_slowly

digests = st.binary(min_size=32, max_size=32)
words = st.integers(0, 2**32 - 1)
any_rows = st.builds(
    Row,
    entry=digests,
    content=digests,
    context=digests,
    parent=words,
    head=words,
    target=words,
    ts=st.integers(-(2**63), 2**63 - 1),
    code=st.integers(0, RowCode.HEAD - 1),
    kind=st.integers(0, 255),
    flags=st.integers(0, 2**16 - 1),
    call=words,
)
specials = st.builds(
    Row,
    entry=st.just(NO_DIGEST),
    content=st.just(NO_DIGEST),
    context=st.just(NO_DIGEST),
    parent=words,
    head=words,
    target=words,
    ts=st.integers(-(2**63), 2**63 - 1),
    code=st.integers(RowCode.HEAD, 255),
    kind=st.integers(0, 255),
    flags=st.integers(0, 2**16 - 1),
    call=words,
)


def decode_piece(frame: bytes, first: int, count: int) -> list[Row]:
    data = decode_bytes(frame, first, count)
    assert not any(data[at + ROW_SIZE - 4 : at + ROW_SIZE] != bytes(4) for at in range(0, len(data), ROW_SIZE))
    return list(decode_rows(memoryview(data)))


def without_contexts(rows: list[Row]) -> list[Row]:
    return [row._replace(context=NO_DIGEST) for row in rows]


def chain(count: int, first: int = 0) -> list[Row]:
    """The rows of entries one below the other, each with the call of the one before the last."""
    rows: list[Row] = []
    parent = ""
    for at in range(count):
        entry = Entry.seal("item", {"item": {"type": "x", "n": at}}, parent, f"2026-01-02T03:04:{at % 60:02}.5Z")
        above = ref_to(first + at - 1) if at else REF_ROOT
        own = ref_to(first + at)
        id_, content = (bytes.fromhex(name.removeprefix("sha256:")) for name in (entry.id, entry.content_hash))
        context, ts = at.to_bytes(32, "big"), ts_to_ns(entry.ts)
        rows.append(Row(id_, content, context, above, own, REF_ROOT, ts, Code.ITEM, 0, 0, 1000 + at // 3))
        parent = entry.id
    return rows


@given(st.lists(st.one_of(any_rows, specials), min_size=1, max_size=20), st.integers(0, 2**31))
@settings(max_examples=200, deadline=None)
def test_any_rows_come_out_as_they_went_in(rows: list[Row], first: int) -> None:
    try:
        frame = encode_piece(first, rows)
    except Corrupt:
        own = [ref_to(first + at) + 1 for at in range(len(rows))]  # a reference to the row behind: none is made so
        assert any({row.parent, row.head, row.target} & {after} for row, after in zip(rows, own, strict=True))
        return
    found = decode_piece(frame, first, len(rows))
    assert without_contexts(found) == without_contexts(rows)
    entries = [at for at, row in enumerate(rows) if row.code < RowCode.HEAD]
    for at in entries:
        kept = at == entries[-1] or rows[at].code == Code.COMPACTION
        assert found[at].context == (rows[at].context if kept else NO_DIGEST)


@given(st.lists(st.sampled_from([REF_ROOT, REF_BASE, REF_ELSEWHERE, 2, 3, 4, 5]), min_size=3, max_size=3))
def test_references_of_every_kind(refs: list[int]) -> None:
    [row] = chain(1, 3)
    row = row._replace(parent=refs[0], head=refs[1], target=refs[2])
    [found] = decode_piece(encode_piece(3, [row]), 3, 1)
    assert found == row


def test_a_chain_is_not_much_more_than_its_bodies_hashes() -> None:
    rows = chain(PIECE_ROWS, first=1024)
    frame = encode_piece(1024, rows)
    assert len(frame) < PIECE_ROWS * 38
    assert without_contexts(decode_piece(frame, 1024, PIECE_ROWS)) == without_contexts(rows)


def test_a_chain_across_1970_comes_out_as_it_went_in() -> None:
    rows = chain(8)
    for start in (-8, -(10**9) - 8, 10**9 - 8, -(2**63), 2**63 - 9):
        made: list[Row] = []
        for at, row in enumerate(rows):
            parent = made[-1].entry if made else b""
            envelope = put_together(row.content, parent, start + at, Code(row.code).name.lower().encode())
            made.append(row._replace(ts=start + at, entry=sha256(envelope).digest()))
        assert len(encode_piece(0, made)) < 8 * 60, "no id is kept that follows"
        assert without_contexts(decode_piece(encode_piece(0, made), 0, 8)) == without_contexts(made)


def test_a_front_is_that_of_its_log_alone() -> None:
    frames = [b"one", b"another"]
    data = encode_front(PIECE_ROWS + 1, frames, 7)
    front = decode_front(data, PIECE_ROWS + 1, 7)
    assert [(offset, size) for offset, size, _ in front.frames] == [(len(data), 3), (len(data) + 3, 7)]
    for rows, seed in ((PIECE_ROWS + 1, 8), (PIECE_ROWS + 2, 7)):
        with pytest.raises(Corrupt):
            decode_front(data, rows, seed)
    for at in range(len(data)):
        spoilt = bytearray(data)
        spoilt[at] ^= 1
        with pytest.raises(Corrupt):
            decode_front(bytes(spoilt), PIECE_ROWS + 1, 7)
    with pytest.raises(Corrupt):
        decode_front(data[:-1], PIECE_ROWS + 1, 7)
    assert front_size(0) < front_size(1) == front_size(PIECE_ROWS)


@given(st.binary(max_size=400), st.integers(1, 6))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_rows_or_corrupt(data: bytes, count: int) -> None:
    for frame in (data, compress(data)):
        with suppress(Corrupt):
            assert len(decode_piece(frame, 9, count)) == count


def test_every_flipped_byte_of_a_piece_is_rows_or_corrupt() -> None:
    frame = encode_piece(0, chain(20))
    for at in range(len(frame)):
        spoilt = bytearray(frame)
        spoilt[at] ^= 0x10
        with suppress(Corrupt):
            assert len(decode_piece(bytes(spoilt), 0, 20)) == 20


def same_either_way(data: bytes, first: int, count: int) -> bool:
    """Compare what both ways make of a piece's bytes; whether they are rows."""
    expected: list[Row] | None = None
    with suppress(Corrupt):
        expected = unpack_slowly(data, first, count)
    found: list[Row] | None = None
    with suppress(Corrupt):
        found = decode_piece(compress(data), first, count)
    assert found == expected
    return found is not None


@given(
    st.integers(0, 2**31),
    st.lists(st.one_of(any_rows, specials, st.sampled_from(chain(12, 7))), max_size=8),
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_columns_and_row_by_row_agree_on_damaged_pieces(
    first: int, others: list[Row], count: int, changes: list[tuple[int, int]]
) -> None:
    rows = [*chain(count, first), *others]
    try:
        data = bytearray(expand(encode_piece(first, rows)))
    except Corrupt:
        return
    assert same_either_way(bytes(data), first, len(rows))
    for at, value in changes:
        data[at % len(data)] = value
    same_either_way(bytes(data), first, len(rows))


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_columns_and_row_by_row_agree_on_any_bytes_of_the_right_size(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    kept = data.draw(st.lists(st.integers(0, 7), min_size=count, max_size=count))
    codes = data.draw(st.lists(st.sampled_from([*Code, *RowCode]), min_size=count, max_size=count))
    small = st.integers(0, 3)
    parents, heads, targets, backs = (data.draw(st.lists(small, min_size=count, max_size=count)) for _ in range(4))
    backs = [back if back < 3 else 65535 for back in backs]
    times = data.draw(st.lists(st.integers(0, 2**64 - 1), min_size=count, max_size=count))
    pieces = [bytes(kept), bytes(codes), bytes(count), bytes(2 * count)]
    for values, width in ((parents, 4), (heads, 4), (targets, 4), (times, 8), (backs, 2)):
        spelled = [value.to_bytes(width, "little") for value in values]
        pieces += [bytes(value[plane] for value in spelled) for plane in range(width)]
    size = 4 * backs.count(65535) + 32 * sum(each.bit_count() for each in kept)
    same_either_way(b"".join([*pieces, data.draw(st.binary(min_size=size, max_size=size))]), 40, count)
