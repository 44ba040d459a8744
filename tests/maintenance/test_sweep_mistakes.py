"""The scenes are not blind: each seeded mistake of a sweep is noticed."""

from __future__ import annotations

import pytest

from agentsession_cas.errors import AgentSessionError
from tests.helpers.crashes import Violation
from tests.helpers.sweep_mistakes import MISTAKES

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("name", MISTAKES)
def test_a_seeded_mistake_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MISTAKES[name].make(monkeypatch)
    with pytest.raises((Violation, AgentSessionError)):  # a broken engine may also trip over itself
        MISTAKES[name].scene()
