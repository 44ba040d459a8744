"""The benchmarks of growing sessions run, and their session is what it says. Nothing here is timed."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from agentsession_cas.core.jsonl import read_session
from agentsession_cas.core.verify import verify
from benchmarks.agent import steps, written
from tests.benchmarks.test_benchmarks import compared, targets

pytestmark = pytest.mark.heavy


def test_verify(tmp_path: Path) -> None:
    tables = compared("verify", tmp_path, 200)
    assert list(tables) == ["verify", "calls", "runs", "context"]
    for rows in tables.values():
        assert set(rows) == {"agentsession-cas", "3/10 as long", "1/10 as long"}
    wanted = {"3/10 as long": 5.0, "1/10 as long": 15.0}
    limits = {(title, peer): limit for title in tables for peer, limit in wanted.items()}
    assert targets(tables) == limits


def test_long(tmp_path: Path) -> None:
    tables = compared("long", tmp_path, 400)
    kinds = ("any entry", "function_call", "decision", "dispatch", "output", "far call")
    assert list(tables) == [f"lazy append: {kind}" for kind in kinds]
    for rows in tables.values():
        assert set(rows) == {"agentsession-cas", "100 entries long"}
    assert targets(tables) == {(title, "100 entries long"): 1.15 for title in tables}


def test_the_session_verifies_and_holds_what_a_harness_writes() -> None:
    session = read_session(written(1500))
    report = verify(session)
    assert report["problems"] == []
    assert report["responses"]["verified"] > 100
    assert report["responses"]["no_hash"] == report["responses"]["other_form"] == 0
    assert len(session.leaves()) > 5
    states = Counter(call.state(session.header).value for call in session.calls())
    assert states["completed"] > 200
    assert states["held"] >= 1
    assert {run.reason for run in session.runs()} >= {"done", "input_required"}
    assert {run.source for run in session.runs()} == {"input", "resume"}


def test_a_shorter_session_is_the_beginning_of_a_longer_one() -> None:
    assert written(300).startswith(written(200))
    assert list(islice(steps(), 50)) == list(islice(steps(), 50))
