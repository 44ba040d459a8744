"""Where a follower stands in a session's log, as a text it can be resumed from (store.md A7).

A cursor names the session's birth, its log, how many rows were told, how many of those are known to be committed, and
the hash of the rows from there on, the last one told always among them. Committed rows never change; the others may be
lost in a crash and others come in their place, which the hash tells, on whatever branch that was. Pure.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

from agentsession_cas.core.framing import Generation
from agentsession_cas.core.given import require_text
from agentsession_cas.core.rows import ROW_SIZE
from agentsession_cas.errors import BadInput
from agentsession_cas.sessions.log import RowTable

__all__ = ["Cursor", "Trail", "parse_cursor"]

_BODY: Final = ROW_SIZE - 4
_SPAN: Final = 1024
_TEXT: Final = re.compile("1-([0-9a-f]{32})-([0-9]{1,10})-([0-9]{1,18})-([0-9]{1,18})-([0-9a-f]{32})", re.ASCII)


def _body(table: RowTable, number: int) -> bytes:
    buffer, offset = table.locate(number)
    return buffer[offset : offset + _BODY]


class Cursor(NamedTuple):
    """A place behind row ``rows`` - 1 of log ``log``; ``digest`` is over the rows from ``since`` up to there."""

    birth: bytes
    log: int
    rows: int
    since: int
    digest: str

    def __str__(self) -> str:
        return f"1-{self.birth.hex()}-{self.log}-{self.rows}-{self.since}-{self.digest}"

    def is_held(self, generation: Generation, table: RowTable) -> bool:
        """Whether a session's log still has what was told up to here. Raises Damaged for a row that does not read."""
        if self.log != generation.log or self.rows > len(table):
            return False
        return Trail.behind(generation, table, self.rows, self.since).cursor() == self


def parse_cursor(text: object) -> Cursor:
    """The cursor that :meth:`Trail.cursor` gave as text. Raises BadInput for anything else."""
    advice = "give one that a change carried, or none to begin with a snapshot"
    found = _TEXT.fullmatch(require_text(text, "a cursor", advice))
    if found is None or int(found[4]) > int(found[3]):
        raise BadInput("this is no cursor", where=str(text)[:100], next_step=advice)
    return Cursor(bytes.fromhex(found[1]), int(found[2]), int(found[3]), int(found[4]), found[5])


class Trail:
    """The place of a follower while it moves: a cursor costs a copy of a running hash."""

    def __init__(self, generation: Generation, since: int) -> None:
        self._birth = generation.birth
        self._log = generation.log
        self._since = since
        self._hash = hashlib.sha256()
        self.rows = since

    @classmethod
    def behind(cls, generation: Generation, table: RowTable, rows: int, committed: int) -> Trail:
        """Behind the first ``rows`` rows of a table, ``committed`` of which never change."""
        trail = cls(generation, max(0, min(committed, rows - 1)))
        while trail.rows < rows:
            trail.step(table, 0)
        return trail

    def step(self, table: RowTable, committed: int) -> None:
        """Go on behind the next row; ``committed`` rows never change, so that a long way need not all be hashed."""
        if self.rows - self._since >= _SPAN and self.rows < committed:
            self._since, self._hash = self.rows, hashlib.sha256()
        self._hash.update(_body(table, self.rows))
        self.rows += 1

    def cursor(self) -> Cursor:
        """The place as it is now."""
        return Cursor(self._birth, self._log, self.rows, self._since, self._hash.hexdigest()[:32])
