"""The asyncio twin: the same names, one sync for many appends, and nothing lost or doubled by a cancelled wait."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from errno import EIO
from pathlib import Path
from typing import Any

import pytest

import agentsession_cas
from agentsession_cas import aio, entry
from agentsession_cas.effects.memory import memory_host
from agentsession_cas.errors import (
    AgentSessionError,
    BadEntry,
    BadInput,
    Closed,
    DiskError,
    NoSession,
    NoStore,
    SessionLocked,
    WriterPoisoned,
)
from agentsession_cas.sessions.follow_changes import Appended, Snapshot
from agentsession_cas.testing.delayed import delayed
from agentsession_cas.testing.simfs import Sim

Program = Callable[[], Coroutine[Any, Any, None]]


def run(program: Program) -> None:
    """Run a program, which has a minute."""
    asyncio.run(asyncio.wait_for(program(), 60))


class Gate:
    """A host in memory whose journal syncs are counted, and wait while the gate is shut."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()
        self.syncs = 0
        self.host = delayed(memory_host(), self._before_sync)

    def _before_sync(self, path: str) -> None:
        if path.endswith("/journal"):
            self.syncs += 1
            self.reached.set()
            assert self.open.wait(60)

    def shut(self) -> None:
        """From now on syncs wait."""
        self.open.clear()
        self.reached.clear()

    async def wait(self) -> None:
        """Until a sync waits at the gate."""
        await asyncio.to_thread(self.reached.wait, 60)


# --- the surface ------------------------------------------------------------------------------------------------------

INTERNAL = {"layout", "objects", "refs", "snapshot", "accept", "accepted", "settle", "call_on_change"}
"""What a twin has no use for: the parts a store is made of, and the halves of an append."""


@pytest.mark.parametrize(
    ("twin", "kind"),
    [
        (aio.Store, agentsession_cas.Store),
        (aio.Session, agentsession_cas.Session),
        (aio.SessionWriter, agentsession_cas.SessionWriter),
    ],
)
def test_every_name_of_the_library_has_its_twin(twin: type, kind: type) -> None:
    names = {name for name in dir(kind) if not name.startswith("_")} - INTERNAL
    if twin is aio.Session:
        names -= {"append", "append_batch", "record_response", "branch", "reset_leaf"}  # a session that was read
    assert names - set(dir(twin)) == set()


def test_parameters_are_the_library_s() -> None:
    """Of those written by hand; the others are made of the library's own."""
    for twin, kind in ((aio.Store, agentsession_cas.Store), (aio.SessionWriter, agentsession_cas.SessionWriter)):
        for name in sorted(each for each in vars(twin).keys() & set(dir(kind)) if not each.startswith("_")):
            method = getattr(twin, name)
            if inspect.isfunction(method) or inspect.ismethod(method):
                theirs = inspect.signature(getattr(kind, name)).parameters
                ours = inspect.signature(method).parameters
                assert list(ours) == list(theirs), name
                assert [each.default for each in ours.values()] == [each.default for each in theirs.values()], name


