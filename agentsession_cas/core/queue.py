"""Queued inputs: what a harness accepted and still owes the conversation (format.md §9).

A queued entry is paid by an item after it that names it in ``queued_from``, and closed by the end of any run after it.
"""

from __future__ import annotations

from typing import Any

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.facts import Code, Kind
from agentsession_cas.core.source import EntrySource, walk_back

__all__ = ["pending_queued", "queued_json"]


def pending_queued(source: EntrySource, position: int) -> list[Entry]:
    """The ``queued`` entries on the path to ``position`` that are still owed, in path order.

    Reads back to the last run end and no further.
    """
    queued: list[int] = []
    items: list[int] = []
    for each in walk_back(source, position):
        facts = source.facts(each)
        if facts.code == Code.RUN and facts.kind == Kind.END:
            break
        if facts.code == Code.QUEUED:
            queued.append(each)
        elif facts.code == Code.ITEM:
            items.append(each)
    if not queued:
        return []
    drained = [source.entry(item).body.get("queued_from") for item in items if item > queued[-1]]
    paid = {name for name in drained if isinstance(name, str)}
    return [source.entry(each) for each in reversed(queued) if source.entry_id(each) not in paid]


def queued_json(entry: Entry) -> dict[str, Any]:
    """A queued input as ``queue --json`` has it (cli.md)."""
    body = entry.body
    shown = {"entry": entry.id, "mode": body["mode"], "item": body["item"]}
    if isinstance(body.get("trigger"), dict):
        shown["trigger"] = body["trigger"]
    if isinstance(body.get("ref"), str) and body["ref"]:
        shown["ref"] = body["ref"]
    return shown
