"""A store to damage: made once, copied for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.helpers.damage import Bench


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench") / "store")


@pytest.fixture
def bench(pristine: Bench, tmp_path: Path) -> Bench:
    root = tmp_path / "store"
    shutil.copytree(pristine.root, root)
    return pristine.at(root)
