"""What a store holds, what it weighs, and what deduplication and compression save (cli.md, ``stats``).

Owns the definitions, which :func:`stats` states. Read-only, no lock. Must not: judge. What cannot be read is not
counted.
"""

from __future__ import annotations

from typing import Any

from agentsession_cas.core.entry import sidecar_blobs
from agentsession_cas.core.envelope import read_envelope
from agentsession_cas.core.facts import Flag
from agentsession_cas.core.header import Header
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.pieces import Cut, Skeleton, split
from agentsession_cas.core.rows import RowCode
from agentsession_cas.effects.host import Fs
from agentsession_cas.errors import AgentSessionError, Corrupt, DiskError, NoObject, NoSession
from agentsession_cas.layout import Layout, session_id_of
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.journal import JOURNAL_NAME
from agentsession_cas.sessions.listing import OnDamage
from agentsession_cas.sessions.opening import Snapshot, snapshot
from agentsession_cas.sessions.rowmaker import digest_of
from agentsession_cas.sessions.source import RowSource

__all__ = ["stats"]

Json = dict[str, Any]


def stats(layout: Layout, objects: ObjectDatabase, on_damage: OnDamage | None = None) -> Json:
    """The ``stats`` shape of cli.md, without ``schema``. Reads every object once and every row.

    ``on_damage`` hears of every session whose own files, or whose prefix, do not read; what reads is counted.

    ``sessions`` and ``entries`` (own ones) count the sessions that read. ``objects`` counts copies. All bytes are sizes
    of files or of canonical bytes, in bytes, not in disk blocks:

    - ``logical``: what the sessions would hold each alone: its header's line, envelope and body of every entry of its
      own and of its prefix, every blob it names once.
    - ``disk``: every file under the store's root. ``journals``, ``logs``, ``loose`` and ``packs`` (with idx files) are
      parts of it; headers, HEADs, settings, locks, ``tmp`` and ``trash`` are the rest.
    - ``saved.dedup``: ``logical`` less the headers, less the bytes of the distinct envelopes, bodies and blobs named,
      large strings of bodies counted once for all of them.
    - ``saved.compression``: the bytes of all copies in ``objects/``, what no session needs included, in a body's place
      its skeleton where its large strings lie by themselves, less the bytes of the files they lie in; below zero in a
      store so small that idx files outweigh what is saved.
    """
    tally = _Tally(layout, objects, on_damage)
    tally.measure_objects()
    for name in layout.host.fs.listdir(layout.sessions):
        tally.measure_session(name)
    held = objects.stats()
    disk, journals, logs = _weigh(layout.host.fs, layout)
    return {
        "sessions": tally.sessions,
        "entries": tally.entries,
        "objects": {"loose": held.loose, "packed": held.packed, "packs": held.packs},
        "bytes": {
            "logical": tally.headers + tally.named,
            "disk": disk,
            "journals": journals,
            "logs": logs,
            "packs": held.pack_bytes,
            "loose": held.loose_bytes,
        },
        "saved": {
            "dedup": tally.named - tally.distinct_bytes(),
            "compression": held.logical_bytes - held.pack_bytes - held.loose_bytes,
        },
    }