def test_a_program(tmp_path: Path) -> None:
    """Create, append, ask, read, list, refs, fork, project, delete: what the library says, the twin says."""

    async def program() -> None:
        with pytest.raises(NoStore):
            await aio.Store.open(tmp_path / "st")
        async with aio.Store.open(tmp_path / "st", create=True) as store:
            async with store.create(id="one", cwd="/work") as session:
                await session.append(entry.config(model="m"))
                first = await session.append(entry.user("hi"), durable=True)
                both = await session.append_batch([entry.assistant("hello"), entry.info("A name")])
                assert (first.durable, [each.durable for each in both]) == (True, [False, False])
                assert (session.leaf, len(session), await session.name) == (both[1].id, 4, "A name")
                assert [each.id async for each in session] == [each.id for each in await session.path()]
                request = (await session.context()).request()
                response = {"id": "r", "model": "m", "status": "completed", "output": [], "usage": {}}
                answer = await session.record_response(request, response, latency_ms=3)
                await session.verify(answer[-1].id)
                await session.branch(first.id)
                assert session.leaf == first.id
                assert await session.set_head(first.id, answer[-1].id, durable=True)
                assert await session.checkpoint()
                async with store.continue_session(session, cwd="/else") as successor:
                    assert (await session.superseded_by, successor.header.parent_session) == (successor.id, "one")
            async with store.fork("one", first.id, id="two") as fork:
                assert await fork.is_prefix(first.id)
                assert not fork.is_mirror
            async with store.session_for("main", cwd="/work") as named:
                id_ = named.id
            assert (await store.resolve_ref("main")).session == id_
            assert len([each async for each in store.ref_log("main")]) == 1
            seen = await store.read("one")
            assert [each.type for each in await seen.path()][:2] == ["config", "item"]
            assert {each.id for each in await store.list(cwd="/work")} == {"one", id_}
            await store.project("one", tmp_path / "one.jsonl")
            assert await store.put_blob(b"x")
            assert (await store.fsck()).ok
            await store.delete("two")
            assert not await store.holds("two")
        with pytest.raises(Closed):
            await store.list()
        assert agentsession_cas.read_file(tmp_path / "one.jsonl").leaf == seen.leaf

    run(program)


def test_handles_outlive_their_store() -> None:
    """They do nothing any more but let go."""

    async def program() -> None:
        store = await aio.Store.memory()
        session, changes = await store.create(id="s"), store.follow("s")
        await session.append(entry.user("a"))
        await anext(changes)
        await store.close()
        await store.close()
        for call in (lambda: session.append(entry.user("b")), session.commit, session.context, changes.take):
            with pytest.raises(Closed):
                await call()
        await session.close()
        await session.close()
        await changes.close()

    run(program)


@pytest.mark.parametrize("wrong", [None, -5, b"x", "", {}, object()])
def test_wrong_values_are_the_library_s_errors(wrong: Any) -> None:
    async def program() -> None:
        async with aio.Store.memory() as store, store.create(id="held") as session:
            for call in (
                lambda: store.read(wrong),
                lambda: store.open_session(wrong),
                lambda: store.open_session("held", wrong),
                lambda: store.delete("held", wrong),
                lambda: store.fork("held", wrong),
                lambda: store.follow("held", wrong or "x").take(),
                lambda: session.append(wrong),
                lambda: session.append_batch(wrong if wrong != {} else None),  # type: ignore[arg-type]
                lambda: session.set_head(wrong, wrong or "x"),
                lambda: session.entry(wrong),
            ):
                with pytest.raises(AgentSessionError):
                    await call()
            assert len(session) == 0

    run(program)


# --- group commit -----------------------------------------------------------------------------------------------------


def test_a_hundred_tasks_need_one_sync_for_five_appends_at_most() -> None:
    """Durable appends to ten sessions, counted on the simulated disk."""
    sim = Sim()

    async def program() -> None:
        async with aio.Store.open("/store", create=True, host=sim.host) as store:
            sessions = [await store.create(id=f"s{number}") for number in range(10)]
            sim.log.clear()

            async def work(task: int) -> None:
                for turn in range(10):
                    result = await sessions[task % 10].append(entry.user(f"{task}.{turn}"), durable=True)
                    assert result.durable

            await asyncio.gather(*map(work, range(100)))
            syncs = sum(effect.kind == "sync" and effect.path.endswith("/journal") for effect in sim.log)
            assert 10 <= syncs <= 1000 / 5
            for session in sessions:
                said = [each.body["item"]["content"][0]["text"] async for each in session]
                assert len(said) == len(set(said)) == 100
                for task in range(100):  # each task's own in its order
                    own = [each for each in said if each.split(".")[0] == str(task)]
                    assert own == sorted(own)
                await session.close()

    run(program)
    for image in sim.images(2):
        store = agentsession_cas.Store.open("/store", host=image.host)
        assert sum(len(store.read(f"s{number}")) for number in range(10)) == 1000


