"""Every session of a store, read without a lock: by id, by filter, by what it holds (store.md A2).

Owns where a fork's prefix is read from: the rows of the session it was made from while that holds its base, else the
envelopes alone, which stay when that session goes. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from itertools import chain, islice
from typing import Final

from agentsession_cas.core.framing import Generation
from agentsession_cas.core.given import require
from agentsession_cas.core.header import Header
from agentsession_cas.core.identity import is_hash
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.timestamps import canonical_ts, ts_to_ns
from agentsession_cas.errors import BadInput, Corrupt, Damaged, NoEntry, NoObject, NoSession
from agentsession_cas.layout import Layout, session_id_of
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.chain import ChainSource
from agentsession_cas.sessions.listing import Filter, OnDamage, Summary, glance, summarise
from agentsession_cas.sessions.opening import Snapshot, read_header, snapshot
from agentsession_cas.sessions.prefix import Prefix
from agentsession_cas.sessions.rowmaker import digest_of
from agentsession_cas.sessions.source import RowSource

__all__ = ["Catalogue"]

_FORKS_MAX: Final = 64
"""Forks of forks read through their origins' rows; a longer chain is read from envelopes."""
_LIMIT_MAX: Final = 1 << 32
_DAMAGE: Final = (Corrupt, NoObject)
_UNREADABLE: Final = (NoSession, *_DAMAGE)


class Catalogue:
    """The sessions of one store. It is also what entries may name outside their session (``Elsewhere``)."""

    def __init__(self, layout: Layout, objects: ObjectDatabase) -> None:
        self._layout = layout
        self._host = layout.host
        self._objects = objects

    def holds(self, session: str) -> bool:
        """Whether the store holds a session of that id."""
        return self._host.fs.stat(self._layout.session_dir(session)) is not None

    def headers(self, on_damage: OnDamage | None = None) -> Iterator[tuple[str, Header]]:
        """Directory and header of every session whose header reads; ``on_damage`` hears of the others."""
        for directory in self._directories():
            header = self._header(directory, on_damage)
            if header is not None:
                yield directory, header

    def _directories(self) -> list[str]:
        return [f"{self._layout.sessions}/{name}" for name in self._host.fs.listdir(self._layout.sessions)]

    def _header(self, directory: str, on_damage: OnDamage | None) -> Header | None:
        try:
            return read_header(self._host.fs, directory)
        except NoSession:
            return None
        except Damaged as error:
            name = directory.rpartition("/")[2]
            if on_damage is not None and self._layout.is_session(name):
                on_damage(session_id_of(name), error)
            return None

    def snapshot(self, session: str) -> Snapshot:
        """A session as it is now. Raises NoSession, Damaged."""
        try:
            return snapshot(self._host, self._objects, self._layout.session_dir(session), self.prefix_of)
        except NoSession as error:
            raise NoSession("the store holds no such session", where=session) from error

    def list(self, limit: int, wanted: Filter, on_damage: OnDamage | None = None) -> list[Summary]:
        """Sessions newest first (``created_at``, then id), ``limit`` of them, 0 for all.

        Damaged ones are left out; ``on_damage`` hears of them.
        """
        if require(limit, int, "limit") < 0:
            raise BadInput("a limit is 0, for all, or more", next_step="leave it out, and all are listed")
        if not limit and wanted == Filter():
            # no header says that a session need not be looked at: each is looked at once
            found = filter(None, (self._summary(each, wanted, on_damage) for each in self._directories()))
            return sorted(found, key=lambda summary: _age(summary.header), reverse=True)
        headers = [each for each in self.headers(on_damage) if wanted.keeps_header(each[1])]
        headers.sort(key=lambda each: _age(each[1]), reverse=True)
        kept = filter(None, (self._summary(directory, wanted, on_damage) for directory, _ in headers))
        return list(islice(kept, min(limit, _LIMIT_MAX) or None))

    def _summary(self, directory: str, wanted: Filter, on_damage: OnDamage | None) -> Summary | None:
        """The summary of the session in a directory; None when it is not wanted, is gone, or does not read."""
        summary = glance(self._host.fs, self._objects, directory)
        if summary is None:
            header = self._header(directory, on_damage)
            summary = self._read_summary(directory, header, on_damage) if header is not None else None
        return summary if summary is not None and wanted.keeps(summary) else None

    def _read_summary(self, directory: str, header: Header, on_damage: OnDamage | None) -> Summary | None:
        try:
            found = snapshot(self._host, self._objects, directory, _no_prefix)
            with closing(found.source):
                return summarise(self._host.fs, directory, found)
        except NoSession:
            return None
        except _DAMAGE as error:
            if on_damage is not None:
                on_damage(header.id, error)
            return None

    # --- what sessions name in others ---

    def has_blob(self, blob: str) -> bool:
        """Whether the store holds a good copy of the blob."""
        return self._objects.holds(Space.MEDIA, digest_of(blob))

    def has_entry(self, session: str, entry_id: str) -> bool:
        """Whether the store holds that session and it holds the entry."""
        try:
            found = self.snapshot(session)
        except _UNREADABLE:
            return False
        try:
            return found.source.find(entry_id) >= 0
        finally:
            found.source.close()

    def prefix_of(self, header: Header, generation: Generation) -> Prefix | None:  # noqa: ARG002 - asked by openings
        """Where a fork's prefix is read from; None for a session without a base."""
        return self._prefix(header, _FORKS_MAX)

    def _prefix(self, header: Header, forks: int) -> Prefix | None:
        if not header.base:
            return None
        found = self._origin_source(header, forks) if forks else None
        if found is None:
            chain = ChainSource(self._objects, header.base)
            return Prefix(chain, len(chain) - 1)
        return Prefix(*found)

    def _origin_source(self, header: Header, forks: int) -> tuple[RowSource, int] | None:
        if not header.parent_session or header.parent_session == header.id:
            return None
        directory = self._layout.session_dir(header.parent_session)
        try:
            origin = snapshot(self._host, self._objects, directory, lambda h, _: self._prefix(h, forks - 1))
        except _UNREADABLE:
            return None
        with ExitStack() as undo:
            undo.callback(origin.source.close)
            with suppress(*_UNREADABLE):
                position = origin.source.find(header.base)
                if position >= 0:
                    undo.pop_all()
                    return origin.source, position
        return None

    def origin_of(self, base: str, parent_session: str) -> Snapshot | None:
        """The session a fork continues from: the one named when it holds the base, else any (store.md A2).

        None for no base. Raises NoEntry when no session that reads holds it.
        """
        if not base:
            return None
        named = [parent_session] if parent_session and self.holds(parent_session) else []
        others = (header.id for _, header in self.headers() if header.id != parent_session)
        for candidate in chain(named, others) if is_hash(base) else ():
            try:
                found = self.snapshot(candidate)
            except _UNREADABLE:
                continue
            with ExitStack() as undo:
                undo.callback(found.source.close)
                if found.source.find(base) >= 0:
                    undo.pop_all()
                    return found
        raise NoEntry("the store holds no entry to fork at", where=base, next_step="name an entry of a held session")


def _age(header: Header) -> tuple[int, str]:
    return ts_to_ns(canonical_ts(header.created_at)), header.id


def _no_prefix(header: Header, generation: Generation) -> Prefix | None:  # noqa: ARG001 - a listing reads own rows
    return None
