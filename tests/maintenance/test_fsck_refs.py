"""fsck of refs: a sound store has none of their findings, and what is damaged is told once and hides nothing else."""

from __future__ import annotations

import pytest

from agentsession_cas import RefTarget, entry
from agentsession_cas.maintenance.findings import FsckReport
from agentsession_cas.sessions import reflog
from tests.helpers.damage import Bench, flip


def codes(report: FsckReport) -> list[str]:
    return [each.code for each in report.findings]


@pytest.mark.parametrize("fast", [False, True])
def test_sound_refs_are_silent(bench: Bench, fast: bool) -> None:
    with bench.store() as store:
        ids = [each.id for each in store.read("alpha")]
        store.update_ref("a", None, RefTarget("alpha", ids[3]))
        store.update_ref("b/c", None, RefTarget("delta", bench.beta[3]))
        store.update_ref("gone", None, RefTarget("beta"))
        store.update_ref("gone", RefTarget("beta"), None)
        with store.open_session("alpha") as held:
            label = held.append(entry.label(ids[0], "x")).id
        store.update_ref("label", None, RefTarget("alpha", label))
        for number in range(200):
            to = ("alpha", "beta")[number % 2]
            store.update_ref("long", None if not number else RefTarget(("alpha", "beta")[~number % 2]), RefTarget(to))
    assert codes(bench.fsck(fast=fast)) == []


def test_what_a_pin_needs_is_not_dangling(bench: Bench) -> None:
    with bench.store() as store:
        store.update_ref("a", None, RefTarget("gamma", bench.gamma[4]))
        store.delete("gamma")
    assert codes(bench.fsck()) == ["ref_dangling"]
    with bench.store() as store:
        store.update_ref("a", RefTarget("gamma", bench.gamma[4]), None)
    assert set(codes(bench.fsck())) == {"dangling_object"}


def test_another_session_of_the_id_is_told_apart(bench: Bench) -> None:
    with bench.store() as store:
        store.update_ref("a", None, RefTarget("alpha"))
        store.delete("alpha")
        store.create(id="alpha").close()
    [found] = bench.fsck().findings
    assert (found.code, found.session) == ("ref_dangling", "alpha")
    assert "another has the id" in found.detail


def test_a_ref_that_does_not_read_makes_nothing_dangling(bench: Bench) -> None:
    with bench.store() as store:
        store.update_ref("a", None, RefTarget("gamma", bench.gamma[4]))
        store.delete("gamma")
    flip(bench.root / "refs" / "a", 3)
    assert codes(bench.fsck()) == ["ref_bad", "dangling_unknown"]


def test_what_else_lies_among_refs(bench: Bench) -> None:
    with bench.store() as store:
        store.update_ref("a", None, RefTarget("alpha"))
    for path in ("refs/X", "logs/refs/X", "logs/refs/a/x"):
        (bench.root / path).write_text("mine")
    report = bench.fsck()
    assert codes(report) == ["stray_file"] * 3
    assert {each.path.removeprefix(f"{bench.root}/") for each in report.findings} == {
        "refs/X",
        "logs/refs/X",
        "logs/refs/a/x",
    }


def test_a_lost_log_is_a_gap(bench: Bench) -> None:
    with bench.store() as store:
        store.update_ref("a", None, RefTarget("alpha"))
    (bench.root / "logs" / "refs" / "a" / "1").unlink()
    assert codes(bench.fsck()) == ["ref_log_gap"]
    with bench.store() as store:
        store.update_ref("a", RefTarget("alpha"), RefTarget("beta"))
        assert len(list(store.ref_log("a"))) == 1
    assert codes(bench.fsck()) == []  # as when what was before has expired


def test_a_lost_segment_is_a_gap_and_an_expired_one_is_none(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflog, "SEGMENT_SIZE", 1000)
    before = None
    with bench.store() as store:
        for number in range(40):
            to = RefTarget(("alpha", "beta")[number % 2])
            store.update_ref("a", before, to, "because")
            before = to
        segments = store.refs.logs.segments("a")
    assert len(segments) > 3
    (bench.root / "logs" / "refs" / "a" / str(segments[0])).unlink()
    assert codes(bench.fsck()) == []
    (bench.root / "logs" / "refs" / "a" / str(segments[2])).unlink()
    [found] = bench.fsck().findings
    assert found.code == "ref_log_gap"
    assert f"{segments[3] - segments[2]} updates from {segments[1]}" in found.detail


def test_files_where_directories_belong(bench: Bench) -> None:
    with bench.store() as store:
        store.update_ref("a", None, RefTarget("alpha"))
    (bench.root / "refs" / "b").mkdir()
    (bench.root / "logs" / "refs" / "c").write_text("")
    assert sorted(codes(bench.fsck())) == ["dangling_unknown", "ref_bad", "unreadable_file"]
