"""What a session's paths break of the record rules (format.md §9), in the order of context.md §2, "Record checks".

A :class:`RecordWalk` reads a path beside its calls and runs and notes every rule an entry breaks the moment the path
shows it. Over a tree it goes down each branch and takes its steps back, so a whole session costs what its entries cost.
Nothing here refuses anything: what is stored is stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from agentsession_cas.core.calls import Call, CallBook, is_call, is_output
from agentsession_cas.core.facts import Code, Facts, Kind
from agentsession_cas.core.header import Header
from agentsession_cas.core.links import callee_fault, is_callee
from agentsession_cas.core.records import fault
from agentsession_cas.core.runs import RunBook
from agentsession_cas.core.source import EntrySource, path_positions
from agentsession_cas.core.undo import Undo, walk_tree
from agentsession_cas.errors import (
    BadFromLink,
    BadTarget,
    CallAnswered,
    CallCompleted,
    CalleeLink,
    CallIDEmpty,
    CallIDRepeated,
    CallRejected,
    ReasonMismatch,
    RecordMissing,
    RecordRule,
    RejectDispatched,
    SourceMismatch,
)

__all__ = ["RecordProblem", "RecordTree", "RecordWalk", "record_problems", "verify_records"]


class _Rank(NamedTuple):
    """Where a problem stands among the others: the rule, the run or call it is about, the check, the entry."""

    rule: int
    about: int
    check: int
    position: int


@dataclass(frozen=True, slots=True)
class RecordProblem:
    """A record rule that an entry breaks."""

    error: type[RecordRule]
    position: int
    detail: str


class RecordWalk:
    """Reads paths of one session and keeps each broken rule once, whatever number of paths show it."""

    def __init__(self, source: EntrySource, header: Header) -> None:
        self._source = source
        self._promised = header.promises("dispatch")
        self._dispatched = _dispatched(source) if self._promised else set()
        self._undo = Undo()
        self._calls = CallBook(source, self._undo)
        self._runs = RunBook(source, self._calls, self._undo)
        self._callees: dict[str, int] = {}
        self._unsettled: dict[int, tuple[_Rank, RecordProblem]] = {}
        self._found: dict[_Rank, RecordProblem] = {}

    def mark(self) -> int:
        """Where the walk is now, to :meth:`rewind` to."""
        return self._undo.mark()

    def rewind(self, mark: int) -> None:
        """Go back up the path; what was found stays found."""
        self._undo.rewind(mark)

    def forget(self) -> None:
        """Never go back above what was read so far."""
        self._undo.forget()

    def problems(self) -> list[RecordProblem]:
        """Everything found so far, in the order of the checks."""
        return [self._found[rank] for rank in sorted(self._found)]

    def read(self, position: int) -> None:
        """Read the next entry of the path."""
        facts = self._source.facts(position)
        if self._runs.closes(position, facts):
            self._check_run(position if facts.kind == Kind.END else -1)
        if facts.code in (Code.DECISION, Code.DISPATCH):
            self._check_target(position, facts)
        call = self._calls.bind(position, facts)
        if call is not None:
            self._check_call(call, position, facts)
        if facts.code == Code.LINK:
            self._check_link(position, facts)
        elif facts.code == Code.ITEM:
            self._check_from_link(position)
        self._runs.read(position, facts, self._calls.read(position, facts))

    def end_path(self) -> None:
        """Judge what only the end of a path shows: the run it leaves open, a dispatch that nothing withdrew."""
        for rank, problem in self._unsettled.values():
            self._found[rank] = problem
        self._unsettled.clear()
        self._check_run(-1)

    def check_call_ids(self, positions: Iterable[int]) -> None:
        """The rules that look at the whole session: a call_id is not empty, and no two calls have the same.

        ``positions``, rising, are those of every call, and perhaps others.
        """
        first: dict[int, int] = {}
        names: set[str] = set()
        for position in positions:
            facts = self._source.facts(position)
            if not is_call(facts):
                continue
            if not facts.call:
                self._note(_Rank(1, 0, 0, position), CallIDEmpty, "a function call has no call_id")
                continue
            other = first.setdefault(facts.call, position)
            if other == position:
                continue
            names.add(self._source.entry(other).call_id)
            name = self._source.entry(position).call_id
            if name in names:
                self._note(_Rank(1, 1, 0, position), CallIDRepeated, f"another function call has the call_id {name}")
            names.add(name)

    def _note(self, rank: _Rank, error: type[RecordRule], detail: str) -> None:
        self._found.setdefault(rank, RecordProblem(error, rank.position, detail))

    def _check_target(self, position: int, facts: Facts) -> None:
        call = self._calls.at(facts.target)
        call_id = self._source.entry(position).call_id
        if call is None or call.call_id != call_id:
            what = "no function call before it" if call is None else f"the call {call.call_id}"
            self._note(_Rank(2, 0, 0, position), BadTarget, f"an entry about call {call_id} whose target is {what}")

    def _check_run(self, end: int) -> None:
        run = self._runs.open
        if run is None:
            return
        if end >= 0:
            closed = self._runs.close(end, end)
            if not closed.reason_agrees:
                detail = f"run {run.run_id} ended {closed.reason}, its segment says {closed.computed_reason}"
                self._note(_Rank(3, run.start, 0, end), ReasonMismatch, detail)
            if not closed.pending_agrees:
                written, pending = list(closed.written_pending), list(closed.pending)
                detail = f"run {run.run_id} ended with {written} pending, its segment leaves {pending}"
                self._note(_Rank(3, run.start, 1, end), ReasonMismatch, detail)
        if not self._runs.source_agrees(run):
            detail = f"run {run.run_id} started as {run.source}, its segment says {self._runs.source(run)}"
            self._note(_Rank(3, run.start, 2, run.start), SourceMismatch, detail)

    def _check_call(self, call: Call, position: int, facts: Facts) -> None:
        """Check a decision, a dispatch or an output before the call has it."""
        withdrawn = facts.code == Code.DECISION and call.withdraws(facts)
        self._settle(call.last, withdrawn=withdrawn)
        if withdrawn:
            return
        if is_output(facts):
            if self._ran_unrecorded(call, position):
                detail = f"the call {call.call_id} has its output and no dispatch, which the header promises"
                self._note(_Rank(4, call.position, 7, position), RecordMissing, detail)
            return
        broken = fault(
            call, facts, promised=self._promised, dispatched=partial(self._was_dispatched, call), appending=False
        )
        if broken is None:
            return
        error, detail = broken
        rank = _Rank(4, call.position, _check_of(error, facts), position)
        if facts.code == Code.DISPATCH:
            self._unsettled[position] = rank, RecordProblem(error, position, f"{detail}: {call.call_id}")
            self._undo.step(partial(self._unsettled.pop, position, None))
        else:
            self._note(rank, error, f"{detail}: {call.call_id}")

    def _settle(self, dispatch: int, *, withdrawn: bool) -> None:
        """A wrong dispatch is none when the next entry of its call withdraws it."""
        unsettled = self._unsettled.pop(dispatch, None)
        if unsettled is None:
            return
        if withdrawn:
            self._undo.step(partial(self._unsettled.__setitem__, dispatch, unsettled))
        else:
            self._found.setdefault(*unsettled)

    def _ran_unrecorded(self, call: Call, output: int) -> bool:
        if not self._promised or output < self._source.base_count:
            return False
        return not (call.dispatches or call.rejected or call.answered)

    def _was_dispatched(self, call: Call) -> bool:
        return self._source.entry_id(call.position) in self._dispatched

    def _check_link(self, position: int, facts: Facts) -> None:
        named = self._callees.get(facts.target, -1)
        callee = self._source.entry(named) if named >= 0 else None
        broken = callee_fault(facts, self._source.entry(position).body, callee, appending=False)
        if broken:
            self._note(_Rank(5, 0, 0, position), CalleeLink, broken)
        if is_callee(facts):
            self._undo.put(self._callees, self._source.entry_id(position), position)

    def _check_from_link(self, position: int) -> None:
        named = self._source.entry(position).body.get("from_link")
        if not isinstance(named, str) or not named:
            return
        link = self._callees.get(named, -1)
        if link < 0 or self._source.facts(link).kind != Kind.PEER:
            self._note(_Rank(6, 0, 0, position), BadFromLink, f"from_link names no peer link before the item: {named}")


def verify_records(source: EntrySource, header: Header, position: int) -> None:
    """Raise the first record rule that the session, or the path to ``position``, breaks (context.md §2).

    The class of the error says which rule, ``where`` names the entry.
    """
    walk = RecordWalk(source, header)
    walk.check_call_ids(range(len(source)))
    for each in path_positions(source, position):
        walk.read(each)
    walk.end_path()
    for problem in walk.problems():
        raise problem.error(problem.detail, where=source.entry_id(problem.position))


class RecordTree:
    """Reads a whole session in the order of :func:`walk_tree`."""

    def __init__(self, source: EntrySource, header: Header) -> None:
        self._source = source
        self._walk = RecordWalk(source, header)
        self._marks: list[int] = []
        self._turns = sum(source.parent(position) < 0 for position in range(len(source))) - 1
        """How often the walk will go back up the path."""
        self._calls: list[int] = []

    def read(self, position: int, depth: int, children: int) -> None:
        """Read the next entry."""
        walk, marks = self._walk, self._marks
        if depth < len(marks):
            walk.rewind(marks[depth])
            del marks[depth:]
            self._turns -= 1
        if not self._turns:
            walk.forget()
        self._turns += max(0, children - 1)
        marks.append(walk.mark())
        walk.read(position)
        if is_call(self._source.facts(position)):
            self._calls.append(position)
        if not children:
            walk.end_path()

    def problems(self) -> list[RecordProblem]:
        """Every record rule broken on the path to some childless entry, each once, in the order of the checks."""
        self._walk.check_call_ids(sorted(self._calls))
        return self._walk.problems()


def record_problems(source: EntrySource, header: Header) -> list[RecordProblem]:
    """What a :class:`RecordTree` finds in a whole session."""
    tree = RecordTree(source, header)
    for position, depth, children in walk_tree(source):
        tree.read(position, depth, children)
    return tree.problems()


def _dispatched(source: EntrySource) -> set[str]:
    """The calls, by entry, that the session holds a dispatch for on any branch."""
    facts = (source.facts(position) for position in range(len(source)))
    return {each.target for each in facts if each.code == Code.DISPATCH}


def _check_of(error: type[RecordRule], facts: Facts) -> int:
    """The place of a check among those of one call (context.md §2, Record checks, 4)."""
    if facts.code == Code.DISPATCH:
        return 4 if error is CallCompleted else 0
    return _DECISION_CHECKS.get(error, 6)


_DECISION_CHECKS: dict[type[RecordRule], int] = {
    CallAnswered: 1,
    CallRejected: 2,
    RejectDispatched: 3,
    CallCompleted: 5,
}
