"""A session's header out of damaged bytes: exactly, where its hash proves it, else member by member.

Owns what counts as proof. The line is right when it hashes to the hash behind it, when it would but for one byte of
itself, or when only the hash is hurt: two hashes of different lines have next to nothing in common. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from difflib import SequenceMatcher
from hashlib import sha256
from typing import Any, Final

from agentsession_cas.core.header import FORMAT, PAYLOAD, Header
from agentsession_cas.core.identity import hash_bytes
from agentsession_cas.errors import AgentSessionError

__all__ = ["header_of_pieces", "mended_header", "pieces_of"]

_NOTED: Final = len(hash_bytes(b"")) + 2
"""Bytes of the hash and the two LF around it."""
_ALIKE: Final = 16
"""So many characters in common, in one piece, and a hash is that of the line."""
_LINE_MAX: Final = 4096
_BITS: Final = tuple(1 << bit for bit in range(8))
_NAME: Final = re.compile(r'"([A-Za-z0-9_.:/-]{1,200})":')


def mended_header(data: bytes) -> Header | None:
    """The header that a damaged file held, when its hash proves it."""
    cuts = {data.find(b"\n"), len(data) - _NOTED, data.rfind(b"}") + 1} - {-1}
    for cut in sorted(cuts):
        line, noted = data[: max(cut, 0)], data[max(cut, 0) + 1 :].rstrip(b"\n")
        for candidate in (line, _one_byte_off(line, noted)):
            if _proves(noted, candidate):
                header = _parsed(candidate)
                if header is not None:
                    return header
    return None


def _proves(noted: bytes, line: bytes) -> bool:
    """Whether a hash that may be hurt is that of a line."""
    own = hash_bytes(line).removeprefix("sha256:")
    text = noted.decode("ascii", "replace")
    return bool(line) and SequenceMatcher(None, own, text, autojunk=False).find_longest_match().size >= _ALIKE


def _one_byte_off(line: bytes, noted: bytes) -> bytes:
    """The line that differs in one byte and hashes to what is noted; b"" when none does."""
    if len(line) > _LINE_MAX or len(noted) != _NOTED - 2:
        return b""
    wanted = noted.decode("ascii", "replace").removeprefix("sha256:")
    for changes in (_BITS, range(1, 256)):  # a flipped bit is likelier than any other byte, and soon tried
        before = sha256()
        for at, was in enumerate(line):
            rest = line[at + 1 :]
            for change in changes:
                trial = before.copy()
                trial.update(bytes((was ^ change,)) + rest)
                if trial.hexdigest() == wanted:
                    return line[:at] + bytes((was ^ change,)) + rest
            before.update(line[at : at + 1])
    return b""


def _parsed(line: bytes) -> Header | None:
    try:
        return Header.parse(line)
    except AgentSessionError:
        return None


def pieces_of(data: bytes) -> dict[str, Any]:
    """The members of a damaged line that read by themselves; nothing vouches for them."""
    text = data.decode(errors="replace")
    decoder = json.JSONDecoder()
    found: dict[str, Any] = {}
    at = 0
    while (match := _NAME.search(text, at)) is not None:
        try:
            value, at = decoder.raw_decode(text, match.end())
        except ValueError:
            at = match.start() + 1
            continue
        if text[at : at + 1] in (",", "}") and "\ufffd" not in json.dumps(value, ensure_ascii=False):
            found.setdefault(match[1], value)
    return found


def header_of_pieces(id_: str, created_at: str, base: str, pieces: Mapping[str, Any]) -> tuple[Header, list[str]]:
    """A header of what is certain and every piece that fits it, and the names of the pieces that were taken.

    ``base`` "" is a session that hangs from none, or one whose base only the pieces tell. Raises BadHeader.
    """
    members: dict[str, Any] = {
        "type": "session", "format": FORMAT, "id": id_, "created_at": created_at, "payload": PAYLOAD
    }
    if base:
        members["base"] = base
    taken: list[str] = []
    for name, value in pieces.items():
        if name in ("type", "id") or (name == "base" and base):
            continue
        try:
            Header.parse({**members, name: value})
        except AgentSessionError:
            continue
        members[name] = value
        taken.append(name)
    return Header.parse(members), sorted(taken)
