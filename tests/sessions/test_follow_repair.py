"""A follower across a repair: what it told may be gone, so all is told anew."""

from __future__ import annotations

from agentsession_cas import Reset, Snapshot, entry
from agentsession_cas.testing.simfs import Sim
from tests.helpers.stores import opened


def test_a_repaired_session_is_told_anew() -> None:
    """The log is another one: a cursor from before gets a Reset, of what could be read."""
    sim = Sim()
    store = opened(sim.host, create=True)
    with store.create(id="s") as session:
        ids = [session.append(entry.user(str(number))).id for number in range(70)]
        session.checkpoint()
        follower = store.follow("s")
        first = next(follower)
        assert isinstance(first, Snapshot)
    sim.flip("/store/sessions/s/log-0", 128 * 20 + 3)
    store.close()
    store = opened(sim.host)
    store.repair("s")
    later, committed = store.follow("s", first.cursor), store.follow("s", first.cursor, committed=True)
    for each in (later, committed):
        change = each.take(0)
        assert isinstance(change, Reset)
        assert {entry.id for entry in change.session} <= set(ids)
        assert len(change.session) >= 69
        assert each.take(0) is None
