"""The command line in a directory of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.commands import Commands


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Commands:
    """Commands in an empty directory, without a store."""
    return Commands(monkeypatch, tmp_path)


@pytest.fixture
def held(cli: Commands) -> Commands:
    """Commands in a directory with an empty store."""
    cli.ok("init")
    return cli
