"""What a path says of calls and runs, by format.md §9 and context.md §2 and by nothing of the package.

The author of :mod:`tests.helpers.legal` keeps one :class:`PathModel` for each entry it wrote, so that it knows what a
correct harness may write next, and so that what the package says of calls can be held against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from agentsession_cas.core.entry import Entry

__all__ = ["CallModel", "PathModel", "RunModel"]

_DECISIONS: Final = ("proceed", "hold", "reject", "answer")


@dataclass(frozen=True)
class CallModel:
    """A call on a path: what happened to it, in order, ``withdraw`` being the reject that takes a dispatch back.

    ``entries`` are the entries the events are of.
    """

    call_id: str
    entry: str
    own: bool
    events: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()

    @property
    def kept(self) -> list[tuple[str, str]]:
        """The events and their entries without withdrawn pairs, each of which directly follows the other."""
        kept: list[tuple[str, str]] = []
        for event, entry in zip(self.events, self.entries, strict=True):
            if event == "withdraw":
                assert kept.pop()[0] == "dispatch"
            else:
                kept.append((event, entry))
        return kept

    @property
    def read(self) -> list[str]:
        """The events without withdrawn pairs."""
        return [event for event, _ in self.kept]

    @property
    def history(self) -> tuple[list[str], list[str], list[str]]:
        """The entries of its decisions, its dispatches and its output."""
        kept = self.kept
        return (
            [entry for event, entry in kept if event in _DECISIONS],
            [entry for event, entry in kept if event == "dispatch"],
            [entry for event, entry in kept if event == "output"],
        )

    @property
    def pending(self) -> bool:
        return "output" not in self.events

    @property
    def closed(self) -> bool:
        """Whether a decision has ended it."""
        return "reject" in self.read or "answer" in self.read

    @property
    def dispatched(self) -> bool:
        return "dispatch" in self.read

    @property
    def held(self) -> bool:
        """Whether the latest decision is a hold and no dispatch comes after it."""
        later = self.read[len(self.read) - self.read[::-1].index("hold") :] if "hold" in self.read else ["dispatch"]
        return "dispatch" not in later and not any(event in _DECISIONS for event in later)

    @property
    def in_flight(self) -> bool:
        """Whether it was handed off and neither held, answered nor completed since."""
        if not self.dispatched or not self.pending:
            return False
        later = self.read[len(self.read) - self.read[::-1].index("dispatch") :]
        return "hold" not in later and "answer" not in later

    def state(self, *, promised: bool, elsewhere: bool) -> str:
        """The state by the table of context.md §2; ``elsewhere``: a dispatch of it lies off the path."""
        read = self.read
        if "output" in read:
            return "completed"
        for verdict, state in (("answer", "answered"), ("reject", "rejected")):
            if verdict in read:
                return state
        if self.held:
            return "held"
        if self.dispatched:
            return "in_flight"
        return "never_started" if promised and self.own and not elsewhere else "unknown"


@dataclass(frozen=True)
class RunModel:
    """The run open on a path: the calls pending when it began, and its outputs, decisions and dispatches so far.

    A touch is the entry of the call ("" for an output that belongs to none) and what happened.
    """

    start: str
    source: str
    pending: frozenset[str]
    shaped: bool = False
    touches: tuple[tuple[str, str], ...] = ()

    @property
    def first(self) -> str:
        """The source its first touch shows, "" while there is none."""
        if not self.touches:
            return ""
        return "resume" if self.touches[0][0] in self.pending else "input"

    def would_take(self, call: str) -> bool:
        """Whether the run may take up that call now, the source it was written with standing."""
        return bool(self.first) or (call in self.pending) == (self.source == "resume")

    @property
    def sound(self) -> bool:
        """Whether the written source agrees with the segment as far as it goes."""
        if self.first:
            return self.first == self.source
        return self.source == "input" or not self.shaped


@dataclass(frozen=True)
class PathModel:
    """What the author knows of the path to an entry."""

    calls: dict[str, CallModel] = field(default_factory=dict)
    run: RunModel | None = None
    callees: dict[str, tuple[str, str]] = field(default_factory=dict)
    queued: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()

    def reason(self, path: Sequence[Entry]) -> str:
        """The reason the run open on the path would end with, by the table of context.md §2."""
        assert self.run is not None
        segment = path[[each.id for each in path].index(self.run.start) :]
        responses = [each.body for each in segment if each.type == "response"]
        made = {each.body.get("response") for each in path if each.id in self.calls}
        taken = {name for name, _ in self.run.touches if name} | {each.id for each in segment if each.id in self.calls}
        pending = [self.calls[name] for name in taken if self.calls[name].pending]
        if responses and responses[-1].get("error") is not None:
            return "error"
        if any(call.held for call in pending) and not any(call.in_flight for call in pending):
            return "input_required"
        if pending or (responses and responses[-1].get("incomplete") is not None):
            return "aborted"
        if responses and responses[-1].get("response_id") not in made:
            return "done"
        last = next((each.body.get("response_id") for each in reversed(path) if each.type == "response"), None)
        dealt = any(event != "dispatch" for _, event in self.run.touches)
        stopped = last in made and dealt and not any(call.pending for call in self.calls.values())
        return "stopped" if stopped else "aborted"

    @property
    def open_ended(self) -> bool:
        """Whether a correct harness may go on from here with anything."""
        run = self.run
        return run is None or (run.sound and (run.source == "input" or bool(run.first or run.pending)))
