"""The verbs that keep a store in shape."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.commands import Commands

FILES = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"


@pytest.fixture
def filled(held: Commands) -> Commands:
    """A store with a few imported sessions."""
    for name in ("basic", "runs", "branch", "compaction"):
        held.ok("import", FILES / f"{name}.jsonl")
    return held


def test_repack_says_what_it_did(filled: Commands) -> None:
    stats = filled.ok("stats", "--json").object
    done = filled.ok("repack", "--json").object
    assert set(done) == {"packs", "bytes", "loose", "settled", "written", "removed", "kept"}
    assert done["packs"] == {"before": stats["objects"]["packs"], "after": 1}
    assert done["loose"] == stats["objects"]["loose"] > 0
    assert done["kept"] == []
    after = filled.ok("stats", "--json").object
    assert after["objects"]["loose"] == 0
    assert done["bytes"]["after"] == after["bytes"]["packs"]
    assert filled.ok("repack", "--all").text.startswith("ok: 1 pack became 1, ")
    assert filled.ok("repack", "--all", "--json").object["written"] == 0
    assert filled.ok("fsck", "--json").object["findings"] == []
    assert filled.ok("repack", "--quiet").text == ""


def test_a_pack_that_does_not_read_exits_3(filled: Commands) -> None:
    filled.ok("repack")
    [pack] = filled.store.glob("objects/pack/*.pack")
    data = bytearray(pack.read_bytes())
    data[40] ^= 1
    pack.write_bytes(data)
    ran = filled("repack", "--all")
    assert ran.code == 3
    assert pack.stem in ran.text
    assert pack.exists()
    assert filled("repack", "--all", "--json").object["kept"] == [pack.stem]


def test_repack_while_another_runs(filled: Commands) -> None:
    import fcntl

    with open(filled.store / "locks" / "repack", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = filled("repack")
    assert (ran.code, ran.error_code) == (11, "store_locked")


def test_sweep_says_what_goes_and_what_went(filled: Commands) -> None:
    filled.ok("repack")
    session = filled.ok("list", "--json").objects[0]["id"]
    filled.ok("delete", session)
    assert filled.ok("sweep", "--json").object["young"] > 0
    foreseen = filled.ok("sweep", "--grace", "0", "--dry-run", "--json").object
    assert foreseen["dry_run"] is True
    assert foreseen["objects"] > 0
    said = filled.ok("sweep", "--grace", "0", "--dry-run").text
    assert said.startswith(f"ok: {foreseen['objects']} objects would go")
    done = filled.ok("sweep", "--grace", "0", "--json").object
    assert done == {**foreseen, "dry_run": False, "trash": 0}
    shape = {"dry_run", "objects", "young", "loose", "packs", "bytes", "trash", "tmp", "ref_logs", "kept"}
    assert set(done) == shape
    assert filled.ok("sweep", "--grace", "0").text == "ok: 0 objects went, of 0 packs and 0 files, 0 B\n"
    assert filled.ok("fsck", "--json").object["findings"] == []


@pytest.mark.parametrize("grace", ["14", "d", "-1d", "1y", "0.5d", ""])
def test_a_grace_that_is_no_time(filled: Commands, grace: str) -> None:
    ran = filled("sweep", "--grace", grace)
    assert (ran.code, ran.error_code) == (2, "usage")


@pytest.mark.parametrize("grace", ["0", "0s", "14d", "2w", "90m", "12h"])
def test_a_grace_that_is_one(filled: Commands, grace: str) -> None:
    assert filled.ok("sweep", "--grace", grace, "--dry-run", "--json").object["objects"] == 0


def test_gc_does_it_all(filled: Commands) -> None:
    done = filled.ok("gc", "--json").object
    assert set(done) == {"settled", "sweep", "repack"}
    assert done["repack"]["packs"]["after"] == 1
    assert len(filled.ok("gc").text.splitlines()) == 3
    assert filled.ok("gc", "--quiet").text == ""


def test_sweep_over_damage_exits_3(filled: Commands) -> None:
    next(filled.store.glob("sessions/*/journal")).unlink()
    ran = filled("sweep")
    assert (ran.code, ran.error_code) == (3, "damaged")
    assert "repair or delete the session" in ran.err
    assert filled("gc").code == 3
