"""The request settings in force at a point on a path, and how config entries and checkpoints change them.

Owns the replay of format.md §7 exactly as context.md §1.1 orders it, and the checkpoint shape of §1.5. Values are plain
JSON as recorded, never normal form: what a request makes of them is :mod:`~agentsession_cas.core.request`. Settings are
immutable, and so are the values they share with the entries they came from: do not change them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag
from typing import Any, Final

from agentsession_cas.core.instructions import (
    Lists,
    Texts,
    decode_elements,
    instructions_delta,
    is_unresolved,
    join_instructions,
    omitted_delta,
    read_part,
    remember_parts,
    resolve_omitted,
    resolve_parts,
)
from agentsession_cas.core.omit import OmitRules, omit_delta
from agentsession_cas.core.reading import members, text

__all__ = ["EMPTY", "Replay", "Settings", "Unresolved", "apply", "from_checkpoint", "tool_name"]

Json = dict[str, Any]


class Unresolved(Flag):
    """What a config entry named that its path could not resolve; verify warns of it (context.md §1.2, §1.3)."""

    NONE = 0
    PART = 1
    """An element of ``instructions_parts``."""
    OF = 2
    """A keep with an ``of`` in ``instructions_omitted``."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings in force. An empty member is an absent one.

    ``instructions_parts`` are the parts the instructions were composed of (see
    :mod:`~agentsession_cas.core.instructions` for their form), ``instructions_omitted`` the parts a writer left out,
    ``omit`` the object in force. Two are equal when these visible members are; what deltas may still name of the past
    (texts that left force, omitted lists) does not count.
    """

    model: str = ""
    instructions: str = ""
    instructions_parts: tuple[Json, ...] = ()
    instructions_omitted: tuple[Json, ...] = ()
    reasoning: Json = field(default_factory=dict)
    text: Json = field(default_factory=dict)
    omit: Json = field(default_factory=dict)
    tools: tuple[Json, ...] = ()
    extra: Json = field(default_factory=dict)
    _texts: Texts = field(default_factory=dict, repr=False, compare=False)
    _lists: Lists = field(default_factory=dict, repr=False, compare=False)

    def checkpoint(self) -> Json:
        """The full settings as a compaction's ``config`` carries them, empty members left out (context.md §1.5)."""
        members: Json = {
            "model": self.model,
            "instructions": self.instructions,
            "instructions_parts": list(self.instructions_parts),
            "instructions_omitted": list(self.instructions_omitted),
            "omit": self.omit,
            "reasoning": self.reasoning,
            "text": self.text,
            "tools": list(self.tools),
            "extra": self.extra,
        }
        return {name: value for name, value in members.items() if value}

    def instructions_delta(self, want: Sequence[Mapping[str, Any]]) -> Json | None:
        """The config members that take the instructions to the parts ``want``, None when they are in force.

        ``want`` holds ``{"id", "text", "source"?}`` each, ids unique (format.md §7). Raises BadEntry for anything else.
        """
        return instructions_delta(
            want, parts=self.instructions_parts, instructions=self.instructions, texts=self._texts
        )

    def omitted_delta(self, want: Sequence[Json]) -> list[Json] | None:
        """The ``instructions_omitted`` member that takes the omitted parts to ``want``, None when they are in force."""
        return omitted_delta(want, prev=self.instructions_omitted, lists=self._lists)

    def omit_delta(self, want: Mapping[str, Any]) -> Json | None:
        """The ``omit`` member that takes the object in force to ``want``, None when it is in force (context.md §1.4).

        Raises BadInput when no single member does.
        """
        return omit_delta(self.omit, want)


EMPTY: Final = Settings()
"""The settings before any config entry."""


