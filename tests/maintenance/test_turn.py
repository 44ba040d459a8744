"""Repacks, sweeps and all who share the store come to their turn, and what one leaves is right for the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.core.packformat import Grade
from agentsession_cas.effects.host import Lock
from agentsession_cas.effects.line import is_awaited
from agentsession_cas.errors import AgentSessionError, StoreLocked
from agentsession_cas.layout import Layout
from agentsession_cas.maintenance import repack, rest, sweep, turn
from agentsession_cas.testing.simfs import Sim
from tests.helpers.stores import Lines, lines_of

COUNT = 12


def filled(store: Store) -> None:
    """Sessions not settled, one deleted, so that a sweep has something to do."""
    for at in range(COUNT):
        with store.create(id=f"s{at}") as session:
            session.append_batch([entry.user(f"{at} {n} " * 20) for n in range(9)])
    with store.create(id="gone") as session:
        session.append_batch([entry.user(f"gone {n} " * 20) for n in range(70)])
        session.checkpoint()
    store.delete("gone")


@contextmanager
def aside(work: Callable[[], object]) -> Iterator[list[object]]:
    """Work in a thread beside what is done inside; what it came to, or its error, once that is done."""
    came = list[object]()

    def tried() -> None:
        try:
            came.append(work())
        except AgentSessionError as error:
            came.append(error)

    thread = Thread(target=tried)
    thread.start()
    yield came
    thread.join()


def until(seen: Callable[[], bool]) -> None:
    pause = Event()
    while not seen():
        pause.wait(0.001)


def test_a_sweep_goes_first_between_lots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "_TURN_MAX", 2)
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        filled(store)
        lines = lines_of(store)
        began, came = Event(), list[tuple[int, int]]()

        def swept() -> int:
            began.wait()
            with Store.open(tmp_path / "store") as other:
                gone = other.sweep(0).objects
                came.append((gone, settled_in(other)))
                return gone

        def told(_done: int, _total: int) -> None:
            if not began.is_set():
                began.set()
                until(lambda: is_awaited(store.layout.host, store.layout.repack_lock))

        with aside(swept):
            report = store.repack(progress=told)
        assert report.settled == COUNT
        [(gone, settled)] = came
        assert gone == 140
        assert 0 < settled < COUNT
        assert lines_of(store) == lines
        assert store.fsck().findings == []


def settled_in(store: Store) -> int:
    return len(list(Path(store.layout.sessions).glob("*/*.packed")))


def test_a_repack_waits_for_a_sweep_when_it_is_to(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        filled(store)
        with turn.turn(store.layout) as own:
            with pytest.raises(StoreLocked, match="sweep"):
                store.repack()
            with aside(lambda: store.repack(timeout_s=60.0).settled) as came:
                until(lambda: own.awaited)
                own.end()
        assert came == [COUNT]


def test_what_begins_by_itself_does_not_begin_before_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.memory() as store:
        with store.create(id="s") as session:
            session.append_batch([entry.user(f"{n} " * 20) for n in range(80)])
            session.checkpoint()
        monkeypatch.setattr(repack, "FRESH_DUE", 1)
        stems = [pack.stem for pack in store.objects.packs()]
        line = store.layout.host.fs.lock(f"{store.layout.repack_lock}-next", exclusive=True)
        assert line is not None
        repack.tidy(store.layout, store.objects, lambda: True, thorough=True)
        assert [pack.stem for pack in store.objects.packs()] == stems
        line.release()
        repack.tidy(store.layout, store.objects, lambda: True, thorough=True)
        assert [pack.stem for pack in store.objects.packs()] != stems


def test_what_has_begun_by_itself_goes_no_further_once_somebody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came meanwhile is merged the next time."""
    with Store.memory() as store:
        session = store.create(id="s")

        def more() -> None:
            session.append_batch([entry.user(f"{len(session)} {n} " * 20) for n in range(80)])
            session.checkpoint()

        more()
        monkeypatch.setattr(repack, "FRESH_DUE", 1)
        line = list[Lock | None]()

        def goes_on() -> bool:
            if not line:
                line.append(store.layout.host.fs.lock(f"{store.layout.repack_lock}-next", exclusive=True))
                more()
            return True

        repack.tidy(store.layout, store.objects, goes_on, thorough=True)
        assert sorted(pack.grade() for pack in store.objects.packs()) == [Grade.FRESH, Grade.EVERYDAY]
        (place,) = line
        assert place is not None
        place.release()
        repack.tidy(store.layout, store.objects, goes_on, thorough=True)
        assert {pack.grade() for pack in store.objects.packs()} == {Grade.EVERYDAY}
        session.close()


def appended(store: Store) -> None:
    with store.open_session("s3") as session:
        session.append(entry.user("beside"))


