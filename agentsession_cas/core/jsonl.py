"""Session files: one JSON object a line, the header first (format.md §2).

Owns reading one whole (:func:`read_session`), verifying one line by line (:func:`scan`), and the lines a session is
written as (:func:`projection_lines`, store.md A10). A file that breaks a rule is an error naming the line; a last line
cut short, repeats and blank lines are tolerated and told of. Reads a stream as it goes, at a cost linear in its size.
Opens no file: bytes, a binary stream or lines are handed in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Final, NamedTuple

from agentsession_cas.core.accept import NOWHERE, Elsewhere, check_convergence
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.given import require
from agentsession_cas.core.header import HASHED_MINOR, Header
from agentsession_cas.core.identity import ROOT
from agentsession_cas.core.leaf import is_leaf_label, resume_leaf
from agentsession_cas.core.memory import MemorySource
from agentsession_cas.core.migrate import Migration
from agentsession_cas.core.parsing import LINE_MAX
from agentsession_cas.core.source import EntrySource
from agentsession_cas.core.tree import Session, TruncatedLine, no_clock
from agentsession_cas.errors import (
    AgentSessionError,
    BadConvergence,
    BadEntry,
    BadFile,
    BadHeader,
    BadID,
    BadInput,
    BadJSON,
    BaseRule,
    NoEntry,
    ScanMigrated,
    UnresolvedMigration,
)

__all__ = [
    "Scan",
    "Scanned",
    "Source",
    "is_synthetic",
    "projection_lines",
    "read_session",
    "scan",
    "synthetic_label",
]

Source = bytes | BinaryIO | Iterable[bytes]
"""A file: its bytes, a binary stream, or its lines, each with or without its LF."""

_TODO: Final = (
    ((BadJSON, BadFile, BadHeader), "a session file holds one JSON object a line, its header first; is this one?"),
    ((BadID, BadEntry, BadConvergence, NoEntry), "take the file again: a line was changed since, or is missing"),
)
_BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = b" \t\r\n"


class _Line(NamedTuple):
    number: int
    data: bytes
    is_last: bool


class _Lines:
    """The lines of a file that are not blank, numbered from 1; ``blank`` counts the others."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.blank = 0

    def __iter__(self) -> Iterator[_Line]:
        """One line behind, so that each knows whether only blank lines follow it."""
        number = 0
        held: tuple[int, bytes] | None = None
        for number, raw in enumerate(_split(self._source), 1):
            require(raw, bytes, "a line of a session file", 'open the file as "rb"')
            data = raw.removesuffix(b"\n").removesuffix(b"\r")
            if number == 1:
                data = data.removeprefix(_BOM)
            if not data.strip(_BLANK):
                self.blank += 1
                continue
            if held is not None:
                yield _Line(*held, is_last=False)
            held = number, data
        if held is not None:
            yield _Line(*held, is_last=True)


class Scanned(NamedTuple):
    """One entry line as a scan met it; ``repeat`` when an earlier line held the same entry."""

    number: int
    entry: Entry
    repeat: bool


class Scan:
    """A file verified line by line, and no tree built: iterate it once.

    ``header`` is as the file has it. Once the iteration has ended, ``truncated`` tells of a last line cut short and
    ``blank_lines`` of the blank ones; any other failure is raised from the iteration, naming its line.
    """

    def __init__(self, source: Source) -> None:
        self._lines = _Lines(source)
        self._rest = iter(self._lines)
        self.header = _read_header(self._rest)
        self.truncated: TruncatedLine | None = None

    @property
    def blank_lines(self) -> int:
        """How many blank lines were passed over so far."""
        return self._lines.blank

    def __iter__(self) -> Iterator[Scanned]:
        seen: dict[bytes, int] = {}
        rules = _FileRules(self.header, lambda entry_id: seen.get(bytes.fromhex(entry_id[7:]), -1))
        for line in self._rest:
            try:
                entry = Entry.from_line(line.data)
                repeat = rules.admit(entry) is None
            except AgentSessionError as error:
                self.truncated = _cut_short(line, error)
                break
            if not repeat:
                seen[bytes.fromhex(entry.id[7:])] = len(seen)
            yield Scanned(line.number, entry, repeat)
        rules.finish()


def scan(source: Source) -> Scan:
    """Begin to verify a file line by line; the iteration goes on with it.

    Raises what a header that cannot be read raises, and ScanMigrated for a file from before 0.5, whose ids are no
    hashes.
    """
    found = Scan(source)
    if found.header.minor < HASHED_MINOR:
        raise ScanMigrated(
            f"a file of {found.header.format} has no hashed ids to verify", where="line 1", next_step="read it whole"
        )
    return found


def read_session(source: Source, *, clock: Callable[[], str] = no_clock, elsewhere: Elsewhere = NOWHERE) -> Session:
    """Read a session file; the leaf is where its resume rule says (format.md §2).

    ``truncated``, ``repeated``, ``blank_lines`` and ``declared_format`` of the session tell what the file was like; one
    from before 0.5 is migrated in memory. Raises, with ``line`` set, what makes a file unreadable: BadJSON, BadFile,
    BadHeader, UnsupportedFormat, RedactedFrom, BadID, ReservedMember, BadEntry, BadConvergence, NoEntry, BaseRule,
    LimitExceeded.
    """
    lines = _Lines(source)
    rest = iter(lines)
    header = _read_header(rest)
    entries = MemorySource()
    session = Session(header, entries, clock=clock, elsewhere=elsewhere)
    migration = Migration() if header.minor < HASHED_MINOR else None
    decode = Entry.from_line if migration is None else migration.convert
    rules = _FileRules(header, entries.find)
    for line in rest:
        try:
            entry = decode(line.data)
            parent = rules.admit(entry)
        except AgentSessionError as error:
            session.truncated = _cut_short(line, error)
            break
        if parent is None:
            session.repeated.append(entry.id)
            continue
        entries.add(entry, parent)
        entries.base_count = rules.base_count
    rules.finish()
    if migration is not None:
        session.migrated = True
        session.unresolved = migration.unresolved
        session.header = migration.header(header)
    session.blank_lines = lines.blank
    session.leaf = resume_leaf(entries)
    return session


