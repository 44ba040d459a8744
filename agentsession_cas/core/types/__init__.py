"""The entry types of the format (format.md §5): for each, constructors of drafts and a typed view of an entry.

A constructor refuses what no writer may write, and records what it composes in the normal form of openresponses.md §2;
what is handed over whole it records verbatim. A view reads members of an entry's body where they are in the form the
format describes; a member in another form reads as absent, and stays in the body. Neither ever holds a model of its
own.
"""

from __future__ import annotations

__all__: list[str] = []