class Replay:
    """Settings while a path is replayed, root first; each step costs what its own entry holds.

    Hand it config entries with :meth:`config` and checkpoints with :meth:`checkpoint`, then take :meth:`settings`.
    """

    __slots__ = (
        "_extra",
        "_instructions",
        "_lists",
        "_model",
        "_omit",
        "_omitted",
        "_parts",
        "_reasoning",
        "_text",
        "_texts",
        "_tools",
    )

    def __init__(self, settings: Settings = EMPTY) -> None:
        self._start(settings)

    def _start(self, settings: Settings) -> None:
        self._model = settings.model
        self._instructions: str | None = settings.instructions  # None: the parts joined, when somebody asks
        self._parts: Sequence[Json] = settings.instructions_parts
        self._omitted: Sequence[Json] = settings.instructions_omitted
        self._reasoning = settings.reasoning
        self._text = settings.text
        self._omit = OmitRules(settings.omit)
        self._tools: list[Json] = list(settings.tools)
        self._extra: Json = dict(settings.extra)
        self._texts: Texts = dict(settings._texts)
        self._lists: Lists = dict(settings._lists)

    def settings(self) -> Settings:
        """The settings in force after what was replayed so far."""
        return Settings(
            self._model,
            join_instructions(self._parts) if self._instructions is None else self._instructions,
            tuple(self._parts),
            tuple(self._omitted),
            self._reasoning,
            self._text,
            self._omit.value(),
            tuple(self._tools),
            dict(self._extra),
            dict(self._texts),
            dict(self._lists),
        )

    def checkpoint(self, config: Mapping[str, Any]) -> None:
        """Start from a compaction's ``config``; a member that does not decode reads as absent (context.md §1.5)."""
        self._start(EMPTY)
        self._model = text(config, "model")
        self._parts = [read_part(part) for part in _objects(config, "instructions_parts")]
        self._instructions = text(config, "instructions")
        if not self._instructions and not any(map(is_unresolved, self._parts)):
            self._instructions = None
        self._omitted = tuple(_objects(config, "instructions_omitted"))
        self._reasoning = members(config, "reasoning") or {}
        self._text = members(config, "text") or {}
        self._omit.merge(config.get("omit"))
        self._tools = list(_objects(config, "tools"))
        extra = members(config, "extra") or {}
        self._extra = {name: value for name, value in extra.items() if value is not None}

    def config(self, entry_id: str, delta: Mapping[str, Any]) -> Unresolved:
        """Apply the delta of one config entry, in the order of context.md §1.1; says what it could not resolve."""
        if delta.get("replace") is True:
            self._start(EMPTY)
        unresolved = self._change_omitted(entry_id, delta)
        if delta.get("omit") is not None:
            self._omit.merge(delta["omit"])
        self._model = text(delta, "model") or self._model
        unresolved |= self._change_instructions(delta)
        reasoning, format_ = members(delta, "reasoning"), members(delta, "text")
        self._reasoning = self._reasoning if reasoning is None else reasoning
        self._text = self._text if format_ is None else format_
        self._change_tools(delta)
        for name, value in (members(delta, "extra") or {}).items():
            if value is None:
                self._extra.pop(name, None)
            else:
                self._extra[name] = value
        return unresolved

    def _change_omitted(self, entry_id: str, delta: Mapping[str, Any]) -> Unresolved:
        elements = decode_elements(delta.get("instructions_omitted"))
        if elements is None:
            return Unresolved.NONE
        resolved, bad_of = resolve_omitted(elements, self._omitted, self._lists)
        self._omitted = self._lists[entry_id] = tuple(resolved)
        return Unresolved.OF if bad_of else Unresolved.NONE

    def _change_instructions(self, delta: Mapping[str, Any]) -> Unresolved:
        elements = _objects(delta, "instructions_parts")
        given = delta.get("instructions")
        if not elements and not isinstance(given, str):
            return Unresolved.NONE
        parts, failed = resolve_parts(elements, self._parts, self._texts)
        remember_parts(self._texts, self._parts, parts)
        self._parts = parts
        stands = isinstance(given, str) and (not elements or any(map(is_unresolved, parts)))
        self._instructions = given if stands else None
        return Unresolved.PART if failed else Unresolved.NONE

    def _change_tools(self, delta: Mapping[str, Any]) -> None:
        removed = delta.get("tools_removed")
        added = _objects(delta, "tools_added")
        if isinstance(removed, list) and removed:
            names = {name for name in removed if isinstance(name, str) and name}
            self._tools = [tool for tool in self._tools if tool_name(tool) not in names]
        # a tool takes the place of those of its name before it; one without a name, of none
        newest = {tool_name(tool): at for at, tool in enumerate(added)}
        newest.pop("", None)
        if newest:
            self._tools = [tool for tool in self._tools if tool_name(tool) not in newest]
        self._tools += [tool for at, tool in enumerate(added) if newest.get(tool_name(tool), at) == at]


def apply(settings: Settings, entry_id: str, delta: Mapping[str, Any]) -> Settings:
    """The settings after the config entry ``entry_id`` whose body is ``delta``; ``settings`` stay as they are."""
    replay = Replay(settings)
    replay.config(entry_id, delta)
    return replay.settings()


def from_checkpoint(config: Mapping[str, Any]) -> Settings:
    """The settings a compaction's ``config`` starts a path with (context.md §1.5)."""
    replay = Replay()
    replay.checkpoint(config)
    return replay.settings()


def tool_name(tool: Mapping[str, Any]) -> str:
    """The name a tool is added and removed by, "" for one without (context.md §1.1)."""
    return text(tool, "name")


def _objects(members: Mapping[str, Any], name: str) -> list[Json]:
    return decode_elements(members.get(name)) or []
