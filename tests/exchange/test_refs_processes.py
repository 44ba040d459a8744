"""Refs under real processes: one session for a name whoever asks, and no update of a ref lost."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from agentsession_cas import RefTarget, Store
from tests.helpers.refs_child import TIMES

pytestmark = pytest.mark.heavy

PROJECT = Path(__file__).parents[2]


def run(count: int, *arguments: object) -> list[str]:
    """So many processes of ``refs_child`` at once; the last line of each."""
    command = [sys.executable, "-m", "tests.helpers.refs_child", *map(str, arguments)]
    children = [
        subprocess.Popen([*command, str(number)], cwd=PROJECT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for number in range(count)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        said = [child.communicate(timeout=120)[0] for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert [child.returncode for child in children] == [0] * count
    return [each.strip() for each in said]


def test_sixteen_that_ask_for_one_name_get_one_session(tmp_path: Path) -> None:
    root = tmp_path / "store"
    Store.open(root, create=True).close()
    said = run(16, "session_for", root, "support/42")
    with Store.open(root) as store:
        [session] = store.session_ids()
        assert set(said) == {session}
        assert store.resolve_ref("support/42") == RefTarget(session)
        assert len(store.read(session)) == 16
        assert [each.new for each in store.ref_log("support/42")] == [RefTarget(session)]
        assert store.fsck().findings == []
    assert list((root / "tmp").iterdir()) == []


def test_eight_that_move_a_ref_lose_no_update(tmp_path: Path) -> None:
    root, each, processes = tmp_path / "store", TIMES, 8
    with Store.open(root, create=True) as store:
        for number in range(each * processes + 1):
            store.create(id=f"n{number}").close()
        store.update_ref("main", None, RefTarget("n0"))
    assert run(processes, "count", root, "main") == ["done"] * processes
    with Store.open(root) as store:
        assert store.resolve_ref("main") == RefTarget(f"n{each * processes}")
        log = list(store.ref_log("main"))
        assert [update.new for update in log] == [RefTarget(f"n{n}") for n in range(each * processes, -1, -1)]
        assert all(newer.old == older.new for newer, older in pairwise(log))
        assert Counter(update.reason for update in log[:-1]) == {str(number): each for number in range(processes)}
        assert store.fsck().findings == []
