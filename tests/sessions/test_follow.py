"""Following a session (store.md A7), sentence by sentence."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.core.header import FORMAT, new_header
from agentsession_cas.effects.host import SystemClock
from agentsession_cas.effects.memory import memory_host
from agentsession_cas.errors import BadEntry, BadInput, Closed, NoSession, ReadOnly
from agentsession_cas.sessions import wake
from agentsession_cas.sessions.follow import Follower
from agentsession_cas.sessions.follow_changes import Appended, Change, Head, Reset, Snapshot
from agentsession_cas.sessions.handle import SessionWriter
from agentsession_cas.testing.simfs import Sim
from tests.helpers.engine import EARLIER
from tests.helpers.stores import opened


def rest(follower: Follower) -> list[Change]:
    """What there is to tell now."""
    return list(iter(lambda: follower.take(0), None))


def ids(changes: list[Change]) -> list[str]:
    """The entries appended."""
    return [change.entry.id for change in changes if isinstance(change, Appended)]


def own(change: Change) -> list[str]:
    """The own entries of a change's session, in log order."""
    source = change.session.source
    return [source.entry_id(at) for at in range(source.base_count, len(source))]


def say(session: SessionWriter, text: str = "hi", *, durable: bool = False) -> str:
    """Append a message; its id."""
    return session.append(entry.user(text), durable).id


@pytest.fixture
def store() -> Store:
    return Store.memory()


@pytest.fixture
def session(store: Store) -> Iterator[SessionWriter]:
    """A session ``s``, held; checkpoints are the test's."""
    with store.create(id="s") as session:
        yield session


# --- changes ----------------------------------------------------------------------------------------------------------


def test_first_a_snapshot_then_each_change_in_log_order_on_every_branch(store: Store, session: SessionWriter) -> None:
    first, second = say(session), say(session)
    with store.follow("s") as follower:
        (snapshot,) = rest(follower)
        assert isinstance(snapshot, Snapshot)
        assert (own(snapshot), snapshot.head) == ([first, second], second)

        third = say(session)
        branch = session.append(entry.user("other").at(parent=first)).id
        session.set_head(third, first)
        fourth = say(session)
        changes = rest(follower)
        assert ids(changes) == [third, branch, fourth]
        assert [(change.kind, change.head) for change in changes] == [
            ("appended", third),
            ("appended", third),
            ("head", first),
            ("appended", fourth),
        ]
        assert isinstance(changes[2], Head)
        assert rest(follower) == []


def test_the_follower_s_session_keeps_up(store: Store, session: SessionWriter) -> None:
    """It holds what was told and, of a batch, no more than that; it answers what any session does."""
    with store.follow("s") as follower:
        seen = next(follower).session
        told = [each.id for each in session.append_batch([entry.user("a"), entry.user("b"), entry.info("name")])]
        for count, id_ in enumerate(told, 1):
            change = follower.take(0)
            assert change is not None
            assert change.session is seen
            assert (len(seen), seen.leaf, seen.path()[-1].id) == (count, id_, id_)
        assert seen.name == "name"
        for number in range(40):
            say(session, str(number))
            session.checkpoint()
        assert len(ids(rest(follower))) == 40
        assert [each.id for each in seen] == [each.id for each in session]
        assert seen.context().items == session.context().items
        with pytest.raises(ReadOnly):
            seen.append(entry.user("no"))


def test_a_fork_is_followed_with_its_prefix(store: Store, session: SessionWriter) -> None:
    base = say(session)
    with store.fork("s", base, id="f") as fork, store.follow("f") as follower:
        snapshot = next(follower)
        assert (own(snapshot), snapshot.head, len(snapshot.session)) == ([], base, 1)
        below = say(fork)
        fork.checkpoint()
        assert ids(rest(follower)) == [below]
        assert [each.id for each in snapshot.session.path()] == [base, below]


def test_a_label_and_a_refusal(store: Store, session: SessionWriter) -> None:
    """A leaf label is an entry and moves the head; what was refused is never seen."""
    first, second = say(session), say(session)
    with store.follow("s") as follower:
        next(follower)
        label = session.append(entry.leaf_label(first)).id
        with pytest.raises(BadEntry):
            session.append_batch([entry.user("x"), {"type": "nonsense"}])
        (change,) = rest(follower)
        assert isinstance(change, Appended)
        assert (change.entry.id, change.head) == (label, first)
        assert change.session.leaf == first != second


