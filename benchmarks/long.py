"""What an append costs in a session of any length. ``python -m benchmarks long``.

The same session twice (:mod:`benchmarks.agent`: runs, responses, calls, decisions, dispatches, outputs): ``--entries``
long, and 100 entries long when a turn begins. A turn appends the next entries of each, lazily, so that no sync hides
what the checks cost, and tells the times of one kind. Both lie in a store on disk, were opened again, and have appended
one of each kind before the clock starts: what an open puts off until then is not an append's.

* *any entry*: all of a turn.
* *function_call*, *decision*, *dispatch*, *output*: those whose record rules look at what was written before.
* *far call*: a decision on a call of the session's beginning, which the append has to find and to see on its path.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from agentsession_cas import Draft, SessionWriter, Store
from benchmarks.agent import SESSION, Step, steps, written
from benchmarks.harness import OURS, Comparison, Options, Target, Turn, compare, part, workplace

__all__ = ["measure"]

SHORT: Final = "100 entries long"
_SHORT_ENTRIES: Final = 100
_TURN: Final = 300
_FAR_CALLS: Final = 15
_LIMIT: Final = 1.15
_ANY: Final = "any entry"
_FAR: Final = "far call"
_KINDS: Final = (_ANY, "function_call", "decision", "dispatch", "output", _FAR)


@part(rounds=9, entries=100_000, quick=(2, 2_000), full=(9, 1_000_000))
def measure(used: Options) -> list[Comparison]:
    """Compare an append to a long session with one to a short one; entries are those the long one begins with."""
    with workplace(used.directory) as place, ExitStack() as held:
        long = _Growing(place / "long", used.entries, held)
        return [_compare(kind, long, place, used) for kind in _KINDS]


def _compare(kind: str, long: _Growing, place: Path, used: Options) -> Comparison:
    def short(number: int) -> list[float]:
        with ExitStack() as held:
            return _Growing(place / f"{kind} {number}", _SHORT_ENTRIES, held).turn(kind, number)

    turns: dict[str, Turn] = {OURS: partial(long.turn, kind), SHORT: short}
    return compare(f"lazy append: {kind}", turns, used.rounds, [Target(SHORT, _LIMIT)])


class _Growing:
    """A session of the first ``entries``, held for writing, to which turns append the next ones."""

    def __init__(self, path: Path, entries: int, held: ExitStack) -> None:
        with Store.open(path, create=True) as store:
            store.import_file(written(entries), as_record=True)
        store = held.enter_context(Store.open(path))
        self._session: SessionWriter = held.enter_context(store.open_session(SESSION))
        self._ids = [each.id for each in self._session]
        self._next = islice(steps(), entries, None)
        for step in islice(self._next, _SHORT_ENTRIES):
            self._append(step)
        self._calls = (at for at, step in enumerate(steps()) if _kind(step) == "function_call")
        self._ask_about(next(self._calls))

    def turn(self, kind: str, number: int) -> list[float]:  # noqa: ARG002
        """Append entries; the seconds that those of the kind took."""
        if kind == _FAR:
            return [self._ask_about(at) for at in islice(self._calls, _FAR_CALLS)]
        taken = ((_kind(step), self._append(step)) for step in islice(self._next, _TURN))
        return [seconds for each, seconds in taken if kind in (_ANY, each)]

    def _append(self, step: Step) -> float:
        body: dict[str, Any] = dict(step.body)
        if step.target >= 0:
            body["target"] = self._ids[step.target]
        parent = self._ids[step.aside] if step.aside >= 0 else None
        draft = Draft(step.type, body, parent=parent)
        start = perf_counter()
        result = self._session.append(draft, durable=False)
        seconds = perf_counter() - start
        self._ids.append(result.id)
        return seconds

    def _ask_about(self, number: int) -> float:
        target = self._session.entry(self._ids[number])
        body = {"call_id": target.call_id, "target": target.id, "verdict": "proceed"}
        start = perf_counter()
        self._session.append(Draft("decision", body), durable=False)
        return perf_counter() - start


def _kind(step: Step) -> str:
    """What a step is called in a title."""
    kind = str(step.body["item"]["type"]) if step.type == "item" else step.type
    return "output" if kind == "function_call_output" else kind
