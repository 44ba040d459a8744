"""sweep: what no session needs and has lain there for a while goes (store.md A8, architecture §3).

Owns the order. With repacks held off: what is needed is marked and what is dead is found beside whoever writes, which
takes long; so is what came meanwhile, until it is little. Then the store is held alone, waiting for no session: what
has changed since is marked too, the absences the plan rests on are made durable (a deleted session that a crash brings
back must find its objects), the epoch moves, so that nobody goes on believing in what he saw before, and dead packs and
loose objects go: some thousands, and then others have the store before it is held, in the same way, for the next. At
last come packs that are dead in part, one after the other: a pack without the dead is written,
synced and read back beside whoever writes, and takes the old one's place with the store held as before, unless what it
lacks has come to be needed. Dead packs go as they do in a repack, the pack before its idx: who lists one finds both.
Invariants: what is reachable stays, at whatever step this ends; a plan deletes no name it wrote. Must not: say what is
needed, or what is dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from agentsession_cas.core.packformat import Space
from agentsession_cas.effects.durable import remove_tree
from agentsession_cas.errors import Corrupt, NoFile
from agentsession_cas.layout import Layout
from agentsession_cas.maintenance.sweep_plan import (
    DIGEST,
    SWEPT,
    Dead,
    DeadFile,
    DeadInPack,
    Plan,
    find_dead,
    plan_sweep,
)
from agentsession_cas.maintenance.sweep_roots import Roots
from agentsession_cas.maintenance.turn import turn
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.objects.prune import prune_loose, replace_pack, write_pruned
from agentsession_cas.sessions.refs import RefDatabase

__all__ = ["GRACE_S", "SweepReport", "sweep"]

GRACE_S: Final = 14 * 86400.0
"""How long what nobody needs is kept, in seconds, from when it was last written."""

STAGED_NS: Final = 86400 * 10**9
"""What lies in ``tmp/`` for so long belongs to nobody any more: whoever staged it is dead."""

_FSCK: Final = "run fsck; what was to be deleted stays"

_AT_ONCE: Final = 4096
"""Loose objects deleted before others have the store again: some tenths of a second."""

_BREATH_S: Final = 0.06
"""Others have it for so long then: longer than who waits for the store pauses before he looks again."""

_CATCH_UPS: Final = 4
_FEW: Final = 4
"""Sessions that changed while others were marked, and the rest may be marked with the store held."""

REF_LOG_NS: Final = 90 * 86400 * 10**9
"""How long a ref log goes back at least, when it has become long."""


@dataclass(slots=True)
class SweepReport:
    """What a sweep took away; in a dry run, what it would, about.

    ``objects`` counts copies of dead objects, ``young`` those that stay until they are older, ``size`` the bytes freed.
    ``removed`` and ``rewritten`` are stems of packs, ``kept`` those of packs that could not be read through. ``trash``
    and ``tmp`` are deleted sessions and leftovers of writes, ``ref_logs`` segments of ref logs (not foreseen).
    """

    dry_run: bool
    objects: int = 0
    young: int = 0
    loose: int = 0
    size: int = 0
    removed: list[str] = field(default_factory=list)
    rewritten: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    trash: int = 0
    tmp: int = 0
    ref_logs: int = 0

    def foresee(self, plan: Plan, tied: int) -> None:
        """Say what a plan comes to, and the pieces that are tied to what goes: all of them, unless something stays."""
        packs = [*plan.whole, *plan.partly]
        self.loose = sum(len(digests) for digests in plan.loose.values()) // DIGEST
        self.objects = sum(each.dead_count for each in packs) + self.loose + (0 if plan.young else tied)
        self.young = plan.young
        self.size = plan.loose_size + sum(each.dead_size for each in packs)
        self.removed = [each.pack.stem for each in plan.whole]
        self.rewritten = [each.pack.stem for each in plan.partly]

    def to_json(self) -> dict[str, Any]:
        """The ``sweep`` shape: counts, bytes, and the packs that were kept."""
        return {
            "dry_run": self.dry_run,
            "objects": self.objects,
            "young": self.young,
            "loose": self.loose,
            "packs": {"removed": len(self.removed), "rewritten": len(self.rewritten)},
            "bytes": self.size,
            "trash": self.trash,
            "tmp": self.tmp,
            "ref_logs": self.ref_logs,
            "kept": self.kept,
        }


def sweep(
    layout: Layout,
    objects: ObjectDatabase,
    *,
    grace_s: float = GRACE_S,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
    wait_s: float = 60.0,
) -> SweepReport:
    """Take away what no session needs and is older than ``grace_s`` seconds; ``dry_run`` says what would go.

    May be stopped at any time. Raises StoreLocked when a repack or another sweep runs for ``wait_s`` seconds, or others
    hold the store for so long; Corrupt, Damaged or NoObject when it cannot be told what is needed: nothing is deleted
    then.
    """
    tell = progress or _tell_nobody
    before_ns = layout.host.clock.now_ns() - int(grace_s * 1e9)
    report = SweepReport(dry_run)
    with turn(layout, wait_s):
        work = _Sweep(layout, objects, wait_s)
        while _round(work, before_ns, report, tell):
            continue
    return report


def _round(work: _Sweep, before_ns: int, report: SweepReport, tell: Callable[[int, int], None]) -> bool:
    """Mark, plan and delete; whether another round would find more: pieces that were tied to what went."""
    dead = work.find_dead(tell)
    if report.dry_run:
        work.empty(report)
        report.foresee(plan_sweep(dead, work.age_of, before_ns), dead.tied)
        return False
    before = report.objects
    dead.spare(work.catch_up())
    partly = _delete(work, dead, before_ns, report)
    while partly:
        work.rewrite(partly, report)
    if report.objects > before:
        work.moves.drop_dictionaries()
    return dead.tied > 0 and report.objects > before


def _delete(work: _Sweep, dead: Dead, before_ns: int, report: SweepReport) -> list[DeadInPack]:
    """Delete what is dead but for packs that are so in part, which are given; others have the store in between."""
    report.young = 0
    late: set[int] = set()
    partly: list[DeadInPack] = []
    while True:
        with work.alone() as marks:
            late |= marks
            some = dead.some(_AT_ONCE)
            some.spare(late)
            plan = plan_sweep(some, work.age_of, before_ns)
            report.young += plan.young
            work.empty(report)
            work.delete(plan, report)
            for each in partly:
                each.spare(marks)
        partly = [each for each in (*partly, *plan.partly) if each.dead_count]
        if not any(dead.loose.values()):
            return partly
        work.let_others_in()


def _tell_nobody(done: int, total: int) -> None:
    """Nobody watches."""


def _unread(layout: Layout) -> Corrupt:
    return Corrupt("a body that has come meanwhile does not read", where=layout.root, next_step=_FSCK)


class _Sweep:
    """The steps of one sweep, repacks being held off."""

    def __init__(self, layout: Layout, objects: ObjectDatabase, wait_s: float) -> None:
        self._layout = layout
        self._fs = layout.host.fs
        self._objects = objects
        self._wait_s = wait_s
        self._refs = RefDatabase(layout.host, layout.root, layout.tmp)
        self._roots = Roots(layout, objects, self._refs)
        self._written: set[str] = set()
        self._changed: set[str] = set()
        self.moves: Final = objects.consolidator(nullcontext)

    def find_dead(self, tell: Callable[[int, int], None]) -> Dead:
        """What is dead, told beside whoever writes; what was written anew just now is as old as it was."""
        self._roots = Roots(self._layout, self._objects, self._refs)
        dead = find_dead(self._fs, self._objects, self._roots.mark(tell), tell)
        for each in dead.packs:
            if each.pack.stem in self._written:
                each.file = each.file._replace(mtime_ns=0)
        return dead

    def catch_up(self) -> set[int]:
        """The marks of what came while the dead were found, beside whoever writes: little is left to mark alone."""
        marks: set[int] = set()
        for _ in range(_CATCH_UPS):
            late = self._roots.mark(_tell_nobody)
            self._changed.update(self._roots.changed)
            marks |= late.needed.all() | late.kept.all()
            if not late.pieces:
                raise _unread(self._layout)
            if len(self._roots.changed) <= _FEW:
                break
        return marks

    def age_of(self, space: Space, digest: bytes) -> DeadFile:
        """The file of a loose object."""
        found = self._fs.stat(self._objects.loose_path(space, digest))
        return DeadFile(found.mtime_ns, found.size) if found is not None else DeadFile(0, 0)

    @contextmanager
    def alone(self) -> Iterator[set[int]]:
        """Hold the store alone; gives the marks of what has come to be needed. What is not needed durably is not."""
        with self._layout.alone(self._wait_s):
            late = self._roots.mark(_tell_nobody)
            self._make_absences_durable()
            if not late.pieces:
                raise _unread(self._layout)
            yield late.needed.all() | late.kept.all()

    def let_others_in(self) -> None:
        """Leave the store to others until whoever waits for it had it."""
        self._layout.host.clock.sleep(_BREATH_S)

    def _make_absences_durable(self) -> None:
        """Sync which sessions and refs there are, and the files of those sessions that changed meanwhile."""
        self._changed.update(self._roots.changed)
        for directory in sorted(self._changed):
            with suppress(NoFile):
                self._fs.sync_dir(directory)
        self._changed.clear()
        for top in (self._layout.sessions, self._layout.trash, self._refs.directory):
            self._fs.sync_dir(top)

    def _below(self, directory: str) -> Iterator[tuple[str, bool]]:
        for name in self._fs.listdir(directory):
            path = f"{directory}/{name}"
            found = self._fs.stat(path)
            if found is not None:
                yield path, found.is_dir

    def empty(self, report: SweepReport) -> None:
        """Empty ``trash/``, and ``tmp/`` of what is old; before all else, so that a full disk gets room."""
        now_ns = self._layout.host.clock.now_ns()
        for path, is_dir in self._below(self._layout.trash):
            report.trash += 1
            self._discard(path, is_dir, report)
        for path, is_dir in self._below(self._layout.tmp):
            found = self._fs.stat(path)
            if found is not None and found.mtime_ns <= now_ns - STAGED_NS:
                report.tmp += 1
                self._discard(path, is_dir, report)
        if not report.dry_run:
            report.ref_logs = self._refs.logs.expire(now_ns - REF_LOG_NS)

    def _discard(self, path: str, is_dir: bool, report: SweepReport) -> None:
        if report.dry_run:
            return
        if is_dir:
            remove_tree(self._fs, path)
        else:
            self._fs.unlink(path)

    def delete(self, plan: Plan, report: SweepReport) -> None:
        """Delete dead packs and loose objects, the store being held."""
        if not plan.whole and not any(plan.loose.values()):
            return
        self._begin()
        report.removed += self.moves.remove([each.pack for each in plan.whole])
        report.objects += sum(each.dead_count for each in plan.whole)
        report.size += sum(each.file.size for each in plan.whole)
        loose = sum(prune_loose(self.moves, space, plan.loose_digests(space)) for space in SWEPT)
        report.loose += loose
        report.objects += loose
        report.size += plan.loose_size

    def _begin(self) -> None:
        """From here on objects go."""
        self._layout.move_epoch()
        self._objects.forget()

    def rewrite(self, todo: list[DeadInPack], report: SweepReport) -> None:
        """Replace the first of the packs by one without its dead objects; one that does not read stays."""
        each = todo.pop(0)
        try:
            writer, stem = write_pruned(self.moves, each.pack, each.dead)
        except (Corrupt, NoFile):
            report.kept.append(each.pack.stem)
            return
        try:
            with self.alone() as late:
                spared = [other for other in (each, *todo) if other.spare(late)]
                if each not in spared:
                    self._begin()
                    replace_pack(self.moves, each.pack, writer, stem)
                    self._written.add(stem)
                    report.rewritten.append(each.pack.stem)
                    report.objects += each.dead_count
                    report.size += each.dead_size
        finally:
            writer.abandon()
