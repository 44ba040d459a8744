"""The explorer is not blind: each seeded mistake is noticed."""

from __future__ import annotations

import pytest

from tests.helpers.engine_mistakes import MISTAKES, hunt

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("name", MISTAKES)
def test_a_seeded_mistake_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MISTAKES[name].make(monkeypatch)
    assert hunt(MISTAKES[name]), f"{name} went unnoticed"
