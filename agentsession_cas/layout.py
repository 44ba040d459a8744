"""Where a store's files lie, what settings never change, and the store-wide lock (store.md Part B).

Owns every path below a store's root and the names of session directories. Invariants: a session's directory name is
injective in its id, also where case does not count, and never leads out of ``sessions/``; ``store.json`` is written
last, so a directory without it is no store. The lock file holds the *sweep epoch*: random bytes that a sweep changes
before it deletes the first object. Whoever holds the lock next sees that they changed and forgets what it knew to be
there; that is memory of running processes, so the epoch need not survive a crash. Whoever waits to hold the store alone
goes before those who come later to share it, for a while: there may always be some. Must not: read or write a session's
files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import get_ident
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import orjson

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.given import as_path, require_text
from agentsession_cas.core.timestamps import ts_from_ns
from agentsession_cas.effects.durable import ensure_dir, parent, publish
from agentsession_cas.effects.host import Host
from agentsession_cas.effects.line import is_awaited, lock_in_line
from agentsession_cas.effects.protocols import Fs
from agentsession_cas.errors import (
    BadInput,
    Corrupt,
    NoFile,
    NoStore,
    NotRegular,
    StoreExists,
    StoreLocked,
    UnsupportedFormat,
    UnsupportedSystem,
)

__all__ = [
    "DAMAGED",
    "LAYOUT_VERSION",
    "Layout",
    "directory_name",
    "require_local",
    "require_outside",
    "root_of",
    "session_id_of",
]

LAYOUT_VERSION: Final = 1
DAMAGED: Final = "damaged"
"""The directory, of the store and of a session, that keeps what a repair replaced."""
STORE_FILE: Final = "store.json"
_DIRECTORIES: Final = ("objects", "objects/pack", "sessions", "locks", "refs", "logs", "trash", "tmp")
_KEPT: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_DEVICES: Final = frozenset(
    ("con", "prn", "aux", "nul", *(f"com{n}" for n in range(1, 10)), *(f"lpt{n}" for n in range(1, 10)))
)
_NAME_MAX: Final = 200
_STEM: Final = 120
_STORE_WAIT_S: Final = 60.0
_EPOCH_SIZE: Final = 16
_POLITE_S: Final = 2.0
"""So long does who wants to share the store let others go first: they may wait for something he holds."""


def directory_name(session_id: str) -> str:
    """The name of a session's directory: injective, lower-case ASCII, at most 200 bytes (store.md Part B)."""
    raw = session_id.encode(errors="surrogatepass")  # no session has such an id, but it may be asked for
    parts = [chr(byte) if byte in _KEPT else f"%{byte:02x}" for byte in raw]
    if session_id in _DEVICES:
        parts[0] = f"%{raw[0]:02x}"
    name = "".join(parts)
    if len(name) > _NAME_MAX:
        return f"{name[:_STEM]}%%{sha256(raw).hexdigest()}"
    return name


def session_id_of(name: str) -> str:
    """The session id whose directory has that name; "" when a name is no id's, or too long to tell."""
    try:
        session_id = unquote_to_bytes(name).decode()
    except UnicodeError:
        return ""
    return session_id if session_id and directory_name(session_id) == name else ""


def root_of(path: object) -> str:
    """The root of the store at a path a caller gave, ``~`` being the home directory. Raises BadInput."""
    given = as_path(path, "where a store is")
    try:
        return str(Path(given).expanduser())
    except RuntimeError as error:
        raise BadInput("nobody's home directory", where=given, next_step="write the path out") from error


def require_local(host: Host, root: str) -> None:
    """Raise UnsupportedSystem for a root on a network file system: its locks and mappings may lie (store.md Part B)."""
    kind = host.fs.network(root)
    if kind:
        raise UnsupportedSystem(
            f"the store lies on a network file system ({kind}), where locks and mapped files cannot be trusted",
            where=root,
            next_step="use a local disk; or, for one machine alone, say --allow-network-fs (allow_network_fs=True)",
        )


