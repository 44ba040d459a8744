"""A long session as a harness that runs the loop writes it: runs, responses with hashes, calls, decisions, outputs.

Bodies are small, so that what an entry costs is seen and not what its bytes cost. Every response carries the hash of
the request it answered, and every one verifies. Now and then something is asked on a branch and left, and some calls
wait for several runs before somebody answers them. The same length gives the same entries; a shorter session is the
beginning of a longer one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from agentsession_cas import ALL_RECORDS
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.header import new_header
from agentsession_cas.core.memory import MemorySource
from agentsession_cas.core.requestwalk import RequestWalk
from agentsession_cas.core.timestamps import ts_from_ns

__all__ = ["SESSION", "Step", "steps", "written"]

SESSION: Final = "01995b2a-0000-7000-8000-00000000be11"
_CALLS: Final = 3
_HELD_EVERY: Final = 7
_HELD_RUNS: Final = 5
_BRANCH_EVERY: Final = 10
_START_NS: Final = 1_770_000_000_000_000_000
_UNKNOWN: Final = "sha256:" + "0" * 64

Json = dict[str, Any]


class Step(NamedTuple):
    """An entry to write: its type, its body but for a target, and the number of the call's entry, -1 for none.

    It hangs from the one before. One that is an ``aside`` hangs from the entry of that number instead, and nothing
    hangs from it.
    """

    type: str
    body: Json
    target: int = -1
    aside: int = -1


def steps() -> Iterator[Step]:
    """The entries of the session, without end; numbered from 0 in the order they come."""
    yield Step("config", {"model": "m", "instructions": "Be brief.", "replace": True})
    number, run = 1, 0
    held: list[tuple[int, str, int]] = []
    while True:
        start = number
        for step in _run(run, number, held):
            yield step
            number += 1
        run += 1
        if run % _BRANCH_EVERY == 0:
            yield Step("item", _message("user", f"again from here, {run}"), aside=start - 1)
            number += 1


def _run(run: int, number: int, held: list[tuple[int, str, int]]) -> Iterator[Step]:
    """One run: what was held long enough is answered, a model is asked, its calls are run or held."""
    due = [each for each in held if each[2] <= run]
    held[:] = [each for each in held if each[2] > run]
    yield Step("run", {"run_id": f"run-{run}", "phase": "start", "source": "resume" if due else "input"})
    number += 1
    for target, call_id, _ in due:
        yield from _handed_off(call_id, target, "proceed")
        number += 3
    yield Step("item", _message("user", f"question {run}"))
    number += 1
    answer = f"resp_{run}_a"
    calls = [(number + at, f"call_{run}_{at}") for at in range(_CALLS)]
    for _, call_id in calls:
        item = {"type": "function_call", "call_id": call_id, "name": "read", "arguments": '{"path":"/src/a.py"}'}
        yield Step("item", {"item": item, "response": answer})
    yield _response(answer)
    waits = run % _HELD_EVERY == 0
    for target, call_id in calls[1:] if waits else calls:
        yield from _handed_off(call_id, target)
    if waits:
        target, call_id = calls[0]
        yield Step("decision", {"call_id": call_id, "verdict": "hold", "by": "policy"}, target)
        held.append((target, call_id, run + _HELD_RUNS))
        reason, pending = "input_required", [call_id]
    else:
        yield Step("item", {**_message("assistant", f"answer {run}"), "response": f"resp_{run}_b"})
        yield _response(f"resp_{run}_b")
        reason, pending = "done", []
    yield Step("run", {"run_id": f"run-{run}", "phase": "end", "reason": reason, "pending": pending})


def _handed_off(call_id: str, target: int, *verdicts: str) -> Iterator[Step]:
    for verdict in verdicts:
        yield Step("decision", {"call_id": call_id, "verdict": verdict, "by": "human"}, target)
    yield Step("dispatch", {"call_id": call_id, "idempotency_key": f"key {call_id}"}, target)
    yield Step("item", {"item": {"type": "function_call_output", "call_id": call_id, "output": f"line {call_id}"}})


def _message(role: str, text: str) -> Json:
    part: Json = {"type": "input_text", "text": text}
    if role == "assistant":
        part = {"type": "output_text", "text": text, "annotations": []}
    return {"item": {"type": "message", "role": role, "content": [part]}}


def _response(response_id: str) -> Step:
    usage = {
        "input_tokens": 900,
        "output_tokens": 60,
        "total_tokens": 960,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    return Step("response", {"response_id": response_id, "status": "completed", "usage": usage})


def written(count: int) -> bytes:
    """The session of the first ``count`` entries as a file, every response with the hash of its request."""
    given = list(islice(steps(), count))
    hashes = _hashes(given)
    header = new_header(id=SESSION, created_at="2026-02-02T00:00:00Z", records=ALL_RECORDS)
    lines = [header.line, *(entry.line for entry in _entries(given, hashes))]
    return b"\n".join([*lines, b""])


def _entries(given: list[Step], hashes: dict[int, str]) -> Iterator[Entry]:
    ids: list[str] = []
    above = ""
    for number, step in enumerate(given):
        body = dict(step.body)
        if step.target >= 0:
            body["target"] = ids[step.target]
        if step.type == "response":
            body["request_hash"] = hashes.get(number, _UNKNOWN)
        parent = ids[step.aside] if step.aside >= 0 else above
        entry = Entry.seal(step.type, body, parent, ts_from_ns(_START_NS + number * 1_000_000))
        ids.append(entry.id)
        above = above if step.aside >= 0 else entry.id
        yield entry


def _hashes(given: list[Step]) -> dict[int, str]:
    """What each response's request hashes to, by number."""
    source = MemorySource()
    walk = RequestWalk(source)
    hashes: dict[int, str] = {}
    above = -1
    for number, entry in enumerate(_entries(given, {})):
        aside = given[number].aside
        source.add(entry, aside if aside >= 0 else above)
        if aside >= 0:
            continue
        above = number
        if entry.type == "response":
            hashes[number] = walk.verify(number).rebuilt
        else:
            walk.read(number, entry.facts)
    return hashes
