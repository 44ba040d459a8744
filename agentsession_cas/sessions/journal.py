"""The journal as its one writer holds it: appended to, synced, replaced by the next generation.

Invariants (architecture §3): an append is one write; a commit is one sync and covers what lay before it began; a block
that holds acknowledged bytes is never written again; HEAD is written only after the sync it tells of, and its failure
fails nothing; a failed sync, or any failure once a write has begun that is not a full disk, poisons the journal. A
generation is a new file, named over the old one only when it is whole and synced. Knows nothing of entries.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from agentsession_cas.core.framing import (
    FRAMES_OFFSET,
    HEAD_SIZE,
    ZEROS_MAX,
    Framer,
    Generation,
    HeadHint,
    Record,
    Scan,
    align,
    decode_head,
    encode_head,
)
from agentsession_cas.core.rows import BLOCK_SIZE, Newest
from agentsession_cas.effects.host import Fs, OpenFile
from agentsession_cas.errors import DiskError, DiskFull, NotRegular, WriterPoisoned
from agentsession_cas.sessions.staged import STEP_MIN, Staged

__all__ = [
    "HEAD_NAME",
    "JOURNAL_NAME",
    "LOG",
    "Journal",
    "clear_leftovers",
    "leftovers",
    "log_name",
    "next_name",
    "read_head",
]

JOURNAL_NAME: Final = "journal"
HEAD_NAME: Final = "HEAD"
LOG: Final = re.compile(r"log-([0-9]{1,9})(?:\.packed)?")
"""The names of logs."""
_NEXT: Final = "journal.next-"
_make: Final = tuple.__new__  # what a NamedTuple is made with, without the call around it
STEP_MAX: Final = ZEROS_MAX - BLOCK_SIZE


def log_name(log: int) -> str:
    """The file name of log number ``log``."""
    return f"log-{log}"


def next_name(salt: bytes) -> str:
    """The file name of the generation of that salt until it is the session's journal."""
    return f"{_NEXT}{salt.hex()}"


def read_head(fs: Fs, directory: str) -> HeadHint | None:
    """HEAD as values, None when it says nothing: absent, torn, or no file at all. Raises DiskError when it fails."""
    with suppress(NotRegular):
        return decode_head(fs.read(f"{directory}/{HEAD_NAME}"))
    return None


def leftovers(fs: Fs, directory: str, log: int) -> list[str]:
    """The names of generations that a crash left without theirs, and of logs other than number ``log``."""
    own = str(log)
    found = fs.listdir(directory)
    return [name for name in found if name.startswith(_NEXT) or ((told := LOG.fullmatch(name)) and told[1] != own)]


def clear_leftovers(fs: Fs, directory: str, log: int) -> None:
    """Remove what :func:`leftovers` finds. Needs the writer's lock, and a journal that names log number ``log``."""
    for name in leftovers(fs, directory, log):
        fs.unlink(f"{directory}/{name}")