def deleted(store: Store) -> None:
    if store.holds("s7"):
        store.delete("s7")


def published_again(store: Store) -> None:
    """What was deleted comes back with its objects."""
    if not store.holds("again"):
        with store.create(id="again") as session:
            session.append_batch([entry.user(f"gone {n} " * 20) for n in range(70)])
            session.checkpoint()


def published_and_swept(store: Store) -> None:
    published_again(store)
    store.sweep(0)


OTHERS: dict[str, Callable[[Store], object]] = {
    "sweep": lambda store: store.sweep(0),
    "repack": lambda store: store.repack(),
    "repack all": lambda store: store.repack(True),
    "gc": lambda store: store.gc(),
    "append": appended,
    "delete": deleted,
    "publish": published_again,
    "publish, sweep": published_and_swept,
}


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_others_do_when_they_are_let_go_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "_SESSIONS_MAX", 4)
    monkeypatch.setattr(rest, "_TURN_MAX", 3)
    sim = Sim()
    with Store.open("/store", create=True, host=sim.host, background=False) as store:
        filled(store)
        lines = lines_of(store)
    other = Store.open("/store", host=sim.process("p2"), background=False)

    def let_go_first(own: turn.Turn) -> None:
        own._lock.release()
        OTHERS[name](other)
        own._lock = turn._locked(own._layout, 1.0)

    monkeypatch.setattr(turn.Turn, "give_way", let_go_first)
    with Store.open("/store", host=sim.host, background=False) as store:
        for everything in (False, True):
            store.repack(everything)
            right(store, lines, name)
    for image in sim.images(10):
        with Store.open("/store", host=image.host, background=False) as store:
            right(store, lines, name)


def right(store: Store, lines: Lines, name: str) -> None:
    found = lines_of(store)
    assert found.pop("again", ()) is not None
    for session, own in lines.items():
        if session == "s7" and name == "delete":
            continue
        assert found[session][: len(own)] == own
    assert {each.severity for each in store.fsck().findings} <= {"note"}


# --- the store, alone and shared -------------------------------------------------------------------------------------


@pytest.mark.parametrize("polite", [True, False])
def test_who_wants_the_store_alone_gets_it_among_those_who_share_it(
    tmp_path: Path, polite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads share it in turn, so that one always does; without the line nobody else would ever have it."""
    with Store.open(tmp_path / "store", create=True) as store:
        host, root = store.layout.host, store.root
        if not polite:
            monkeypatch.setattr("agentsession_cas.layout.is_awaited", lambda *_, **__: False)
        stop, baton = Event(), [Event(), Event()]

        def share(number: int) -> None:
            layout = Layout(host, root)
            while not stop.is_set():
                with layout.shared():
                    baton[1 - number].set()
                    baton[number].wait(0.1 if polite else None)  # until the other shares it too, unless he is polite
                    baton[number].clear()

        def alone() -> bool:
            with Layout(host, root).alone(20.0 if polite else 1.0):
                return True

        with aside(lambda: share(0)), aside(lambda: share(1)):
            with aside(alone) as came:
                pass
            stop.set()
            for each in baton:
                each.set()
        assert (came == [True]) is polite


def test_a_thread_that_shares_the_store_shares_it_once_more_at_once() -> None:
    """He who waits to have it alone waits for that thread."""
    sim = Sim()
    layout = Store.open("/store", create=True, host=sim.host, background=False).layout
    line = sim.process("p2").fs.lock("/store/locks/store-next", exclusive=True)
    assert line is not None
    began = sim.clock.passed_ns
    with layout.shared(10.0):
        waited = sim.clock.passed_ns - began
        with layout.shared(0.0), layout.shared(10.0):
            assert sim.clock.passed_ns - began - waited < 1_000_000
    assert 1e9 < waited < 5e9  # and it does not wait for ever
    with pytest.raises(StoreLocked), layout.shared(0.0):
        pass
    line.release()
    with layout.shared(0.0):
        pass


def test_others_have_the_store_between_lots_of_deletions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who looks for the store at times finds it free for longer than it takes to be taken again."""
    monkeypatch.setattr(sweep, "_AT_ONCE", 1)
    sim = Sim()
    with Store.open("/store", create=True, host=sim.host, background=False) as store:
        for at in range(5):
            store.put_blob(f"nobody needs this {at}".encode())
        shared = list[float]()

        def meanwhile() -> None:
            with Layout.open(sim.process("p2"), "/store").shared(0.0):
                shared.append(sim.clock.monotonic())

        sim.clock.on_sleep = meanwhile
        assert store.sweep(0).objects == 5
        sim.clock.on_sleep = None
    assert len(shared) == 4
