"""The store users open: sessions by id, blobs by hash, all of it in one directory (store.md, cli.md "The library").

Wires layout, objects, sessions, projection and maintenance together, and owns which locks are held meanwhile. Nothing
store-wide is read or written on open or append.
"""

from __future__ import annotations

from builtins import list as list_
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentsession_cas.core.given import as_callback, as_path, require
from agentsession_cas.core.header import Harness, Header, check_new, new_header
from agentsession_cas.core.identity import hash_bytes, is_hash, session_id
from agentsession_cas.core.jsonl import Source
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.spans import check_redacted, check_redacted_header
from agentsession_cas.core.timestamps import ts_from_ns
from agentsession_cas.core.tree import Session
from agentsession_cas.effects.collector import held_off
from agentsession_cas.effects.durable import move
from agentsession_cas.effects.host import Host, real_host
from agentsession_cas.effects.memory import memory_host
from agentsession_cas.errors import (
    BadBlob,
    Closed,
    NoBlob,
    NoEntry,
    NoObject,
    NoSession,
    NoStore,
    ReadOnly,
    Usage,
)
from agentsession_cas.exchange.catalogue import Catalogue
from agentsession_cas.exchange.forks import anchor, check_base
from agentsession_cas.exchange.intake import read_source, take_session
from agentsession_cas.exchange.projection import Imported, project_session
from agentsession_cas.exchange.redact import Redactions
from agentsession_cas.exchange.sharing import Exchange
from agentsession_cas.exchange.watching import Watching
from agentsession_cas.layout import Layout, require_local, root_of
from agentsession_cas.maintenance.repack import tidy
from agentsession_cas.maintenance.upkeep import Upkeep
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.handle import SessionWriter
from agentsession_cas.sessions.journal import JOURNAL_NAME
from agentsession_cas.sessions.listing import Filter, OnDamage, Summary
from agentsession_cas.sessions.opening import Snapshot, create_session, lock_session, open_writer, read_header
from agentsession_cas.sessions.rowmaker import digest_of
from agentsession_cas.sessions.services import Mark, Services, SyncPolicy
from agentsession_cas.sessions.source import RowSource
from agentsession_cas.sessions.wake import wake
from agentsession_cas.sessions.writer import Writer

__all__ = ["Store"]


