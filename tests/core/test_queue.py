"""Queued inputs: what is still owed (context.md §2)."""

from __future__ import annotations

from agentsession_cas.core.queue import pending_queued, queued_json
from tests.helpers.tape import Tape


def queue(tape: Tape, text: str, **more: object) -> int:
    """A queued input."""
    item = {"type": "message", "role": "user", "content": text}
    return tape.add("queued", {"item": item, "mode": "steer", **more})


def test_a_queued_input_is_owed_until_an_item_names_it() -> None:
    tape = Tape()
    first, second = queue(tape, "a"), queue(tape, "b")
    tape.add("item", {"item": {"type": "message", "role": "user", "content": "a"}, "queued_from": tape.id(first)})
    assert [entry.id for entry in pending_queued(tape.source, tape.at)] == [tape.id(second)]


def test_nothing_but_an_item_pays_and_names_it_by_its_id() -> None:
    tape = Tape()
    owed = queue(tape, "a")
    message = {"type": "message", "role": "user", "content": "a"}
    tape.add("custom", {"ns": "acme", "queued_from": tape.id(owed)})
    tape.add("acme:item", {"item": message, "queued_from": tape.id(owed)})
    tape.add("branch_summary", {"from": tape.id(owed), "summary": message, "queued_from": tape.id(owed)})
    for other in ({"entry": tape.id(owed)}, [tape.id(owed)], 7, None, ""):
        tape.add("item", {"item": message, "queued_from": other})
    assert [entry.id for entry in pending_queued(tape.source, tape.at)] == [tape.id(owed)]


def test_a_run_that_starts_closes_nothing() -> None:
    tape = Tape()
    owed = queue(tape, "a")
    tape.start()
    tape.response()
    assert [entry.id for entry in pending_queued(tape.source, tape.at)] == [tape.id(owed)]


def test_the_end_of_any_run_closes_what_was_queued_before_it() -> None:
    tape = Tape()
    queue(tape, "a")
    tape.end("done", run_id="of nobody")
    later = queue(tape, "b")
    tape.start()
    assert [entry.id for entry in pending_queued(tape.source, tape.at)] == [tape.id(later)]


def test_queued_inputs_keep_their_order_and_their_branch() -> None:
    tape = Tape()
    first = queue(tape, "a")
    second = queue(tape, "b")
    tape.branch(first)
    third = queue(tape, "c")
    assert [entry.id for entry in pending_queued(tape.source, tape.at)] == [tape.id(first), tape.id(third)]
    assert [entry.id for entry in pending_queued(tape.source, second)] == [tape.id(first), tape.id(second)]
    assert pending_queued(tape.source, -1) == []


def test_the_json_of_a_queued_input() -> None:
    tape = Tape()
    bare = queue(tape, "a")
    full = queue(tape, "b", trigger={"kind": "human"}, ref="x")
    item = {"type": "message", "role": "user", "content": "a"}
    assert queued_json(tape.source.entry(bare)) == {"entry": tape.id(bare), "mode": "steer", "item": item}
    shown = queued_json(tape.source.entry(full))
    assert (shown["trigger"], shown["ref"]) == ({"kind": "human"}, "x")
    odd = queue(tape, "c", trigger="human", ref="")
    assert queued_json(tape.source.entry(odd)).keys() == {"entry", "mode", "item"}
    odd = queue(tape, "c", trigger=[], ref=7)
    assert queued_json(tape.source.entry(odd)).keys() == {"entry", "mode", "item"}