class Journal:
    """One open generation. Not thread-safe for appends: the writer's mutex guards all but :meth:`sync`."""

    def __init__(self, fs: Fs, directory: str, scan: Scan, file: OpenFile) -> None:
        """Go on in ``file``, of which ``scan`` is; everything in it is committed."""
        end, sequence = scan.end, scan.sequence
        self._fs = fs
        self._directory = directory
        self._file = file
        self._size = file.size()
        self._step = STEP_MIN
        self._framer = Framer()
        self._hint: OpenFile | None = None
        self._poison: str = ""
        self._junk = 0
        """Up to here lie bytes of a refused frame: the next append clears them, lest they pass for a torn tail."""
        self.generation = scan.generation
        self.end = end
        self._last = scan.frames[-1].offset if scan.frames else end
        self._framed = end - FRAMES_OFFSET
        self._sealed = end
        self.sequence = sequence
        self.committed = sequence

    @property
    def load(self) -> int:
        """Bytes of frames in this generation; what lies between them counts a quarter, since only a replay reads it."""
        return max(self._framed, (self.end - FRAMES_OFFSET) // 4)

    @property
    def poisoned(self) -> bool:
        """Whether a failure left this journal unusable until the session is reopened."""
        return bool(self._poison)

    def require_sound(self) -> None:
        """Raise WriterPoisoned after a failed sync or a broken write (store.md A5)."""
        if self._poison:
            raise WriterPoisoned(
                f"an earlier failure left this writer unusable: {self._poison}",
                where=self._directory,
                next_step="close the session and open it again",
            )

    def poison(self, why: BaseException) -> None:
        """Refuse everything from now on."""
        self._poison = self._poison or f"{type(why).__name__}: {why}"

    def append(self, records: Sequence[Record]) -> None:
        """Accept ``records`` as one frame: one write. A full disk refuses it and changes nothing."""
        if self._poison:
            self.require_sound()
        start, count = self.end, len(records)
        if self._sealed == start:
            start = align(start)
        frame = self._framer.frame(self.generation.salt, start, self.sequence, self.committed, records)
        end, size = start + len(frame), self._size
        if end > size:
            # Zeros are for appends to come that are smaller than they; beside a long frame they would double its sync.
            size = align(end) + (self._step if end - start < STEP_MAX else STEP_MIN)
            frame = self._framer.with_zeros(frame, size - end)
        try:
            if self._junk > start:
                self._file.pwrite(bytes(self._junk - start), start)
            self._file.pwrite(frame, start)
        except DiskFull:
            there = self._file.size()
            if end <= self._size or there < end:
                self._junk = max(self._junk, min(end, there))
                raise
            size = there  # the frame is whole, so readers may have it: only zeros behind it found no room
        except BaseException as error:
            self.poison(error)
            raise
        if size != self._size:
            self._size, self._step = size, min(self._step * 2, STEP_MAX)
        self._junk = 0
        self._framed += end - start
        self._last, self.end, self.sequence = start, end, self.sequence + count

    def seal(self) -> int:
        """Note the rows a sync that begins now will cover; what is appended from here on starts in the next block."""
        if self._poison:
            self.require_sound()
        self._sealed = self.end
        return self.sequence

    def sync(self) -> None:
        """One fdatasync; may run while others append. Call :meth:`seal` before, :meth:`settle` after."""
        try:
            self._file.sync()
        except BaseException as error:
            self.poison(error)
            raise

    def settle(self, sequence: int) -> None:
        """Count ``sequence`` rows as committed."""
        self.committed = max(self.committed, sequence)

    def witness(self, head: int, entry: bytes, newest: Newest) -> None:
        """Overwrite HEAD: a hint, never synced, whose failure fails nothing. ``newest`` is that of all rows."""
        told, generation, committed = (0, 0), self.generation, self.committed
        if committed == self.sequence and newest[:3] == generation.newest[:3]:
            told = (self._last, self.end)
        data = encode_head(_make(HeadHint, (generation.salt, committed, head, entry, *told)))
        try:
            (self._hint or self._open_head()).pwrite(data, 0)
        except DiskError:
            return

    def forswear(self) -> None:
        """Take back what HEAD attests: who finds the session as it will be now makes all of it durable first."""
        with suppress(NotRegular):  # which attests nothing
            (self._hint or self._open_head()).pwrite(bytes(HEAD_SIZE), 0)

    def _open_head(self) -> OpenFile:
        path = f"{self._directory}/{HEAD_NAME}"
        known = self._fs.stat(path) is not None
        self._hint = self._fs.open(path, write=True) if known else self._fs.create(path)
        return self._hint

    def stage(self, generation: Generation, tail: bytes) -> Staged:
        """The next generation, to be filled while this one goes on."""
        return Staged(self._fs, f"{self._directory}/{next_name(generation.salt)}", generation, tail)

    def replace(self, staged: Staged) -> OpenFile:
        """Make the next generation the session's journal; all its rows are committed on return.

        A failure before the rename leaves this generation going on; one from the rename on poisons. Returns the file
        of this one, to be closed when nobody waits: giving back its blocks takes time.
        """
        self.require_sound()
        file, path, size = staged.finish()
        name = f"{self._directory}/{JOURNAL_NAME}"
        try:
            self._fs.rename(path, name)
            self._fs.sync_dir(self._directory)
        except BaseException as error:
            self.poison(error)
            file.close()
            raise
        before, self._file = self._file, file
        file.path = name
        self._size, self._step = size, STEP_MIN
        self.generation, self.end, self._sealed = staged.generation, staged.end, staged.end
        self._last = staged.last
        self._framed = staged.end - FRAMES_OFFSET
        self.sequence = self.committed = staged.sequence
        return before

    def close(self) -> None:
        """Close the files; commits nothing."""
        self._file.close()
        if self._hint is not None:
            self._hint.close()
            self._hint = None
