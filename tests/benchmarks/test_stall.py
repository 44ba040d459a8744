"""The benchmark of stalls runs while packs are written. What it measures is no test's business."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks.test_size import run

pytestmark = pytest.mark.heavy


def test_stall(tmp_path: Path) -> None:
    document = json.loads(run("benchmarks.stall", "--quick", "--entries", "1500", "--json", "--dir", str(tmp_path)))
    assert (document["benchmark"], document["entries"], document["limit_ms"]) == ("stall", 1500, 5.0)
    assert 0 < document["median_us"] <= document["p99_us"]
    assert 0 <= document["held_up"] <= 1500
    assert list(tmp_path.iterdir()) == []
