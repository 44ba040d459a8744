"""Refs that are lost come back as their logs tell: fsck names them, a sweep keeps what they pin, repair sets them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agentsession_cas import RefTarget, Store, entry
from agentsession_cas.errors import Damaged, NoRef, NoSession
from agentsession_cas.maintenance.findings import FsckReport


def opened(root: Path) -> Store:
    return Store.open(root, create=True, background=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Refs of every kind: one that was moved, one that pins, one of a session that is gone, one that was deleted."""
    root = tmp_path / "store"
    with opened(root) as store:
        for name in ("a", "b", "gone"):
            with store.create(id=name) as session:
                session.append_batch([entry.user(f"{name} {n}") for n in range(3)])
        pinned = next(iter(store.read("gone"))).id
        store.update_ref("moved", None, RefTarget("a"))
        store.update_ref("moved", RefTarget("a"), RefTarget("b"))
        store.update_ref("team/Pinned", None, RefTarget("gone", pinned))
        store.update_ref("new", None, RefTarget("a"))
        store.update_ref("deleted", None, RefTarget("a"))
        store.update_ref("deleted", RefTarget("a"), None)
        store.delete("gone")
    return root


def told(store: Store) -> dict[str, object]:
    return {ref.name: ref.target for ref in store.list_refs()}


def codes(report: FsckReport) -> dict[str, str]:
    return {Path(each.path).name: each.code for each in report.findings if each.code.startswith("ref_")}


def test_lost_refs_are_named_kept_and_set_anew(root: Path) -> None:
    with opened(root) as store:
        before = told(store)
        assert "deleted" not in before
        log = list(store.ref_log("moved"))
        for path in (root / "refs").iterdir():
            path.unlink()
        found = codes(store.fsck())
        assert found.pop("moved") == "ref_lost"
        assert found == {"new": "ref_unmade", "team+pinned^20": "ref_unmade"}
        store.sweep(0)
        would, report = store.repair(dry_run=True), store.repair()
        for each in (would, report):
            assert each.changed
            assert each.refs is not None
            assert (each.refs.restored, each.refs.lost) == (["moved", "new", "team/Pinned"], [])
        assert told(store) == before
        assert list(store.ref_log("moved")) == log
        assert codes(store.fsck()) == {"team+pinned^20": "ref_dangling"}
        with pytest.raises(NoSession):
            store.resolve_ref("team/Pinned")
        assert not store.repair().changed
        assert store.update_ref("moved", RefTarget("b"), RefTarget("a"))


def test_a_directory_of_refs_that_is_gone_is_told_of_with_what_to_do(root: Path) -> None:
    shutil.rmtree(root / "refs")
    with Store.open(root, read_only=True) as store:
        with pytest.raises(Damaged, match="run repair"):
            store.list_refs()
        assert set(codes(store.fsck()).values()) == {"ref_lost"}
    with opened(root) as store:
        assert store.repair().refs
        assert set(told(store)) == {"moved", "new", "team/Pinned"}


def test_a_ref_that_does_not_read_is_set_anew_and_kept_beside(root: Path) -> None:
    path = root / "refs" / "moved"
    path.write_bytes(b"hurt")
    with opened(root) as store:
        assert codes(store.fsck()) == {"moved": "ref_bad", "team+pinned^20": "ref_dangling"}
        assert store.repair().refs
        assert told(store)["moved"] == RefTarget("b")
    assert (root / "damaged" / "1" / "ref-moved").read_bytes() == b"hurt"


def test_without_its_log_a_ref_that_does_not_read_is_lost(root: Path) -> None:
    (root / "refs" / "moved").write_bytes(b"hurt")
    shutil.rmtree(root / "logs" / "refs" / "moved")
    with opened(root) as store:
        report = store.repair()
        assert report.refs is not None
        assert (report.refs.restored, report.refs.lost, report.whole) == ([], ["moved"], False)


def test_another_session_that_has_the_id_now_is_not_taken_for_the_one_meant(root: Path) -> None:
    with opened(root) as store:
        store.delete("b")
        store.create(id="b").close()
        (root / "refs" / "moved").unlink()
        store.repair()
        with pytest.raises(NoSession):
            store.resolve_ref("moved")
        with pytest.raises(NoRef):
            store.resolve_ref("deleted")