def test_frames_of_every_length(store: Store, session: SessionWriter) -> None:
    """Also longer than what is read at once, and several that came between two looks."""
    with store.follow("s") as follower:
        next(follower)
        for sizes in ((10, 4000, 70_000), (200_000,), (65_000, 65_000, 65_000), (400_000, 10)):
            told = [say(session, "x" * size, durable=size % 3 == 0) for size in sizes]
            assert ids(rest(follower)) == told


def test_a_header_that_is_raised_is_seen() -> None:
    store = Store.memory()
    header = new_header(id="s", created_at="2026-01-01T00:00:00Z", format=EARLIER)
    store.import_file(header.line + b"\n", as_record=True)
    with store.follow("s") as follower, store.open_session("s") as session:
        assert next(follower).session.header.format == EARLIER
        say(session)
        (change,) = rest(follower)
        assert change.session.header.format == FORMAT


# --- cursors ----------------------------------------------------------------------------------------------------------


def test_every_cursor_resumes_behind_its_change(store: Store, session: SessionWriter) -> None:
    """From the log, the rows past its whole blocks, and the journal; by whoever holds the session now."""
    with store.follow("s") as follower:
        changes = rest(follower)
        for number in range(70):
            say(session, str(number))
            if number in (20, 40, 66):
                session.checkpoint()
            if number % 9 == 0:
                session.branch(session.path()[0].id)
        changes += rest(follower)
    told = [(change.kind, change.head) for change in changes]
    assert len(told) == 1 + 70 + 7
    for number in range(0, len(changes), 3):
        with store.follow("s", changes[number].cursor) as again:
            later = rest(again)
            assert [(change.kind, change.head) for change in later] == told[number + 1 :]
            assert not later or own(later[-1]) == [each.id for each in session]


def test_a_cursor_outlives_writers_and_readers(tmp_path: Path) -> None:
    cursor = None
    told: list[str] = []
    for turn in range(4):
        with Store.open(tmp_path / "st", create=True) as store:
            with store.create(id="s") if turn == 0 else store.open_session("s") as session:
                told += [say(session, f"{turn}.{n}") for n in range(3)]
            with store.follow("s", cursor) as follower:
                changes = rest(follower)
                assert isinstance(changes[0], Appended if turn else Snapshot)
                assert (own(changes[0])[-3:] if turn == 0 else ids(changes)) == told[-3:]
                cursor = changes[-1].cursor


def test_a_cursor_of_another_session_of_that_id_is_no_session(store: Store, session: SessionWriter) -> None:
    say(session)
    with store.follow("s") as follower:
        cursor = next(follower).cursor
    session.close()
    store.delete("s")
    with store.create(id="s") as session:
        say(session)
        follower = store.follow("s", cursor)
        with pytest.raises(NoSession):
            next(follower)
        assert list(follower) == []


def test_a_cursor_of_another_log_is_a_reset(store: Store, session: SessionWriter) -> None:
    say(session)
    with store.follow("s") as follower:
        version, birth, _, *others = next(follower).cursor.split("-")
    with store.follow("s", "-".join((version, birth, "7", *others))) as follower:
        (change,) = rest(follower)
        assert isinstance(change, Reset)
        assert own(change) == [each.id for each in session]


@dataclass
class Crash:
    """A machine whose power failed: what was not durable is gone."""

    sim: Sim = field(default_factory=Sim)

    def __post_init__(self) -> None:
        self.store = opened(self.sim.host, create=True)

    def cut(self) -> None:
        """Go on with a disk that lost all it could lose."""
        _, self.sim = list(self.sim.images(2))
        self.store = opened(self.sim.host)


@pytest.mark.parametrize("again", [0, 1, 2, 3])
def test_what_a_crash_took_back_is_a_reset(again: int) -> None:
    """Whether nothing, less, as much or more came in its place."""
    machine = Crash()
    session = machine.store.create(id="s")
    kept = say(session, durable=True)
    follower = machine.store.follow("s")
    next(follower)
    lost = [say(session, "lost"), say(session, "too")]
    cursors = [change.cursor for change in rest(follower)]
    machine.cut()
    with machine.store.open_session("s") as session:
        came = [say(session, f"new {n}") for n in range(again)]
        for cursor in cursors:
            (change,) = rest(machine.store.follow("s", cursor))
            assert isinstance(change, Reset)
            assert own(change) == [kept, *came]
            assert change.head == [kept, *came][-1]
            assert change.session.source.find(lost[0]) < 0


