"""The soak in short: three writers, one of them killed, two readers, a repacker and a sweeper at one store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentsession_cas import Store, entry
from tools.soak import lost, noted, notes_of

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[1]
FEW = 3


def test_nothing_fails_and_nothing_is_lost(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.soak", str(tmp_path), "--seconds", "5", "--writers", str(FEW)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    told = json.loads(done.stdout)
    assert told["failed"] == []
    assert (done.returncode, done.stderr, told["writers"]) == (0, "", FEW)
    noted_ids = [ids for n in range(FEW) for ids in noted(notes_of(tmp_path / "store", n)).values()]
    assert told["entries"] >= sum(map(len, noted_ids)) > 0


def test_what_is_lost_is_seen(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with Store.open(root, create=True) as store:
        with store.create(id="s") as session:
            ids = [session.append(entry.user(text)).id for text in "abc"]
        store.create(id="other").close()
        notes_of(root, 0).write_text(f"s {ids[0]}\ngone {ids[0]}\ngone\ns {ids[1]} {ids[2]}\ns {ids[0][:20]}")
        assert noted(notes_of(root, 0)) == {"s": ids, "gone": []}
        assert lost(store, root, 2) == []
        for bad in (f"s {ids[1]} {ids[0]}\n", f"other {ids[0]}\n", f"nowhere {ids[0]}\n"):
            notes_of(root, 1).write_text(bad)
            assert len(lost(store, root, 2)) == 1
