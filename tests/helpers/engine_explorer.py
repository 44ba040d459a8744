"""The explorer of the engine: plays a scenario, cuts the power at every effect, and judges what comes back.

One run serves every cut: before each effect, images of what the disk may hold are booted, read, recovered twice,
written to and cut again. Invariants (architecture §3, §4): what is found is a state the model allows; recovery changes
nothing a reader saw, gives the same again, and leaves nothing to recover; appends after it survive; what was lost never
rises. Everything follows from the seed.
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from itertools import count
from random import Random
from typing import Final

from agentsession_cas.errors import AgentSessionError
from agentsession_cas.sessions.recovery import Verdict
from agentsession_cas.testing.simfs import Killed, Sim
from tests.helpers.crashes import Violation, files_of
from tests.helpers.engine import Player, check_blobs, observe
from tests.helpers.engine_model import World
from tests.helpers.engine_scenarios import Scenario, die, goes_on

__all__ = ["BUDGET", "Explorer", "handles"]

BUDGET: Final = float(os.environ.get("ENGINE_IMAGES", "1"))
"""Images are about this many times what the suite runs by default."""
PER_CUT: Final = 12
EFFECTS_MAX: Final = 100_000

Kinds = frozenset[str] | None


class Explorer:
    """Judges images of one kind of disk: ``sector`` bytes wide; ``tear`` destroys sectors in flight.

    ``density`` is the share of cuts that are looked at, ``images`` counts the images that were judged.
    """

    def __init__(self, *, sector: int = 512, tear: bool = False, seed: int = 0, density: float = 1.0) -> None:
        self.sector = sector
        self.tear = tear
        self.seed = seed
        self.density = density * BUDGET
        self.per_cut = round(PER_CUT * max(1.0, self.density))
        self.rng = Random(f"{sector}/{tear}/{seed}")
        self.images = 0

    # --- one process, power cut at every effect

    def power(self, name: str, scenario: Scenario, *, fresh: bool = False) -> None:
        """Cut after every effect of a scenario, played on a disk with a past or (``fresh``) on an empty one."""
        sim, player = self._machine(None if fresh else scenario)

        def cut(kind: str, path: str) -> None:
            self._cut(sim, player.world, f"{name}@{sim.count} {kind} {path}", self._share(kind, path))
            sim.watch(cut)
            player.before_effect(kind, path)

        sim.watch(cut)
        scenario(player)
        sim.watch(None)
        if player.interrupts:
            raise Violation(f"{name}: {player.interrupts} never came")
        self._cut(sim, player.world, f"{name}@end", 2 * self.per_cut)

    def _machine(self, past: Scenario | None) -> tuple[Sim, Player]:
        """A machine that was switched on just now; ``past`` is what its disk saw and lost, None a new disk."""
        sim = Sim(sector=self.sector, seed=self.seed)
        if past is not None:
            die(Player(sim.host, World(), "d"), past)
            sim = next(sim.images(1))
        player = Player(sim.host, World())
        player.tear = self.tear
        return sim, player

    def _share(self, kind: str, path: str) -> int:
        """How many images the disk before an effect is worth: most where a sync is about to settle it.

        Objects are explored by a suite of their own.
        """
        at_objects = "/objects/" in path or "/tmp/" in path
        settles = kind in ("sync", "sync_dir") and not at_objects
        chance = 2.0 if settles else 0.1 if at_objects else 0.5
        if self.rng.random() >= chance * self.density:
            return 0
        return 2 * self.per_cut if settles else self.per_cut

    def _cut(self, sim: Sim, world: World, where: str, budget: int) -> None:
        if budget:
            for image in sim.images(budget, tear=self.tear, seed=self.rng.randrange(1 << 30)):
                self.judge(image, world, where)

    # --- judging one image

    def judge(self, image: Sim, world: World, where: str, depth: int = 0) -> None:
        """Read, recover, recover again, write, cut again."""
        where = f"{where} [{self.sector}{' torn' if self.tear else ''}] {image.story}"
        self.images += 1
        player = Player(image.host, replace(world), "z")
        found = observe(player.store, where)
        check_blobs(player.store, world, where)
        settled = world.settle(found, where)
        player.world = settled
        if depth == 0 and self.rng.random() < 0.06:
            self._inside_recovery(image, settled, where)
        for session_id in settled.sessions:
            self._recover(player, session_id, where)
        if observe(player.store, where) != found:
            raise Violation(f"{where}: recovery changed what a reader saw")
        self._write_behind(image, player, world, where, depth)

    def _recover(self, player: Player, session_id: str, where: str) -> None:
        try:
            player.open(session_id)
            player.close(session_id)
            state = player.store.snapshot(session_id).state
            if state.verdict is not Verdict.CLEAN:
                raise Violation(f"{where}: {session_id}: {state.verdict} after a recovery")
            player.open(session_id)
        except AgentSessionError as error:
            raise Violation(f"{where}: {session_id}: recovery: {type(error).__name__}: {error}") from error

    def _write_behind(self, image: Sim, player: Player, world: World, where: str, depth: int) -> None:
        """Append what is as long as what was lost: it survives, and the lost does not come back."""
        lost = {name: groups for name, groups in world.lost(player.world) if not world.sessions[name].mirror}
        for session_id, groups in lost.items():
            player.append(session_id, *(groups[0] if groups and groups[0] else (77,)), durable=True)
        for again in image.images(3 if depth else 4, tear=self.tear, seed=self.rng.randrange(1 << 30)):
            self._settles(again, player.world, f"{where}/after append")
        if depth or not any(lost.values()):
            return
        for session_id, groups in lost.items():
            for sizes in groups[1:4]:
                player.append(session_id, *(sizes or (77,)))
        for again in image.images(6, tear=self.tear, seed=self.rng.randrange(1 << 30)):
            self._settles(again, player.world, f"{where}/after more")
        if self.rng.random() < 0.3:
            self._publish_behind(image, player, where)

    def _publish_behind(self, image: Sim, player: Player, where: str) -> None:
        """Checkpoint what was recovered and written."""
        for session_id in player.world.sessions:
            player.checkpoint(session_id)
        player.world.settle(observe(player.store, where), f"{where}/after a checkpoint", running=True)
        for again in image.images(2, tear=self.tear, seed=self.rng.randrange(1 << 30)):
            self._settles(again, player.world, f"{where}/after a checkpoint")

    def _settles(self, image: Sim, world: World, where: str) -> None:
        self.images += 1
        world.settle(observe(Player(image.host, replace(world)).store, where), where)

    def _inside_recovery(self, image: Sim, settled: World, where: str) -> None:
        """Cut the power while the image is being recovered."""
        copy = image.clone()
        player = Player(copy.host, settled, "y")

        def cut(kind: str, path: str) -> None:
            here = f"{where}/in recovery@{kind} {path}"
            for deep in copy.images(2, tear=self.tear, seed=self.rng.randrange(1 << 30)):
                self.judge(deep, settled, here, depth=1)

        copy.watch(cut)
        for session_id in settled.sessions:
            player.store.open_session(session_id)
        copy.watch(None)

    # --- a second process goes on

    def resume(
        self,
        name: str,
        scenario: Scenario,
        *,
        start: int = 0,
        stop: int = EFFECTS_MAX,
        stride: int = 1,
        torn: bool = False,
        fresh: bool = False,
    ) -> None:
        """Kill the first process after each effect, let a second go on, and cut the power in it anywhere."""
        for at in range(start + self.rng.randrange(stride), stop, stride):
            sim, player = self._watched(None if fresh else scenario)
            sim.kill_after(at, torn=torn)
            try:
                scenario(player)
                return
            except Killed:
                self._second(sim, player.world, f"{name} killed at {at}")

    def faults(
        self,
        name: str,
        scenario: Scenario,
        code: int,
        *,
        forever: bool = False,
        kinds: Kinds = None,
        stride: int = 1,
        alone: bool = False,
        fresh: bool = False,
    ) -> None:
        """Let each operation of these kinds fail, once or from then on; the process goes on as a harness would.

        Errors are typed, nothing refused is seen, what was acknowledged survives; a second process, unless the first is
        ``alone``, finds all well.
        """
        for at in count(1 + self.rng.randrange(stride), stride):
            sim, player = self._watched(None if fresh else scenario)
            player.forgiving = True
            fault = sim.fail(at, code, kinds=kinds, forever=forever)
            scenario(player)
            if not fault.hits:
                return
            where = f"{name} {errno.errorcode[code]} at {at}{' for ever' if forever else ''}"
            self._cut(sim, player.world, where, self.per_cut // 3)
            player.leave()
            if held := handles(sim):
                raise Violation(f"{where}: left open: {held}")
            if not alone:
                self._second(sim, player.world, where)

    def _watched(self, past: Scenario | None) -> tuple[Sim, Player]:
        sim, player = self._machine(past)

        def before(kind: str, path: str) -> None:
            player.before_effect(kind, path)

        sim.watch(before)
        return sim, player

    def _second(self, sim: Sim, world: World, where: str) -> None:
        sim.kill("p1")
        sim.heal()
        player = Player(sim.process("p2"), world, "b")
        player.world = world.settle(observe(player.store, where), where, running=True)

        def cut(kind: str, path: str) -> None:
            self._cut(sim, player.world, f"{where}, second @{kind} {path}", self._share(kind, path))

        sim.watch(cut)
        goes_on(player)
        sim.watch(None)
        self._cut(sim, player.world, f"{where}, second at end", self.per_cut // 3)


def handles(sim: Sim) -> list[str]:
    """The named files that somebody holds open."""
    return [path for path, file in files_of(sim) if file is not None and file.opens]
