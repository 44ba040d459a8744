"""A session file taken apart, changed, and put together again with ids made anew down the tree."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.tree import Session

__all__ = ["Line", "Remade"]

Json = dict[str, Any]


@dataclass
class Line:
    """An entry as it will be written; entries are named by the ids they had, here and in bodies."""

    name: str
    type: str
    body: Json
    parent: str
    ts: str
    parents: list[Json]


class Remade:
    """The lines of a session, to change in place; then :meth:`file`."""

    def __init__(self, session: Session) -> None:
        self._header: Json = session.header.members()
        self.lines = [
            Line(each.id, each.type, copy.deepcopy(each.body), each.parent, each.ts, copy.deepcopy(each.parents))
            for each in session
        ]
        self.ids: dict[str, str] = {}
        """Once written: the ids entries have by the ids they had."""

    def line(self, name: str) -> Line:
        """The line of an entry."""
        return next(line for line in self.lines if line.name == name)

    def add(self, type_: str, body: Json, parent: str) -> str:
        """Add a line at the end; its name."""
        name = f"added {len(self.lines)}"
        self.lines.append(Line(name, type_, body, parent, "2030-01-01T00:00:00Z", []))
        return name

    def remove(self, name: str) -> None:
        """Take a line out; what hung from it hangs from what it hung from."""
        gone = self.line(name)
        self.lines.remove(gone)
        for line in self.lines:
            if line.parent == name:
                line.parent = gone.parent

    def file(self) -> bytes:
        """The file, each id the hash of its line, whatever named an entry naming it still."""
        self.ids = {"": ""}
        written = []
        for line in self.lines:
            parents = self._renamed(line.parents)
            made = Entry.seal(line.type, self._renamed(line.body), self.ids[line.parent], line.ts, parents)
            self.ids[line.name] = made.id
            written.append(made.line)
        return b"\n".join([canonical(self._renamed(self._header)), *written, b""])

    def _renamed(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.ids.get(value, value)
        if isinstance(value, list):
            return [self._renamed(each) for each in value]
        if isinstance(value, dict):
            return {name: self._renamed(each) for name, each in value.items()}
        return value
