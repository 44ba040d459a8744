"""Every place of a store in which an object may lie: where a repair looks for what is missing.

Owns the search. The object database comes first; then, once, the odd places are gone through: the journals of all
sessions, also of deleted and of replaced ones, loose files under another's name, blocks of packs that fail their
checksum. Whatever is found there counts by its hash alone. Memory: a slot for each object of a journal, the bytes of
the others. Reads only. Must not: decide what is needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from agentsession_cas.core.envelope import read_envelope
from agentsession_cas.core.header import Header
from agentsession_cas.core.identity import is_hash
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.rows import RowCode, decode_row
from agentsession_cas.effects.host import Fs
from agentsession_cas.errors import Corrupt, Damaged, DiskError, NoObject, NoSession
from agentsession_cas.layout import DAMAGED, Layout
from agentsession_cas.maintenance.repair_files import gather, read_quietly
from agentsession_cas.maintenance.repair_journal import remains_of
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.journal import JOURNAL_NAME
from agentsession_cas.sessions.opening import read_header
from agentsession_cas.sessions.refs import RefDatabase
from agentsession_cas.sessions.rowmaker import digest_of

__all__ = ["Pool"]


class Pool:
    """The objects of one store, wherever they are. Digests are raw."""

    def __init__(self, layout: Layout, objects: ObjectDatabase) -> None:
        self._layout = layout
        self._fs = layout.host.fs
        self._objects = objects
        self._homes: dict[bytes, str] | None = None
        self._odd: dict[bytes, bytes] = {}
        self._open: tuple[str, dict[bytes, bytes]] = ("", {})
        self._children: dict[bytes, list[bytes]] | None = None
        self._headers: list[Header] | None = None
        self.promised: set[tuple[Space, bytes]] = set()
        """What repairs of sessions put back, or in a dry run would: none does it twice."""

    def held(self, space: Space, digest: bytes) -> bytes | None:
        """The object as the database serves it, None when it has no good copy."""
        try:
            return self._objects.get(space, digest)
        except (NoObject, Corrupt, DiskError):
            return None

    def get(self, space: Space, digest: bytes) -> bytes | None:
        """The object's bytes, wherever they lie; None when they are nowhere."""
        found = self.held(space, digest)
        return self.odd(digest) if found is None else found

    def odd(self, digest: bytes) -> bytes | None:
        """What hashes to a name in the odd places."""
        if self._homes is None:
            self._homes = {}
            self._look_around(self._homes)
        found = self._odd.get(digest)
        home = self._homes.get(digest) if found is None else None
        if home is not None:
            if self._open[0] != home:
                self._open = (home, _pieces(self._fs, home))
            found = self._open[1].get(digest)
        return found

    def _look_around(self, homes: dict[bytes, str]) -> None:
        for path in self._journals():
            for digest in _pieces(self._fs, path):
                homes.setdefault(digest, path)
        for _, data in self._objects.salvage():
            self._odd[hashlib.sha256(data).digest()] = data

    def _journals(self) -> Iterator[str]:
        fs = self._fs
        for top in (self._layout.sessions, self._layout.trash):
            for name in _names(fs, top):
                yield f"{top}/{name}/{JOURNAL_NAME}"
                for kept in _names(fs, f"{top}/{name}/{DAMAGED}"):
                    yield f"{top}/{name}/{DAMAGED}/{kept}/{JOURNAL_NAME}"

    # --- what other sessions say ---

    def headers(self) -> list[Header]:
        """Every header that reads."""
        if self._headers is None:
            self._headers = []
            for name in _names(self._fs, self._layout.sessions):
                try:
                    self._headers.append(read_header(self._fs, f"{self._layout.sessions}/{name}"))
                except (NoSession, Damaged, DiskError):
                    continue
        return self._headers

    def pinned(self, session: str, birth: bytes) -> Iterator[bytes]:
        """The raw ids of entries that refs pin in a session; of every birth when ``birth``, its own, is b""."""
        refs = RefDatabase(self._layout.host, self._layout.root, self._layout.tmp)
        try:
            for pin in refs.pins():
                if pin.session == session and (not birth or pin.birth in (b"", birth)):
                    yield digest_of(pin.entry)
        except (Damaged, DiskError):
            return  # of the others nothing is known

    def children(self, digest: bytes) -> list[bytes]:
        """Entries below one that no session is known to hold: what a session's lost rows may have named."""
        if self._children is None:
            self._children = self._unclaimed()
        return self._children.get(digest, [])

    def _unclaimed(self) -> dict[bytes, list[bytes]]:
        claimed: set[bytes] = set()
        for name in _names(self._fs, self._layout.sessions):
            try:
                found = gather(self._fs, f"{self._layout.sessions}/{name}")
            except DiskError:
                continue
            claimed.update(row[:32] for row in found.rows if row is not None)
        self._claim_prefixes(claimed)
        below: dict[bytes, list[bytes]] = {}
        for digest in self._entries():
            data = self.held(Space.ENTRIES, digest) if digest not in claimed else None
            try:
                parent = read_envelope(data).parent if data is not None else ""
            except Corrupt:
                continue
            if parent:
                below.setdefault(digest_of(parent), []).append(digest)
        return below

    def _claim_prefixes(self, claimed: set[bytes]) -> None:
        """Add what forks of sessions that are gone continue from: it is no other's all the same."""
        held = {header.id for header in self.headers()}
        for header in self.headers():
            orphan = header.parent_session not in held and is_hash(header.base)
            digest = digest_of(header.base) if orphan else b""
            while digest and digest not in claimed:
                claimed.add(digest)
                data = self.held(Space.ENTRIES, digest)
                try:
                    parent = read_envelope(data).parent if data is not None else ""
                except Corrupt:
                    break
                digest = digest_of(parent) if is_hash(parent) else b""

    def _entries(self) -> set[bytes]:
        found: set[bytes] = set()
        try:
            found.update(place.digest for place in self._objects.iterate(Space.ENTRIES))
        except (Corrupt, DiskError):
            return found  # all else was given
        return found


def _pieces(fs: Fs, path: str) -> dict[bytes, bytes]:
    """Everything in a journal that may be an object, by its hash."""
    found = remains_of(read_quietly(fs, path, []), None)
    texts: list[bytes] = []
    for record in found.records.values():
        if decode_row(record.row).code < RowCode.HEAD:
            texts += (record.envelope, record.content)
    texts += (text for stray in found.strays for text in (stray.envelope, stray.content))
    return {hashlib.sha256(text).digest(): text for text in texts if text}


def _names(fs: Fs, directory: str) -> list[str]:
    try:
        return fs.listdir(directory)
    except DiskError:
        return []


