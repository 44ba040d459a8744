"""Changing what a session says: a function from string to string, given every string of an entry that is text.

Owns which strings and member names of one body it is given and which are left (format.md §10; the table is
:mod:`~agentsession_cas.core.roles`), the order it is given them in, and the record of what a writer normalised, which
tells of the same strings. What one entry cannot see, instruction parts above all, is
:mod:`~agentsession_cas.core.rewriter`. Changes no body in place; re-points nothing and computes no hash of an entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from agentsession_cas.core.canonical import pointer_of
from agentsession_cas.core.entry import RESERVED
from agentsession_cas.core.facts import CODES
from agentsession_cas.core.header import Header
from agentsession_cas.core.identity import is_hash
from agentsession_cas.core.notes import rewrite_notes
from agentsession_cas.core.roles import DATA, HEADER, REFERENCES, Role, Spot, body_spot
from agentsession_cas.core.scanner import SURROGATE
from agentsession_cas.errors import KeyCollision, NotRedacted

__all__ = ["At", "Rewrite", "Strings", "rewrite_header_strings"]

Json = dict[str, Any]
Rewrite = Callable[[str], str]
"""What a string becomes. One string has to become the same wherever it stands: ids and texts are named by value."""
At = tuple[str | int, ...]
"""A place in a rewritten body: its member names as they are written."""

_NOTHING: Final[Mapping[str, Callable[[Any], Any]]] = {}
_SIDECAR: Final = re.compile(r"sidecar:sha256:[0-9a-f]{64}")
_HASHES: Final = REFERENCES | {Role.HASH, Role.PART_HASH}


class Strings:
    """A function at work on the strings of bodies.

    ``calls`` gives it call ids too, as a redaction that changes them everywhere does. ``strict`` raises NotRedacted for
    a string that is left as it is though the function would change it, a name that is not the format's included.
    """

    def __init__(self, rewrite: Rewrite, *, calls: bool = False, strict: bool = False) -> None:
        self.rewrite = rewrite
        self.strict = strict
        self._text_roles = {Role.TEXT, Role.DATA, Role.PAYLOAD} | ({Role.CALL} if calls else set())

    def body(self, type_: str, body: Json, special: Mapping[str, Callable[[Any], Any]] = _NOTHING) -> Json:
        """The body of an entry rewritten; ``special`` says what members by those names become.

        Raises KeyCollision, NotRedacted.
        """
        if type_ not in CODES:
            self.keep(type_, ("type",))
        spot = body_spot(type_).at(body)
        members = {
            "legacy_id": self._legacy,
            "normalised": lambda notes: rewrite_notes(self, notes, body, spot),
            "redacted": lambda spans: spans,
            **special,
        }
        made = self.object(body, spot, (), members)
        if spot.each is not None:
            taken = next((name for name in made if name in RESERVED), None)
            if taken is not None:
                raise KeyCollision(f"a member of the entry would be called {taken}, as one of its envelope is")
        return made

    def value(self, value: Any, spot: Spot, at: At) -> Any:
        """A value rewritten where it stands."""
        spot = spot.at(value)
        kind = type(value)
        if kind is str:
            if self.gives(value, spot):
                return self.text(value)
            # The name of a session is re-pointed, whatever it holds.
            return value if spot.role is Role.SESSION else self.keep(value, at)
        if spot.role is Role.FIXED:
            self.keep_all(value, at)
            return value
        if kind is dict:
            return self.object(value, spot, at)
        if kind is list:
            element = spot.elements or spot
            return [self.value(each, element, (*at, number)) for number, each in enumerate(value)]
        return value

    def object(
        self, value: Json, spot: Spot, at: At, special: Mapping[str, Callable[[Any], Any]] = _NOTHING
    ) -> Json:
        """An object rewritten, ``spot`` being where it stands; names in sorted order, each before its value."""
        made: Json = {}
        renames = self.renames(spot)
        for name in sorted(value):
            change = special.get(name)
            if change is not None:
                made[name] = change(value[name])
                continue
            if renames:
                new = self.text(name)
            else:
                new = name if name in spot.members else self.keep(name, at)
            if new in made or (new != name and new in special):
                raise KeyCollision("the rewrite makes two member names of an object one", where=pointer_of(at))
            made[new] = self.value(value[name], spot.inside(name), (*at, new))
        return made

    @staticmethod
    def renames(spot: Spot) -> bool:
        """Whether the names of an object are the writer's, and so text."""
        return spot.each is not None or spot.role is Role.DATA

    def gives(self, text: str, spot: Spot) -> bool:
        """Whether a string there is text. A name of an entry, or a hash, that is none in form is text."""
        return spot.role in self._text_roles or (spot.role in _HASHES and not is_hash(text))

    def text(self, text: str) -> str:
        """A string that is text, rewritten; the name of a sidecar blob stays, whose bytes are not here to rewrite."""
        if text.startswith("sidecar:") and _SIDECAR.fullmatch(text):
            return text
        new = self.rewrite(text)
        return new if new is text or new.isascii() else SURROGATE.sub("\ufffd", new)

    def keep(self, text: str, at: At) -> str:
        """A string that is left as it is, once it is known that it may be."""
        if self.strict and not is_hash(text) and self.rewrite(text) != text:
            place = pointer_of(at) or "the entry's own members"
            raise NotRedacted(
                "a string that no redaction changes holds what is to go",
                where=place,
                next_step="make the rule narrower, or keep that session to yourself",
            )
        return text

    def keep_all(self, value: Any, at: At) -> None:
        """A value that is left whole, its names too, once it is known that it may be."""
        left = [value]
        while left:
            each = left.pop()
            if isinstance(each, str):
                self.keep(each, at)
            elif isinstance(each, dict):
                left += [*each, *each.values()]
            elif isinstance(each, list):
                left += each

    def _legacy(self, value: Any) -> Any:
        at = ("legacy_id",)
        return self.keep(value, at) if isinstance(value, str) else self.value(value, DATA, at)


def rewrite_header_strings(header: Header, rewrite: Rewrite | Strings) -> Header:
    """The header with ``cwd``, ``harness`` and every member the format does not define rewritten (format.md §10).

    What a redaction writes itself, what it re-points and ``spawned_by``, a call id, are left. Raises KeyCollision, and
    BadHeader for what the rewrite makes of a member no header can hold.
    """
    strings = rewrite if isinstance(rewrite, Strings) else Strings(rewrite)
    return Header.parse(strings.object(header.members(), HEADER, ()))
