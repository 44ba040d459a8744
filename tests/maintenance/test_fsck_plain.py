"""The shorter look at plain entries finds nothing where the whole look finds nothing, and leaves it all else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentsession_cas import Store, entry
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.framing import scan_journal
from agentsession_cas.core.rows import (
    REF_ELSEWHERE,
    ROW_SIZE,
    Row,
    decode_row,
    encode_row,
    log_seed,
    seal_row,
)
from agentsession_cas.maintenance.findings import FsckReport
from agentsession_cas.maintenance.fsck_plain import PlainCheck
from tests.helpers.damage import Bench, Forged, call_and_output, record_of, row_of
from tests.helpers.damages import DAMAGE

HASHES = [bytes([at]) * 32 for at in range(3)]


def check(root: Path) -> FsckReport:
    with Store.open(root, read_only=True) as store:
        return store.fsck()


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each entry that was looked at passed."""
    seen: list[bool] = []
    passes = PlainCheck.passes

    def look(self: PlainCheck, number: int, position: int, row: Row) -> bool:
        seen.append(passes(self, number, position, row))
        return seen[-1]

    monkeypatch.setattr(PlainCheck, "passes", look)
    return seen


def both(root: Path) -> tuple[FsckReport, FsckReport]:
    """What is found with the shorter look and without."""
    short = check(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlainCheck, "passes", lambda *_: False)
        return short, check(root)


@pytest.mark.heavy
@pytest.mark.parametrize("code", DAMAGE)
def test_every_damage_is_told_as_by_the_whole_look(bench: Bench, code: str) -> None:
    DAMAGE[code](bench)
    short, whole = both(bench.root)
    assert short == whole


def test_plain_entries_pass(bench: Bench, passed: list[bool]) -> None:
    """All but those of the fork's base, which are another session's."""
    with bench.store() as store:
        store.repack()
    report = check(bench.root)
    assert report.findings == []
    assert passed == [True] * report.entries


def mixed(store: Store) -> None:
    """Every kind of entry, on branches, in journals, in logs and packed."""
    with store.create(id="mixed") as session:
        first = session.append(entry.user("one"))
        session.append(entry.config(model="m", instructions="be brief", replace=True))
        session.append_batch([*call_and_output("c1"), entry.label(first.id, "a label"), entry.info(name="named")])
        text = {"type": "output_text", "text": ',"response":"x"}'}
        item = {"type": "message", "role": "assistant", "content": [text]}
        last = session.append(entry.item(item, response='a "quoted" response'))
        session.append(session.compact_from(2, {"type": "message", "role": "user", "content": "so far"}))
        session.branch(first.id)
        session.append_batch([entry.user("another way"), entry.item({**item, "odd": 1.5e300, "very": 2**60})])
        session.append(entry.user("é\U0001f600"))
        session.checkpoint()
        session.append(entry.user("behind"))
        session.branch(last.id)
        session.append(entry.user("back"))
        session.append(entry.label(last.id, "another"))


def test_entries_of_every_kind_are_sound_by_either_look(tmp_path: Path, passed: list[bool]) -> None:
    with Store.open(tmp_path / "st", create=True, background=False) as store:
        mixed(store)
        with store.fork("mixed", store.read("mixed").leaf, id="fork") as fork:
            fork.append_batch([entry.user("in the fork"), *call_and_output("c2")])
            fork.checkpoint()
    for _ in range(2):
        short, whole = both(tmp_path / "st")
        assert short == whole
        assert short.findings == []
        assert passed.count(False) < passed.count(True)
        passed.clear()
        with Store.open(tmp_path / "st") as store:
            store.repack()


ROW_CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "entry": st.sampled_from(HASHES),
        "content": st.sampled_from(HASHES),
        "context": st.sampled_from(HASHES),
        "parent": st.integers(0, 8),
        "target": st.sampled_from([*range(8), REF_ELSEWHERE]),
        "ts": st.integers(-(2**62), 2**62),
        "code": st.integers(0, 16),
        "kind": st.sampled_from([0, 1, 2, 3, 4, 10, 20, 30, 40]),
        "flags": st.integers(0, 2**16 - 1),
        "call": st.integers(0, 3),
    },
)


