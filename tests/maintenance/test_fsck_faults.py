"""A disk that refuses to read, once or from then on: fsck ends with a report that says so, and never with an error."""

from __future__ import annotations

import errno

import pytest

from agentsession_cas import entry
from agentsession_cas.layout import Layout
from agentsession_cas.store import Store
from agentsession_cas.testing.simfs import READS, Sim


def filled() -> Sim:
    """A machine with a store: a log, a pack, loose objects, a fork, journals."""
    sim = Sim()
    Layout.create(sim.host, "/s")
    with Store.open("/s", host=sim.host, background=False) as store:
        with store.create(id="a") as session:
            session.append_batch([entry.user(f"a {n}") for n in range(40)])
            session.checkpoint()
            at = session.append(entry.user("in the journal")).id
        with store.fork("a", at, id="b") as session:
            session.append(entry.user("b"))
            session.checkpoint()
    return sim


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("fast", [False, True])
def test_reads_that_fail_are_told_in_a_report(forever: bool, fast: bool) -> None:
    sim = filled()
    at, told = 1, 0
    while True:
        with Store.open("/s", read_only=True, host=sim.host) as store:
            fault = sim.fail(at, errno.EIO, kinds=READS, forever=forever)
            report = store.fsck(fast=fast)
            sim.heal()
        told += not report.ok
        if not fault.hits:
            break
        assert report.findings or not forever, f"read {at} failed for ever and nothing was said"
        at += 1 if at < 40 else 7
    assert told
    assert report.ok
    assert not report.findings


def test_a_read_that_fails_once_hides_no_other_session() -> None:
    sim = filled()
    with Store.open("/s", read_only=True, host=sim.host) as store:
        sim.fail(1, errno.EIO, kinds=frozenset({"read"}), forever=True)
        report = store.fsck()
    assert {each.session for each in report.findings if each.code == "unreadable_file"} >= {"a", "b"}
