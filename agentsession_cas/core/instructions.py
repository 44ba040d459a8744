"""The two lists a config delta names piece by piece: instruction parts, and the parts a writer left out.

Owns how a delta's elements resolve against what is in force (context.md §1.2 and §1.3), and the smallest honest deltas
a writer may put in an entry instead of the whole list. Knows nothing of paths or of the other settings: the lists in
force and the histories are handed in, and the caller says when they are emptied (a replace, a checkpoint).

A part in force is a plain object. A resolved one always has a non-empty ``id`` and a string ``text``, and a ``source``
when it has one; anything else is unresolved and stands as its delta wrote it. Elements are never changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.identity import hash_text
from agentsession_cas.core.reading import text
from agentsession_cas.errors import BadEntry

__all__ = [
    "SEPARATOR",
    "Lists",
    "Texts",
    "decode_elements",
    "instructions_delta",
    "is_unresolved",
    "join_instructions",
    "omitted_delta",
    "read_part",
    "remember_parts",
    "resolve_omitted",
    "resolve_parts",
]

Json = dict[str, Any]

SEPARATOR: Final = "\n\n"
"""What stands between the texts of two parts in the instructions (format.md §7)."""

Texts = dict[tuple[str, str], tuple[str, tuple[str, ...]]]
"""Texts that left force: (part id, text hash) to the text and the sources it had, the latest first."""

Lists = dict[str, tuple[Json, ...]]
"""The omitted lists configs put in force: config entry id to its resolved list, oldest first."""

_LISTS_TRIED: Final = 16


def decode_elements(value: object) -> list[Json] | None:
    """``value`` when it is a list of objects, else None: a member of another form takes no effect (format.md §5)."""
    if isinstance(value, list) and all(isinstance(element, dict) for element in value):
        return value
    return None


def is_unresolved(part: Mapping[str, Any]) -> bool:
    """Whether the path could not rebuild a part in force (format.md §7)."""
    return not (text(part, "id") and isinstance(part.get("text"), str))


def join_instructions(parts: Iterable[Mapping[str, Any]]) -> str:
    """The instructions that parts in force compose; an unresolved one joins as empty text (context.md §1.2)."""
    return SEPARATOR.join("" if is_unresolved(part) else part["text"] for part in parts)


def read_part(element: Json) -> Json:
    """A part as a checkpoint writes it, or as a caller names one: no hash and no keep is resolved (context.md §1.5)."""
    id_ = text(element, "id")
    if not id_ or (text(element, "hash") and not isinstance(element.get("text"), str)):
        return element
    return _part(id_, text(element, "text"), text(element, "source"))


def resolve_parts(delta: Sequence[Json], prev: Sequence[Json], texts: Texts) -> tuple[list[Json], bool]:
    """The parts in force after a delta, and whether one of its own elements could not be resolved (context.md §1.2).

    ``prev`` are the parts in force before it, ``texts`` what left force since the last replace or checkpoint.
    """
    index = _first_index(prev)
    named = {id_ for element in delta if (id_ := text(element, "id"))}
    parts: list[Json] = []
    failed = False
    cursor = 0
    for element in delta:
        id_ = text(element, "id")
        if id_:
            at = index.get(id_, -1)
            if at >= 0:
                cursor = at + 1
            part = _resolve_named(element, id_, prev[at] if at >= 0 else None, texts)
            failed = failed or is_unresolved(part)
            parts.append(part)
            continue
        count = _keep(element)
        taken = _taken(prev, cursor, count, named)
        cursor += count
        if taken is None:
            parts.append(element)
            failed = True
        else:
            parts.extend(taken)
    return parts, failed


def remember_parts(texts: Texts, prev: Iterable[Json], parts: Iterable[Json]) -> None:
    """Add to ``texts`` each resolved part of ``prev`` that ``parts`` does not hold with the same text and source."""
    held = {_identity(part) for part in parts if not is_unresolved(part)}
    for part in prev:
        if is_unresolved(part) or _identity(part) in held:
            continue
        known: str = part["text"]
        key = (part["id"], hash_text(known))
        source = text(part, "source")
        before = texts[key][1] if key in texts else ()
        texts[key] = (known, (source, *(other for other in before if other != source)))


def instructions_delta(
    want: Sequence[Mapping[str, Any]], *, parts: Sequence[Json], instructions: str, texts: Texts
) -> Json | None:
    """The config members that take the instructions in force to ``want``, None when nothing moves (context.md §1.2).

    ``want`` holds parts with an ``id`` each, unique, a ``text`` (absent: empty) and a ``source`` where there is one.
    Raises BadEntry for a part without an id, an id named twice or a part without text of its own.
    """
    wanted = _wanted_parts(want)
    if not wanted:
        return {"instructions": ""} if parts or instructions else None
    if len(wanted) == len(parts) and all(
        not is_unresolved(part) and _identity(part) == _identity(new) for part, new in zip(parts, wanted, strict=True)
    ):
        return None
    index = _first_index(parts)
    elements: list[Json] = []
    cursor = at = 0
    while at < len(wanted):
        run = _run(wanted, at, parts, cursor)
        if run:
            elements.append({"keep": run})
            at += run
            cursor += run
            continue
        part = wanted[at]
        found = index.get(part["id"], -1)
        elements.append(_named_element(part, parts[found] if found >= 0 else None, texts))
        if found >= 0:
            cursor = found + 1
        at += 1
    return {"instructions_parts": elements}


def resolve_omitted(delta: Sequence[Json], prev: Sequence[Json], lists: Lists) -> tuple[list[Json], bool]:
    """The omitted list in force after a delta, and whether a keep with an ``of`` failed (context.md §1.3).

    ``prev`` is the list in force before it, ``lists`` those an ``of`` may name.
    """
    counted: dict[str, Sequence[Json]] = {"": prev}
    for element in delta:
        of = text(element, "of")
        if of in lists and _keep(element) and not text(element, "id"):
            counted[of] = lists[of]
    indexes = {key: _first_index(elements) for key, elements in counted.items()}
    cursors = dict.fromkeys(counted, 0)
    named = {id_ for element in delta if (id_ := text(element, "id"))}
    resolved: list[Json] = []
    bad_of = False
    for element in delta:
        id_ = text(element, "id")
        if id_:
            resolved.append(element)
            for key, index in indexes.items():
                if id_ in index:
                    cursors[key] = index[id_] + 1
            continue
        count = _keep(element)
        of = text(element, "of") if count else ""
        taken = _taken(counted[of], cursors[of], count, named) if of in counted else None
        if of in counted:
            cursors[of] += count
        if taken is None:
            resolved.append(element)
            bad_of = bad_of or bool(of)
        else:
            resolved.extend(taken)
    return resolved, bad_of


def omitted_delta(want: Sequence[Json], *, prev: Sequence[Json], lists: Lists) -> list[Json] | None:
    """The ``instructions_omitted`` member that takes the list in force to ``want``, or None (context.md §1.3).

    ``prev`` is the list in force, ``lists`` those configs put in force, that one last. The result is ``want`` itself
    when it names an id twice or holds an element without one, else the shortest encoding there is.
    """
    wanted = [(text(element, "id"), canonical(element)) for element in want]
    if [encoded for _, encoded in wanted] == [canonical(element) for element in prev]:
        return None
    if not want:
        return []
    best = list(want)
    ids = {id_ for id_, _ in wanted}
    if "" in ids or len(ids) != len(wanted):
        return best
    size = len(canonical(best))
    earlier = list(lists.items())[-1 - _LISTS_TRIED : -1]
    for of, elements in [("", prev), *reversed(earlier)]:
        counted = _counted(want, wanted, elements, of)
        if counted is not None and (length := len(canonical(counted))) < size:
            best, size = counted, length
    return best


def _keep(element: Mapping[str, Any]) -> int:
    """How many parts a keep stands for; 0 for an element that is none. Meaningful only beside no id."""
    count = element.get("keep")
    return count if type(count) is int and count > 0 else 0


def _part(id_: str, text: str, source: str) -> Json:
    return {"id": id_, "text": text, "source": source} if source else {"id": id_, "text": text}


def _identity(part: Mapping[str, Any]) -> tuple[str, str, str]:
    return part["id"], part["text"], text(part, "source")


def _first_index(elements: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Id to the position of its first occurrence."""
    index: dict[str, int] = {}
    for at, element in enumerate(elements):
        id_ = text(element, "id")
        if id_:
            index.setdefault(id_, at)
    return index


