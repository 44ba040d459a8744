"""Real processes on a real disk: killed in the midst of it, shut out by a lock, reading beside a writer, forked."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest

from agentsession_cas.core.tree import Session
from agentsession_cas.errors import SessionLocked
from agentsession_cas.sessions.source import RowSource
from agentsession_cas.store import Store
from tests.helpers.engine_child import BATCH, text_of

pytestmark = pytest.mark.heavy

PROJECT = Path(__file__).parents[2]
Child = subprocess.Popen[str]


@contextmanager
def child(*arguments: object) -> Iterator[Child]:
    """A process of ``engine_child``; it does not outlive the block."""
    command = [sys.executable, "-m", "tests.helpers.engine_child", *map(str, arguments)]
    process = subprocess.Popen(command, cwd=PROJECT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def heard(process: Child) -> str:
    """The next line of a process; "" at its end."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def told(process: Child) -> None:
    """Let a process go on."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@contextmanager
def reading(store: Store, session_id: str) -> Iterator[Session]:
    session = store.read(session_id)
    assert isinstance(session.source, RowSource)
    try:
        yield session
    finally:
        session.source.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with a session ``s``."""
    root = tmp_path / "store"
    with Store.open(root, create=True) as store:
        store.create(id="s").close()
    return root


def words(session: Session, position: int) -> str:
    text: str = session.source.entry(position).body["item"]["content"][0]["text"]
    return text


# --- killed -----------------------------------------------------------------------------------------------------------

SESSIONS, KILLS = 10, 5


def killed_again_and_again(root: Path, session_id: str, seed: int) -> list[str]:
    """Kill a writer of a session at some moment, and the one that takes over; the ids it was told of, in order."""
    rng = Random(seed)
    acknowledged: list[str] = []
    for _ in range(KILLS):
        with child("append", root, session_id, rng.choice((5, 11, 1000))) as process:
            assert heard(process).startswith("open")
            for _ in range(rng.randrange(1, 30)):
                acknowledged += heard(process).split()
            time.sleep(rng.random() * 0.003)  # the moment of the kill is left to chance; nothing waits for it
            process.kill()
            assert process.stdout is not None
            # what it said before it died counts, a cut line does not
            for line in process.stdout.read().splitlines(keepends=True):
                acknowledged += line.split() if line.endswith("\n") else []
    return acknowledged


def test_fifty_writers_killed_in_the_midst_lose_nothing_acknowledged(root: Path) -> None:
    names = [f"k{number}" for number in range(SESSIONS)]
    with Store.open(root) as store:
        for name in names:
            store.create(id=name).close()
        with ThreadPoolExecutor(4) as pool:
            acknowledged = list(pool.map(lambda name: killed_again_and_again(root, name, int(name[1:])), names))
        for name, ids in zip(names, acknowledged, strict=True):
            with reading(store, name) as session:
                assert len(ids) >= KILLS * BATCH
                positions = [session.position(entry_id) for entry_id in ids]
                assert positions == sorted(positions)
                assert len(session) % BATCH == 0, "a part of a batch"
                assert [words(session, at) for at in range(len(session))] == [text_of(at) for at in range(len(session))]
            store.open_session(name).close()


# --- locked -----------------------------------------------------------------------------------------------------------


def test_a_second_writer_is_told_who_holds_the_session(root: Path) -> None:
    with child("hold", root, "s") as process, Store.open(root) as store:
        assert heard(process) == "open"
        for timeout in (0.0, 0.2):
            begun = time.monotonic()
            with pytest.raises(SessionLocked) as locked:
                store.open_session("s", timeout_s=timeout)
            assert time.monotonic() - begun >= timeout
            assert locked.value.session == "s"
            assert str(process.pid) in locked.value.holder
        with pytest.raises(SessionLocked):
            store.delete("s")
        with reading(store, "s") as session:
            assert len(session) == 0


