"""Log rows: what goes in comes out, a row is itself only in its log and at its place, no bytes surprise the decoder."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsession_cas.core.facts import Code, Flag, Kind
from agentsession_cas.core.rows import (
    BLOCK_SIZE,
    NO_DIGEST,
    REF_BASE,
    REF_ELSEWHERE,
    REF_ROOT,
    ROW_SIZE,
    ROWS_PER_BLOCK,
    Newest,
    Row,
    RowCode,
    decode_row,
    encode_row,
    log_seed,
    ref_to,
    row_of_ref,
    seal_row,
    sealed_ok,
    whole_rows,
)
from agentsession_cas.errors import Corrupt

digests = st.binary(min_size=32, max_size=32)
words = st.integers(0, 2**32 - 1)
rows = st.builds(
    Row,
    entry=digests,
    content=digests,
    context=digests,
    parent=words,
    head=words,
    target=words,
    ts=st.integers(-(2**63), 2**63 - 1),
    code=st.integers(0, 255),
    kind=st.integers(0, 255),
    flags=st.integers(0, 2**16 - 1),
    call=words,
)
births = st.binary(min_size=16, max_size=16)
numbers = st.integers(0, 2**64 - 1)


def plain(code: int, *, kind: int = 0, flags: int = 0) -> Row:
    """A row of a code, all else zero."""
    return Row(NO_DIGEST, NO_DIGEST, NO_DIGEST, 0, 0, 0, 0, code, kind, flags, 0)


def test_a_row_is_128_bytes_and_none_crosses_a_block() -> None:
    body = encode_row(plain(Code.ITEM))
    assert (len(body), len(seal_row(body, 0, 0))) == (124, 128)
    assert ROW_SIZE * ROWS_PER_BLOCK == BLOCK_SIZE


@given(rows, st.binary(max_size=40), st.binary(max_size=40))
def test_a_row_comes_back_from_anywhere_in_a_buffer(row: Row, before: bytes, behind: bytes) -> None:
    assert decode_row(before + encode_row(row) + behind, len(before)) == row


@given(rows, births, words, numbers)
def test_a_sealed_row_holds_its_row_and_proves_itself(row: Row, birth: bytes, log: int, number: int) -> None:
    sealed = seal_row(encode_row(row), number, log_seed(birth, log))
    assert decode_row(sealed) == row
    assert sealed_ok(b"xyz" + sealed, 3, number, log_seed(birth, log))


@given(rows, births, births, words, words, numbers, numbers)
def test_a_row_of_another_log_or_place_is_not_taken_for_this_one(
    row: Row, birth: bytes, other_birth: bytes, log: int, other_log: int, number: int, other: int
) -> None:
    here, there = (log_seed(birth, log), number), (log_seed(other_birth, other_log), other)
    sealed = seal_row(encode_row(row), number, here[0])
    same = (birth, log, number) == (other_birth, other_log, other)
    # a checksum of 32 bits: two of them may be equal by chance, but not in the few hundred that are tried here
    assert sealed_ok(sealed, 0, there[1], there[0]) == same


@given(rows, st.integers(0, ROW_SIZE - 1), st.integers(1, 255))
def test_a_flipped_byte_breaks_the_seal(row: Row, at: int, mask: int) -> None:
    sealed = bytearray(seal_row(encode_row(row), 7, 9))
    sealed[at] ^= mask
    assert not sealed_ok(bytes(sealed), 0, 7, 9)


@given(st.binary(max_size=300), st.integers(0, 400))
def test_any_bytes_are_a_row_or_corrupt(data: bytes, offset: int) -> None:
    try:
        row = decode_row(data, offset)
    except Corrupt:
        assert offset + 124 > len(data)
    else:
        assert encode_row(row) == data[offset : offset + 124]


@given(st.binary(max_size=300), st.integers(0, 400), numbers)
def test_any_bytes_are_sealed_or_not(data: bytes, offset: int, number: int) -> None:
    sealed_ok(data, offset, number, 0)


def test_a_row_cut_short_says_where() -> None:
    with pytest.raises(Corrupt, match="offset 5"):
        decode_row(bytes(100), 5)


def test_references_name_the_root_the_base_and_rows() -> None:
    assert [row_of_ref(ref) for ref in (REF_ROOT, REF_BASE)] == [-1, -1]
    assert all(row_of_ref(ref_to(number)) == number for number in (0, 1, 31, 10**6))
    assert ref_to(2**31) < REF_ELSEWHERE


@pytest.mark.parametrize(("count", "whole"), [(0, 0), (31, 0), (32, 32), (33, 32), (63, 32), (64, 64)])
def test_whole_rows(count: int, whole: int) -> None:
    assert whole_rows(count) == whole


def test_newest_keeps_what_listings_ask_for() -> None:
    steps = [
        (plain(Code.ITEM, flags=int(Flag.REDACTED)), Newest(flags=int(Flag.REDACTED))),
        (plain(Code.INFO), Newest(flags=int(Flag.REDACTED))),
        (plain(Code.INFO, flags=int(Flag.NAMED)), Newest(named=4, flags=int(Flag.REDACTED | Flag.NAMED))),
        (plain(RowCode.MARK, kind=2), Newest(5, 4, flags=int(Flag.REDACTED | Flag.NAMED))),
        (plain(Code.LINK, kind=int(Kind.PEER)), Newest(5, 4, flags=int(Flag.REDACTED | Flag.NAMED))),
        (plain(Code.LINK, kind=int(Kind.CONTINUED_IN)), Newest(5, 4, 7, int(Flag.REDACTED | Flag.NAMED))),
        (plain(Code.INFO, flags=int(Flag.NAMED)), Newest(5, 8, 7, int(Flag.REDACTED | Flag.NAMED))),
        (plain(RowCode.HEAD), Newest(9, 8, 7, int(Flag.REDACTED | Flag.NAMED))),
    ]
    newest = Newest()
    for number, (row, wanted) in enumerate(steps):
        newest = newest.with_row(number, row)
        assert newest == wanted


@given(st.lists(rows, max_size=12))
def test_newest_only_ever_grows(added: list[Row]) -> None:
    seen = [Newest()]
    for number, row in enumerate(added):
        seen.append(seen[-1].with_row(number, row))
    for before, after in pairwise(seen):
        assert all(new >= old for old, new in zip(before[:3], after[:3], strict=True))
        assert before.flags & ~after.flags == 0
