"""Old messages moved to where they take least room (history.md H2).

Owns the manifest, a note beside the messages: which were moved, and where the hot ones begin. The messages go first and
the manifest after them; when the second is missing the first is done again, to the same end. Nothing is read otherwise
for it: a transcript finds a message wherever it lies.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from agentsession_cas.core.timestamps import ts_from_ns
from agentsession_cas.effects.host import real_host
from agentsession_cas.history.protocols import Note, Reading, Transcript

__all__ = ["ArchiveManifest", "ArchiveResult", "ArchiveSegment", "archive", "hot_start", "load_manifest"]

KIND: Final = "archive"


@dataclass(frozen=True, slots=True)
class ArchiveSegment:
    """Messages ``start_seq`` to ``end_seq``, both included, ``count`` in all, moved at a time into ``file``."""

    file: str
    start_seq: int
    end_seq: int
    count: int
    created_at: str


class ArchiveManifest(NamedTuple):
    """The segments in order, and the number of the first message that is in none."""

    segments: list[ArchiveSegment]
    hot_start_seq: int

    def to_json(self) -> dict[str, Any]:
        """Its members."""
        return {"segments": [asdict(each) for each in self.segments], "hot_start_seq": self.hot_start_seq}


class ArchiveResult(NamedTuple):
    """What a run moved, and into which file ("" when the transcript has no colder place)."""

    messages_archived: int
    archive_file: str
    hot_start_seq: int


def load_manifest(transcript: Transcript, conversation: str) -> ArchiveManifest:
    """What of a conversation is archived."""
    reading = transcript.reading(conversation)
    segments = [ArchiveSegment(**body) for body in reading.notes(KIND).bodies]
    segments.sort(key=lambda each: each.start_seq)
    return ArchiveManifest(segments, hot_start(reading))


def hot_start(reading: Reading) -> int:
    """The number of the first message that is not archived."""
    last = reading.latest(KIND)
    return 0 if last is None else int(last.body["end_seq"]) + 1


def archive(transcript: Transcript, conversation: str, batch_size: int) -> ArchiveResult:
    """Move the oldest ``batch_size`` hot messages; all there are when they are fewer."""
    reading = transcript.reading(conversation)
    start = hot_start(reading)
    end = min(start + batch_size, reading.count())
    if end <= start:
        return ArchiveResult(0, "", start)
    file = transcript.freeze(conversation, start, end)
    segment = ArchiveSegment(file, start, end - 1, end - start, ts_from_ns(real_host().clock.now_ns()))
    transcript.keep(conversation, [Note(KIND, asdict(segment))])
    return ArchiveResult(end - start, file, end)
