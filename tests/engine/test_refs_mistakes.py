"""Seeded mistakes: refs with one rule of their order of writes broken, each of which the explorer has to notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentsession_cas import RefTarget, Store
from agentsession_cas.effects import durable
from agentsession_cas.errors import AgentSessionError
from agentsession_cas.exchange import naming
from agentsession_cas.sessions import reflog
from agentsession_cas.sessions.reffile import Held, RefUpdate, encode_ref
from agentsession_cas.sessions.reflog import RefLog
from agentsession_cas.sessions.refs import RefDatabase, birth_of
from tests.helpers.crashes import write_unsynced
from tests.helpers.refs_world import power, resume

pytestmark = pytest.mark.heavy

Patch = pytest.MonkeyPatch


def _noticed(kill_at: int | None) -> str:
    """What shows, "" for nothing: under power cuts alone, or where a second process goes on after a kill from there."""
    try:
        if kill_at is not None:
            resume(kill_at, 1)
        else:
            power(6)
    except (AgentSessionError, AssertionError) as error:
        return str(error)
    return ""


def _ref_before_log(patch: Patch) -> None:
    """The ref moves, then its record is written."""
    add, publish = RefLog.add, RefDatabase._publish
    late: list[tuple[RefLog, Held | None, RefUpdate]] = []

    def remember(self: RefLog, held: Held | None, update: RefUpdate) -> int:
        if update.new is None:
            return add(self, held, update)
        late.append((self, held, update))
        return (held.number if held is not None else len(late) * 100) + 1

    def moved(self: RefDatabase, name: str, held: Held) -> None:
        publish(self, name, held)
        if late:
            add(*late.pop())

    patch.setattr(RefLog, "add", remember)
    patch.setattr(RefDatabase, "_publish", moved)


def _no_sync_of_refs(patch: Patch) -> None:
    """A ref's name is not made durable."""

    def spoilt(self: RefDatabase, name: str, held: Held) -> None:
        durable.publish(self._host, self._tmp, self.path_of(name), encode_ref(name, held))

    patch.setattr(RefDatabase, "_publish", spoilt)


def _no_sync_of_bytes(patch: Patch) -> None:
    """A name appears before its bytes are synced."""

    patch.setattr(durable, "write_new", write_unsynced)


def _no_sync_of_log(patch: Patch) -> None:
    """The record's name is not made durable before the ref moves."""
    patch.setattr(reflog, "swap", durable.publish)


def _no_anchor(patch: Patch) -> None:
    """A pin leaves its path in a journal."""
    patch.setattr(naming, "anchor_path", lambda *_: 0)


def _no_sync_of_sessions(patch: Patch) -> None:
    """A session is named whose own name may not last."""

    def spoilt(self: Store, target: RefTarget) -> bytes:
        directory = self.layout.session_dir(target.session)
        return self._pinned(directory, target) if target.entry else birth_of(self.layout.host.fs, directory)

    patch.setattr(naming.Names, "_settled", spoilt)


def _shown_too_early(patch: Patch) -> None:
    """A record whose update never came to be is shown."""

    def spoilt(self: RefDatabase, name: str) -> Any:
        return (record.update for record in self.logs.records(name))

    patch.setattr(RefDatabase, "log", spoilt)


def _kept_for_ever(patch: Patch) -> None:
    """A record whose update never came to be stays when the next one is written."""
    patch.setattr(reflog, "_never_was", lambda *_: False)


def _taken_as_it_is(patch: Patch) -> None:
    """An update that changes nothing makes nothing durable."""
    publish = RefDatabase._publish

    def spoilt(self: RefDatabase, name: str, held: Held) -> None:
        if self.read(name) != held:
            publish(self, name, held)

    patch.setattr(RefDatabase, "_publish", spoilt)


def _not_quite_gone(patch: Patch) -> None:
    """A deletion is acknowledged before it is durable."""

    def spoilt(self: RefDatabase, name: str, held: Held | None, reason: str) -> bool:
        if held is not None:
            self.logs.add(held, RefUpdate(name, held.target, None, self._now(), reason))
            self._host.fs.unlink(self.path_of(name))
        return held is not None

    patch.setattr(RefDatabase, "_delete", spoilt)


MISTAKES: tuple[Callable[[Patch], None], ...] = (
    _ref_before_log,
    _no_sync_of_refs,
    _no_sync_of_bytes,
    _no_sync_of_log,
    _no_anchor,
    _no_sync_of_sessions,
    _shown_too_early,
    _kept_for_ever,
    _taken_as_it_is,
    _not_quite_gone,
)
SECOND: dict[Callable[[Patch], None], int] = {_no_sync_of_sessions: 95, _taken_as_it_is: 0}
"""Those that only a second process suffers from, and after how many effects of the first they may show."""


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_noticed(monkeypatch: Patch, mistake: Callable[[Patch], None]) -> None:
    mistake(monkeypatch)
    assert _noticed(SECOND.get(mistake))
