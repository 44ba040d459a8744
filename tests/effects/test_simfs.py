"""The simulated machine: what it counts, and what can be done to it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

from agentsession_cas.effects import durable
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import (
    AgentSessionError,
    DiskError,
    DiskFull,
    NoFile,
    ReadOnly,
    TooManyFiles,
)
from agentsession_cas.testing.simfs import READS, Killed, PowerCut, Sim


def machine(seed: int = 0, sector: int = 512) -> Sim:
    """A machine with a durable /tmp and /data, and nothing counted yet."""
    sim = Sim(seed=seed, sector=sector)
    for directory in ("/tmp", "/data"):
        durable.ensure_dir(sim.host.fs, directory)
    return sim


def stored(sim: Sim, path: str, data: bytes) -> None:
    durable.swap(sim.host, "/tmp", path, data)


def after_a_cut(sim: Sim, path: str, budget: int = 40) -> set[bytes | None]:
    """What may be at a path if the power goes now."""
    return {image.host.fs.read(path) for image in sim.images(budget)}


def program(host: Host) -> None:
    """A bit of everything."""
    fs = host.fs
    durable.swap(host, "/tmp", "/data/a", b"a" * 1000)
    file = fs.create("/data/b")
    file.pwrite(b"b" * 1500, 0)
    file.pwrite(b"c" * 700, 200)
    file.sync()
    fs.sync_dir("/data")
    file.close()
    fs.unlink("/data/a")
    durable.ensure_dir(fs, "/data/d")
    durable.move(fs, "/data/b", "/data/d/b")


# --- effects ---------------------------------------------------------------------------------------------------------


def test_effects_are_counted_and_logged() -> None:
    sim = machine()
    fs = sim.host.fs
    file = fs.create("/data/journal")
    file.pwrite(bytes(4096), 0)
    file.sync()
    fs.sync_dir("/data")
    sim.log.clear()
    before = sim.count

    file.pwrite(b"frame", 0)
    file.sync()
    assert [(effect.kind, effect.path, effect.size) for effect in sim.log] == [
        ("write", "/data/journal", 5),
        ("sync", "/data/journal", 0),
    ]
    assert sim.count == before + 2


def test_reads_locks_and_refusals_are_no_effects() -> None:
    sim = machine()
    stored(sim, "/data/f", b"data")
    fs = sim.host.fs
    lock = fs.lock("/data/lock", exclusive=True, note="first")
    assert lock is not None
    lock.release()
    sim.log.clear()
    before = sim.count
    fs.read("/data/f")
    fs.stat("/data/f")
    fs.listdir("/data")
    fs.map("/data/f").close()
    fs.open("/data/f", write=True).close()
    for exclusive in (True, False):
        held = fs.lock("/data/lock", exclusive=exclusive, note="again" if exclusive else "")
        assert held is not None
        held.release()
    with pytest.raises(DiskError):
        fs.create("/data/f")
    with pytest.raises(NoFile):
        fs.rename("/data/none", "/data/some")
    assert sim.log == []
    assert sim.count == before


def test_a_rename_is_logged_with_both_names_and_its_process() -> None:
    sim = machine()
    stored(sim, "/data/f", b"data")
    sim.process("p2").fs.rename("/data/f", "/data/g")
    effect = sim.log[-1]
    assert (effect.kind, effect.path, effect.target, effect.process) == ("rename", "/data/f", "/data/g", "p2")


def test_the_same_seed_gives_the_same_run() -> None:
    runs = []
    for seed in (1, 1, 2):
        sim = machine(seed)
        program(sim.host)
        sim.fail(2, errno.ENOSPC)
        with suppress(AgentSessionError):
            stored(sim, "/data/z", b"z" * 5000)
        stories = [str(image.story) for image in sim.images(30, tear=True)]
        runs.append((sim.log, stories, sim.entropy.take(9), sim.clock.now_ns()))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_an_image_does_not_repeat_randomness() -> None:
    sim = machine()
    before = sim.entropy.take(16)
    program(sim.host)
    taken = [image.entropy.take(16) for image in sim.images(20)]
    assert len({before, *taken}) == len(taken) + 1


# --- power cuts and kills --------------------------------------------------------------------------------------------


def test_a_cut_stops_everything() -> None:
    total = machine()
    program(total.host)
    start = machine().count
    for n in range(total.count - start):
        sim = machine()
        other = sim.process("p2")
        handle = other.fs.create("/tmp/open")
        lock = other.fs.lock("/tmp/lock", exclusive=True)
        start = sim.count
        sim.cut_after(n)
        with pytest.raises(PowerCut):
            program(sim.host)
        assert sim.count == start + n
        with pytest.raises(PowerCut):
            sim.host.fs.listdir("/")
        with pytest.raises(PowerCut):
            other.fs.mkdir("/x")
        with pytest.raises(PowerCut):
            handle.size()
        assert lock is not None
        lock.release()
        handle.close()
        assert sim.count == start + n


def test_a_cut_after_the_last_effect_never_comes() -> None:
    sim = machine()
    start = sim.count
    program(sim.host)
    again = machine()
    again.cut_after(sim.count - start)
    program(again.host)


def test_a_killed_process_leaves_what_it_wrote_and_no_lock() -> None:
    sim = machine()
    host, other = sim.host, sim.process("p2")
    file = host.fs.create("/data/f")
    lock = host.fs.lock("/data/lock", exclusive=True, note="p1")
    assert other.fs.lock("/data/lock", exclusive=True) is None
    sim.kill_after(1)
    file.pwrite(b"seen", 0)
    with pytest.raises(Killed):
        file.sync()
    for call in (file.size, lambda: host.fs.stat("/data"), lambda: host.fs.mkdir("/data/d")):
        with pytest.raises(Killed):
            call()
    assert lock is not None
    lock.release()
    file.close()
    assert other.fs.read("/data/f") == b"seen"
    assert other.fs.lock_note("/data/lock") == "p1"
    assert other.fs.lock("/data/lock", exclusive=True) is not None


def test_a_name_that_was_killed_is_a_new_process() -> None:
    sim = machine()
    old = sim.process("p2")
    file = old.fs.create("/data/f")
    sim.kill("p2")
    new = sim.process("p2")
    assert new.process_id() != old.process_id()
    assert new.fs.lock("/data/lock", exclusive=True) is not None
    with pytest.raises(Killed):
        file.sync()
    sim.kill("p2")
    assert sim.process("p3").fs.lock("/data/lock", exclusive=True) is not None


def test_a_kill_within_a_write() -> None:
    seen = set()
    for seed in range(40):
        sim = machine(seed)
        file = sim.host.fs.create("/data/f")
        sim.kill_after(0, torn=True)
        with pytest.raises(Killed):
            file.pwrite(b"abcd", 0)
        seen.add(sim.process("p2").fs.read("/data/f"))
    assert seen == {b"", b"a", b"ab", b"abc"}


def test_a_forked_child_unlocks_nothing() -> None:
    sim = machine()
    lock = sim.host.fs.lock("/data/lock", exclusive=True)
    parent = sim.host.process_id()
    assert lock is not None
    with sim.forked("p1"):
        assert sim.host.process_id() != parent
        lock.release()
    assert sim.host.process_id() == parent
    assert sim.process("p2").fs.lock("/data/lock", exclusive=True) is None
    lock.release()
    assert sim.process("p2").fs.lock("/data/lock", exclusive=True) is not None


# --- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [(errno.EIO, DiskError), (errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EMFILE, TooManyFiles)],
)
@pytest.mark.parametrize("forever", [False, True])
def test_every_operation_can_fail(code: int, kind: type[DiskError], forever: bool) -> None:
    n = 0
    while True:
        n += 1
        sim = machine(n)
        fault = sim.fail(n, code, forever=forever)
        raised: DiskError | None = None
        try:
            program(sim.host)
        except DiskError as error:
            raised = error
        if raised is None:
            assert fault.hits == 0
            break
        assert type(raised) is kind
        assert fault.hits >= 1
        assert forever or fault.hits == 1
        sim.heal()
        assert sim.host.fs.listdir("/data") is not None
    assert n > 5


def test_a_read_can_fail() -> None:
    sim = machine()
    stored(sim, "/data/f", b"data")
    file = sim.host.fs.open("/data/f")
    fault = sim.fail(1, errno.EIO, kinds=READS, forever=True)
    for call in (lambda: file.pread(1, 0), lambda: sim.host.fs.read("/data/f"), lambda: sim.host.fs.listdir("/data")):
        with pytest.raises(DiskError):
            call()
    assert fault.hits == 3


def test_a_full_disk_takes_a_part_of_a_write() -> None:
    seen = set()
    for seed in range(40):
        sim = machine(seed)
        file = sim.host.fs.create("/data/f")
        sim.fail(1, errno.ENOSPC)
        with pytest.raises(DiskFull) as full:
            file.pwrite(b"abc", 0)
        assert full.value.where == "write /data/f"
        seen.add(file.pread(9, 0))
        file.pwrite(b"xyz", 0)
        assert file.pread(9, 0) == b"xyz"
    assert seen == {b"", b"a", b"ab"}


@pytest.mark.parametrize(
    "call",
    [
        lambda host: host.fs.create("/data/new"),
        lambda host: host.fs.mkdir("/data/new"),
        lambda host: host.fs.rename("/data/f", "/data/new"),
        lambda host: host.fs.unlink("/data/f"),
        lambda host: host.fs.rmdir("/data/d"),
    ],
)
def test_a_failed_change_of_names_changes_nothing(call: Callable[[Host], object]) -> None:
    sim = machine()
    stored(sim, "/data/f", b"data")
    sim.host.fs.mkdir("/data/d")
    sim.fail(1, errno.EIO)
    with pytest.raises(DiskError):
        call(sim.host)
    assert sim.host.fs.listdir("/data") == ["d", "f"]


def test_after_a_failed_sync_the_cache_is_new_and_the_disk_old() -> None:
    lost = 0
    for seed in range(30):
        sim = machine(seed)
        stored(sim, "/data/f", b"o" * 2048)
        file = sim.host.fs.open("/data/f", write=True)
        file.pwrite(b"n" * 2048, 0)
        sim.fail(1, errno.EIO)
        with pytest.raises(DiskError):
            file.sync()
        file.sync()  # which says all is well
        assert file.pread(2048, 0) == b"n" * 2048
        (found,) = after_a_cut(sim, "/data/f")
        assert found is not None
        assert {found[k : k + 512] for k in range(0, 2048, 512)} <= {b"o" * 512, b"n" * 512}
        lost += found != b"n" * 2048
        file.pwrite(b"m" * 2048, 0)  # over what the disk has, not over what the cache had
        for cut in after_a_cut(sim, "/data/f"):
            assert cut is not None
            assert all(cut[k : k + 512] in (found[k : k + 512], b"m" * 512) for k in range(0, 2048, 512))
        file.pwrite(b"n" * 2048, 0)  # only writing again helps
        file.sync()
        assert after_a_cut(sim, "/data/f") == {b"n" * 2048}
    assert lost > 20


def test_after_a_failed_sync_a_file_that_grew_may_have_its_old_size() -> None:
    sizes = set()
    for seed in range(40):
        sim = machine(seed)
        stored(sim, "/data/f", b"o" * 700)
        file = sim.host.fs.open("/data/f", write=True)
        file.pwrite(b"n" * 1000, 700)
        sim.fail(1, errno.EIO)
        with pytest.raises(DiskError):
            file.sync()
        file.sync()
        sizes |= {len(found or b"") for found in after_a_cut(sim, "/data/f")}
    assert sizes == {700, 1700}


def test_a_failed_sync_of_a_directory_can_be_tried_again() -> None:
    for seed in range(20):
        sim = machine(seed)
        for name in "abc":
            durable.publish(sim.host, "/tmp", f"/data/{name}", b"data")
        sim.fail(1, errno.EIO)
        with pytest.raises(DiskError):
            sim.host.fs.sync_dir("/data")
        sim.host.fs.sync_dir("/data")
        assert {tuple(image.host.fs.listdir("/data")) for image in sim.images(40)} == {("a", "b", "c")}


def test_read_only_media() -> None:
    sim = machine()
    stored(sim, "/data/f", b"data")
    held = sim.host.fs.lock("/data/lock", exclusive=True)
    assert held is not None
    held.release()
    handle = sim.host.fs.open("/data/f", write=True)
    sim.read_only()
    fs = sim.host.fs
    assert fs.read("/data/f") == b"data"
    for call in (
        lambda: fs.create("/data/g"),
        lambda: fs.lock("/data/lock", exclusive=False),
        lambda: fs.open("/data/f", write=True),
        lambda: handle.pwrite(b"x", 0),
        lambda: fs.unlink("/data/f"),
    ):
        with pytest.raises(ReadOnly):
            call()


# --- inodes, clones, clock -------------------------------------------------------------------------------------------


def test_inode_numbers_are_used_again_but_not_while_open() -> None:
    sim = machine()
    fs = sim.host.fs
    first = fs.create("/data/f")
    fs.unlink("/data/f")
    second = fs.create("/data/f")
    assert second.inode() != first.inode()
    first.close()
    assert fs.create("/data/g").inode() == first.inode()


def test_a_clone_goes_its_own_way() -> None:
    sim = machine()
    stored(sim, "/data/f", b"old")
    file = sim.host.fs.open("/data/f", write=True)
    file.pwrite(b"new", 0)
    sim.host.fs.mkdir("/data/d")
    assert sim.host.fs.lock("/data/lock", exclusive=True) is not None
    clone = sim.clone()
    assert clone.host.fs.read("/data/f") == b"new"
    assert clone.host.fs.lock("/data/lock", exclusive=True) is not None
    # what is pending is pending there too, each by itself
    assert after_a_cut(clone, "/data/f") == {b"old", b"new"}
    assert {image.host.fs.stat("/data/d") is None for image in clone.images(64)} == {True, False}
    clone.host.fs.open("/data/f", write=True).sync()
    assert after_a_cut(clone, "/data/f") == {b"new"}
    assert after_a_cut(sim, "/data/f") == {b"old", b"new"}
    file.pwrite(b"two", 0)
    assert clone.host.fs.read("/data/f") == b"new"


def test_an_image_leaves_its_machine_alone() -> None:
    sim = machine()
    stored(sim, "/data/f", b"old")
    file = sim.host.fs.open("/data/f", write=True)
    file.pwrite(b"new", 0)
    for image in sim.images(10):
        image.host.fs.open("/data/f", write=True).pwrite(b"other", 0)
        image.host.fs.unlink("/data/f")
    assert file.pread(10, 0) == b"new"
    assert after_a_cut(sim, "/data/f") == {b"old", b"new"}


def test_a_flipped_byte_is_at_rest() -> None:
    sim = machine()
    stored(sim, "/data/f", b"abc")
    sim.flip("/data/f", 1, 0x20)
    assert sim.host.fs.read("/data/f") == b"aBc"
    assert after_a_cut(sim, "/data/f") == {b"aBc"}


def test_watching_sees_every_cut_in_one_run() -> None:
    """What ``watch`` shows before an effect is what a cut there leaves."""
    watched: list[list[str]] = []
    sim = machine()
    sim.watch(lambda *_: watched.append([str(image.story) for image in sim.images(10)]))
    program(sim.host)
    for n, stories in enumerate(watched):
        again = machine()
        again.cut_after(n)
        with pytest.raises(PowerCut):
            program(again.host)
        assert [str(image.story) for image in again.images(10)] == stories


def test_another_process_may_act_before_an_effect() -> None:
    sim = machine()
    other = sim.process("p2")

    def act(kind: str, path: str) -> None:
        if kind == "create" and path == "/data/f":
            other.fs.create("/data/f").pwrite(b"theirs", 0)

    sim.watch(act)
    with pytest.raises(DiskError) as taken:
        sim.host.fs.create("/data/f")
    assert taken.value.code == "file_exists"
    assert sim.host.fs.read("/data/f") == b"theirs"


def test_a_sync_covers_only_what_was_written_before_it_began() -> None:
    sim = machine()
    stored(sim, "/data/f", b"old 1 old 2")
    file = sim.host.fs.open("/data/f", write=True)
    file.pwrite(b"new 1", 0)
    sim.watch(lambda kind, _: file.pwrite(b"new 2 and more", 6) if kind == "sync" else None)
    file.sync()
    sim.watch(None)
    assert after_a_cut(sim, "/data/f") >= {b"new 1 old 2", b"new 1 new 2 and more"}
    assert all((found or b"").startswith(b"new 1") for found in after_a_cut(sim, "/data/f"))


def test_sleep_passes_time_and_lets_others_act() -> None:
    sim = machine()
    held = sim.process("p2").fs.lock("/data/lock", exclusive=True)
    assert held is not None
    naps = []

    def nap() -> None:
        naps.append(sim.clock.monotonic())
        if len(naps) == 3:
            held.release()

    sim.clock.on_sleep = nap
    assert sim.host.fs.lock("/data/lock", exclusive=True, timeout_s=100) is not None
    assert len(naps) == 3
    before = sim.clock.now_ns()
    sim.clock.advance(3600)
    assert sim.clock.now_ns() - before >= 3600 * 10**9
