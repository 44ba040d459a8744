"""``item``: one Open Responses item of the conversation (format.md §5, openresponses.md §1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.entry import Draft
from agentsession_cas.core.given import as_object
from agentsession_cas.core.normalform import form_item
from agentsession_cas.core.reading import members, text
from agentsession_cas.core.required import check_items
from agentsession_cas.core.types.members import Json, View, composed, need, one_of, own
from agentsession_cas.errors import BadEntry

__all__ = [
    "ItemView",
    "assistant",
    "checked_item",
    "developer",
    "function_call",
    "function_call_output",
    "item",
    "system",
    "trigger",
    "user",
]

Content = str | Iterable[str | Mapping[str, Any]]
"""What a message says: a text, or parts of which a bare string is a text part."""

_ROLES: Final = ("user", "system", "developer", "assistant")


class ItemView(View):
    """An ``item`` entry."""

    __slots__ = ()

    @property
    def item(self) -> Json:
        """The item as recorded."""
        return members(self.body, "item") or {}

    @property
    def kind(self) -> str:
        """The item's type, or ""."""
        return text(self.item, "type")

    @property
    def call_id(self) -> str:
        """The call a function call or its output is about, or ""."""
        return text(self.item, "call_id") if self.kind in ("function_call", "function_call_output") else ""

    @property
    def response(self) -> str:
        """The ``response_id`` of the response the item was output of, or ""."""
        return text(self.body, "response")

    @property
    def visible(self) -> bool:
        """Whether a renderer shows the item; it is in context either way."""
        return self.body.get("visible") is not False

    @property
    def source(self) -> Json | None:
        """The trigger that brought the input in."""
        return members(self.body, "source")

    @property
    def queued_from(self) -> str:
        """The ``queued`` entry the input waited as, or ""."""
        return text(self.body, "queued_from")

    @property
    def failed(self) -> bool:
        """Whether an output says that its tool failed, or was given up."""
        return self.kind == "function_call_output" and self.body.get("failed") is True

    @property
    def from_link(self) -> str:
        """The peer link whose callee the item is a later report of, or ""."""
        return text(self.body, "from_link")


def item(
    item: Mapping[str, Any],
    *,
    response: str = "",
    visible: bool = True,
    source: Mapping[str, Any] | None = None,
    queued_from: str = "",
    failed: bool = False,
    from_link: str = "",
) -> Draft:
    """An item, recorded verbatim: what a provider gave, above all. Raises BadEntry for what is no item to record.

    ``response`` is the provider's response id, ``source`` a :func:`trigger`; ``failed`` is for a function_call_output.
    """
    recorded = checked_item("item", item)
    if failed and recorded.get("type") != "function_call_output":
        raise BadEntry("failed is for a function_call_output", where="/failed")
    return Draft(
        "item",
        composed(
            {"item": recorded},
            response=response,
            visible=None if visible else False,
            source=own("source", source),
            queued_from=queued_from,
            failed=failed or None,
            from_link=from_link,
        ),
    )


def user(content: Content, *, source: Mapping[str, Any] | None = None, visible: bool = True) -> Draft:
    """A message of the user, in normal form."""
    return item(_message("user", content), source=source, visible=visible)


def system(content: Content, *, visible: bool = True) -> Draft:
    """A system message, in normal form."""
    return item(_message("system", content), visible=visible)


def developer(content: Content, *, visible: bool = True) -> Draft:
    """A developer message, in normal form."""
    return item(_message("developer", content), visible=visible)


def assistant(content: Content, *, response: str = "", visible: bool = True) -> Draft:
    """A message of the model that no provider gave whole, in normal form; one that was goes to :func:`item`."""
    return item(_message("assistant", content), response=response, visible=visible)


def function_call(call_id: str, name: str, arguments: str | Mapping[str, Any], *, response: str = "") -> Draft:
    """A call of a tool. ``arguments`` is JSON text, or an object to be written as it."""
    if not isinstance(arguments, str):
        arguments = canonical(as_object(arguments, "arguments")).decode()
    call = {
        "type": "function_call",
        "call_id": need("call_id", call_id),
        "name": need("name", name),
        "arguments": arguments,
    }
    return item(call, response=response)


def function_call_output(
    call_id: str, output: str | Iterable[Mapping[str, Any]], *, failed: bool = False, from_link: str = ""
) -> Draft:
    """What a call gave: a text, or content parts. ``failed`` says that the tool failed or was given up."""
    if not isinstance(output, str):
        output = [as_object(part, "a part of an output") for part in _parts("output", output)]
    answer = {"type": "function_call_output", "call_id": need("call_id", call_id), "output": output}
    return item(form_item(answer), failed=failed, from_link=from_link)


def trigger(kind: str = "", *, ref: str = "", source: str = "", extra: Mapping[str, Any] | None = None) -> Json:
    """How an input arrived, in the harness's own terms (format.md §5); ``extra`` holds facts of its own."""
    return composed({}, extra, kind=kind, ref=ref, source=source)


def checked_item(name: str, value: Mapping[str, Any]) -> Json:
    """An item a writer may record, as a dict of its own. Raises BadEntry, naming the member it is for."""
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise BadEntry("an item is an object with a type", where=f"/{name}")
    recorded = dict(value)
    check_items("item", {"item": recorded})
    return recorded


def _message(role: str, content: Content) -> Json:
    one_of("role", role, _ROLES)
    if not isinstance(content, str):
        spoken = "output_text" if role == "assistant" else "input_text"
        content = [
            {"type": spoken, "text": part} if isinstance(part, str) else as_object(part, "a part of a message")
            for part in _parts("content", content)
        ]
        if not content:
            raise BadEntry("the content of a message has no part", where="/item/content", next_step='"" says nothing')
    return form_item({"type": "message", "role": role, "content": content})


def _parts(name: str, value: Iterable[Any]) -> Iterable[Any]:
    """Several parts. Raises BadEntry for one, or for what is none."""
    if isinstance(value, Iterable) and not isinstance(value, (Mapping, bytes, bytearray)):
        return value
    raise BadEntry(
        f"the {name} is a text or a list of parts, not {type(value).__name__}",
        where=f"/item/{name}",
        next_step="give a str, which may be JSON text, or a list",
    )
