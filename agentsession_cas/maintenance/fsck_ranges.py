"""The entries of a long session looked at in ranges of rows, by whichever process has time.

Owns what a range is and the shorter look at one: :class:`~agentsession_cas.maintenance.fsck_plain.PlainCheck` over its
entries. An entry that passed is sound wherever that was found out, for it is held against the rows and bytes of the
generation that the range names; what did not pass is looked at again by whoever checks the session. Rows that lie in
the journal, and those of a log that was packed, whose context hashes follow from all above them, are in no range.
Must not: report.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from agentsession_cas.core.framing import Generation
from agentsession_cas.core.identity import HASH_PREFIX
from agentsession_cas.core.rows import RowCode, whole_rows
from agentsession_cas.errors import AgentSessionError
from agentsession_cas.layout import Layout
from agentsession_cas.maintenance.checked_source import CheckedSource
from agentsession_cas.maintenance.findings import Findings
from agentsession_cas.maintenance.fsck_files import read_files
from agentsession_cas.maintenance.fsck_plain import PlainCheck
from agentsession_cas.maintenance.survey import Survey
from agentsession_cas.sessions.chain import ChainSource
from agentsession_cas.sessions.opening import read_header
from agentsession_cas.sessions.prefix import Prefix

__all__ = ["LONG_ROWS", "Looked", "Range", "RangeLooker", "Share", "alone", "look_at_range", "ranges_of"]

LONG_ROWS: Final = 8192
"""A session of so many rows is worth the start of an interpreter."""
_RANGE_ROWS: Final = 4096


class Range(NamedTuple):
    """The rows from ``first`` to before ``end`` of the session in directory ``name``, whose journal is of a
    generation."""

    name: str
    generation: Generation
    first: int
    end: int


class Looked(NamedTuple):
    """What a range came to: the numbers of the entries that did not pass, and the envelopes taken to be sound, joined.

    The latter are raw digests.
    """

    left: array[int]
    assumed: bytes


Share = Callable[[list[Range], Callable[[Range], "array[int]"], Callable[[], None]], list[int] | None]
"""Has ranges looked at, here too, each by the second argument; the third is called here first.

What comes back are the numbers of the entries of all of them that did not pass, rising; None, and nothing called, when
there is nobody to help.
"""


def alone(
    ranges: list[Range],  # noqa: ARG001
    own: Callable[[Range], array[int]],  # noqa: ARG001
    meanwhile: Callable[[], None],  # noqa: ARG001
) -> None:
    """The :data:`Share` of a process that nobody helps."""
    return


def ranges_of(name: str, generation: Generation) -> list[Range]:
    """The ranges of a session; none for one that is short or was packed."""
    rows = whole_rows(generation.base)
    if rows < LONG_ROWS or generation.packed:
        return []
    return [Range(name, generation, at, min(at + _RANGE_ROWS, rows)) for at in range(0, rows, _RANGE_ROWS)]


def look_at_range(source: CheckedSource, plain: PlainCheck, first: int, end: int) -> array[int]:
    """The numbers of the entries of a range that do not pass. Raises Damaged, DiskError."""
    left = array("q")
    position = source.base_count + source.table.ordinal(first)
    for number in range(first, end):
        row = source.table.row(number)
        if row.code >= RowCode.HEAD:
            continue
        if not plain.passes(number, position, row):
            left.append(number)
        position += 1
    return left


class RangeLooker:
    """Looks at ranges in a worker. The session looked at last stays open."""

    def __init__(self, layout: Layout, survey: Survey) -> None:
        self._layout = layout
        self._survey = survey
        self._opened: tuple[str, Generation] | None = None
        self._source: CheckedSource | None = None
        self._plain: PlainCheck | None = None

    def look(self, asked: Range) -> Looked | None:
        """What a range comes to; None when that cannot be told here."""
        assumed = self._survey.assumed
        if assumed is None:
            return None
        assumed.clear()
        try:
            if self._opened != (asked.name, asked.generation):
                self._open(asked)
            if self._source is None or self._plain is None:
                return None
            left = look_at_range(self._source, self._plain, asked.first, asked.end)
        except AgentSessionError:
            return None
        return Looked(left, b"".join(assumed))

    def _open(self, asked: Range) -> None:
        self._close()
        self._opened = asked.name, asked.generation
        fs, directory = self._layout.host.fs, f"{self._layout.sessions}/{asked.name}"
        header = read_header(fs, directory)
        files = read_files(fs, directory, Findings("", directory))
        if files is None:
            return
        if files.scan.generation != asked.generation:
            files.close()
            return
        objects = self._survey.objects
        prefix = None
        if header.base:
            chain = ChainSource(objects, header.base)
            prefix = Prefix(chain, len(chain) - 1)
        source = self._source = CheckedSource(files.table(), objects, header.base, prefix)
        at_base = HASH_PREFIX + asked.generation.base_context.hex()
        self._plain = PlainCheck(source, self._survey, partial(source.context_at, at_base=at_base))

    def _close(self) -> None:
        if self._source is not None:
            self._source.close()
        self._opened = self._source = self._plain = None
