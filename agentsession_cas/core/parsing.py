"""Strict parsing of JSON from outside (format.md §4, the I-JSON test), and quick decoding of bytes already verified.

The quick way of :func:`parse` is to decode with orjson and to prove, from what orjson writes for the value it gave,
that nothing was lost on the way; what it cannot prove is read again by the scanner, which accepts it or names the
place. So what is accepted never depends on the way taken.
"""

from __future__ import annotations

import math
from typing import Any, Final

import orjson

from agentsession_cas.core.canonical import Json
from agentsession_cas.core.numbers import EXACT_MAX, integer_fits, read_number
from agentsession_cas.core.scanner import BAD_BYTES, SURROGATE, Scanner
from agentsession_cas.errors import LimitExceeded

__all__ = ["LINE_MAX", "Json", "parse", "parse_trusted"]

LINE_MAX: Final = 256 * 1024 * 1024
"""The most bytes a line may have (format.md §4)."""


def parse(data: bytes) -> Json:
    """The value of one JSON document, in any spelling.

    A number written as an integer comes back as an ``int``, any other as a ``float``. Raises BadJSON for bytes that are
    not UTF-8, are not JSON or fail the I-JSON test, LimitExceeded past 256 levels or :data:`LINE_MAX` bytes; ``where``
    is the RFC 6901 pointer of the place, the message has its byte offset.
    """
    if len(data) > LINE_MAX:
        raise LimitExceeded(f"{len(data)} bytes, more than the {LINE_MAX} of a line")
    try:
        value = orjson.loads(data)
        # TypeError: past 254 levels, or a whole number past 2^53.
        written = orjson.dumps(value, option=orjson.OPT_STRICT_INTEGER)
        if written == data or _is_faithful(data, value, written):
            return value
    except (orjson.JSONDecodeError, TypeError, RecursionError):
        pass
    return _Strict(data).scan()


def parse_trusted(data: bytes) -> Json:
    """The value of canonical bytes whose hash was verified; checks nothing. Raises BadJSON if they are no JSON at all.

    A whole number past 2^64 comes back as the ``float`` it stands for.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _Strict(data).scan()


def _is_faithful(data: bytes, value: Json, written: bytes) -> bool:
    """Whether orjson lost nothing of ``data``: no repeated member, no whole number rounded.

    A member that was dropped takes its colon with it, and nothing but an escaped colon adds one. A whole number that
    was rounded gave a float of at least 2^53.
    """
    if data.count(b":") != written.count(b":") or b"\\u003a" in data or b"\\u003A" in data:
        return False
    return not _has_large_float((value,))


def _has_large_float(values: Any) -> bool:
    for value in values:
        kind = type(value)
        if kind is dict:
            if _has_large_float(value.values()):
                return True
        elif kind is list:
            if _has_large_float(value):
                return True
        elif kind is float and not -EXACT_MAX < value < EXACT_MAX:
            return True
    return False


class _Strict(Scanner):
    """Refuses every value that fails the I-JSON test."""

    def string(self, source: str, value: str) -> str:
        if not source.isascii() and BAD_BYTES.search(source):
            self.fail("a string is not UTF-8")
        if not value.isascii() and SURROGATE.search(value):
            self.fail("a string holds a lone surrogate")
        return value

    def number(self, literal: str) -> int | float:
        number = read_number(literal)
        if math.isinf(number):
            self.fail("a number that is not finite")
        if type(number) is int and not integer_fits(number):
            self.fail("a whole number that is no binary64 value")
        return number
