"""What an append costs, in effects: one sync when it is durable, one write when it is not, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

from agentsession_cas.core.entry import Draft
from agentsession_cas.core.header import new_header
from agentsession_cas.sessions.handle import SessionWriter
from agentsession_cas.sessions.headerfile import encode_header
from agentsession_cas.sessions.journal import STEP_MAX
from agentsession_cas.store import Store
from agentsession_cas.testing.simfs import Sim
from tests.helpers.engine import Player, message, ts
from tests.helpers.engine_model import World
from tests.helpers.stores import ROOT, opened

pytestmark = pytest.mark.heavy

JOURNAL: Final = f"{ROOT}/sessions/s/journal"
HEAD: Final = f"{ROOT}/sessions/s/HEAD"

Effects = Counter[tuple[str, str]]


def effects(sim: Sim, act: Callable[[], object]) -> Effects:
    """Kinds and paths of the effects of an act."""
    sim.log.clear()
    act()
    return Counter((effect.kind, effect.path) for effect in sim.log)


def draft(number: int, size: int = 200) -> Draft:
    return Draft("item", message(f"{number}:".ljust(size, "x")), ts=ts(number))


@pytest.fixture
def sim() -> Sim:
    return Sim()


@pytest.fixture
def store(sim: Sim) -> Store:
    return opened(sim.host, create=True)


@pytest.fixture
def writer(store: Store) -> SessionWriter:
    """A session that has been appended to, so that HEAD is there."""
    writer = store.create(id="s")
    writer.append(draft(0), durable=True)
    return writer


DURABLE: Final[Effects] = Counter({("write", JOURNAL): 1, ("sync", JOURNAL): 1, ("write", HEAD): 1})
LAZY: Final[Effects] = Counter({("write", JOURNAL): 1})


def test_a_durable_append_is_one_write_and_one_sync(sim: Sim, writer: SessionWriter) -> None:
    for number in range(1, 40):
        assert effects(sim, lambda number=number: writer.append(draft(number), durable=True)) == DURABLE  # type: ignore[misc]


def test_so_is_the_first_one_of_a_session(sim: Sim, store: Store) -> None:
    writer = store.create(id="s")
    assert effects(sim, lambda: writer.append(draft(1), durable=True)) == DURABLE


def test_so_is_a_durable_batch(sim: Sim, writer: SessionWriter) -> None:
    batch = [draft(number) for number in range(1, 101)]
    assert effects(sim, lambda: writer.append_batch(batch, durable=True)) == DURABLE


def test_so_is_one_that_grows_the_journal(sim: Sim, writer: SessionWriter) -> None:
    grown = 0
    for number in range(1, 60):
        before = sim.host.fs.stat(JOURNAL)
        assert effects(sim, lambda number=number: writer.append(draft(number, 30_000), durable=True)) == DURABLE  # type: ignore[misc]
        after = sim.host.fs.stat(JOURNAL)
        assert before is not None
        assert after is not None
        assert after.size - before.size <= 30_000 + STEP_MAX + 8192
        grown += after.size != before.size
    assert grown >= 5


def test_a_lazy_append_is_one_write(sim: Sim, writer: SessionWriter) -> None:
    for number in range(1, 200):
        assert effects(sim, lambda number=number: writer.append(draft(number), durable=False)) == LAZY  # type: ignore[misc]


def test_so_is_a_lazy_batch_and_one_that_grows_the_journal(sim: Sim, writer: SessionWriter) -> None:
    batch = [draft(number) for number in range(1, 101)]
    assert effects(sim, lambda: writer.append_batch(batch, durable=False)) == LAZY
    assert effects(sim, lambda: writer.append(draft(200, 100_000), durable=False)) == LAZY


def test_head_moves_cost_the_same(sim: Sim, writer: SessionWriter) -> None:
    assert effects(sim, lambda: writer.set_head(writer.leaf, "")) == LAZY
    assert effects(sim, lambda: writer.set_head("", "", durable=False)) == Counter()
    assert effects(sim, lambda: writer.set_head("", writer.source.entry_id(0), durable=True)) == DURABLE


def test_a_commit_of_many_appends_is_one_sync_and_a_second_is_none(sim: Sim, writer: SessionWriter) -> None:
    for number in range(1, 20):
        writer.append(draft(number), durable=False)
    assert effects(sim, writer.commit) == Counter({("sync", JOURNAL): 1, ("write", HEAD): 1})
    assert effects(sim, writer.commit) == Counter()


def test_a_held_entry_costs_nothing_when_it_is_committed_and_one_sync_when_not(
    sim: Sim, writer: SessionWriter
) -> None:
    entry = writer.source.entry(0)
    assert effects(sim, lambda: writer.append(entry, durable=True)) == Counter()
    writer.append(draft(1), durable=False)
    lazy = writer.source.entry(1)
    assert effects(sim, lambda: writer.append(lazy, durable=True)) == DURABLE - LAZY


def test_a_session_among_ten_thousand(sim: Sim, store: Store, writer: SessionWriter) -> None:
    fs = sim.host.fs
    for number in range(10_000):
        directory = f"{ROOT}/sessions/n{number}"
        fs.mkdir(directory)
        fs.create(f"{directory}/header").pwrite(encode_header(new_header(id=f"n{number}", created_at=ts(number))), 0)
    fs.sync_dir(f"{ROOT}/sessions")
    assert effects(sim, lambda: writer.append(draft(1), durable=True)) == DURABLE
    assert effects(sim, lambda: writer.append(draft(2), durable=False)) == LAZY
    writer.close()
    again = store.open_session("s")
    assert effects(sim, lambda: again.append(draft(3), durable=True)) == DURABLE


def test_behind_a_checkpoint_it_is_the_same(sim: Sim, writer: SessionWriter) -> None:
    writer.append_batch([draft(number) for number in range(1, 40)], durable=False)
    writer.checkpoint()
    assert effects(sim, lambda: writer.append(draft(41), durable=False)) == LAZY
    assert effects(sim, lambda: writer.append(draft(42), durable=True)) == DURABLE


def test_a_clean_open_and_close_writes_nothing(sim: Sim, store: Store, writer: SessionWriter) -> None:
    writer.close()
    assert effects(sim, lambda: store.open_session("s").close()) == Counter()


def test_reading_and_listing_write_nothing(sim: Sim, store: Store, writer: SessionWriter) -> None:
    def read() -> None:
        assert [entry.line for entry in store.read("s")]
        assert store.list()
        assert store.blob is not None

    assert effects(sim, read) == Counter()


def test_a_journal_past_its_limit_is_not_checkpointed_inside_an_append(sim: Sim) -> None:
    player = Player(sim.host, World())
    player.create("s")
    for _ in range(4):
        player.append("s", 400_000)
    writer = player.writers["s"]
    assert effects(sim, lambda: writer.append(draft(999), durable=True)) == DURABLE
