"""Runs: the segments of a path, and the shape each has whatever its entries claim (format.md §9, context.md §2).

A :class:`RunBook` reads a path beside a :class:`~agentsession_cas.core.calls.CallBook` and keeps what the run open on
it took up. A run's reason, source and pending calls are those of the path *as far as its segment goes*, so they are
taken the moment the segment ends, in a :class:`Run`, which does not change afterwards. A response's ``status`` is never
read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from agentsession_cas.core.calls import Call, CallBook, is_call, is_output
from agentsession_cas.core.entry import Draft
from agentsession_cas.core.facts import Code, Facts, Kind
from agentsession_cas.core.reading import text
from agentsession_cas.core.required import RUN_REASONS
from agentsession_cas.core.source import EntrySource, path_positions
from agentsession_cas.core.undo import Onward, Undo
from agentsession_cas.errors import BadEntry

__all__ = ["OpenRun", "Run", "RunBook", "end_run", "open_run", "runs"]

_WRITTEN: Final = frozenset({"error", "interrupted"})
"""Reasons that stand over any segment."""
_SHAPING: Final = frozenset({Code.ITEM, Code.RESPONSE, Code.CONFIG, Code.COMPACTION, Code.BRANCH_SUMMARY})
"""What a run that took nothing up does not hold."""


class Touch(NamedTuple):
    """An output, a decision or a dispatch on a segment, and the call it belongs to."""

    position: int
    code: Code
    call: Call | None


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a path, its segment over. Positions are -1 where there is no such entry.

    ``last`` is the last entry of the segment. ``source``, ``reason`` and ``written_pending`` are what the run's entries
    say ("" and () without an end); ``computed_source``, ``computed_reason`` and ``pending`` (call_ids, sorted) what the
    path says. ``calls`` are the entries of the run's calls. ``took_nothing`` is a run that ended before it took
    anything up; one of those written ``resume`` is as good as any (``source_agrees``).
    """

    run_id: str
    start: int
    end: int
    last: int
    source: str
    computed_source: str
    reason: str
    computed_reason: str
    written_pending: tuple[str, ...]
    pending: tuple[str, ...]
    calls: tuple[int, ...]
    took_nothing: bool
    source_agrees: bool

    @property
    def reason_agrees(self) -> bool:
        """Whether the end's reason is one its segment allows. A run without an end agrees."""
        return self.end < 0 or self.reason in _WRITTEN or self.reason == self.computed_reason

    @property
    def pending_agrees(self) -> bool:
        """Whether the end lists the calls that are pending. A run without an end agrees."""
        return self.end < 0 or self.written_pending == self.pending

    def to_json(self, source: EntrySource) -> dict[str, Any]:
        """The run as ``runs --json`` has it (cli.md)."""
        return {
            "run_id": self.run_id,
            "start": source.entry_id(self.start),
            "end": source.entry_id(self.end) if self.end >= 0 else None,
            "source": self.source,
            "computed_source": self.computed_source,
            "reason": self.reason or None,
            "computed_reason": self.computed_reason,
            "pending": list(self.pending),
            "ok": self.reason_agrees and self.pending_agrees and self.source_agrees,
        }


class OpenRun:
    """A run whose segment still grows. Only a :class:`RunBook` changes one."""

    __slots__ = ("made", "response", "run_id", "shaped", "source", "start", "touches")

    def __init__(self, start: int, body: dict[str, Any]) -> None:
        self.start = start
        self.run_id: str = body["run_id"]
        self.source: str = body["source"]
        self.made: list[Call] = []
        self.touches: list[Touch] = []
        self.response = -1
        self.shaped = False


