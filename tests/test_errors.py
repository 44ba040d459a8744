"""Errors as objects: what they say, and what they say when whoever raised them said little."""

from __future__ import annotations

import pytest

from agentsession_cas import errors
from agentsession_cas.errors import AgentSessionError, BadInput, BadJSON, Damaged, LimitExceeded, NoEntry


def test_what_where_and_what_next() -> None:
    """One line, each part left out when it is empty."""
    assert str(BadInput("a thing is wrong")) == "a thing is wrong"
    assert str(BadInput("a thing is wrong", where="there")) == "a thing is wrong (there)"
    assert str(BadInput("a thing is wrong", where="there", next_step="mend it")) == "a thing is wrong (there); mend it"


def test_a_next_step_that_nobody_named_is_the_classes_own() -> None:
    """And one that was named is that."""
    assert NoEntry("gone").next_step == NoEntry.advice != ""
    assert NoEntry("gone", next_step="look elsewhere").next_step == "look elsewhere"


def test_damage_sends_to_what_there_is() -> None:
    """A repair, which says first what it would do."""
    told = str(Damaged("the journal is absent", where="sessions/s/journal"))
    assert "run repair" in told
    assert "--dry-run" in told


@pytest.mark.parametrize("name", ["BadJSON", "BadEntry", "BadID", "NoEntry", "LimitExceeded", "Corrupt", "BadFile"])
def test_common_errors_always_have_a_next_step(name: str) -> None:
    """A person met with one knows what to do."""
    assert getattr(errors, name)("wrong").next_step


@pytest.mark.parametrize("kind", [BadJSON, LimitExceeded])
def test_a_message_shortens_a_long_pointer_and_nothing_else(kind: type[AgentSessionError]) -> None:
    """``where`` holds it whole, behind whatever was put before it."""
    pointer = "/a" * 1000
    error = kind("too deep", where=pointer)
    assert (error.where, str(error).count("/a")) == (pointer, 60)
    file = "/a-long-directory" * 30 + "/x.jsonl"
    error.where = f"{file}: line 3, {error.where}"
    assert f"({file}: line 3, /a/a" in str(error)
    assert len(str(error)) < len(file) + 300
    short = kind("wrong", where="/a/b")
    assert "(/a/b)" in str(short)
    error.where = file
    assert f"({file})" in str(error)
