"""Turns and what they are made of (ledger.md): the unit of a thread, its content blocks, its traversal control.

Owns the JSON form of a turn, as the Go package ``ledger`` writes it, and the registry of views by an artifact's kind.
Invariants: a turn and an artifact never change; members that nobody here knows are kept, at every depth, in their
order. Knows nothing of threads or of where turns are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, Final, Self, TypeVar

from agentsession_cas.core.given import as_list, as_object, require, require_text
from agentsession_cas.core.timestamps import canonical_ts, ts_to_ns
from agentsession_cas.effects.host import real_host
from agentsession_cas.errors import BadInput

__all__ = [
    "Artifact",
    "Metadata",
    "Reasoning",
    "Role",
    "Text",
    "ToolCall",
    "ToolResult",
    "TraversalControl",
    "Turn",
    "artifact_of",
    "copied",
    "generate_turn_id",
    "json_text",
    "register",
]

_ZERO_TIME: Final = "0001-01-01T00:00:00Z"
"""How Go writes a time that was never set."""


class Role(StrEnum):
    """Who speaks in a turn. A turn holds any other string as well."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class TraversalControl(StrEnum):
    """How a turn takes part in the walk from the tip; "" means ``continue``."""

    CONTINUE = "continue"
    STOP = "stop"
    SKIP = "skip"


def generate_turn_id() -> str:
    """16 hex characters that no one could have guessed."""
    return real_host().entropy.take(8).hex()


def json_text(value: object, name: str) -> str:
    """A value as compact JSON. Raises BadInput for what JSON, or UTF-8, cannot carry."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"{name} is no JSON: {error}", next_step="give strings, numbers, lists and objects") from None
    return text


def copied(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A deep copy of a JSON object. Raises BadInput for what JSON cannot carry."""
    members: dict[str, Any] = json.loads(json_text(as_object(value, name), name))
    return members


class Artifact:
    """A content block: a JSON object with its ``kind``. Views of known kinds are classes below it.

    ``members`` are those beside ``kind``. Raises BadInput for a kind that is no text, and for what JSON cannot carry.
    """

    __slots__ = ("_members", "kind")
    KIND: ClassVar = ""
    """The kind a view is of; "" for this class, which holds any."""

    def __init__(self, kind: str, members: Mapping[str, Any] | None = None) -> None:
        self.kind = require_text(kind, "the kind of an artifact")
        self._members = copied(members or {}, "an artifact")
        if "kind" in self._members:
            raise BadInput("an artifact has one kind", where="/kind", next_step="leave kind out of its members")

    def get(self, name: str, default: Any = None) -> Any:
        """A member, or ``default``."""
        return copied({name: self._members[name]}, name)[name] if name in self._members else default

    def to_json(self) -> dict[str, Any]:
        """The block as it is written: its kind, then its members."""
        return {"kind": self.kind, **copied(self._members, "an artifact")}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Artifact) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.kind)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({json_text(self.to_json(), 'an artifact')})"


_View = TypeVar("_View", bound=type[Artifact])
_VIEWS: Final[dict[str, type[Artifact]]] = {}


def register(view: _View) -> _View:
    """Read artifacts of a view's ``KIND`` as that view from now on; for use as a decorator. Raises BadInput for none.

    A view adds properties over :meth:`Artifact.get` and no state.
    """
    if not (isinstance(view, type) and issubclass(view, Artifact)):
        raise BadInput("what is registered is a class below Artifact")
    _VIEWS[require_text(view.KIND, "KIND", "name the kind the view is of")] = view
    return view


def artifact_of(members: Mapping[str, Any]) -> Artifact:
    """The artifact of a JSON object: a view when its kind is registered. Raises BadInput for one without a kind."""
    rest = dict(as_object(members, "an artifact"))
    kind = require_text(rest.pop("kind", None), "the kind of an artifact")
    view = _VIEWS.get(kind, Artifact)
    made = view.__new__(view)
    Artifact.__init__(made, kind, rest)
    return made


@register
class Text(Artifact):
    """Text."""

    __slots__ = ()
    KIND = "text"

    def __init__(self, content: str) -> None:
        super().__init__(self.KIND, {"content": require(content, str, "a text")})

    @property
    def content(self) -> str:
        """The text."""
        return str(self.get("content", ""))


@register
class Reasoning(Artifact):
    """What a model thought before it answered."""

    __slots__ = ()
    KIND = "reasoning"

    def __init__(self, content: str) -> None:
        super().__init__(self.KIND, {"content": require(content, str, "a reasoning")})

    @property
    def content(self) -> str:
        """The text."""
        return str(self.get("content", ""))


