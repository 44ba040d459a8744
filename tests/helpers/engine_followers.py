"""What a follower was told, against what the engine's model knows: each entry once, in order, or a Reset.

A *listener* takes what a follower has to tell and keeps the session as it was told: own entries and head. Followers are
let loose on the record of a scenario, each call of theirs on a later state than the one before; or they look from
inside each effect of a writer, and again on the disks that a power cut at that moment may leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from agentsession_cas.errors import AgentSessionError, NoSession
from agentsession_cas.sessions.follow import Follower
from agentsession_cas.sessions.follow_changes import Appended, Change, Reset, Snapshot
from agentsession_cas.store import Store
from agentsession_cas.testing.simfs import Sim, Steps
from tests.helpers.crashes import Violation
from tests.helpers.engine import Player, observed
from tests.helpers.engine_model import Truth, World
from tests.helpers.engine_scenarios import Scenario
from tests.helpers.stores import ROOT, opened

__all__ = ["Listener", "followed_inside", "watched_followers"]

LOOKS_MAX = 400


class Listener:
    """A follower, and the session as it told it. ``resets`` counts its Resets, ``changes`` everything."""

    def __init__(self, store: Store, session: str, cursor: str | None = None, *, committed: bool = False) -> None:
        self._follower: Follower = store.follow(session, cursor, committed=committed)
        self._session = session
        self.only_committed = committed
        self.own: list[bytes] = []
        self.head = ""
        self.cursor = cursor
        self.began = cursor is not None
        self.resets = 0
        self.changes = 0

    def look(self) -> bool:
        """Take one change, if there is one. Raises what the follower does, and Violation for nonsense."""
        change = self._follower.take(0)
        if change is not None:
            self._hear(change)
        return change is not None

    def all(self) -> None:
        """Take all there is to tell."""
        while self.look():
            pass

    def _hear(self, change: Change) -> None:
        self.changes += 1
        source = change.session.source
        if isinstance(change, Appended):
            self.own.append(change.entry.line)
        elif isinstance(change, (Snapshot, Reset)):
            if self.began == isinstance(change, Snapshot):
                raise Violation(f"a {change.kind} as change {self.changes}")
            self.resets += isinstance(change, Reset)
            self.own = [source.entry(at).line for at in range(source.base_count, len(source))]
        self.began = True
        self.head, self.cursor = change.head, change.cursor
        held = len(source) - source.base_count
        if held < len(self.own) or change.session.leaf != self.head:
            raise Violation(f"the follower's own session holds {held} of {len(self.own)} entries told")

    def resumed(self, store: Store) -> Listener:
        """One that goes on from the last cursor, knowing what this one was told."""
        again = Listener(store, self._session, self.cursor, committed=self.only_committed)
        again.own, again.head, again.resets, again.changes = list(self.own), self.head, self.resets, self.changes
        return again

    def close(self) -> None:
        """End it."""
        self._follower.close()


def is_told(truth: Truth, listener: Listener) -> bool:
    """Whether what was told is what a session came to: its first entries, in order."""
    return listener.own == [entry.line for entry in truth.own[: len(listener.own)]]


def _steps(rng: Random, last: int) -> Iterator[int]:
    at, gap = rng.randrange(last + 1), rng.choice((1, 2, 4, 8, 32))
    while True:
        yield at
        at = min(last, at + rng.randrange(gap + 1))


def watched_followers(name: str, scenario: Scenario, *, sector: int, tries: int, seed: int = 0) -> int:
    """Run a scenario under followers; returns how many changes they were told. Raises Violation.

    Nothing is lost while the machine runs, so nobody may hear of a Reset; who goes on to the end has heard all.
    """
    sim = Sim(sector=sector, seed=seed)
    player = Player(sim.host, World())
    assert not player.store.session_ids()
    sim.record()
    lives: dict[tuple[str, int], Truth] = {}

    def note() -> None:
        lives.update({(truth.id, truth.life): truth for truth in player.world.sessions.values()})

    player.told = note
    sim.watch(player.before_effect)
    scenario(player)
    sim.watch(None)
    rng, names = Random(f"{name}/{sector}/{seed}"), sorted({session for session, _ in lives})
    told = 0
    for number in range(tries):
        session = names[number % len(names)]
        steps = Steps(_steps(rng, sim.now))
        where = f"{name} follower {number} [{sector}] of {session} from {steps.start}"
        told += _followed(sim, steps, session, lives, where, committed=number % 3 == 0)
    return told


def _followed(
    sim: Sim, steps: Steps, session: str, lives: dict[tuple[str, int], Truth], where: str, *, committed: bool
) -> int:
    """Follow from when the session is there to the end of the record, or of the session."""
    store = Store.open(ROOT, host=sim.reader(steps), read_only=True)
    listener, gone = None, False
    for _ in range(LOOKS_MAX):
        over = steps.at == sim.now
        try:
            listener = listener or Listener(store, session, committed=committed)
            if not listener.look() and over:
                break
        except NoSession:
            gone = listener is not None and listener.began
            if gone or over:
                break
            listener = None
        except AgentSessionError as error:
            raise Violation(f"{where}: {type(error).__name__}: {error}") from error
    else:
        raise Violation(f"{where}: no end of it")
    if listener is None or not listener.began:
        return 0
    listener.close()
    _judge(listener, [truth for (name, _), truth in lives.items() if name == session], where, gone, committed)
    return listener.changes


def _judge(listener: Listener, truths: list[Truth], where: str, gone: bool, committed: bool) -> None:
    truths = [truth for truth in truths if is_told(truth, listener)]
    if not truths:
        raise Violation(f"{where}: told {len(listener.own)} entries that nobody appended")
    if listener.resets:
        raise Violation(f"{where}: a reset, though nothing was lost")
    newest = max(truths, key=lambda truth: truth.life)
    if gone:
        return
    if len(listener.own) < newest.states[newest.must if committed else -1].own:
        raise Violation(f"{where}: {len(listener.own)} of {len(newest.own)} entries told in the end")
    if not committed and listener.head != newest.head:
        raise Violation(f"{where}: the head told is {listener.head}")


def followed_inside(scenario: Scenario, sim: Sim, images: int) -> int:
    """Follow session ``s`` from within each effect of a scenario, then on what a power cut there leaves; how many cuts.

    What followers of committed entries were told is on every disk; what others were told goes on, or is reset.
    """
    player = Player(sim.host, World())
    player.create("s")
    watching = opened(sim.process("p2"))
    listeners = [Listener(watching, "s", committed=committed) for committed in (False, True)]
    cuts = 0

    def cut(kind: str, path: str) -> None:
        nonlocal cuts
        player.before_effect(kind, path)
        for listener in listeners:
            listener.all()
        if "/sessions/s" in path and (kind != "write" or not path.endswith("/HEAD")):
            cuts += 1
            for image in sim.images(images, seed=sim.count):
                for listener in listeners:
                    _judge_image(image, listener, f"{kind} {path}: {image.story}")

    sim.watch(cut)
    scenario(player)
    sim.watch(None)
    for listener in listeners:
        listener.all()
        _judge(listener, [player.world.sessions["s"]], "at the end", False, committed=listener is listeners[1])
    return cuts


def _judge_image(image: Sim, listener: Listener, where: str) -> None:
    """Go on following on a machine that was switched on again, before and behind a recovery."""
    store = opened(image.host)
    committed = listener.only_committed
    for recovered in (False, True):
        if recovered:
            store.open_session("s").close()
        found = observed(store, "s")
        again = listener.resumed(store)
        again.all()
        again.close()
        if committed and (again.resets or not tuple(again.own) == found.own[: len(again.own)]):
            raise Violation(f"{where}: what was told as committed is not there")
        if not committed and (tuple(again.own), again.head) != (found.own, found.head):
            raise Violation(f"{where}: told {len(again.own)} entries, {len(found.own)} are there")
