"""The context hash of store.md A13: the two computed ones, and what does and does not enter it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from agentsession_cas.core import contextwalk
from agentsession_cas.core.contexthash import EMPTY_CONTEXT_HASH, context_hash_at, next_context_hash
from agentsession_cas.core.contextwalk import ContextHashes
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.memory import MemorySource
from tests.helpers.paths import reference

Json = dict[str, Any]

TS = "2026-01-01T00:00:00Z"
USER: Json = {"type": "message", "role": "user", "content": []}


def sha(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def path_of(*entries: tuple[str, Json]) -> MemorySource:
    source = MemorySource()
    for type_, body in entries:
        last = len(source) - 1
        source.add(Entry.seal(type_, body, source.entry_id(last) if last >= 0 else "", TS), last)
    return source


def at_end(*entries: tuple[str, Json]) -> str:
    source = path_of(*entries)
    return context_hash_at(source, len(source) - 1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("basic", "sha256:9f29961214f3abf68a9513ffc5111af9a245ec882feba0eef9c295b347c3a909"),
        ("compaction", "sha256:7866809da67507a1b76d6845389d523ddbb26bf7f799c61f7c06f18cb3f7a673"),
    ],
)
def test_computed_hashes(name: str, expected: str) -> None:
    source = reference(name)
    assert context_hash_at(source, len(source) - 1) == expected


def test_before_any_contributing_entry() -> None:
    assert context_hash_at(MemorySource(), -1) == EMPTY_CONTEXT_HASH == sha(None)
    assert at_end(("info", {"name": "x"}), ("response", {"status": "completed"}), ("acme:x", {})) == EMPTY_CONTEXT_HASH


def test_one_step_by_hand() -> None:
    first = sha([sha(None), "config", sha({"model": "m"})])
    second = sha([first, "item", sha({"item": USER})])
    assert at_end(("config", {"model": "m"}), ("item", {"item": USER}), ("info", {"name": "n"})) == second


PLAIN: dict[str, Json] = {
    "item": {"item": USER, "visible": False, "acme": 1},
    "config": {"model": "m"},
    "branch_summary": {"summary": USER},
    "compaction": {"summary": USER, "config": {}},
}
EVERYWHERE: Json = {"legacy_id": "i1", "normalised": [{"at": "/x", "was": "1"}], "redacted": [1]}
LEFT_OUT: dict[str, Json] = {
    "item": {"response": "r", "source": {"kind": "x"}, "queued_from": "q", "failed": True, "from_link": "l"},
    "config": {},
    "branch_summary": {"from": "somewhere"},
    "compaction": {},
}


@pytest.mark.parametrize("type_", PLAIN)
def test_members_left_out(type_: str) -> None:
    plain = at_end((type_, PLAIN[type_]))
    for name, value in {**EVERYWHERE, **LEFT_OUT[type_]}.items():
        assert at_end((type_, {**PLAIN[type_], name: value})) == plain, name
    assert at_end((type_, {**PLAIN[type_], "acme": 2})) != plain
    assert plain == sha([sha(None), type_, sha(PLAIN[type_] | ({"first_kept": None} if type_ == "compaction" else {}))])


def test_first_kept_is_named_by_what_it_is_on_this_path() -> None:
    before = path_of(("config", {"model": "m"}), ("item", {"item": USER}), ("info", {"name": "n"}))
    hashes = [context_hash_at(before, at) for at in range(3)]
    for at, type_ in enumerate(("config", "item", "info")):
        content = {"summary": USER, "first_kept": [hashes[at], type_]}
        source = path_of(
            ("config", {"model": "m"}),
            ("item", {"item": USER}),
            ("info", {"name": "n"}),
            ("compaction", {"summary": USER, "first_kept": before.entry_id(at)}),
        )
        assert context_hash_at(source, 3) == sha([hashes[2], "compaction", sha(content)])


def test_first_kept_off_the_path_is_null() -> None:
    source = path_of(("item", {"item": USER}))
    branch = source.add(Entry.seal("config", {"model": "m"}, source.entry_id(0), TS), 0)
    root = context_hash_at(source, 0)
    for first_kept in (source.entry_id(branch), "nobody", None):
        body = {"summary": USER, "first_kept": first_kept}
        at = source.add(Entry.seal("compaction", body, source.entry_id(0), TS), 0)
        expected = sha([root, "compaction", sha({"summary": USER, "first_kept": None})])
        assert context_hash_at(source, at) == expected


def test_envelopes_do_not_enter() -> None:
    one = path_of(("config", {"model": "m"}), ("item", {"item": USER}))
    other = MemorySource()
    other.add(Entry.seal("info", {"name": "n"}, "", TS), -1)
    other.add(Entry.seal("config", {"model": "m"}, other.entry_id(0), "2027-01-01T00:00:00Z"), 0)
    other.add(Entry.seal("item", {"item": USER}, other.entry_id(1), TS, [{"entry": other.entry_id(0)}]), 1)
    assert context_hash_at(one, 1) == context_hash_at(other, 2)


def test_next_asks_for_first_kept_alone() -> None:
    asked: list[str] = []
    body = {"first_kept": "x"}

    def resolve(entry_id: str) -> tuple[str, str] | None:
        asked.append(entry_id)
        return None

    for type_ in ("item", "config", "branch_summary", "response", "acme:x"):
        next_context_hash(EMPTY_CONTEXT_HASH, type_, body, sha(body), resolve)
    assert asked == []
    next_context_hash(EMPTY_CONTEXT_HASH, "compaction", body, sha(body), resolve)
    assert asked == ["x"]


def test_long_chain() -> None:
    source = path_of(*(("info", {"name": str(n)}) for n in range(5000)), ("item", {"item": USER}))
    assert context_hash_at(source, len(source) - 1) == sha([sha(None), "item", sha({"item": USER})])


def test_hashes_made_on_the_way_are_kept_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contextwalk, "_REMEMBERED_MAX", 3)
    source = path_of(*(("item", {"item": {**USER, "n": n}}) for n in range(9)))
    hashes = ContextHashes(source, lambda _: "")
    for at in range(len(source)):
        assert hashes.at(at) == context_hash_at(source, at)
        assert len(hashes._made) <= 3
