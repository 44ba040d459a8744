"""A packed log read by the sums of its frames gives the rows that reading row by row gives, or is Damaged as there."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.facts import Code
from agentsession_cas.core.framing import Generation
from agentsession_cas.core.packedrows import PIECE_ROWS
from agentsession_cas.core.rows import (
    REF_ROOT,
    ROW_SIZE,
    Row,
    decode_row,
    encode_row,
    log_seed,
    ref_to,
    seal_row,
    sealed_ok,
    whole_rows,
)
from agentsession_cas.core.timestamps import ts_to_ns
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import Damaged
from agentsession_cas.sessions.log import RowTable, open_log, open_rows
from agentsession_cas.sessions.packedlog import packed_rows
from agentsession_cas.testing.simfs import Sim

BIRTH = bytes(range(16))
SEED = log_seed(BIRTH, 1)
COUNTS = (1, 31, 32, 33, PIECE_ROWS - 1, PIECE_ROWS, PIECE_ROWS + 40, 2 * PIECE_ROWS + 33)


class Made:
    """A chain of rows whose last has its context hash."""

    def __init__(self, count: int) -> None:
        self.rows: list[Row] = []
        parent = ""
        for at in range(count):
            entry = Entry.seal("item", {"item": {"type": "x", "n": at}}, parent, f"2026-01-02T03:04:{at % 60:02}Z")
            id_, content = (bytes.fromhex(name.removeprefix("sha256:")) for name in (entry.id, entry.content_hash))
            above = ref_to(at - 1) if at else REF_ROOT
            ts = ts_to_ns(entry.ts)
            self.rows.append(Row(id_, content, bytes(32), above, ref_to(at), REF_ROOT, ts, Code.ITEM, 0, 0, 1 + at))
            parent = entry.id

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, number: int) -> Row:
        return self.rows[number]


CHAIN = Made(2 * PIECE_ROWS + 200)


def first_of(count: int) -> Made:
    made = Made(0)
    made.rows = CHAIN.rows[:count]
    return made


def put(host: Host, path: str, data: bytes) -> None:
    file = host.fs.create(path)
    file.pwrite(data, 0)
    file.close()


def row_by_row(host: Host, generation: Generation, tail: bytes) -> list[Row | None]:
    """What fsck reads: every row by its own checksum, all of it in one read and not by pieces."""
    log = open_log(host.fs, "/s", generation)
    whole = whole_rows(generation.base)
    data = log.pread(whole * ROW_SIZE, 0) if log is not None else b""
    settled = generation.packed == generation.base
    data += log.pread((generation.base - whole) * ROW_SIZE, whole * ROW_SIZE) if log is not None and settled else tail
    if log is not None:
        log.close()
    places = [(at * ROW_SIZE, at) for at in range(generation.base)]
    return [decode_row(data, at) if sealed_ok(data, at, number, SEED) else None for at, number in places]


def by_pieces(table: RowTable, count: int) -> list[Row | None]:
    found: list[Row | None] = []
    for number in range(count):
        try:
            found.append(table.row(number))
        except Damaged:
            found.append(None)
    return found


@given(st.sampled_from(COUNTS), st.integers(0, 150), st.none() | st.tuples(st.integers(0), st.integers(1, 255)))
@settings(max_examples=40, deadline=None)
def test_by_pieces_and_row_by_row_agree(packed: int, behind: int, change: tuple[int, int] | None) -> None:
    host = Sim().process("reader")
    base, start = packed + behind, whole_rows(packed)
    bodies = [seal_row(encode_row(row), number, SEED) for number, row in enumerate(CHAIN.rows[:base])]
    generation = Generation(bytes(8), BIRTH, 1, base, packed=packed)
    data = bytearray(packed_rows(generation, first_of(packed), None))
    if change is not None:
        data[change[0] % len(data)] ^= change[1]
    host.fs.mkdir("/s")
    put(host, "/s/log-1.packed", bytes(data))
    put(host, "/s/log-1", b"".join(bodies[start : whole_rows(base)]))
    tail = b"".join(bodies[whole_rows(base) :]) if behind else b""
    try:
        expected = row_by_row(host, generation, tail)
    except Damaged:
        assert change is not None  # its front
        return
    assert change is not None or None not in expected
    assert change is None or None in expected or behind  # rows that are written out again are read from there
    log = open_log(host.fs, "/s", generation)
    try:
        table = open_rows(generation, tail, log)
    except Damaged:
        assert None in expected[whole_rows(base) :]
        return
    found = by_pieces(table, base)
    table.close()
    spoilt = {number // PIECE_ROWS for number, row in enumerate(expected[: whole_rows(base)]) if row is None}
    for number, row in enumerate(expected):
        bad = number < whole_rows(base) and number // PIECE_ROWS in spoilt
        assert found[number] == (None if bad else row), number
        assert row is None or row._replace(context=bytes(32)) == CHAIN.rows[number]
