"""Normalisation (format.md §4): what a writer changes so that a harness's values pass the I-JSON test, and its record.

Owns every such change and the elements of the ``normalised`` member that tell of it, ``{"at": pointer, "was": source}``
or, for bytes that were not UTF-8, ``raw`` with their base64. It never guesses: what has no normal form is refused. The
values handed in are never changed.

Nearly every value needs none of this, so the pattern is to write first and repair second::

    try:
        content = canonical(body)
    except BadJSON:
        body = normalised_body(type_, body)
        content = canonical(body)
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, TypeAlias

from agentsession_cas.core.canonical import LEVELS_MAX, Json, canonical, check, pointer_of, utf16_key
from agentsession_cas.core.numbers import integer_fits, number_text, read_number
from agentsession_cas.core.parsing import parse
from agentsession_cas.core.payload import ANYWHERE, Place, body_place
from agentsession_cas.core.scanner import BAD_BYTES, SURROGATE, Scanner
from agentsession_cas.errors import BadJSON, BadNormalisation, LimitExceeded

__all__ = ["Change", "merge_normalised", "normalise", "normalise_bytes", "normalised_body"]

Change: TypeAlias = dict[str, Any]
"""One element of ``normalised``: ``at`` and exactly one of ``was`` and ``raw``, all strings."""

_REPLACEMENT: Final = "\ufffd"
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def normalise(
    value: Json, place: Place = ANYWHERE, *, prefix: str = "", sources: Mapping[str, str] | None = None
) -> tuple[Json, list[Change]]:
    """A decoded value as a line may hold it, and a record of each change, sorted by ``at``.

    ``place`` says where the value stands, and so which of its members are strings; ``prefix`` is the pointer of the
    value in its body. ``sources`` has the source text of numbers by their pointer in the value, where it is known; any
    other value was what its canonical text says. The value is copied. Raises BadJSON for a number that is not finite, a
    member name with a lone surrogate, or a type that is not JSON's, LimitExceeded past 256 levels.
    """
    repair = _Repair(sources or {})
    fixed = repair.run(value, place)
    check(fixed)
    return fixed, _prefixed(repair.changes, prefix)


def normalise_bytes(data: bytes, place: Place = ANYWHERE, *, prefix: str = "") -> tuple[Json, list[Change]]:
    """The value of a JSON document as a line may hold it, and a record of each change, sorted by ``at``.

    As :func:`normalise`, with the source text of each value as what it was. Bytes that are no JSON, or repeat a member
    name, raise BadJSON too.
    """
    try:
        return parse(data), []
    except BadJSON:
        pass
    source = _Source(data)
    value, changes = normalise(source.scan(), place, sources=source.literals)
    return value, _prefixed([*source.changes, *changes], prefix)


def normalised_body(type_: str, body: Mapping[str, Any], changes: Sequence[Change] = ()) -> dict[str, Any]:
    """The body of an entry as a writer writes it: every value normalised, and ``normalised`` telling of it.

    ``changes`` are the records of what decoding the body already changed. Raises what :func:`normalise` and
    :func:`merge_normalised` raise.
    """
    rest = {name: value for name, value in body.items() if name != "normalised"}
    fixed, found = normalise(rest, body_place(type_))
    merged = merge_normalised(body.get("normalised"), [*changes, *found])
    if merged:
        fixed["normalised"] = merged
    elif "normalised" in body:
        fixed["normalised"] = body["normalised"]
    return dict(fixed)


def merge_normalised(existing: Json, new: Iterable[Change]) -> list[Change]:
    """The ``normalised`` member of a body: what the caller brings, then what was found, sorted by ``at`` as UTF-16.

    ``existing`` is the member as handed over (None when there is none). Where both tell of one place the caller's
    stands, since it has seen the source. Raises BadNormalisation for one that is no list, or an element whose ``at`` is
    no pointer into the body or is repeated, or that has not exactly one of ``was`` (JSON text) and ``raw`` (base64 with
    padding).
    """
    if existing is not None and type(existing) is not list:
        raise BadNormalisation("normalised is not a list", where="/normalised")
    merged: dict[str, Change] = {}
    for position, element in enumerate(existing or ()):
        at = _checked_at(element, f"/normalised/{position}")
        if at in merged:
            raise BadNormalisation("normalised tells of one place twice", where=f"/normalised/{position}/at")
        merged[at] = element
    for change in new:
        merged.setdefault(change["at"], change)
    return _sorted(merged.values())


def _sorted(changes: Iterable[Change]) -> list[Change]:
    return sorted(changes, key=lambda change: utf16_key(change["at"]))


def _prefixed(changes: Iterable[Change], prefix: str) -> list[Change]:
    return _sorted({**change, "at": prefix + change["at"]} for change in changes)


def _checked_at(element: Json, where: str) -> str:
    """The place an element of ``normalised`` tells of, once the element is known to be one (format.md §4)."""
    at = element.get("at") if type(element) is dict else None
    if type(at) is not str or not at.startswith("/") or SURROGATE.search(at):
        raise BadNormalisation("an element has no pointer into the body", where=where, next_step='give it an "at"')
    if ("was" in element) == ("raw" in element):
        raise BadNormalisation("an element needs exactly one of was and raw", where=where)
    if "was" in element and not _is_source(element["was"]):
        raise BadNormalisation("was is not JSON text", where=f"{where}/was", next_step="give the value's source text")
    if "raw" in element and not _is_base64(element["raw"]):
        raise BadNormalisation("raw is not base64 with padding", where=f"{where}/raw")
    return at


def _is_source(text: Json) -> bool:
    if type(text) is not str or SURROGATE.search(text):
        return False
    try:
        _Syntax(text.encode()).scan()
    except (BadJSON, LimitExceeded):
        return False
    return True


def _is_base64(text: Json) -> bool:
    if type(text) is not str or not text.isascii():
        return False
    try:
        return text != "" and base64.b64encode(base64.b64decode(text, validate=True)).decode() == text
    except binascii.Error:
        return False


def _spelled(text: str) -> str:
    """A string as canonical JSON, its lone surrogates as escapes in lowercase hex (format.md §4)."""
    pieces = [canonical(piece)[1:-1].decode() for piece in SURROGATE.split(text)]
    escapes = [f"\\u{ord(found):04x}" for found in SURROGATE.findall(text)]
    return '"' + "".join(map("".join, zip_longest(pieces, escapes, fillvalue=""))) + '"'


@dataclass(slots=True)
class _Frame:
    """A container being repaired: a copy, what of it is still to come, where it stands and the member at hand."""

    container: Any
    steps: Iterator[tuple[str | int, Json]]
    place: Place
    name: str | int = 0


class _Repair:
    """One walk over a decoded value, copying it with every string and whole number repaired."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self.changes: list[Change] = []
        self._sources = sources
        # The first holds nothing but the value itself.
        self._frames: list[_Frame] = []

    def run(self, value: Json, place: Place) -> Json:
        holder = [value]
        self._enter(holder, Place(elements=place))
        while self._frames:
            frame = self._frames[-1]
            step = next(frame.steps, None)
            if step is None:
                self._frames.pop()
                continue
            frame.name, item = step
            kind = type(item)
            if kind is dict or kind is list:
                copy = frame.container[frame.name] = item.copy()
                self._enter(copy, frame.place.inside(frame.container, frame.name))
            elif kind is str and not item.isascii() and SURROGATE.search(item):
                frame.container[frame.name] = self._text(item)
            elif kind is int and not integer_fits(item):
                frame.container[frame.name] = self._integer(item, frame.place.inside(frame.container, frame.name))
        return holder[0]

    def _enter(self, container: Any, place: Place) -> None:
        if len(self._frames) > LEVELS_MAX:
            raise LimitExceeded(f"nesting over {LEVELS_MAX} levels", where=self._pointer())
        steps = list(container.items()) if type(container) is dict else list(enumerate(container))
        self._frames.append(_Frame(container, iter(steps), place))

    def _pointer(self) -> str:
        return pointer_of([frame.name for frame in self._frames[1:]])

    def _text(self, text: str) -> str:
        """A string without lone surrogates. Two that make a pair are the one character they spell, and no change."""
        text = _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
        if not SURROGATE.search(text):
            return text
        self.changes.append({"at": self._pointer(), "was": _spelled(text)})
        return SURROGATE.sub(_REPLACEMENT, text)

    def _integer(self, number: int, place: Place) -> Json:
        """A whole number no binary64 holds: its digits where the payload has a string, else rounded."""
        try:
            nearest = float(number)
        except OverflowError:
            return number  # refused with what else cannot be written
        at = self._pointer()
        self.changes.append({"at": at, "was": self._sources.get(at, str(number))})
        return str(number) if place.text else read_number(number_text(nearest))


class _Source(Scanner):
    """Repairs the strings of a document, which need their source text, and keeps that of the numbers to be repaired."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.changes: list[Change] = []
        self.literals: dict[str, str] = {}

    def string(self, source: str, value: str) -> str:
        if value.isascii() and source.isascii():
            return value
        if BAD_BYTES.search(source):
            raw = source.encode("utf-8", "surrogateescape")
            self.changes.append({"at": self.pointer(), "raw": base64.b64encode(raw).decode()})
            # Python replaces each maximal subpart by one U+FFFD, as the format asks.
            value = json.loads(raw.decode("utf-8", "replace"))
        elif SURROGATE.search(value):
            self.changes.append({"at": self.pointer(), "was": source})
        return SURROGATE.sub(_REPLACEMENT, value)

    def number(self, literal: str) -> int | float:
        number = read_number(literal)
        if math.isinf(number):
            self.fail("a number that is not finite")
        if type(number) is int and not integer_fits(number):
            self.literals[self.pointer()] = literal
        return number


class _Syntax(Scanner):
    """Asks of a text only that it is JSON."""

    def string(self, source: str, value: str) -> str:  # noqa: ARG002
        return value

    def number(self, literal: str) -> str:
        return literal
