"""Taking a session in whole: everything it names made durable, then the session itself in one step (store.md A10)."""

from __future__ import annotations

from itertools import islice

from agentsession_cas.core.header import Header
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.spans import check_redacted
from agentsession_cas.core.tree import Session
from agentsession_cas.effects.host import Fs
from agentsession_cas.errors import NoEntry
from agentsession_cas.exchange.catalogue import Catalogue
from agentsession_cas.exchange.forks import require_media
from agentsession_cas.exchange.projection import Imported, kept_entries, sidecar_objects, stage_import
from agentsession_cas.layout import Layout
from agentsession_cas.sessions.opening import create_session
from agentsession_cas.sessions.rowmaker import digest_of
from agentsession_cas.sessions.services import Mark, Services

__all__ = ["take_session"]


def take_session(
    layout: Layout, catalogue: Catalogue, services: Services, files: Fs, session: Session, mark: int, directory: str
) -> Imported:
    """Make a session that was read the store's, durably; its blobs lie in ``directory`` of ``files``, "" for none.

    Raises SessionExists, MediaDiffers, BlobMismatch, NotRedacted; no session is made then.
    """
    if services.redacted_only:
        check_redacted(session.header, islice(session, kept_entries(session)))
    with layout.shared():
        _check_media(catalogue, session.header)
        blobs, missing = sidecar_objects(files, session, directory)
        staged = stage_import(session, mark, services.host.clock.now_ns())
        services.objects.publish([*blobs, *staged.objects])
        writer = create_session(
            services,
            layout.sessions,
            layout.session_dir(session.id),
            session.header,
            rows=staged.rows,
            newest=staged.newest,
            base_context=staged.base_context,
            prefix_of=catalogue.prefix_of,
        )
    writer.close()
    unresolved = [name for name in missing if not services.objects.holds(Space.MEDIA, digest_of(name))]
    own = kept_entries(session) - session.source.base_count
    mark_name = "record" if mark == Mark.RECORD else "mirror"
    return Imported(session.id, own, session.leaf, mark_name, unresolved, session.repeated)


def _check_media(catalogue: Catalogue, header: Header) -> None:
    """Refuse a fork whose media differs from that of a held session with its base (store.md A2)."""
    try:
        origin = catalogue.origin_of(header.base, header.parent_session)
    except NoEntry:
        return
    if origin is not None:
        origin.source.close()
        require_media(header, origin.header)
