"""An envelope object read back: what a session's entry is, without its body (format.md §4, store.md A1)."""

from __future__ import annotations

from typing import Any, NamedTuple

from agentsession_cas.core.parsing import parse_trusted
from agentsession_cas.errors import BadJSON, Corrupt

__all__ = ["Envelope", "read_envelope"]


class Envelope(NamedTuple):
    """``parent`` is "" for a root, ``parents`` [] when there are none, ``content`` the content hash."""

    type: str
    parent: str
    parents: list[dict[str, Any]]
    ts: str
    content: str


def read_envelope(data: bytes) -> Envelope:
    """Read canonical envelope bytes that hash to their name; Corrupt when they are no envelope."""
    try:
        value = parse_trusted(data)
        return Envelope(value["type"], value["parent"] or "", value.get("parents") or [], value["ts"], value["content"])
    except (BadJSON, KeyError, TypeError, AttributeError) as error:
        raise Corrupt("an entry object is no envelope") from error
