"""A thread in memory: the tree of turns, its tip, and the path a model reads (ledger.md).

Owns the walk from the tip. Invariants: what is handed out never changes what is kept; a walk ends, whatever the parents
say. One thread of execution at a time, as the Go package ``ledger`` has it. Keeps nothing: see ``recorded``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Protocol

from agentsession_cas.core.given import as_callback, as_list, require
from agentsession_cas.core.timestamps import canonical_ts, ts_from_ns
from agentsession_cas.effects.host import real_host
from agentsession_cas.ledger.turn import Artifact, TraversalControl, Turn, generate_turn_id

__all__ = ["Clock", "Meta", "State", "Thread", "View", "prepend", "wall_clock"]

_LOG: Final = logging.getLogger(__name__)

Clock = Callable[[], str | datetime]
"""Gives the time: an RFC 3339 string or an aware ``datetime``."""


def wall_clock() -> str:
    """The time now."""
    return ts_from_ns(real_host().clock.now_ns())


class Meta:
    """Facts about a conversation as a whole, by name. Every handle of one state shares them."""

    __slots__ = ("_facts",)

    def __init__(self, facts: dict[str, str] | None = None) -> None:
        self._facts = {} if facts is None else facts

    def get(self, key: str) -> str | None:
        """The value under a key, None when there is none."""
        return self._facts.get(require(key, str, "key"))

    def set(self, key: str, value: str) -> None:
        """Store a value under a key."""
        self._facts[require(key, str, "key")] = require(value, str, "value")

    def all(self) -> dict[str, str]:
        """A copy of them all."""
        return dict(self._facts)


class State(Protocol):
    """A conversation that grows: what an agent's loop reads and appends to."""

    def turns(self) -> list[Turn]:
        """The active path, oldest first; a copy."""

    def append(self, role: str, *artifacts: Artifact) -> Turn:
        """Add a turn behind the tip, which moves to it."""

    def meta(self) -> Meta:
        """Facts about the conversation; every handle shares them."""


class Thread:
    """The tree of turns. ``clock`` gives the time of each new one."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = as_callback(clock, "clock") or wall_clock
        self._turns: dict[str, Turn] = {}
        self._tip = ""
        self._facts: dict[str, str] = {}

    @property
    def current_tip(self) -> str:
        """The turn the active path ends at, "" for none."""
        return self._tip

    def append(self, role: str, *artifacts: Artifact) -> Turn:
        """Add a turn behind the tip, which moves to it; returns the turn."""
        turn = Turn(generate_turn_id(), self._tip, role, artifacts, canonical_ts(self._clock()))
        self.save_turn(turn)
        self.set_current_tip(turn.id)
        return turn

    def save_turn(self, turn: Turn) -> None:
        """Insert a turn, or replace the one of its id; the tip stays."""
        self._turns[require(turn, Turn, "a turn").id] = turn

    def set_control(self, turn_id: str, control: str) -> None:
        """Set a turn's traversal control; nothing happens when there is no such turn.

        A word that is no :class:`TraversalControl` is kept as it is, and walked past as ``continue``.
        """
        require(control, str, "control", "give a TraversalControl")
        if require(turn_id, str, "turn_id") in self._turns:
            self._turns[turn_id] = self._turns[turn_id].controlled(control)

    def set_parent(self, turn_id: str, parent_id: str) -> None:
        """Hang a turn under another, which need not be there; nothing happens when there is no such turn."""
        require(parent_id, str, "parent_id")
        if require(turn_id, str, "turn_id") in self._turns:
            self._turns[turn_id] = self._turns[turn_id].below(parent_id)

    def set_current_tip(self, turn_id: str) -> None:
        """Choose the turn the active path ends at."""
        self._tip = require(turn_id, str, "turn_id")

    def all_turns(self) -> list[Turn]:
        """Every turn of every branch, in the order they first came."""
        return list(self._turns.values())

    def turns(self) -> list[Turn]:
        """The active path: :meth:`resolve_active_path`."""
        return self.resolve_active_path()

    def resolve_active_path(self) -> list[Turn]:
        """The turns from the tip through their parents, oldest first, as each one's control has it.

        ``continue`` includes the turn, ``stop`` includes it and ends the walk, ``skip`` leaves it out and goes on. A
        parent that is not there ends the walk; so does one that was met before, which is logged as a warning and told
        by :meth:`cycle`.
        """
        path, again = self._walk()
        if again:
            _LOG.warning("the parents of turn %s lead back to it; the active path begins there", again)
        return path

    def cycle(self) -> str:
        """The turn that the walk from the tip comes to a second time; "" when it comes to an end."""
        return self._walk()[1]

    def _walk(self) -> tuple[list[Turn], str]:
        path: list[Turn] = []
        seen: set[str] = set()
        at = self._tip
        while (turn := self._turns.get(at)) is not None:
            if at in seen:
                return path[::-1], at
            seen.add(at)
            if turn.control != TraversalControl.SKIP:
                path.append(turn)
            if turn.control == TraversalControl.STOP:
                break
            at = turn.parent_id
        return path[::-1], ""

    def meta(self) -> Meta:
        """Facts about the conversation; every handle shares them."""
        return Meta(self._facts)


class View:
    """Turns shown in place of a state's own; appends and facts go to that state. Of no turns it is the state itself."""

    _base: State
    _shown: tuple[Turn, ...]

    def __new__(cls, base: State, turns: Sequence[Turn]) -> State:  # type: ignore[misc]
        """A view, or ``base`` when there is nothing to show."""
        shown = tuple(require(each, Turn, "a turn") for each in as_list(turns, "turns"))
        if not shown:
            return base
        view = super().__new__(cls)
        view._base, view._shown = base, shown
        return view

    def turns(self) -> list[Turn]:
        """The turns shown; a copy."""
        return list(self._shown)

    def append(self, role: str, *artifacts: Artifact) -> Turn:
        """Append to the state below."""
        return self._base.append(role, *artifacts)

    def meta(self) -> Meta:
        """The facts of the state below."""
        return self._base.meta()


class _Prepended(View):
    """Turns shown before a state's own, as those are at every call."""

    def turns(self) -> list[Turn]:
        return [*self._shown, *self._base.turns()]


def prepend(base: State, virtual_turns: Sequence[Turn]) -> State:
    """A state that shows ``virtual_turns``, then what ``base`` has; ``base`` itself when there are none."""
    return _Prepended(base, virtual_turns)