class RunBook:
    """The runs of a path read so far: the one that is open, if any, and what judging it takes of the path above it."""

    __slots__ = ("_called", "_calls", "_last_response", "_source", "_undo", "open")

    def __init__(self, source: EntrySource, calls: CallBook, undo: Undo) -> None:
        self._source = source
        self._calls = calls
        self._undo = undo
        self._called: dict[str, bool] = {}
        self._last_response = -1
        self.open: OpenRun | None = None

    def closes(self, position: int, facts: Facts) -> bool:
        """Whether the next entry of the path ends the open run: a start, or the end with its run_id."""
        if self.open is None or facts.code != Code.RUN:
            return False
        return facts.kind == Kind.START or bool(self._source.entry(position).body["run_id"] == self.open.run_id)

    def read(self, position: int, facts: Facts, call: Call | None) -> None:
        """Read the next entry of the path, which the call book has read and bound to ``call``."""
        if facts.code == Code.RUN:
            if facts.kind == Kind.START:
                self._undo.set(self, "open", OpenRun(position, self._source.entry(position).body))
            elif self.closes(position, facts):
                self._undo.set(self, "open", None)
            return
        if is_call(facts):
            self._undo.put(self._called, text(self._source.entry(position).body, "response"), True)
        elif facts.code == Code.RESPONSE:
            self._undo.set(self, "_last_response", position)
        if self.open is not None:
            self._extend(self.open, position, facts, call)

    def _extend(self, run: OpenRun, position: int, facts: Facts, call: Call | None) -> None:
        if facts.code in _SHAPING and not run.shaped:
            self._undo.set(run, "shaped", True)
        if is_call(facts):
            assert call is not None
            self._undo.append(run.made, call)
        elif facts.code in (Code.DECISION, Code.DISPATCH) or is_output(facts):
            self._undo.append(run.touches, Touch(position, facts.code, call))
        elif facts.code == Code.RESPONSE:
            self._undo.set(run, "response", position)

    def _made_a_call(self, response: int) -> bool:
        return text(self._source.entry(response).body, "response_id") in self._called

    def _touches(self, run: OpenRun) -> list[Touch]:
        return [touch for touch in run.touches if touch.position not in self._calls.withdrawn]

    def run_calls(self, run: OpenRun) -> list[Call]:
        """The calls of a run, in path order: made on its segment, or taken up by it (context.md §2)."""
        taken = {touch.call.position: touch.call for touch in self._touches(run) if touch.call is not None}
        taken.update((call.position, call) for call in run.made)
        return [taken[position] for position in sorted(taken)]

    def source(self, run: OpenRun) -> str:
        """``resume`` or ``input``, as the segment so far shows it (context.md §2)."""
        for touch in run.touches:
            if touch.position in self._calls.withdrawn or (touch.call is None and touch.code != Code.ITEM):
                continue
            call = touch.call
            taken = call is not None and call.position < run.start and not 0 <= call.output < run.start
            return "resume" if taken else "input"
        return "input"

    def took_nothing(self, run: OpenRun) -> bool:
        """Whether the segment so far holds record entries alone, dispatches and decisions not among them."""
        return not run.shaped and all(touch.position in self._calls.withdrawn for touch in run.touches)

    def source_agrees(self, run: OpenRun) -> bool:
        """Whether the source the start names is one its segment so far allows."""
        return run.source == self.source(run) or (run.source == "resume" and self.took_nothing(run))

    def reason(self, run: OpenRun) -> str:
        """The reason the segment so far would end with (context.md §2)."""
        response = self._source.entry(run.response).body if run.response >= 0 else {}
        if response.get("error") is not None:
            return "error"
        pending = [call for call in self.run_calls(run) if call.pending]
        if any(call.held for call in pending) and not any(call.in_flight for call in pending):
            return "input_required"
        if pending or response.get("incomplete") is not None:
            return "aborted"
        if run.response >= 0 and not self._made_a_call(run.response):
            return "done"
        dealt_with = any(touch.code != Code.DISPATCH for touch in self._touches(run))
        called = self._last_response >= 0 and self._made_a_call(self._last_response)
        return "stopped" if called and dealt_with and not self._calls.outstanding else "aborted"

    def pending(self, run: OpenRun) -> tuple[str, ...]:
        """The call_ids of the run's calls without an output, sorted."""
        return tuple(sorted(call.call_id for call in self.run_calls(run) if call.pending))

    def close(self, last: int, end: int = -1) -> Run:
        """The open run as it stands; ``last`` is its last entry, and ``end`` too when an end is what closes it."""
        run = self.open
        assert run is not None
        body = self._source.entry(end).body if end >= 0 else {}
        return Run(
            run_id=run.run_id,
            start=run.start,
            end=end,
            last=last,
            source=run.source,
            computed_source=self.source(run),
            reason=text(body, "reason"),
            computed_reason=self.reason(run),
            written_pending=_call_ids(body.get("pending")),
            pending=self.pending(run),
            calls=tuple(call.position for call in self.run_calls(run)),
            took_nothing=self.took_nothing(run),
            source_agrees=self.source_agrees(run),
        )


def runs(source: EntrySource, position: int) -> list[Run]:
    """The runs of the path to ``position``, in path order; entries outside every run belong to none (context.md §2)."""
    found: list[Run] = []
    undo = Onward()
    calls = CallBook(source, undo)
    book = RunBook(source, calls, undo)
    previous = -1
    for each in path_positions(source, position):
        facts = source.facts(each)
        if book.closes(each, facts):
            found.append(book.close(each, each) if facts.kind == Kind.END else book.close(previous))
        book.read(each, facts, calls.read(each, facts))
        previous = each
    if book.open is not None:
        found.append(book.close(previous))
    return found


def open_run(source: EntrySource, position: int) -> Run | None:
    """The run open at ``position``, as far as it goes; None when every run on the path is closed."""
    found = runs(source, position)
    return found[-1] if found and found[-1].end < 0 else None


def end_run(source: EntrySource, position: int, reason: str, ref: str = "") -> Draft:
    """The entry that ends the run open at ``position``, with the calls it leaves pending (format.md §9).

    Raises BadEntry when no run is open there, or for a reason the format does not have.
    """
    if reason not in RUN_REASONS:
        raise BadEntry(f"{reason!r} is no reason a run ends with", next_step=f"use one of {', '.join(RUN_REASONS)}")
    run = open_run(source, position)
    if run is None:
        raise BadEntry("no run is open on this path", next_step="start one first")
    body = {"run_id": run.run_id, "phase": "end", "reason": reason, "pending": list(run.pending)}
    return Draft("run", {**body, "ref": ref} if ref else body)


def _call_ids(value: object) -> tuple[str, ...]:
    """A written pending list, sorted; one of another form reads as empty."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        return ()
    return tuple(sorted(value))
