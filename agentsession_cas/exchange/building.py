"""Making a long session out of what another store sends, in memory that does not grow with it (store.md A11).

It grows in ``tmp/`` where nobody looks, under the store lock held shared: some entries at a time are tested and merged
as into a session that is held, made objects, and put into the log. It gets its name when all of it is durable and its
head is in place: one step, as every session is made. Its HEAD comes behind its name, for it attests that too. One that
was cut short is emptied with ``tmp/``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.header import Header
from agentsession_cas.effects.durable import remove_tree
from agentsession_cas.errors import AgentSessionError, FileTaken, SessionExists, SessionLocked
from agentsession_cas.exchange.catalogue import Catalogue
from agentsession_cas.layout import Layout
from agentsession_cas.sessions.journal import HEAD_NAME
from agentsession_cas.sessions.opening import create_session, open_writer
from agentsession_cas.sessions.receiver import Receiver
from agentsession_cas.sessions.records import publish_records
from agentsession_cas.sessions.services import Mark, Services

__all__ = ["build_session"]


_PACK_BYTES: Final = 32 << 20


class _Builder(Receiver):
    """A session that is being made: whatever calls it has twice, its sender has twice."""

    def _check_call(self, entry: Entry, start: int, known: Collection[str]) -> None:
        """Every call is the sender's."""


def build_session(
    layout: Layout, catalogue: Catalogue, services: Services, header: Header, batches: Iterable[list[Entry]], head: str
) -> None:
    """Make a mirror without a base of entries that were hashed, durably, its head at ``head``; empties the batches.

    The caller holds the store lock shared; the blobs of a batch are durable when it is given. Raises SessionExists, and
    what :meth:`Receiver.merge` and :meth:`Receiver.move_head` do; nothing is made then.
    """
    fs = services.host.fs
    stage, directory = f"{layout.tmp}/built-{services.host.entropy.take(12).hex()}", layout.session_dir(header.id)
    try:
        create_session(services, layout.tmp, stage, header, prefix_of=catalogue.prefix_of).close()
        _fill(layout, catalogue, services, header, batches, head, stage)
        fs.unlink(f"{stage}/{HEAD_NAME}")
        fs.sync_dir(stage)
        fs.rename(stage, directory)
    except AgentSessionError as error:
        with suppress(AgentSessionError):
            remove_tree(fs, stage)
        if isinstance(error, FileTaken):
            raise SessionExists("the store holds a session of this id", where=header.id) from error
        raise
    fs.sync_dir(layout.sessions)
    with suppress(SessionLocked):  # whoever was quicker has written HEAD
        open_writer(services, layout.sessions, directory, header.id, catalogue.prefix_of, 0.0, Receiver).close()


def _fill(
    layout: Layout,
    catalogue: Catalogue,
    services: Services,
    header: Header,
    batches: Iterable[list[Entry]],
    head: str,
    stage: str,
) -> None:
    quiet = services._replace(background=False)
    held = open_writer(quiet, layout.tmp, stage, header.id, catalogue.prefix_of, 0.0, _Builder)
    try:
        held.set_mark(Mark.MIRROR)
        for entries in batches:
            held.merge(header, entries, ())
            entries.clear()  # decoded, they are many times their bytes
            if held.journal_bytes >= _PACK_BYTES:
                _settle(services, held)
        held.move_head(head)
        _settle(services, held)
    except BaseException:
        held.abandon()
        raise
    held.close()


def _settle(services: Services, held: Receiver) -> None:
    """Make objects of what was taken, as one pack, and rows of the log: it leaves the memory."""
    publish_records(services.objects, held.source.table.pending)
    held.checkpoint()
