"""What fsck says of stores nothing is wrong with, however they came to be, and beside writers at work."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from agentsession_cas import entry
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.header import ALL_RECORDS, new_header
from agentsession_cas.maintenance.findings import FsckReport
from agentsession_cas.store import Store
from tests.helpers.damage import Bench, call_and_output

REFERENCE = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"
WHOLE = ("basic", "branch", "compaction", "fork", "normalised", "omit", "parts", "runs")
TS = "2026-01-01T00:00:00Z"
IMAGE = {"type": "input_image", "detail": "auto", "image_url": ""}


def silent(report: FsckReport) -> bool:
    """Whether nothing at all was found."""
    return report.ok and not report.findings


def test_a_store_of_every_kind_of_session_is_clean(bench: Bench) -> None:
    with bench.store() as store:
        report = store.fsck()
    assert silent(report), report.findings
    assert (report.sessions, report.entries) == (4, 6 + 110 + 5 + 3)


def test_the_shape_is_that_of_the_command_line(bench: Bench) -> None:
    with bench.store() as store:
        clean = store.fsck().to_json()
        store.delete("gamma")
        found = store.fsck().to_json()
    assert clean == {"ok": True, "sessions": 4, "entries": 124, "objects": 210, "findings": []}
    assert found["ok"] is True
    assert set(found["findings"][0]) == {"code", "severity", "object", "path", "detail"}
    assert {each["code"] for each in found["findings"]} == {"dangling_object"}


@pytest.mark.parametrize("as_record", [False, True])
def test_every_whole_reference_file_imported_is_clean(as_record: bool) -> None:
    with Store.memory() as store:
        for name in WHOLE:
            store.import_file(REFERENCE / f"{name}.jsonl", as_record=as_record)
        assert silent(store.fsck())
        assert silent(store.fsck(fast=True))


@pytest.mark.parametrize("checkpointed", [False, True])
def test_continued_reference_sessions_are_clean(checkpointed: bool) -> None:
    with Store.memory() as store:
        for name in WHOLE:
            session = store.import_file(REFERENCE / f"{name}.jsonl", as_record=True).session
            with store.open_session(session) as held:
                held.append_batch([*call_and_output("fsck-1"), entry.info(name="again")])
                first = held.source.entry_id(held.source.base_count)
                held.append(Draft("label", {"label": "leaf", "target": first}))
                held.append(entry.user("a branch"))
                if checkpointed:
                    held.checkpoint()
        report = store.fsck()
    assert {each.code for each in report.findings if each.severity == "error"} <= {"reason_mismatch", "record_missing"}


def test_what_broken_files_break_is_named_by_the_codes_of_verify() -> None:
    with Store.memory() as store:
        records = store.import_file(REFERENCE / "bad-records.jsonl").session
        kept = store.import_file(REFERENCE / "bad-first-kept.jsonl").session
        report = store.fsck()
    found = [(each.code, each.session) for each in report.findings]
    assert found == [("record_missing", records), ("first_kept", kept)]
    assert not report.ok


def test_an_empty_session_and_an_empty_store_are_clean() -> None:
    with Store.memory() as store:
        assert silent(store.fsck())
        store.create(id="empty").close()
        assert silent(store.fsck())


def test_forks_of_forks_are_clean_whatever_became_of_their_origins(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s", create=True) as store:
        with store.create(id="0") as session:
            last = [session.append(entry.user(f"0 {n}")).id for n in range(40)][20]
        for depth in range(1, 6):
            with store.fork(str(depth - 1), last, id=str(depth)) as session:
                last = [session.append(entry.user(f"{depth} {n}")).id for n in range(3)][1]
        assert silent(store.fsck())
        for depth in range(5):
            store.delete(str(depth))
        report = store.fsck()
        assert report.ok
        assert {each.code for each in report.findings} <= {"dangling_object"}


def test_blobs_are_needed_and_missing_ones_a_note() -> None:
    with Store.memory() as store:
        held, missing = store.put_blob(b"pixels"), f"sha256:{'0' * 64}"
        with store.create(id="m", media="sidecar") as session:
            session.append(entry.user([{**IMAGE, "image_url": f"sidecar:{held}"}]))
            session.append(entry.user([{**IMAGE, "image_url": f"sidecar:{missing}"}]))
        report = store.fsck()
        assert report.ok
        assert [(each.code, each.object) for each in report.findings] == [("missing_blob", missing)]
        store.delete("m")
        assert [(each.code, each.object) for each in store.fsck().findings] == [("dangling_object", held)]


def test_a_subsession_linked_both_ways_is_clean_and_one_never_started_too() -> None:
    with Store.memory() as store:
        with store.create(id="p", records=ALL_RECORDS) as parent:
            for call in ("c1", "c2"):
                target = parent.append(call_and_output(call)[0]).id
                parent.append(entry.dispatch(call, target))
                parent.append(entry.subsession(f"child-{call}", call))
        store.create(id="child-c1", parent_session="p", spawned_by="c1").close()
        assert silent(store.fsck())


def test_a_target_that_comes_later_is_clean() -> None:
    """What an outcome or a label names is no condition: it may come after it, in a file and in a log."""
    header = new_header(id="later", created_at=TS)
    first = Entry.seal("item", {"item": {"type": "message", "role": "user", "content": "a"}}, "", TS)
    target = Entry.seal("item", {"item": {"type": "message", "role": "user", "content": "b"}}, first.id, TS)
    outcome = Entry.seal("outcome", {"kind": "test", "target": target.id}, first.id, TS)
    leaf = Entry.seal("label", {"label": "leaf", "target": target.id}, first.id, TS)
    lines = [first, outcome, leaf, target]
    with Store.memory() as store:
        imported = store.import_file(b"\n".join([header.line, *(each.line for each in lines)]))
        assert imported.head == target.id
        with store.create(id="appended") as session:
            for each in lines:
                session.append(each)
        assert silent(store.fsck())
        assert [each.id for each in store.read("later")] == [each.id for each in lines]


def test_progress_counts_the_objects_and_each_session(bench: Bench) -> None:
    seen: list[tuple[int, int]] = []
    with bench.store() as store:
        store.fsck(progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]


def test_a_read_only_store_is_checked_and_nothing_is_written(bench: Bench) -> None:
    def state() -> dict[str, tuple[int, int]]:
        found = (path for path in bench.root.rglob("*"))
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in found}

    before = state()
    with Store.open(bench.root, read_only=True) as store:
        store.fsck()
        store.fsck(fast=True)
        store.stats()
    assert state() == before


def test_beside_writers_that_append_and_checkpoint_nothing_is_called_damaged(bench: Bench) -> None:
    stop = threading.Event()
    failed: list[BaseException] = []

    def write(store: Store, name: str) -> None:
        try:
            with store.create(id=name) as session:
                count = 0
                while not stop.is_set():
                    session.append(entry.user(f"{name} {count}"), durable=count % 3 == 0)
                    count += 1
                    if count % 40 == 0:
                        session.checkpoint()
        except BaseException as error:
            failed.append(error)

    with bench.store() as writing, Store.open(bench.root, read_only=True) as store:
        threads = [threading.Thread(target=write, args=(writing, name)) for name in ("w1", "w2")]
        for thread in threads:
            thread.start()
        try:
            reports = [store.fsck(fast=fast) for fast in (False, True, False, True, False)]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not failed
        for report in reports:
            assert not report.findings
            assert report.sessions >= 4
        assert silent(store.fsck())


def test_a_session_deleted_while_it_is_looked_at_is_none(bench: Bench) -> None:
    with bench.store() as store:

        def delete(done: int, _total: int) -> None:
            if done == 2:  # alpha is behind us, beta not yet read
                store.delete("beta")

        report = store.fsck(progress=delete)
    assert report.sessions == 3
    assert not [each for each in report.findings if each.session]


def test_a_session_that_comes_while_others_are_looked_at_is_looked_at(bench: Bench) -> None:
    with bench.store() as store:

        def create(done: int, _total: int) -> None:
            if done == 4:
                with store.create(id="a-new-one") as session:
                    session.append(entry.user("hello"))

        report = store.fsck(progress=create)
    assert report.sessions == 5
    assert silent(report)


# --- stats -----------------------------------------------------------------------------------------------------------


def line_bytes(store: Store, session: str) -> int:
    """Header, envelopes and bodies of a session, read entry by entry."""
    read = store.read(session)
    return len(read.header.line) + sum(len(each.envelope) + len(each.content) for each in read)


def test_stats_are_what_reading_everything_says(bench: Bench) -> None:
    with bench.store() as store:
        found = store.stats()
        sessions = [each.id for each in store.list()]
        logical = sum(line_bytes(store, session) for session in sessions)
        distinct = {each.id: each for session in sessions for each in store.read(session)}
        envelopes = sum(len(each.envelope) for each in distinct.values())
        bodies = sum(len(body) for body in {each.content for each in distinct.values()})
        headers = sum(len(store.read(session).header.line) for session in sessions)
    files = [path for path in bench.root.rglob("*") if path.is_file()]

    def weigh(pattern: str) -> int:
        return sum(path.stat().st_size for path in files if path.match(pattern))

    assert found["sessions"] == 4
    assert found["entries"] == 124
    assert found["objects"] == {"loose": 10, "packed": 200, "packs": 1}
    assert found["bytes"] == {
        "logical": logical,
        "disk": weigh("*"),
        "journals": weigh("sessions/*/journal"),
        "logs": weigh("sessions/*/log-*"),
        "packs": weigh("objects/pack/*"),
        "loose": weigh("objects/entries/*/*") + weigh("objects/contents/*/*"),
    }
    assert found["saved"]["dedup"] == logical - headers - envelopes - bodies


def test_dedup_counts_a_body_once_and_a_prefix_for_every_fork() -> None:
    with Store.memory() as store:
        with store.create(id="o") as session:
            ids = [session.append(entry.user("the same body")).id for _ in range(10)]
        alone = store.stats()["saved"]["dedup"]
        body = len(store.read("o").entry(ids[0]).content)
        assert alone == 9 * body
        prefix = sum(len(each.envelope) + len(each.content) for each in store.read("o"))
        store.fork("o", ids[-1], id="f").close()
        assert store.stats()["saved"]["dedup"] == alone + prefix


def test_a_blob_counts_for_each_session_that_names_it() -> None:
    with Store.memory() as store:
        blob = store.put_blob(b"x" * 5000)
        before = store.stats()
        for name in ("a", "b", "c"):
            with store.create(id=name, media="sidecar") as session:
                session.append(entry.user([{**IMAGE, "image_url": f"sidecar:{blob}"}]))
        after = store.stats()
    assert before["bytes"]["logical"] == 0
    assert after["saved"]["dedup"] >= 2 * 5000
    assert after["saved"]["compression"] > 4000


def test_stats_leave_out_what_does_not_read(bench: Bench) -> None:
    (bench.session("alpha") / "journal").unlink()
    bench.loose("contents", bench.content_hash("gamma", bench.gamma[0])).unlink()
    with bench.store() as store:
        found: dict[str, Any] = store.stats()
    assert found["sessions"] == 3
    assert found["entries"] == 118