@register
class ToolCall(Artifact):
    """A call of a tool; ``arguments`` is the model's own text."""

    __slots__ = ()
    KIND = "tool_call"

    def __init__(self, id: str, name: str, arguments: str) -> None:
        members = {"id": id, "name": name, "arguments": arguments}
        super().__init__(self.KIND, {each: require(value, str, each) for each, value in members.items()})

    @property
    def id(self) -> str:
        """What its result names it by."""
        return str(self.get("id", ""))

    @property
    def name(self) -> str:
        """The tool."""
        return str(self.get("name", ""))

    @property
    def arguments(self) -> str:
        """The arguments, as the model wrote them."""
        return str(self.get("arguments", ""))


@register
class ToolResult(Artifact):
    """What a call gave."""

    __slots__ = ()
    KIND = "tool_result"

    def __init__(self, tool_call_id: str, content: str, is_error: bool = False) -> None:
        members: dict[str, Any] = {
            "tool_call_id": require(tool_call_id, str, "tool_call_id"),
            "content": require(content, str, "the content of a result"),
        }
        super().__init__(self.KIND, members | ({"is_error": True} if is_error else {}))

    @property
    def tool_call_id(self) -> str:
        """The call it answers."""
        return str(self.get("tool_call_id", ""))

    @property
    def content(self) -> str:
        """What came back."""
        return str(self.get("content", ""))

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return self.get("is_error") is True


@dataclass(frozen=True, slots=True)
class Metadata:
    """What is known of a turn beside what it says. ``extra`` holds members that are not of this package."""

    control: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require(self.control, str, "control", "give a TraversalControl")
        object.__setattr__(self, "extra", copied(self.extra, "extra"))

    def __hash__(self) -> int:
        return hash(self.control)

    def to_json(self) -> dict[str, Any]:
        """Its members; none when nothing is said."""
        return ({"control": str(self.control)} if self.control else {}) | copied(self.extra, "extra")


@dataclass(frozen=True, slots=True)
class Turn:
    """A place in a thread's tree, and what is said there.

    ``parent_id`` "" is a root. ``timestamp`` is an RFC 3339 time, kept as it is spelled, or an aware ``datetime``; ""
    is none. ``extra`` holds members that are not of this package. Raises BadInput and BadTimestamp for other values.
    """

    id: str
    parent_id: str = ""
    role: str = Role.USER
    artifacts: tuple[Artifact, ...] = ()
    timestamp: str = ""
    metadata: Metadata = Metadata()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_text(self.id, "the id of a turn", "take one from generate_turn_id()")
        require(self.parent_id, str, "parent_id")
        require(self.role, str, "role")
        require(self.metadata, Metadata, "metadata")
        blocks = tuple(require(each, Artifact, "an artifact") for each in as_list(self.artifacts, "artifacts"))
        for name, value in (("artifacts", blocks), ("timestamp", _time(self.timestamp))):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "extra", copied(self.extra, "extra"))
        json_text([self.id, self.parent_id, self.role, self.metadata.control], "a turn")

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def control(self) -> str:
        """Its traversal control; "" means ``continue``."""
        return self.metadata.control

    def controlled(self, control: str) -> Self:
        """This turn under another traversal control."""
        return replace(self, metadata=replace(self.metadata, control=control))

    def below(self, parent_id: str) -> Self:
        """This turn under another parent."""
        return replace(self, parent_id=parent_id)

    def to_json(self) -> dict[str, Any]:
        """Its members in the order they are written; a parent, a time and metadata that are empty are left out."""
        metadata = self.metadata.to_json()
        return {
            "id": self.id,
            **({"parent_id": self.parent_id} if self.parent_id else {}),
            "role": str(self.role),
            "artifacts": [each.to_json() for each in self.artifacts],
            **({"timestamp": self.timestamp} if self.timestamp else {}),
            **({"metadata": metadata} if metadata else {}),
            **copied(self.extra, "extra"),
        }

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Self:
        """The turn of a JSON object; what is absent or null is empty. Raises BadInput, BadTimestamp."""
        rest = dict(as_object(members, "a turn"))
        metadata = dict(as_object(_taken(rest, "metadata", {}), "metadata"))
        return cls(
            id=_taken(rest, "id", ""),
            parent_id=_taken(rest, "parent_id", ""),
            role=_taken(rest, "role", ""),
            artifacts=tuple(artifact_of(each) for each in as_list(_taken(rest, "artifacts", []), "artifacts")),
            timestamp=_taken(rest, "timestamp", ""),
            metadata=Metadata(_taken(metadata, "control", ""), metadata),
            extra=rest,
        )


def _taken(members: dict[str, Any], name: str, absent: Any) -> Any:
    """Take a member out; null is absent, as Go reads it."""
    value = members.pop(name, None)
    return absent if value is None else value


def _time(value: str | datetime | Iterable[Any]) -> str:
    if isinstance(value, datetime):
        return canonical_ts(value)
    text = require(value, str, "timestamp", "give an RFC 3339 time or an aware datetime")
    if text and text != _ZERO_TIME:
        ts_to_ns(text)
        return text
    return ""
