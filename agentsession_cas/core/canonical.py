"""Canonical JSON (format.md §4, RFC 8785): the bytes every hash is taken over.

Owns how a decoded value becomes its one spelling, and the pointer that names a place in a value. A value is made of
``dict``, ``list``, ``str``, ``int``, ``float``, ``bool`` and ``None`` exactly: a subclass, a tuple or a date is
refused, never guessed at. Equal to ``rfc8785`` wherever that accepts; whole numbers past 2^53 that pass the I-JSON
test, which it refuses, are written as the binary64 they stand for.

The fast path is orjson, which differs from RFC 8785 in some floats, in NaN, in the order of member names beyond U+FFFF
and in the types it takes. A walk over the types in front of it, and a look at the bytes it gives, find these; they go
the slow way, a copy with those numbers written out and the members in order. The depth of a value, and of the caller's
own stack, makes no difference to the answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import orjson

from agentsession_cas.core.numbers import integer_fits, integer_text, number_text
from agentsession_cas.errors import BadJSON, LimitExceeded

__all__ = ["LEVELS_MAX", "Json", "canonical", "check", "fitted", "pointer_of", "utf16_key"]

Json: TypeAlias = Any
"""A decoded JSON value: ``dict``, ``list``, ``str``, ``int``, ``float``, ``bool`` or ``None``."""

LEVELS_MAX: Final = 256
"""How many levels of objects and arrays a value may have, its own included (format.md §4)."""

_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
_PIECE_LEVELS = 200  # orjson writes 254 levels at once
_LOOK_LEVELS = 4
_WIDE = 10_000  # a level with more containers is worth asking whether it is a cycle
_PLAIN = frozenset({str, int, bool, type(None)})
_CONTAINERS = frozenset({dict, list})
_SURROGATE = re.compile("[\ud800-\udfff]")
_ASTRAL_LEADS = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")


def canonical(value: Json) -> bytes:
    """The RFC 8785 bytes of a value (format.md §4).

    Raises BadJSON for what JSON cannot carry (a number that fails the I-JSON test, a lone surrogate, a type that is not
    JSON's), LimitExceeded past :data:`LEVELS_MAX` levels; ``where`` is the pointer of the place.
    """
    try:
        odd: list[str] = []
        if type(value) is not dict:
            data = orjson.dumps(value, option=_SORTED) if _is_plain((value,)) else _spell(value)
        else:
            for name, member in value.items():
                kind = type(member)
                if kind is str or _is_plain(
                    member.values() if kind is dict else member if kind is list else (member,)
                ):
                    continue
                odd.append(name)
            data = orjson.dumps(_with_spelled(value, odd) if odd else value, option=_SORTED)
        if data.isascii() or not _may_misorder(data) or not _has_astral_name(value):
            return data
    except (TypeError, RecursionError):
        # Something that cannot be written, or a value of more levels or larger whole numbers than orjson takes.
        check(value)
    return _rewrite(value)


def fitted(data: bytes) -> bytes:
    """The same bytes in room of their own size: orjson leaves eight times as much, which tells where many are kept."""
    return memoryview(data).tobytes()


def check(value: Json) -> None:
    """Raise what :func:`canonical` raises, for the first place that cannot be written; return when there is none."""
    names: list[str | int] = []
    levels: list[Iterator[tuple[Any, Any]]] = []
    item = value
    while True:
        kind = type(item)
        if kind is dict or kind is list:
            if len(levels) == LEVELS_MAX:
                raise LimitExceeded(f"nesting over {LEVELS_MAX} levels", where=pointer_of(names))
            if kind is dict:
                _check_names(item, names)
            levels.append(iter(item.items() if kind is dict else enumerate(item)))
            names.append("")
        else:
            _check_scalar(item, names)
        while (step := next(levels[-1], None) if levels else None) is None:
            if not levels:
                return
            levels.pop()
            names.pop()
        names[-1], item = step


def pointer_of(names: Sequence[str | int]) -> str:
    """The RFC 6901 pointer made of member names and indexes; a lone surrogate in a name is spelled ``\\udxxx``."""
    return "".join("/" + _printable(str(name)).replace("~", "~0").replace("/", "~1") for name in names)


def utf16_key(text: str) -> bytes:
    """What to sort by for the order of UTF-16 code units."""
    return text.encode("utf-16-be", "surrogatepass")


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _is_plain(values: Iterable[Any]) -> bool:
    """Whether orjson writes all of these as RFC 8785 does, names beyond U+FFFF and whole numbers past 2^53 aside."""
    for value in values:
        kind = type(value)
        if kind is str:
            continue
        if kind is dict:
            if not _is_plain(value.values()):
                return False
        elif kind is list:
            if not _is_plain(value):
                return False
        elif kind is float:
            if not 1e-5 <= abs(value) < 1e16 or value.is_integer():
                return False
        elif kind not in _PLAIN:
            return False
    return True


def _with_spelled(members: dict[str, Any], odd: list[str]) -> dict[str, Any]:
    """A copy in which the odd members are written out. TypeError for what cannot be written."""
    copy = members.copy()
    for name in odd:
        value = members[name]
        copy[name] = _float(value) if type(value) is float else orjson.Fragment(_spell(value))
    return copy


def _may_misorder(data: bytes) -> bool:
    """Whether some member name may sort before another by UTF-16 and after it by code point.

    That takes a character beyond U+FFFF and one from U+E000 to U+FFFF, whose UTF-8 starts with 0xEE or 0xEF.
    """
    return (b"\xef" in data or b"\xee" in data) and any(lead in data for lead in _ASTRAL_LEADS)


def _has_astral_name(value: Json) -> bool:
    """Whether some member name, at any depth, has a character beyond U+FFFF."""
    containers = [value]
    for node in containers:
        if type(node) is dict:
            names = "".join(node)
            if not names.isascii() and max(names) > "\uffff":
                return True
        if type(node) in _CONTAINERS:
            containers.extend(node.values() if type(node) is dict else node)
    return False


def _spell(value: Json) -> bytes:
    """The sorted bytes by way of a copy of what holds a number that orjson spells otherwise, the rest left to orjson.

    TypeError for what it cannot write.
    """
    holder = [value]
    level: list[Any] = [holder]
    for depth in range(LEVELS_MAX):
        below: list[Any] = []
        for node in level:
            for key, item in list(enumerate(node) if type(node) is list else node.items()):
                kind = type(item)
                if kind in _CONTAINERS:
                    # Most of a body is plain, but to look again at every level costs more than to copy.
                    if not 0 < depth <= _LOOK_LEVELS or not _is_plain((item,)):
                        node[key] = item = item.copy()
                        below.append(item)
                elif kind is float:
                    node[key] = _float(item)
                elif kind not in _PLAIN:
                    raise TypeError(f"{kind.__name__} is no JSON type")
        if not below:
            return orjson.dumps(holder, option=_SORTED)[1:-1]
        if len(below) > _WIDE:
            check(value)
        level = below
    raise TypeError("too many levels")


def _rewrite(value: Json) -> bytes:
    """The canonical bytes of a value that passed :func:`check`, however deep: numbers spelled out, names in order."""
    holder = [value]
    level: list[Any] = [holder]
    depth = 0
    while level:
        below: list[Any] = []
        for node in level:
            for key, item in list(enumerate(node) if type(node) is list else node.items()):
                kind = type(item)
                if kind is int:
                    node[key] = orjson.Fragment(integer_text(item))
                elif kind is float:
                    node[key] = _float(item)
                elif kind not in _CONTAINERS:
                    continue
                elif depth == _PIECE_LEVELS:
                    node[key] = orjson.Fragment(_rewrite(item))
                else:
                    node[key] = item = _ordered(item) if kind is dict else item.copy()
                    below.append(item)
        level = below
        depth += 1
    return orjson.dumps(holder)[1:-1]


def _ordered(members: dict[str, Any]) -> dict[str, Any]:
    return {name: members[name] for name in sorted(members, key=utf16_key)}


def _float(number: float) -> float | orjson.Fragment:
    if 1e-5 <= abs(number) < 1e16 and not number.is_integer():
        return number
    if not math.isfinite(number):
        raise TypeError("a number that is not finite")
    return orjson.Fragment(number_text(number))


def _check_names(members: dict[Any, Any], names: list[str | int]) -> None:
    for name in members:
        if type(name) is not str:
            raise BadJSON(f"a member name is a {type(name).__name__}, not a str", where=pointer_of(names))
        if not name.isascii() and _SURROGATE.search(name):
            raise BadJSON("a member name holds a lone surrogate", where=pointer_of([*names, name]))


def _check_scalar(item: Json, names: list[str | int]) -> None:
    kind = type(item)
    if kind is str:
        if not item.isascii() and _SURROGATE.search(item):
            raise BadJSON("a string holds a lone surrogate", where=pointer_of(names))
    elif kind is float:
        if not math.isfinite(item):
            raise BadJSON(f"{item} is no JSON number", where=pointer_of(names))
    elif kind is int:
        if not integer_fits(item):
            raise BadJSON("a whole number that is no binary64 value", where=pointer_of(names))
    elif kind not in _PLAIN:
        raise BadJSON(
            f"{kind.__name__} is no JSON type",
            where=pointer_of(names),
            next_step="give dict, list, str, int, float, bool or None",
        )
