"""Numbers: how JSON writes one, and which whole numbers pass the I-JSON test (format.md §4).

Owns the ECMAScript spelling of a binary64 and the test by value, in exact arithmetic. Every function is fast whatever
it is given: a literal of a million digits or with an exponent of a billion never becomes an integer of that size.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

__all__ = ["EXACT_MAX", "integer_fits", "integer_text", "number_text", "read_number"]

EXACT_MAX: Final = 2**53
"""Every integer of at most this size is a binary64."""


def number_text(number: float) -> str:
    """The spelling ECMAScript gives a finite binary64, which is the one RFC 8785 writes."""
    if number == 0:
        return "0"
    sign = "-" if number < 0 else ""
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The value is 0.<digits> * 10**point.
    point = len(digits) - len(fraction) + int(exponent or "0")
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        return sign + digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    power = point - 1
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'+' if power > 0 else '-'}{abs(power)}"


def integer_fits(number: int) -> bool:
    """Whether a whole number passes the I-JSON test: it is a binary64, or what JCS writes for the nearest one."""
    if -EXACT_MAX <= number <= EXACT_MAX:
        return True
    try:
        nearest = float(number)
    except OverflowError:
        return False
    return int(nearest) == number or int(Decimal(number_text(nearest))) == number


def integer_text(number: int) -> str:
    """The canonical spelling of a whole number that :func:`integer_fits`."""
    if -EXACT_MAX <= number <= EXACT_MAX:
        return str(number)
    return number_text(float(number))


def read_number(literal: str) -> int | float:
    """The value of a JSON number literal.

    An integer literal gives an ``int``, any other a ``float``; but a literal that is not finite as a binary64 gives an
    infinity, and a whole number in any spelling that fails the test gives its exact value as an ``int``, which
    :func:`integer_fits` then refuses.
    """
    nearest = float(literal)
    if math.isinf(nearest):
        return nearest
    if -EXACT_MAX < nearest < EXACT_MAX:
        # Whole numbers here are binary64 values; others pass as they are.
        return int(literal) if literal.removeprefix("-").isdigit() else nearest
    exact = _whole_value(literal)
    if exact is None or (not literal.removeprefix("-").isdigit() and integer_fits(exact)):
        return nearest
    return exact


def _whole_value(literal: str) -> int | None:
    """The exact value of a literal of a finite size past 2^53, or None when it is no whole number."""
    mantissa, _, exponent = literal.lower().partition("e")
    whole, _, fraction = mantissa.removeprefix("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    # Leading zeros count towards the interpreter's limit on digits.
    shift = int(exponent.lstrip("+-0") or "0")
    power = (-shift if exponent.startswith("-") else shift) - len(fraction) + len(digits) - len(significant)
    if power < 0:
        return None
    # Finite, so at most 309 digits in all.
    value = int(significant + "0" * power)
    return -value if literal.startswith("-") else value