def test_what_came_while_a_sync_ran_shares_the_next_one() -> None:
    gate = Gate()

    async def program() -> None:
        async with aio.Store.open("/store", create=True, host=gate.host) as store, store.create() as session:
            gate.syncs = 0
            gate.shut()
            first = asyncio.create_task(session.append(entry.user("first"), durable=True))
            await gate.wait()
            later = [asyncio.create_task(session.append(entry.user(str(n)), durable=True)) for n in range(20)]
            commits = [asyncio.create_task(session.commit()) for _ in range(3)]
            assert await store.list()  # the disk is busy, and nothing else waits for it
            assert not first.done()
            gate.open.set()
            await asyncio.gather(first, *later, *commits)
            assert gate.syncs == 2

    run(program)


def test_threads_that_share_a_handle_share_their_syncs() -> None:
    gate = Gate()
    with agentsession_cas.Store.open("/store", create=True, host=gate.host) as store, store.create() as session:
        gate.syncs = 0
        gate.shut()
        with ThreadPoolExecutor(9) as pool:
            first = pool.submit(session.append, entry.user("first"), True)
            gate.reached.wait(60)
            later = [pool.submit(session.append, entry.user(str(n)), True) for n in range(8)]
            while len(session) < 9:  # all are accepted, and wait for the one sync
                assert not any(each.done() for each in later)
            gate.open.set()
            assert all(each.result().durable for each in (first, *later))
        assert gate.syncs <= 3


def test_a_refusal_is_its_own() -> None:
    async def program() -> None:
        async with aio.Store.memory() as store, store.create() as session:
            told = await asyncio.gather(
                session.append(entry.user("a"), durable=True),
                session.append({"type": "nonsense"}, durable=True),
                session.append_batch([entry.user("b"), {"type": "item"}]),
                session.set_head("sha256:" + "0" * 64, ""),
                session.append(entry.user("c")),
                return_exceptions=True,
            )
            assert [isinstance(each, AgentSessionError) for each in told] == [False, True, True, True, False]
            assert isinstance(told[1], BadEntry)
            assert len(session) == 2

    run(program)


def test_a_failed_sync_fails_all_it_would_have_covered() -> None:
    sim = Sim()

    async def program() -> None:
        async with aio.Store.open("/store", create=True, host=sim.host) as store:
            session = await store.create(id="s")
            sim.fail(1, EIO, kinds=frozenset({"sync"}))
            told = await asyncio.gather(
                *(session.append(entry.user(str(n)), durable=n < 3) for n in range(4)), return_exceptions=True
            )
            assert [isinstance(each, DiskError) for each in told] == [True, True, True, False]
            with pytest.raises(WriterPoisoned):
                await session.append(entry.user("no"))
            await session.close()
            async with store.open_session("s") as session:
                await session.append(entry.user("yes"), durable=True)

    run(program)


# --- cancelled --------------------------------------------------------------------------------------------------------


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_append_landed_whole_or_not_at_all_and_says_which() -> None:
    gate = Gate()

    async def program() -> None:
        async with aio.Store.open("/store", create=True, host=gate.host) as store, store.create(id="s") as session:
            assert await session.cancelled() == []
            gate.shut()
            batch = [entry.user("in"), entry.user("flight")]
            flying = asyncio.create_task(session.append_batch(batch, durable=True))
            await gate.wait()
            queued = asyncio.create_task(session.append(entry.user("queued"), durable=True))
            refused = asyncio.create_task(session.append({"type": "nonsense"}, durable=True))
            await asyncio.sleep(0)
            for task in (flying, queued):
                await _cancel(task)
            gate.open.set()
            landed, not_landed = await session.cancelled()
            assert landed.entries is batch
            assert [each.durable for each in landed.results] == [True, True]
            assert [each.id for each in landed.results] == [each.id async for each in session]
            assert (not_landed.results, not_landed.error) == ([], None)
            assert await session.cancelled() == []
            with pytest.raises(BadEntry):
                await refused
            third = await session.append(entry.user("third"))
            assert [each.id for each in await session.path()] == [*(each.id for each in landed.results), third.id]

    run(program)


