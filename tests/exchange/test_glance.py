"""A listing that glances at sessions says what reading each says, whatever they are and whatever befell them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentsession_cas import Store, entry
from agentsession_cas.core.framing import decode_head
from agentsession_cas.errors import AgentSessionError, Damaged
from agentsession_cas.sessions.journal import HEAD_NAME, JOURNAL_NAME
from agentsession_cas.sessions.listing import Summary, glance, summarise
from agentsession_cas.sessions.opening import HEADER_NAME
from agentsession_cas.testing.simfs import Sim

FILES = (HEADER_NAME, HEAD_NAME, JOURNAL_NAME, "log-0", "log-1", "log-1.packed", "log-2.packed")


def read_whole(store: Store, session: str) -> Summary | type[AgentSessionError]:
    """The summary out of all rows of a session, or the class of what is wrong with it."""
    try:
        found = store.snapshot(session)
        with closing(found.source):
            for number in range(len(found.source.table)):
                found.source.table.row(number)
            return summarise(store.layout.host.fs, store.layout.session_dir(session), found)
    except AgentSessionError as error:
        return type(error)


def glanced(store: Store, session: str) -> Summary | None:
    """What a glance alone says."""
    return glance(store.layout.host.fs, store.objects, store.layout.session_dir(session))


def make(store: Store, name: str, chance: Random) -> None:
    """A session that grew, was checkpointed, settled, named, continued, moved, by chance."""
    settle = False
    ids: list[str] = []
    bases = [each for each in store.list() if each.head]
    if bases and chance.random() < 0.3:
        base = chance.choice(bases)
        store.fork(base.id, base.head, id=name).close()
    else:
        store.create(id=name, cwd=f"/p{chance.randrange(2)}").close()
    for _ in range(chance.randrange(4)):
        with store.open_session(name) as session:
            for at in range(chance.choice((0, 1, 3, 40))):
                ids.append(session.append(entry.user(f"{name} {at}"), durable=False).id)
            if chance.random() < 0.4:
                session.append(entry.info(f"name {chance.random()}"))
            if ids and chance.random() < 0.2:
                session.set_head(session.leaf, chance.choice(ids))
            if chance.random() < 0.4:
                session.checkpoint()
        settle = settle or chance.random() < 0.3
    if settle:
        store.repack()


def harm(store: Store, name: str, chance: Random) -> None:
    """One file of a session flipped, cut, lengthened or gone."""
    path = Path(store.layout.session_dir(name)) / chance.choice(FILES)
    if not path.exists():
        return
    data = bytearray(path.read_bytes())
    at = chance.randrange(min(len(data), 9000)) if data else 0
    kind = chance.randrange(4)
    if kind == 0 and data:
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        data += chance.randbytes(70)
    path.chmod(0o600)
    path.unlink()
    if kind != 3:
        path.write_bytes(data)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_a_listing_is_what_reading_each_session_says(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Where a session reads, the same; where it does not, told of, or as it was: a glance reads no log."""
    chance = Random(seed)
    names = [f"s{number}" for number in range(5)]
    with Store.open(tmp_path_factory.mktemp("st") / "st", create=True) as store:
        for name in names:
            make(store, name, chance)
        before = {name: read_whole(store, name) for name in names}
        assert {each.id: each for each in store.list()} == before
        for name in names:
            if chance.random() < 0.6:
                harm(store, name, chance)
        heard: dict[str, AgentSessionError] = {}
        listed = {each.id: each for each in store.list(on_damage=lambda name, error: heard.update({name: error}))}
        for name in names:
            whole, was = read_whole(store, name), before[name]
            assert (name in listed) != (name in heard)
            if isinstance(whole, Summary):
                assert listed[name] == whole
            elif name in listed:
                assert isinstance(was, Summary)
                assert said(listed[name]) == said(was)


def said(summary: Summary) -> tuple[str, ...]:
    """What a summary has of the history alone."""
    return (summary.name, summary.head, str(summary.entries), summary.superseded_by, summary.mark)


@pytest.fixture
def settled(tmp_path: Path) -> Store:
    """One session at rest, whose log is packed."""
    store = Store.open(tmp_path / "st", create=True)
    with store.create(id="s") as session:
        for at in range(40):
            session.append(entry.user(f"{at}"), durable=False)
    store.repack()
    return store


def test_a_session_at_rest_is_told_without_its_log(settled: Store) -> None:
    """The log's bytes are not looked at, only that it is there."""
    expected = read_whole(settled, "s")
    (log,) = Path(settled.layout.session_dir("s")).glob("log-*")
    data = log.read_bytes()
    log.chmod(0o600)
    log.write_bytes(bytes(len(data)))
    assert glanced(settled, "s") == expected
    log.unlink()
    assert glanced(settled, "s") is None
    heard: dict[str, AgentSessionError] = {}
    assert settled.list(on_damage=lambda name, error: heard.update({name: error})) == []
    assert type(heard["s"]) is Damaged


@pytest.fixture(params=[0, 33])
def appended(tmp_path: Path, request: pytest.FixtureRequest) -> Store:
    """One session as appending left it, some of it behind a checkpoint or all."""
    store = Store.open(tmp_path / "st", create=True)
    with store.create(id="s") as session:
        session.append_batch([entry.user(f"{at}") for at in range(request.param)])
        session.checkpoint()
        for at in range(40):
            session.append(entry.user(f"{at}" * 99), durable=at % 9 == 0)
    return store


