"""An entry as a log row has it: what a walk seldom asks for is made when somebody does.

A walk over a hundred thousand entries asks each for its id, its type and its parent. The time and the content hash of
such an entry are spelled, and its body is loaded, on first use; whatever was asked for once is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from agentsession_cas.core.entry import Entry, Json
from agentsession_cas.core.facts import Code, Facts
from agentsession_cas.core.identity import HASH_PREFIX
from agentsession_cas.core.parsing import parse_trusted
from agentsession_cas.core.rows import PARENTS_BIT, ROW_SIZE, TS_BIT, RowCode, envelope_columns
from agentsession_cas.core.timestamps import ts_from_ns
from agentsession_cas.sessions.log import RowTable

__all__ = ["ROW_TYPES", "Bodies", "RowEntry", "row_entries", "row_entry"]

ROW_TYPES: Final = {int(code): code.name.lower() for code in Code if code is not Code.OTHER}
"""Types by the code a row has of them."""


class Bodies(Protocol):
    """Where bodies come from: ``whole`` has, by raw hash, those verified that are at hand while they are read."""

    whole: dict[bytes, bytes]

    def get(self, digest: bytes) -> bytes:
        """The verified body of that hash."""

    def let_go(self) -> None:
        """Have nothing at hand: it takes memory."""


class RowEntry(Entry):
    """An entry without ``parents`` whose envelope a row holds whole. Make one with :func:`row_entry`."""

    __slots__ = ("_digest", "_fetch", "_ts_ns")

    _digest: bytes
    _fetch: Callable[[bytes], bytes]
    _ts_ns: int

    @property
    def content(self) -> bytes:
        """The canonical bytes of the body."""
        content = self._content
        if content is None:
            content = self._content = self._fetch(self._digest)
        return content

    @property
    def body(self) -> Json:
        """The decoded body. Shared: do not change it."""
        body = self._body
        if body is None:
            body = self._body = parse_trusted(self._content or self.content)
        return body

    def fill(self, content: bytes, body: Json, facts: Facts) -> None:
        """Have at hand what else would be made when it is asked for."""
        self._content, self._body, self._facts = content, body, facts

    def __getattr__(self, name: str) -> Any:
        """Make a member that was not asked for yet: Python asks here for a slot that is empty."""
        value: Any = None
        if name == "ts":
            value = ts_from_ns(self._ts_ns)
        elif name == "content_hash":
            value = HASH_PREFIX + self._digest.hex()
        elif name == "parents":
            value = []
        elif name != "_facts":
            raise AttributeError(f"an entry has no {name}")
        setattr(self, name, value)
        return value


_new: Callable[[type[RowEntry]], RowEntry] = object.__new__


def row_entry(
    id_: str, type_: str, parent: str, ts_ns: int, digest: bytes, fetch: Callable[[bytes], bytes]
) -> RowEntry:
    """``digest`` is the raw content hash; ``fetch`` gives the verified content of that hash."""
    entry = _new(RowEntry)
    entry.id = id_
    entry.type = type_
    entry.parent = parent
    entry._ts_ns = ts_ns
    entry._digest = digest
    entry._fetch = fetch
    entry._content = entry._body = None
    return entry


def row_entries(
    table: RowTable,
    count: int,
    bodies: Bodies,
    id_of_ref: Callable[[int], str],
    entry_of_row: Callable[[int], Entry],
) -> Iterator[Entry]:
    """The entries among the first ``count`` rows of a table, in order.

    ``bodies`` has those of the rows below the table's base, ``id_of_ref`` gives the id a reference names;
    ``entry_of_row`` makes an entry that needs more than that, or lies in the journal.
    """
    fetch = bodies.get
    before, before_id = -1, ""
    number = 0
    try:
        for rows in table.stored():
            for digest, content, parent, ts, code, flags in envelope_columns(rows[: (count - number) * ROW_SIZE]):
                if code in ROW_TYPES and not flags & (PARENTS_BIT | TS_BIT):
                    entry = _new(RowEntry)  # as row_entry does, without the call
                    entry.parent = before_id if parent == before else id_of_ref(parent)
                    before_id = entry.id = "sha256:" + digest.hex()
                    before = number + 2  # its reference, without the call
                    entry.type = ROW_TYPES[code]
                    entry._ts_ns = ts
                    entry._digest = content
                    entry._fetch = fetch
                    entry._content = bodies.whole.get(content)
                    entry._body = None
                    yield entry
                elif code < RowCode.HEAD:
                    yield entry_of_row(number)
                number += 1
        for rest in range(number, count):
            if table.row(rest).code < RowCode.HEAD:
                yield entry_of_row(rest)
    finally:
        bodies.let_go()  # an entry that is kept may ask for its body long after