def projection_lines(session: Session) -> Iterator[bytes]:
    """The lines a session is written as, canonical and without their LF (store.md A10).

    The header, the entries in file order and, when the resume rule over them would not name the leaf, a synthetic leaf
    label. The same session gives the same bytes every time. Raises UnresolvedMigration before the first line.
    """
    if session.unresolved:
        raise UnresolvedMigration(
            f"{len(session.unresolved)} entries of a file of {session.declared_format} could not be rewritten",
            where=session.unresolved[0],
            next_step="keep the file as it is",
        )
    return _written_lines(session)


def synthetic_label(source: EntrySource, head: str) -> Entry | None:
    """The label that makes a file of these entries resume at ``head``; None when it does so without (store.md A10)."""
    if resume_leaf(source) == head:
        return None
    last = source.entry(len(source) - 1)
    ts = source.entry(source.find(head)).ts if head else last.ts
    return Entry.seal("label", {"label": "leaf", "synthetic": True, "target": head or None}, last.id, ts)


def is_synthetic(entry: Entry) -> bool:
    """Whether an entry is a projection's synthetic leaf label, which names the head and is no entry (store.md A10)."""
    return is_leaf_label(entry.facts) and entry.body.get("synthetic") is True


def _written_lines(session: Session) -> Iterator[bytes]:
    yield session.header.line
    for entry in session:
        yield entry.line
    label = synthetic_label(session.source, session.leaf)
    if label is not None:
        yield label.line


class _FileRules:
    """What a line has to be to the lines before it: parent, base and convergence rules (format.md §4).

    ``find`` gives the position of an entry met before, or -1; ``base_count`` is how many entries are the prefix, 0
    until the base has been met.
    """

    def __init__(self, header: Header, find: Callable[[str], int]) -> None:
        self._header = header
        self._find = find
        self._previous = ROOT
        self._count = 0
        self.base_count = 0

    def admit(self, entry: Entry) -> int | None:
        """The position of the entry's parent, -1 for the universal root; None for an entry met before."""
        if self._find(entry.id) >= 0:
            return None
        parent = self._find(entry.parent) if entry.parent else -1
        if self._header.base:
            self._check_base(entry, parent)
        if entry.parent and parent < 0:
            raise NoEntry("the parent is not in the file before it", where=entry.parent)
        if entry.parents:
            check_convergence(self._find, self._header, entry.parents)
        self._count += 1
        if entry.id == self._header.base:
            self.base_count = self._count
        return parent

    def finish(self) -> None:
        """Raise BaseRule for a file that ended before its base."""
        if self._header.base and not self.base_count:
            raise BaseRule("the base is not in the file", where=self._header.base)

    def _check_base(self, entry: Entry, parent: int) -> None:
        if self.base_count:
            if parent < self.base_count - 1:
                what = "an entry above the base" if entry.parent else "the universal root"
                raise BaseRule(f"an entry after the base hangs from {what}", where=entry.id)
        elif entry.parent != self._previous:
            raise BaseRule("the lines up to the base are not the path to it", where=entry.id)
        elif entry.id == self._header.base and is_leaf_label(entry.facts):
            raise BaseRule("the base is a leaf label", where=entry.id)
        self._previous = entry.id


def _read_header(lines: Iterator[_Line]) -> Header:
    line = next(lines, None)
    if line is None:
        raise _at_line(BadFile("the file is empty", next_step="a session file begins with its header"), 1)
    try:
        return Header.parse(line.data)
    except AgentSessionError as error:
        _at_line(error, line.number)
        raise


def _cut_short(line: _Line, error: AgentSessionError) -> TruncatedLine:
    """The report of a last line that is no JSON; any other line that failed raises its error (format.md §2)."""
    if line.is_last and isinstance(error, BadJSON) and not _is_json(line.data):
        return TruncatedLine(line.number, line.data, error)
    raise _at_line(error, line.number)


def _at_line(error: AgentSessionError, number: int) -> AgentSessionError:
    """Say of an error which line it is about, and what to do with such a file where it says nothing better."""
    error.line = number
    error.where = f"line {number}, {error.where}" if error.where else f"line {number}"
    if error.next_step == error.advice:
        error.next_step = next((todo for kinds, todo in _TODO if isinstance(error, kinds)), error.advice)
    return error


def _is_json(data: bytes) -> bool:
    """Whether a line is JSON at all, whatever its values: such a line was not cut short."""
    try:
        json.loads(data.decode(), parse_int=len, parse_float=len, parse_constant=_refuse)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _split(source: Source) -> Iterator[bytes]:
    """The lines of a source, each with its LF if it has one; no longer than what no line may be."""
    if isinstance(source, bytes):
        start = 0
        while start < len(source):
            end = source.find(b"\n", start) + 1 or len(source)
            yield source[start:end]
            start = end
    elif hasattr(source, "readline"):
        yield from iter(lambda: source.readline(LINE_MAX + 2), b"")
    elif isinstance(source, Iterable):
        yield from source
    else:
        raise BadInput(
            f"a session file is bytes, a binary stream or lines, not {type(source).__name__}",
            next_step="a path goes to read_file, or to a store's import_file",
        )
