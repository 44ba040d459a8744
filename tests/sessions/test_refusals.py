"""Every refusal of an append: its own error, and not a byte of the store changed (store.md A1, A3, format.md §9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from agentsession_cas import ALL_RECORDS, SessionWriter, Store, entry
from agentsession_cas.core.header import Header, new_header
from agentsession_cas.core.jsonl import projection_lines
from agentsession_cas.core.tree import Appendable
from agentsession_cas.effects.host import Fs
from agentsession_cas.effects.memory import memory_host
from agentsession_cas.errors import (
    AgentSessionError,
    AnswerNotDispatched,
    BadConvergence,
    BadEntry,
    BadID,
    BadJSON,
    BadNormalisation,
    BadTarget,
    BadWithdrawal,
    BaseRule,
    CallAnswered,
    CallCompleted,
    CalleeLink,
    CallIDEmpty,
    CallIDRepeated,
    CallRejected,
    Closed,
    LimitExceeded,
    MirrorError,
    NoEntry,
    NoRaise,
    NotRedacted,
    RejectDispatched,
    ReservedMember,
    Superseded,
    SyntheticLabel,
)

Json = dict[str, Any]

NOWHERE = "sha256:" + "0" * 64
FAR = "sha256:" + "f" * 64
TS = "2026-01-01T00:00:00Z"


def files(fs: Fs, directory: str) -> dict[str, bytes | None]:
    """Every file of a directory and below, with its bytes; directories with None."""
    found: dict[str, bytes | None] = {}
    waiting = [directory]
    while waiting:
        place = waiting.pop()
        found[place] = None
        for name in fs.listdir(place):
            path = f"{place}/{name}"
            stat = fs.stat(path)
            if stat is not None and stat.is_dir:
                waiting.append(path)
            else:
                found[path] = fs.read(path)
    return found


@dataclass
class Bench:
    """A session with a call in every state, links, a branch aside, and a successor; a fork of it; a mirror."""

    store: Store
    session: SessionWriter
    fork: SessionWriter
    ids: dict[str, str]

    def body(self, event: str, call: str, **more: Any) -> Json:
        """A decision or a dispatch of a call by its name."""
        named: Json = {"call_id": call, "target": self.ids[call], **more}
        if event == "dispatch":
            return {"type": "dispatch", **named}
        return {"type": "decision", "verdict": event, "reason": "why", **named}


CALLS = {
    "plain": "",
    "held": "hold",
    "dispatched": "dispatch",
    "withdrawn": "dispatch withdraw",
    "answered": "dispatch answer",
    "rejected": "reject",
    "rehearsed": "dispatch hold",
    "done": "dispatch output",
}


@pytest.fixture
def bench() -> Bench:
    store = Store.open("/store", create=True, host=memory_host(), background=False)
    session = store.create(id="main", records=ALL_RECORDS)
    ids = {"root": session.append(entry.user("hi")).id}
    ids["aside call"] = session.append(entry.function_call("aside", "t", "{}")).id
    ids["aside"] = ids["aside call"]
    session.branch(ids["root"])
    for name, events in CALLS.items():
        ids[name] = session.append(entry.function_call(name, "t", "{}")).id
        for event in events.split():
            play(session, name, ids[name], event)
    ids["peer"] = session.append(entry.peer("done", url="https://x.test")).id
    session.append(entry.continued_in("next"))
    fork = store.fork("main", ids["held"], id="fork", records=ALL_RECORDS)
    ids["own"] = fork.append(entry.user("of the fork")).id
    return Bench(store, session, fork, ids)


def play(session: SessionWriter, name: str, call: str, event: str) -> None:
    """Append what happened to a call."""
    if event == "output":
        session.append(entry.function_call_output(name, "ok"))
    elif event == "dispatch":
        session.append(entry.dispatch(name, call))
    elif event == "withdraw":
        session.append(entry.withdrawal(name, call, reason="no"))
    else:
        session.append(entry.decision(name, call, verdict=event, reason="why"))


def message(**more: Any) -> Json:
    """A line of a message."""
    return {"type": "item", "item": {"type": "message", "role": "user", "content": "x"}, **more}


def call_of(call_id: object) -> Json:
    """A line of a function call."""
    return {"type": "item", "item": {"type": "function_call", "call_id": call_id, "name": "t", "arguments": "{}"}}


def link(**more: Any) -> Json:
    """A line of a peer link."""
    return {"type": "link", "rel": "peer", "session": "", **more}


def nested(depth: int) -> Json:
    """A line that deep."""
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return {"type": "acme:deep", "a": value}


Make = Callable[[Bench], Appendable]

FORM: dict[str, tuple[type[AgentSessionError], Make]] = {
    "no item": (BadEntry, lambda _: {"type": "item"}),
    "a type of no namespace": (BadEntry, lambda _: {"type": "thing"}),
    "no type": (BadEntry, lambda _: {"a": 1}),
    "a reject without reason": (BadEntry, lambda b: {**b.body("reject", "plain"), "reason": ""}),
    "no pending list": (BadEntry, lambda _: {"type": "run", "run_id": "r", "phase": "end", "reason": "done"}),
    "parts that do not join": (
        BadEntry,
        lambda _: {"type": "config", "instructions": "x", "instructions_parts": [{"id": "a", "text": "y"}]},
    ),
    "a reserved member": (ReservedMember, lambda _: message(content="x")),
    "a synthetic label": (
        SyntheticLabel,
        lambda b: {"type": "label", "label": "leaf", "target": b.ids["root"], "synthetic": True},
    ),
    "an item_reference": (BadEntry, lambda _: {"type": "item", "item": {"type": "item_reference", "id": "x"}}),
    "an item_reference queued": (
        BadEntry,
        lambda _: {"type": "queued", "mode": "steer", "item": {"type": "item_reference", "id": "x"}},
    ),
    "no such parent": (NoEntry, lambda _: message(parent=NOWHERE)),
    "a parent that is no id": (NoEntry, lambda _: message(parent="root")),
    "a reference to no entry": (BadConvergence, lambda _: message(parents=[{"entry": FAR}])),
    "a reference to the parent": (BadConvergence, lambda b: message(parents=[{"entry": b.session.leaf}])),
    "a reference twice": (BadConvergence, lambda b: message(parents=[{"entry": b.ids["root"]}] * 2)),
    "a reference to this session by name": (
        BadConvergence,
        lambda _: message(parents=[{"session": "main", "entry": FAR}]),
    ),
    "parents that are no list": (BadConvergence, lambda _: message(parents={"entry": FAR})),
    "a bad normalised member": (BadNormalisation, lambda _: message(normalised=[{"at": "/item"}])),
    "not a number": (BadJSON, lambda _: {"type": "acme:x", "a": float("nan")}),
    "a member twice": (BadJSON, lambda _: b'{"type":"acme:x","a":1,"a":2}'),
    "no JSON": (BadJSON, lambda _: b'{"type":'),
    "too deep": (LimitExceeded, lambda _: nested(300)),
    "a ts in another spelling": (BadID, lambda _: message(ts="2026-01-01T00:00:00.10Z")),
    "another id": (BadID, lambda _: message(id=FAR, ts=TS)),
}

RULES: dict[str, tuple[type[AgentSessionError], Make]] = {
    "an empty call_id": (CallIDEmpty, lambda _: call_of("")),
    "a call_id that is no text": (CallIDEmpty, lambda _: call_of(7)),
    "a call_id of this path": (CallIDRepeated, lambda _: call_of("done")),
    "a call_id of another branch": (CallIDRepeated, lambda _: call_of("aside")),
    "a target that is no call": (BadTarget, lambda b: {**b.body("dispatch", "plain"), "target": b.ids["root"]}),
    "a target that is nothing": (BadTarget, lambda b: {**b.body("hold", "plain"), "target": FAR}),
    "a target of another call_id": (BadTarget, lambda b: {**b.body("hold", "plain"), "call_id": "held"}),
    "a target of another branch": (BadTarget, lambda b: b.body("dispatch", "aside")),
    "a dispatch after an answer": (CallAnswered, lambda b: b.body("dispatch", "answered")),
    "a hold after an answer": (CallAnswered, lambda b: b.body("hold", "answered")),
    "an answer after an answer": (CallAnswered, lambda b: b.body("answer", "answered")),
    "a withdrawal after an answer": (CallAnswered, lambda b: b.body("reject", "answered", withdrawn=True)),
    "a dispatch after a reject": (CallRejected, lambda b: b.body("dispatch", "rejected")),
    "a proceed after a reject": (CallRejected, lambda b: b.body("proceed", "rejected")),
    "a withdrawal of nothing": (BadWithdrawal, lambda b: b.body("reject", "plain", withdrawn=True)),
    "a withdrawal after a hold": (BadWithdrawal, lambda b: b.body("reject", "rehearsed", withdrawn=True)),
    "a second withdrawal": (BadWithdrawal, lambda b: b.body("reject", "withdrawn", withdrawn=True)),
    "a withdrawal after the output": (BadWithdrawal, lambda b: b.body("reject", "done", withdrawn=True)),
    "a reject after a dispatch": (RejectDispatched, lambda b: b.body("reject", "dispatched")),
    "a reject after the output": (RejectDispatched, lambda b: b.body("reject", "done")),
    "a dispatch after the output": (CallCompleted, lambda b: b.body("dispatch", "done")),
    "an answer after the output": (CallCompleted, lambda b: b.body("answer", "done")),
    "an answer of what never started": (AnswerNotDispatched, lambda b: b.body("answer", "held")),
    "a peer of no call": (CalleeLink, lambda _: link(session="s")),
    "a peer of nowhere": (CalleeLink, lambda _: link(call_id="done")),
    "a notice of nothing": (CalleeLink, lambda b: link(call_id="done", cancel="sent", target=b.ids["root"])),
    "a notice of another call": (CalleeLink, lambda b: link(call_id="held", cancel="sent", target=b.ids["peer"])),
    "a notice of another relation": (
        CalleeLink,
        lambda b: link(call_id="done", cancel="sent", target=b.ids["peer"], rel="subsession"),
    ),
    "a notice off its path": (
        CalleeLink,
        lambda b: link(call_id="done", cancel="sent", target=b.ids["peer"], parent=b.ids["root"]),
    ),
    "a second successor": (Superseded, lambda _: entry.continued_in("other")),
}


def refuse(bench: Bench, session: SessionWriter, error: type[AgentSessionError], *lines: Appendable) -> None:
    """Check that lines, one or a batch, are refused with exactly that error and that nothing changed anywhere."""
    fs = bench.store.layout.host.fs
    session.commit()
    before = files(fs, "/store")
    known = session.leaf, len(session), [each.id for each in session], session.leaves(), session.header.line
    act = partial(session.append, lines[0]) if len(lines) == 1 else partial(session.append_batch, lines)
    with pytest.raises(AgentSessionError) as caught:
        act(durable=True)
    assert type(caught.value) is error
    assert caught.value.what
    assert files(fs, "/store") == before
    assert known == (session.leaf, len(session), [each.id for each in session], session.leaves(), session.header.line)


@pytest.mark.parametrize("name", [*FORM, *RULES])
def test_a_refused_append_changes_nothing(bench: Bench, name: str) -> None:
    error, make = {**FORM, **RULES}[name]
    refuse(bench, bench.session, error, make(bench))
    assert bench.session.append(entry.user("and on it goes")).outcome == "continued"


@pytest.mark.parametrize("name", [*FORM, *RULES])
def test_a_batch_with_a_refused_entry_changes_nothing(bench: Bench, name: str) -> None:
    error, make = {**FORM, **RULES}[name]
    refused = make(bench)
    if name == "a reference to the parent":
        error, refused = BadConvergence, message(parents=[{"entry": FAR}])
    refuse(bench, bench.session, error, entry.user("first"), message(parent=bench.ids["root"]), refused)
    results = bench.session.append_batch([entry.user("first"), call_of("new")])
    assert [each.outcome for each in results] == ["continued", "continued"]


@pytest.mark.parametrize("name", [*FORM, *RULES])
def test_a_refused_append_raises_no_format(bench: Bench, name: str) -> None:
    """A session of an earlier minor stays at it, on disk too; the next append that is accepted raises it."""
    lines = [line.replace(b"agentsession/0.14", b"agentsession/0.11") for line in projection_lines(bench.session)]
    for session in (bench.fork, bench.session):
        session.close()
        bench.store.delete(session.id)
    bench.store.import_file(b"\n".join(lines), as_record=True)
    with bench.store.open_session("main") as session:
        early = replace(bench, session=session)
        error, make = {**FORM, **RULES}[name]
        refuse(early, session, error, make(early))
        assert session.header.format == "agentsession/0.11"
        session.append(entry.user("and on it goes"))
        assert session.header.format == "agentsession/0.14"


def test_what_a_batch_wrote_before_counts(bench: Bench) -> None:
    new = call_of("new")
    refuse(bench, bench.session, CallIDRepeated, new, {**new, "acme:n": 1})
    target = bench.session.append(new).id
    named = {"type": "decision", "call_id": "new", "target": target, "reason": "why"}
    refuse(bench, bench.session, CallRejected, {**named, "verdict": "reject"}, {**named, "verdict": "proceed"})
    hold = {**named, "verdict": "hold"}
    dispatch = {"type": "dispatch", "call_id": "new", "target": target}
    refuse(bench, bench.session, BadWithdrawal, dispatch, hold, {**named, "verdict": "reject", "withdrawn": True})


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (BaseRule, lambda b: message(parent=b.ids["root"])),
        (BaseRule, lambda _: message(parent=None, id=FAR, ts=TS)),
        (NoEntry, lambda b: message(parent=b.ids["peer"])),
        (CallIDRepeated, lambda _: call_of("plain")),
        (BadTarget, lambda b: b.body("dispatch", "done")),
        (CallRejected, lambda b: b.body("hold", "plain", parent=b.ids["own"])),
    ],
)
def test_what_a_fork_refuses(bench: Bench, error: type[AgentSessionError], make: Make) -> None:
    if error is CallRejected:
        bench.ids["own"] = bench.fork.append(bench.body("reject", "plain")).id
    refuse(bench, bench.fork, error, make(bench))


def test_a_session_of_before_redaction_is_not_raised(bench: Bench) -> None:
    """A member that 0.13 gave a meaning keeps a session at the format it was written in."""
    members = {**new_header(id="early", created_at=TS).members(), "format": "agentsession/0.11", "redacted_from": 1}
    with bench.store.create(Header(members)) as session:
        refuse(bench, session, NoRaise, entry.user("x"))
        assert session.header.format == "agentsession/0.11"
    with bench.store.create(id="late") as late:
        late.append({"type": "acme:x", "redacted": [1]})
        lines = [line.replace(b"agentsession/0.14", b"agentsession/0.11") for line in projection_lines(late)]
    bench.store.delete("late")
    bench.store.import_file(b"\n".join(lines), as_record=True)
    with bench.store.open_session("late") as session:
        refuse(bench, session, NoRaise, entry.user("x"))


def test_a_mirror_and_a_released_session_take_nothing(bench: Bench) -> None:
    bench.fork.close()
    bench.store.delete("fork")
    with bench.store.create(id="copy") as copy:
        copy.append(entry.user("x"))
        lines = b"\n".join(projection_lines(copy))
    bench.store.delete("copy")
    bench.store.import_file(lines)
    with bench.store.open_session("copy") as mirror:
        before = files(bench.store.layout.host.fs, "/store")
        with pytest.raises(MirrorError):
            mirror.append(entry.user("y"))
        assert files(bench.store.layout.host.fs, "/store") == before
    before = files(bench.store.layout.host.fs, "/store")
    with pytest.raises(Closed):
        mirror.append(entry.user("y"))
    assert files(bench.store.layout.host.fs, "/store") == before


def test_a_store_of_what_is_redacted_takes_nothing_else() -> None:
    store = Store.open("/store", create=True, host=memory_host(), background=False, redacted_only=True)
    session = store.create(id="r", redacted=True, redacted_from={"session": "main"})
    bench = Bench(store, session, session, {})
    session.append({**message(), "redacted": [1]})
    refuse(bench, session, NotRedacted, message())
    refuse(bench, session, NotRedacted, {**message(), "redacted": [2]}, message())


def test_what_no_append_tests_is_listed(bench: Bench) -> None:
    """References that resolve to nothing are told, never refused (store.md A1)."""
    label = bench.session.append({"type": "label", "label": "x", "target": FAR})
    assert label.unresolved == [FAR]
    unresolved = bench.session.append(message(parents=[{"session": "absent", "entry": FAR}])).unresolved
    assert unresolved == [f"absent@{FAR}"]
    drained = bench.session.append(message(queued_from=FAR, from_link=FAR))
    assert drained.unresolved == [FAR]
