"""The benchmarks run and say what they promise to. What they measure is no test's business: nothing here is timed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[2]
NUMBERS = ("median", "p99", "mean", "ratio", "ratio_mean")
OURS = "agentsession-cas"


def run(place: Path, *arguments: str, codes: tuple[int, ...] = (0, 1)) -> str:
    """What ``python -m benchmarks --quick``, at its smallest, writes to standard output."""
    command = [sys.executable, "-m", "benchmarks", "--quick", "--rounds", "1", "--dir", str(place), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in codes, done.stderr
    assert list(place.iterdir()) == []
    return done.stdout


def compared(name: str, place: Path, entries: int) -> dict[str, dict[str, dict[str, Any]]]:
    """The rows of every comparison of a part, by title and peer, after a look at their form."""
    document = json.loads(run(place, name, "--json", "--entries", str(entries)))
    assert set(document["machine"]) == {"system", "python", "sqlite"}
    (part,) = document["parts"]
    assert (part["name"], part["size"]) == (name, {"rounds": 1, "entries": entries})
    assert part["seconds"] > 0
    assert part["memory"] > 0
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    for comparison in part["compared"]:
        assert comparison["operations"] > 0
        assert comparison["waited"] is None or comparison["waited"] >= 0
        rows = {row["name"]: row for row in comparison["rows"]}
        for row in rows.values():
            assert all(row[number] >= 0 for number in NUMBERS)
            assert row["met"] == (None if row["target"] is None else row["ratio"] <= row["target"])
        assert comparison["rows"][0]["name"] == OURS
        tables[comparison["title"]] = rows
    missed = [row["name"] for rows in tables.values() for row in rows.values() if row["met"] is False]
    assert [row["name"] for row in document["missed"]] == missed
    return tables


def targets(tables: dict[str, dict[str, dict[str, Any]]]) -> dict[tuple[str, str], float]:
    return {
        (title, peer): row["target"]
        for title, rows in tables.items()
        for peer, row in rows.items()
        if row["target"] is not None
    }


def test_append(tmp_path: Path) -> None:
    tables = compared("append", tmp_path, 20)
    kinds = ("append", "batch of 10", "batch of 100")
    titles = [f"{safety} {kind}" for safety in ("durable", "lazy") for kind in kinds]
    assert list(tables) == [*titles, "lazy append of 1 KB"]
    assert set(tables["durable append"]) == {OURS, "bare write", "JSONL", "SQLite", "loose objects"}
    assert set(tables["lazy append"]) == {OURS, "JSONL", "SQLite"}
    assert targets(tables) == {
        ("durable append", "bare write"): 1.3,
        ("durable append", "SQLite"): 1.0,
        ("durable append", "loose objects"): 0.2,
        ("durable batch of 10", "SQLite"): 1.0,
        ("durable batch of 100", "SQLite"): 1.0,
        ("lazy append", "SQLite"): 1.0,
        ("lazy append of 1 KB", "SQLite"): 1.0,
        ("lazy append of 1 KB", "30 µs"): 1.0,
    }


def test_open(tmp_path: Path) -> None:
    tables = compared("open", tmp_path, 200)
    assert list(tables) == ["open: the head", "walk: every envelope"]
    for rows in tables.values():
        assert set(rows) == {OURS, "JSONL", "JSONL, gc off", "SQLite"}
    assert targets(tables) == {("open: the head", "JSONL"): 0.15, ("walk: every envelope", "JSONL"): 0.1}


def test_aio(tmp_path: Path) -> None:
    tables = compared("aio", tmp_path, 200)
    kinds = ("durable append", "longest block of the loop")
    assert list(tables) == [f"{kind}, {disk}" for disk in ("a flush takes 1 ms", "this disk") for kind in kinds]
    assert targets(tables) == {
        ("durable append, a flush takes 1 ms", "one after another"): 0.2,
        ("longest block of the loop, a flush takes 1 ms", "10 ms"): 1,
        ("longest block of the loop, this disk", "10 ms"): 1,
    }


def test_the_corpus_repeats_itself() -> None:
    """In processes of their own: hashes of strings differ from one to the next."""
    code = "import hashlib, benchmarks.corpus as c; print(hashlib.sha256(repr(c.drafts(500)).encode()).hexdigest())"
    said = {
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(said) == 1