def _taken(elements: Sequence[Json], cursor: int, count: int, named: set[str]) -> Sequence[Json] | None:
    """What a keep takes, or None when it fails: no keep, past the end, or taking what the delta names elsewhere."""
    if not count or cursor + count > len(elements):
        return None
    taken = elements[cursor : cursor + count]
    if any(text(element, "id") in named for element in taken):
        return None
    return taken


def _resolve_named(element: Json, id_: str, in_force: Json | None, texts: Texts) -> Json:
    """An element with an id: its text, the text its hash names, or itself when that cannot be found."""
    source = text(element, "source")
    known = element.get("text")
    if isinstance(known, str):
        return _part(id_, known, source)
    hash_ = text(element, "hash")
    if not hash_:
        return _part(id_, "", source)
    if in_force is not None:
        if is_unresolved(in_force):
            return element
        if hash_text(in_force["text"]) == hash_:
            return _part(id_, in_force["text"], source or text(in_force, "source"))
    left = texts.get((id_, hash_))
    return _part(id_, left[0], source or left[1][0]) if left is not None else element


def _wanted_parts(want: Sequence[Mapping[str, Any]]) -> list[Json]:
    wanted: list[Json] = []
    seen: set[str] = set()
    for at, element in enumerate(want):
        part = read_part(dict(element))
        if is_unresolved(part):
            raise BadEntry("an instruction part needs an id and its text", where=f"/{at}")
        if part["id"] in seen:
            raise BadEntry(f"two instruction parts have the id {part['id']!r}", where=f"/{at}")
        seen.add(part["id"])
        wanted.append(part)
    return wanted


