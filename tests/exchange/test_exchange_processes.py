"""Real processes push to one mirror at the same time: nothing is lost, and nobody is turned away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from agentsession_cas import Store
from tests.helpers.exchange import grow, own

PUSHES = 12


def test_two_records_push_to_one_mirror(tmp_path: Path) -> None:
    """Their entries are all there, each record's in its order; the head is where one of them put it."""
    with Store.open(tmp_path / "a", create=True) as a, Store.open(tmp_path / "m", create=True) as mirror:
        grow(a, "s", "root")
        Store.clone(tmp_path / "a", tmp_path / "b")
        with Store.open(tmp_path / "b") as b:
            b.declare_record("s")
            command = [sys.executable, "-m", "tests.helpers.exchange_child"]
            children = [
                subprocess.Popen([*command, each.root, mirror.root, "s", str(PUSHES)], cwd=Path(__file__).parents[2])
                for each in (a, b)
            ]
            assert [child.wait(timeout=120) for child in children] == [0, 0]
            there = own(mirror, "s")
            assert len(there) == 1 + 2 * PUSHES
            for store in (a, b):
                assert [each for each in there if each in own(store, "s")] == own(store, "s")
            assert mirror.read("s").leaf in there[1:]
            assert mirror.fsck().ok
