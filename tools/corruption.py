"""The corruption sweep: every page of every file of a store, and every byte of the small ones, hurt one at a time.

What is held against each damage is in ``tools.judging``. Every damage is looked at; of those of a file that all its
readers answer alike (``tools.answers``) one is judged, and some of the others (``--again``). It is judged in a copy of
the store that has the sessions it can reach and one more; a damage that can reach them all, and some of the others
(``--whole``), among all sessions.

    python -m tools.corruption [--sessions 50] [--stride 1] [--only PART] [--jobs 2]
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from agentsession_cas import Store
from agentsession_cas.core.packformat import Space
from tools.answers import Answers, answer_of_file
from tools.damages import Damage, damages, fill
from tools.judging import Fault, Sweep, is_loose, loose_name, raw

__all__ = ["Parts", "Tally", "cases", "main", "sweep"]

_BLOB: Final = re.compile(rb"sidecar:sha256:([0-9a-f]{64})")


class Parts:
    """Copies of a store, each with the sessions that a damage can reach and one more: where it is judged."""

    def __init__(self, whole: Sweep, directory: Path) -> None:
        self._whole = whole
        self._directory = directory
        self._made: tuple[frozenset[str], Sweep] = (frozenset(), whole)
        with Store.open(whole.root, read_only=True) as store:
            self._above = {name: store.read(name).header.parent_session for name in store.session_ids()}
            self._needs = {name: _needs(store, name) for name in store.session_ids()}

    def of(self, path: str) -> Sweep:
        """The store to judge a damage of a file in."""
        kind, _, rest = path.partition("/")
        if kind == "sessions":
            name = rest.partition("/")[0]
            wanted = {name, *(other for other, above in self._above.items() if above == name), self._above[name]}
        elif is_loose(path):
            wanted = {name for name, needs in self._needs.items() if loose_name(path) in needs}
        else:
            return self._whole
        wanted &= self._above.keys()
        wanted.add(next((name for name in sorted(self._above) if name not in wanted), ""))
        names = frozenset(wanted - {""})
        if names != self._made[0]:
            self._made = names, self._make(names)
        return self._made[1]

    def _make(self, names: frozenset[str]) -> Sweep:
        """The files of these sessions as they are, loose objects as they are, the others in a pack of their own."""
        shutil.rmtree(self._directory, ignore_errors=True)
        Store.open(self._directory, create=True).close()
        needs = {named for name in names for named in self._needs[name]}
        for path, data in self._whole.files.items():
            home = path.split("/")
            if home[0] == "store.json" or (home[0] == "sessions" and home[1] in names) or self._is_own(path, needs):
                target = self._directory / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
        packed = sorted(needs - {loose_name(path) for path in self._whole.files if is_loose(path)})
        with Store.open(self._whole.root, read_only=True) as whole, Store.open(self._directory) as store:
            objects = [(space, digest, whole.objects.get(space, digest)) for space, digest in packed]
            store.objects.publish(objects, loose_below=1)
        made = Sweep(self._directory)
        if made.truth != {name: self._whole.truth[name] for name in names}:
            raise Fault(f"a part of the store reads otherwise: {sorted(names)}")
        return made

    def _is_own(self, path: str, needs: set[tuple[Space, bytes]]) -> bool:
        return is_loose(path) and loose_name(path) in needs


def _needs(store: Store, name: str) -> set[tuple[Space, bytes]]:
    """Every object of the store that a session needs."""
    source = store.read(name).source
    found: set[tuple[Space, bytes]] = set()
    for at in range(len(source)):
        each = source.entry(at)
        found |= {(Space.ENTRIES, raw(each.id)), (Space.CONTENTS, raw(each.content_hash))}
        found |= {(Space.MEDIA, bytes.fromhex(blob.decode())) for blob in _BLOB.findall(each.line)}
    source.close()  # type: ignore[attr-defined]
    return {(space, digest) for space, digest in found if store.objects.holds(space, digest)}


class Options(NamedTuple):
    """Every ``stride``-th damage, drawn from ``seed``; how often one is judged again, and among all sessions."""

    stride: int = 1
    seed: int = 1
    again: int = 200
    whole: int = 300


Asker = Callable[[bytes], Hashable | None]
"""Gives what the readers of a file make of its bytes; None is like nothing else."""


class Tally(NamedTuple):
    """What came of many damages."""

    seen: int
    judged: int
    told: Counter[str]
    faults: list[str]


def cases(files: dict[str, bytes], paths: Iterable[str], options: Options) -> Iterator[Damage]:
    """Every ``stride``-th damage of some files."""
    number = 0
    for path in paths:
        for damage in damages(path, files[path], Random(f"{options.seed} {path}")):
            number += 1
            if number % options.stride == 0:
                yield damage


def sweep(root: Path, paths: Sequence[str], options: Options) -> Tally:
    """Look at the damages of some files of a store, which are hurt and put back."""
    whole = Sweep(root)
    tally = Tally(0, 0, Counter(), [])
    with tempfile.TemporaryDirectory(prefix="parts-", dir=root.parent) as directory:
        parts = Parts(whole, Path(directory) / "store")
        known: set[Hashable] = set()
        path = ""
        ask: Asker = _never
        for damage in cases(whole.files, paths, options):
            if damage.path != path:
                path, known = damage.path, set()
                ask = _asker(whole, path, Path(directory) / "asked")
            tally = tally._replace(seen=tally.seen + 1)
            answer = ask(damage.data)
            if answer is not None and answer in known and tally.seen % options.again:
                continue
            known.add(answer)
            tally = tally._replace(judged=tally.judged + 1)
            place = whole if tally.judged % options.whole == 0 else parts.of(path)
            before = Counter(place.told)
            try:
                place.judge(damage)
            except Fault as fault:
                tally.faults.append(str(fault))
                print(f"FAULT {fault}", flush=True)
            tally.told.update(place.told - before)
            if tally.judged % 500 == 0:
                print(f"{path}: {tally.seen} seen, {tally.judged} judged", file=sys.stderr, flush=True)
    return tally


def _never(data: bytes) -> Hashable | None:  # noqa: ARG001
    """Nobody answers."""
    return None


def _asker(whole: Sweep, path: str, directory: Path) -> Asker:
    """Who answers for the bytes of a file."""
    name = path.rpartition("/")[2]
    if not path.startswith("sessions/") or name in ("header", "HEAD"):
        return lambda data: answer_of_file(path, data, whole.files[path])
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree((whole.root / path).parent, directory)
    answers = Answers(directory)
    return lambda data: answers.of(name, data)


def _job(root: str, number: int, paths: Sequence[str], options: Options) -> Tally:
    """One process: at a copy of the store."""
    copied = Path(f"{root}-{number}") / "store"
    shutil.copytree(root, copied)
    return sweep(copied, paths, options)


def main(arguments: list[str] | None = None) -> int:
    """Run the sweep; prints every fault, how many damages were seen and judged, and what fsck said how often."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--only", default="", help="files whose path has this in it")
    parser.add_argument("--jobs", type=int, default=2)
    for name, default in Options._field_defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args(arguments)
    options = Options(given.stride, given.seed, given.again, given.whole)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="corruption-") as directory:
        root = Path(directory) / "store"
        fill(root, given.sessions, options.seed)
        paths = [path for path in sorted(Sweep(root).files) if given.only in path]
        shares = [_together(paths, number, given.jobs) for number in range(given.jobs)]
        with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
            doing = [pool.submit(_job, str(root), number, share, options) for number, share in enumerate(shares)]
            tallies = [each.result() for each in doing]
    told = sum((each.told for each in tallies), Counter[str]())
    faults = sum(len(each.faults) for each in tallies)
    print(f"{given.sessions} sessions, {len(paths)} files: {sum(each.seen for each in tallies)} damages,", end=" ")
    print(f"{sum(each.judged for each in tallies)} judged, in {time.monotonic() - begun:.0f} s")
    print(dict(told.most_common()))
    print(f"{faults} faults")
    return 1 if faults else 0


def _together(paths: Sequence[str], number: int, jobs: int) -> list[str]:
    """One job's share: files of one directory stay together."""
    homes = sorted({path.rpartition("/")[0] for path in paths})
    own = set(homes[number::jobs])
    return [path for path in paths if path.rpartition("/")[0] in own]


if __name__ == "__main__":
    sys.exit(main())
