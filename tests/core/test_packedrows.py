"""Packed rows: what goes in comes out but for context hashes; ids are made anew; no bytes surprise the decoder."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.facts import Code
from agentsession_cas.core.packedrows import (
    PIECE_ROWS,
    decode_front,
    decode_piece,
    encode_front,
    encode_piece,
    front_size,
)
from agentsession_cas.core.rows import NO_DIGEST, REF_BASE, REF_ELSEWHERE, REF_ROOT, Row, RowCode, ref_to
from agentsession_cas.core.timestamps import ts_to_ns
from agentsession_cas.core.zframes import compress
from agentsession_cas.errors import Corrupt

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
