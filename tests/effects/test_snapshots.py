"""Readers that run while a writer does."""

from __future__ import annotations

import errno
import os

import pytest

from agentsession_cas.effects import durable
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import AgentSessionError, DiskError, NoFile, NotRegular, ReadOnly
from agentsession_cas.testing.simfs import Sim, Steps

WIDTH = 100


def record(k: int) -> bytes:
    return f"{k:08}".encode() * (WIDTH // 8) + b"...."


def machine() -> Sim:
    sim = Sim()
    for directory in ("/tmp", "/d"):
        durable.ensure_dir(sim.host.fs, directory)
    return sim


def read_log(host: Host) -> int:
    """How many whole records a reader of /d/log finds."""
    data = host.fs.read("/d/log") or b""
    whole = 0
    while data[whole * WIDTH : (whole + 1) * WIDTH] == record(whole):
        whole += 1
    return whole


def test_readers_see_what_was_acknowledged_and_nothing_from_later() -> None:
    sim = machine()
    log = sim.host.fs.create("/d/log")
    sim.record()
    acknowledged, begun = [0] * 1, [0] * 1
    for k in range(40):
        before = sim.now
        log.pwrite(record(k), k * WIDTH)
        begun += [k + 1] * (sim.now - before)
        acknowledged += [k] * (sim.now - before - 1) + [k + 1]
    seen = set()
    for steps, host in sim.readers(300):
        found = read_log(host)
        assert acknowledged[steps.start] <= found <= begun[steps.at]
        seen.add(found)
    assert len(seen) > 20


def test_a_write_is_seen_sector_by_sector() -> None:
    sim = machine()
    file = sim.host.fs.create("/d/f")
    file.pwrite(b"o" * 2048, 0)
    sim.record()
    file.pwrite(b"n" * 1500, 100)
    found = [sim.reader(Steps([k])).fs.read("/d/f") for k in range(sim.now + 1)]
    assert found == [b"o" * 100 + b"n" * new + b"o" * (1948 - new) for new in (0, 412, 924, 1436, 1500)]


def test_a_long_write_is_seen_in_a_few_states() -> None:
    sim = machine()
    file = sim.host.fs.create("/d/f")
    sim.record()
    data = os.urandom(1 << 20)
    file.pwrite(data, 0)
    assert 8 <= sim.now <= 20
    for k in range(sim.now + 1):
        found = sim.reader(Steps([k])).fs.read("/d/f")
        assert found == data[: len(found or b"")]
    assert found == data


def test_one_read_may_be_old_at_first_and_new_at_last() -> None:
    sim = machine()
    file = sim.host.fs.create("/d/f")
    file.pwrite(b"o" * 2048, 0)
    sim.record()
    file.pwrite(b"n" * 2048, 0)
    seen = set()
    for _, host in sim.readers(400):
        seen.add(host.fs.open("/d/f").pread(2048, 0))
    assert {b"o" * 2048, b"n" * 2048, b"o" * 512 + b"n" * 1536, b"n" * 512 + b"o" * 1536} <= seen


def test_steps_are_taken_one_by_one_and_never_back() -> None:
    sim = machine()
    file = sim.host.fs.create("/d/f")
    sim.record()
    for k in range(5):
        file.pwrite(bytes([65 + k]), 0)
    steps = Steps([1, 3, 2, 5])
    reader = sim.reader(steps)
    opened = reader.fs.open("/d/f")
    assert (steps.start, steps.at) == (1, 1)
    found = [reader.fs.stat("/d/f"), opened.size(), opened.inode()]
    assert steps.at == 3
    assert found[1:] == [1, file.inode()]
    assert reader.fs.read("/d/f") == b"E"
    assert steps.at == 5


def test_a_handle_stays_on_what_a_rename_replaced() -> None:
    sim = machine()
    durable.swap(sim.host, "/tmp", "/d/f", b"old")
    sim.record()
    durable.swap(sim.host, "/tmp", "/d/f", b"new")
    reader = sim.reader(Steps([0, sim.now]))
    opened = reader.fs.open("/d/f")
    assert opened.pread(9, 0) == b"old"
    assert reader.fs.read("/d/f") == b"new"
    assert opened.pread(9, 0) == b"old"


def test_a_rename_is_one_step() -> None:
    sim = machine()
    sim.host.fs.create("/d/a").close()
    sim.record()
    sim.host.fs.rename("/d/a", "/tmp/b")
    states = [
        (sim.reader(Steps([k])).fs.listdir("/d"), sim.reader(Steps([k])).fs.listdir("/tmp")) for k in range(sim.now + 1)
    ]
    assert states == [(["a"], []), ([], ["b"])]


def test_what_was_made_meanwhile_is_there_in_later_states_only() -> None:
    sim = machine()
    sim.record()
    sim.host.fs.mkdir("/d/s")
    durable.publish(sim.host, "/tmp", "/d/s/f", b"data")
    early, late = sim.reader(Steps([0])), sim.reader(Steps([sim.now]))
    assert early.fs.stat("/d/s") is None
    assert early.fs.read("/d/s/f") is None
    with pytest.raises(NoFile):
        early.fs.open("/d/s/f")
    assert late.fs.listdir("/d/s") == ["f"]
    found = late.fs.stat("/d/s/f")
    assert found is not None
    assert (found.size, found.is_dir) == (4, False)
    with late.fs.map("/d/s/f") as mapped:
        assert bytes(mapped.view) == b"data"


def test_readers_write_nothing() -> None:
    sim = machine()
    sim.host.fs.create("/d/f").close()
    sim.record()
    fs = sim.reader(Steps([0])).fs
    opened = fs.open("/d/f")
    for call in (
        lambda: fs.create("/d/g"),
        lambda: fs.open("/d/f", write=True),
        lambda: fs.mkdir("/d/g"),
        lambda: fs.rename("/d/f", "/d/g"),
        lambda: fs.unlink("/d/f"),
        lambda: fs.rmdir("/d"),
        lambda: fs.sync_dir("/d"),
        lambda: fs.lock("/d/lock", exclusive=False),
        lambda: opened.pwrite(b"x", 0),
        opened.sync,
    ):
        with pytest.raises(ReadOnly):
            call()
    assert fs.lock_note("/d/f") == ""


def test_readers_get_the_errors_a_file_system_gives() -> None:
    sim = machine()
    sim.host.fs.create("/d/f").close()
    sim.record()
    fs = sim.reader(Steps([0])).fs
    for call in (lambda: fs.open("/d"), lambda: fs.listdir("/d/f"), lambda: fs.read("/d"), lambda: fs.open("/d/f/g")):
        with pytest.raises(NotRegular):
            call()
    with pytest.raises(NoFile):
        fs.listdir("/d/none")
    with pytest.raises(NoFile):
        fs.map("/d/none")
    opened = fs.open("/d/f")
    opened.close()
    with pytest.raises(DiskError) as closed:
        opened.pread(1, 0)
    assert closed.value.what == os.strerror(errno.EBADF)
    assert isinstance(closed.value, AgentSessionError)


def test_a_reader_that_trusts_two_reads_is_caught() -> None:
    """A seeded mistake: the file is replaced, and the reader takes the size from one and the bytes from the other."""
    sim = machine()
    durable.swap(sim.host, "/tmp", "/d/f", b"1" * 10)
    sim.record()
    for k in range(2, 6):
        durable.swap(sim.host, "/tmp", "/d/f", str(k).encode() * 10 * k)

    def wrong(host: Host) -> bytes:
        found = host.fs.stat("/d/f")
        assert found is not None
        return host.fs.open("/d/f").pread(found.size, 0)

    def right(host: Host) -> bytes:
        opened = host.fs.open("/d/f")
        return opened.pread(opened.size(), 0)

    whole = {str(k).encode() * 10 * k for k in range(1, 6)}
    assert all(right(host) in whole for _, host in sim.readers(300))
    assert not all(wrong(host) in whole for _, host in sim.readers(300))
