"""Sessions out as files and in again, with their sidecar media (store.md A9, A10).

Owns the form of a projection on disk and what an import refuses. A projection is the same bytes every time; an import
verifies every line, keeps header and order, and hands over rows and objects that make the session in one step. Neither
takes a lock: the store does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from agentsession_cas.core.accept import Outcome, outcome_of
from agentsession_cas.core.contexthash import EMPTY_CONTEXT_HASH, context_hash_at
from agentsession_cas.core.entry import sidecar_blobs
from agentsession_cas.core.facts import Flag
from agentsession_cas.core.header import Header
from agentsession_cas.core.identity import HASH_PREFIX, hash_bytes
from agentsession_cas.core.jsonl import Source, is_synthetic, projection_lines, read_session
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.rows import (
    NO_DIGEST,
    REF_BASE,
    REF_ELSEWHERE,
    REF_ROOT,
    Newest,
    Row,
    RowCode,
    encode_row,
    ref_to,
)
from agentsession_cas.core.timestamps import ts_to_ns
from agentsession_cas.core.tree import Session
from agentsession_cas.effects.durable import ensure_dir, parent, publish, write_new
from agentsession_cas.effects.host import Fs, Host
from agentsession_cas.errors import (
    AgentSessionError,
    BlobMismatch,
    FileTaken,
    NoFile,
    NotRegular,
    Truncated,
    UnresolvedMigration,
)
from agentsession_cas.layout import directory_name
from agentsession_cas.sessions.rowmaker import digest_of, make_row
from agentsession_cas.sessions.services import Mark
from agentsession_cas.sessions.source import hash_of

__all__ = [
    "Imported",
    "Staged",
    "kept_entries",
    "project_session",
    "read_for_import",
    "require_replaceable",
    "session_blobs",
    "sidecar_dir",
    "sidecar_objects",
    "stage_import",
]

_PIECE: Final = 1 << 20


class Imported(NamedTuple):
    """What an import did: own entries, the head ("" for the universal root), blobs not held, ids the file repeated."""

    session: str
    entries: int
    head: str
    mark: str
    unresolved: list[str]
    repeated: list[str]


class Staged(NamedTuple):
    """A session ready to be made in one step: rows (124 bytes each), what they have newest, the objects they need."""

    header: Header
    rows: list[bytes]
    newest: Newest
    base_context: bytes
    objects: list[tuple[Space, bytes, bytes]]


def sidecar_dir(file: str, session: str) -> str:
    """The directory of a projection's blobs: beside the file, named after the session."""
    return f"{parent(file)}/{directory_name(session)}"


def session_blobs(session: Session) -> list[str]:
    """The hashes of the blobs a session's entries name, its prefix's too, each once, in order."""
    source = session.source
    named: dict[str, None] = {}
    for position in range(len(source)):
        if source.facts(position).flags & Flag.BLOBS:
            named.update(dict.fromkeys(sidecar_blobs(source.entry(position).content)))
    return list(named)


def project_session(host: Host, session: Session, blob: Callable[[str], bytes], target: str) -> None:
    """Write a session to ``target`` and its blobs beside it, replacing a file of that name when all of it is written.

    ``blob`` gives a blob's bytes and raises NoBlob for one not held: nothing is left then. An error of the disk names
    ``target``, whatever file it was met at. Raises NotRegular for a directory, a pipe or a device.
    """
    blobs = session_blobs(session)
    for name in blobs:
        blob(name)
    require_replaceable(host.fs, target)
    staged = f"{target}.{host.entropy.take(6).hex()}.part"
    try:
        _write(host, session, blob, blobs, staged, target)
    except AgentSessionError as error:
        error.where = error.where.replace(staged, target)
        raise


def require_replaceable(fs: Fs, target: str) -> None:
    """Raise NotRegular for a path that a file is not to take the place of: a directory, a pipe, a socket, a device."""
    found = fs.stat(target)
    if found is None or found.is_file:
        return
    if found.is_dir:
        raise NotRegular("a directory is no file to write", where=target, next_step="name a file in it")
    raise NotRegular(
        "a pipe or a device is no file to write", where=target, next_step="name a file, or send standard output there"
    )


def _write(
    host: Host, session: Session, blob: Callable[[str], bytes], blobs: list[str], staged: str, target: str
) -> None:
    fs = host.fs
    file = fs.create(staged)
    try:
        try:
            offset = 0
            for piece in _pieces(projection_lines(session)):
                file.pwrite(piece, offset)
                offset += len(piece)
            file.sync()
        finally:
            file.close()
        if blobs:
            _write_blobs(host, blob, blobs, sidecar_dir(target, session.id))
        fs.rename(staged, target)
    except BaseException:
        _unlink(fs, staged)
        raise
    fs.sync_dir(parent(target))


