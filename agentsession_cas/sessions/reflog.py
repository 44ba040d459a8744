"""The logs of refs: every update of a name, kept when the ref is gone (store.md A6).

A name's log is a directory of segments, each named by the number of its first record. Only the newest is written, whole
and under a rename, so that a crash leaves the old one or the new; one that is long or damaged is left as it is and the
next begins, which counts from its first number on. Invariants: a record is durable before its ref moves; so the newest
may be of an update that never came to be, and the next update takes its place. Writing needs the refs lock, reading
none. The newest segment of a name never expires, older ones do when they are let.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from agentsession_cas.core.refnames import ref_file, ref_of_file
from agentsession_cas.effects.durable import ensure_dir, swap
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import Corrupt, Damaged, NoFile, NotRegular
from agentsession_cas.sessions.reffile import Held, LogRecord, RefUpdate, decode_record, encode_record

__all__ = ["SEGMENT_SIZE", "RefLog", "Segment"]

SEGMENT_SIZE: Final = 16 * 1024
"""Bytes from which on a segment is left as it is."""


class Segment(NamedTuple):
    """A segment as read: its whole lines. ``damaged`` tells that one does not read which is not the last."""

    path: str
    records: list[LogRecord]
    lines: list[bytes]
    damaged: bool

    @property
    def size(self) -> int:
        """Bytes of the lines that read."""
        return sum(map(len, self.lines))


class RefLog:
    """The logs below ``directory``; files are staged in ``tmp``."""

    def __init__(self, host: Host, directory: str, tmp: str) -> None:
        self._host = host
        self.directory: Final = directory
        self._tmp = tmp

    def directory_of(self, name: str) -> str:
        """Where the log of a name lies."""
        return f"{self.directory}/{ref_file(name)}"

    def records(self, name: str) -> Iterator[LogRecord]:
        """The records of a name, newest first, one that never came to be included.

        Raises Damaged where one does not read that is not the last.
        """
        above = 0
        for first in reversed(self.segments(name)):
            segment = self.read_segment(name, first)
            if segment.damaged:
                raise Damaged(
                    "the ref log has records that do not read",
                    where=segment.path,
                    next_step="the ref itself is not affected; newer updates are in the segments behind this one",
                )
            yield from (record for record in reversed(segment.records) if not above or record.number < above)
            above = first

    def names(self) -> list[str]:
        """The names that have a log, in order, those of refs that are gone too."""
        try:
            return sorted(name for file in self._host.fs.listdir(self.directory) if (name := ref_of_file(file)))
        except NoFile:
            return []

    def newest(self, name: str) -> LogRecord | None:
        """The newest record of a name that reads, None when there is none."""
        for first in reversed(self.segments(name)):
            records = self.read_segment(name, first).records
            if records:
                return records[-1]
        return None

    def add(self, held: Held | None, update: RefUpdate) -> int:
        """Make the record of an update durable, for a ref that holds ``held``; returns the update's number."""
        name = update.name
        segments = self.segments(name)
        if not segments:
            ensure_dir(self._host.fs, self.directory)
            ensure_dir(self._host.fs, self.directory_of(name))
        newest = self.read_segment(name, segments[-1]) if segments else None
        number = self._next(name, held, segments, newest)
        lines: list[bytes] = []
        first = number
        if newest is not None and not newest.damaged and newest.size < SEGMENT_SIZE:
            pairs = zip(newest.records, newest.lines, strict=True)
            lines = [line for record, line in pairs if record.number < number]
            first = segments[-1]
        lines.append(encode_record(LogRecord(number, update)))
        swap(self._host, self._tmp, f"{self.directory_of(name)}/{first}", b"".join(lines))
        return number

    def segments(self, name: str) -> list[int]:
        """The numbers that the segments of a name begin with, in order."""
        return self._segments_in(self.directory_of(name))

    def _segments_in(self, directory: str) -> list[int]:
        try:
            files = self._host.fs.listdir(directory)
        except (NoFile, NotRegular):
            return []
        return sorted(int(file) for file in files if self.is_segment(file))

    def is_segment(self, file: str) -> bool:
        """Whether a file in a log's directory is a segment by its name."""
        return file.isascii() and file.isdigit() and file == str(int(file))

    def expire(self, before_ns: int) -> int:
        """Remove the segments last written before that time, the newest of each name aside; returns how many.

        Nobody may move a ref meanwhile.
        """
        expired = 0
        for directory in self._directories():
            *older, _ = self._segments_in(directory) or [0]
            for path in [f"{directory}/{first}" for first in older]:
                found = self._host.fs.stat(path)
                if found is not None and found.mtime_ns < before_ns:
                    self._host.fs.unlink(path)
                    expired += 1
        return expired

    def _directories(self) -> list[str]:
        try:
            return [f"{self.directory}/{file}" for file in self._host.fs.listdir(self.directory)]
        except NoFile:
            return []

    def _next(self, name: str, held: Held | None, segments: list[int], newest: Segment | None) -> int:
        """The number of the next update: past every one that came to be, and in the place of one that did not."""
        known = newest.records[-1] if newest is not None and newest.records else None
        if known is None and len(segments) > 1:
            known = next(iter(self.read_segment(name, segments[-2]).records[::-1]), None)
        above = segments[-1] if newest is not None and newest.damaged else 0
        number = held.number if held is not None else 0
        if known is not None:
            number = max(number, known.number - 1 if _never_was(held, known) else known.number)
        return max(number, above) + 1

    def read_segment(self, name: str, first: int) -> Segment:
        """A segment; one that is not there reads as empty."""
        path = f"{self.directory_of(name)}/{first}"
        *lines, cut = (self._host.fs.read(path) or b"").split(b"\n")
        records: list[LogRecord] = []
        whole: list[bytes] = []
        bad: list[int] = []
        for at, line in enumerate(lines):
            try:
                records.append(decode_record(name, line))
                whole.append(line + b"\n")
            except Corrupt:
                bad.append(at)
        torn = bad == [len(lines) - 1] and not cut
        return Segment(path, records, whole, damaged=bool(bad) and not torn)


def _never_was(held: Held | None, newest: LogRecord) -> bool:
    """Whether the newest record is of an update that a crash cut before the ref moved."""
    if held is not None:
        return newest.number > held.number
    return newest.update.old is None and newest.update.new is not None
