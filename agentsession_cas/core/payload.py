"""Which members the payload types as strings, in their place (openresponses.md §1).

Normalisation asks this, and nothing else (format.md §4): a whole number that no binary64 holds keeps its digits in such
a member and is rounded anywhere else. A place is where a value stands; what its members are depends on its ``type``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["ANYWHERE", "ENTRY", "ITEM", "Place", "body_place"]

_EXTENSION = ":"
_OTHER = "*"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: whether it is a string there, and where its members or elements stand.

    ``members`` is keyed by the ``type`` an object says it has, ":" for any in a namespace, "*" for any; then by name,
    "*" for every other.
    """

    text: bool = False
    members: Mapping[str, Mapping[str, Place]] = field(default_factory=dict)
    elements: Place | None = None

    def inside(self, container: Any, key: str | int) -> Place:
        """Where the member or element ``key`` of a container in this place stands."""
        if type(container) is list:
            return self.elements or ANYWHERE
        named = container.get("type")
        if type(named) is not str or named not in self.members:
            named = _EXTENSION if type(named) is str and _EXTENSION in named else _OTHER
        known = self.members.get(named) or self.members.get(_OTHER) or {}
        return known.get(str(key)) or known.get(_OTHER) or ANYWHERE


ANYWHERE: Final = Place()
"""Where the payload types nothing."""

_TEXT: Final = Place(text=True)


def _texts(*names: str) -> dict[str, Place]:
    return dict.fromkeys(names, _TEXT)


def _object(**members: Place) -> Place:
    return Place(members={_OTHER: members})


_ANNOTATION = Place(members={"url_citation": _texts("url", "title")})
_LOGPROB = _object(token=_TEXT, top_logprobs=Place(elements=_object(token=_TEXT)))
_PART = Place(
    members={
        "input_text": _texts("text"),
        "input_image": _texts("image_url", "detail", "file_id"),
        "input_file": _texts("filename", "file_data", "file_url", "file_id"),
        "input_video": _texts("video_url"),
        "output_text": {
            "text": _TEXT,
            "annotations": Place(elements=_ANNOTATION),
            "logprobs": Place(elements=_LOGPROB),
        },
        "refusal": _texts("refusal"),
        "summary_text": _texts("text"),
        "reasoning_text": _texts("text"),
        "text": _texts("text"),
    }
)
_PARTS = Place(elements=_PART)
_TEXT_OR_PARTS = Place(text=True, elements=_PART)

ITEM: Final = Place(
    members={
        "message": {"content": _TEXT_OR_PARTS, **_texts("role", "id", "status", "phase")},
        "function_call": _texts("call_id", "name", "arguments", "id", "status"),
        "function_call_output": {"output": _TEXT_OR_PARTS, **_texts("call_id", "id", "status")},
        "reasoning": {"summary": _PARTS, "content": _PARTS, **_texts("encrypted_content", "id", "status")},
        "compaction": _texts("encrypted_content", "id", "status", "created_by"),
        "item_reference": _texts("id"),
        _EXTENSION: _texts("id", "status"),
    }
)
"""An item."""

_TOOL = Place(members={"function": _texts("name", "description")})
_TOOLS = Place(elements=_TOOL)
_FORMAT = _object(**_texts("name", "description"))
_SETTINGS = {
    "model": _TEXT,
    "instructions": _TEXT,
    "reasoning": _object(**_texts("effort", "summary")),
    "text": _object(format=_FORMAT, verbosity=_TEXT),
    "tools": _TOOLS,
    "tools_added": _TOOLS,
    "extra": _object(
        include=Place(elements=_TEXT),
        tool_choice=Place(text=True, members={_OTHER: {"name": _TEXT, "mode": _TEXT, "tools": _TOOLS}}),
        metadata=_object(**{_OTHER: _TEXT}),
        **_texts("safety_identifier", "prompt_cache_key", "truncation", "service_tier"),
    ),
}
_RESPONSE = {
    "incomplete": _object(reason=_TEXT),
    "error": _object(**_texts("code", "message", "type", "param")),
    **_texts("response_id", "model", "status"),
}

ENTRY: Final = Place(
    members={
        "item": {"item": ITEM, "response": _TEXT},
        "queued": {"item": ITEM},
        "response": _RESPONSE,
        "config": _SETTINGS,
        "compaction": {"summary": ITEM, "pinned": Place(elements=ITEM), "config": Place(members={_OTHER: _SETTINGS})},
        "branch_summary": {"summary": ITEM},
    }
)
"""An entry as a line holds it, its ``type`` among its members."""


def body_place(type_: str) -> Place:
    """Where the members of the body of an entry of a type stand."""
    return Place(members={_OTHER: ENTRY.members.get(type_, {})})
