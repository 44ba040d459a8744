"""repair cut off at every effect: what it had to save is still there, and the next one saves it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.core.framing import FRAMES_OFFSET
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import AgentSessionError
from agentsession_cas.maintenance import repair_objects, repair_session
from agentsession_cas.objects.packwriter import PackWriter
from agentsession_cas.testing.simfs import Sim
from tests.helpers.crashes import Unseen, cuts, deaf
from tests.helpers.stores import opened

pytestmark = pytest.mark.heavy

Lines = dict[str, tuple[str, list[bytes]]]
Hurt = Callable[[Host], None]


def lines_of(store: Store) -> Lines:
    return {name: (store.read(name).leaf, [each.line for each in store.read(name)]) for name in ("log", "new", "fork")}


def machine() -> tuple[Sim, Lines]:
    """Three sessions, one in log, pack and journal, one in its journal alone, one a fork; all durable."""
    sim = Sim()
    with Store.open("/store", create=True, host=sim.host, background=False) as store:
        with store.create(id="log") as session:
            ids = [each.id for each in session.append_batch([entry.user(f"{n} " * 30) for n in range(70)])]
            session.checkpoint()
            session.append_batch([entry.user(f"more {n}") for n in range(5)], durable=True)
        with store.create(id="new", cwd="/work") as session:
            for n in range(6):
                session.append(entry.user(f"new {n}"), durable=True)
        with store.fork("log", ids[20], id="fork") as session:
            session.append(entry.user("other"), durable=True)
        return sim, lines_of(store)


# --- damage --------------------------------------------------------------------------------------------------------


def write(host: Host, path: str, at: int, data: bytes) -> None:
    file = host.fs.open(path, write=True)
    file.pwrite(data, at if at >= 0 else file.size() + at)
    file.sync()
    file.close()


def in_log(host: Host) -> None:
    write(host, "/store/sessions/log/log-0", 300, bytes(1000))


def in_journal(host: Host) -> None:
    data = host.fs.read("/store/sessions/new/journal")
    assert data is not None
    write(host, "/store/sessions/new/journal", data.index(b'{"content"', FRAMES_OFFSET) - 60, b"\xff")


def in_first_block(host: Host) -> None:
    write(host, "/store/sessions/log/journal", 0, bytes(64))


def in_header(host: Host) -> None:
    write(host, "/store/sessions/new/header", 20, b"\0")


def in_pack(host: Host) -> None:
    [name] = [name for name in host.fs.listdir("/store/objects/pack") if name.endswith(".pack")]
    write(host, f"/store/objects/pack/{name}", -20, b"\0\0\0")


def everywhere(host: Host) -> None:
    for each in (in_log, in_journal, in_header, in_pack):
        each(host)


DAMAGE = (in_log, in_journal, in_first_block, in_header, in_pack, everywhere)


def repaired(host: Host) -> None:
    with opened(host) as store:
        store.repair()


def is_saved(host: Host, lines: Lines) -> bool:
    """Whether another repair finds everything, and leaves nothing to find."""
    try:
        with opened(host) as store:
            whole = store.repair().whole
            return whole and lines_of(store) == lines and {each.severity for each in store.fsck().findings} <= {"note"}
    except AgentSessionError:
        return False


@pytest.mark.parametrize("make", DAMAGE)
def test_power_cut_at_every_effect(make: Hurt) -> None:
    sim, lines = machine()
    make(sim.host)
    stride = 5 if make is everywhere else 1
    left = list(cuts(sim, lambda: repaired(sim.host)))[::stride]
    images = (image for at, (_, cut) in enumerate(left) for image in cut.images(1, tear=True, seed=at))
    for image in Unseen().of(images):
        assert is_saved(image.host, lines), image.story


def needs_more(host: Host) -> bool:
    """Whether there is something to repair."""
    with opened(host) as store:
        return store.repair(dry_run=True).changed


@pytest.mark.parametrize("make", DAMAGE)
def test_what_a_repair_said_is_durable(make: Hurt) -> None:
    """Whatever the disk keeps once it has returned, nothing is left to repair."""
    sim, lines = machine()
    make(sim.host)
    repaired(sim.host)
    for image in sim.images(5, tear=True):
        assert not needs_more(image.host)
        with opened(image.host) as store:
            assert lines_of(store) == lines


@pytest.mark.parametrize("make", [in_log, in_pack])
@pytest.mark.parametrize("code", [5, 28])
def test_a_disk_that_fails_or_is_full(make: Hurt, code: int) -> None:
    """Every other effect fails once: the error is typed, and what could be saved still can be."""
    failed = 0
    for at in count(1, 2):
        sim, lines = machine()
        make(sim.host)
        fault = sim.fail(at, code)
        try:
            repaired(sim.host)
        except AgentSessionError:
            pass
        sim.heal()
        assert is_saved(sim.host, lines)
        if not fault.hits:
            break
        failed += 1
    assert failed >= 4


# --- seeded mistakes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "files", "directories"),
    [
        (in_log, "journal.next-", None),
        (in_log, "/log-", None),
        (in_log, None, "sessions/log"),
        (in_pack, "/tmp/", None),
        (in_pack, None, "objects/pack"),
        (in_journal, "/tmp/", None),
    ],
)
def test_a_sync_left_out_is_caught(make: Hurt, files: str | None, directories: str | None) -> None:
    sim, lines = machine()
    make(sim.host)
    host = replace(sim.host, fs=deaf(sim.host.fs, files=files, directories=directories))
    copies = [cut for _, cut in cuts(sim, lambda: repaired(host))]
    again = (image for image in copies[-1].images(40, tear=True) if needs_more(image.host))
    images = (image for cut in copies for image in cut.images(2, tear=True))
    unsaved = (image for image in Unseen().of(images) if not is_saved(image.host, lines))
    assert next(again, None) or next(unsaved, None)


def pack_goes_first(patch: pytest.MonkeyPatch) -> None:
    """A damaged pack leaves its place before what reads of it has another."""
    sound = PackWriter.place

    def place(self: Any) -> None:
        for name in self._host.fs.listdir(self._packs_dir):
            self._host.fs.unlink(f"{self._packs_dir}/{name}")
        self._host.fs.sync_dir(self._packs_dir)
        sound(self)

    patch.setattr(PackWriter, "place", place)


def objects_come_last(patch: pytest.MonkeyPatch) -> None:
    """The rows are named, and the objects they name are not written."""
    sound = repair_session._Repair._write

    def write_(self: Any, headed: Any, made: Any, put: Any, left: Any, report: Any) -> None:
        sound(self, headed, made, [], left, report)

    patch.setattr(repair_session._Repair, "_write", write_)


def nothing_is_kept(patch: pytest.MonkeyPatch) -> None:
    """The packs that do not read are removed before anything was read of them."""
    patch.setattr(repair_objects._Repair, "_readable", lambda *_: iter(()))


@pytest.mark.parametrize(
    ("mistake", "make"),
    [
        (pack_goes_first, in_pack),
        (objects_come_last, in_log),
        (nothing_is_kept, in_pack),
    ],
)
def test_a_seeded_mistake_is_caught(
    monkeypatch: pytest.MonkeyPatch, mistake: Callable[[pytest.MonkeyPatch], None], make: Hurt
) -> None:
    sim, lines = machine()
    make(sim.host)
    with monkeypatch.context() as patch:
        mistake(patch)
        images = [image for _, cut in list(cuts(sim, lambda: repaired(sim.host)))[::-2] for image in cut.images(1)]
    assert needs_more(sim.host) or not all(is_saved(image.host, lines) for image in Unseen().of(images))
