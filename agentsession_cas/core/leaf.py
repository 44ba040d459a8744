"""Where a session goes on: what the head may rest on, and the leaf of a bare file (format.md §2, §4).

Reads any :class:`~agentsession_cas.core.source.EntrySource` by facts, loading a body only for a label that may clear
the one in force. One pass over the file whatever its length. Moves nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from agentsession_cas.core.facts import Code, Facts, Kind
from agentsession_cas.core.identity import ROOT
from agentsession_cas.core.source import EntrySource, walk_back
from agentsession_cas.errors import BaseRule, HeadMoved, HeadTarget, NoEntry

__all__ = ["check_head_move", "check_rest", "is_leaf_label", "may_rest", "resume_leaf"]


class _Mark(NamedTuple):
    """The leaf label in force: its own position, and its target's (-1 for the universal root)."""

    label: int
    target: int


def is_leaf_label(facts: Facts) -> bool:
    """Whether an entry is a ``label`` whose label is ``leaf``."""
    return facts.code == Code.LABEL and facts.kind == Kind.LEAF


def may_rest(source: EntrySource, target: str) -> bool:
    """Whether the head may rest on ``target``: the base, an own entry or (baseless) the root, and no leaf label."""
    return _rest_position(source, target) is not None


def check_rest(source: EntrySource, target: str) -> None:
    """Raise NoEntry, BaseRule or HeadTarget for a place the head may not rest on (store.md A4)."""
    if _rest_position(source, target) is not None:
        return
    if target == ROOT:
        raise BaseRule("the head of a session with a base cannot be the universal root")
    position = source.find(target)
    if position < 0:
        raise NoEntry("the session holds no such entry", where=target)
    if position < source.base_count - 1:
        raise BaseRule("the head cannot rest above the base", where=target)
    raise HeadTarget("the head never rests on a leaf label", where=target, next_step="name the entry it marks")


def check_head_move(source: EntrySource, head: str, expected: str, to: str) -> None:
    """The compare of a head move (store.md A4): HeadMoved first, then what :func:`check_rest` raises."""
    if head != expected:
        raise HeadMoved(
            f"the head is {head or 'the universal root'}, not {expected or 'the universal root'}",
            current=head,
            next_step="look at what moved it, then try again",
        )
    check_rest(source, to)


def resume_leaf(source: EntrySource) -> str:
    """The leaf of a bare file: an entry id, or "" for the universal root (format.md §2, Resume rule)."""
    mark = _mark_in_force(source)
    position = len(source) - 1 if mark is None else _newest_under(source, mark)
    for ancestor in walk_back(source, position):
        if not is_leaf_label(source.facts(ancestor)):
            return source.entry_id(ancestor)
    return ROOT


def _rest_position(source: EntrySource, target: str) -> int | None:
    """Where the head rests on ``target``, -1 being the universal root; None where it may not."""
    if target == ROOT:
        return None if source.base_count else -1
    position = source.find(target)
    if position < 0 or position < source.base_count - 1 or is_leaf_label(source.facts(position)):
        return None
    return position


def _mark_in_force(source: EntrySource) -> _Mark | None:
    """The last leaf label with a target the head may rest on, unless a later null label on that target cleared it."""
    mark: _Mark | None = None
    for position in range(len(source)):
        facts = source.facts(position)
        if facts.code != Code.LABEL:
            continue
        if facts.kind == Kind.LEAF:
            target = _rest_position(source, facts.target)
            if target is not None:
                mark = _Mark(position, target)
        elif mark is not None and facts.target == _id_at(source, mark.target) and _clears(source, position):
            mark = None
    return mark


def _clears(source: EntrySource, position: int) -> bool:
    """Whether a label entry clears: its label is null, or in a form that reads as null (format.md §5)."""
    label = source.entry(position).body.get("label")
    return not isinstance(label, str) or label == ""


def _newest_under(source: EntrySource, mark: _Mark) -> int:
    """The newest entry that descends from the mark's target and was written after the mark; else the target."""
    if mark.target < 0:
        last = len(source) - 1
        return last if last > mark.label else -1
    newest = mark.target
    size = len(source)
    below = bytearray(size)
    below[mark.target] = 1
    for position in range(mark.target + 1, size):
        parent = source.parent(position)
        if parent >= mark.target and below[parent]:
            below[position] = 1
            if position > mark.label:
                newest = position
    return newest


def _id_at(source: EntrySource, position: int) -> str:
    return source.entry_id(position) if position >= 0 else ROOT
