"""Times as the format writes them (format.md §4): one spelling, to the nanosecond.

Owns the spelling of ``ts`` and the integer nanoseconds since 1970 it stands for. Python's ``datetime`` has microseconds
only, so a time is carried as its string or as an integer of any size, for the years 0000 to 9999. Reads no clock.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final

from agentsession_cas.errors import BadTimestamp

__all__ = ["canonical_ts", "is_canonical_ts", "ts_from_ns", "ts_to_ns"]

_CANONICAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{0,8}[1-9])?Z")
_RFC_3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]|60)(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
_SECOND: Final = 1_000_000_000
_DAY_SECONDS: Final = 86_400
_EPOCH: Final = date(1970, 1, 1).toordinal()
_LAST_DAY: Final = date.max.toordinal() - _EPOCH
# After these many days the calendar repeats: ``date`` has no year 0, and the year 400 is its like.
_CYCLE_DAYS: Final = 146_097
_FIRST_DAY: Final = date(400, 1, 1).toordinal() - _CYCLE_DAYS - _EPOCH


def is_canonical_ts(text: str) -> bool:
    """Whether ``text`` is a time in the one spelling an entry's ``ts`` may have (format.md §4)."""
    found = _CANONICAL.fullmatch(text)
    return found is not None and _day_number(text[:10]) is not None


def canonical_ts(time: str | datetime) -> str:
    """An RFC 3339 string or an aware ``datetime`` in the one spelling of ``ts``.

    The fraction is cut to nine digits and a leap second written as second 59 (format.md §4). A space may stand for the
    T (RFC 3339 §5.6). Raises BadTimestamp for another string, a ``datetime`` without a zone, or a year past 0000–9999.
    """
    if isinstance(time, datetime):
        return ts_from_ns(_datetime_ns(time))
    if isinstance(time, str) and is_canonical_ts(time):
        return time
    return ts_from_ns(ts_to_ns(time))


def ts_to_ns(text: str) -> int:
    """Nanoseconds since 1970 of an RFC 3339 time, digits past the ninth cut. Raises BadTimestamp for anything else."""
    found = _RFC_3339.fullmatch(text) if isinstance(text, str) else None
    day = _day_number(found[1]) if found else None
    if found is None or day is None:
        raise BadTimestamp(f"{text!r:.80} is no RFC 3339 time", next_step="give one like 2026-01-31T12:00:00Z")
    _, hour, minute, second, fraction, sign, zone_hour, zone_minute = found.groups()
    seconds = day * _DAY_SECONDS + int(hour) * 3600 + int(minute) * 60 + min(int(second), 59)
    if sign:
        offset = int(zone_hour) * 3600 + int(zone_minute) * 60
        seconds += offset if sign == "-" else -offset
    return seconds * _SECOND + (int(fraction[:9].ljust(9, "0")) if fraction else 0)


def ts_from_ns(ns: int) -> str:
    """The one spelling of a time given in nanoseconds since 1970. Raises BadTimestamp outside the years 0000–9999."""
    seconds, fraction = divmod(ns, _SECOND)
    text = "%s.%09d" % (_second_text(seconds), fraction)  # noqa: UP031 - an append's clock: quicker
    if fraction % 10:
        return text + "Z"
    return text.rstrip("0").removesuffix(".") + "Z"


@lru_cache(maxsize=256)
def _second_text(seconds: int) -> str:
    day, second = divmod(seconds, _DAY_SECONDS)
    if not _FIRST_DAY <= day <= _LAST_DAY:
        raise BadTimestamp("a time outside the years 0000 to 9999", where=f"{seconds} s since 1970")
    minute, second = divmod(second, 60)
    hour, minute = divmod(minute, 60)
    return f"{_date_text(day)}T{hour:02}:{minute:02}:{second:02}"


def _datetime_ns(time: datetime) -> int:
    offset = time.utcoffset()
    if offset is None:
        raise BadTimestamp(f"{time.isoformat()} has no time zone", next_step="give an aware datetime")
    # Not astimezone(): near the ends of the calendar it overflows.
    since = time.replace(tzinfo=None) - datetime(1970, 1, 1) - offset
    return since // timedelta(microseconds=1) * 1000


@lru_cache(maxsize=4096)
def _day_number(text: str) -> int | None:
    """The days since 1970 of a ``YYYY-MM-DD``; None when the calendar has no such day."""
    year = int(text[:4])
    try:
        ordinal = date(year or 400, int(text[5:7]), int(text[8:])).toordinal()
    except ValueError:
        return None
    return ordinal - _EPOCH if year else ordinal - _CYCLE_DAYS - _EPOCH


@lru_cache(maxsize=4096)
def _date_text(day: int) -> str:
    ordinal = day + _EPOCH
    if ordinal > 0:
        return date.fromordinal(ordinal).isoformat()
    return "0000" + date.fromordinal(ordinal + _CYCLE_DAYS).isoformat()[4:]