def _run(wanted: Sequence[Json], at: int, parts: Sequence[Json], cursor: int) -> int:
    """How many wanted parts from ``at`` on are the parts in force from ``cursor`` on, unchanged."""
    run = 0
    while at + run < len(wanted) and cursor + run < len(parts):
        part = parts[cursor + run]
        if is_unresolved(part) or _identity(part) != _identity(wanted[at + run]):
            break
        run += 1
    return run


def _named_element(part: Json, in_force: Json | None, texts: Texts) -> Json:
    """The element for a part no keep covers: its hash when a reader finds text and source by it, else it whole."""
    if in_force is not None and is_unresolved(in_force):
        return part
    hash_ = hash_text(part["text"])
    if in_force is not None and in_force["text"] == part["text"]:
        return {"id": part["id"], "hash": hash_} if _identity(in_force) == _identity(part) else part
    _, sources = texts.get((part["id"], hash_), ("", ()))
    source = text(part, "source")
    if source not in sources:
        return part
    if source == sources[0]:
        return {"id": part["id"], "hash": hash_}
    # The reader takes the source of the latest such text unless the element says another; none cannot be said.
    return {"id": part["id"], "hash": hash_, "source": source} if source else part


def _counted(
    want: Sequence[Json], wanted: Sequence[tuple[str, bytes]], elements: Sequence[Json], of: str
) -> list[Json] | None:
    """``want`` with keeps over ``elements``, or None when those name an id twice."""
    counted = [(text(element, "id"), canonical(element)) for element in elements]
    index: dict[str, int] = {}
    for at, (id_, _) in enumerate(counted):
        if id_ and index.setdefault(id_, at) != at:
            return None
    result: list[Json] = []
    cursor = at = 0
    while at < len(wanted):
        run = 0
        while at + run < len(wanted) and cursor + run < len(counted) and counted[cursor + run] == wanted[at + run]:
            run += 1
        if run:
            result.append({"keep": run, "of": of} if of else {"keep": run})
            cursor += run
            at += run
            continue
        id_ = wanted[at][0]
        if id_ in index:
            cursor = index[id_] + 1
        result.append(want[at])
        at += 1
    return result
