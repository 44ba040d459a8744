"""A simulated machine: its disk forgets, its power fails, its processes die, and all of it can be repeated.

Owns the machine: its processes, clock and randomness, and what may be done to it. Effects are defined in
``testing.simdisk``, legal crash images in ``testing.images``. Invariants: what was synced is never lost, what was not
may be; errors are those of the real host, by the same translation; the same seed and program give the same run. Must
not: know what a store is.

How to drive it: ``Sim()`` is an empty machine and ``sim.host`` its first process. Either set a limit (``cut_after``,
``kill_after``, ``fail``) and run a program into it, or ``watch`` a whole run and take ``images()`` or a ``clone()``
before each effect: one run then serves every cut.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from random import Random
from threading import Event
from typing import Final, TypeVar

from agentsession_cas.effects.host import Fs, Host
from agentsession_cas.effects.memory import MemoryFs, memory_host
from agentsession_cas.effects.together import one_by_one
from agentsession_cas.testing.crew import Crew
from agentsession_cas.testing.images import Story, copied, images
from agentsession_cas.testing.simdisk import (
    EFFECTS,
    GROWS,
    OPENS,
    READS,
    Effect,
    Fault,
    Killed,
    PowerCut,
    SimDisk,
    SimProcess,
)
from agentsession_cas.testing.snapshots import Recorder, SnapshotFs, Steps, wandering

__all__ = [
    "EFFECTS",
    "OPENS",
    "READS",
    "Effect",
    "Fault",
    "Killed",
    "PowerCut",
    "Sim",
    "Steps",
    "memory_host",
]

T = TypeVar("T")

EPOCH_NS: Final = 1_750_000_000_000_000_000
TICK_NS: Final = 1_000


class SimClock:
    """Time that only tests move. Every reading is a microsecond later; sleeping costs nothing."""

    def __init__(self, now_ns: int = EPOCH_NS) -> None:
        self.wall_ns = now_ns
        self.passed_ns = 0
        self.on_sleep: Callable[[], None] | None = None

    def now_ns(self) -> int:
        """As ``Clock.now_ns``."""
        self.wall_ns += TICK_NS
        return self.wall_ns

    def monotonic(self) -> float:
        """As ``Clock.monotonic``."""
        self.passed_ns += TICK_NS
        return self.passed_ns / 1e9

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.wall_ns += int(seconds * 1e9)
        self.passed_ns += int(seconds * 1e9)

    def sleep(self, seconds: float) -> None:
        """As ``Clock.sleep``; ``on_sleep`` is where another process may act meanwhile."""
        self.advance(seconds)
        if self.on_sleep is not None:
            self.on_sleep()

    def wait(self, event: Event, seconds: float) -> bool:
        """As ``Clock.wait``: sleeps all that time, unless the event is set."""
        if not event.is_set():
            self.sleep(seconds)
        return event.is_set()


class SimEntropy:
    """Bytes that only depend on a seed and on how many were taken."""

    def __init__(self, seed: str) -> None:
        self._seed = blake2b(seed.encode(), digest_size=32).digest()
        self._taken = 0

    def take(self, n: int) -> bytes:
        """As ``Entropy.take``."""
        blocks = []
        for _ in range(-(-n // 64)):
            self._taken += 1
            blocks.append(blake2b(self._taken.to_bytes(8, "big"), key=self._seed).digest())
        return b"".join(blocks)[:n]


class Sim:
    """A machine. ``host`` is its first process, "p1"."""

    def __init__(self, *, sector: int = 512, seed: int | str = 0) -> None:
        self.clock = SimClock()
        self.disk = SimDisk(self.clock, sector, str(seed))
        self.entropy = SimEntropy(str(seed))
        self.story = Story()
        self.host = self.process("p1")

    @classmethod
    def _of(cls, disk: SimDisk, clock: SimClock, story: Story) -> Sim:
        sim = cls.__new__(cls)
        sim.clock = clock
        sim.disk = disk
        sim.entropy = SimEntropy(disk.seed)
        sim.story = story
        sim.host = sim.process("p1")
        return sim

    # --- processes

    def process(self, name: str) -> Host:
        """The host a process sees; another name is another process, a name that was killed a new one."""
        who = name
        while who in self.disk.processes and self.disk.processes[who].end is not None:
            who += "'"
        process = self.disk.processes.setdefault(who, SimProcess(1000 + len(self.disk.processes)))
        fs: Fs = MemoryFs(self.disk, who, self.clock)
        name = f"simulated process {who}"
        return Host(fs, self.clock, self.entropy, name, lambda: process.pid, together=self._together)

    def _together(self, works: Sequence[Callable[[], T]]) -> list[T]:
        """In threads that take turns, as the seed has it; what a watcher does is done in order."""
        disk = self.disk
        if len(works) < 2 or disk.watched or disk.crew is not None:
            return one_by_one(works)
        disk.crew = Crew(Random(f"{disk.seed}/crew/{disk.count}"))
        try:
            return disk.crew.run(works)
        finally:
            disk.crew = None

    def _alive(self, name: str) -> str:
        return max((who for who in self.disk.processes if who.rstrip("'") == name), key=len)

    def kill(self, name: str) -> None:
        """End a process now: its locks go, what it wrote stays visible, and each call it still makes raises Killed."""
        self.disk.kill(self._alive(name))

    @contextmanager
    def forked(self, name: str) -> Iterator[None]:
        """Inside, the process is a forked child of itself: ``process_id`` differs, and no lock of it is unlocked."""
        process = self.disk.processes[self._alive(name)]
        parent, process.pid = process.pid, process.pid + 100_000
        try:
            yield
        finally:
            process.pid = parent

    # --- effects

    @property
    def count(self) -> int:
        """Effects so far."""
        return self.disk.count

    @property
    def log(self) -> list[Effect]:
        """Effects so far, but those that failed; may be cleared."""
        return self.disk.log

    def watch(self, before_effect: Callable[[str, str], None] | None) -> None:
        """Call this with (kind, path) whenever an effect is about to happen, even one that will fail.

        Inside the call, the machine is as a cut before the effect leaves it: take ``images()`` or a ``clone()``, or act
        as another process. Calls do not nest. What is written there is not covered by the sync it interrupts.
        """
        self.disk.before_effect = before_effect

    def cut_after(self, n: int) -> None:
        """After ``n`` more effects every call raises PowerCut; then look at ``images()``."""
        self.disk.cut_at = self.disk.count + n

    def kill_after(self, n: int, *, torn: bool = False) -> None:
        """After ``n`` more effects the process that tries the next is killed; ``torn``: within that, if a write."""
        self.disk.kill_at = self.disk.count + n
        self.disk.torn = torn

    def fail(self, at: int, code: int, *, kinds: frozenset[str] | None = None, forever: bool = False) -> Fault:
        """Let the ``at``-th (from 1) fitting operation from now fail with an errno, once or from then on.

        Which fit depends on the errno unless ``kinds`` says it: EMFILE and ENFILE what takes a descriptor, ENOSPC and
        EDQUOT what may need space, any other the effects. A failing write is done in part. A failing sync writes some
        sectors and marks all clean, so that no later sync writes the rest. Others change nothing. ``hits`` of the
        result is 0 when the program ended before it struck.
        """
        if kinds is None:
            by_code = {errno.EMFILE: OPENS, errno.ENFILE: OPENS, errno.ENOSPC: GROWS, errno.EDQUOT: GROWS}
            kinds = by_code.get(code, EFFECTS)
        armed = Fault(code, kinds, at, forever)
        self.disk.faults.append(armed)
        return armed

    def heal(self) -> None:
        """No more faults, limits and watching; what is lost stays lost, who is dead stays dead."""
        self.disk.faults.clear()
        self.disk.cut_at = self.disk.kill_at = self.disk.before_effect = None
        self.disk.read_only = False

    def read_only(self) -> None:
        """Mount the disk read-only: effects, locks and opens for writing fail as the system has it."""
        self.disk.read_only = True

    # --- other machines

    def images(self, budget: int = 40, *, tear: bool = False, seed: int = 0) -> Iterator[Sim]:
        """Machines rebooted from what the disk may hold if the power went now: at most ``budget``, none twice.

        The first has all that was pending, the second none of it. ``tear`` lets the device also destroy sectors it was
        writing. A machine's ``story`` says what it kept. The same seed gives the same images. Leave this machine alone
        until the last was taken.
        """
        for k, (grow, story) in enumerate(images(self.disk, Random(f"{self.disk.seed}/{seed}"), budget, tear)):
            clock = SimClock(self.clock.wall_ns + 1_000_000_000)
            disk = SimDisk(clock, self.disk.sector, f"{self.disk.seed}/{self.disk.count}.{seed}.{k}")
            grow(disk)
            yield Sim._of(disk, clock, story)

    def clone(self) -> Sim:
        """A machine in this state, what is pending included, with no process and no lock left.

        As if all processes had been killed just now: what others go on from, before the power fails too.
        """
        clock = SimClock(self.clock.wall_ns)
        disk = SimDisk(clock, self.disk.sector, f"{self.disk.seed}/{self.disk.count}.c")
        copied(self.disk, disk)
        return Sim._of(disk, clock, self.story)

    def flip(self, path: str, offset: int, mask: int = 0x41) -> None:
        """Change a byte at rest, on the disk and in the cache: one that was synced."""
        file = self.disk.find_file(path)
        file.write(bytes([file.data[offset] ^ mask]), offset)

    # --- readers

    def record(self) -> None:
        """From now on keep every state readers may see: after each effect, and within writes sector by sector."""
        self.disk.recorder = Recorder(self.disk.root, self.disk.sector)

    @property
    def now(self) -> int:
        """The number of the newest state recorded: note it when something is acknowledged."""
        assert self.disk.recorder is not None
        return len(self.disk.recorder.states) - 1

    def reader(self, steps: Steps) -> Host:
        """A process that reads while the recorded program ran: each of its calls falls on the next of ``steps``.

        ``steps`` are numbers of states as ``now`` gives them. Whatever would write or lock is refused (ReadOnly).
        """
        assert self.disk.recorder is not None
        fs: Fs = SnapshotFs(self.disk.recorder, steps, self.disk.rng)
        return Host(fs, SimClock(self.clock.wall_ns), self.entropy, "simulated reader", lambda: 1)

    def readers(self, tries: int, seed: int = 0) -> Iterator[tuple[Steps, Host]]:
        """That many readers at random times, with their steps: see ``Steps`` for what each must and may see."""
        rng = Random(f"{self.disk.seed}/readers/{seed}")
        for _ in range(tries):
            steps = Steps(wandering(rng, self.now))
            yield steps, self.reader(steps)
