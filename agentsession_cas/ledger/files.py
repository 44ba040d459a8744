"""Threads as files of lines, ``<dir>/<thread-id>.jsonl``, as the Go package ``ledger`` writes them (ledger.md).

Owns which ids can name a file, and what an append does about an end that was torn. Invariants: an append is one line,
durable on return; processes take turns by a lock beside the file; nothing that replays is ever cut off.
"""

from __future__ import annotations

import re
from typing import Final

from agentsession_cas.core.given import AnyPath, as_path
from agentsession_cas.effects.durable import ensure_dir, parent, swap
from agentsession_cas.effects.host import Host, Stat, real_host
from agentsession_cas.errors import BadInput, Corrupt, SessionLocked
from agentsession_cas.ledger.journal import JournalEntry, read_lines
from agentsession_cas.ledger.repository import Journaled
from agentsession_cas.ledger.thread import Clock

__all__ = ["FileRepository"]

_SUFFIX: Final = ".jsonl"
_PLAIN: Final = re.compile(r"(?!\.)[^/\\\x00-\x1f\x7f\ud800-\udfff]+")
_NAME_BYTES_MAX: Final = 255
_LOCK_WAIT_S: Final = 10.0


class FileRepository(Journaled):
    """A directory of threads, made when it is missing. Processes and threads of execution may share it."""

    def __init__(self, directory: AnyPath, clock: Clock | None = None, host: Host | None = None) -> None:
        super().__init__(clock)
        self._host = host or real_host()
        self._directory = as_path(directory, "directory").rstrip("/") or "/"
        self._ends: dict[str, tuple[int, int]] = {}
        missing = [self._directory]
        while self._host.fs.stat(parent(missing[-1])) is None:
            missing.append(parent(missing[-1]))
        for path in reversed(missing):
            ensure_dir(self._host.fs, path)

    def journal(self, thread_id: str) -> list[JournalEntry]:
        """The transactions of a thread in order, up to the first line that is malformed."""
        return read_lines(self._host.fs.read(self._path(thread_id)) or b"")[0]

    def _record(self, thread_id: str, entry: JournalEntry) -> None:
        path, line = self._path(thread_id), entry.line()
        lock = self._host.fs.lock(f"{path}.lock", exclusive=True, timeout_s=_LOCK_WAIT_S, note=self._host.process)
        if lock is None:
            raise SessionLocked(
                "another process writes the thread",
                session=thread_id,
                holder=self._host.fs.lock_note(f"{path}.lock"),
                where=path,
                next_step="try again",
            )
        try:
            self._append(path, line)
        finally:
            lock.release()

    def _append(self, path: str, line: bytes) -> None:
        fs = self._host.fs
        found = fs.stat(path)
        if found is None:
            fs.create(path).close()
            fs.sync_dir(self._directory)
        elif self._ends.get(path) != _end(found):
            line = self._mended(path) + line
        file = fs.open(path, write=True)
        try:
            self._ends.pop(path, None)
            file.pwrite(line, file.size())
            file.sync()
        finally:
            file.close()
        found = fs.stat(path)
        if found is not None:
            self._ends[path] = _end(found)

    def _mended(self, path: str) -> bytes:
        """See to the end of a file that others may have left torn; returns what has to come before the next line.

        What is malformed at the end is cut off, since a replay would stop there for ever. Raises Corrupt when there are
        whole lines behind what is malformed: somebody has to look at it first.
        """
        data = self._host.fs.read(path) or b""
        _, end = read_lines(data)
        rest = data[end:]
        later = rest.split(b"\n")[1:]
        if any(read_lines(each)[0] for each in later):
            number = data.count(b"\n", 0, end) + 1
            raise Corrupt(
                "a line in the middle of the thread is malformed: nothing behind it is read",
                where=f"{path}: line {number}",
                next_step="mend or remove that line",
            )
        if rest:
            swap(self._host, self._directory, path, data[:end])
            data = data[:end]
        return b"" if not data or data.endswith(b"\n") else b"\n"

    def _path(self, thread_id: str) -> str:
        name = f"{thread_id}{_SUFFIX}"
        size = len(name.encode("utf-8", "surrogatepass"))
        if not _PLAIN.fullmatch(thread_id) or size > _NAME_BYTES_MAX - len(".lock"):
            raise BadInput(f"{thread_id!r:.80} cannot name a file", next_step="take letters, digits, . - and _")
        return f"{self._directory}/{name}"


def _end(found: Stat) -> tuple[int, int]:
    return found.inode, found.size


