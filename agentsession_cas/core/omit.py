"""What a request leaves out of the items on a path, or sends a placeholder for (format.md §8, context.md §1.4).

Owns the ``omit`` object: reading one, extending the one in force, the delta a writer needs, and applying the one in
force at the end of a path to the items selected there. Knows nothing of how items are selected nor of models in force:
both are handed in. An object in force is plain JSON holding only what has an effect; recorded items are never changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from agentsession_cas.errors import BadInput

__all__ = [
    "IMAGES",
    "ITEMS",
    "OTHER_MODELS",
    "OUTPUTS",
    "OmitRules",
    "Slot",
    "apply_omit",
    "omit_delta",
]

Json = dict[str, Any]

OTHER_MODELS: Final = "other_models"
ITEMS: Final = "items"
OUTPUTS: Final = "outputs"
IMAGES: Final = "images"


class Slot(NamedTuple):
    """One item of a request: the entry giving it, and whether that is an ``item`` entry, which alone omit reaches."""

    position: int
    entry: str
    item: Json
    reached: bool


class _Named(NamedTuple):
    """What an ``omit`` member names. ``odd``: it holds a placeholder in a form the format lacks, so it never clears."""

    reasoning: str
    items: list[str]
    outputs: Json | None
    images: Json | None
    odd: bool


class OmitRules:
    """The omit in force while a path is replayed: :meth:`merge` each delta, then take the :meth:`value`."""

    __slots__ = ("_images", "_items", "_outputs", "_reasoning", "_text")

    def __init__(self, in_force: Mapping[str, Any] | None = None) -> None:
        self._clear()
        if in_force:
            self.merge(in_force)

    def _clear(self) -> None:
        self._reasoning = ""
        self._items: dict[str, None] = {}
        self._text: str | None = None
        self._outputs: dict[str, None] = {}
        self._images: Json | None = None

    def merge(self, delta: object) -> None:
        """Extend what is in force by one delta member; one that does not decode changes nothing."""
        named = _read(delta)
        if named is None:
            return
        if not (named.reasoning or named.items or named.outputs or named.images or named.odd):
            self._clear()
            return
        if named.reasoning == OTHER_MODELS:
            self._reasoning = OTHER_MODELS
        self._items.update(dict.fromkeys(named.items))
        if named.outputs is not None:
            self._text = named.outputs["text"]
            self._outputs.update(dict.fromkeys(named.outputs["items"]))
        if named.images is not None:
            self._images = named.images

    def value(self) -> Json:
        """The object in force, empty members left out; {} when there is none."""
        value: Json = {}
        if self._reasoning:
            value["reasoning"] = self._reasoning
        if self._items:
            value["items"] = list(self._items)
        if self._text is not None:
            value["outputs"] = {"text": self._text}
            if self._outputs:
                value["outputs"]["items"] = list(self._outputs)
        if self._images is not None:
            value["images"] = self._images
        return value


def omit_delta(in_force: Mapping[str, Any], want: Mapping[str, Any]) -> Json | None:
    """The ``omit`` member that takes the object in force to ``want``, or None when it is in force (context.md §1.4).

    Raises BadInput when no single member does: ``want`` drops something and keeps something, or names a rule the format
    lacks. A config entry with ``replace`` carries ``want`` itself, not this delta.
    """
    named = _read(want)
    if named is None or named.odd or named.reasoning not in ("", OTHER_MODELS):
        raise BadInput("the omit names a rule the format does not have", where="/omit")
    held, wanted = OmitRules(in_force).value(), OmitRules(want).value()
    if not wanted:
        return {} if held else None
    if _drops(held, wanted):
        raise BadInput(
            "no single omit member drops one rule and keeps another",
            where="/omit",
            next_step="write {} in one config entry, then what stays in the next",
        )
    delta: Json = {}
    if "reasoning" in wanted and "reasoning" not in held:
        delta["reasoning"] = wanted["reasoning"]
    if added := _added(held.get("items"), wanted.get("items")):
        delta["items"] = added
    outputs, outputs_held = wanted.get("outputs"), held.get("outputs")
    if outputs:
        added = _added(outputs_held and outputs_held.get("items"), outputs.get("items"))
        if added or outputs_held is None or outputs["text"] != outputs_held["text"]:
            delta["outputs"] = {"text": outputs["text"], "items": added} if added else {"text": outputs["text"]}
    if "images" in wanted and wanted["images"] != held.get("images"):
        delta["images"] = wanted["images"]
    return delta or None


def apply_omit(
    omit: Mapping[str, Any], slots: Sequence[Slot], foreign: Collection[int], before: int
) -> tuple[list[Slot], list[Json], list[Json]]:
    """Apply the omit in force at the end of a path to the items selected on it, in path order (context.md §1.4).

    ``foreign`` are the positions of reasoning items written under a model other than the one at the end, ``before`` the
    position of the entry an ``images`` rule names, -1 when it is not on the path. Returns the slots that are sent, the
    report of those left out (``{entry, reason}``) and that of those changed (``{entry, reason, parts}``).
    """
    kept: list[Slot] = []
    omitted: list[Json] = []
    replaced: list[Json] = []
    listed = set(omit.get("items", ()))
    outputs = omit.get("outputs", {})
    muted = set(outputs.get("items", ()))
    for slot in slots:
        if not slot.reached:
            kept.append(slot)
        elif slot.entry in listed:
            omitted.append({"entry": slot.entry, "reason": ITEMS})
        elif slot.position in foreign:
            omitted.append({"entry": slot.entry, "reason": OTHER_MODELS})
        elif slot.entry in muted and slot.item.get("type") == "function_call_output":
            kept.append(slot._replace(item={**slot.item, "output": outputs["text"]}))
            replaced.append({"entry": slot.entry, "reason": OUTPUTS, "parts": 0})
        else:
            kept.append(slot)
    if "images" in omit:
        kept, images = _replace_images(omit["images"], kept, before)
        replaced = _in_path_order(kept, replaced, images)
    return kept, omitted, replaced


def _read(value: object) -> _Named | None:
    """What an ``omit`` member names, or None for one that does not decode as the object."""
    if not isinstance(value, Mapping):
        return None
    reasoning = value.get("reasoning")
    items = _ids(value.get("items"))
    if not (reasoning is None or isinstance(reasoning, str)) or items is None:
        return None
    outputs, images = value.get("outputs"), value.get("images")
    read_outputs, read_images = _read_outputs(outputs), _read_images(images)
    odd = (outputs is not None and read_outputs is None) or (images is not None and read_images is None)
    return _Named(reasoning or "", items, read_outputs, read_images, odd)


def _ids(value: object) -> list[str] | None:
    """The non-empty ids of a list of strings, [] for an absent one, None for anything else."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(id_, str) for id_ in value):
        return None
    return [id_ for id_ in value if id_]


