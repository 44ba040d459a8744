"""What of a store is needed: every log row, every journal frame, the whole path above each base and each pin.

Owns the marking of a sweep (store.md A8, architecture §3). Nothing is reached from heads: an abandoned branch is the
record like any other. :meth:`Roots.mark` may be called again and again and looks at what has changed since: first
beside whoever writes, which takes long, later with the store held. Nothing marked is ever taken back, so a session that
goes meanwhile is at the worst kept for another time. A session that does not read stops it, as does an envelope or a
body that is not there where others hang from it: what they need cannot be told. Must not: write, or judge objects.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from agentsession_cas.core.envelope import read_envelope
from agentsession_cas.core.facts import Flag
from agentsession_cas.core.framing import SALT_END, Scan, behind, salt_of
from agentsession_cas.core.marks import PARTS, Marks, mark_of_key
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.packindex import key_of
from agentsession_cas.core.pieces import names_in
from agentsession_cas.core.rows import ROW_SIZE, RowCode
from agentsession_cas.errors import Corrupt, NoFile, NoObject, NoSession
from agentsession_cas.layout import Layout, session_id_of
from agentsession_cas.maintenance.sweep_pieces import Tied
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.journal import JOURNAL_NAME
from agentsession_cas.sessions.log import RowTable
from agentsession_cas.sessions.opening import Snapshot, read_header, snapshot
from agentsession_cas.sessions.refs import RefDatabase
from agentsession_cas.sessions.rowmaker import digest_of

__all__ = ["Needs", "Roots"]

_WORDS: Final = ROW_SIZE // 8
_CONTENT_WORD: Final = 4
_FACTS_WORD: Final = 14
"""The eight bytes of a row with its code in the highest but three and its flags in the lowest two."""
_FLAGS_SWAPPED: Final = (Flag.BLOBS & 0xFF) << 8
_PACK_ENDING: Final = ".pack"
_MEMO: Final = 0x0F
"""An entry of a path is remembered when these bits of its id are zero: one in sixteen."""


class _Seen(NamedTuple):
    """The journal of a session as it was marked."""

    salt: bytes
    end: int

    @classmethod
    def of(cls, scan: Scan) -> _Seen:
        return cls(scan.generation.salt, scan.end)


class Needs(NamedTuple):
    """What a marking found: ``needed`` has to be in the store; ``kept`` is not missed when it is not.

    ``pieces`` says whether the pieces among them are all that is needed of these, ``tied`` are the ones that bodies
    name which the first marking left unmarked.
    """

    needed: Marks
    kept: Marks
    pieces: bool = True
    tied: Tied = Tied()


class Roots:
    """The markings of one sweep.

    ``changed`` are the directories of the sessions that the last one found new or changed.
    """

    def __init__(self, layout: Layout, objects: ObjectDatabase, refs: RefDatabase) -> None:
        self._layout = layout
        self._fs = layout.host.fs
        self._objects = objects
        self._refs = refs
        self._seen: dict[str, _Seen] = {}
        self._ends: set[bytes] = set()
        self._met: set[bytes] = set()
        self._walked: set[bytes] = set()
        self._media = False
        self._needs = Needs(Marks(), Marks())
        self._pieces = _Pieces(objects)
        self.changed: list[str] = []

    def mark(self, tell: Callable[[int, int], None]) -> Needs:
        """Mark what is needed and was not yet marked; ``tell`` hears of sessions done and to do.

        Raises Damaged, Corrupt or NoObject when that cannot be told, DiskError.
        """
        needs = self._needs = Needs(Marks(), Marks())
        if not self._media and self._objects.holds_any(Space.MEDIA):
            self._media = True
            for known in (self._seen, self._met, self._walked):
                known.clear()  # what was marked before was not asked for the blobs it names
        names = self._fs.listdir(self._layout.sessions)
        todo = [name for name in names if not self._is_marked(name) and self._layout.is_session(name)]
        self.changed = []
        self._ends.update((digest_of(pin.entry) for pin in self._refs.pins()), *map(self._base, todo))
        for done, name in enumerate(todo):
            tell(done, len(todo))
            self._mark_session(name)
        for end in self._ends - self._met:
            self._mark_path(end)
        self._met |= self._ends
        return self._pieces.mark(needs)

    # --- sessions ---

    def _is_marked(self, name: str) -> bool:
        """Whether the session's journal is the one that was marked, and no frame has come behind that."""
        seen = self._seen.get(name)
        if seen is None:
            return False
        try:
            file = self._fs.open(f"{self._layout.sessions}/{name}/{JOURNAL_NAME}")
        except NoFile:
            return False
        try:
            same = salt_of(file.pread(SALT_END, 0)) == seen.salt
            return same and not any(file.pread(behind(seen.end), seen.end))
        finally:
            file.close()

    def _base(self, name: str) -> tuple[bytes, ...]:
        """The raw id of a session's base, if it has one."""
        try:
            header = read_header(self._fs, f"{self._layout.sessions}/{name}")
        except (NoSession, Corrupt):
            return ()  # which is told of when the session is marked
        return (digest_of(header.base),) if header.base else ()

    def _mark_session(self, name: str) -> None:
        directory = f"{self._layout.sessions}/{name}"
        try:
            found = snapshot(self._layout.host, self._objects, directory, lambda _header, _generation: None)
            try:
                self._mark_rows(found)
            finally:
                found.source.close()
        except NoSession:
            return
        except Corrupt as error:
            error.where = f"session {session_id_of(name) or name}, {error.where}"
            error.next_step = "repair or delete the session: what it needs cannot be told"
            raise
        self._seen[name] = _Seen.of(found.state.scan)
        self.changed.append(directory)

    def _mark_rows(self, found: Snapshot) -> None:
        """Mark all rows. A base or pin met there needs no walk: what is above it lies in rows, or above their base."""
        if found.header.base:
            self._ends.add(digest_of(found.header.base))
        self._mark_stored(found.source.table)
        for record in found.source.table.pending:
            if record.envelope:
                if record.row[:32] in self._ends:
                    self._met.add(record.row[:32])
                self._needs.kept.add(Space.ENTRIES, record.row[:32])
                self._needs.kept.add(Space.CONTENTS, record.row[32:64])
                for blob in names_in(record.content).blobs:
                    self._needs.kept.add(Space.MEDIA, blob)

    def _mark_stored(self, table: RowTable) -> None:
        for rows in table.stored():
            words = array("Q", rows.tobytes())
            if sys.byteorder == "little":
                words.byteswap()
            entries = [word >> 16 for word in words[::_WORDS]]
            contents = [word >> 16 for word in words[_CONTENT_WORD::_WORDS]]
            facts = words[_FACTS_WORD::_WORDS]
            if any(word >> 24 & 0xFF >= RowCode.HEAD for word in facts):
                real = [at for at, word in enumerate(facts) if word >> 24 & 0xFF < RowCode.HEAD]
                entries, contents = [entries[at] for at in real], [contents[at] for at in real]
            self._needs.needed.add_keys(Space.ENTRIES, entries)
            self._needs.needed.add_keys(Space.CONTENTS, contents)
            if self._ends:
                self._met |= self._ends & {bytes(rows[at : at + 32]) for at in range(0, len(rows), ROW_SIZE)}
            if self._media:
                for at, word in enumerate(facts):
                    if word & _FLAGS_SWAPPED:
                        digest = bytes(rows[at * ROW_SIZE + 32 : at * ROW_SIZE + 64])
                        self._mark_blobs(digest)

    # --- paths and bodies ---

    def _mark_path(self, entry: bytes) -> None:
        """Mark an entry and all above it, by the envelopes."""
        for entry_id, content in self._path(entry):
            self._needs.needed.add(Space.ENTRIES, entry_id)
            self._needs.needed.add(Space.CONTENTS, content)
            if self._media:
                self._mark_blobs(content)

    def _path(self, entry: bytes) -> Iterator[tuple[bytes, bytes]]:
        while entry and entry not in self._walked:
            if not entry[-1] & _MEMO:
                self._walked.add(entry)
            envelope = read_envelope(self._get_envelope(entry))
            yield entry, digest_of(envelope.content)
            entry = digest_of(envelope.parent) if envelope.parent else b""

    def _get_envelope(self, entry: bytes) -> bytes:
        try:
            return self._objects.get(Space.ENTRIES, entry)
        except NoObject as error:
            error.next_step = "run fsck: a fork or a pin needs it, and what lies above it cannot be told"
            raise

    def _mark_blobs(self, content: bytes) -> None:
        """Mark what the body of that digest names besides entries."""
        for blob in self._objects.names(content).blobs:
            self._needs.kept.add(Space.MEDIA, blob)


