"""Failures one by one: what a harness sees of a full disk, of a failed sync, of too many files."""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import count
from typing import Final

import pytest

from agentsession_cas.errors import AgentSessionError, DiskError, DiskFull, TooManyFiles, WriterPoisoned
from agentsession_cas.sessions.source import RowSource
from agentsession_cas.sessions.writer import RELEASE_BYTES
from agentsession_cas.store import Store
from agentsession_cas.testing.simfs import EFFECTS, OPENS, READS, Sim
from tests.helpers.engine import Player, observed
from tests.helpers.engine_explorer import handles
from tests.helpers.engine_model import World
from tests.helpers.stores import opened

pytestmark = pytest.mark.heavy

JOURNAL: Final = "/store/sessions/s/journal"


@pytest.fixture
def sim() -> Sim:
    return Sim()


@pytest.fixture
def player(sim: Sim) -> Player:
    """A process that holds a session of one entry."""
    player = Player(sim.host, World())
    player.create("s")
    player.append("s", 100, durable=True)
    return player


def test_a_full_disk_refuses_an_append_and_the_writer_goes_on(sim: Sim, player: Player) -> None:
    writer = player.writers["s"]
    for size in (100, 30_000):
        sim.fail(1, errno.ENOSPC, kinds=frozenset({"write"}))
        entry = player.entry(size, writer.leaf)
        with pytest.raises(DiskFull):
            writer.append(entry, durable=True)
        sim.heal()
        assert entry.id not in [each.id for each in writer]
        assert entry.id not in [each.id for each in player.store.read("s")]
        player.append("s", size, durable=True)
    assert len(observed(player.store, "s").own) == 3


def test_a_frame_that_is_whole_is_accepted_though_the_disk_is_full_behind_it(sim: Sim, player: Player) -> None:
    """Else readers would see an entry that the writer says is not there."""
    writer = player.writers["s"]
    refused = accepted = 0
    for seed in range(12):
        sim.disk.rng.seed(seed)
        sim.fail(1, errno.ENOSPC, kinds=frozenset({"write"}))
        entry = player.entry(17_000, writer.leaf)
        try:
            writer.append(entry, durable=False)
            accepted += 1
        except DiskFull:
            refused += 1
        sim.heal()
        seen = [each.id for each in player.store.read("s")]
        assert seen == [each.id for each in writer]
        writer.append(player.entry(50, writer.leaf), durable=True)
    assert accepted
    assert refused


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_poisons_until_the_session_is_opened_again(sim: Sim, player: Player, code: int) -> None:
    writer = player.writers["s"]
    sim.fail(1, code, kinds=frozenset({"sync"}))
    with pytest.raises(DiskError):
        writer.append(player.entry(100, writer.leaf), durable=True)
    sim.heal()
    for act in (writer.commit, writer.checkpoint, lambda: writer.set_head(writer.leaf, "")):
        with pytest.raises(WriterPoisoned) as poisoned:
            act()
        assert "open it again" in poisoned.value.next_step
    with pytest.raises(WriterPoisoned):
        writer.append(player.entry(100, writer.leaf))
    writer.close()
    with player.store.open_session("s") as again:
        assert len(again) == 2
        again.append(player.entry(100, again.leaf), durable=True)
    for image in sim.images(40):
        assert len(observed(opened(image.host), "s").own) == 3


def test_a_full_disk_does_not_keep_a_long_journal_from_being_let_go(sim: Sim, player: Player) -> None:
    """A checkpoint at the release is housekeeping: without room for it the session is committed all the same."""
    for _ in range(4):
        player.append("s", RELEASE_BYTES // 3)
    fault = sim.fail(1, errno.ENOSPC, kinds=frozenset({"create", "mkdir", "rename"}), forever=True)
    player.close("s")
    assert fault.hits
    for image in sim.images(40):
        player.world.settle({"s": observed(opened(image.host), "s")}, "released on a full disk")


def test_nor_from_being_opened(sim: Sim, player: Player) -> None:
    for _ in range(5):
        player.append("s", 250_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agentsession_cas.sessions.writer.RELEASE_BYTES", 1 << 30)
        player.close("s")
    fault = sim.fail(1, errno.ENOSPC, kinds=frozenset({"create", "mkdir", "rename"}), forever=True)
    player.open("s")
    assert fault.hits
    player.append("s", 100, durable=True)


def test_too_many_files(sim: Sim, player: Player) -> None:
    player.close("s")
    sim.fail(1, errno.EMFILE, forever=True)
    for act in (player.store.open_session, player.store.read, player.store.delete):
        with pytest.raises(TooManyFiles):
            act("s")
    sim.heal()
    player.open("s")


def grown() -> Sim:
    """A session with a log, and a fork of it."""
    sim = Sim()
    player = Player(sim.host, World())
    player.create("s")
    player.append("s", *[20] * 40, durable=True)
    player.checkpoint("s")
    player.append("s", 50)
    player.fork("s", 39, "f")
    player.leave()
    return sim


GROWN: Final = grown()
ACTS: Final[dict[str, Callable[[Store], object]]] = {
    "open": lambda store: store.open_session("s"),
    "open a fork": lambda store: store.open_session("f"),
    "read": lambda store: store.read("s"),
    "read a fork": lambda store: store.read("f"),
    "list": lambda store: store.list(),
    "fork": lambda store: store.fork("s", observed(opened(GROWN.clone().host), "s").head, id="g"),
    "delete": lambda store: store.delete("s"),
}


@pytest.mark.parametrize("kinds", [READS, OPENS, EFFECTS], ids=["reads", "opens", "effects"])
@pytest.mark.parametrize("name", ACTS)
def test_what_fails_leaves_no_file_open_and_no_lock_held(name: str, kinds: frozenset[str]) -> None:
    for at in count(1):
        sim = GROWN.clone()
        store = opened(sim.host)
        fault = sim.fail(at, errno.EIO, kinds=kinds)
        try:
            ACTS[name](store)
        except AgentSessionError:
            store.close()
            assert handles(sim) == []
        if not fault.hits:
            break


def test_a_reader_lets_its_files_go() -> None:
    sim = GROWN.clone()
    store = opened(sim.host)
    for name in ("s", "f"):
        session = store.read(name)
        assert isinstance(session.source, RowSource)
        assert handles(sim)
        session.source.close()
    store.list()
    assert handles(sim) == []
