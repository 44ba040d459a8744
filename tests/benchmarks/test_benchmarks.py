"""The benchmarks run and say what they promise to. What they measure is no test's business: nothing here is timed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NUMBERS = ("median", "p99", "mean", "ratio", "ratio_mean")


def run(name: str, place: Path, *arguments: str) -> str:
    """What ``python -m benchmarks.NAME --quick``, at its smallest, writes to standard output."""
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--rounds", "1", "--dir", str(place), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def compared(name: str, place: Path, entries: int) -> dict[str, dict[str, dict[str, Any]]]:
    """The rows of every comparison, by title and peer, after a look at their form."""
    document = json.loads(run(name, place, "--json", "--entries", str(entries)))
    assert document["benchmark"] == name
    assert document["rounds"] == 1
    assert document["entries"] == entries
    assert document["unit"] == "us"
    assert set(document["machine"]) == {"system", "python", "sqlite"}
    assert set(document["corpus"]) == {"median", "mean", "p90", "p99", "max"}
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    for comparison in document["comparisons"]:
        assert comparison["operations"] > 0
        assert comparison["waited"] is None or comparison["waited"] >= 0
        rows = {row["name"]: row for row in comparison["rows"]}
        for row in rows.values():
            assert all(row[number] > 0 for number in NUMBERS)
            assert (row["target"] is None) == (row["met"] is None)
        assert rows["agentsession-cas"]["ratio"] == 1
        tables[comparison["title"]] = rows
    assert list(place.iterdir()) == []
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
    assert list(tables) == [f"{safety} {kind}" for safety in ("durable", "lazy") for kind in kinds]
    assert set(tables["durable append"]) == {"agentsession-cas", "bare write", "JSONL", "SQLite", "loose objects"}
    assert set(tables["lazy append"]) == {"agentsession-cas", "JSONL", "SQLite"}
    assert targets(tables) == {
        ("durable append", "bare write"): 1.6,
        ("durable append", "SQLite"): 1.0,
        ("lazy append", "SQLite"): 1.5,
    }


def test_open(tmp_path: Path) -> None:
    tables = compared("open", tmp_path, 200)
    assert list(tables) == ["open: the head", "walk: every envelope", "resume: the context at the head"]
    for rows in tables.values():
        assert set(rows) == {"agentsession-cas", "JSONL", "JSONL, gc off", "SQLite"}
    assert targets(tables) == {("open: the head", "JSONL"): 0.15, ("walk: every envelope", "JSONL"): 0.15}


def test_aio(tmp_path: Path) -> None:
    tables = compared("aio", tmp_path, 200)
    kinds = ("durable append", "longest block of the loop")
    assert list(tables) == [f"{kind}, {disk}" for disk in ("a flush takes 1 ms", "this disk") for kind in kinds]
    assert targets(tables) == {
        ("durable append, a flush takes 1 ms", "one after another"): 0.2,
        ("longest block of the loop, a flush takes 1 ms", "10 ms"): 1,
        ("longest block of the loop, this disk", "10 ms"): 1,
    }


@pytest.mark.parametrize(("name", "entries"), [("append", 20), ("open", 60)])
def test_a_table_for_people(name: str, entries: int, tmp_path: Path) -> None:
    printed = run(name, tmp_path, "--entries", str(entries))
    assert "ours / peer" in printed
    assert "SQLite" in printed


def test_the_corpus_repeats_itself() -> None:
    """In processes of their own: hashes of strings differ from one to the next."""
    code = "import hashlib, benchmarks.corpus as c; print(hashlib.sha256(repr(c.drafts(500)).encode()).hexdigest())"
    said = {
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(said) == 1
