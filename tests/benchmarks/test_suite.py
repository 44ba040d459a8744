"""The suite runs every part, and says of a target that it is missed. How fast anything is is no test's business."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import PARTS
from benchmarks.effects import counting
from benchmarks.harness import OURS, SLOWDOWN, Part, Target, compare, figures, fixed
from benchmarks.plots import plot
from benchmarks.sessions import Sessions
from tests.benchmarks.test_benchmarks import ROOT, compared, run, targets

pytestmark = pytest.mark.heavy


def test_each_part_is_what_it_is_called() -> None:
    for name in PARTS:
        part = import_module(f"benchmarks.{name}").measure
        assert isinstance(part, Part)
        assert part.name == name
        assert part.help
        assert part.quick.entries <= part.usual.entries <= part.full.entries


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("resume", {("resume at 100 entries", "5 ms"): 1.0}),
        (
            "whole",
            {("read all", "JSONL, sha256"): 1.3, ("read all, repack --all", "JSONL"): 1.5},
        ),
        (
            "canonical",
            {("canonicalise and hash", "orjson"): 1.6, ("canonicalise and hash", "rfc8785"): 1 / 15},
        ),
        ("forks", {("fork at 100 entries", "1 ms"): 1.0, ("bytes a fork writes", "at 100 entries"): 1.05}),
        ("importing", {("import of a session file", "SQLite"): 3.0}),
        (
            "exchange",
            {
                ("first push of 100 entries", "git push"): 1,
                ("push of 1 new to 100 entries", "git push"): 1,
                ("push of 100 new to 100 entries", "git push"): 1,
            },
        ),
        ("checking", {("fsck", "sha256, all cores"): 2.5}),
        ("memory", {("memory to resume, 100 entries", "64 MiB"): 1.0}),
        (
            "commands",
            {
                ("--help", "150 ms"): 1.0,
                ("list of 100 sessions", "1 s"): 1.0,
                ("list, sessions of 300 entries, as appended", "sessions of 2 entries"): 1.3,
                ("list, sessions of 300 entries, checkpointed", "sessions of 2 entries"): 1.3,
            },
        ),
    ],
)
def test_a_part_and_its_targets(name: str, wanted: dict[tuple[str, str], float], tmp_path: Path) -> None:
    assert targets(compared(name, tmp_path, 100)) == wanted


def test_optional_peers_are_left_out_where_they_are_not_installed(tmp_path: Path) -> None:
    tables = compared("bodies", tmp_path, 100)
    assert all({OURS, "SQLite"} <= set(rows) for rows in tables.values())
    limits = targets(tables)
    assert limits.pop(("random body, repack --all", "1 ms")) == 1.0
    assert limits.items() <= {
        ("random body, everyday", "pygit2"): 1.5,
        ("random body, block cached", "LMDB"): 2.0,
    }.items()
    titles = ("durable append of an item", "lazy append of an item")
    assert tuple(compared("agents", tmp_path, 20)) == titles


@pytest.mark.parametrize(("slowdown", "code"), [("0.0001", 0), ("1", None), ("10000", 1)])
def test_what_is_made_slow_is_said_to_miss_its_targets(slowdown: str, code: int | None, tmp_path: Path) -> None:
    """With a ten thousandth of its cost every target is met, with ten thousand times as much every one is missed."""
    codes = (0, 1) if code is None else (code,)
    said = run(tmp_path, "canonical", "memory", "--entries", "50", "--slowdown", slowdown, codes=codes)
    if code == 0:
        assert "3 of 3 targets met" in said
        assert "missed" not in said
    if code == 1:
        assert "0 of 3 targets met" in said
        assert "missed canonical: canonicalise and hash" in said
        assert "missed memory: memory to resume" in said


def test_half_as_good_as_a_target_asks_for_is_a_miss() -> None:
    def missed(slowdown: float) -> list[str]:
        token = SLOWDOWN.set(slowdown)
        try:
            found = [
                figures("work", "MiB", {OURS: 1.0, "peer": 1.0}, [Target("peer", 1.0)]),
                compare("work", {OURS: fixed(1.0), "peer": fixed(1.0)}, 1, [Target("peer", 1.0)]),
            ]
        finally:
            SLOWDOWN.reset(token)
        return [row.name for each in found for row in each.missed]

    assert missed(1.0) == []
    assert missed(2.0) == ["peer", "peer"]


def test_a_table_for_people(tmp_path: Path) -> None:
    said = run(tmp_path, "append", "--entries", "20")
    assert "durable batch of 100" in said
    assert "ours / it" in said
    assert "targets met" in said


def test_effects_are_counted(tmp_path: Path) -> None:
    host, effects = counting()
    file = host.fs.create(str(tmp_path / "file"))
    file.pwrite(b"12345", 0)
    file.sync()
    host.fs.sync_dir(str(tmp_path))
    file.close()
    assert effects.per(2) == {"files": 0.5, "writes": 0.5, "bytes": 2.5, "syncs": 1.0}
    effects.reset()
    assert not any(effects.per(1).values())


WORKS = ("append", "open", "resume", "fork", "push", "fsck")


def test_plots_are_drawn(tmp_path: Path) -> None:
    """Where matplotlib is installed; each is a picture, and not an empty one."""
    pytest.importorskip("matplotlib").use("agg")
    assert plot(tmp_path / "plots", Sessions(tmp_path), (20, 50)) == f"6 pictures in {tmp_path / 'plots'}"
    for work in WORKS:
        data = (tmp_path / "plots" / f"{work}.png").read_bytes()
        assert data.startswith(b"\x89PNG\r\n\x1a\n")
        assert len(data) > 10_000


def test_plots_are_told_where_they_cannot_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    told = plot(tmp_path / "plots", Sessions(tmp_path), (50, 100)).splitlines()
    assert told[-1].startswith("no pictures: matplotlib is not installed")
    for work in WORKS:
        assert any(line.startswith(f"{work}, {OURS}: 50: ") for line in told)


def test_a_part_that_is_none_is_refused() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks", "nonsense"], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 2
