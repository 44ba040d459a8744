"""Members of a JSON object, read in the form the format describes: one of another form reads as if it were absent.

Every reader of bodies and headers reads them so. Must not: judge; who writes is told elsewhere what a member must be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["integer", "members", "objects", "text", "texts"]


def text(body: Mapping[str, Any], name: str) -> str:
    """A string member, or "" when it is none."""
    value = body.get(name)
    return value if isinstance(value, str) else ""


def integer(body: Mapping[str, Any], name: str) -> int | None:
    """A whole-number member, or None when it is none."""
    value = body.get(name)
    return value if type(value) is int else None


def members(body: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """An object member, or None when it is none."""
    value = body.get(name)
    return value if isinstance(value, dict) else None


def objects(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """A member that is a list of objects, or [] when it is none."""
    value = body.get(name)
    return value if isinstance(value, list) and all(isinstance(each, dict) for each in value) else []


def texts(body: Mapping[str, Any], name: str) -> list[str]:
    """A member that is a list of strings, or [] when it is none."""
    value = body.get(name)
    return value if isinstance(value, list) and all(isinstance(each, str) for each in value) else []
