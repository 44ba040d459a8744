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
    assert set(done) == {"packs", "bytes", "loose", "written", "removed", "kept"}
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
