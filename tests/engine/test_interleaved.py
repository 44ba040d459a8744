"""Two processes at once: one acts wholly within an effect of the other, for each of its effects; then the power fails.

What the second sees of the first is in the cache and not yet on the disk, and may never be: the first may also die.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from agentsession_cas.errors import AgentSessionError, NoSession, SessionExists, SessionLocked
from agentsession_cas.sessions.recovery import State
from agentsession_cas.testing.simfs import Sim
from tests.helpers.engine import Player, observed
from tests.helpers.engine_explorer import BUDGET, Explorer
from tests.helpers.engine_model import World

pytestmark = pytest.mark.heavy

Act = Callable[[Player], None]


class Turn:
    """Lets a process act before the ``at``-th effect of another, and judges the disk right after that."""

    def __init__(self, sim: Sim, at: int, player: Player, act: Act) -> None:
        self._sim = sim
        self._left = at
        self._player = player
        self._act = act
        self.explorer = Explorer(seed=at)
        self.came = False

    def __call__(self, kind: str, path: str) -> None:
        self._left -= 1
        if self._left == -1:
            self.came = True
            self._act(self._player)
            self.judge(f"in {kind} {path}")

    def judge(self, where: str) -> None:
        """Look at images of the disk as it is now, unless a session was made that the model was not told of."""
        if set(self._player.store.session_ids()) - self._player.world.sessions.keys():
            return
        for image in self._sim.images(round(5 * BUDGET)):
            self.explorer.judge(image, self._player.world, where)


def interleave(prepare: Act, first: Act, second: Act) -> int:
    """Play ``second`` within each effect of ``first``; returns how many effects there were."""
    for at in count():
        sim = Sim(seed=at)
        player = Player(sim.host, World(), "a")
        prepare(player)
        other = Player(sim.process("p2"), player.world, "b")
        assert other.store.session_ids()
        turn = Turn(sim, at, other, second)
        sim.watch(turn)
        first(player)
        sim.watch(None)
        if not turn.came:
            return at
        turn.judge(f"after {at}")
    raise AssertionError


def two_entries(player: Player) -> None:
    player.create("s")
    player.append("s", 300, durable=True)
    player.append("s", 200)


def published(player: Player) -> None:
    player.checkpoint("s")
    player.append("s", 100)


def forks(player: Player) -> None:
    """Fork at the newest entry there is, in whatever file it lies just now."""
    player.fork("s", len(observed(player.store, "s").own) - 1, "f")
    player.append("f", 50, durable=True)


def test_a_fork_within_each_effect_of_appends() -> None:
    def first(player: Player) -> None:
        player.append("s", 100)
        player.append("s", 100, durable=True)
        player.append("s", 20_000, durable=True)

    assert interleave(two_entries, first, forks) >= 7


def test_a_fork_within_each_effect_of_a_checkpoint() -> None:
    assert interleave(two_entries, published, forks) >= 20


def test_a_name_believed_to_be_durable_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seeded mistake: that a journal was read is taken for a sign that its name will stay."""
    monkeypatch.setattr(State, "is_named", True)

    with pytest.raises((AgentSessionError, AssertionError)):
        interleave(two_entries, published, forks)


def test_what_one_process_publishes_another_finds() -> None:
    """Objects seen in the midst of a publish are not yet durable."""

    def prepare(player: Player) -> None:
        two_entries(player)
        player.create("t")
        player.copy("t", "s", 0)
        player.copy("t", "s", 1)
        player.close("t")

    assert interleave(prepare, lambda player: player.checkpoint("s"), lambda player: player.checkpoint("t")) >= 20


def test_two_make_a_session_of_one_id() -> None:
    """One gets it, whole; the other is told."""

    taken = 0

    def first(player: Player) -> None:
        try:
            writer = player.store.create(id="x", created_at="2026-01-01T00:00:00Z")
        except SessionExists:
            assert taken
            assert len(observed(player.store, "x").own) == 1
        else:
            assert not taken
            writer.close()

    def second(player: Player) -> None:
        nonlocal taken
        if player.store.holds("x"):
            return
        player.create("x")
        player.append("x", 50, durable=True)
        player.close("x")
        taken += 1

    came_first = 0
    for at in count():
        sim = Sim(seed=at)
        player = Player(sim.host, World())
        two_entries(player)
        taken = 0
        turn = Turn(sim, at, Player(sim.process("p2"), player.world), second)
        sim.watch(turn)
        first(player)
        sim.watch(None)
        came_first += taken
        if not turn.came:
            break
        assert player.store.holds("x")
    assert came_first >= 8


def test_a_reader_within_each_effect_of_a_delete_sees_all_or_nothing() -> None:
    seen: set[int] = set()

    def look(player: Player) -> None:
        try:
            seen.add(len(observed(player.store, "s").own))
        except NoSession:
            seen.add(-1)

    def first(player: Player) -> None:
        player.close("s")
        player.delete("s")

    assert interleave(two_entries, first, look) >= 3
    assert seen == {2, -1}


def test_nobody_else_writes_while_a_writer_is_at_it() -> None:
    refused = 0

    def second(player: Player) -> None:
        nonlocal refused
        for act in (player.store.open_session, player.store.delete):
            with pytest.raises(SessionLocked):
                act("s")
            refused += 1

    def first(player: Player) -> None:
        player.append("s", 100, durable=True)
        player.checkpoint("s")

    effects = interleave(two_entries, first, second)
    assert refused == 2 * effects