def test_a_cancelled_refusal_says_so() -> None:
    gate = Gate()

    async def program() -> None:
        async with aio.Store.open("/store", create=True, host=gate.host) as store, store.create(id="s") as session:
            gate.shut()
            tasks = [
                asyncio.create_task(session.append(each, durable=True)) for each in ({"type": "x"}, entry.user("a"))
            ]
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # the two are on their way
            tasks[1].cancel()
            await gate.wait()
            gate.open.set()
            with pytest.raises(BadEntry):
                await tasks[0]
            (left,) = await session.cancelled()
            assert len(left.results) == len(session) == 1

    run(program)


def test_a_cancelled_open_leaves_nothing_held() -> None:
    async def program() -> None:
        async with aio.Store.memory() as store:
            await (await store.create(id="s")).close()
            for _ in range(20):
                opening = asyncio.create_task(_opened(store))
                await asyncio.sleep(0)
                opening.cancel()
                await asyncio.gather(opening, return_exceptions=True)
                async with store.open_session("s", timeout_s=60) as session:
                    await session.append(entry.user("hi"))

    async def _opened(store: aio.Store) -> None:
        await store.open_session("s")

    run(program)


def test_waiting_for_a_session() -> None:
    async def program() -> None:
        async with aio.Store.memory() as store:
            session = await store.create(id="s")
            with pytest.raises(SessionLocked):
                await store.open_session("s")
            with pytest.raises(SessionLocked):
                await store.delete("s", 0.01)
            waiting = [asyncio.create_task(_hold(store)) for _ in range(20)]  # more than there are threads
            await asyncio.sleep(0.01)
            assert await store.holds("s")
            await session.close()
            await asyncio.gather(*waiting)

    async def _hold(store: aio.Store) -> None:
        async with store.open_session("s", timeout_s=60) as session:
            await session.append(entry.user("mine"))

    run(program)


# --- follow -----------------------------------------------------------------------------------------------------------


def test_follow() -> None:
    async def program() -> None:
        async with aio.Store.memory() as store, store.create(id="s") as session:
            first = await session.append(entry.user("a"))
            told: list[str] = []
            began = asyncio.Event()

            async def listen() -> None:
                async with store.follow("s") as changes:
                    async for change in changes:
                        told.append(change.head)
                        began.set()
                        assert changes.session is not None
                        assert [each.id for each in await changes.session.path(change.head)][-1] == change.head
                        if len(told) == 50:
                            return

            listening = asyncio.create_task(listen())
            await began.wait()
            for number in range(49):
                await session.append(entry.user(str(number)), durable=number % 7 == 0)
                if number == 20:
                    await session.checkpoint()
            await listening
            assert told == [first.id, *[each.id async for each in session][1:]]

    run(program)


def test_a_cancelled_take_passes_nothing_over() -> None:
    async def program() -> None:
        async with aio.Store.memory() as store, store.create(id="s") as session, store.follow("s") as changes:
            assert isinstance(await changes.take(), Snapshot)
            told: list[str] = []
            ids = []
            for number in range(30):
                taking = asyncio.create_task(changes.take())
                for _ in range(number % 4):
                    await asyncio.sleep(0)
                taking.cancel()
                ids.append((await session.append(entry.user(str(number)))).id)
                for each in await asyncio.gather(taking, return_exceptions=True):
                    if isinstance(each, Appended):
                        told.append(each.entry.id)
            while (change := await changes.take(0)) is not None:
                assert isinstance(change, Appended)
                told.append(change.entry.id)
            assert told == ids

    run(program)


def test_the_end_of_a_follow() -> None:
    async def program() -> None:
        async with aio.Store.memory() as store:
            with pytest.raises(NoSession):
                await store.follow("s").take()
            with pytest.raises(BadInput):
                await store.follow("s", "x").take()
            session = await store.create(id="s")
            one, two = store.follow("s"), store.follow("s", committed=True)
            cursor = (await anext(one)).cursor
            await anext(two)
            waiting = asyncio.create_task(anext(one))
            ending = asyncio.create_task(two.take())
            await asyncio.sleep(0)
            await two.close()
            assert await ending is None
            assert [each async for each in two] == []
            await session.close()
            await store.delete("s")
            with pytest.raises(NoSession):
                await waiting
            async with store.create(id="s"), store.follow("s", cursor) as again:
                with pytest.raises(NoSession):
                    await again.take()

    run(program)
