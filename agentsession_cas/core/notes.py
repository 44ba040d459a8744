"""The record of what a writer normalised, rewritten as the member it tells of (format.md §4, §10).

Each element of ``normalised`` holds what a string was before it was made fit to write, as JSON source text or as bytes:
left alone, it would keep what a rewrite takes out of the member itself. Owns how those two are taken apart and put
together again, and how ``at`` follows a path whose names are rewritten.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any, Final

from agentsession_cas.core.roles import DATA, Role, Spot
from agentsession_cas.core.scanner import BAD_BYTES, SURROGATE, Scanner
from agentsession_cas.errors import BadJSON, LimitExceeded

if TYPE_CHECKING:
    from agentsession_cas.core.rewrite import Rewrite, Strings

__all__ = ["rewrite_notes"]

Json = dict[str, Any]

_FIXED: Final = Spot(Role.FIXED)


def rewrite_notes(strings: Strings, notes: Any, body: Json, spot: Spot) -> Any:
    """The ``normalised`` member of a body that stands at ``spot``, both as they were before the rewrite.

    An element that is none of the format's is data. A record of a member that the rewrite leaves is left.
    """
    if not isinstance(notes, list):
        return strings.value(notes, DATA, ("normalised",))
    return [
        _rewritten(strings, note, body, spot) if _is_note(note) else strings.value(note, DATA, ("normalised", number))
        for number, note in enumerate(notes)
    ]


def _is_note(note: Any) -> bool:
    if not isinstance(note, dict) or not isinstance(note.get("at"), str) or not note["at"].startswith("/"):
        return False
    return ("was" in note) != ("raw" in note) and isinstance(note.get("was", note.get("raw")), str)


def _rewritten(strings: Strings, note: Json, body: Json, spot: Spot) -> Json:
    at, given = _follow(strings, note["at"], body, spot)
    made: Json = {}
    for name in sorted(note):
        if name == "at":
            made[name] = at
        elif name in ("was", "raw"):
            change = _rewrite_was if name == "was" else _rewrite_raw
            made[name] = change(strings.rewrite, note[name]) if given else strings.keep(note[name], ("normalised", at))
        else:
            made[name] = strings.value(note[name], DATA, ("normalised", at, name))
    return made


def _follow(strings: Strings, pointer: str, body: Json, spot: Spot) -> tuple[str, bool]:
    """The pointer through the names as they are rewritten, and whether the string it leads to is text."""
    value: Any = body
    made: list[str] = []
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        spot = spot.at(value)
        if isinstance(value, list):
            value = value[int(name)] if name.isdecimal() and int(name) < len(value) else None
            spot = spot.elements or spot
        else:
            if strings.renames(spot):
                token = strings.text(name).replace("~", "~0").replace("/", "~1")
            value = value.get(name) if isinstance(value, dict) else None
            spot = _FIXED if not made and name in ("legacy_id", "redacted") else spot.inside(name)
        made.append(token)
    spot = spot.at(value)
    # What is not there, or is no string any more, was text as far as anybody can tell.
    given = strings.gives(value, spot) if isinstance(value, str) else spot.role is not Role.FIXED
    return "".join(f"/{token}" for token in made), given


class _Was(Scanner):
    """JSON source text whose string values, or whose digits when it is a number, are rewritten in their place."""

    def __init__(self, source: str, rewrite: Rewrite) -> None:
        super().__init__(source.encode())
        self._rewrite = rewrite
        self.edits: list[tuple[int, int, str]] = []

    def string(self, source: str, value: str) -> str:
        new = self._rewrite(value)
        if new != value:
            self.edits.append((self._start, self._start + len(source), _spelled(new)))
        return value

    def number(self, literal: str) -> str:
        new = self._rewrite(literal) if not self._open else literal
        if new != literal:
            self.edits.append((self._start, self._at, _spelled(new)))
        return literal


def _rewrite_was(rewrite: Rewrite, source: str) -> str:
    """JSON source text with its strings rewritten; as one string when it is none."""
    text = _Was(source, rewrite)
    try:
        text.scan()
    except (BadJSON, LimitExceeded):
        return rewrite(source)
    pieces, end = [], 0
    for first, last, new in text.edits:
        pieces += [source[end:first], new]
        end = last
    return "".join([*pieces, source[end:]])


def _rewrite_raw(rewrite: Rewrite, encoded: str) -> str:
    """The base64 of a string's source bytes, rewritten; its bytes that are not UTF-8 stay as they were."""
    try:
        source = base64.b64decode(encoded, validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        return rewrite(encoded)
    try:
        value = json.loads(source, strict=False)
    except ValueError:
        value = None
    old = value if isinstance(value, str) else source
    new = rewrite(old)
    if new == old:
        return encoded
    written = json.dumps(new, ensure_ascii=False) if isinstance(value, str) else new
    return base64.b64encode(_without_escapes(written).encode("utf-8", "surrogateescape")).decode()


def _without_escapes(text: str) -> str:
    """Text whose surrogates are bytes that were not UTF-8; any other becomes the escape it was spelled as."""
    return SURROGATE.sub(lambda found: found[0] if BAD_BYTES.match(found[0]) else f"\\u{ord(found[0]):04x}", text)


def _spelled(text: str) -> str:
    """A string as canonical JSON, its lone surrogates as escapes in lowercase hex (format.md §4)."""
    return SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))
