"""The simulated disk: it counts effects, keeps what is un-synced apart, and lets faults strike.

Owns the effects, their log and their order. An *effect* is a create, mkdir, write, sync, rename, unlink, rmdir or
sync_dir that took place, also one that failed half-way; reads, locks and closes are none. Invariants: every effect
passes ``begin`` once, in the same order on every run; a failed one leaves what a real one may leave. Must not: choose
what a crash keeps; that is ``testing.images``.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from agentsession_cas.effects.disk import Directory, Disk, File, HeldLock, fault
from agentsession_cas.effects.protocols import Buffer, Clock
from agentsession_cas.testing.crew import Crew
from agentsession_cas.testing.pages import SimDirectory, SimFile
from agentsession_cas.testing.snapshots import Recorder

__all__ = [
    "DEAD_MAX",
    "EFFECTS",
    "GROWS",
    "OPENS",
    "READS",
    "Effect",
    "Fault",
    "Killed",
    "PowerCut",
    "SimDisk",
    "SimProcess",
]

EFFECTS: Final = frozenset({"create", "mkdir", "write", "sync", "rename", "unlink", "rmdir", "sync_dir"})
READS: Final = frozenset({"open", "pread", "read", "map", "listdir", "stat"})
OPENS: Final = frozenset({"open", "open for writing", "create", "read", "map", "listdir", "lock", "sync_dir"})
"""What takes a file descriptor."""
GROWS: Final = frozenset({"create", "mkdir", "write", "sync", "rename", "sync_dir"})
"""What may need space: also syncs, for many file systems look for it only then."""
READ_ONLY: Final = EFFECTS | {"lock", "open for writing"}

DEAD_MAX: Final = 64
"""Files that are gone but whose bytes are remembered, to show up in space never written."""


class PowerCut(BaseException):
    """The machine is off. Not an Exception, so that no handler of the program under test carries on."""


class Killed(BaseException):
    """The process is gone; the machine and what it saw go on."""


class Effect(NamedTuple):
    """An effect: ``size`` is the bytes of a write, ``target`` the new name of a rename."""

    kind: str
    path: str
    size: int
    target: str
    process: str


@dataclass(slots=True)
class Fault:
    """The ``at``-th operation of these kinds fails, counted from when this was set; ``hits`` says how often it did."""

    code: int
    kinds: frozenset[str]
    at: int
    forever: bool
    seen: int = 0
    hits: int = 0

    def strikes(self, kind: str) -> bool:
        """Count an operation; True when it fails."""
        if kind not in self.kinds:
            return False
        self.seen += 1
        hit = self.seen == self.at or (self.forever and self.seen > self.at)
        self.hits += hit
        return hit


@dataclass(slots=True)
class SimProcess:
    """A process of the machine; ``end`` is what each of its calls raises once it is dead."""

    pid: int
    end: type[BaseException] | None = None


class SimDisk(Disk):
    """The disk of the machine and everything that can befall it."""

    def __init__(self, clock: Clock, sector: int, seed: str) -> None:
        self.sector = sector
        self.seed = seed
        self.rng = Random(seed)
        self.count = 0
        self.stamp = 0
        self.log: list[Effect] = []
        self.cut_at: int | None = None
        self.kill_at: int | None = None
        self.torn = False
        self.off = False
        self.read_only = False
        self.faults: list[Fault] = []
        self.processes: dict[str, SimProcess] = {}
        self.held: list[HeldLock] = []
        self.dead: list[bytes] = []
        self.before_effect: Callable[[str, str], None] | None = None
        self.watched = False
        self.crew: Crew | None = None
        self.recorder: Recorder | None = None
        self._mark = 0
        super().__init__(clock)

    # --- what happens before an operation

    def take_turn(self, kind: str) -> None:
        """Before an effect another thread of the process may be let go first, but for what a watcher does."""
        if self.crew is not None and kind in EFFECTS and not self.watched:
            self.crew.take_turn()

    def approach(self, who: str, kind: str, path: str) -> None:
        """Come to an operation: whoever watches acts first, and what was planned strikes."""
        if self.off:
            raise PowerCut
        if (end := self.processes[who].end) is not None:
            raise end
        mark = self.stamp
        if kind in EFFECTS and self.before_effect is not None:
            watching, self.before_effect, self.watched = self.before_effect, None, True
            try:
                watching(kind, path)
            finally:
                self.before_effect, self.watched = watching, False
        # a sync covers what was written before it began, not what others did meanwhile
        self._mark = mark

    def begin(self, who: str, kind: str, path: str, size: int = 0, target: str = "") -> None:
        """Begin an operation, and count it when it is an effect."""
        if self.read_only and kind in READ_ONLY:
            raise fault(errno.EROFS)
        if kind in EFFECTS:
            if self.cut_at is not None and self.count >= self.cut_at:
                self.off = True
                raise PowerCut
            if self.kill_at is not None and self.count >= self.kill_at:
                self.kill(who)
                raise Killed
            self.count += 1
            self.stamp += 1
        for armed in self.faults:
            if armed.strikes(kind):
                raise fault(armed.code)
        if kind in EFFECTS:
            self.log.append(Effect(kind, path, size, target, who))

    def kill(self, who: str) -> None:
        """End a process: its locks go, what it wrote stays to be seen, its notes too."""
        self.kill_at = None
        self.processes[who].end = Killed
        for held in [held for held in self.held if held.who == who]:
            held.noted = False
            super().let_go(held)
            self.held.remove(held)

    def pid(self, who: str) -> int:
        """The number of a process."""
        return self.processes[who].pid

    # --- what operations do

    def new_file(self) -> SimFile:
        """A file whose writes wait for a sync."""
        return SimFile(self.new_number(), mtime_ns=self.clock.now_ns())

    def new_directory(self) -> SimDirectory:
        """A directory whose names wait for a sync."""
        return SimDirectory(self.new_number())

    def set_name(self, directory: Directory, name: str, node: File | Directory | None) -> None:
        """Set a name, pending until its directory is synced."""
        assert isinstance(directory, SimDirectory)
        directory.pend(name, node, self.stamp)
        super().set_name(directory, name, node)
        if self.recorder is not None:
            self.recorder.names(directory)

    def move(self, source: tuple[Directory, str], target: tuple[Directory, str]) -> None:
        """Rename: one change of both directories."""
        recorder, self.recorder = self.recorder, None
        super().move(source, target)
        self.recorder = recorder
        if recorder is not None:
            recorder.names(source[0], target[0])

    def write(self, who: str, file: File, path: str, data: Buffer, offset: int) -> None:
        """Write into the cache, as one effect; a failure leaves a part of it there."""
        assert isinstance(file, SimFile)
        part = memoryview(data)[: self.rng.randrange(len(data)) if len(data) else 0]
        try:
            self.begin(who, "write", path, len(data))
        except OSError:
            self._put(file, part, offset)
            raise
        except Killed:
            if self.torn:
                self.stamp += 1
                self._put(file, part, offset)
            raise
        self._put(file, data, offset)

    def _put(self, file: SimFile, data: Buffer, offset: int) -> None:
        if self.recorder is None:
            file.put(data, offset, self.sector, self.stamp)
        else:
            for piece, start in self.recorder.pieces(data, offset):
                file.put(piece, start, self.sector, self.stamp)
                self.recorder.wrote(file, start, len(piece))
        file.mtime_ns = self.clock.now_ns()

    def sync(self, who: str, file: File, path: str) -> None:
        """Make a file's pending writes durable; a failure loses them for good."""
        assert isinstance(file, SimFile)
        mark = self._mark
        try:
            self.begin(who, "sync", path)
        except OSError:
            file.fail(self.rng, self._junk, self.sector)
            raise
        file.settle(mark)

    def _junk(self) -> bytes:
        """A sector of some file that is gone."""
        past = self.rng.choice(self.dead) if self.dead else b""
        k = self.rng.randrange(len(past) // self.sector + 1)
        return past[k * self.sector : (k + 1) * self.sector].ljust(self.sector, b"\xa5")

    def sync_names(self, who: str, directory: Directory, path: str) -> None:
        """Make a directory's pending names durable; a failure leaves them pending."""
        assert isinstance(directory, SimDirectory)
        mark = self._mark
        try:
            self.begin(who, "sync_dir", path)
        except OSError:
            directory.fail(self.rng)
            raise
        directory.settle(mark)

    def hold(self, who: str, file: File, exclusive: bool, note: str) -> HeldLock | None:
        """Take a lock for a process."""
        held = super().hold(who, file, exclusive, note)
        if held is not None:
            self.held.append(held)
        return held

    def let_go(self, held: HeldLock) -> None:
        """Let a lock go, unless its process is gone or the machine is off."""
        if not self.off and self.processes[held.who].end is None:
            super().let_go(held)
            self.held = [other for other in self.held if other in other.file.locks]

    def forget(self, node: File | Directory) -> None:
        """Drop what is remembered of it. A file that recorded readers may hold open keeps its number from others."""
        if self.recorder is None or isinstance(node, Directory):
            super().forget(node)
        if isinstance(node, File) and not node.links and not node.opens and node.data:
            self.dead.append(node.frozen())
            del self.dead[:-DEAD_MAX]
