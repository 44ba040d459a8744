"""Seeded mistakes: exchanges with one rule broken, each of which the explorer has to notice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest

from agentsession_cas import Store
from agentsession_cas.core.packformat import Space
from agentsession_cas.errors import AgentSessionError
from agentsession_cas.exchange import receiving, sharing
from agentsession_cas.exchange.local import LocalEndpoint
from agentsession_cas.exchange.receiving import _Incoming
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.opening import open_writer
from agentsession_cas.sessions.receiver import Receiver
from agentsession_cas.sessions.services import Mark
from agentsession_cas.sessions.writer import Writer
from tests.helpers.exchange_scenes import power

pytestmark = pytest.mark.heavy

Patch = pytest.MonkeyPatch


def _receiver_does_not_commit(patch: Patch) -> None:
    """What was acknowledged is lost."""
    patch.setattr(Receiver, "land", lambda _: None)
    patch.setattr(receiving, "hold", _held_without_commit)


@contextmanager
def _held_without_commit(parts: Any, session: str, wait_s: float = 60.0) -> Any:
    layout = parts.layout
    where = layout.sessions, layout.session_dir(session), session
    held = open_writer(parts.services, *where, parts.catalogue.prefix_of, wait_s, Receiver)
    yield held
    held.abandon()


def _sender_does_not_commit(patch: Patch) -> None:
    """The mirror comes to know what its record lost."""
    patch.setattr(LocalEndpoint, "_commit", lambda *_: None)


def _sender_is_the_mirror_first(patch: Patch) -> None:
    """Nobody is the record."""
    make = LocalEndpoint.make_record

    def late(self: LocalEndpoint, session: str) -> None:
        root = "/a" if self.address == "/b" else "/b"
        with sharing_store(self, root) as other:
            receiving.marked(other._parts(), session, Mark.MIRROR)
        make(self, session)

    @contextmanager
    def sharing_store(endpoint: LocalEndpoint, root: str) -> Any:
        with Store.open(root, host=endpoint._layout.host, background=False) as store:
            yield store

    @contextmanager
    def unheld(parts: Any, session: str, wait_s: float = 60.0) -> Any:
        class Nobody:
            def set_mark(self, mark: int) -> None:
                """It is one already."""

        yield Nobody()

    patch.setattr(LocalEndpoint, "make_record", late)
    patch.setattr(sharing, "hold", unheld)


def _record_is_not_committed(patch: Patch) -> None:
    """The receiver forgets that it became the record, after the sender cleared its own mark."""
    set_mark, commit = Writer.set_mark, Writer._commit

    def uncommitted(self: Writer, mark: int) -> None:
        if mark == Mark.RECORD:
            patch.setattr(Writer, "_commit", lambda *_: None)
        try:
            set_mark(self, mark)
        finally:
            patch.setattr(Writer, "_commit", commit)

    @contextmanager
    def hold(parts: Any, session: str, wait_s: float = 60.0) -> Any:
        with _held_without_commit(parts, session, wait_s) as held:
            yield held

    patch.setattr(Writer, "set_mark", uncommitted)
    patch.setattr(receiving, "hold", hold)


def _blobs_stay_behind(patch: Patch) -> None:
    """An entry lands before what it names."""
    patch.setattr(_Incoming, "blobs", lambda *_: [])


def _objects_are_not_synced(patch: Patch) -> None:
    """Rows name objects that a power cut takes away."""
    publish = ObjectDatabase.publish

    def unsynced(self: ObjectDatabase, objects: Any, **options: Any) -> Any:
        if any(space is Space.ENTRIES for space, _, _ in objects):
            fs = self._publisher._host.fs
            patch.setattr(type(fs), "sync_dir", lambda *_: None)
        try:
            return publish(self, objects, **options)
        finally:
            patch.undo()
            patch.setattr(ObjectDatabase, "publish", unsynced)

    patch.setattr(ObjectDatabase, "publish", unsynced)


MISTAKES: list[Callable[[Patch], None]] = [
    _receiver_does_not_commit,
    _sender_does_not_commit,
    _sender_is_the_mirror_first,
    _record_is_not_committed,
    _blobs_stay_behind,
    _objects_are_not_synced,
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_shows(mistake: Callable[[Patch], None]) -> None:
    with Patch.context() as patch:
        mistake(patch)
        with pytest.raises((AgentSessionError, AssertionError)):
            power(2, every=1_000_000)
