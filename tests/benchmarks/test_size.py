"""The benchmark of sizes runs and says what it promises to; the corpus is the same every time and stands a check."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentsession_cas import Store
from tools.corpus import fill, scripts

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_size(tmp_path: Path) -> None:
    document = json.loads(run("benchmarks.size", "--quick", "--json", "--dir", str(tmp_path)))
    assert (document["benchmark"], document["unit"], document["sessions"]) == ("size", "bytes", 3)
    sizes = document["sizes"]
    assert set(sizes) - {"git"} == {"as written", "everyday", "archive", "JSONL", "solid archive", "SQLite"}
    assert sizes["archive"] < sizes["everyday"] <= sizes["as written"]
    assert sizes["solid archive"] < sizes["archive"]
    assert all(sum(found.values()) == sizes[stage] for stage, found in document["parts"].items())
    names = [target["name"] for target in document["targets"] if target["name"] != "archive / git"]
    assert names == ["everyday / canonical", "archive / solid archive", "random body, ms"]
    assert list(tmp_path.iterdir()) == []
    assert "solid archive" in run("benchmarks.size", "--quick", "--dir", str(tmp_path))


def test_the_corpus_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("one", "other"):
        run("tools.corpus", str(tmp_path / name), "--sessions", "3", "--entries", "40")
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(files) == 3
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_the_corpus_stands_a_check() -> None:
    with Store.memory() as store:
        names = list(fill(store, scripts(8, 40, seed=3)))
        assert store.fsck().findings == []
        assert sorted(store.session_ids()) == sorted(names)
        outputs = [
            each.body["item"]["output"]
            for name in names
            for each in store.read(name)
            if each.type == "item" and each.body["item"]["type"] == "function_call_output"
        ]
        assert len(set(outputs)) < 0.9 * len(outputs)
