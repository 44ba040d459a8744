"""Taking a session in whole: everything it names made durable, then the session itself in one step (store.md A10)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice

from agentsession_cas.core.given import AnyPath, as_path
from agentsession_cas.core.header import Header
from agentsession_cas.core.jsonl import Source
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.spans import check_redacted
from agentsession_cas.core.tree import Session
from agentsession_cas.effects.host import Fs
from agentsession_cas.errors import AgentSessionError, NoEntry, NoFile, SessionExists
from agentsession_cas.exchange.catalogue import Catalogue
from agentsession_cas.exchange.forks import require_media
from agentsession_cas.exchange.projection import (
    Imported,
    kept_entries,
    read_for_import,
    sidecar_dir,
    sidecar_objects,
    stage_import,
)
from agentsession_cas.layout import Layout
from agentsession_cas.sessions.opening import Placed, hold_placed, place_session
from agentsession_cas.sessions.rowmaker import digest_of
from agentsession_cas.sessions.services import Mark, Services

__all__ = ["make_session", "make_sessions", "read_source", "take_session"]


def read_source(files: Fs, source: Source | AnyPath, media: AnyPath | None) -> tuple[Session, str]:
    """The session in a file to import, given by its path or as bytes, a stream or lines; and where its blobs lie.

    That is ``media``, else the directory beside the file; "" for a file without a path. Raises NoFile, BadInput, and
    what :func:`~agentsession_cas.exchange.projection.read_for_import` does.
    """
    directory = "" if media is None else as_path(media, "the directory of the blobs")
    if not (isinstance(source, str) or hasattr(source, "__fspath__")):
        return read_for_import(source), directory
    path = as_path(source, "the file to import")
    data = files.read(path)
    if data is None:
        raise NoFile("there is no such file", where=path)
    session = read_for_import(data)
    return session, directory or sidecar_dir(path, session.id)


def take_session(
    layout: Layout, catalogue: Catalogue, services: Services, files: Fs, session: Session, mark: int, directory: str
) -> Imported:
    """Make a session that was read the store's, durably; its blobs lie in ``directory`` of ``files``, "" for none.

    Raises SessionExists, MediaDiffers, BlobMismatch, NotRedacted; no session is made then.
    """
    if catalogue.holds(session.id):
        raise SessionExists(
            "the store holds a session of this id already",
            where=session.id,
            next_step="the same session needs nothing; fork it here, or import the file into another store",
        )
    if services.redacted_only:
        check_redacted(session.header, islice(session, kept_entries(session)))
    with layout.shared():
        layout.settle()
        blobs, missing = sidecar_objects(files, session, directory)
        make_session(layout, catalogue, services, session, mark, blobs)
    if services.background:
        services.merge(lambda: True, thorough=False)  # or many imports leave as many packs
    unresolved = [name for name in missing if not services.objects.holds(Space.MEDIA, digest_of(name))]
    own = kept_entries(session) - session.source.base_count
    mark_name = "record" if mark == Mark.RECORD else "mirror"
    return Imported(session.id, own, session.leaf, mark_name, unresolved, session.repeated)


def make_session(
    layout: Layout,
    catalogue: Catalogue,
    services: Services,
    session: Session,
    mark: int,
    blobs: Sequence[tuple[Space, bytes, bytes]],
) -> None:
    """Make a session in memory the store's, durably, its head where its leaf is; ``blobs`` become the store's too.

    The caller holds the store lock shared. Raises SessionExists, MediaDiffers.
    """
    _check_media(catalogue, session.header)
    (refused,) = make_sessions(layout, catalogue, services, [session], mark, blobs)
    if refused is not None:
        raise refused


def make_sessions(
    layout: Layout,
    catalogue: Catalogue,
    services: Services,
    sessions: Sequence[Session],
    mark: int,
    blobs: Sequence[tuple[Space, bytes, bytes]],
) -> list[AgentSessionError | None]:
    """As :func:`make_session`, of several that share the syncs of their objects and names; of each, why it is not made.

    Each is made in one step. Their media were looked at. Raises what concerns them all: none is acknowledged then.
    """
    staged = [stage_import(session, mark, services.host.clock.now_ns()) for session in sessions]
    services.objects.publish([*blobs, *chain.from_iterable(each.objects for each in staged)])
    placed: list[Placed] = []
    refused: list[AgentSessionError | None] = []
    try:
        for header, rows, newest, base_context, _ in staged:
            directory = layout.session_dir(header.id)
            try:
                placed.append(place_session(services, directory, header, rows, newest, base_context))
            except AgentSessionError as error:
                refused.append(error)
            else:
                refused.append(None)
    except BaseException:
        for each in placed:
            each.lock.release()
        raise
    for writer in hold_placed(services, layout.sessions, placed, catalogue.prefix_of):
        writer.close()
    return refused


def _check_media(catalogue: Catalogue, header: Header) -> None:
    """Refuse a fork whose media differs from that of a held session with its base (store.md A2)."""
    try:
        origin = catalogue.origin_of(header.base, header.parent_session)
    except NoEntry:
        return
    if origin is not None:
        origin.source.close()
        require_media(header, origin.header)