class _Tally:
    """Bytes as they are counted. ``distinct`` has each object that sessions name, by space and raw digest."""

    def __init__(self, layout: Layout, objects: ObjectDatabase, on_damage: OnDamage | None) -> None:
        self._layout = layout
        self._on_damage = on_damage
        self._objects = objects
        self._sizes: dict[tuple[Space, bytes], int] = {}
        self._cuts: dict[bytes, tuple[Cut, ...]] = {}
        self._above: dict[bytes, tuple[bytes, bytes, list[bytes]]] = {}
        self.distinct: dict[tuple[Space, bytes], int] = {}
        self.sessions = 0
        self.entries = 0
        self.headers = 0
        self.named = 0

    def measure_objects(self) -> None:
        """Read every object, in the order they lie, for its size."""
        try:
            for place in self._objects.iterate():
                key = (place.space, place.digest)
                if key not in self._sizes:
                    self._sizes[key] = self._read_size(*key)
        except (Corrupt, DiskError):
            return

    def _read_size(self, space: Space, digest: bytes) -> int:
        try:
            data = self._objects.get(space, digest)
        except (NoObject, Corrupt, DiskError):
            return 0
        if space is Space.CONTENTS:
            self._note_cuts(digest, data)
        return len(data)

    def _note_cuts(self, digest: bytes, data: bytes) -> None:
        stored = split(digest, data)
        if isinstance(stored, Skeleton):
            self._cuts[digest] = stored.cuts

    def distinct_bytes(self) -> int:
        """Bytes of the objects that sessions name, each counted once, and each large string of bodies once."""
        pieces: dict[bytes, int] = {}
        cut_out = 0
        for space, digest in self.distinct:
            for cut in self._cuts.get(digest, ()) if space is Space.CONTENTS else ():
                pieces[cut.digest] = cut.length
                cut_out += cut.length
        return sum(self.distinct.values()) - cut_out + sum(pieces.values())

    def measure_session(self, name: str) -> None:
        """Count the session in a directory of ``sessions/``, as far as it reads."""
        directory = f"{self._layout.sessions}/{name}"
        try:
            found = snapshot(self._layout.host, self._objects, directory, lambda _header, _generation: None)
        except NoSession:
            return
        except (Corrupt, DiskError) as error:
            if self._layout.is_session(name):
                self._tell(session_id_of(name), error)
            return
        try:
            self._count(found)
        finally:
            found.source.close()

    def _tell(self, session: str, error: AgentSessionError) -> None:
        if self._on_damage is not None:
            self._on_damage(session, error)

    def _count(self, found: Snapshot) -> None:
        blobs: set[bytes] = set()
        try:
            for number in range(len(found.source.table)):
                self._count_row(found.source, number, blobs)
            self._count_prefix(found.header, blobs)
        except (NoObject, Corrupt, DiskError) as error:  # what reads was counted
            self._tell(found.header.id, error)
        for blob in blobs:
            self._name(Space.MEDIA, blob, self._size(Space.MEDIA, blob))
        self.headers += len(found.header.line)
        self.sessions += 1

    def _count_row(self, source: RowSource, number: int, blobs: set[bytes]) -> None:
        table = source.table
        row = table.row(number)
        if row.code >= RowCode.HEAD:
            return
        self.entries += 1
        if number >= table.base:
            record = table.pending[number - table.base]
            envelope, content = len(record.envelope), len(record.content)
            self._note_cuts(row.content, record.content)
        else:
            envelope, content = self._size(Space.ENTRIES, row.entry), self._size(Space.CONTENTS, row.content)
        self._name(Space.ENTRIES, row.entry, envelope)
        self._name(Space.CONTENTS, row.content, content)
        if row.flags & Flag.BLOBS:
            entry = source.entry(source.position(number))
            blobs.update(digest_of(blob) for blob in sidecar_blobs(entry.content))

    def _count_prefix(self, header: Header, blobs: set[bytes]) -> None:
        entry = digest_of(header.base) if header.base else b""
        while entry:
            parent, content, named = self._above_of(entry)
            self._name(Space.ENTRIES, entry, self._size(Space.ENTRIES, entry))
            self._name(Space.CONTENTS, content, self._size(Space.CONTENTS, content))
            blobs.update(named)
            entry = parent

    def _above_of(self, entry: bytes) -> tuple[bytes, bytes, list[bytes]]:
        """Parent (b"" for a root), body and blobs of an entry of a prefix; several forks may share it."""
        known = self._above.get(entry)
        if known is None:
            envelope = read_envelope(self._objects.get(Space.ENTRIES, entry))
            content = digest_of(envelope.content)
            named = sidecar_blobs(self._objects.get(Space.CONTENTS, content))
            parent = digest_of(envelope.parent) if envelope.parent else b""
            known = self._above[entry] = (parent, content, [digest_of(blob) for blob in named])
        return known

    def _size(self, space: Space, digest: bytes) -> int:
        key = (space, digest)
        if key not in self._sizes:
            self._sizes[key] = self._read_size(space, digest)
        return self._sizes[key]

    def _name(self, space: Space, digest: bytes, size: int) -> None:
        """Count an object that a session names."""
        self.named += size
        self.distinct[space, digest] = size


def _weigh(fs: Fs, layout: Layout) -> tuple[int, int, int]:
    """Bytes of all files under the root, of all journals, of all logs."""
    disk = journals = logs = 0
    pending = [layout.root]
    while pending:
        directory = pending.pop()
        own = directory.startswith(f"{layout.sessions}/")
        try:
            names = fs.listdir(directory)
        except DiskError:
            continue  # went meanwhile
        for name in names:
            found = fs.stat(f"{directory}/{name}")
            if found is None:
                continue
            if found.is_dir:
                pending.append(f"{directory}/{name}")
                continue
            disk += found.size
            journals += found.size if own and name == JOURNAL_NAME else 0
            logs += found.size if own and name.startswith("log-") else 0
    return disk, journals, logs
