"""Hashes, one spelling each (format.md §4), and the ids made from them or from time and names (format.md §3).

Owns what a hash and a session id look like. Does no I/O: time and randomness are handed in.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from typing import Final

from agentsession_cas.core.canonical import canonical

__all__ = [
    "HASH_PREFIX",
    "ROOT",
    "hash_bytes",
    "hash_text",
    "is_hash",
    "redacted_session_id",
    "session_id",
    "subsession_id",
]

HASH_PREFIX: Final = "sha256:"
ROOT: Final = ""
"""The universal root: ``null`` on the wire, the parent of first entries (format.md §1)."""

_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_NIL = uuid.UUID(int=0)


def is_hash(text: object) -> bool:
    """Whether ``text`` is ``sha256:`` and 64 lowercase hex digits, and nothing else (format.md §4)."""
    return isinstance(text, str) and _HASH.fullmatch(text) is not None


def hash_bytes(data: bytes) -> str:
    """``sha256:`` and the hex digest of ``data``."""
    return HASH_PREFIX + hashlib.sha256(data).hexdigest()


def hash_text(text: str) -> str:
    """The hash of the UTF-8 bytes of ``text``; how a config delta names an instruction part's text (format.md §7)."""
    return hash_bytes(text.encode())


def session_id(now_ms: int, random: bytes) -> str:
    """A new session's id, a UUIDv7 (format.md §3): milliseconds since 1970 and ten random bytes."""
    chance = int.from_bytes(random[:10], "big")
    time_part = (now_ms & (1 << 48) - 1) << 80 | 0x7 << 76
    random_part = (chance >> 62 & 0xFFF) << 64 | 0b10 << 62 | chance & (1 << 62) - 1
    return str(uuid.UUID(int=time_part | random_part))


def subsession_id(parent: str, call_id: str, retry: int = 0) -> str:
    """The id of the session a call of session ``parent`` spawns (format.md §3); ``retry`` is 1 for the first retry."""
    return str(uuid.uuid5(_NIL, f"{parent}/{call_id}/{retry}" if retry else f"{parent}/{call_id}"))


def redacted_session_id(original: str, profile: str) -> str:
    """The id of the redacted session of ``original`` under a profile (format.md §3)."""
    return str(uuid.uuid5(_NIL, canonical(["redacted", original, profile]).decode()))