def _read_outputs(value: object) -> Json | None:
    if not isinstance(value, Mapping) or not isinstance(value.get("text"), str):
        return None
    items = _ids(value.get("items"))
    return None if items is None else {"text": value["text"], "items": items}


def _read_images(value: object) -> Json | None:
    if not isinstance(value, Mapping) or not isinstance(value.get("placeholder"), str):
        return None
    keep, before = value.get("keep"), value.get("before")
    if before is None and type(keep) is int and keep >= 0:
        return {"keep": keep, "placeholder": value["placeholder"]}
    if keep is None and isinstance(before, str) and before:
        return {"before": before, "placeholder": value["placeholder"]}
    return None


def _added(held: Iterable[str] | None, wanted: Iterable[str] | None) -> list[str]:
    known = set(held or ())
    return [id_ for id_ in wanted or () if id_ not in known]


def _drops(held: Json, wanted: Json) -> bool:
    """Whether ``wanted`` lacks anything that is in force."""
    if any(name not in wanted for name in held):
        return True
    outputs, outputs_held = wanted.get("outputs", {}), held.get("outputs", {})
    return bool(
        _added(wanted.get("items"), held.get("items")) or _added(outputs.get("items"), outputs_held.get("items"))
    )


def _image_list(item: Json) -> tuple[str, list[Any]]:
    """The member of an item that may hold images, and its parts."""
    name = {"message": "content", "function_call_output": "output"}.get(str(item.get("type")), "")
    parts = item.get(name) if name else None
    return name, parts if isinstance(parts, list) else []


def _is_image(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "input_image"


def _replace_images(rule: Json, slots: list[Slot], before: int) -> tuple[list[Slot], dict[str, int]]:
    """The slots with a placeholder for each image the rule reaches, and how many by entry."""
    counts = [sum(map(_is_image, _image_list(slot.item)[1])) if slot.reached else 0 for slot in slots]
    left = max(0, sum(counts) - rule["keep"]) if "keep" in rule else 0
    placeholder = {"type": "input_text", "text": rule["placeholder"]}
    result: list[Slot] = []
    replaced: dict[str, int] = {}
    for slot, count in zip(slots, counts, strict=True):
        reach = min(count, left) if "keep" in rule else count if slot.position < before else 0
        left -= reach
        if reach:
            slot = slot._replace(item=_with_placeholders(slot.item, reach, placeholder))
            replaced[slot.entry] = reach
        result.append(slot)
    return result, replaced


def _with_placeholders(item: Json, count: int, placeholder: Json) -> Json:
    """The item with its first ``count`` images replaced."""
    name, parts = _image_list(item)
    changed: list[Any] = []
    for part in parts:
        if count and _is_image(part):
            changed.append(dict(placeholder))
            count -= 1
        else:
            changed.append(part)
    return {**item, name: changed}


def _in_path_order(slots: Sequence[Slot], outputs: list[Json], images: dict[str, int]) -> list[Json]:
    """Both reports as one. A replaced output holds text alone, so no entry is in both."""
    by_entry = {report["entry"]: report for report in outputs}
    by_entry.update({entry: {"entry": entry, "reason": IMAGES, "parts": parts} for entry, parts in images.items()})
    return [by_entry[slot.entry] for slot in slots if slot.reached and slot.entry in by_entry]
