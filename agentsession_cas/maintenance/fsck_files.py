"""A session's files as fsck reads them: each step of recovery by itself, so that what fails gets its own code.

Owns the reading of journal, HEAD and log without believing any of them, and what is wrong with their bytes. Reads on
behind damage as far as that can be done. Must not: look at objects or bodies, take a lock, write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from agentsession_cas.core.framing import Generation, HeadHint, Record, Scan, decode_head, decode_records, scan_journal
from agentsession_cas.core.rows import BLOCK_SIZE, ROW_SIZE, Row, decode_row, log_seed, sealed_ok, whole_rows
from agentsession_cas.effects.host import Fs, Host, OpenFile
from agentsession_cas.errors import Corrupt, Damaged, DiskError, NoFile, NotRegular
from agentsession_cas.layout import DAMAGED
from agentsession_cas.maintenance.findings import Findings
from agentsession_cas.sessions.headerfile import HEADER_NAME
from agentsession_cas.sessions.journal import HEAD_NAME, JOURNAL_NAME, log_name
from agentsession_cas.sessions.log import PIECE_ROWS, RowTable, tail_of
from agentsession_cas.sessions.opening import LOCK_NAME
from agentsession_cas.sessions.packedlog import LogFile, open_packed, packed_name
from agentsession_cas.sessions.recovery import Verdict, decide

__all__ = ["SessionFiles", "check_names", "is_stale", "read_files", "report_bad_rows"]

_STALE_NS: Final = 3600 * 10**9
_HEAD_READS: Final = 3
"""HEAD is overwritten in place, so that a read beside its writer may find it torn."""
_LEFTOVER: Final = re.compile(r"journal\.next-.*|log-[0-9]+.*")


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """What could be read. ``log`` is open when the generation has whole blocks in it; ``close`` lets it go.

    ``lost`` says that rows that were committed are not among these.
    """

    directory: str
    scan: Scan
    hint: HeadHint | None
    pending: list[Record]
    log: LogFile | None
    lost: bool

    @property
    def base(self) -> int:
        """Rows below this are the log's, or the tail's in the journal."""
        return self.scan.generation.base

    @property
    def journal(self) -> str:
        """The path of the journal."""
        return f"{self.directory}/{JOURNAL_NAME}"

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self.base + len(self.pending)

    def rows(self) -> Iterator[tuple[int, Row | None]]:
        """Every row by number; None for one that fails its checksum, or that a short log lacks."""
        generation = self.scan.generation
        seed = log_seed(generation.birth, generation.log)
        whole = whole_rows(self.base)
        for first in range(0, whole, PIECE_ROWS):
            count = min(PIECE_ROWS, whole - first)
            data = self.log.pread(count * ROW_SIZE, first * ROW_SIZE) if self.log is not None else b""
            for at in range(count):
                yield first + at, _sealed(data, at, first + at, seed)
        for at in range(self.base - whole):
            yield whole + at, _sealed(self.scan.tail, at, whole + at, seed)
        for at, record in enumerate(self.pending):
            yield self.base + at, decode_row(record.row)

    def table(self) -> RowTable:
        """The rows as a table, which owns the log from here on."""
        table = RowTable(self.scan.generation, self.scan.tail, self.log)
        for record in self.pending:
            table.push(record)
        return table

    def place(self, number: int) -> tuple[str, int]:
        """The file that a row lies in, and its offset there (of one in a frame: the frame's)."""
        whole = whole_rows(self.base)
        generation = self.scan.generation
        packed = generation.packed if generation.packed == self.base else whole_rows(generation.packed)
        if number < packed:
            return f"{self.directory}/{packed_name(generation.log)}", number * ROW_SIZE
        if number < whole:
            return f"{self.directory}/{log_name(generation.log)}", (number - packed) * ROW_SIZE
        if number < self.base:
            return self.journal, BLOCK_SIZE + (number - whole) * ROW_SIZE
        return self.journal, next(frame.offset for frame in self.scan.frames if number < frame.sequence + frame.rows)

    def close(self) -> None:
        """Close the log."""
        if self.log is not None:
            self.log.close()


def _sealed(data: bytes, at: int, number: int, seed: int) -> Row | None:
    return decode_row(data, at * ROW_SIZE) if sealed_ok(data, at * ROW_SIZE, number, seed) else None


def read_files(fs: Fs, directory: str, found: Findings) -> SessionFiles | None:
    """Read journal, HEAD and log beside whoever writes them; None when the journal says nothing."""
    hint = _read_head(fs, directory, found)  # before the journal, which a writer beside us may let grow
    scan, data = _read_journal(fs, directory, found)
    if scan is None:
        return None
    lost = _check_end(scan, hint, f"{directory}/{JOURNAL_NAME}", found)
    pending = _read_records(scan, data, found, f"{directory}/{JOURNAL_NAME}")
    log = _open_log(fs, directory, scan, found)
    scan = scan._replace(tail=tail_of(scan.generation, scan.tail, log))
    lost = lost or scan.generation.base + len(pending) < scan.sequence
    return SessionFiles(directory, scan, hint, pending, log, lost)


def _read_head(fs: Fs, directory: str, found: Findings) -> HeadHint | None:
    path = f"{directory}/{HEAD_NAME}"
    what = "it is cut short, or fails its checksum"
    for _ in range(_HEAD_READS):
        try:
            data = fs.read(path)
        except NotRegular:
            what = "it is no file: a repair moves it away"
            break
        except DiskError as error:
            what = error.what
            break
        hint = decode_head(data)
        if hint is not None or not data:  # empty: its writer has just made it
            return hint
    found.add("unreadable_head", what, path=path)
    return None


def _read_journal(fs: Fs, directory: str, found: Findings) -> tuple[Scan | None, bytes]:
    path = f"{directory}/{JOURNAL_NAME}"
    try:
        data = fs.read(path)
        if data is None:
            found.add("journal_missing", "there is no journal", path=path)
            return None, b""
        return scan_journal(data), data
    except Corrupt as error:
        found.add("journal_damaged", f"offset 0: {error.what}", path=path)
    except DiskError as error:
        found.add("unreadable_file", error.what, path=path)
    return None, b""


def _check_end(scan: Scan, hint: HeadHint | None, path: str, found: Findings) -> bool:
    """Judge what lies behind the last whole frame; whether committed rows are lost."""
    try:
        verdict = decide(scan, hint, path)
    except Damaged as error:
        found.add("journal_cut", f"offset {scan.end}: {error.what}", path=path)
        return True
    if verdict is Verdict.LOST:
        found.add("lost_tail", f"offset {scan.end}: what follows is no whole frame, and nothing attests it", path=path)
    return False


def _read_records(scan: Scan, data: bytes, found: Findings, path: str) -> list[Record]:
    """The records of every frame up to the first that holds none."""
    view = memoryview(data)
    pending: list[Record] = []
    for frame in scan.frames:
        try:
            pending += decode_records(view[frame.payload_at : frame.end], frame.rows)
        except Corrupt as error:
            found.add("journal_damaged", f"offset {frame.offset}: {error.what}", path=path)
            break
    return pending


def _open_log(fs: Fs, directory: str, scan: Scan, found: Findings) -> LogFile | None:
    generation = scan.generation
    whole, packed = whole_rows(generation.base), whole_rows(generation.packed)
    plain = _open_plain(fs, directory, generation, (whole - packed) * ROW_SIZE, found) if whole > packed else None
    if not generation.packed:
        return plain
    try:
        return open_packed(fs, directory, generation, plain)
    except (Damaged, DiskError) as error:
        found.add("log_missing" if isinstance(error.__cause__, NoFile) else "log_short", error.what, path=error.where)
    if plain is not None:
        plain.close()
    return None


def _open_plain(fs: Fs, directory: str, generation: Generation, needed: int, found: Findings) -> OpenFile | None:
    path = f"{directory}/{log_name(generation.log)}"
    try:
        file = fs.open(path)
    except NoFile:
        found.add("log_missing", f"{needed} bytes of it are trusted", path=path)
        return None
    except DiskError as error:
        found.add("unreadable_file", error.what, path=path)
        return None
    size = file.size()
    if size < needed:
        found.add("log_short", f"offset {size}: {needed} bytes are trusted", path=path)
    return file


def report_bad_rows(files: SessionFiles, bad: list[int], found: Findings) -> None:
    """One finding for each run of rows that fail their checksum; what a short or absent log lacks was told."""
    if not bad:
        return
    there = files.log.size() // ROW_SIZE if files.log is not None else 0
    bad = [number for number in bad if number < there or number >= whole_rows(files.base)]
    starts = bad[:1] + [after for before, after in pairwise(bad) if after != before + 1]
    ends = [before for before, after in pairwise(bad) if after != before + 1] + bad[-1:]
    for first, last in zip(starts, ends, strict=True):
        path, offset = files.place(first)
        rows = f"row {first} fails its" if first == last else f"rows {first} to {last} fail their"
        found.add("log_row", f"offset {offset}: {rows} checksum", path=path)


def is_stale(host: Host, path: str) -> bool:
    """Whether a file has lain untouched for so long that no process is still working on it."""
    found = host.fs.stat(path)
    return found is not None and host.clock.now_ns() - found.mtime_ns > _STALE_NS


def check_names(host: Host, files: SessionFiles | None, directory: str, found: Findings) -> None:
    """Note every name in a session's directory that is none of its files; a writer may be at work on the next one."""
    own = {HEADER_NAME, JOURNAL_NAME, HEAD_NAME, LOCK_NAME, DAMAGED}
    if files is not None:
        generation = files.scan.generation
        own.add(log_name(generation.log))
        if generation.packed:
            own.add(packed_name(generation.log))
    for name in host.fs.listdir(directory):
        path = f"{directory}/{name}"
        if name in own:
            continue
        if not _LEFTOVER.fullmatch(name):
            found.add("stray_file", "none of the session's files", path=path)
        elif files is not None and is_stale(host, path):  # which log is the session's, only its journal knows
            found.add("leftover_file", "no generation's, or of one that never got its name", path=path)
