"""Session files by path, without a store: read, scan, write (cli.md, The library).

Owns the step from a path to the bytes :mod:`~agentsession_cas.core.jsonl` reads, and nothing of what they mean.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agentsession_cas.core.given import as_path, require
from agentsession_cas.core.jsonl import Scan, read_session, scan
from agentsession_cas.core.timestamps import ts_from_ns
from agentsession_cas.core.tree import Session
from agentsession_cas.effects.host import real_host
from agentsession_cas.errors import NoBlob, NoFile
from agentsession_cas.exchange.projection import project_session

__all__ = ["read_file", "scan_file", "write_file"]


def read_file(path: str | Path) -> Session:
    """A session file as a session in memory, which takes appends; its leaf is as the resume rule says (format.md §2).

    Raises NoFile, DiskError, and what makes a file unreadable (:func:`~agentsession_cas.core.jsonl.read_session`).
    """
    clock = real_host().clock
    return read_session(_bytes_of(path), clock=lambda: ts_from_ns(clock.now_ns()))


def scan_file(path: str | Path) -> Scan:
    """A session file verified line by line as it is iterated, and no tree built. Raises NoFile, ScanMigrated."""
    return scan(_bytes_of(path))


def write_file(session: Session, path: str | Path, *, blob: Callable[[str], bytes] | None = None) -> str:
    """Write a session as a file, as a store projects one (store.md A10); returns the path.

    The file is replaced when all of it is written. ``blob`` gives the bytes of a sidecar blob by its hash (a store's
    ``blob``); without it a session that names one raises NoBlob, and nothing is written. Raises UnresolvedMigration.
    """
    target = as_path(path, "the file to write")
    require(session, Session, "what is written", "write_file takes the session, then the path")
    project_session(real_host(), session, blob or _no_blob, target)
    return target


def _bytes_of(path: str | Path) -> bytes:
    file = as_path(path, "the file to read")
    data = real_host().fs.read(file)
    if data is None:
        raise NoFile("there is no such file", where=file)
    return data


def _no_blob(name: str) -> bytes:
    raise NoBlob("the session names a blob and nothing was given to read it from", where=name, next_step="pass blob=")
