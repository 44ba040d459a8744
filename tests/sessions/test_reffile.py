"""Lines of refs and their logs: what was written reads back, and whatever else is there is Corrupt, never believed."""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import RefTarget
from agentsession_cas.errors import Corrupt
from agentsession_cas.sessions.reffile import (
    Held,
    LogRecord,
    RefUpdate,
    decode_record,
    decode_ref,
    encode_record,
    encode_ref,
)

ENTRY = "sha256:" + "ab" * 32
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
TARGET = st.builds(RefTarget, TEXT.filter(bool), st.sampled_from(["", ENTRY]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
GOOD: dict[str, dict[str, Any]] = {
    "ref": {"name": "a", "session": "s", "birth": "00" * 16, "number": 3, "entry": ENTRY},
    "record": {"number": 1, "old": None, "new": {"session": "s"}, "time": "2026-01-01T00:00:00Z", "reason": "r"},
}


def sealed(value: object) -> bytes:
    line = orjson.dumps(value)
    return b"%s\t%08x" % (line, zlib.crc32(line))


@given(TARGET, st.binary(min_size=16, max_size=16), st.integers(1, 1 << 40))
@settings(deadline=None)
def test_a_ref_reads_back(target: RefTarget, birth: bytes, number: int) -> None:
    held = Held(target, birth, number)
    data = encode_ref("a/b", held)
    assert decode_ref("a/b", data) == held
    assert data.count(b"\n") == 1
    with pytest.raises(Corrupt):
        decode_ref("a/c", data)


@given(st.none() | TARGET, st.none() | TARGET, TEXT)
@settings(deadline=None)
def test_a_record_reads_back(old: RefTarget | None, new: RefTarget | None, reason: str) -> None:
    record = LogRecord(7, RefUpdate("a", old, new, "2026-01-01T00:00:00.5Z", reason))
    line = encode_record(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_record("a", line[:-1]) == record


@given(st.binary(max_size=80))
@settings(deadline=None)
def test_any_bytes(data: bytes) -> None:
    for line in (data, b"%s\t%08x" % (data, zlib.crc32(data))):
        with pytest.raises(Corrupt):
            decode_record("a", line)
        with pytest.raises(Corrupt):
            decode_ref("a", line + b"\n")


@given(JSON, st.sampled_from(["", *GOOD["ref"], *GOOD["record"]]))
@settings(max_examples=300, deadline=None)
def test_any_json_under_a_right_checksum(value: object, member: str) -> None:
    """In the place of the whole, or of one member."""
    for good in GOOD.values():
        line = sealed({**good, member: value} if member else value)
        with suppress(Corrupt):
            assert isinstance(decode_record("a", line).update.reason, str)
        with suppress(Corrupt):
            held = decode_ref("a", line + b"\n")
            assert (len(held.birth), held.number >= 1, bool(held.target.session)) == (16, True, True)


@pytest.mark.parametrize("kind", GOOD)
def test_every_member_is_needed(kind: str) -> None:
    def read(members: dict[str, Any]) -> object:
        line = sealed(members)
        return decode_ref("a", line + b"\n") if kind == "ref" else decode_record("a", line)

    read(GOOD[kind])
    for member in GOOD[kind].keys() - {"entry"}:
        with pytest.raises(Corrupt):
            read({name: value for name, value in GOOD[kind].items() if name != member})
        wrongs: tuple[Any, ...] = (5.5, [], {"session": ""}, {"session": "s", "entry": "x"}, True)
        for wrong in wrongs:
            with pytest.raises(Corrupt):
                read({**GOOD[kind], member: wrong})


def test_more_than_one_line_is_no_ref() -> None:
    data = encode_ref("a", Held(RefTarget("s"), bytes(16), 1))
    for wrong in (data * 2, data[:-1], data + b"\n", b"\n" + data):
        with pytest.raises(Corrupt):
            decode_ref("a", wrong)
