"""Refs: names that lead to a session, and maybe pin an entry of it, moved by compare-and-swap alone (store.md A6).

Owns ``refs/``, one file for each, ``logs/refs/`` and the lock under which both are written. A ref notes the birth of
the session it means (random at its create, in the journal's first block), so that it never leads to another of the same
id. Order of writes: what the ref will name is made durable, then the record in the log, then the ref; a crash leaves
the ref old or new, and at most a record too many, which no reader shows. Reading takes no lock. Must not: know how a
session is read, or what of it a pin needs; the caller says so, and holds the store lock shared while it moves a ref.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from agentsession_cas.core.framing import FRAMES_OFFSET, scan_journal
from agentsession_cas.core.refnames import check_beside, near, ref_file, ref_of_file
from agentsession_cas.core.timestamps import ts_from_ns
from agentsession_cas.effects.durable import ensure_dir, publish
from agentsession_cas.effects.host import Fs, Host
from agentsession_cas.errors import Corrupt, Damaged, NoFile, NoSession, NotRegular, RefMoved, StoreLocked
from agentsession_cas.sessions.journal import JOURNAL_NAME
from agentsession_cas.sessions.reffile import Held, LogRecord, Pin, RefTarget, RefUpdate, decode_ref, encode_ref
from agentsession_cas.sessions.reflog import RefLog

__all__ = ["RefDatabase", "birth_of"]

_WAIT_S: Final = 60.0

Settle = Callable[[RefTarget], bytes]
"""Makes durable what a ref is about to name, and returns the session's birth. Raises NoSession, NoEntry."""


def birth_of(fs: Fs, directory: str) -> bytes:
    """The birth of the session in a directory, 16 bytes. Raises NoSession; Damaged when it does not read."""
    try:
        return _birth(fs, directory)
    except Damaged:
        return _birth(fs, directory)  # one was deleted and another made meanwhile


def _birth(fs: Fs, directory: str) -> bytes:
    path = f"{directory}/{JOURNAL_NAME}"
    try:
        file = fs.open(path)
    except (NoFile, NotRegular) as error:
        if fs.stat(directory) is None:
            raise NoSession("the session is not there", where=directory) from error
        raise Damaged("there is no journal", where=path) from error
    try:
        return scan_journal(file.pread(FRAMES_OFFSET, 0)).generation.birth
    except Corrupt as error:
        raise Damaged(error.what, where=path) from error
    finally:
        file.close()


