"""A follower beside a real writer that appends, checkpoints, is killed and recovers: each entry once, in order."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from agentsession_cas.sessions.follow import Follower
from agentsession_cas.sessions.follow_changes import Appended, Reset
from agentsession_cas.store import Store
from tests.engine.test_processes import child, heard

pytestmark = pytest.mark.heavy

KILLS = 4


class Heard:
    """What a follower told: ids of entries in order, from the last Reset on."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self.ids: list[str] = []
        self.cursor = ""

    def one(self, timeout_s: float) -> bool:
        """Hear one change, if one comes in time."""
        change = self._follower.take(timeout_s)
        if change is None:
            return False
        self.cursor = change.cursor
        if isinstance(change, Appended):
            self.ids.append(change.entry.id)
        elif isinstance(change, Reset):
            self.ids = [each.id for each in change.session]
        return True

    def until(self, entry_id: str) -> None:
        """Hear until an entry was told; it has a minute for each change."""
        while entry_id not in self.ids[-200:]:
            assert self.one(60)


@pytest.mark.parametrize("committed", [False, True])
def test_a_follower_beside_a_writer_that_is_killed_again_and_again(tmp_path: Path, committed: bool) -> None:
    rng = Random(committed)
    acknowledged: list[str] = []
    with Store.open(tmp_path / "store", create=True) as store:
        store.create(id="s").close()
    with Store.open(tmp_path / "store", read_only=True) as store:
        follower = store.follow("s", committed=committed)
        listening = Heard(follower)
        assert listening.one(60)
        for turn in range(KILLS):
            with child("append", tmp_path / "store", "s", rng.choice((5, 11, 1000))) as process:
                assert heard(process).startswith("open")
                for _ in range(rng.randrange(1, 25)):
                    acknowledged += heard(process).split()
                    if rng.random() < 0.5:
                        listening.until(acknowledged[-1])
                process.kill()
            if turn % 2:  # another one goes on where this one was
                follower.close()
                follower = store.follow("s", listening.cursor, committed=committed)
                again = Heard(follower)
                again.ids, again.cursor = listening.ids, listening.cursor
                listening = again
        with Store.open(tmp_path / "store") as writing, writing.open_session("s") as session:
            last = session.append({"type": "info", "name": "the end"}, durable=True).id
            listening.until(last)
            assert listening.ids == [each.id for each in session]
        follower.close()
    assert len(acknowledged) > KILLS
    told = iter(listening.ids)
    assert all(each in told for each in acknowledged), "an acknowledged entry was not told, or not in its place"
