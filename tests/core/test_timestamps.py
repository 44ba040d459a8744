"""Times (format.md §4): one spelling, nanoseconds, the whole calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.timestamps import canonical_ts, is_canonical_ts, ts_from_ns, ts_to_ns
from agentsession_cas.errors import BadTimestamp

FIRST = -62_167_219_200 * 10**9
LAST = 253_402_300_799 * 10**9 + 999_999_999


@pytest.mark.parametrize(
    ("written", "spelled"),
    [
        ("2026-09-28T10:00:00Z", "2026-09-28T10:00:00Z"),
        ("2026-09-28T10:00:00.5Z", "2026-09-28T10:00:00.5Z"),
        ("2026-09-28T10:00:00.123456789Z", "2026-09-28T10:00:00.123456789Z"),
        ("2026-09-28t10:00:00z", "2026-09-28T10:00:00Z"),
        ("2026-09-28 10:00:00Z", "2026-09-28T10:00:00Z"),
        ("2026-09-28T10:00:00.000Z", "2026-09-28T10:00:00Z"),
        ("2026-09-28T10:00:00.1200Z", "2026-09-28T10:00:00.12Z"),
        ("2026-09-28T10:00:00.1234567899Z", "2026-09-28T10:00:00.123456789Z"),
        ("2026-09-28T10:00:00.0000000009Z", "2026-09-28T10:00:00Z"),
        ("2026-09-28T10:00:00." + "9" * 5000 + "Z", "2026-09-28T10:00:00.999999999Z"),
        ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z"),
        ("2016-12-31T23:59:60.25Z", "2016-12-31T23:59:59.25Z"),
        ("2017-01-01T05:29:60+05:30", "2016-12-31T23:59:59Z"),
        ("2026-09-28T10:00:00+00:00", "2026-09-28T10:00:00Z"),
        ("2026-09-28T10:00:00-00:00", "2026-09-28T10:00:00Z"),
        ("2026-01-01T00:30:00.1+01:00", "2025-12-31T23:30:00.1Z"),
        ("2024-02-28T23:30:00-01:00", "2024-02-29T00:30:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ("0000-02-29T12:00:00Z", "0000-02-29T12:00:00Z"),
        ("0000-12-31T23:00:00-01:00", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z"),
    ],
)
def test_every_rfc_3339_time_has_one_spelling(written: str, spelled: str) -> None:
    assert canonical_ts(written) == spelled
    assert is_canonical_ts(spelled)
    assert is_canonical_ts(written) == (written == spelled)
    assert ts_from_ns(ts_to_ns(written)) == spelled


@pytest.mark.parametrize(
    "written",
    [
        "",
        "2026-09-28",
        "2026-09-28T10:00Z",
        "2026-09-28T10:00:00",
        "2026-09-28T10:00:00.Z",
        "2026-09-28T10:00:00,5Z",
        "2026-09-28T24:00:00Z",
        "2026-09-28T10:60:00Z",
        "2026-09-28T10:00:61Z",
        "2026-09-31T10:00:00Z",
        "2026-02-29T10:00:00Z",
        "1900-02-29T10:00:00Z",
        "2026-00-01T10:00:00Z",
        "2026-13-01T10:00:00Z",
        "2026-01-00T10:00:00Z",
        "26-01-01T10:00:00Z",
        "12026-01-01T10:00:00Z",
        "+2026-01-01T10:00:00Z",
        "2026-1-1T10:00:00Z",
        "2026-01-01T10:00:00+0100",
        "2026-01-01T10:00:00+24:00",
        "2026-01-01T10:00:00+01:60",
        "2026-01-01T10:00:00 Z",
        " 2026-01-01T10:00:00Z",
        "2026-01-01T10:00:00Z\n",
        "2026-01-01T10:00:00Z ",
        "２０２６-01-01T10:00:00Z",
        "2026-01-01T10:00:00.٣Z",
        "2026-01-01_10:00:00Z",
        "0000-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
        "\ud800",
        None,
        1,
        1.5,
        b"2026-01-01T10:00:00Z",
    ],
)
def test_anything_else_is_refused(written: Any) -> None:
    with pytest.raises(BadTimestamp):
        canonical_ts(written)
    if isinstance(written, str):
        assert not is_canonical_ts(written)


def test_known_instants() -> None:
    assert ts_to_ns("1970-01-01T00:00:00Z") == 0
    assert ts_to_ns("1969-12-31T23:59:59.999999999Z") == -1
    assert ts_to_ns("2026-09-28T10:00:00.000000001Z") == 1_790_589_600_000_000_001
    assert ts_to_ns("0000-01-01T00:00:00Z") == FIRST
    assert ts_to_ns("9999-12-31T23:59:59.999999999Z") == LAST
    assert ts_from_ns(2**63) == "2262-04-11T23:47:16.854775808Z"
    assert ts_from_ns(-(2**63) - 1) == "1677-09-21T00:12:43.145224191Z"


@pytest.mark.parametrize("ns", [FIRST - 1, LAST + 1, 10**30, -(10**30)])
def test_the_calendar_ends(ns: int) -> None:
    with pytest.raises(BadTimestamp):
        ts_from_ns(ns)


@given(st.integers(FIRST, LAST) | st.integers(FIRST, FIRST + 10**18) | st.integers(-(10**10), 10**10))
@settings(max_examples=400, deadline=None)
def test_nanoseconds_come_back(ns: int) -> None:
    text = ts_from_ns(ns)
    assert is_canonical_ts(text)
    assert ts_to_ns(text) == ns
    assert canonical_ts(text) == text


@given(st.integers(FIRST, LAST), st.integers(FIRST, LAST))
@settings(max_examples=200, deadline=None)
def test_seconds_sort_as_they_read(one: int, other: int) -> None:
    assert (one // 10**9 < other // 10**9) == (ts_from_ns(one)[:19] < ts_from_ns(other)[:19])


ZONES = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)


@given(st.datetimes(timezones=ZONES))
@settings(max_examples=300, deadline=None)
def test_an_aware_datetime_is_its_instant(moment: datetime) -> None:
    offset = moment.utcoffset()
    assert offset is not None
    since = (moment.replace(tzinfo=None) - datetime(1970, 1, 1) - offset) / timedelta(microseconds=1)
    if FIRST <= int(since) * 1000 <= LAST - 1000:
        ns = ts_to_ns(canonical_ts(moment))
        assert abs(ns - since * 1000) < 10**6
        if 1 < moment.year < 9999:
            utc = moment.astimezone(UTC)
            assert canonical_ts(moment)[:19] == utc.isoformat()[:19]
            assert ns % 10**9 == utc.microsecond * 1000


def test_the_ends_of_a_datetime() -> None:
    early = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert canonical_ts(early) == "0000-12-31T23:00:00Z"
    with pytest.raises(BadTimestamp):
        canonical_ts(datetime(9999, 12, 31, 23, 30, tzinfo=timezone(timedelta(hours=-1))))


def test_a_naive_datetime_is_refused() -> None:
    with pytest.raises(BadTimestamp):
        canonical_ts(datetime(2026, 1, 1))
