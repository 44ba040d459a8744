"""The store users open: sessions by id, blobs by hash, all of it in one directory (store.md, cli.md "The library").

Wires layout, objects, sessions, projection and maintenance together, and owns what needs more than one session: where
a fork's prefix is read from, what a create refuses, and the anchoring of names from outside. Nothing store-wide is read
or written on open or append.
"""

from __future__ import annotations

from builtins import list as list_
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from agentsession_cas.core.contexthash import context_hash_at
from agentsession_cas.core.facts import Flag
from agentsession_cas.core.framing import Generation, Record
from agentsession_cas.core.header import REDACTION_MINOR, Harness, Header, new_header
from agentsession_cas.core.identity import hash_bytes, is_hash, session_id
from agentsession_cas.core.jsonl import Source
from agentsession_cas.core.leaf import is_leaf_label
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.rows import PARENTS_BIT
from agentsession_cas.core.source import EntrySource, path_positions
from agentsession_cas.core.timestamps import canonical_ts, ts_from_ns, ts_to_ns
from agentsession_cas.core.tree import Session
from agentsession_cas.effects.durable import move
from agentsession_cas.effects.host import Host, real_host
from agentsession_cas.effects.memory import memory_host
from agentsession_cas.errors import (
    BadBlob,
    BadConvergence,
    Closed,
    Corrupt,
    Damaged,
    HeadTarget,
    MediaDiffers,
    NoBlob,
    NoEntry,
    NoFile,
    NoObject,
    NoRaise,
    NoSession,
    NoStore,
    ReadOnly,
    SessionExists,
    Usage,
)
from agentsession_cas.exchange.projection import (
    Imported,
    kept_entries,
    project_session,
    read_for_import,
    sidecar_dir,
    sidecar_objects,
    stage_import,
)
from agentsession_cas.layout import Layout
from agentsession_cas.maintenance.findings import FsckReport
from agentsession_cas.maintenance.fsck import Progress, fsck
from agentsession_cas.maintenance.stats import stats
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.handle import SessionWriter
from agentsession_cas.sessions.journal import JOURNAL_NAME
from agentsession_cas.sessions.listing import Filter, Summary, summarise
from agentsession_cas.sessions.opening import Snapshot, create_session, lock_session, open_writer, read_header, snapshot
from agentsession_cas.sessions.rowmaker import digest_of
from agentsession_cas.sessions.services import Mark, Services, SyncPolicy
from agentsession_cas.sessions.source import ChainSource, Prefix, RowSource
from agentsession_cas.sessions.writer import publish_records

__all__ = ["Store"]

_FORKS_MAX: Final = 64
"""Forks of forks read through their origins' rows; a longer chain is read from envelopes."""


