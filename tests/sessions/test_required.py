"""What each type of entry needs, row by row of format.md §5: an append without it is refused; reading is laxer."""

from __future__ import annotations

from typing import Any, Final

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.jsonl import projection_lines, read_session
from agentsession_cas.effects.memory import memory_host
from agentsession_cas.errors import BadEntry
from tests.sessions.test_refusals import files

Json = dict[str, Any]

TARGET: Final = "sha256:" + "a" * 64
MESSAGE: Final = {"type": "message", "role": "user", "content": "x"}
GONE: Final = object()

WHOLE: Final[dict[str, tuple[str, Json]]] = {
    "item": ("item", {"item": MESSAGE}),
    "compaction": ("compaction", {"first_kept": TARGET, "summary": MESSAGE}),
    "branch_summary": ("branch_summary", {"from": TARGET, "summary": MESSAGE}),
    "run start": ("run", {"run_id": "r", "phase": "start", "source": "input"}),
    "run end": ("run", {"run_id": "r", "phase": "end", "reason": "done", "pending": []}),
    "dispatch": ("dispatch", {"call_id": "c1", "target": TARGET}),
    "decision": ("decision", {"call_id": "c1", "target": TARGET, "verdict": "hold"}),
    "reject": ("decision", {"call_id": "c1", "target": TARGET, "verdict": "reject", "reason": "no"}),
    "queued": ("queued", {"item": MESSAGE, "mode": "steer"}),
    "label": ("label", {"target": TARGET, "label": "x"}),
    "outcome": ("outcome", {"kind": "task"}),
    "link": ("link", {"rel": "fork_of", "session": "s"}),
    "custom": ("custom", {"ns": "acme"}),
}
NEEDS: Final[dict[str, dict[str, list[object]]]] = {
    "item": {"item": [[], "x"]},
    "compaction": {"first_kept": [7], "summary": ["x", []]},
    "branch_summary": {"from": [7], "summary": ["x"]},
    "run start": {"run_id": [7], "phase": ["middle"], "source": ["queue", 7]},
    "run end": {"run_id": [7], "phase": ["middle"], "reason": ["finished"], "pending": ["c1", [7], {}]},
    "dispatch": {"call_id": [7], "target": [7]},
    "decision": {"call_id": [7], "target": [7], "verdict": ["maybe", ["hold"]]},
    "reject": {"reason": [7]},
    "queued": {"item": ["x"], "mode": ["later"]},
    "label": {"target": [7], "label": [7]},
    "outcome": {"kind": ["rumour"]},
    "link": {"rel": ["cousin"], "session": [7]},
    "custom": {"ns": [7]},
}
READ_ANYWAY: Final = {"label", "outcome", "link", "custom", "reject"}
"""Types whose lines read without: the member is null or empty then (format.md §5)."""
CLEARED: Final = ("label", "label", None)
"""The one empty value that says something: a label that is no more."""

ROWS: Final = [
    (name, member, value)
    for name, members in NEEDS.items()
    for member, odd in members.items()
    for value in [GONE, None, "", *odd]
    if (name, member, value) != CLEARED
]


def _without(name: str, member: str, value: object) -> tuple[str, Json]:
    type_, body = WHOLE[name]
    return type_, {k: v for k, v in {**body, member: value}.items() if v is not GONE}


def _told(row: object) -> str:
    return "absent" if row is GONE else repr(row)


@pytest.mark.parametrize(("name", "member", "value"), ROWS, ids=_told)
def test_an_append_without_what_its_type_needs_is_refused(name: str, member: str, value: object) -> None:
    with Store.open("/store", create=True, host=memory_host(), background=False) as store, store.create() as session:
        session.append(entry.user("hi"), durable=True)
        type_, body = _without(name, member, value)
        before, leaf = files(store.layout.host.fs, "/store"), session.leaf
        with pytest.raises(BadEntry) as caught:
            session.append({"type": type_, **body}, durable=True)
        assert type(caught.value) is BadEntry
        assert f"/{member}" in caught.value.where
        with pytest.raises(BadEntry):
            session.append_batch([entry.user("more"), {"type": type_, **body}], durable=True)
        assert files(store.layout.host.fs, "/store") == before
        assert (session.leaf, len(session)) == (leaf, 1)


@pytest.mark.parametrize(("name", "member", "value"), ROWS, ids=_told)
def test_a_line_without_is_malformed_where_nothing_can_be_read_without(name: str, member: str, value: object) -> None:
    type_, body = _without(name, member, value)
    with Store.memory() as store, store.create() as session:
        head = next(iter(projection_lines(session)))
    data = b"\n".join([head, Entry.seal(type_, body, "", "2026-01-01T00:00:00Z").line])
    if name in READ_ANYWAY or member == "pending":
        (held,) = read_session(data)
        assert held.body == body
    else:
        with pytest.raises(BadEntry):
            read_session(data)


@pytest.mark.parametrize("name", WHOLE)
def test_what_holds_all_of_it_reads(name: str) -> None:
    type_, body = WHOLE[name]
    with Store.memory() as store, store.create() as session:
        head = next(iter(projection_lines(session)))
    (held,) = read_session(b"\n".join([head, Entry.seal(type_, body, "", "2026-01-01T00:00:00Z").line]))
    assert held.body == body