def test_another_entry_on_another_branch_is_a_reset_though_the_last_one_is_the_same() -> None:
    """An entry's id vouches for its path alone; what was told of other branches counts too."""
    machine = Crash()
    session = machine.store.create(id="s")
    first = say(session, durable=True)
    follower = machine.store.follow("s")
    next(follower)
    drafts = [entry.user(text).at(parent=first, ts="2026-01-02T00:00:00Z") for text in ("lost", "same", "other")]
    for draft in drafts[:2]:
        session.append(draft)
    cursor = rest(follower)[-1].cursor
    machine.cut()
    with machine.store.open_session("s") as session:
        for draft in (drafts[2], drafts[1]):
            session.append(draft)
        changes = rest(machine.store.follow("s", cursor))
        assert isinstance(changes[0], Reset)


_ZEROS = "0" * 32


@pytest.mark.parametrize(
    "text",
    ["", "x", 5, b"1", "1-2-3", "2" + "-0" * 5, f"1-{_ZEROS}-0-1-2-{_ZEROS}", f"1-{_ZEROS}-٣-1-0-{_ZEROS}"],
)
def test_what_is_no_cursor_is_refused_at_once(store: Store, session: SessionWriter, text: Any) -> None:
    with pytest.raises(BadInput, match="cursor") as refused:
        store.follow("s", text)
    assert refused.value.next_step.startswith("give one that a change carried")


# --- committed --------------------------------------------------------------------------------------------------------


def test_committed_tells_only_what_is_committed(store: Store, session: SessionWriter) -> None:
    first = say(session, durable=True)
    second = say(session)
    with store.follow("s", committed=True) as follower:
        (snapshot,) = rest(follower)
        assert (own(snapshot), snapshot.head) == ([first], first)
        third = say(session)
        assert rest(follower) == []
        session.commit()
        changes = rest(follower)
        assert ids(changes) == [second, third]
        assert own(changes[-1]) == [first, second, third]
        fourth, fifth = say(session), say(session, durable=True)
        sixth = say(session)
        assert ids(rest(follower)) == [fourth, fifth]
        session.checkpoint()
        assert ids(rest(follower)) == [sixth]
        say(session)
        assert rest(store.follow("s", changes[-1].cursor, committed=True))[-1].head == sixth


def test_a_cursor_past_what_is_committed_waits_for_it(store: Store, session: SessionWriter) -> None:
    say(session, durable=True)
    seeing = store.follow("s")
    next(seeing)
    second = say(session)
    (change,) = rest(seeing)
    third = say(session)
    with store.follow("s", change.cursor, committed=True) as follower:
        assert rest(follower) == []
        session.commit()
        assert ids(rest(follower)) == [third] != [second]


# --- beside -----------------------------------------------------------------------------------------------------------


def test_it_takes_no_lock_and_writes_nothing() -> None:
    """Beside a writer of another process, on a disk that it may not write to."""
    sim = Sim()
    store = opened(sim.host, create=True)
    session = store.create(id="s")
    watching = Store.open("/store", host=sim.process("p2"), read_only=True)
    for committed in (False, True):
        follower = watching.follow("s", committed=committed)
        next(follower)
        for number in range(3):
            told = say(session, str(number), durable=True)
            if number == 1:
                session.checkpoint()
            sim.log.clear()
            sim.read_only()
            assert ids(rest(follower)) == [told]
            assert sim.log == []
            sim.heal()


def test_a_deleted_session_ends_it_and_no_successor_is_followed(store: Store, session: SessionWriter) -> None:
    say(session)
    seeing, late = store.follow("s"), store.follow("s")
    assert next(seeing)
    assert next(late)
    session.close()
    store.delete("s")
    with pytest.raises(NoSession):
        next(seeing)
    assert list(seeing) == []
    with store.create(id="s") as other:
        say(other)
        for _ in range(2):
            with pytest.raises(NoSession) if late is not seeing else pytest.raises(StopIteration):
                next(late)
            late = seeing
    with pytest.raises(NoSession):
        store.follow("nobody")


