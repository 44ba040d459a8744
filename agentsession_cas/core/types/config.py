"""``config``: a delta to the request settings (format.md §5, §7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentsession_cas.core.entry import Draft
from agentsession_cas.core.given import JsonObject, as_list
from agentsession_cas.core.normalform import form_reasoning, form_text, form_tool
from agentsession_cas.core.reading import members, objects, text, texts
from agentsession_cas.core.request import (
    check_tools,
    config_body_from_request,
    config_body_from_request_parts,
    request_members,
)
from agentsession_cas.core.required import check_required
from agentsession_cas.core.types.members import Json, View, composed, own, owned

__all__ = ["ConfigView", "config", "config_from_request"]


class ConfigView(View):
    """A ``config`` entry. What it leaves out is unchanged."""

    __slots__ = ()

    @property
    def replace(self) -> bool:
        """Whether everything before is discarded first."""
        return self.body.get("replace") is True

    @property
    def model(self) -> str:
        """The model, "" when unchanged."""
        return text(self.body, "model")

    @property
    def instructions(self) -> str | None:
        """The instructions as one string; "" sets the empty one."""
        value = self.body.get("instructions")
        return value if isinstance(value, str) else None

    @property
    def instructions_parts(self) -> list[Json]:
        """The elements that name every part in force, as written."""
        return objects(self.body, "instructions_parts")

    @property
    def instructions_omitted(self) -> list[Json] | None:
        """The elements of the omitted list; [] clears it, None leaves it."""
        value = self.body.get("instructions_omitted")
        return objects(self.body, "instructions_omitted") if value or isinstance(value, list) else None

    @property
    def reasoning(self) -> Json | None:
        """The reasoning settings, whole."""
        return members(self.body, "reasoning")

    @property
    def text(self) -> Json | None:
        """The text settings, whole."""
        return members(self.body, "text")

    @property
    def tools_added(self) -> list[Json]:
        """Tools appended, each taking the place of one by its name."""
        return objects(self.body, "tools_added")

    @property
    def tools_removed(self) -> list[str]:
        """Names of tools dropped, before any is added."""
        return texts(self.body, "tools_removed")

    @property
    def extra(self) -> Json:
        """Other members of the request; a null value removes the key."""
        return members(self.body, "extra") or {}

    @property
    def omit(self) -> Json | None:
        """What requests leave out; {} clears."""
        return members(self.body, "omit")


def config(
    *,
    model: str = "",
    instructions: str | None = None,
    instructions_parts: Iterable[Mapping[str, Any]] = (),
    instructions_omitted: Iterable[Mapping[str, Any]] | None = None,
    reasoning: Mapping[str, Any] | None = None,
    text: Mapping[str, Any] | None = None,
    tools_added: Iterable[Mapping[str, Any]] = (),
    tools_removed: Iterable[str] = (),
    extra: Mapping[str, Any] | None = None,
    omit: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> Draft:
    """A delta to the settings in force, in normal form; ``replace`` discards all of them first.

    Raises BadEntry for lists of parts no writer may write (format.md §7), BadInput for a function tool without a name.
    ``instructions=""`` sets the empty string, ``instructions_omitted=[]`` and ``omit={}`` clear; None leaves each as it
    is.
    """
    added = [form_tool(tool) for tool in owned("tools_added", tools_added)]
    check_tools(added, "/tools_added")
    body = composed(
        {},
        model=model,
        instructions_parts=owned("instructions_parts", instructions_parts) or None,
        instructions_omitted=None if instructions_omitted is None else owned("omitted parts", instructions_omitted),
        reasoning=form_reasoning(own("reasoning", reasoning) or {}) or None,
        text=form_text(own("text", text) or {}) or None,
        tools_added=added or None,
        tools_removed=as_list(tools_removed, "tools_removed") or None,
        extra=own("extra", extra) or None,
        omit=own("omit", omit),
        replace=replace or None,
    )
    if instructions is not None:
        body["instructions"] = instructions
    check_required("config", body)
    return Draft("config", body)


def config_from_request(request: JsonObject, *, parts: Iterable[Mapping[str, Any]] = ()) -> Draft:
    """Every setting a request was sent with, as an entry that stands alone (openresponses.md §2).

    ``request`` is the JSON object sent. ``parts``, ``{"id", "text", "source"?}`` each, compose its instructions; they
    are recorded in place of the string. Raises BadInput for what is no request in the Open Responses form.
    """
    members = request_members(request)
    given = owned("parts", parts)
    if given:
        return Draft("config", config_body_from_request_parts(members, given))
    return Draft("config", config_body_from_request(members))
