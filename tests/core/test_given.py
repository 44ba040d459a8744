"""What passes for an object, a list, a path and a text at the public door, and what is said of anything else."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import pytest

from agentsession_cas.core.given import as_list, as_object, as_path, require, require_text
from agentsession_cas.errors import BadInput


class Dumped:
    """An object of an SDK built on pydantic."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        return {"mode": mode}


class Said:
    """An object of another SDK."""

    def to_dict(self) -> dict[str, Any]:
        return {"said": True}


class Wrong:
    """An object whose ``to_dict`` is none."""

    to_dict = "a text"


@pytest.mark.parametrize(
    ("value", "members"),
    [
        ({"a": 1}, {"a": 1}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (Dumped(), {"mode": "json"}),
        (Said(), {"said": True}),
    ],
)
def test_an_object_is_a_mapping_or_gives_one(value: object, members: dict[str, Any]) -> None:
    """What comes back is a dict, which canonical JSON asks for."""
    found = as_object(value, "it")
    assert (type(found), found) == (dict, members)


@pytest.mark.parametrize("value", [None, "gpt", 5, b"x", [], [("a", 1)], Dumped, Said, Wrong(), object()])
def test_anything_else_is_no_object(value: object) -> None:
    """A class that could dump its instances is none itself."""
    with pytest.raises(BadInput, match=r"^it is a JSON object, not .*; give a dict"):
        as_object(value, "it")


@pytest.mark.parametrize(("value", "path"), [("x", "x"), (Path("a/b"), "a/b"), (PurePosixPath("."), ".")])
def test_a_path_is_a_text_or_spells_itself(value: object, path: str) -> None:
    """As ``os.fspath`` has it, for texts."""
    assert as_path(value, "it") == path


@pytest.mark.parametrize("value", [None, "", 5, b"x", "a\0b", Path, object()])
def test_anything_else_is_no_path(value: object) -> None:
    """The system would call these a TypeError or a ValueError."""
    with pytest.raises(BadInput, match="it is a path"):
        as_path(value, "it")


def test_a_list_is_anything_that_gives_several() -> None:
    """One text, or one object, is not."""
    assert as_list(("a", "b"), "it") == as_list(iter("ab"), "it") == ["a", "b"]
    for value in (None, 5, "ab", b"ab", {"a": 1}):
        with pytest.raises(BadInput, match="it is a list"):
            as_list(value, "it")


def test_the_message_says_what_it_was() -> None:
    """Short values as they are, long ones by their kind."""
    assert require(5, int, "it") == 5
    assert require_text("x", "it") == "x"
    for value, told in ((None, "None"), ("", "''"), ("x" * 500, "a longer text"), (5, "an int"), ([], "a list")):
        with pytest.raises(BadInput) as caught:
            require(value, dict, "it", "do this")
        assert str(caught.value) == f"it is a dict, not {told}; do this"
    for value in (None, "", 5):
        with pytest.raises(BadInput, match="it is a non-empty string"):
            require_text(value, "it")
