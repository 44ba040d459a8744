"""The shared orders of writes, cut after every effect, failed at every effect, and against their seeded mistakes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from agentsession_cas.effects import durable
from agentsession_cas.effects.host import Host, real_host
from agentsession_cas.errors import AgentSessionError, DiskError, FileTaken, NoFile, NotRegular
from agentsession_cas.testing.simfs import Sim

DATA = b"d" * 1500


def machine(seed: int = 0) -> Sim:
    sim = Sim(seed=seed)
    for directory in ("/tmp", "/d", "/e"):
        durable.ensure_dir(sim.host.fs, directory)
    sim.log.clear()
    return sim


def put(sim: Sim, path: str, data: bytes) -> None:
    durable.write_new(sim.host.fs, path, data)
    sim.host.fs.sync_dir(durable.parent(path))


def kinds(sim: Sim) -> list[str]:
    return [effect.kind for effect in sim.log]


def each_cut(sim: Sim, run: Callable[[], None], legal: Callable[[Sim], bool]) -> int:
    """Run, look at every image of every cut, the one after the last effect too; returns how many there were."""
    seen = 0

    def look(*_: str) -> None:
        nonlocal seen
        for image in sim.images(30, tear=True):
            seen += 1
            assert legal(image), str(image.story)

    sim.watch(look)
    run()
    sim.watch(None)
    look()
    return seen


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/a/b/c", "/a/b"), ("/a", "/"), ("a/b", "a"), ("a", "."), ("/a/b/", "/a/b")],
)
def test_parent(path: str, expected: str) -> None:
    assert durable.parent(path) == expected


def test_publish_is_one_sync_and_leaves_the_directory_to_the_caller() -> None:
    sim = machine()
    durable.publish(sim.host, "/tmp", "/d/f", DATA)
    assert kinds(sim) == ["create", "write", "sync", "rename"]
    assert sim.host.fs.listdir("/tmp") == []
    assert sim.host.fs.read("/d/f") == DATA


def test_publish_shows_nothing_or_all() -> None:
    sim = machine()
    seen = each_cut(
        sim,
        lambda: durable.publish(sim.host, "/tmp", "/d/f", DATA),
        lambda image: image.host.fs.read("/d/f") in (None, DATA),
    )
    assert seen > 30


def test_publish_replaces_what_is_there() -> None:
    sim = machine()
    put(sim, "/d/f", b"bad copy")
    each_cut(
        sim,
        lambda: durable.publish(sim.host, "/tmp", "/d/f", DATA),
        lambda image: image.host.fs.read("/d/f") in (b"bad copy", DATA),
    )
    assert sim.host.fs.read("/d/f") == DATA


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_a_publish_that_fails_leaves_things_as_they_were(code: int) -> None:
    for n in range(1, 99):
        sim = machine(n)
        put(sim, "/d/f", b"old")
        fault = sim.fail(n, code)
        with suppress(DiskError):
            durable.publish(sim.host, "/tmp", "/d/f", DATA)
        sim.heal()
        assert sim.host.fs.listdir("/tmp") == []
        assert sim.host.fs.read("/d/f") == (b"old" if fault.hits else DATA)
        if not fault.hits:
            break
    assert n > 1


def test_a_publish_on_a_dead_disk_still_says_why() -> None:
    sim = machine()
    sim.fail(3, errno.EIO, forever=True)
    with pytest.raises(DiskError) as failed:
        durable.publish(sim.host, "/tmp", "/d/f", DATA)
    assert failed.value.where.startswith("sync /tmp/")


def test_two_publishers_of_one_name_do_not_meet() -> None:
    sim = machine()
    other = sim.process("p2")

    def meanwhile(kind: str, _: str) -> None:
        if kind == "sync":
            durable.publish(other, "/tmp", "/d/f", DATA)

    sim.watch(meanwhile)
    durable.publish(sim.host, "/tmp", "/d/f", DATA)
    assert sim.host.fs.read("/d/f") == DATA
    assert sim.host.fs.listdir("/tmp") == []


def test_swap_is_the_old_or_the_new_and_then_the_new() -> None:
    sim = machine()
    put(sim, "/d/f", b"old")
    done = False

    def run() -> None:
        nonlocal done
        durable.swap(sim.host, "/tmp", "/d/f", DATA)
        done = True

    each_cut(sim, run, lambda image: image.host.fs.read("/d/f") in ((DATA,) if done else (b"old", DATA)))
    assert kinds(sim)[-5:] == ["create", "write", "sync", "rename", "sync_dir"]


def test_write_new_never_replaces() -> None:
    sim = machine()
    put(sim, "/d/f", b"old")
    with pytest.raises(FileTaken):
        durable.write_new(sim.host.fs, "/d/f", DATA)
    assert sim.host.fs.read("/d/f") == b"old"


def test_ensure_dir_is_durable_whoever_made_it() -> None:
    sim = machine()
    sim.process("p2").fs.mkdir("/d/made")  # and killed before its sync
    sim.kill("p2")
    for path in ("/d/made", "/d/new"):
        durable.ensure_dir(sim.host.fs, path)
    assert {tuple(image.host.fs.listdir("/d")) for image in sim.images(20)} == {("made", "new")}


def test_ensure_dir_refuses_a_file_and_a_missing_parent() -> None:
    sim = machine()
    put(sim, "/d/f", b"")
    with pytest.raises(NotRegular):
        durable.ensure_dir(sim.host.fs, "/d/f")
    with pytest.raises(NoFile):
        durable.ensure_dir(sim.host.fs, "/none/d")


def test_a_move_is_never_lost_on_the_way() -> None:
    """Each name persists alone, so before the new one is synced both may be missing: only after that it is promised."""
    sim = machine()
    durable.ensure_dir(sim.host.fs, "/d/s")
    put(sim, "/d/s/f", DATA)
    done = False

    def run() -> None:
        nonlocal done
        durable.move(sim.host.fs, "/d/s", "/e/s")
        done = True

    def legal(image: Sim) -> bool:
        there = [path for path in ("/d/s", "/e/s") if image.host.fs.stat(path)]
        return there == ["/e/s"] if done else len(there) <= 1

    each_cut(sim, run, legal)
    assert kinds(sim)[-3:] == ["rename", "sync_dir", "sync_dir"]


def test_a_move_within_a_directory_syncs_it_once() -> None:
    sim = machine()
    put(sim, "/d/f", DATA)
    sim.log.clear()
    durable.move(sim.host.fs, "/d/f", "/d/g")
    assert kinds(sim) == ["rename", "sync_dir"]


def _tree(host: Host, root: str) -> None:
    for directory in ("", "/a", "/a/b", "/c"):
        host.fs.mkdir(root + directory)
    for name in ("/f", "/a/f", "/a/b/f", "/a/b/g"):
        host.fs.create(root + name).close()


def test_remove_tree(tmp_path: Path) -> None:
    for host, root in ((real_host(), f"{tmp_path}/t"), (machine().host, "/d/t")):
        _tree(host, root)
        durable.remove_tree(host.fs, root)
        assert host.fs.stat(root) is None
        durable.remove_tree(host.fs, root)


def test_remove_tree_goes_deep_without_recursion() -> None:
    host = machine().host
    path = "/d"
    for _ in range(1500):
        path += "/x"
        host.fs.mkdir(path)
    durable.remove_tree(host.fs, "/d/x")
    assert host.fs.listdir("/d") == []


def test_two_processes_may_remove_one_tree() -> None:
    for n in range(1, 99):
        sim = machine()
        _tree(sim.host, "/d/t")
        calls = 0

        def meanwhile(kind: str, _: str, sim: Sim = sim, n: int = n) -> None:
            nonlocal calls
            calls += kind in ("unlink", "rmdir")
            if calls == n:
                durable.remove_tree(sim.process("p2").fs, "/d/t")

        sim.watch(meanwhile)
        durable.remove_tree(sim.host.fs, "/d/t")
        assert sim.host.fs.listdir("/d") == []
        if calls < n:
            break
    assert n > 5


@pytest.mark.parametrize("left_out", ["sync", "sync_dir"])
def test_a_swap_without_a_sync_is_caught(left_out: str) -> None:
    """A seeded mistake: the explorer that passed the right order above must fail each wrong one."""
    sim = machine()
    put(sim, "/d/f", b"old")

    def without() -> None:
        file = sim.host.fs.create("/tmp/new")
        file.pwrite(DATA, 0)
        if left_out != "sync":
            file.sync()
        sim.host.fs.rename("/tmp/new", "/d/f")
        if left_out != "sync_dir":
            sim.host.fs.sync_dir("/d")

    without()
    assert any(image.host.fs.read("/d/f") != DATA for image in sim.images(30))


def test_errors_of_the_disk_are_ours() -> None:
    sim = machine()
    sim.read_only()
    with pytest.raises(AgentSessionError) as refused:
        durable.publish(sim.host, "/tmp", "/d/f", DATA)
    assert refused.value.code == "read_only"
