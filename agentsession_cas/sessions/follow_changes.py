"""The changes a follower yields (store.md A7). Each stands for one step of the log and carries where to resume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from agentsession_cas.core.accept import Elsewhere
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.header import Header
from agentsession_cas.core.tree import Session
from agentsession_cas.sessions.source import RowSource

__all__ = ["Appended", "Change", "Followed", "Head", "Reset", "Snapshot"]


class Followed(Session):
    """A follower's own session: it holds what was told, and more than that while the follower catches up.

    The follower extends it in place, and it reads as long as the follower is open. It is never appended to.
    """

    def __init__(self, header: Header, source: RowSource, leaf: str, elsewhere: Elsewhere) -> None:
        super().__init__(header, source, leaf=leaf, elsewhere=elsewhere)

    def turn_to(self, header: Header, source: RowSource, leaf: str) -> None:
        """Stand over other rows from now on; for the follower alone."""
        super().__init__(header, source, leaf=leaf, elsewhere=self._elsewhere)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The session as it was read first. ``head`` is an entry id, "" for the universal root; resume from ``cursor``."""

    kind: ClassVar[str] = "snapshot"
    session: Session
    head: str
    cursor: str


@dataclass(frozen=True, slots=True)
class Appended:
    """An entry was appended, on any branch; ``head`` is the head after it."""

    kind: ClassVar[str] = "appended"
    session: Session
    entry: Entry
    head: str
    cursor: str


@dataclass(frozen=True, slots=True)
class Head:
    """The head was moved to an entry, or with "" to the universal root."""

    kind: ClassVar[str] = "head"
    session: Session
    head: str
    cursor: str


@dataclass(frozen=True, slots=True)
class Reset:
    """The log no longer holds what was told: ``session`` is the session read again, and what came of it before is void.

    It may lack entries that were told earlier.
    """

    kind: ClassVar[str] = "reset"
    session: Session
    head: str
    cursor: str


Change = Snapshot | Appended | Head | Reset
"""One step of a follow."""
