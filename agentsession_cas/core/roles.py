"""What every member of an entry and of a header is: text, data, a call, a hash, or the name of an entry or a session.

One table, read by whoever rewrites what a session says (:mod:`~agentsession_cas.core.rewrite`) and by whoever re-points
what it names (:mod:`~agentsession_cas.core.remap`), so that the two cannot disagree about a member (format.md §5, §7,
§8, §10). A member by a known name in a form or a place the format does not define is data, like one nobody knows.
Knows no entry and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

__all__ = ["DATA", "HEADER", "REFERENCES", "Role", "Spot", "body_spot"]

Json = Any


class Role(Enum):
    """What a string is, and so who may change it."""

    TEXT = auto()
    """Text of the writer's; a value that is no string here is ``DATA``."""
    PAYLOAD = auto()
    """What the payload defines: its strings are text, its member names are its own, at every depth."""
    DATA = auto()
    """What nobody but the writer defines: strings and member names, at every depth, are text."""
    FIXED = auto()
    """Kept as written, in whatever form."""
    CALL = auto()
    """A call_id, which pairs a call with what happened to it."""
    HASH = auto()
    """A hash of bytes that are elsewhere."""
    PART_HASH = auto()
    """The hash of an instruction part's text."""
    ENTRY = auto()
    """The id of one entry, which something has to stand in for when it is left out."""
    LEAF = auto()
    """The id of the entry a leaf label makes the leaf."""
    MEMBER = auto()
    """The id of one entry among others, lost when it is left out."""
    BOUND = auto()
    """The id of the first entry of a range."""
    SESSION = auto()
    """The id of a session."""


REFERENCES: Final = frozenset({Role.ENTRY, Role.LEAF, Role.MEMBER, Role.BOUND})
"""The roles of strings that name an entry of the session."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a value stands. A spot of an object has ``members`` or ``each``, one of a list ``elements``.

    ``rest`` is where a member that ``members`` does not name stands; ``each`` is for an object whose names are the
    writer's; ``narrow`` tells the spot from the value that stands there. ``names`` is whether a reference may stand at
    or below it, ``vanishes`` whether it goes when all it held is gone.
    """

    role: Role = Role.TEXT
    members: Mapping[str, Spot] = field(default_factory=dict)
    rest: Spot | None = None
    each: Spot | None = None
    elements: Spot | None = None
    narrow: Callable[[Json], Spot] | None = None
    names: bool = False
    vanishes: bool = False

    def at(self, value: Json) -> Spot:
        """The spot as this value makes it: ``DATA`` for one in a form the spot is not for."""
        spot = self if self.narrow is None else self.narrow(value)
        kind = type(value)
        if kind is dict:
            fits = bool(spot.members) or spot.each is not None
        elif kind is list:
            fits = spot.elements is not None
        else:
            fits = not (spot.members or spot.each or spot.elements)
        return spot if fits or spot.role in _ANY_FORM else DATA

    def inside(self, name: str) -> Spot:
        """Where a member of an object that stands here stands; the spot is one that :meth:`at` gave."""
        if self.role in _ANY_FORM:
            return self
        return self.each or self.members.get(name) or self.rest or DATA


DATA: Final = Spot(Role.DATA)
_ANY_FORM: Final = frozenset({Role.DATA, Role.PAYLOAD, Role.FIXED})
_TEXT: Final = Spot()
_PAYLOAD: Final = Spot(Role.PAYLOAD)
_FIXED: Final = Spot(Role.FIXED)
_CALL: Final = Spot(Role.CALL)
_HASH: Final = Spot(Role.HASH)
_ENTRY: Final = Spot(Role.ENTRY, names=True)
_LEAF: Final = Spot(Role.LEAF, names=True)
_BOUND: Final = Spot(Role.BOUND, names=True)
_SESSION: Final = Spot(Role.SESSION, names=True)
_MEMBER: Final = Spot(Role.MEMBER, names=True)
_MEMBERS: Final = Spot(elements=_MEMBER, names=True, vanishes=True)


def _object(**members: Spot) -> Spot:
    return Spot(members=members, names=any(spot.names for spot in members.values()))


def _list_of(element: Spot) -> Spot:
    return Spot(elements=element, names=element.names)


def _texts(*names: str) -> dict[str, Spot]:
    return dict.fromkeys(names, _TEXT)


_CALL_ITEM: Final = frozenset({"function_call", "function_call_output"})
_PAIRING: Final = Spot(members={"call_id": _CALL}, rest=_PAYLOAD)


def _item_spot(value: Json) -> Spot:
    named = value.get("type") if type(value) is dict else None
    return _PAIRING if isinstance(named, str) and named in _CALL_ITEM else _PAYLOAD


_ITEM: Final = Spot(narrow=_item_spot)
_TRIGGER: Final = _object(**_texts("kind", "ref", "source"))
_PART: Final = _object(**_texts("id", "text", "source"), hash=Spot(Role.PART_HASH))
_LEFT_OUT: Final = _object(**_texts("id", "reason", "source"))
_KEPT: Final = _object(**_texts("reason", "source"), of=_ENTRY)


def _omitted_spot(value: Json) -> Spot:
    """An omitted part; one without an id that is a keep may name the config whose list it counts over (§7)."""
    if type(value) is not dict or (isinstance(value.get("id"), str) and value["id"]):
        return _LEFT_OUT
    keep = value.get("keep")
    return _KEPT if type(keep) is int and keep > 0 else _LEFT_OUT


_OMITTED: Final = Spot(narrow=_omitted_spot, names=True)
_BEFORE: Final = _object(placeholder=_TEXT, before=_BOUND)
_KEEPING: Final = _object(placeholder=_TEXT)