class Store(Exchange, Redactions, Watching, Upkeep):
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
        redacted_only: bool = False,
    ) -> None:
        """Wire a store over an open layout; ``files`` is the host that session files are read from and written to."""
        require(layout, Layout, "what a store is made over", "Store.open(path) opens a directory")
        if sync not in (SyncPolicy.RECORDS, SyncPolicy.ALWAYS, SyncPolicy.NEVER):
            raise Usage(f"{sync!r} is no sync policy", next_step="use records, always or never")
        self._layout = layout
        self._host = layout.host
        self._files = files or layout.host
        self._read_only = read_only
        self._closed = False
        self._objects = ObjectDatabase(layout.host, layout.root)
        layout.on_sweep(self._objects.forget)
        self._catalogue = Catalogue(layout, self._objects)
        self._services = Services(
            layout.host,
            layout.tmp,
            self._objects,
            layout.shared,
            self._catalogue,
            sync,
            background,
            redacted_only or layout.redacted_only,
            partial(tidy, layout, self._objects),
        )
        if redacted_only and not layout.redacted_only:
            self._require_redacted()

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
        redacted_only: bool = False,
        allow_network_fs: bool = False,
    ) -> Self:
        """Open the store at ``path`` (``~`` is the home directory); ``create`` makes one where none is.

        ``sync`` says which appends are durable when the caller does not (store.md A5): ``records``, ``always`` or
        ``never``. ``background`` checkpoints long journals in a thread of their own. ``redacted_only`` takes
        what is redacted alone (format.md §10): a store made so stays so, one that was not is held to it while it is
        open, and raises NotRedacted for what it holds already. ``allow_network_fs`` takes a store on a network file
        system, where locks may not hold. Raises NoStore, StoreExists, UnsupportedFormat, UnsupportedSystem.
        """
        host = host or real_host()
        root = root_of(path)
        if not allow_network_fs:
            require_local(host, root)
        try:
            layout = Layout.open(host, root)
            if not read_only:
                layout.complete()
        except NoStore:
            if not create or read_only:
                raise
            layout = Layout.create(host, root, redacted_only=redacted_only)
        return cls(layout, read_only=read_only, sync=sync, background=background, redacted_only=redacted_only)

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
        cwd: str | Path = "",
        records: Iterable[str] = (),
        parent_session: str = "",
        spawned_by: str = "",
        base: str = "",
        media: str = "",
        redacted: bool = False,
        redacted_from: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> SessionWriter:
        """Make a session and hold it for writing (store.md A2). What is left out is filled in; or hand over a header.

        A ``base`` makes it a fork: it continues from that entry of another session and copies nothing. Raises
        SessionExists, NoEntry for a base not held, HeadTarget for a base that is a leaf label, MediaDiffers,
        BadConvergence, NoRaise, BadHeader, RedactedFrom, NotRedacted.
        """
        self._require_writable()
        if header is not None:
            base = require(header, Header, "a header given whole", 'give its members by name: id="…"').base
        with ExitStack() as held:
            held.enter_context(self._layout.shared())
            self._layout.settle()
            origin = self._catalogue.origin_of(base, header.parent_session if header is not None else parent_session)
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
                    redacted=redacted,
                    redacted_from=redacted_from,
                    extra=extra or {},
                )
            check_new(header)
            if self._services.redacted_only:
                check_redacted_header(header)
            writer = self._create(header, origin)
        return SessionWriter(self._services, writer)

    def _create(self, header: Header, origin: Snapshot | None) -> Writer:
        """Make a session, and of a fork check the base and make its prefix durable before."""
        directory, make = self._layout.session_dir(header.id), partial(create_session, self._services)
        if origin is None:
            return make(self._layout.sessions, directory, header, prefix_of=self._catalogue.prefix_of)
        with ExitStack() as undo:
            undo.callback(origin.source.close)
            check_base(header, origin)
            place = self._layout.session_dir(origin.header.id)
            prefix, context = anchor(self._host.fs, self._objects, place, origin, header.base)
            found = make(self._layout.sessions, directory, header, base_context=context, prefix_of=lambda *_: prefix)
            undo.pop_all()
        return found

    def fork(self, session: str, entry: str, **header: Any) -> SessionWriter:
        """Make a session that continues from ``entry`` of ``session``; ``header`` as :meth:`create` takes it.

        It has that session's media, and nothing else of its header. Raises NoEntry for no entry, what :meth:`create`
        does.
        """
        if not entry:
            raise NoEntry("a fork continues from an entry, and none was named", where=f"session {session}")
        return self.create(base=entry, parent_session=session, **header)

    def open_session(self, session: str, timeout_s: float = 0.0) -> SessionWriter:
        """Hold a session for writing.

        Raises NoSession, SessionLocked (at once, or after ``timeout_s`` seconds), Damaged when its files have to be
        repaired first.
        """
        self._require_writable()
        directory = self._layout.session_dir(session)
        writer = open_writer(
            self._services, self._layout.sessions, directory, session, self._catalogue.prefix_of, timeout_s, Writer
        )
        return SessionWriter(self._services, writer)

    def read(self, session: str) -> Session:
        """A session as it is now, beside whoever writes it: no lock, nothing written. Raises NoSession, Damaged."""
        found = self.snapshot(session)
        return Session(found.header, found.source, leaf=found.leaf, elsewhere=self._services.elsewhere)

    def snapshot(self, session: str) -> Snapshot:
        """What :meth:`read` reads, with the state of the files beside it."""
        self._require_open()
        return self._catalogue.snapshot(session)

    def holds(self, session: str) -> bool:
        """Whether the store holds a session of that id."""
        self._require_open()
        return self._catalogue.holds(session)

    def header_of(self, session: str) -> Header | None:
        """The header of a session, None when it is not held. Raises Damaged."""
        self._require_open()
        try:
            return read_header(self._host.fs, self._layout.session_dir(session))
        except NoSession:
            return None

    def session_ids(self, on_damage: OnDamage | None = None) -> list_[str]:
        """The id of every session whose header reads, in no particular order; ``on_damage`` hears of the others."""
        self._require_open()
        return [header.id for _, header in self._catalogue.headers(as_callback(on_damage, "on_damage"))]

    def list(self, *, limit: int = 0, on_damage: OnDamage | None = None, **filters: Any) -> list_[Summary]:
        """Sessions newest first (``created_at``, then id); ``filters`` are the fields of :class:`Filter`.

        ``limit`` 0 lists all. A damaged session is left out; ``on_damage`` is called with its id and what is wrong.
        """
        self._require_open()
        return self._catalogue.list(limit, Filter(**filters), as_callback(on_damage, "on_damage"))

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
            wake(directory)

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
        BlobMismatch, NotRedacted, and what reading the file raises; nothing is kept then.
        """
        self._require_writable()
        with held_off():
            session, directory = read_source(self._files.fs, source, media)
            return self._take(session, Mark.RECORD if as_record else Mark.MIRROR, directory)

    def _take(self, session: Session, mark: int, directory: str) -> Imported:
        return take_session(self._layout, self._catalogue, self._services, self._files.fs, session, mark, directory)

    def project(self, session: str, target: str | Path) -> str:
        """Write a session as a file, its blobs beside it (store.md A10); returns the path. Byte-identical every time.

        Raises NoBlob when a blob the session names is not held: such a session is not projected.
        """
        path = as_path(target, "the file to write")
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

    # --- redaction ---

    def _settle(self, session: str) -> None:
        self._require_writable()
        journal = self._host.fs.open(f"{self._layout.session_dir(session)}/{JOURNAL_NAME}", write=True)
        try:
            journal.sync()
        finally:
            journal.close()

    def _keep_whole(self, session: Session) -> None:
        self._take(session, Mark.RECORD, "")

    def _require_redacted(self) -> None:
        """Refuse to be held to redacted sessions alone over anything else, or over what cannot be read."""
        for name in self._host.fs.listdir(self._layout.sessions):
            with self._reading(read_header(self._host.fs, f"{self._layout.sessions}/{name}").id) as held:
                check_redacted(held.header, held)

    # --- media ---

    def put_blob(self, data: bytes) -> str:
        """Keep bytes under their hash, durably; returns the hash (store.md A9).

        No sweep takes them before the grace period has passed, counted from the last time they were put.
        """
        self._require_writable()
        name = hash_bytes(require(data, bytes, "a blob", "encode a text first"))
        with self._layout.shared():
            self._layout.settle()
            self._objects.renew(Space.MEDIA, digest_of(name), data)
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
