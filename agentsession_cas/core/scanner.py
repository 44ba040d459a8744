"""A strict JSON scanner that knows where it is: the slow way of parsing, and the only one that names a place.

Iterative, so that depth costs nothing. It owns the grammar of RFC 8259, the limit on levels, repeated member names and
member names that are no Unicode; what a string or a number may be is for the subclass to say. Bytes that are not UTF-8
are carried through as ``surrogateescape`` does, so that source text can be given back byte for byte.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

from agentsession_cas.core.canonical import LEVELS_MAX, Json, pointer_of
from agentsession_cas.errors import BadJSON, LimitExceeded

__all__ = ["BAD_BYTES", "SURROGATE", "Scanner"]

SURROGATE: Final = re.compile("[\ud800-\udfff]")
BAD_BYTES: Final = re.compile("[\udc80-\udcff]")
"""In source text: bytes that were not UTF-8."""

_TOKEN = re.compile(
    r"[ \t\n\r]*(?:(?P<mark>[{}\[\]:,\"])|(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<word>true|false|null)|(?P<end>\Z))"
)
_SPACE = re.compile(r"[ \t\n\r]*")
_WORDS: Final = {"true": True, "false": False, "null": None}
_STRINGS = json.JSONDecoder()


_MORE: Final = object()  # instead of a value: the container around the place goes on


class Scanner:
    """One document. Subclasses say what a string and a number become; :meth:`fail` raises with the place."""

    def __init__(self, data: bytes) -> None:
        self._text = data.decode("utf-8", "surrogateescape")
        self._at = 0
        self._start = 0  # of the token just read
        self._open: list[Any] = []  # the containers around the place
        self._names: list[str | int | None] = []  # where in each; None between members

    def string(self, source: str, value: str) -> Json:
        """What a string value becomes. ``source`` is its text, quotes included, ``value`` what it spells."""
        raise NotImplementedError

    def number(self, literal: str) -> Json:
        """What a number becomes."""
        raise NotImplementedError

    def pointer(self) -> str:
        """The RFC 6901 pointer of the value being read."""
        return pointer_of([name for name in self._names if name is not None])

    def fail(self, what: str) -> NoReturn:
        """Refuse the document at the token just read."""
        offset = len(self._text[: self._start].encode("utf-8", "surrogateescape"))
        raise BadJSON(f"{what}, at byte {offset}", where=self.pointer())

    def scan(self) -> Json:
        """The value of the document. Raises BadJSON for what is no JSON, LimitExceeded past 256 levels."""
        while True:
            value = self._value()
            while value is not _MORE:
                if not self._open:
                    if self._next() != "end":
                        self.fail("something follows the document")
                    return value
                value = self._attach(value)

    def _next(self) -> str:
        """Move past the next token; its character for a mark, else the name of its kind."""
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            self._start = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            stray = self._text[self._start]
            self.fail("bytes that are not UTF-8" if BAD_BYTES.match(stray) else f"unexpected character {stray!a}")
        kind = found.lastgroup or ""
        self._start = found.start(kind)
        self._at = found.end()
        return self._text[self._start] if kind == "mark" else kind

    def _value(self) -> Json:
        token = self._next()
        if token == '"':
            return self.string(*self._string())
        if token == "number":
            return self.number(self._text[self._start : self._at])
        if token == "word":
            return _WORDS[self._text[self._start : self._at]]
        if token == "{":
            return self._enter({})
        if token == "[":
            return self._enter([])
        return self.fail("a value is missing")

    def _enter(self, container: Any) -> Json:
        """Open a container: itself when it is empty, else _MORE."""
        if len(self._open) == LEVELS_MAX:
            raise LimitExceeded(f"nesting over {LEVELS_MAX} levels", where=self.pointer())
        self._open.append(container)
        if type(container) is dict:
            self._names.append(None)
            token = self._next()
            if token == "}":
                return self._leave()
            self._name(token)
            return _MORE
        self._names.append(0)
        back = self._at
        if self._next() == "]":
            return self._leave()
        self._at = back
        return _MORE

    def _attach(self, value: Json) -> Json:
        """Put a value in the container it belongs to: _MORE, or that container when it ends here."""
        holder = self._open[-1]
        if type(holder) is dict:
            holder[self._names[-1]] = value
        else:
            holder.append(value)
        self._names[-1] = None
        token = self._next()
        if token == ",":
            if type(holder) is dict:
                self._name(self._next())
            else:
                self._names[-1] = len(holder)
            return _MORE
        if token != ("}" if type(holder) is dict else "]"):
            self.fail("a comma or the end of the container is missing")
        return self._leave()

    def _leave(self) -> Json:
        self._names.pop()
        return self._open.pop()

    def _name(self, token: str) -> None:
        """Read a member name and its colon."""
        if token != '"':
            self.fail("a member name is missing")
        source, name = self._string()
        self._names[-1] = name
        if BAD_BYTES.search(source):
            self.fail("a member name is not UTF-8")
        if SURROGATE.search(name):
            self.fail("a member name holds a lone surrogate")
        if name in self._open[-1]:
            self.fail("a repeated member name")
        if self._next() != ":":
            self.fail("a colon is missing")

    def _string(self) -> tuple[str, str]:
        """The source and the value of the string whose opening quote was just read."""
        try:
            value, self._at = _STRINGS.raw_decode(self._text, self._start)
        except json.JSONDecodeError as error:
            self._start = error.pos
            self.fail(f"in a string: {error.msg}")
        return self._text[self._start : self._at], value
