"""Damaged stores: fsck names each damage by its code, with session and path, and calls nothing else damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.framing import FRAMES_OFFSET, Generation
from agentsession_cas.core.header import Header
from agentsession_cas.core.rows import REF_BASE, ref_to
from agentsession_cas.effects.host import real_host
from agentsession_cas.maintenance.findings import CODES, Finding, FsckReport
from agentsession_cas.sessions.headerfile import encode_header
from tests.helpers.damage import Bench, Forged, flip, record_of, row_of
from tests.helpers.damages import DAMAGE, TS, last_of_alpha


def named(report: FsckReport, code: str) -> list[Finding]:
    return [each for each in report.findings if each.code == code]


@pytest.mark.parametrize("code", DAMAGE)
def test_each_damage_is_named(bench: Bench, code: str) -> None:
    told = DAMAGE[code](bench)
    report = bench.fsck()
    found = named(report, code)
    wanted = [each for each in found if each.session == told.session and each.path.endswith(told.path)]
    assert any(told.detail in each.detail for each in wanted), report.findings
    assert report.ok == all(each.severity != "error" for each in report.findings)
    assert all(each.severity == CODES[each.code].severity for each in report.findings)


BEYOND = {
    "corrupt_pack": {"beta", "delta"},
    "corrupt_block": {"beta", "delta"},
    "corrupt_object": {"gamma"},
    "idx_mismatch": {"beta", "delta"},
    "dangling_unknown": {"beta"},
    "misnamed_object": {"gamma"},
    "missing_base": {"beta", "delta"},
    "missing_piece": {"zeta"},
    "broken_body": {"zeta"},
}
"""Sessions that object damage reaches; elsewhere only the damaged session has errors."""


@pytest.mark.parametrize("code", DAMAGE)
@pytest.mark.parametrize("fast", [False, True])
def test_other_sessions_are_not_called_damaged(bench: Bench, code: str, fast: bool) -> None:
    told = DAMAGE[code](bench)
    report = bench.fsck(fast=fast)
    hurt = {each.session for each in report.findings if each.severity == "error" and each.session}
    assert hurt <= {told.session} | BEYOND.get(code, set())


def test_every_code_has_its_damaged_store() -> None:
    said = {code for code, (_, _, todo) in CODES.items() if "whoever wrote" in todo} | {"other_form"}
    assert set(CODES) - said - {"bad_settings"} <= set(DAMAGE)


def test_settings_that_no_longer_read(bench: Bench) -> None:
    with bench.store() as store:
        (bench.root / "store.json").write_bytes(b"{}")
        report = store.fsck()
    assert [each.path for each in named(report, "bad_settings")] == [str(bench.root / "store.json")]


def test_damage_in_two_sessions_is_named_and_a_third_is_whole(bench: Bench) -> None:
    flip(bench.session("alpha") / "journal", FRAMES_OFFSET + 60)
    flip(bench.session("beta") / "log-0", 1000)
    report = bench.fsck()
    assert {each.session for each in report.findings if each.severity == "error"} == {"alpha", "beta"}
    with bench.store() as store:
        assert [each.id for each in store.read("gamma")] == bench.gamma


def test_what_a_damaged_session_still_names_is_looked_for(bench: Bench) -> None:
    flip(bench.session("beta") / "log-0", 1000)
    for ending in ("pack", "idx"):
        bench.pack(ending).unlink()
    report = bench.fsck()
    assert len([each for each in named(report, "missing_content") if each.session == "beta"]) == 99


def test_a_session_whose_first_blocks_are_lost_has_one_finding(bench: Bench) -> None:
    DAMAGE["journal_damaged"](bench)
    report = bench.fsck()
    assert [each.code for each in report.findings if each.session == "beta"] == ["journal_damaged"]


def test_a_deleted_origin_leaves_its_fork_whole(bench: Bench) -> None:
    with bench.store() as store:
        store.delete("beta")
        report = store.fsck()
    assert report.ok
    assert {each.code for each in report.findings} == {"dangling_object"}
    assert len(report.findings) == 2 * 49  # entries 51 to 99 were published: envelopes and bodies


def test_a_base_that_is_a_leaf_label(bench: Bench) -> None:
    with bench.store() as store:
        with store.open_session("gamma") as gamma:
            label = gamma.append(Draft("label", {"label": "leaf", "target": bench.gamma[4]})).id
            gamma.checkpoint()
        header = store.read("delta").header
    moved = Header.parse({**header.members(), "base": label})
    (bench.session("delta") / "header").write_bytes(encode_header(moved))
    assert [each.object for each in named(bench.fsck(), "base_rule")] == [label]


def test_a_context_hash_at_the_base_that_is_another(bench: Bench) -> None:
    def change(journal: Forged) -> Forged:
        generation: Generation = journal.generation._replace(base_context=b"\1" * 32)
        return journal._replace(generation=generation)

    bench.forge("delta", change)
    report = bench.fsck()
    assert {each.session for each in named(report, "generation_mismatch")} == {"delta"}


def test_a_row_that_hangs_from_a_base_there_is_none(bench: Bench) -> None:
    bench.forge("alpha", lambda journal: row_of(journal, 0, parent=REF_BASE))
    assert [each.session for each in named(bench.fsck(), "base_rule")] == ["alpha"]


@pytest.mark.parametrize(("number", "bad"), [(5, []), (6, ["alpha"])])
def test_a_target_is_a_row_there_is(bench: Bench, number: int, bad: list[str]) -> None:
    bench.forge("alpha", lambda journal: row_of(journal, 5, target=ref_to(number)))
    assert [each.session for each in named(bench.fsck(), "row_invalid")] == bad


def test_a_body_in_other_than_canonical_json(bench: Bench) -> None:
    odd = last_of_alpha(bench, "info", {"name": "x"})
    spaced = Entry.of_content(b'{"name": "x"}', "info", {"name": "x"}, odd.parent, odd.ts, [])
    bench.forge("alpha", lambda journal: record_of(journal, 5, spaced))
    assert any("canonical" in each.detail for each in named(bench.fsck(), "bad_entry"))


@pytest.mark.parametrize("content", [b"[]", b"7", b"{", b'{"id":"x"}', b'{"name":"a","name":"b"}', b'{"n":1e999}'])
def test_bodies_no_line_can_hold(bench: Bench, content: bytes) -> None:
    odd = Entry.of_content(content, "info", {}, last_of_alpha(bench, "info", {}).parent, TS, [])
    bench.forge("alpha", lambda journal: record_of(journal, 5, odd))
    assert [each.session for each in named(bench.fsck(), "bad_entry")] == ["alpha"]


def test_a_loss_that_was_reopened_is_a_note(bench: Bench) -> None:
    DAMAGE["lost_tail"](bench)
    with bench.store() as store:
        store.open_session("alpha").close()
        report = store.fsck()
    assert report.ok
    assert [(each.code, each.session) for each in report.findings] == [("lost_tail", "alpha")]


def test_the_fast_check_sees_rows_envelopes_and_presence(bench: Bench) -> None:
    bench.loose("contents", bench.content_hash("gamma", bench.gamma[2])).unlink()
    bench.forge("alpha", lambda journal: row_of(journal, 2, ts=5))
    DAMAGE["log_row"](bench)
    report = bench.fsck(fast=True)
    found = {(each.code, each.session) for each in report.findings}
    assert {("missing_content", "gamma"), ("row_mismatch", "alpha"), ("log_row", "beta")} <= found


def test_a_directory_that_is_no_session_is_a_note(bench: Bench) -> None:
    (bench.root / "sessions" / ".DS_Store").write_bytes(b"")
    (bench.root / "sessions" / "lost+found").mkdir()
    report = bench.fsck()
    assert report.ok
    assert sorted(Path(each.path).name for each in named(report, "stray_file")) == [".DS_Store", "lost+found"]


def test_an_emptied_session_directory_is_an_error(bench: Bench) -> None:
    for path in bench.session("alpha").iterdir():
        path.unlink()
    report = bench.fsck()
    assert {each.code for each in report.findings if each.session == "alpha"} == {"bad_header", "journal_missing"}


@pytest.mark.parametrize("directory", ["tmp", "objects/pack"])
def test_an_empty_directory_that_a_copy_left_out_is_no_damage(tmp_path: Path, directory: str) -> None:
    with Store.open(tmp_path / "store", create=True, background=False) as store, store.create(id="s") as session:
        session.append_batch([entry.user("one"), entry.user("two")])
        session.checkpoint()
    (tmp_path / "store" / directory).rmdir()
    with Store.open(tmp_path / "store", read_only=True) as store:
        assert store.fsck().findings == []
        assert len([each.body for each in store.read("s")]) == 2


def test_packs_that_are_gone_with_their_directory_are_missed_by_who_needs_them(bench: Bench) -> None:
    (bench.root / "objects" / "pack").rename(bench.root / "elsewhere")
    with Store.open(bench.root, read_only=True) as store:
        found = store.fsck().findings
    assert {each.session for each in found if each.code == "missing_entry"} >= {"beta"}


@pytest.mark.parametrize("directory", ["sessions", "objects"])
def test_a_directory_of_the_store_that_went(bench: Bench, directory: str) -> None:
    """Is named where nothing is written; who opens the store to write makes it anew."""
    (bench.root / directory).rename(bench.root / "elsewhere")
    with Store.open(bench.root, read_only=True) as store:
        report = store.fsck()
    assert any(directory in each.path for each in named(report, "unreadable_file"))
    assert real_host().fs.stat(str(bench.root / directory)) is None