class Store:
    """A store on a host. Open one with :meth:`open` or :meth:`memory`; close it, or use it as a context manager.

    Threads may share a store. A read-only one takes no lock and writes nothing.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        read_only: bool = False,
        sync: str = SyncPolicy.RECORDS,
        background: bool = True,
        files: Host | None = None,
    ) -> None:
        """Wire a store over an open layout; ``files`` is the host that session files are read from and written to."""
        if sync not in (SyncPolicy.RECORDS, SyncPolicy.ALWAYS, SyncPolicy.NEVER):
            raise Usage(f"{sync!r} is no sync policy", next_step="use records, always or never")
        self._layout = layout
        self._host = layout.host
        self._files = files or layout.host
        self._read_only = read_only
        self._closed = False
        self._objects = ObjectDatabase(layout.host, layout.root)
        self._services = Services(
            layout.host, layout.tmp, self._objects, layout.shared, _Elsewhere(self), sync, background
        )

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        create: bool = False,
        read_only: bool = False,
        sync: str = SyncPolicy.RECORDS,
        host: Host | None = None,
        background: bool = True,
    ) -> Self:
        """Open the store at ``path`` (``~`` is the home directory); ``create`` makes one where none is.

        ``sync`` says which appends are durable when the caller does not (store.md A5): ``records``, ``always`` or
        ``never``. ``background`` checkpoints long journals in a thread of their own. Raises NoStore, StoreExists,
        UnsupportedFormat.
        """
        host = host or real_host()
        root = str(Path(path).expanduser())
        try:
            layout = Layout.open(host, root)
        except NoStore:
            if not create or read_only:
                raise
            layout = Layout.create(host, root)
        return cls(layout, read_only=read_only, sync=sync, background=background)

    @classmethod
    def memory(cls, *, sync: str = SyncPolicy.RECORDS) -> Self:
        """The same store on a disk in memory: for tests, and for sessions never kept."""
        return cls(Layout.create(memory_host(), "/store"), sync=sync, files=real_host())

    @property
    def root(self) -> str:
        """The directory the store lies in."""
        return self._layout.root

    @property
    def layout(self) -> Layout:
        """Where the store's files lie."""
        return self._layout

    @property
    def objects(self) -> ObjectDatabase:
        """The store's objects."""
        return self._objects

    # --- sessions ---

    def create(
        self,
        header: Header | None = None,
        *,
        id: str = "",
        created_at: str | datetime = "",
        harness: Harness | None = None,
        cwd: str = "",
        records: Iterable[str] = (),
        parent_session: str = "",
        spawned_by: str = "",
        base: str = "",
        media: str = "",
        extra: Mapping[str, Any] | None = None,
    ) -> SessionWriter:
        """Make a session and hold it for writing (store.md A2). What is left out is filled in; or hand over a header.

        A ``base`` makes it a fork: it continues from that entry of another session and copies nothing. Raises
        SessionExists, NoEntry for a base not held, HeadTarget for a base that is a leaf label, MediaDiffers,
        BadConvergence, NoRaise, BadHeader.
        """
        self._require_writable()
        if header is not None:
            base = header.base
        with ExitStack() as held:
            held.enter_context(self._layout.shared())
            origin = self._origin_of(base, header.parent_session if header is not None else parent_session)
            if header is None:
                now = self._host.clock.now_ns()
                header = new_header(
                    id=id or session_id(now // 1_000_000, self._host.entropy.take(10)),
                    created_at=created_at or ts_from_ns(now),
                    harness=harness,
                    cwd=cwd,
                    records=records,
                    parent_session=parent_session or (origin.header.id if origin else ""),
                    spawned_by=spawned_by,
                    base=base,
                    media=media or (origin.header.media if origin else "inline"),
                    extra=extra or {},
                )
            context = self._anchor(header, origin) if origin else bytes(32)
            writer = create_session(
                self._services,
                self._layout.sessions,
                self._layout.session_dir(header.id),
                header,
                base_context=context,
                prefix_of=self._prefix_of,
            )
        return SessionWriter(self._services, writer)

    def fork(self, session: str, entry: str, **header: Any) -> SessionWriter:
        """Make a session that continues from ``entry`` of ``session``; ``header`` as :meth:`create` takes it."""
        return self.create(base=entry, parent_session=session, **header)

    def open_session(self, session: str, timeout_s: float = 0.0) -> SessionWriter:
        """Hold a session for writing.

        Raises NoSession, SessionLocked (at once, or after ``timeout_s`` seconds), Damaged when its files have to be
        repaired first.
        """
        self._require_writable()
        directory = self._layout.session_dir(session)
        writer = open_writer(
            self._services, self._layout.sessions, directory, session, self._prefix_of, timeout_s
        )
        return SessionWriter(self._services, writer)

    def read(self, session: str) -> Session:
        """A session as it is now, beside whoever writes it: no lock, nothing written. Raises NoSession, Damaged."""
        found = self.snapshot(session)
        leaf = found.source.entry_id(found.head) if found.head >= 0 else ""
        return Session(found.header, found.source, leaf=leaf, elsewhere=self._services.elsewhere)

    def snapshot(self, session: str) -> Snapshot:
        """What :meth:`read` reads, with the state of the files beside it."""
        self._require_open()
        directory = self._layout.session_dir(session)
        try:
            return snapshot(self._host, self._objects, directory, self._prefix_of)
        except NoSession as error:
            raise NoSession("the store holds no such session", where=session) from error

    def holds(self, session: str) -> bool:
        """Whether the store holds a session of that id."""
        self._require_open()
        return self._host.fs.stat(self._layout.session_dir(session)) is not None

    def session_ids(self) -> list_[str]:
        """The id of every session whose header reads, in no particular order."""
        self._require_open()
        return [header.id for _, header in self._headers()]

    def _headers(self) -> Iterator[tuple[str, Header]]:
        for name in self._host.fs.listdir(self._layout.sessions):
            directory = f"{self._layout.sessions}/{name}"
            try:
                yield directory, read_header(self._host.fs, directory)
            except (NoSession, Damaged):
                continue

    def list(self, *, limit: int = 0, **filters: Any) -> list_[Summary]:
        """Sessions newest first (``created_at``, then id); ``filters`` are the fields of :class:`Filter`.

        ``limit`` 0 lists all. A damaged session is left out: ``fsck`` names it.
        """
        self._require_open()
        wanted = Filter(**filters)
        headers = [(d, h) for d, h in self._headers() if wanted.keeps_header(h)]
        headers.sort(key=lambda each: (ts_to_ns(canonical_ts(each[1].created_at)), each[1].id), reverse=True)
        listed: list[Summary] = []
        for directory, _ in headers:
            try:
                found = snapshot(self._host, self._objects, directory, _no_prefix)
                summary = summarise(self._host.fs, directory, found)
            except (NoSession, Corrupt, NoObject):
                continue
            found.source.close()
            if wanted.keeps(summary):
                listed.append(summary)
            if limit and len(listed) >= limit:
                break
        return listed

    def delete(self, session: str, timeout_s: float = 0.0) -> None:
        """Remove a session, in one step; entries that forks need stay. Raises NoSession, SessionLocked."""
        self._require_writable()
        directory = self._layout.session_dir(session)
        lock = lock_session(self._host, directory, session, timeout_s)
        try:
            with self._layout.shared():
                trash = f"{self._layout.trash}/{self._host.entropy.take(12).hex()}"
                move(self._host.fs, directory, trash)
        finally:
            lock.release()

    def set_head(self, session: str, expected: str, to: str, *, durable: bool = True) -> bool:
        """Compare and swap a session's head (store.md A4); takes the session's lock for it."""
        with self.open_session(session) as held:
            return held.set_head(expected, to, durable=durable)

    # --- files ---

    def import_file(
        self,
        source: Source | str | Path,
        *,
        as_record: bool = False,
        media: str | Path | None = None,
    ) -> Imported:
        """Take a session file in whole, durably (store.md A10); a path, or its bytes, stream or lines.

        It becomes a mirror unless ``as_record``. Blobs are read from ``media``, else from the directory named after the
        session beside the file. Raises SessionExists, Truncated, MediaDiffers, UnresolvedMigration, RedactedFrom,
        BlobMismatch, and what reading the file raises; nothing is kept then.
        """
        self._require_writable()
        directory = str(media) if media is not None else ""
        if isinstance(source, (str, Path)):
            path = str(source)
            data = self._files.fs.read(path)
            if data is None:
                raise NoFile("there is no such file", where=path)
            session = read_for_import(data)
            directory = directory or sidecar_dir(path, session.id)
        else:
            session = read_for_import(source)
        return self._take(session, Mark.RECORD if as_record else Mark.MIRROR, directory)

    def _take(self, session: Session, mark: int, directory: str) -> Imported:
        if self.holds(session.id):
            raise SessionExists("the store holds a session of this id", where=session.id, next_step="delete it first")
        with self._layout.shared():
            self._check_media(session.header)
            blobs, missing = sidecar_objects(self._files.fs, session, directory)
            staged = stage_import(session, mark, self._host.clock.now_ns())
            self._objects.publish([*blobs, *staged.objects])
            writer = create_session(
                self._services,
                self._layout.sessions,
                self._layout.session_dir(session.id),
                session.header,
                rows=staged.rows,
                newest=staged.newest,
                base_context=staged.base_context,
                prefix_of=self._prefix_of,
            )
        writer.close()
        unresolved = [name for name in missing if not self._objects.holds(Space.MEDIA, digest_of(name))]
        own = kept_entries(session) - session.source.base_count
        mark_name = "record" if mark == Mark.RECORD else "mirror"
        return Imported(session.id, own, session.leaf, mark_name, unresolved, session.repeated)

    def _check_media(self, header: Header) -> None:
        """Refuse a fork whose media differs from that of a held session with its base (store.md A2)."""
        try:
            origin = self._origin_of(header.base, header.parent_session)
        except NoEntry:
            return
        if origin is not None:
            origin.source.close()
            _require_media(header, origin.header)

    def project(self, session: str, target: str | Path) -> str:
        """Write a session as a file, its blobs beside it (store.md A10); returns the path. Byte-identical every time.

        Raises NoBlob when a blob the session names is not held: such a session is not projected.
        """
        path = str(target)
        with self._reading(session) as found:
            project_session(self._files, found, self.blob, path)
        return path

    @contextmanager
    def _reading(self, session: str) -> Iterator[Session]:
        """A session read for one piece of work, its files let go behind it."""
        found = self.read(session)
        try:
            yield found
        finally:
            if isinstance(found.source, RowSource):
                found.source.close()

    # --- media ---

    def put_blob(self, data: bytes) -> str:
        """Keep bytes under their hash, durably; returns the hash (store.md A9)."""
        self._require_writable()
        name = hash_bytes(data)
        with self._layout.shared():
            self._objects.publish([(Space.MEDIA, digest_of(name), data)])
        return name

    def blob(self, name: str) -> bytes:
        """The bytes of a blob. Raises BadBlob for a name that is no hash, NoBlob, Corrupt."""
        self._require_open()
        if not is_hash(name):
            raise BadBlob("a blob is named by its hash", where=name, next_step="write sha256: and 64 hex digits")
        try:
            return self._objects.get(Space.MEDIA, digest_of(name))
        except NoObject as error:
            raise NoBlob("the store does not hold the blob", where=name) from error

    # --- keeping ---

    def fsck(self, *, fast: bool = False, progress: Progress | None = None) -> FsckReport:
        """Check everything the store holds (store.md A12), without a lock; ``fast`` skips bodies.

        ``progress`` is called with the steps done and how many there are.
        """
        self._require_open()
        return fsck(self._layout, self._objects, fast=fast, progress=progress)

    def stats(self) -> dict[str, Any]:
        """What the store holds, weighs and saves: the ``stats`` shape of cli.md, defined in ``maintenance.stats``."""
        self._require_open()
        return stats(self._layout, self._objects)

    # --- what needs more than one session ---

    def _prefix_of(self, header: Header, generation: Generation) -> Prefix | None:  # noqa: ARG002
        """Where a fork's prefix is read from: the session it was made from, else the envelopes themselves."""
        return self._prefix(header, _FORKS_MAX)

    def _prefix(self, header: Header, forks: int) -> Prefix | None:
        if not header.base:
            return None
        found = self._origin_source(header, forks) if forks else None
        if found is None:
            chain = ChainSource(self._objects, header.base)
            return Prefix(chain, range(len(chain)))
        source, position = found
        return Prefix(source, path_positions(source, position))

    def _origin_source(self, header: Header, forks: int) -> tuple[EntrySource, int] | None:
        directory = self._layout.session_dir(header.parent_session)
        if not header.parent_session or header.parent_session == header.id:
            return None
        try:
            origin = snapshot(self._host, self._objects, directory, lambda h, _: self._prefix(h, forks - 1))
            position = origin.source.find(header.base)
        except (NoSession, Corrupt, NoObject):
            return None
        if position >= 0:
            return origin.source, position
        origin.source.close()
        return None

    def _origin_of(self, base: str, parent_session: str) -> Snapshot | None:
        """The session a fork continues from: the one named when it holds the base, else any (store.md A2)."""
        if not base:
            return None
        named = [parent_session] if parent_session and self.holds(parent_session) else []
        others = (header.id for _, header in self._headers() if header.id != parent_session)
        for candidate in (*named, *others):
            try:
                found = self.snapshot(candidate)
            except (NoSession, Corrupt, NoObject):
                continue
            if is_hash(base) and found.source.find(base) >= 0:
                return found
            found.source.close()
        raise NoEntry("the store holds no entry to fork at", where=base, next_step="name an entry of a held session")

    def _anchor(self, header: Header, origin: Snapshot) -> bytes:
        """Check a fork's base, publish what of its path lies in a journal; returns the context digest at the base."""
        source = origin.source
        try:
            position = source.find(header.base)
            if is_leaf_label(source.facts(position)):
                raise HeadTarget("a base is never a leaf label", where=header.base, next_step="fork at what it labels")
            _require_media(header, origin.header)
            self._check_path(header, origin, position)
            self._publish_path(origin, position)
            return self._context_digest(source, position)
        finally:
            source.close()

    def _check_path(self, header: Header, origin: Snapshot, position: int) -> None:
        """Refuse a prefix that names an entry off itself, or one that holds redacted from before 0.13."""
        source = origin.source
        early = origin.header.minor < REDACTION_MINOR <= header.minor
        flags = origin.state.scan.generation.newest.flags if not source.base_count else PARENTS_BIT | Flag.REDACTED
        for number in range(source.table.base, len(source.table)):
            flags |= source.table.row(number).flags
        if not flags & (PARENTS_BIT | (Flag.REDACTED if early else 0)):
            return
        path = path_positions(source, position)
        held = {source.entry_id(at) for at in path}
        for at in path:
            entry = source.entry(at)
            if early and entry.facts.flags & Flag.REDACTED:
                raise NoRaise("an entry of the prefix holds redacted from before 0.13", where=entry.id)
            own = (r for r in entry.parents if not r.get("session") or r.get("session") == origin.header.id)
            if any(reference["entry"] not in held for reference in own):
                raise BadConvergence(
                    "the prefix converges an entry off it", where=entry.id, next_step="fork before that entry"
                )

    def _publish_path(self, origin: Snapshot, position: int) -> None:
        """Make the path durable as objects, and its session's journal through the base (architecture §3, anchored)."""
        source, table = origin.source, origin.source.table
        records: list[Record] = []
        while position >= source.base_count and source.number(position) >= table.base:
            records.append(table.pending[source.number(position) - table.base])
            position = source.parent(position)
        if not records:
            return
        journal = self._host.fs.open(f"{self._layout.session_dir(origin.header.id)}/{JOURNAL_NAME}", write=True)
        try:
            journal.sync()
        finally:
            journal.close()
        publish_records(self._objects, records)

    @staticmethod
    def _context_digest(source: RowSource, position: int) -> bytes:
        if position >= source.base_count:
            return source.context_digest(position)
        return digest_of(context_hash_at(source, position))

    # --- the handle ---

    def _require_open(self) -> None:
        if self._closed:
            raise Closed("the store was closed", where=self.root, next_step="open it again")

    def _require_writable(self) -> None:
        self._require_open()
        if self._read_only:
            raise ReadOnly("the store was opened read-only", where=self.root, next_step="open it to write")

    def close(self) -> None:
        """Close the store's files. Sessions held open are let go by their own handles."""
        if not self._closed:
            self._closed = True
            self._objects.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Elsewhere:
    """What entries may name outside their session, as a store knows it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def has_blob(self, blob: str) -> bool:
        """Whether the store holds a good copy of the blob."""
        return self._store.objects.holds(Space.MEDIA, digest_of(blob))

    def has_entry(self, session: str, entry_id: str) -> bool:
        """Whether the store holds that session and it holds the entry."""
        try:
            found = self._store.snapshot(session)
        except (NoSession, Corrupt, NoObject):
            return False
        try:
            return is_hash(entry_id) and found.source.find(entry_id) >= 0
        finally:
            found.source.close()


def _require_media(header: Header, origin: Header) -> None:
    if header.media != origin.media:
        raise MediaDiffers(
            f"the session holding the base keeps its media {origin.media}",
            where=header.id,
            next_step="use the same media form",
        )


def _no_prefix(header: Header, generation: Generation) -> Prefix | None:  # noqa: ARG001
    """A listing reads own rows alone."""
    return None
