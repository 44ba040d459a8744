"""Messages as bytes whose hash says whether two batches are the same (history.md H1).

Owns that encoding: canonical JSON, save that a number keeps the spelling it came in, so that 1, 1.0 and 1e0 differ.
A number read from text here carries its spelling; any other is spelled as Python does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, Self

from agentsession_cas.core.canonical import LEVELS_MAX, canonical, utf16_key
from agentsession_cas.errors import BadJSON, LimitExceeded

__all__ = ["decode", "encode"]

_NUMBER_CHARS_MAX: Final = 4000
"""Digits of a number that is read; Python's own limit is a little higher."""


class _Int(int):
    """An integer with its spelling."""

    spelling: str

    @classmethod
    def of(cls, text: str) -> Self:
        made = cls(_checked(text))
        made.spelling = text
        return made


class _Float(float):
    """A number with its spelling."""

    spelling: str

    @classmethod
    def of(cls, text: str) -> Self:
        made = cls(_checked(text))
        if math.isinf(made):
            raise BadJSON(f"{text:.40} is larger than a number can be")
        made.spelling = text
        return made


def _checked(text: str) -> str:
    if len(text) > _NUMBER_CHARS_MAX:
        raise LimitExceeded(f"a number has at most {_NUMBER_CHARS_MAX} digits")
    return text


def _no_constant(text: str) -> Any:
    raise BadJSON(f"{text} is no JSON")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise BadJSON("an object has a member twice")
    return members


def decode(text: str | bytes) -> Any:
    """The value of a JSON text, each number with its spelling. Raises BadJSON, LimitExceeded."""
    try:
        source = text.decode() if isinstance(text, bytes) else text
        return json.loads(
            source, parse_int=_Int.of, parse_float=_Float.of, parse_constant=_no_constant, object_pairs_hook=_members
        )
    except RecursionError:
        raise LimitExceeded(f"nesting is at most {LEVELS_MAX} levels deep") from None
    except ValueError as error:
        raise BadJSON(f"this is no JSON: {error}") from None


def encode(value: Any, levels: int = LEVELS_MAX) -> bytes:
    """A value's encoding. Raises BadJSON for what JSON cannot carry, LimitExceeded for nesting that is too deep."""
    if levels < 0:
        raise LimitExceeded(f"nesting is at most {LEVELS_MAX} levels deep")
    if isinstance(value, Mapping):
        names = sorted(value, key=_sortable)
        return b"{" + b",".join(canonical(name) + b":" + encode(value[name], levels - 1) for name in names) + b"}"
    if isinstance(value, (list, tuple)):
        return b"[" + b",".join(encode(each, levels - 1) for each in value) + b"]"
    if isinstance(value, (_Int, _Float)):
        return value.spelling.encode()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise BadJSON(f"{value!r} is no JSON")
        return json.dumps(value).encode()
    return canonical(value)


def _sortable(name: object) -> bytes:
    if not isinstance(name, str):
        raise BadJSON(f"the name of a member is a text, not {name!r:.40}")
    return utf16_key(name)
