"""What a store must hold after whatever befell it: told before and after each operation, asked about what was found.

A session passes through *states*, one per accepted group of entries or head move. A power cut may take the newest of
them back, but none that was acknowledged as durable, and never a part of one. So what is found must be one of the
states: not before ``must`` after a power cut, not before ``done`` on a machine that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agentsession_cas.core.entry import Entry
from tests.helpers.crashes import Violation

__all__ = ["Found", "State", "Truth", "World"]


class Found(NamedTuple):
    """A session as somebody read it: canonical lines, those of the prefix first; ``head`` an entry id or ""."""

    header: bytes
    prefix: tuple[bytes, ...]
    own: tuple[bytes, ...]
    head: str


class State(NamedTuple):
    """A session between two operations: how many own entries it has, and its head."""

    own: int
    head: str


@dataclass
class Truth:
    """One session as its writers were told. ``sizes[k]`` are the text sizes that led from state k to k + 1."""

    id: str
    headers: list[bytes]
    prefix: list[Entry] = field(default_factory=list)
    own: list[Entry] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    sizes: list[tuple[int, ...]] = field(default_factory=list)
    must: int = 0
    done: int = 0
    born: bool = False
    dying: bool = False
    raised_at: int = 0
    """The first state that needs the last of ``headers``."""
    mirror: bool = False
    """It takes no local append."""
    life: int = 0
    """Tells sessions apart that came by the same id, one after another."""

    @property
    def head(self) -> str:
        """The head once all that was begun is done."""
        return self.states[-1].head

    @property
    def newest(self) -> int:
        """The number of the last state begun."""
        return len(self.states) - 1

    def begin(self, entries: Sequence[Entry], head: str, sizes: tuple[int, ...] = ()) -> int:
        """A group of entries is about to be appended, or the head moved; the number of the state that makes."""
        self.own += entries
        self.states.append(State(len(self.own), head))
        self.sizes.append(sizes)
        return self.newest

    def withdraw(self) -> None:
        """The newest group was refused: nobody may ever see it."""
        self.states.pop()
        self.sizes.pop()
        del self.own[self.states[-1].own :]

    def tell(self, state: int, *, durable: bool) -> None:
        """Everything up to a state is accepted, and ``durable`` or not."""
        self.done = max(self.done, state)
        if durable:
            self.must = max(self.must, state)

    def path(self, entry_id: str) -> list[Entry]:
        """The entries from the root to one, the prefix's among them."""
        held = {entry.id: entry for entry in (*self.prefix, *self.own)}
        path: list[Entry] = []
        while entry_id:
            path.append(held[entry_id])
            entry_id = path[-1].parent
        return path[::-1]

    def match(self, found: Found, least: int, where: str) -> int:
        """The newest state that what was found may be; raises Violation when it is none from ``least`` on."""
        if found.prefix != tuple(entry.line for entry in self.prefix):
            raise Violation(f"{where}: {self.id}: {len(found.prefix)} of {len(self.prefix)} prefix entries, or others")
        if found.own != tuple(entry.line for entry in self.own[: len(found.own)]):
            raise Violation(f"{where}: {self.id}: wrong, risen or misplaced entries among {len(found.own)}")
        here = State(len(found.own), found.head)
        fitting = [k for k, state in enumerate(self.states) if state == here]
        if not fitting:
            raise Violation(f"{where}: {self.id}: {here} is none of {self.states}")
        if fitting[-1] < least:
            raise Violation(f"{where}: {self.id}: state {fitting[-1]}, but {least} of {self.newest} must be there")
        state = fitting[-1]
        allowed = self.headers[-1:] if state and state >= self.raised_at else self.headers
        if found.header not in allowed:
            raise Violation(f"{where}: {self.id}: the header is {found.header!r} in state {state}")
        return state

    def at(self, state: int, header: bytes, *, durable: bool) -> Truth:
        """The session as it was found in a state, on the disk (``durable``) or in the cache."""
        return Truth(
            self.id,
            [header, *self.headers[self.headers.index(header) + 1 :]] if durable else self.headers,
            self.prefix,
            self.own[: self.states[state].own],
            self.states[: state + 1],
            self.sizes[:state],
            state if durable else self.must,
            state,
            durable or self.born,
            self.dying and not durable,
            self.raised_at,
            self.mirror,
            self.life,
        )


@dataclass
class World:
    """A store: its sessions, and blobs with whether they were acknowledged. ``ticks`` numbers the entries made.

    ``made``: the store itself was acknowledged.
    """

    sessions: dict[str, Truth] = field(default_factory=dict)
    blobs: dict[bytes, bool] = field(default_factory=dict)
    ticks: int = 0
    made: bool = False

    def settle(self, found: Mapping[str, Found], where: str, *, running: bool = False) -> World:
        """The world that was found; raises Violation when it is no legal one.

        After a power cut it is what the disks hold. ``running``: no power was cut, so whatever was done must be there,
        but what was not durable is not so now.
        """
        for session_id in found.keys() - self.sessions.keys():
            raise Violation(f"{where}: {session_id} is there, but was never made or was deleted")
        settled = World(blobs=self.blobs, ticks=self.ticks, made=self.made)
        for session_id, truth in self.sessions.items():
            seen = found.get(session_id)
            if seen is not None:
                state = truth.match(seen, truth.done if running else truth.must, where)
                settled.sessions[session_id] = truth.at(state, seen.header, durable=not running)
            elif truth.born and not truth.dying:
                raise Violation(f"{where}: {session_id} is gone")
            elif truth.dying and running:
                settled.sessions[session_id] = truth  # the power cut may bring it back
        return settled

    def lost(self, settled: World) -> Iterable[tuple[str, list[tuple[int, ...]]]]:
        """Of each session that is still there: the sizes of the groups that are not."""
        for session_id, truth in settled.sessions.items():
            yield session_id, self.sessions[session_id].sizes[truth.newest :]
