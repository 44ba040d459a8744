"""Conversations as sessions: what lies in the store, crashes at every effect, several processes killed at random."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import AgentSessionError, ConversationClosed, SessionLocked
from agentsession_cas.history import Batch, CasStore, Receipt
from agentsession_cas.layout import Layout
from agentsession_cas.testing.simfs import Sim

ROOT: Final = Path(__file__).parents[2]


def _user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def _batch(name: str, size: int = 0) -> Batch:
    return Batch("c", name, [_user(name + "x" * size), {"type": "message", "role": "assistant", "content": "ok"}])


def test_a_conversation_is_a_session_like_any_other(tmp_path: Path) -> None:
    """Its messages are items, it has its name, it checks clean, it goes where sessions go."""
    with Store.open(tmp_path / "one", create=True) as store:
        history = CasStore(store)
        for name in ("a", "b"):
            history.append(_batch(name))
        (ref,) = store.list_refs("history/")
        session = store.read(ref.target.session)
        assert [each.body["item"] for each in session.path()] == history.read("c")
        assert session.header.members()["history:conversation"] == "c"
        assert store.fsck().ok
        store.project(session.id, tmp_path / "c.jsonl")
        with store.fork(session.id, session.path()[1].id) as fork:
            assert [each.body["item"]["content"] for each in fork.path()] == ["a", "ok"]
    with Store.open(tmp_path / "two", create=True) as store:
        store.import_file(tmp_path / "c.jsonl")
        assert store.fsck().ok


def test_what_is_appended_beside_it_is_read_too() -> None:
    """A conversation goes on from its head, whoever moved it."""
    store = Store.memory()
    history = CasStore(store)
    history.append(_batch("a"))
    (ref,) = store.list_refs("history/")
    with store.open_session(ref.target.session) as session:
        session.append(entry.user("by hand"))
    history.append(_batch("b"))
    by_hand = entry.user("by hand").body["item"]
    assert history.read("c") == [*_batch("a").messages, by_hand, *_batch("b").messages]


def test_clear_gives_the_session_back_and_leaves_a_sound_store() -> None:
    store = Store.memory()
    history = CasStore(store)
    history.append(_batch("a"))
    history.clear("c")
    history.clear("never written")
    assert store.session_ids() == []
    assert store.list_refs("history/") == []
    assert store.fsck().ok


def test_a_conversation_that_is_held_is_closed_and_removed_later() -> None:
    """The error says that somebody writes it; another clear removes it."""
    store = Store.memory()
    history = CasStore(store, timeout_s=0)
    history.append(_batch("a"))
    (ref,) = store.list_refs("history/")
    with store.open_session(ref.target.session):
        with pytest.raises(SessionLocked):
            history.append(_batch("b"))
        with pytest.raises(SessionLocked):
            history.clear("c")
    history.clear("c")
    with pytest.raises(ConversationClosed):
        history.append(_batch("a"))
    assert store.session_ids() == []


def _store(host: Host, *, create: bool = False) -> Store:
    layout = Layout.create(host, "/store") if create else Layout.open(host, "/store")
    return Store(layout, background=False)


@pytest.mark.heavy
def test_power_cut_at_every_effect_of_an_append() -> None:
    """A batch is there whole or not at all; its retry settles it; what has a receipt stays."""
    sim = Sim(seed=3)
    history = CasStore(_store(sim.host, create=True))
    accepted: list[Receipt] = []
    images = 0

    def look(kind: str, path: str) -> None:
        nonlocal images
        for image in sim.images(6):
            images += 1
            again = CasStore(_store(image.host))
            found = [each["content"][:1] for each in again.read("c")]
            names = "abc"[: len(found) // 2]
            assert found == [each for name in names for each in (name, "o")], f"{kind} {path}: {image.story}"
            assert len(names) >= len(accepted), f"{kind} {path}: {image.story}"
            assert [again.append(_batch(each, 5000)) for each in "abc"][: len(accepted)] == accepted
            assert [each["content"][:1] for each in again.read("c")] == list("aoboco")

    sim.watch(look)
    for name in "abc":
        accepted.append(history.append(_batch(name, 5000)))
    sim.watch(None)
    assert images >= 30


def test_power_cut_at_every_effect_of_a_clear() -> None:
    """Open as it was or closed; and closed for good once clear returned."""
    sim = Sim(seed=4)
    history = CasStore(_store(sim.host, create=True))
    history.append(_batch("a"))
    seen = set()

    def look(kind: str, path: str) -> None:
        for image in sim.images(6):
            again = CasStore(_store(image.host))
            found = again.read("c")
            try:
                again.append(_batch("a"))
            except ConversationClosed:
                assert (found, again.read("c"), again.conversations()) == ([], [], []), f"{kind} {path}: {image.story}"
                seen.add("closed")
            else:
                assert again.read("c") == found == _batch("a").messages
                seen.add("open")
            again.clear("c")
            assert again._store.session_ids() == []

    sim.watch(look)
    history.clear("c")
    sim.watch(None)
    assert seen == {"open", "closed"}
    for image in sim.images(20):
        with pytest.raises(ConversationClosed):
            CasStore(_store(image.host)).append(_batch("a"))


CHILD: Final = """
import sys
from agentsession_cas import Store
from agentsession_cas.history import Batch, CasStore
path, begin = sys.argv[1], int(sys.argv[2])
with Store.open(path) as store:
    history = CasStore(store, timeout_s=600)
    for at in range(BATCHES):
        name = f"b{(begin + at) % BATCHES}"
        batch = Batch("c", name, [{"type": "message", "role": "user", "content": name}, {"type": "x", "of": name}])
        receipt = history.append(batch)
        receipt.validate_for(batch)
        print(receipt.append_id, receipt.digest, flush=True)