class RefDatabase:
    """The refs of the store at ``root``; files are staged in ``tmp``. Names are allowed ones."""

    def __init__(self, host: Host, root: str, tmp: str) -> None:
        self._host = host
        self._tmp = tmp
        self._lock_path = f"{root}/locks/refs"
        self.directory: Final = f"{root}/refs"
        self.logs: Final = RefLog(host, f"{root}/logs/refs", tmp)

    def path_of(self, name: str) -> str:
        """The file of a ref."""
        return f"{self.directory}/{ref_file(name)}"

    def read(self, name: str) -> Held | None:
        """What a ref holds, None for no ref. Raises Damaged."""
        path = self.path_of(name)
        try:
            data = self._host.fs.read(path)
            return None if data is None else decode_ref(name, data)
        except (Corrupt, NotRegular) as error:
            raise Damaged(
                error.what,
                where=f"ref {name}, {path}",
                next_step="see in its log what it held, remove the file, and set the ref anew",
            ) from error

    def names(self) -> list[str]:
        """The name of every ref, damaged ones included, in order. Raises Damaged when the directory of refs is gone."""
        try:
            return sorted(name for file in self._host.fs.listdir(self.directory) if (name := ref_of_file(file)))
        except NoFile as error:
            raise Damaged(
                "the directory of the refs is gone", where=self.directory, next_step="run repair --all: their logs tell"
            ) from error

    def present(self) -> list[str]:
        """As :meth:`names`; none when the directory is gone."""
        return self.names() if self._host.fs.stat(self.directory) is not None else []

    def missing(self) -> dict[str, LogRecord]:
        """The names whose log says that there is a ref, and there is none, with the newest record of each.

        A crash leaves that of a creation, too; of a ref that was moved before it tells a loss.
        """
        present = set(self.present())
        found: dict[str, LogRecord] = {}
        for name in self.logs.names():
            record = self.logs.newest(name) if name not in present else None
            if record is not None and record.update.new is not None:
                found[name] = record
        return found

    def pins(self) -> Iterator[Pin]:
        """Every pinned entry: it and the path above it are kept, whether its session is there or not (store.md A8).

        So is what a lost ref pinned, as its log tells. Raises Damaged for a ref that does not read: what it pins is not
        known. Under the store lock, held exclusively,
        nothing is pinned meanwhile.
        """
        for name in self.names():
            held = self.read(name)
            if held is not None and held.target.entry:
                yield Pin(name, held.target.session, held.birth, held.target.entry)
        for name, record in self.missing().items():
            if record.update.new is not None and record.update.new.entry:
                yield Pin(name, record.update.new.session, b"", record.update.new.entry)

    def log(self, name: str) -> Iterator[RefUpdate]:
        """The updates of a name, newest first; none for a name that was never one. Raises Damaged.

        A record that a crash left of an update which never came to be is not among them.
        """
        known, held = True, None
        try:
            held = self.read(name)
        except Damaged:
            known = False
        for place, record in enumerate(self.logs.records(name)):
            if held is not None and record.number > held.number:
                continue
            if known and held is None and not place and record.update.old is None:
                continue  # a creation, and there is no ref
            yield record.update

    def update(self, name: str, expected: RefTarget | None, to: RefTarget | None, reason: str, settle: Settle) -> bool:
        """Move a ref from ``expected`` to ``to``, durably; None is no ref. Whether that changed anything.

        Raises RefMoved, tested first, RefName for a name that may not stand beside another ref's, what ``settle`` does,
        Damaged, StoreLocked.
        """
        with self._locked():
            held = self.read(name)
            current = held.target if held is not None else None
            if current != expected:
                raise RefMoved(
                    f"the ref holds {current}, not {expected}" if current else "there is no such ref",
                    current=current,
                    where=f"ref {name}",
                    next_step="look at what it holds now and decide anew",
                )
            if to is None:
                return self._delete(name, held, reason)
            if held is None:
                check_beside(name, near(name, self._host.fs.listdir(self.directory)))
            birth = settle(to)
            if held is not None and (held.target, held.birth) == (to, birth):
                self._publish(name, held)  # who set it may have died before its name was durable
                return False
            update = RefUpdate(name, current, to, self._now(), reason)
            self._publish(name, Held(to, birth, self.logs.add(held, update)))
            return True

    def restore(self, name: str, held: Held, set_aside: Callable[[], None]) -> None:
        """Set a ref that is not there, or does not read, without a record; one that reads stays. Raises StoreLocked.

        ``set_aside`` takes away what lies in its place.
        """
        with self._locked():
            try:
                known = self.read(name)
            except Damaged:
                known = None
            if known is None:
                set_aside()
                ensure_dir(self._host.fs, self.directory)
                self._publish(name, held)

    def _delete(self, name: str, held: Held | None, reason: str) -> bool:
        if held is not None:
            self.logs.add(held, RefUpdate(name, held.target, None, self._now(), reason))
            self._host.fs.unlink(self.path_of(name))
        self._host.fs.sync_dir(self.directory)
        return held is not None

    def _publish(self, name: str, held: Held) -> None:
        publish(self._host, self._tmp, self.path_of(name), encode_ref(name, held))
        self._host.fs.sync_dir(self.directory)

    def _now(self) -> str:
        return ts_from_ns(self._host.clock.now_ns())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self._host.fs.lock(self._lock_path, exclusive=True, timeout_s=_WAIT_S, note=self._host.process)
        if lock is None:
            holder = self._host.fs.lock_note(self._lock_path)
            raise StoreLocked(
                f"another process moves a ref{f' ({holder})' if holder else ''}",
                where=self._lock_path,
                next_step="try again when it is done",
            )
        try:
            yield
        finally:
            lock.release()