def require_outside(fs: Fs, root: str) -> None:
    """Raise StoreExists for a root within a store, which would take the new one's files for its own."""
    above = parent(root)
    while above not in ("/", "."):
        if fs.stat(f"{above}/{STORE_FILE}") is not None and fs.stat(f"{above}/sessions") is not None:
            raise StoreExists("the place lies inside a store", where=above, next_step="name one outside of it")
        above = parent(above)


class Layout:
    """The paths and the lock of one store."""

    def __init__(self, host: Host, root: str) -> None:
        self.host = host
        self.root = root
        self.sessions = f"{root}/sessions"
        self.tmp = f"{root}/tmp"
        self.trash = f"{root}/trash"
        self.redacted_only = False
        """Whether the store takes what is redacted alone (format.md §10): a setting that never changes."""
        self.repack_lock = f"{root}/locks/repack"
        self._lock_path = f"{root}/locks/store"
        self._settled = False
        self._epoch = b""
        self._forget: list[Callable[[], None]] = []
        self._sharing: dict[int, int] = {}
        """How often each thread shares the store: who does already waits for nobody to share it once more."""

    @classmethod
    def open(cls, host: Host, root: str) -> Layout:
        """The layout of the store at ``root``; NoStore when none is there, UnsupportedFormat for a later one."""
        layout = cls(host, root)
        try:
            data = host.fs.read(f"{root}/{STORE_FILE}")
        except NoFile:
            data = None
        except NotRegular as error:
            found = host.fs.stat(root)
            if found is not None and found.is_dir:
                raise
            raise NotRegular("a store is a directory, and this is none", where=root) from error
        if data is None and host.fs.stat(layout.sessions) is not None:
            raise NoStore(
                f"{STORE_FILE} is missing from the store",
                where=root,
                next_step="make the store again in its place: the sessions in it stay",
            )
        if data is None:
            raise NoStore("there is no store", where=root, next_step="make one (create=True), or name another path")
        try:
            settings: Any = orjson.loads(data)
            version = settings["layout"]
            layout.redacted_only = settings.get("redacted_only") is True
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise Corrupt(
                "the store's settings cannot be read",
                where=f"{root}/{STORE_FILE}",
                next_step=f'restore the file; one as it is made holds {{"layout":{LAYOUT_VERSION}}}',
            ) from error
        if version != LAYOUT_VERSION:
            raise UnsupportedFormat(
                f"the store has layout {version}, this package reads {LAYOUT_VERSION}",
                where=root,
                next_step="use a release that reads it",
            )
        return layout

    @classmethod
    def create(cls, host: Host, root: str, *, redacted_only: bool = False) -> Layout:
        """Make a store at ``root``, durably; StoreExists when something else is there. A cut create is completed."""
        fs = host.fs
        found = fs.stat(root)
        if found is not None:
            names = set(fs.listdir(root)) if found.is_dir else {root}
            if STORE_FILE in names:
                raise StoreExists("a store is there already", where=root, next_step="open it")
            strange = names - {DAMAGED, *(top.split("/")[0] for top in _DIRECTORIES)}
            if strange:
                what = f"{root}/{min(strange)}" if found.is_dir else root
                raise StoreExists(
                    "the place is taken by something else", where=what, next_step="move it away, or name an empty place"
                )
        require_outside(fs, root)
        layout = cls(host, root)
        ensure_dir(fs, root)
        for name in _DIRECTORIES:
            if fs.stat(f"{root}/{name}") is None:
                fs.mkdir(f"{root}/{name}")
        fs.sync_dir(f"{root}/objects")
        fs.sync_dir(root)  # the settings make it a store: all else has to be there before
        settings: dict[str, Any] = {"layout": LAYOUT_VERSION, "created_at": ts_from_ns(host.clock.now_ns())}
        if redacted_only:
            layout.redacted_only = settings["redacted_only"] = True
        publish(host, layout.tmp, f"{root}/{STORE_FILE}", canonical(settings) + b"\n")
        layout.settle()
        return layout

    def complete(self) -> None:
        """Make the directories that a copy of the store left out because they were empty.

        Never ``sessions``, and ``refs`` only where no ref was ever logged: an empty one would tell a sweep that
        nothing is needed, where an absent one stops it.
        """
        fs = self.host.fs
        for name in _DIRECTORIES:
            path = f"{self.root}/{name}"
            if fs.stat(path) is not None or name == "sessions":
                continue
            if name != "refs" or fs.stat(f"{self.root}/logs/refs") is None:
                ensure_dir(fs, path)

    def settle(self) -> None:
        """Make the store's own name for its settings durable, once: who wrote them may have died before he did.

        To be called before the first thing that is kept in a store by this process is acknowledged; what lies in a
        session needs it no more, for whoever made that has called it.
        """
        if not self._settled:
            self.host.fs.sync_dir(self.root)
            self._settled = True

    def session_dir(self, session_id: str) -> str:
        """The directory of a session. Raises BadInput for what is no session id."""
        return f"{self.sessions}/{directory_name(require_text(session_id, 'a session id'))}"

    def is_session(self, name: str) -> bool:
        """Whether a name in ``sessions/`` is that of a session's directory, and not of what lies there by mistake."""
        found = self.host.fs.stat(f"{self.sessions}/{name}") if session_id_of(name) or "%%" in name else None
        return found is not None and found.is_dir

    # --- the store lock ---

    def on_sweep(self, forget: Callable[[], None]) -> None:
        """Call this with the lock held, before anything is done under it, when objects may have gone since."""
        self._forget.append(forget)

    @contextmanager
    def shared(self, timeout_s: float = _STORE_WAIT_S) -> Iterator[None]:
        """Hold the store lock shared: nothing is swept meanwhile (architecture §3). StoreLocked after ``timeout_s``.

        Who waits to hold it alone goes first, for a while; a thread that shares it already waits for nobody.
        """
        thread = get_ident()
        depth = self._sharing.get(thread, 0)
        awaited = not depth and is_awaited(self.host, self._lock_path, timeout_s=min(timeout_s, _POLITE_S))
        put_off = awaited and timeout_s <= 0
        lock = None if put_off else self.host.fs.lock(self._lock_path, exclusive=False, timeout_s=timeout_s)
        if lock is None:
            raise self._busy("the store is held by maintenance")
        self._sharing[thread] = depth + 1
        try:
            self._heed_epoch()
            yield
        finally:
            self._sharing[thread] -= 1
            if not depth:
                del self._sharing[thread]
            lock.release()

    @contextmanager
    def alone(self, timeout_s: float = _STORE_WAIT_S) -> Iterator[None]:
        """Hold the store lock exclusively, for a sweep: nobody publishes, makes or names anything meanwhile.

        StoreLocked when others held it for ``timeout_s`` seconds.
        """
        lock = lock_in_line(self.host, self._lock_path, timeout_s=timeout_s)
        if lock is None:
            raise self._busy("the store is in use")
        try:
            yield
        finally:
            lock.release()

    def _busy(self, what: str) -> StoreLocked:
        return StoreLocked(what, where=self.root, next_step="try again when it is done")

    def move_epoch(self) -> None:
        """Begin another epoch, with the lock held exclusively: from here on objects may go."""
        file = self.host.fs.open(self._lock_path, write=True)
        try:
            file.pwrite(self.host.entropy.take(_EPOCH_SIZE), 0)
        finally:
            file.close()

    def _heed_epoch(self) -> None:
        epoch = self.host.fs.read(self._lock_path) or b""
        if epoch != self._epoch:
            for forget in self._forget:
                forget()
            self._epoch = epoch  # last: another thread that sees it believes that all is forgotten