def test_a_second_writer_that_waits_gets_the_session_when_it_is_let_go(root: Path) -> None:
    with child("hold", root, "s") as process, Store.open(root) as store:
        assert heard(process) == "open"
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(store.open_session, "s", 60.0)
            told(process)
            waiting.result().close()
        assert heard(process) == "closed"


def test_the_lock_of_a_killed_holder_is_free(root: Path) -> None:
    with Store.open(root) as store:
        with child("hold", root, "s") as process:
            assert heard(process) == "open"
        store.open_session("s").close()


def test_two_handles_of_one_process_exclude_each_other_too(root: Path) -> None:
    with Store.open(root) as store, store.open_session("s"), Store.open(root) as other:
        with pytest.raises(SessionLocked):
            other.open_session("s")
        with pytest.raises(SessionLocked):
            store.open_session("s")


def test_a_forked_child_has_no_handle_and_takes_none_away(root: Path) -> None:
    with child("fork", root, "s") as process, Store.open(root) as store:
        assert heard(process) == "child 7"
        with pytest.raises(SessionLocked):
            store.open_session("s")
        told(process)
        assert heard(process) == "closed"
        with store.open_session("s") as writer:
            assert len(writer) == 2 * BATCH


# --- read beside ------------------------------------------------------------------------------------------------------


def test_a_reader_beside_a_writer_of_ten_thousand_entries_sees_whole_states(root: Path) -> None:
    count = 10_000 - 10_000 % BATCH
    seen = reads = 0
    with child("write", root, "s", count) as process, Store.open(root, read_only=True) as store:
        assert heard(process) == "open"
        while process.poll() is None or seen < count:
            with reading(store, "s") as session:
                assert len(session) >= seen
                assert len(session) % BATCH == 0, "a part of a batch"
                for at in {*range(max(0, seen - 2), min(len(session), seen + 2)), *range(0, len(session), 97)}:
                    assert words(session, at) == text_of(at)
                if len(session):
                    assert session.leaf == session.source.entry_id(len(session) - 1)
                    assert words(session, len(session) - 1) == text_of(len(session) - 1)
                seen = len(session)
                reads += 1
        assert heard(process) == "closed"
    assert seen == count
    assert reads > 5


# --- threads ----------------------------------------------------------------------------------------------------------


def test_threads_share_a_writer_while_it_checkpoints_by_itself(root: Path) -> None:
    """Past a megabyte a journal is checkpointed in a thread of its own, appends going on meanwhile."""
    with Store.open(root) as store:
        with store.open_session("s") as writer:

            def work(thread: int) -> list[str]:
                return [
                    writer.append({"type": "custom:t", "n": f"{thread}.{turn}".ljust(4000, "x")}, turn % 5 == 0).id
                    for turn in range(150)
                ]

            with ThreadPoolExecutor(4) as pool:
                ids = [each for part in pool.map(work, range(4)) for each in part]
        assert (root / "sessions" / "s" / "log-0").exists()
        with reading(store, "s") as session:
            assert {entry.id for entry in session} == set(ids)
            assert len(session.path(session.leaf)) == len(ids) == 600


def test_a_sweeper_beside_writers_that_say_what_is_being_swept(root: Path) -> None:
    """Each body is dead and alive again all the time; in the end the sessions that are left are whole."""
    rounds, names = 12, ("a", "b")
    with ExitStack() as running, Store.open(root) as store:
        children = [running.enter_context(child("churn", root, name, rounds)) for name in names]
        assert [heard(each) for each in children] == ["open"] * 2
        swept = 0
        while any(each.poll() is None for each in children):
            swept += store.sweep(0).objects
        assert [heard(each) for each in children] == ["closed"] * 2
        swept += store.sweep(0).objects
        assert swept > 0
        for name in names:
            with reading(store, f"{name}-{rounds - 1}") as session:
                texts = [each.body["item"]["content"][0]["text"] for each in session]
            assert texts == [text_of(number) for number in range(36)]
        assert store.fsck().findings == []
