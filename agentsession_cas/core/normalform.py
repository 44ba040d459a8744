"""How a known item, content part or tool is written in a hashed request (openresponses.md §2, "Encoding").

Owns the table: which members are always written and with what default, which only when non-empty, and that any other
null member of a known type vanishes. What is of an unknown type goes in verbatim. Values are never changed in place; a
value that has another form than the table expects stays as recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

__all__ = ["Form", "form_item", "form_part", "form_reasoning", "form_text", "form_tool", "is_empty"]

Json = dict[str, Any]


class Form(Enum):
    """The forms a recorded hash may have been taken over (openresponses.md §2, "Form")."""

    NORMAL = "normal"
    """The table, a member it does not name staying as recorded."""
    RECORDED = "recorded"
    """The recorded values untouched."""
    TYPED = "typed"
    """The table, the members it does not name dropped: what a reader with typed values rebuilds."""


class _Shape(NamedTuple):
    """One row: members always written (and the default of one that is missing or null), and those written non-empty."""

    forced: Mapping[str, Any] = {}
    sparse: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    """Members the row names that are written whenever they are not null."""


def _shape(forced: Mapping[str, Any], sparse: str = "", kept: str = "") -> _Shape:
    return _Shape(forced, frozenset(sparse.split()), frozenset(kept.split()))


_ITEMS: Final = {
    "message": _shape({"role": "", "content": []}, "id status phase"),
    "function_call": _shape({"call_id": "", "name": "", "arguments": ""}, "id status"),
    "function_call_output": _shape({"call_id": "", "output": ""}, "id status"),
    "reasoning": _shape({"summary": []}, "content encrypted_content id status"),
    "compaction": _shape({"encrypted_content": ""}, "id status created_by"),
    "item_reference": _shape({"id": ""}),
}
_PARTS: Final = {
    "output_text": _shape({"text": "", "annotations": []}, "logprobs"),
    "input_text": _shape({"text": ""}),
    "summary_text": _shape({"text": ""}),
    "reasoning_text": _shape({"text": ""}),
    "text": _shape({"text": ""}),
    "refusal": _shape({"refusal": ""}),
    "input_image": _shape({"image_url": "", "detail": "auto"}, "file_id"),
    "input_file": _shape({}, "filename file_data file_url file_id"),
    "input_video": _shape({"video_url": ""}),
    "url_citation": _shape({}, kept="url title start_index end_index"),
}
_FUNCTION: Final = _shape({"name": "", "description": "", "parameters": None}, kept="strict")
_FORMAT: Final = _shape({"type": "text"}, "name description", "schema strict")
_TEXT: Final = _shape({}, "verbosity", "format")
_REASONING: Final = _shape({"effort": None, "summary": None})
_FORMAT_TYPES: Final = (None, "text", "json_object", "json_schema")
_NESTED: Final = {
    "message": ("content",),
    "function_call_output": ("output",),
    "reasoning": ("summary", "content"),
    "output_text": ("annotations",),
}
"""The members of a type that are lists of parts."""


def is_empty(value: object) -> bool:
    """Whether a value is null, "", [] or {}: what "non-empty" leaves out. ``false`` and 0 are values."""
    return value is None or (isinstance(value, str | list | dict) and not value)


def form_item(item: Json, form: Form = Form.NORMAL) -> Json:
    """An item as R holds it. A bare string content becomes the one part it stands for."""
    if form is Form.RECORDED:
        return item
    type_ = item.get("type")
    if type_ is None:
        type_ = _implied_type(item)
    shape = _ITEMS.get(type_) if isinstance(type_, str) else None
    if shape is None:
        return item
    written = _write(item, shape, form)
    written["type"] = type_
    if type_ == "message" and isinstance(written["content"], str):
        spoken = "output_text" if written["role"] == "assistant" else "input_text"
        written["content"] = [{"type": spoken, "text": written["content"]}]
    _form_nested(written, form)
    return written


def form_part(part: Any, form: Form = Form.NORMAL) -> Any:
    """A content part or an annotation as R holds it."""
    if form is Form.RECORDED or not isinstance(part, dict):
        return part
    type_ = part.get("type")
    shape = _PARTS.get(type_) if isinstance(type_, str) else None
    if shape is None:
        return part
    written = _write(part, shape, form)
    written["type"] = type_
    if type_ == "input_image" and written["detail"] == "":
        written["detail"] = "auto"
    _form_nested(written, form)
    return written


def form_tool(tool: Json, form: Form = Form.NORMAL) -> Json:
    """A tool as R holds it: a function tool by the table, any other verbatim."""
    if form is Form.RECORDED or tool.get("type") != "function":
        return tool
    return {"type": "function", **_write(tool, _FUNCTION, form)}


def form_reasoning(reasoning: Json, form: Form = Form.NORMAL) -> Json:
    """The ``reasoning`` of R: both members, null where empty; {} when neither is set."""
    if is_empty(reasoning.get("effort")) and is_empty(reasoning.get("summary")):
        return {}
    if form is Form.RECORDED:
        return reasoning
    written = _write(reasoning, _REASONING, form)
    return {name: None if name in _REASONING.forced and is_empty(value) else value for name, value in written.items()}


def form_text(text: Json, form: Form = Form.NORMAL) -> Json:
    """The ``text`` of R: its format, plain text by default, and the verbosity when set; {} when neither is set."""
    if is_empty(text.get("format")) and is_empty(text.get("verbosity")):
        return {}
    if form is Form.RECORDED:
        return text
    written = _write(text, _TEXT, form)
    format_ = written.get("format")
    if is_empty(format_):
        written["format"] = {"type": "text"}
    elif isinstance(format_, dict) and format_.get("type") in _FORMAT_TYPES:
        written["format"] = _write(format_, _FORMAT, form)
    return written


def _implied_type(item: Json) -> str | None:
    """The type of an item written without one: the schema lets a message and an item_reference leave it out."""
    if "role" in item:
        return "message"
    return "item_reference" if set(item) <= {"id", "type"} and "id" in item else None


def _write(value: Json, shape: _Shape, form: Form) -> Json:
    """A value of a known type with the members its row writes; its ``type`` and nested parts are the caller's."""
    written: Json = {}
    for name, member in value.items():
        if name in shape.sparse:
            if is_empty(member):
                continue
        elif member is None or (form is Form.TYPED and name not in shape.forced and name not in shape.kept):
            continue
        written[name] = member
    for name, default in shape.forced.items():
        if name not in written:
            written[name] = list(default) if isinstance(default, list) else default
    return written


def _form_nested(written: Json, form: Form) -> None:
    for name in _NESTED.get(written["type"], ()):
        parts = written.get(name)
        if isinstance(parts, list):
            written[name] = [form_part(part, form) for part in parts]