def _images_spot(value: Json) -> Spot:
    """The ``images`` of an omit: ``before`` names an entry in the one form that has no ``keep`` (§8)."""
    named = type(value) is dict and value.get("keep") is None and isinstance(value.get("placeholder"), str)
    return _BEFORE if named else _KEEPING


_LISTED: Final = _object(text=_TEXT, items=_MEMBERS)
_UNLISTED: Final = _object(text=_TEXT)


def _outputs_spot(value: Json) -> Spot:
    return _LISTED if type(value) is dict and isinstance(value.get("text"), str) and _are_ids(value) else _UNLISTED


_OMITS: Final = Spot(
    members={
        "reasoning": _TEXT,
        "items": _MEMBERS,
        "outputs": Spot(narrow=_outputs_spot, names=True),
        "images": Spot(narrow=_images_spot, names=True),
    },
    names=True,
    vanishes=True,
)


def _omit_spot(value: Json) -> Spot:
    """An omit that decodes; one that does not has no effect, so it names nothing (context.md §1.4)."""
    if type(value) is not dict or not _are_ids(value):
        return DATA
    return _OMITS if isinstance(value.get("reasoning"), str | None) else DATA


def _are_ids(value: Mapping[str, Json]) -> bool:
    items = value.get("items")
    return items is None or (isinstance(items, list) and all(isinstance(each, str) for each in items))


_OMIT: Final = Spot(narrow=_omit_spot, names=True)
_SETTINGS: Final = {
    **_texts("model", "instructions"),
    "instructions_parts": _list_of(_PART),
    "reasoning": _PAYLOAD,
    "text": _PAYLOAD,
    "omit": _OMIT,
    "extra": DATA,
}
_HASHED_NAMES: Final = Spot(each=_HASH)
_LINK: Final = {**_texts("rel", "url", "task", "context", "cancel"), "session": _SESSION, "call_id": _CALL}
_LINKED: Final = _object(**_LINK)
_TARGETED: Final = _object(**_LINK, target=_ENTRY)


def _link_spot(value: Json) -> Spot:
    """A link; only ``judged_by`` and a cancel notice have a target (format.md §9)."""
    return _TARGETED if value.get("rel") == "judged_by" or value.get("cancel") == "sent" else _LINKED


_LABEL: Final = _object(label=_TEXT, target=_ENTRY)
_LEAF_LABEL: Final = _object(label=_TEXT, target=_LEAF)


def _label_spot(value: Json) -> Spot:
    return _LEAF_LABEL if value.get("label") == "leaf" else _LABEL


_CORE: Final[dict[str, Spot]] = {
    "item": _object(item=_ITEM, response=_TEXT, source=_TRIGGER, queued_from=_MEMBER, from_link=_MEMBER),
    "response": _object(
        **_texts("response_id", "model", "status"),
        usage=_PAYLOAD,
        incomplete=_PAYLOAD,
        error=_PAYLOAD,
        request_hash=_HASH,
    ),
    "config": _object(
        **_SETTINGS,
        instructions_omitted=_list_of(_OMITTED),
        tools_added=_PAYLOAD,
        tools_removed=_list_of(_TEXT),
    ),
    "compaction": _object(
        first_kept=_BOUND,
        summary=_ITEM,
        pinned=_list_of(_ITEM),
        config=_object(**_SETTINGS, instructions_omitted=_list_of(_LEFT_OUT), tools=_PAYLOAD),
        usage=_PAYLOAD,
    ),
    "branch_summary": _object(**{"from": _ENTRY}, summary=_ITEM, usage=_PAYLOAD),
    "run": _object(**_texts("run_id", "phase", "source", "ref", "reason"), trigger=_TRIGGER, pending=_list_of(_CALL)),
    "dispatch": _object(call_id=_CALL, target=_ENTRY, idempotency_key=_TEXT),
    "decision": _object(**_texts("verdict", "by", "reason"), call_id=_CALL, target=_ENTRY, args=DATA),
    "queued": _object(item=_ITEM, trigger=_TRIGGER, **_texts("mode", "ref")),
    "label": Spot(narrow=_label_spot, names=True),
    "info": _object(name=_TEXT),
    "env": _object(
        cwd=_TEXT,
        vcs=_object(**_texts("system", "revision")),
        files=_object(read=_HASHED_NAMES, written=_HASHED_NAMES),
        tools=Spot(each=_TEXT),
        workspace=_object(**_texts("kind", "ref", "host", "instance")),
    ),
    "outcome": _object(**_texts("kind", "label"), target=_ENTRY, details=DATA),
    "link": Spot(narrow=_link_spot, names=True),
    "custom": _object(ns=_TEXT, call_id=_CALL, data=DATA),
}
_OPAQUE: Final = Spot(each=DATA)

HEADER: Final = _object(
    **dict.fromkeys(("type", "format", "id", "created_at", "payload", "records", "media"), _FIXED),
    **dict.fromkeys(("redacted", "redacted_from", "base"), _FIXED),
    parent_session=_SESSION,
    spawned_by=_CALL,
    cwd=_TEXT,
    harness=_object(**_texts("name", "version")),
)
"""A header. What a redaction writes itself is fixed here, and the base, which is no entry of a body's."""


def body_spot(type_: str) -> Spot:
    """Where the body of an entry of a type stands, its ``legacy_id``, ``redacted`` and ``normalised`` apart.

    An extension's, or that of a type nobody knows, is an object of the writer's alone.
    """
    return _CORE.get(type_, _OPAQUE)