class _Pieces:
    """The bodies that lie without their pieces, and the pieces they need: each file is read once.

    Bodies of one part of the marks lie in one array: a mark, the number of the pack it lies in (0 for a file), how many
    pieces, and the key of each.
    """

    def __init__(self, objects: ObjectDatabase) -> None:
        self._objects = objects
        self._read: set[str] = set()
        self._stems = [""]
        self._lies_in = 0
        self._tied: Tied | None = Tied()
        self._bodies = [array("Q") for _ in range(PARTS)]

    def mark(self, needs: Needs) -> Needs:
        """Mark the pieces of the bodies that are marked; what does not read may need any piece. Raises DiskError."""
        try:
            for body in self._objects.skeletons(self._is_new):
                keys = [key_of(piece) for piece in names_in(body).pieces]
                mark = mark_of_key(Space.CONTENTS, key_of(body.digest))
                self._bodies[body.digest[0]].extend((mark, self._lies_in, len(keys), *keys))
                if self._tied is None:  # it has come meanwhile, and stays, whether somebody needs it or not
                    needs.kept.add_keys(Space.PIECES, keys)
        except Corrupt:
            needs = needs._replace(pieces=False)
        tied, self._tied = self._tied, None
        for part, bodies in enumerate(self._bodies):
            if bodies:
                needed, kept = needs.needed.part(part), needs.kept.part(part)
                for mark, lies_in, pieces in _split(bodies):
                    if mark in needed:
                        needs.needed.add_keys(Space.PIECES, pieces)
                    elif mark in kept:
                        needs.kept.add_keys(Space.PIECES, pieces)
                    elif tied is not None:
                        tied.tie(pieces, self._stems[lies_in])
        return needs._replace(tied=tied) if tied is not None else needs

    def _is_new(self, path: str) -> bool:
        new = path not in self._read
        self._read.add(path)
        self._lies_in = 0
        if new and path.endswith(_PACK_ENDING):
            self._stems.append(path.rpartition("/")[2].removesuffix(_PACK_ENDING))
            self._lies_in = len(self._stems) - 1
        return new


def _split(bodies: array[int]) -> Iterator[tuple[int, int, array[int]]]:
    """Mark, number of the pack and keys of the pieces of each body."""
    at = 0
    while at < len(bodies):
        end = at + 3 + bodies[at + 2]
        yield bodies[at], bodies[at + 1], bodies[at + 3 : end]
        at = end
