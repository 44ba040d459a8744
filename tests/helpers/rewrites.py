"""Bodies rewritten as a redactor does it (format.md §10), and what a rewrite sees of them."""

from __future__ import annotations

from typing import Any

from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.rewriter import rewrite_strings

__all__ = ["given_to", "rewritten", "scrub"]

Json = dict[str, Any]


def scrub(text: str) -> str:
    """Take a word out."""
    return text.replace("secret", "***")


def rewritten(type_: str, body: Json, rewrite: Any = scrub) -> Json:
    """The body of an entry alone, rewritten."""
    return rewrite_strings(Draft(type_, body), rewrite).body


def given_to(entry: Draft | Entry) -> list[str]:
    """The strings a rewrite is given, in order."""
    seen: list[str] = []

    def see(text: str) -> str:
        seen.append(text)
        return text

    assert rewrite_strings(entry, see).body == entry.body
    return seen
