"""repack: keeping packs few, and making a store small (store.md Part B).

Owns when packs are merged and which, the dictionaries, and the order of an archive. Packs stay few because they stay
*geometric*: each is at least twice as large as all smaller ones together, so their number grows with the logarithm of
the bytes and each byte is copied as often. Fresh packs are compressed anew when they are first merged, unless they are
so many bytes that it would take long: a bulk build's are kept geometric among themselves, and wait for a repack. After
that blocks are copied as they are. One repack of a store runs at a time; a second one is refused, an automatic one does
nothing then. A sweep waits; one that is asked for lets it go first between lots of sessions. The work comes in slices,
between which others run. Must not: drop what nobody needs, or hold the store lock for longer than it takes to exchange
names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from agentsession_cas.core.packformat import OBJECTS_MAX, Grade, Space
from agentsession_cas.core.rows import RowCode
from agentsession_cas.core.slices import Slices, drain
from agentsession_cas.errors import AgentSessionError, Corrupt, Damaged, DiskError, NoSession, StoreLocked
from agentsession_cas.layout import Layout
from agentsession_cas.maintenance.rest import settle_all, unsettled
from agentsession_cas.maintenance.turn import Turn, spare_turn, turn
from agentsession_cas.objects.archive import ARCHIVE_MAX, Archiver
from agentsession_cas.objects.consolidate import PACKABLE, Consolidator, Moved
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.objects.pack import Pack
from agentsession_cas.objects.training import archive_dictionary, trained_everyday
from agentsession_cas.sessions.opening import read_header
from agentsession_cas.sessions.recovery import read_state

__all__ = ["Facts", "Progress", "RepackReport", "geometric", "repack", "settle_sessions", "tidy"]

Progress = Callable[[int, int], None]
"""Called with how many objects were dealt with and how many there are."""

FRESH_DUE: Final = 8
"""So many fresh packs are merged by themselves."""
LOOSE_DUE: Final = 2048
"""So many loose objects are packed by themselves."""
OLD_MAX: Final = 16
"""More packs than this are merged before they are archived, since every object is looked for in each of them."""
RATIO: Final = 2
THOROUGH_MAX: Final = 256 << 20
"""A pack of as many bytes is not merged without being asked."""
QUICK_MAX: Final = 64 << 20
"""A pack of as many bytes is not merged while somebody waits: it takes too long."""
RECODED_MAX: Final = 16 << 20
"""Fresh packs of more bytes together are copied, which takes a tenth of the time, not compressed anew by themselves."""
_NO_MAX: Final = 1 << 62

SLICE_S: Final = 0.0005
PAUSE_S: Final = 0.0002
"""After a slice of work by itself, this is how long others may have the interpreter at least."""


class Facts(NamedTuple):
    """What a plan needs to know of a pack."""

    stem: str
    grade: Grade
    size: int
    objects: int


def geometric(
    packs: Sequence[Facts], grade: Grade, *, fresh_due: int, fresh_max: int = _NO_MAX, size_max: int = _NO_MAX
) -> list[str]:
    """The packs to merge into one of ``grade``, by stem; none when they are few enough as they are.

    Fresh packs of fewer than ``fresh_max`` bytes once there are ``fresh_due`` of them (never into an archive), and
    packs of the grade, the smallest first, until each of the others is at least twice as large as all before it.
    """
    small = [each for each in packs if each.grade is Grade.FRESH and each.size < fresh_max]
    fresh = small if len(small) >= fresh_due and grade is not Grade.ARCHIVE else []
    own = sorted(
        (each for each in packs if each.grade is grade and each.size < size_max and each not in small),
        key=lambda each: each.size,
    )
    mass = sum(each.size for each in fresh)
    too_small = 0
    for at, each in enumerate(own):
        if mass and each.size < RATIO * mass:
            too_small = at + 1
        mass += each.size
    chosen: list[Facts] = []
    objects = 0
    for each in [*fresh, *own[:too_small]]:
        objects += each.objects
        if objects > OBJECTS_MAX // 2:
            break
        chosen.append(each)
    again = len(chosen) == 1 and chosen[0].grade is grade
    return [] if again else [each.stem for each in chosen]


# --- by itself -------------------------------------------------------------------------------------------------------


def tidy(layout: Layout, objects: ObjectDatabase, go_on: Callable[[], bool], *, thorough: bool) -> None:
    """Merge what is due, in the caller's thread; does nothing while another repack runs.

    Not ``thorough`` leaves large packs for another time: it takes a second or so at most, unless many fresh packs come
    at once. It merges also what others checkpoint meanwhile, who find the lock taken. Between slices
    ``go_on`` is asked, which may do something else meanwhile; False stops it, and what was begun is begun anew some
    other time. Raises nothing but what ``go_on`` raises: this is housekeeping.
    """
    clock = layout.host.clock
    work = _tidy(layout, objects, THOROUGH_MAX if thorough else QUICK_MAX)
    began = clock.monotonic()
    try:
        for _ in work:
            if clock.monotonic() - began < SLICE_S:
                continue
            clock.sleep(PAUSE_S)
            if objects.closed or not go_on():
                return
            began = clock.monotonic()
    except (StoreLocked, Corrupt, DiskError):
        return
    finally:
        work.close()


def _tidy(layout: Layout, objects: ObjectDatabase, size_max: int) -> Slices[None]:
    loose = objects.estimate_loose() >= LOOSE_DUE
    if not loose and len(_small(_facts(objects))) < FRESH_DUE:
        return
    with spare_turn(layout) as own:
        moves = objects.consolidator(partial(layout.shared, 0.0))
        while own is not None and not own.awaited:  # more may have come, whose checkpoints found the lock taken
            grade, stems = _due(_facts(objects), size_max)
            if grade is Grade.FRESH:
                yield from moves.merge(_named(objects, stems), (), grade, None)
                continue
            if not stems and not loose:
                return
            yield from _merge(moves, objects, stems, loose=loose)
            loose = False


def _due(packs: Sequence[Facts], size_max: int) -> tuple[Grade, list[str]]:
    """The packs to merge by themselves, and into what: a fresh pack copied from many when they are many bytes."""
    small = _small(packs)
    if len(small) >= FRESH_DUE and sum(each.size for each in small) > RECODED_MAX:
        grade = Grade.FRESH
    else:
        grade = Grade.EVERYDAY
    return grade, geometric(packs, grade, fresh_due=FRESH_DUE, fresh_max=RECODED_MAX, size_max=size_max)


def _small(packs: Sequence[Facts]) -> list[Facts]:
    """The fresh packs that count as such: not what came of a merge of many bytes."""
    return [each for each in packs if each.grade is Grade.FRESH and each.size < RECODED_MAX]


# --- when asked ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class RepackReport:
    """What a repack did. Packs and bytes (idx files included) before and after, loose objects that were packed.

    ``settled`` sessions at rest were made small. ``kept`` are the stems of packs with something in them that does not
    read: they stay as they are, fsck says more.
    """

    packs_before: int = 0
    packs: int = 0
    bytes_before: int = 0
    bytes: int = 0
    loose: int = 0
    settled: int = 0
    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def add(self, moved: Moved) -> None:
        """Count a move."""
        self.written += moved.written
        self.removed += moved.removed
        self.loose += moved.loose
        self.kept += moved.kept

    def to_json(self) -> dict[str, Any]:
        """The ``repack`` shape: counts, bytes, and the packs that were kept."""
        return {
            "packs": {"before": self.packs_before, "after": self.packs},
            "bytes": {"before": self.bytes_before, "after": self.bytes},
            "loose": self.loose,
            "settled": self.settled,
            "written": len(self.written),
            "removed": len(self.removed),
            "kept": self.kept,
        }


def repack(
    layout: Layout,
    objects: ObjectDatabase,
    *,
    all: bool = False,
    progress: Progress | None = None,
    rested_s: float = 0.0,
    wait_s: float = 60.0,
    turn_s: float = 0.0,
) -> RepackReport:
    """Settle sessions at rest, merge packs until they are few, and pack loose objects.

    ``all`` puts everything anew as small as it gets. Sessions are at rest that no writer holds and whose journals were
    not written to for ``rested_s`` seconds. A sweep that waits goes first between some hundred of them.
    May be stopped at any time, at the worst leaving copies behind that the next one takes away. Raises StoreLocked when
    another repack or a sweep runs for ``turn_s`` seconds or the store is held for ``wait_s`` seconds, DiskError and its
    like.
    """
    with turn(layout, turn_s) as own:
        report = RepackReport()
        report.packs_before, report.bytes_before = _weight(layout, objects)
        moves = objects.consolidator(partial(layout.shared, wait_s))
        moves.mend()
        resting = unsettled(layout, rested_s)
        work = _all_of(layout, moves, objects, resting, report, own, everything=all)
        total, done = _count(objects) * (2 if all else 1) + len(resting), 0
        tell = progress or _tell_nobody
        with closing(work):
            for objects_done in work:
                done = min(total, done + objects_done)
                if objects_done:
                    tell(done, total)
        tell(total, total)
        report.packs, report.bytes = _weight(layout, objects)
        sound = {pack.stem for pack in objects.sound_packs()}
        report.kept = sorted({*report.kept, *(pack.stem for pack in objects.packs() if pack.stem not in sound)})
        return report


def _all_of(
    layout: Layout,
    moves: Consolidator,
    objects: ObjectDatabase,
    resting: Sequence[str],
    report: RepackReport,
    own: Turn,
    *,
    everything: bool,
) -> Slices[None]:
    """Settle sessions first: what their journals hold is then merged, or archived, with all else."""
    report.settled = yield from settle_all(layout, objects, resting, moves.switch, own.give_way)
    yield from _archive(layout, moves, objects, report) if everything else _repack(moves, objects, report)


def settle_sessions(layout: Layout, objects: ObjectDatabase, rested_s: float, *, wait_s: float = 60.0) -> int:
    """Settle the sessions at rest and nothing else; returns how many were. Raises as :func:`repack`."""
    with turn(layout) as own:
        switch = partial(layout.shared, wait_s)
        return drain(settle_all(layout, objects, unsettled(layout, rested_s), switch, own.give_way))


def _tell_nobody(done: int, total: int) -> None:
    """Nobody watches."""


def _repack(moves: Consolidator, objects: ObjectDatabase, report: RepackReport) -> Slices[None]:
    while True:
        stems = geometric(_facts(objects), Grade.EVERYDAY, fresh_due=1)
        spoilt = len(moves.packs.spoilt)
        try:
            report.add((yield from _merge(moves, objects, stems, loose=True)))
            break
        except Corrupt:
            if len(moves.packs.spoilt) == spoilt:
                raise  # not for what it read
    yield from _merge_archives(moves, objects, report)


def _merge_archives(moves: Consolidator, objects: ObjectDatabase, report: RepackReport) -> Slices[None]:
    stems = geometric(_facts(objects), Grade.ARCHIVE, fresh_due=1, size_max=ARCHIVE_MAX // 2)
    if stems:
        report.add((yield from moves.merge(_named(objects, stems), (), Grade.ARCHIVE, None)))


def _archive(layout: Layout, moves: Consolidator, objects: ObjectDatabase, report: RepackReport) -> Slices[None]:
    if sum(each.grade is not Grade.ARCHIVE for each in _facts(objects)) > OLD_MAX:
        yield from _repack(moves, objects, report)
    facts = _facts(objects)
    old = _named(objects, [each.stem for each in facts if each.grade is not Grade.ARCHIVE])
    done = _named(objects, [each.stem for each in facts if each.grade is Grade.ARCHIVE])
    new, held = (sum(pack.index().table.served_size() for pack in packs) for packs in (old, done))
    dictionary = yield from archive_dictionary(moves, old, new, held)
    report.add((yield from Archiver(moves, old, dictionary).run(_in_order(layout))))
    yield from _merge_archives(moves, objects, report)
    moves.drop_dictionaries()


# --- what both need --------------------------------------------------------------------------------------------------


def _merge(moves: Consolidator, objects: ObjectDatabase, stems: Sequence[str], *, loose: bool) -> Slices[Moved]:
    """Merge these packs into an everyday one, and the loose objects if wanted."""
    found = [(space, digest) for space in PACKABLE for digest in objects.loose_digests(space)] if loose else []
    if not stems and not found:
        return Moved([], [], 0, [])
    chosen = _named(objects, stems)
    dictionary = yield from trained_everyday(moves, chosen)
    return (yield from moves.merge(chosen, found, Grade.EVERYDAY, dictionary))


def _named(objects: ObjectDatabase, stems: Sequence[str]) -> list[Pack]:
    """The packs of these stems that are still there, in this order."""
    there = {pack.stem: pack for pack in objects.packs()}
    return [there[stem] for stem in stems if stem in there]


def _weight(layout: Layout, objects: ObjectDatabase) -> tuple[int, int]:
    """How many packs there are, and the bytes of their files."""
    packs = objects.packs()
    files = [layout.host.fs.stat(path) for pack in packs for path in (pack.path, pack.idx_path)]
    return len(packs), sum(found.size for found in files if found is not None)


def _count(objects: ObjectDatabase) -> int:
    """Objects a repack may have to look at."""
    return sum(each.objects for each in _facts(objects)) + sum(len(objects.loose_digests(space)) for space in PACKABLE)


def _facts(objects: ObjectDatabase) -> list[Facts]:
    """What there is, but for packs that do not read."""
    indexes = [(pack, pack.index()) for pack in objects.sound_packs()]
    return [Facts(pack.stem, pack.grade(), index.pack_size, index.objects) for pack, index in indexes]


def _in_order(layout: Layout) -> Iterator[tuple[Space, bytes]]:
    """Body and envelope of every row of every session's log, sessions of one directory one after the other."""
    fs = layout.host.fs
    keys: list[tuple[str, str, str]] = []
    for name in fs.listdir(layout.sessions):
        try:
            header = read_header(fs, f"{layout.sessions}/{name}")
        except (NoSession, Damaged, DiskError):
            continue
        keys.append((header.cwd, header.created_at, name))
    for _, _, name in sorted(keys):
        yield from _in_log(layout, f"{layout.sessions}/{name}")


def _in_log(layout: Layout, directory: str) -> Iterator[tuple[Space, bytes]]:
    try:
        table = read_state(layout.host.fs, directory).table
    except AgentSessionError:
        return  # its objects come with what is left over
    try:
        for number in range(table.base):
            row = table.row(number)
            if row.code < RowCode.HEAD:
                yield Space.CONTENTS, row.content
                yield Space.ENTRIES, row.entry
    except AgentSessionError:
        return
    finally:
        table.close()