@pytest.mark.heavy
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 5), ROW_CHANGES), min_size=1, max_size=3))
def test_forged_rows_are_told_as_by_the_whole_look(
    pristine: Bench, tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, dict[str, Any]]]
) -> None:
    root = tmp_path_factory.mktemp("forged") / "store"
    shutil.copytree(pristine.root, root)
    bench = pristine.at(root)

    def forge(journal: Forged) -> Forged:
        for at, change in changes:
            journal = row_of(journal, at, **change)
        return journal

    bench.forge("alpha", forge)
    for at, change in changes:
        reseal(bench, "beta", 5 + at, change)
    short, whole = both(root)
    assert short == whole
    shutil.rmtree(root)


def reseal(bench: Bench, session: str, number: int, change: dict[str, Any]) -> None:
    """Change a row in the log itself; its checksum is right."""
    generation = scan_journal((bench.session(session) / "journal").read_bytes()).generation
    path = bench.session(session) / f"log-{generation.log}"
    data = bytearray(path.read_bytes())
    row = decode_row(bytes(data), number * ROW_SIZE)._replace(**change)
    sealed = seal_row(encode_row(row), number, log_seed(generation.birth, generation.log))
    data[number * ROW_SIZE : (number + 1) * ROW_SIZE] = sealed
    path.write_bytes(data)


BODIES: list[tuple[str, bytes]] = [
    ("item", b'{"item":{"type":"message"},"content":1}'),
    ("item", b'{"content":1,"item":{"type":"message"}}'),
    ("item", b'{"item":{"type":"message"},"item":{}}'),
    ("item", b'{"item": {"type":"message"}}'),
    ("item", b'{"item":{"n":1.0,"type":"message"}}'),
    ("item", b'{"item":{"n":9007199254740993,"type":"message"}}'),
    ("item", b'{"item":[]}'),
    ("item", b"[1]"),
    ("item", b'{"item":{"type":"message"}'),
    ("item", b'{"item":{"type":"message","\xf0\x90\x80\x80":1,"\xef\xbf\xbd":2}}'),
    ("run", b'{"phase":"end","run_id":"r"}'),
    ("decision", b'{"call_id":"c1","target":"none","verdict":"proceed"}'),
    ("queued", b'{"item":{},"mode":"never"}'),
    ("item", b'{"item":{"type":"message"},"response":7}'),
    ("item", b'{"item":{"type":"message"},"response":"r","redacted":true}'),
    ("item", b'{"item":' + b"[" * 300 + b"]" * 300 + b"}"),
    ("label", b'{"label":"leaf","target":null}'),
]


@pytest.mark.parametrize(("type_", "body"), BODIES)
def test_forged_bodies_are_told_as_by_the_whole_look(bench: Bench, type_: str, body: bytes) -> None:
    """Every hash is right; what the bytes say is not."""
    with bench.store() as store:
        last = store.read("alpha").entry(store.read("alpha").leaf)
    forged = Entry.of_content(body, type_, {}, last.parent, last.ts, [])
    bench.forge("alpha", lambda journal: record_of(journal, 5, forged))
    short, whole = both(bench.root)
    assert short == whole


@pytest.mark.parametrize("lost", ["contents", "entries"])
def test_what_lies_in_no_pack_any_more_is_told(bench: Bench, lost: str) -> None:
    """A session that came after the objects were listed, or whose objects went, has no listed copy to be sure of."""
    hashes: dict[str, Callable[[], str]] = {
        "contents": lambda: bench.content_hash("gamma", bench.gamma[2]),
        "entries": lambda: bench.gamma[2],
    }
    bench.loose(lost, hashes[lost]()).unlink()
    short, whole = both(bench.root)
    assert short == whole
    assert f"missing_{'content' if lost == 'contents' else 'entry'}" in {each.code for each in short.findings}


def repeated(journal: Forged) -> Forged:
    """The second entry once more, and one below the copy."""
    journal.groups[0] += [journal.groups[0][1], journal.groups[0][3]]
    return row_of(row_of(journal, 6, head=7), 7, parent=8, head=7)


def test_what_hangs_from_a_repeated_entry_is_told(bench: Bench) -> None:
    bench.forge("alpha", repeated)
    short, whole = both(bench.root)
    assert short == whole
    assert "repeated_entry" in {each.code for each in short.findings}