def test_a_long_journal_is_told_without_its_frames(appended: Store) -> None:
    """They are not looked at where HEAD tells how they end; where a frame follows, all of them are."""
    expected = read_whole(appended, "s")
    assert isinstance(expected, Summary)
    path = Path(appended.layout.session_dir("s")) / JOURNAL_NAME
    data = path.read_bytes()
    hint = decode_head((path.parent / HEAD_NAME).read_bytes())
    assert hint is not None
    spoilt = bytearray(data)
    spoilt[2 * 4096 : hint.last] = bytes(hint.last - 2 * 4096)
    path.write_bytes(spoilt)
    found = glanced(appended, "s")
    assert found is not None
    assert said(found) == said(expected)
    spoilt[hint.end + 1 : hint.end + 9] = hint.salt
    path.write_bytes(spoilt)
    assert glanced(appended, "s") is None
    path.write_bytes(data[: hint.end - 1])
    assert glanced(appended, "s") is None


def test_a_head_of_an_earlier_release_is_a_witness_too(appended: Store) -> None:
    """It ends before what tells of the journal's end."""
    expected = glanced(appended, "s")
    assert isinstance(expected, Summary)
    path = Path(appended.layout.session_dir("s")) / HEAD_NAME
    path.write_bytes(path.read_bytes()[:64])
    found = glanced(appended, "s")
    assert found is not None
    assert said(found) == said(expected)


def without(store: Store) -> None:
    (Path(store.layout.session_dir("s")) / HEAD_NAME).unlink()


def other(store: Store) -> None:
    path = Path(store.layout.session_dir("s")) / HEAD_NAME
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("spoil", [without, other])
def test_no_witness_is_no_glance(settled: Store, spoil: Callable[[Store], None]) -> None:
    """The head is then read from the log, as it was."""
    expected = read_whole(settled, "s")
    assert isinstance(expected, Summary)
    spoil(settled)
    assert glanced(settled, "s") is None
    (found,) = settled.list()
    assert said(found) == said(expected)


def test_a_writer_beside_is_seen(tmp_path: Path) -> None:
    """What was appended and not committed is in the listing, as in every reading."""
    with Store.open(tmp_path / "st", create=True) as store, store.create(id="s") as session:
        for at in range(5):
            session.append(entry.user(f"{at}"), durable=False)
            (found,) = store.list()
            assert (found.entries, found.head) == (at + 1, session.leaf)


def test_a_name_in_the_journal_is_told_at_a_glance(tmp_path: Path) -> None:
    """Behind rows that a checkpoint put into the log."""
    with Store.open(tmp_path / "st", create=True) as store:
        with store.create(id="s") as session:
            for at in range(40):
                session.append(entry.user(f"{at}"), durable=False)
            session.checkpoint()
            session.append(entry.info("its name"))
        found = glanced(store, "s")
        assert found is not None
        assert found.name == "its name"
        assert found == read_whole(store, "s")


@pytest.mark.parametrize("rows", [31, 32, 40])
def test_a_name_directly_behind_a_checkpoint_is_told_at_a_glance(tmp_path: Path, rows: int) -> None:
    """It hangs from a row that lies in the log, or in the journal's tail."""
    with Store.open(tmp_path / "st", create=True) as store:
        with store.create(id="s") as session:
            session.append_batch([entry.user(f"{at}") for at in range(rows)])
            session.checkpoint()
            session.append(entry.info(name="called"))
        assert [each.name for each in store.list()] == ["called"]


# --- power cuts ------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_after_a_power_cut_a_glance_says_what_reading_says(seed: int) -> None:
    """What is appended while a sync is under way is not of it: HEAD must tell of no head that may yet be lost."""
    chance = Random(seed)
    sim = Sim(seed=seed, sector=chance.choice((512, 4096)))
    with Store.open("/st", create=True, host=sim.host, background=False) as store:
        session = store.create(id="s")
        ids = [session.append(entry.user("first"), durable=True).id]

        def meanwhile(kind: str, path: str) -> None:
            if kind == "sync" and path.endswith("/s/journal") and chance.random() < 0.8:
                act(chance.randrange(5), durable=False)

        def act(kind: int, *, durable: bool) -> None:
            if kind == 0:
                session.set_head(store.read("s").leaf, chance.choice(ids), durable=durable)
            elif kind == 1:
                session.append(entry.info(f"name {chance.random()}"), durable=durable)
            else:
                ids.append(session.append(entry.user("x" * chance.choice((1, 5000))), durable=durable).id)

        for _ in range(chance.randrange(1, 9)):
            sim.watch(meanwhile)
            if chance.random() < 0.1:
                session.checkpoint()
            else:
                act(chance.randrange(5), durable=chance.random() < 0.5)
            sim.watch(None)
            for image in sim.images(24, tear=True):
                with Store.open("/st", host=image.host, background=False, read_only=True) as left:
                    assert glanced(left, "s") in (None, read_whole(left, "s"))
        session.close()


def test_appended_during_a_sync_and_lost_is_in_no_listing_and_no_finding() -> None:
    """Nor once another entry has its row, of which HEAD does not tell."""
    sim = Sim()
    with Store.open("/st", create=True, host=sim.host, background=False) as store:
        session = store.create(id="s")

        def meanwhile(kind: str, path: str) -> None:
            if kind == "sync" and path.endswith("/s/journal"):
                sim.watch(None)
                session.append(entry.user("lost"), durable=False)

        sim.watch(meanwhile)
        kept = session.append(entry.user("kept"), durable=True).id
        lost = session.leaf
        images = list(sim.images(30))
    seen = set()
    for image in images:
        with Store.open("/st", host=image.host, background=False) as left:
            (found,) = left.list()
            assert found.head == left.read("s").leaf
            seen.add(found.head)
            if found.head == kept:
                left.open_session("s").append(entry.user("in its place"), durable=False)
                assert {each.severity for each in left.fsck().findings} <= {"note"}
    assert seen == {kept, lost}
