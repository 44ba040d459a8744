"""Where a store's files lie, what settings never change, and the store-wide lock (store.md Part B).

Owns every path below a store's root and the names of session directories. Invariants: a session's directory name is
injective in its id, also where case does not count, and never leads out of ``sessions/``; ``store.json`` is written
last, so a directory without it is no store. Must not: read or write a session's files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import orjson

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.timestamps import ts_from_ns
from agentsession_cas.effects.durable import ensure_dir, publish
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import Corrupt, NoFile, NoStore, StoreExists, StoreLocked, UnsupportedFormat

__all__ = ["LAYOUT_VERSION", "Layout", "directory_name", "session_id_of"]

LAYOUT_VERSION: Final = 1
STORE_FILE: Final = "store.json"
_DIRECTORIES: Final = ("objects", "objects/pack", "sessions", "locks", "refs", "logs", "trash", "tmp")
_KEPT: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_DEVICES: Final = frozenset(
    ("con", "prn", "aux", "nul", *(f"com{n}" for n in range(1, 10)), *(f"lpt{n}" for n in range(1, 10)))
)
_NAME_MAX: Final = 200
_STEM: Final = 120
_STORE_WAIT_S: Final = 60.0


def directory_name(session_id: str) -> str:
    """The name of a session's directory: injective, lower-case ASCII, at most 200 bytes (store.md Part B)."""
    raw = session_id.encode()
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
        self._lock_path = f"{root}/locks/store"

    @classmethod
    def open(cls, host: Host, root: str) -> Layout:
        """The layout of the store at ``root``; NoStore when none is there, UnsupportedFormat for a later one."""
        layout = cls(host, root)
        try:
            data = host.fs.read(f"{root}/{STORE_FILE}")
        except NoFile:
            data = None
        if data is None:
            raise NoStore("there is no store", where=root, next_step="make one with init, or open with create=True")
        try:
            settings: Any = orjson.loads(data)
            version = settings["layout"]
            layout.redacted_only = settings.get("redacted_only") is True
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise Corrupt("the store's settings cannot be read", where=f"{root}/{STORE_FILE}") from error
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
            if names - {top.split("/")[0] for top in _DIRECTORIES}:
                raise StoreExists("the place is taken by something else", where=root, next_step="name an empty place")
        layout = cls(host, root)
        ensure_dir(fs, root)
        for name in _DIRECTORIES:
            if fs.stat(f"{root}/{name}") is None:
                fs.mkdir(f"{root}/{name}")
        fs.sync_dir(f"{root}/objects")
        settings: dict[str, Any] = {"layout": LAYOUT_VERSION, "created_at": ts_from_ns(host.clock.now_ns())}
        if redacted_only:
            layout.redacted_only = settings["redacted_only"] = True
        publish(host, layout.tmp, f"{root}/{STORE_FILE}", canonical(settings) + b"\n")
        fs.sync_dir(root)
        return layout

    def session_dir(self, session_id: str) -> str:
        """The directory of a session."""
        return f"{self.sessions}/{directory_name(session_id)}"

    @contextmanager
    def shared(self, timeout_s: float = _STORE_WAIT_S) -> Iterator[None]:
        """Hold the store lock shared: nothing is swept meanwhile (architecture §3). StoreLocked after ``timeout_s``."""
        lock = self.host.fs.lock(self._lock_path, exclusive=False, timeout_s=timeout_s)
        if lock is None:
            holder = self.host.fs.lock_note(self._lock_path)
            raise StoreLocked(
                "the store is held by maintenance" + (f" ({holder})" if holder else ""),
                where=self.root,
                next_step="try again when it is done",
            )
        try:
            yield
        finally:
            lock.release()
