"""Readers beside a writer: whatever their timing, they see one whole state of a session and never an error.

A scenario runs once and every state its effects pass through is recorded. Readers are then let loose on the record,
each call of theirs on a later state than the one before. What one may see is bounded by what was done when it began and
what was begun when it ended.
"""

from __future__ import annotations

from typing import NamedTuple

from agentsession_cas.errors import AgentSessionError, NoSession
from agentsession_cas.store import Store
from agentsession_cas.testing.simfs import Sim, Steps
from tests.helpers.crashes import Violation
from tests.helpers.engine import Player, observed
from tests.helpers.engine_model import Found, Truth, World
from tests.helpers.engine_scenarios import Scenario
from tests.helpers.stores import ROOT

__all__ = ["watched_readers"]


class Moment(NamedTuple):
    """What the model knew from some state of the record on: of each session its life, what was done and begun."""

    since: int
    sessions: dict[str, tuple[int, int, int, bool]]
    """Life, state done, state begun, and whether the session must be there."""


class _Trace:
    """All moments of one run, and the last truth of each life."""

    def __init__(self, sim: Sim, player: Player) -> None:
        self._sim = sim
        self._player = player
        self.moments: list[Moment] = []
        self.lives: dict[tuple[str, int], Truth] = {}
        player.told = self.note

    def note(self) -> None:
        """The model changed."""
        known = self._player.world.sessions
        self.lives.update({(name, truth.life): truth for name, truth in known.items()})
        moment = {name: (t.life, t.done, t.newest, t.born and not t.dying) for name, t in known.items()}
        self.moments.append(Moment(self._sim.now, moment))

    def between(self, start: int, end: int) -> list[Moment]:
        """The moment in force at ``start`` and those up to ``end``."""
        first = max((k for k, moment in enumerate(self.moments) if moment.since <= start), default=0)
        return [moment for k, moment in enumerate(self.moments) if k >= first and moment.since <= end]


def watched_readers(name: str, scenario: Scenario, *, sector: int, tries: int, seed: int = 0) -> int:
    """Run a scenario under readers; returns how many read. Raises Violation."""
    sim = Sim(sector=sector, seed=seed)
    player = Player(sim.host, World())
    assert not player.store.session_ids()
    sim.record()
    trace = _Trace(sim, player)
    sim.watch(player.before_effect)
    scenario(player)
    sim.watch(None)
    sessions = sorted({session_id for session_id, _ in trace.lives})
    for number, (steps, host) in enumerate(sim.readers(tries, seed)):
        session_id = sessions[number % len(sessions)]
        where = f"{name} reader {number} [{sector}] of {session_id} from {steps.start}"
        try:
            found = observed(Store.open(ROOT, host=host, read_only=True), session_id)
        except NoSession:
            found = None
        except AgentSessionError as error:
            raise Violation(f"{where}: {type(error).__name__}: {error}") from error
        _judge(trace, session_id, found, steps, where)
    return tries


def _judge(trace: _Trace, session_id: str, found: Found | None, steps: Steps, where: str) -> None:
    window = trace.between(steps.start, steps.at)
    known = [moment.sessions.get(session_id) for moment in window]
    if found is None:
        if all(each is not None and each[3] for each in known):
            raise Violation(f"{where}: not seen, though there all the time")
        return
    errors: list[Violation] = []
    for life in {each[0] for each in known if each is not None}:
        of_life = [each for each in known if each is not None and each[0] == life]
        least = known[0][1] if known[0] is not None and known[0][0] == life else 0
        try:
            state = trace.lives[session_id, life].match(found, least, where)
        except Violation as error:
            errors.append(error)
            continue
        first = trace.lives[session_id, life].states.index(trace.lives[session_id, life].states[state])
        if first <= max(each[2] for each in of_life):
            return
        errors.append(Violation(f"{where}: state {state} was not begun by {steps.at}"))
    raise errors[0] if errors else Violation(f"{where}: seen, though it was never there")