"""


@pytest.mark.heavy
@pytest.mark.parametrize(("processes", "batches", "kills"), [(8, 24, 8)])
def test_processes_killed_at_random_append_each_batch_once(
    tmp_path: Path, processes: int, batches: int, kills: int
) -> None:
    """Each tries them all from another one on; who is killed begins again; every receipt is the same."""
    with Store.open(tmp_path / "store", create=True):
        pass
    draw = random.Random(5)
    code = CHILD.replace("BATCHES", str(batches))

    def started(number: int) -> subprocess.Popen[str]:
        arguments = [sys.executable, "-c", code, str(tmp_path / "store"), str(number * batches // processes)]
        return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    digests: dict[str, set[str]] = {}
    running = [started(number) for number in range(processes)]
    while running:
        number = draw.randrange(len(running))
        process = running[number]
        assert process.stdout is not None
        line = process.stdout.readline()
        if line.endswith("\n"):
            name, digest = line.split()
            digests.setdefault(name, set()).add(digest)
            if kills and draw.random() < 0.1:
                kills -= 1
                process.send_signal(signal.SIGKILL)
                process.communicate()
                running[number] = started(draw.randrange(processes))
        else:
            assert process.wait() == 0
            process.stdout.close()
            running.remove(process)
    assert kills == 0
    assert all(len(each) == 1 for each in digests.values())
    with Store.open(tmp_path / "store") as store:
        history = CasStore(store)
        found = history.read("c")
        order = [message["of"] for message in found[1::2]]
        assert sorted(order) == sorted(digests) == sorted(f"b{number}" for number in range(batches))
        assert [message["content"] for message in found[::2]] == order
        assert store.fsck().ok
        history.clear("c")
    with Store.open(tmp_path / "store") as store:
        for name in digests:
            with pytest.raises(ConversationClosed):
                CasStore(store).append(Batch("c", name, [{"type": "x"}]))
        assert CasStore(store).read("c") == []


def test_wrong_values_at_the_door() -> None:
    history: Any = CasStore(Store.memory())
    wrong: tuple[Any, ...] = (None, 5, "", b"x", [], json)
    make: Any = CasStore
    for value in wrong:
        for act in (history.append, history.read, history.clear, make):
            with pytest.raises(AgentSessionError):
                act(value)