def _pieces(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Lines with their LF, gathered into pieces of about a megabyte."""
    gathered: list[bytes] = []
    size = 0
    for line in lines:
        gathered += (line, b"\n")
        size += len(line) + 1
        if size >= _PIECE:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)


def _write_blobs(host: Host, blob: Callable[[str], bytes], names: list[str], directory: str) -> None:
    ensure_dir(host.fs, directory)
    for name in names:
        path = f"{directory}/{name.removeprefix(HASH_PREFIX)}"
        try:
            write_new(host.fs, path, blob(name))
        except FileTaken:
            publish(host, directory, path, blob(name))
    host.fs.sync_dir(directory)


def _unlink(fs: Fs, path: str) -> None:
    try:
        fs.unlink(path)
    except AgentSessionError:
        return


def read_for_import(source: Source) -> Session:
    """Read a file as an import takes it: whole, and made of entries that may be written again (store.md A10).

    Raises what :func:`~agentsession_cas.core.jsonl.read_session` does, Truncated, UnresolvedMigration.
    """
    session = read_session(source)
    if session.truncated is not None:
        raise Truncated(
            "the last line was cut short",
            where=f"line {session.truncated.line}",
            next_step="remove it, or import a whole file",
        )
    if session.unresolved:
        raise UnresolvedMigration(
            f"{len(session.unresolved)} entries of a file from before 0.5 cannot be rewritten",
            where=session.unresolved[0],
            next_step="read it, or migrate it with the tool that wrote it",
        )
    return session


def kept_entries(session: Session) -> int:
    """How many entries of a file an import keeps: all but a projection's leaf marker, which only names the head."""
    count = len(session)
    return count - 1 if count and is_synthetic(session.source.entry(count - 1)) else count


def sidecar_objects(fs: Fs, session: Session, directory: str) -> tuple[list[tuple[Space, bytes, bytes]], list[str]]:
    """The blobs of a session that lie in ``directory``, as objects, and the hashes of those that do not.

    Raises BlobMismatch for a blob whose bytes do not hash to its name.
    """
    objects: list[tuple[Space, bytes, bytes]] = []
    missing: list[str] = []
    for name in session_blobs(session):
        path = f"{directory}/{name.removeprefix(HASH_PREFIX)}"
        try:
            data = fs.read(path) if directory else None
        except NoFile:
            data = None
        if data is None:
            missing.append(name)
        elif hash_bytes(data) != name:
            raise BlobMismatch("the blob does not hash to its name", where=path, next_step="put the right file there")
        else:
            objects.append((Space.MEDIA, digest_of(name), data))
    return objects, missing


def stage_import(session: Session, mark: int, now_ns: int) -> Staged:
    """The rows and objects of a session that was read; its head becomes the leaf that was found."""
    staging = _Staging(session, now_ns)
    if mark != Mark.RECORD:
        staging.special(RowCode.MARK, mark)
    entries = kept_entries(session)
    for position in range(session.source.base_count, entries):
        staging.entry(position)
    leaf = session.leaf_position
    if staging.head != leaf:
        staging.head = leaf
        staging.special(RowCode.HEAD, 0)
    objects = [
        each
        for entry in islice(session, entries)
        for each in (
            (Space.CONTENTS, digest_of(entry.content_hash), entry.content),
            (Space.ENTRIES, digest_of(entry.id), entry.envelope),
        )
    ]
    return Staged(session.header, staging.rows, staging.newest, staging.base_context, objects)


class _Staging:
    """Rows as they grow. ``head`` is the position of the head after the last one."""

    def __init__(self, session: Session, now_ns: int) -> None:
        self._session = session
        self._source = session.source
        self._now = now_ns
        self._contexts: list[str] = []
        self._numbers: list[int] = []
        self._base = session.source.base_count
        self.base_context = digest_of(context_hash_at(session.source, self._base - 1)) if self._base else NO_DIGEST
        self.head = self._base - 1
        self.rows: list[bytes] = []
        self.newest = Newest()

    def _ref_of(self, position: int) -> int:
        if position < 0:
            return REF_ROOT
        if position >= self._base + len(self._numbers):
            return REF_ELSEWHERE  # a target further down the file
        if position >= self._base:
            own = position - self._base
            return ref_to(self._numbers[own]) if own < len(self._numbers) else REF_ELSEWHERE
        return REF_BASE if position == self._base - 1 else REF_ELSEWHERE

    def _context_at(self, position: int) -> str:
        if position < 0:
            return EMPTY_CONTEXT_HASH
        if position >= self._base:
            return self._contexts[position - self._base]
        if position == self._base - 1:
            return hash_of(self.base_context)
        return context_hash_at(self._source, position)

    def _add(self, row: Row) -> None:
        self.newest = self.newest.with_row(len(self.rows), row)
        self.rows.append(encode_row(row))

    def special(self, code: RowCode, kind: int) -> None:
        """Add a row that is no entry."""
        head = self._ref_of(self.head)
        self._add(
            Row(NO_DIGEST, NO_DIGEST, NO_DIGEST, self.newest.special, head, 0, self._now, code, kind, 0, 0)
        )

    def entry(self, position: int) -> None:
        """Add the row of an own entry, its head following as an append's would."""
        entry, parent_at = self._source.entry(position), self._source.parent(position)
        held = self._source.entry_id(self.head) if self.head >= 0 else ""
        outcome, after = outcome_of(self._source, held, entry)
        number = len(self.rows)
        if outcome is Outcome.CONTINUED:
            self.head = position
        elif outcome is Outcome.LEAF_MOVED:
            target = self._source.find(after) if after else -1
            self.head = target if target < position else self.head
        self._numbers.append(number)
        row = make_row(
            self._source,
            entry,
            entry.body,
            parent_at,
            self._ref_of(self.head),
            parent_ref=self._ref_of(parent_at),
            before=self._context_at(parent_at),
            ts=ts_to_ns(entry.ts),
            ref_of=self._ref_of,
            context_at=self._context_at,
        )
        self._contexts.append(hash_of(row.context))
        self._add(row)
