"""The benchmark of many sessions runs, and its stages leave a sound store. What it measures is no test's business."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.scale import STAGES
from tests.benchmarks.test_size import run

pytestmark = pytest.mark.heavy


def test_scale(tmp_path: Path) -> None:
    document = json.loads(run("benchmarks.scale", "--entries", "400", "--json", "--dir", str(tmp_path)))
    assert (document["benchmark"], document["entries"]) == ("scale", 400)
    assert [stage["name"] for stage in document["stages"]] == list(STAGES)
    found = {stage["name"]: stage for stage in document["stages"]}
    assert found["fsck"]["figures"]["entries"] >= 400
    assert found["sweep"]["figures"]["objects swept"] > 0
    assert all(stage["disk"] > 0 for stage in document["stages"])
    assert found["repack --all"]["figures"]["packs after"] == 1
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_kept_is_used_again(tmp_path: Path) -> None:
    for left_out in ([], ["build"]):
        document = json.loads(run("benchmarks.scale", "--entries", "400", "--json", "--keep", str(tmp_path)))
        assert [stage["name"] for stage in document["stages"]] == [name for name in STAGES if name not in left_out]
        assert [path.name for path in tmp_path.iterdir()] == ["store"]
