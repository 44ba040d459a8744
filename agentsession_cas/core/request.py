"""The request a model receives as the format hashes it: one JSON object R in normal form (openresponses.md §2).

Owns which members R has, and the two ways back: the config entry for the settings a request was sent with, and the
entries of one model call. How an item, a part or a tool is written is :mod:`~agentsession_cas.core.normalform`. Knows
nothing of paths: settings and items come from :mod:`~agentsession_cas.core.context`. R shares opaque values with the
entries it came from: do not change them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.given import JsonObject, as_object
from agentsession_cas.core.identity import hash_bytes
from agentsession_cas.core.instructions import SEPARATOR, decode_elements, is_unresolved, join_instructions, read_part
from agentsession_cas.core.normalform import Form, form_item, form_reasoning, form_text, form_tool, is_empty
from agentsession_cas.core.normalise import normalise, normalised_body
from agentsession_cas.core.payload import ITEM
from agentsession_cas.core.settings import EMPTY, Settings, apply, tool_name
from agentsession_cas.errors import BadEntry, BadInput, BadJSON

__all__ = [
    "check_tools",
    "compose",
    "config_body_from_request",
    "config_body_from_request_parts",
    "normal_form",
    "record_response_bodies",
    "request_hash",
    "request_members",
]

Json = dict[str, Any]

_DROPPED: Final = frozenset({"store", "previous_response_id", "input"})
"""Names an extra never gives R."""
_MEMBERS_TOLD: Final = 6
_ONE_CALL: Final = _DROPPED | {"stream", "stream_options", "background"}
"""Members of a request that are about the one call and no setting."""


def compose(settings: Settings, items: Sequence[Json], form: Form = Form.NORMAL) -> Json:
    """R for settings in force and the items selected (openresponses.md §2). An empty member is left out."""
    members: Json = {
        "model": settings.model,
        "instructions": settings.instructions,
        "reasoning": form_reasoning(settings.reasoning, form),
        "text": form_text(settings.text, form),
        "tools": [form_tool(tool, form) for tool in settings.tools],
        "input": [form_item(item, form) for item in items],
    }
    request: Json = {"store": False}
    request.update((name, value) for name, value in members.items() if value)
    for name, value in settings.extra.items():
        if name not in request and name not in _DROPPED:
            request[name] = value
    return request


def request_hash(request: Mapping[str, Any]) -> str:
    """The hash of R. Raises BadJSON for a value no line can hold (openresponses.md §2)."""
    return hash_bytes(canonical(request))


def request_members(request: JsonObject) -> Json:
    """The members of a request as it was sent. Raises BadInput for what is none, or has ``messages`` for its input."""
    members = as_object(request, "the request")
    if "messages" in members and "input" not in members:
        raise BadInput(
            "a request in another form than Open Responses: it has messages, where an input of items is needed",
            where="/messages",
            next_step="append the conversation as items, and give what session.context().request() gives",
        )
    return members


def check_tools(tools: Iterable[Mapping[str, Any]], where: str) -> None:
    """Raise BadInput for a function tool without a name: one in another form, which no call could name."""
    for at, tool in enumerate(tools):
        if tool.get("type") == "function" and not tool_name(tool):
            raise BadInput(
                "a function tool has no name",
                where=f"{where}/{at}",
                next_step="give name, description and parameters as members of the tool itself",
            )


def normal_form(request: Mapping[str, Any]) -> Json:
    """R of a request as it was sent (openresponses.md §2, "What a writer hashes"): ``request`` is the JSON object.

    A string ``input`` is the one user message it stands for; what is about the one call alone is left out. Raises
    BadInput for an ``input`` that is neither text nor a list of items.
    """
    named, extra = _settings_of(request)
    settings = Settings(
        model=named.get("model", ""),
        instructions=named.get("instructions", ""),
        reasoning=named.get("reasoning", {}),
        text=named.get("text", {}),
        tools=tuple(named.get("tools", ())),
        extra=extra,
    )
    return compose(settings, _input_items(request.get("input")))


def config_body_from_request(request: Mapping[str, Any]) -> Json:
    """The body of the ``config`` entry holding every setting a request was sent with, in normal form.

    It has ``replace``, so it stands alone wherever it is put; replayed, it gives the request's R over the same items.
    Raises BadInput for a function tool without a name.
    """
    named, extra = _settings_of(request)
    check_tools(named.get("tools", ()), "/tools")
    body: Json = {
        "model": named.get("model"),
        "instructions": named.get("instructions"),
        "reasoning": form_reasoning(named.get("reasoning", {})),
        "text": form_text(named.get("text", {})),
        "tools_added": [form_tool(tool) for tool in named.get("tools", ())],
        "extra": extra,
    }
    return {"replace": True, **{name: value for name, value in body.items() if value}}


def config_body_from_request_parts(request: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> Json:
    """:func:`config_body_from_request` with the instructions as named parts, ``{"id", "text", "source"?}`` each.

    Raises BadEntry for a part without an id or text, an id named twice, and parts that do not join to the request's
    instructions: those are what the model received.
    """
    read = [read_part(dict(part)) for part in parts]
    if any(map(is_unresolved, read)) or len({part["id"] for part in read}) != len(read):
        raise BadEntry("each instruction part needs an id of its own and its text", where="/instructions_parts")
    body = config_body_from_request(request)
    if join_instructions(read) != body.get("instructions", ""):
        raise BadEntry(
            "the instruction parts do not join to the request's instructions",
            where="/instructions_parts",
            next_step=f"join their texts with {SEPARATOR!r}",
        )
    if read:
        body.pop("instructions", None)
        body["instructions_parts"] = read
    return body


def record_response_bodies(
    request: JsonObject, response: JsonObject, latency_ms: int | None = None
) -> list[tuple[str, Json]]:
    """The entries of one model call, as (type, body): its output items verbatim, then the ``response`` entry.

    ``request`` is the request as sent, ``response`` the response resource, ``latency_ms`` milliseconds (None or 0: left
    out). No hash is recorded where none could verify: for a request with a ``previous_response_id``, since no path
    holds what the model saw, and for output of a response without an id, which nothing tells from input. Raises BadJSON
    for a request that no entries could hold, BadInput for a response without ``output``, a list of items, and as
    :func:`request_members` and :func:`normal_form` do.
    """
    request = request_members(request)
    response = as_object(response, "the response")
    response_id = response.get("id")
    named = isinstance(response_id, str) and response_id != ""
    owner = {"response": response_id} if named else {}
    entries: list[tuple[str, Json]] = [("item", {"item": item, **owner}) for item in _output_items(response)]
    hashed = not request.get("previous_response_id") and (named or not entries)
    body: Json = {
        "response_id": response_id,
        "model": response.get("model"),
        "status": response.get("status"),
        "usage": response.get("usage"),
        "incomplete": response.get("incomplete_details"),
        "error": response.get("error"),
        "request_hash": _hash_as_recorded(request) if hashed else None,
        "latency_ms": latency_ms or None,
    }
    entries.append(("response", {name: value for name, value in body.items() if value is not None}))
    return entries


def _hash_as_recorded(request: Mapping[str, Any]) -> str:
    """The hash of R over values as its entries hold them: what no line may hold was normalised there (format.md §4)."""
    try:
        return request_hash(normal_form(request))
    except BadJSON:
        settings = apply(EMPTY, "", normalised_body("config", config_body_from_request(request)))
        items = [normalise(item, ITEM)[0] for item in _input_items(request.get("input"))]
        return request_hash(compose(settings, items))


def _settings_of(request: Mapping[str, Any]) -> tuple[Json, Json]:
    """A request's named settings, and every other member that is one, under its wire name.

    A named member in a form no setting has (two tools of one name among them) stays with the others: ``extra`` gives it
    back to R as it was sent.
    """
    named: Json = {}
    extra: Json = {}
    for name, value in request.items():
        if value is None or name in _ONE_CALL:
            continue
        is_setting = _IS_SETTING.get(name)
        place = named if is_setting is not None and is_setting(value) else extra
        place[name] = value
    return named, extra


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _are_tools(value: object) -> bool:
    tools = decode_elements(value)
    if tools is None:
        return False
    names = [name for tool in tools if (name := tool_name(tool))]
    return len(set(names)) == len(names)


_IS_SETTING: Final = {
    "model": _is_text,
    "instructions": _is_text,
    "reasoning": _is_object,
    "text": _is_object,
    "tools": _are_tools,
}


def _output_items(response: Json) -> list[Json]:
    output = response.get("output")
    if not isinstance(output, (list, tuple)):
        members = ", ".join([str(name) for name in response if name != "output"][:_MEMBERS_TOLD])
        raise BadInput(
            f"the response has no output, a list of items, but {members or 'nothing'}",
            where="/output",
            next_step="give an Open Responses response, or one put into its form (see the README)",
        )
    return [as_object(item, f"item {at} of the output") for at, item in enumerate(output)]


def _input_items(value: object) -> list[Json]:
    if is_empty(value):
        return []
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    items = decode_elements(value)
    if items is None:
        raise BadInput("the input of a request is neither text nor a list of items", where="/input")
    return items
