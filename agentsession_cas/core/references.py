"""Which members of a body name entries of its own session, and how to name others there (format.md §5, §7, §8).

A member by one of these names in a form or a place the format does not define names nothing and is left alone. Changes
no body in place: what changed is copied, all else is shared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

__all__ = ["map_references"]

Json = dict[str, Any]
Rename = Callable[[str], str]

_NAMING: Final[dict[str, tuple[str, ...]]] = {
    "item": ("queued_from", "from_link"),
    "compaction": ("first_kept",),
    "branch_summary": ("from",),
    "label": ("target",),
    "outcome": ("target",),
    "dispatch": ("target",),
    "decision": ("target",),
}


def map_references(type_: str, body: Json, rename: Rename) -> Json:
    """A body with every entry it names renamed; ``rename`` gives an id itself back to leave it as it is."""
    for name in _NAMING.get(type_, ()):
        body = _map_text(body, name, rename)
    if type_ == "link" and (body.get("rel") == "judged_by" or body.get("cancel") == "sent"):
        body = _map_text(body, "target", rename)
    elif type_ == "config":
        body = _map_object(body, "omit", lambda omit: _map_omit(omit, rename))
        omitted = body.get("instructions_omitted")
        if isinstance(omitted, list):
            body = {**body, "instructions_omitted": [_map_kept(part, rename) for part in omitted]}
    elif type_ == "compaction":
        body = _map_object(
            body, "config", lambda config: _map_object(config, "omit", lambda omit: _map_omit(omit, rename))
        )
    return body


def _map_omit(omit: Json, rename: Rename) -> Json:
    omit = _map_list(omit, "items", rename)
    omit = _map_object(omit, "outputs", lambda outputs: _map_list(outputs, "items", rename))
    return _map_object(omit, "images", lambda images: _map_text(images, "before", rename))


def _map_kept(part: Any, rename: Rename) -> Any:
    """An omitted part; a keep without an id may name the config whose list it counts over."""
    if not isinstance(part, dict) or part.get("id") or type(part.get("keep")) is not int or part["keep"] < 1:
        return part
    return _map_text(part, "of", rename)


def _map_text(body: Json, name: str, rename: Rename) -> Json:
    value = body.get(name)
    return {**body, name: rename(value)} if isinstance(value, str) and value else body


def _map_list(body: Json, name: str, rename: Rename) -> Json:
    value = body.get(name)
    if not isinstance(value, list):
        return body
    return {**body, name: [rename(each) if isinstance(each, str) and each else each for each in value]}


def _map_object(body: Json, name: str, change: Callable[[Json], Json]) -> Json:
    value = body.get(name)
    return {**body, name: change(value)} if isinstance(value, dict) else body