# --- waiting ----------------------------------------------------------------------------------------------------------


class Patient(SystemClock):
    """A clock on which a wait ends only when something happens."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for the event, whatever the time."""
        assert event.wait(60.0), "nobody woke it"
        return True


def patient() -> Store:
    """A store in memory whose followers hear of everything or never return."""
    return Store.open("/patient", create=True, host=replace(memory_host(), clock=Patient()), background=False)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("committed", [False, True])
def test_a_writer_of_the_same_process_wakes_it_at_once(durable: bool, committed: bool) -> None:
    store = patient()
    with (
        store.create(id="s") as session,
        store.follow("s", committed=committed) as follower,
        ThreadPoolExecutor(1) as pool,
    ):
        session.commit()
        first = say(session, durable=True)
        assert next(follower).head == first
        for turn in range(20):
            waiting = pool.submit(next, follower)
            told = say(session, str(turn), durable=durable)
            if committed and not durable:
                session.commit()
            change = waiting.result()
            assert isinstance(change, Appended)
            assert change.entry.id == told
        waiting = pool.submit(next, follower)
        session.set_head(session.leaf, first, durable=committed)
        assert waiting.result().head == first
        waiting = pool.submit(next, follower)
        session.close()
        store.delete("s")
        with pytest.raises(NoSession):
            waiting.result()


def test_it_polls_for_a_writer_of_another_process_ever_more_seldom() -> None:
    sim = Sim()
    store = opened(sim.host, create=True)
    session = store.create(id="s")
    follower = Store.open("/store", host=sim.process("p2"), read_only=True).follow("s")
    next(follower)
    slept: list[float] = []
    before = sim.clock.passed_ns

    def meanwhile() -> None:
        nonlocal before
        slept.append(round((sim.clock.passed_ns - before) / 1e9, 3))
        before = sim.clock.passed_ns
        if len(slept) == 7:
            say(session)

    sim.clock.on_sleep = meanwhile
    for _ in range(2):
        slept.clear()
        before = sim.clock.passed_ns
        assert isinstance(next(follower), Appended)
        assert slept == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    slept.clear()
    before = sim.clock.passed_ns
    assert follower.take(0.5) is None
    assert [round(each, 2) for each in slept] == [0.1, 0.2, 0.2]


def test_any_thread_may_end_it() -> None:
    store = patient()
    with store.create(id="s"), ThreadPoolExecutor(1) as pool:
        follower = store.follow("s")
        next(follower)
        waiting = pool.submit(list, follower)
        follower.close()
        follower.close()
        assert waiting.result() == []
        assert follower.take() is None


def test_nobody_listens_behind_one_that_ended() -> None:
    store = patient()
    store.create(id="s").close()
    with store.follow("s") as one, store.follow("s") as two:
        next(one)
        next(two)
        assert len(wake._LISTENERS[f"{store.layout.sessions}/s"]) == 2
        store.delete("s")
        with pytest.raises(NoSession):
            next(two)
    assert f"{store.layout.sessions}/s" not in wake._LISTENERS


def test_a_closed_store_and_what_is_no_time(store: Store, session: SessionWriter) -> None:
    follower = store.follow("s")
    for wrong in (None, "1", math.nan):
        with pytest.raises(BadInput, match="seconds"):
            follower.take(wrong)  # type: ignore[arg-type]
    session.close()
    store.close()
    with pytest.raises(Closed):
        next(follower)


def test_a_cursor_far_behind_costs_no_more_than_a_near_one(store: Store, session: SessionWriter) -> None:
    """What is committed needs no look again: a cursor vouches for the last rows alone."""
    with store.follow("s") as follower:
        start = next(follower).cursor
        for _ in range(5):
            session.append_batch([entry.user(str(number)) for number in range(700)])
        session.checkpoint()
        *_, last = rest(store.follow("s", start))
        _, _, _, rows, since, _ = last.cursor.split("-")
        assert int(rows) == 3500
        assert 3500 - int(since) <= 1024
        told = say(session)
        assert ids(rest(store.follow("s", last.cursor))) == [told]
