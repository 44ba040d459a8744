"""The corruption sweep: every page of every file of a store, and every byte of the small ones, hurt one at a time.

Each time fsck has to name the damage, or nothing may be lost; reads may give no wrong byte, nor fewer entries unsaid;
the other sessions open; and a repair has to bring back everything that is still anywhere in the store, say what is
lost, and leave a store that fsck finds sound but for that. What is still there is told from the bytes themselves,
without the code that repairs.

    python -m tools.corruption STORE_DIRECTORY [--sessions 50] [--stride 1] [--only PART]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from agentsession_cas import Store, entry
from agentsession_cas.core.entry import Draft
from agentsession_cas.core.framing import Record, decode_records, scan_journal
from agentsession_cas.core.packformat import Space
from agentsession_cas.errors import AgentSessionError
from agentsession_cas.maintenance.findings import FsckReport
from agentsession_cas.maintenance.repair_report import RepairReport

__all__ = ["Damage", "Fault", "Sweep", "damages", "fill", "main"]

PAGE: Final = 4096
UNREAD: Final = frozenset({"config.toml", "locks/store", "locks/repack"})
"""Files whose bytes say nothing of sessions."""


class Fault(AssertionError):
    """The store lost something unsaid, or a repair left something that was there."""


# --- a store with everything in it -----------------------------------------------------------------------------------


def fill(root: Path, sessions: int = 50, seed: int = 1) -> None:
    """Make a store of so many sessions of every kind, all released."""
    chance = Random(seed)
    with Store.open(root, create=True, background=False) as store:
        made: list[str] = []
        for number in range(sessions):
            made.append(_make(store, f"s{number:03}", made, chance, number))
            if number == sessions // 2:
                store.repack()


def _make(store: Store, name: str, made: list[str], chance: Random, number: int) -> str:
    kind = number % 6
    if kind == 5 and made:
        origin = chance.choice(made)
        entries = [each for each in store.read(origin) if each.type != "label"]
        base = chance.choice(entries).id
        with store.fork(origin, base, id=name) as session:
            session.append_batch(_talk(name, 4, chance))
        return name
    with store.create(id=name, cwd=f"/work/{name}", media="sidecar" if kind == 4 else "inline") as session:
        session.append_batch(_talk(name, 6, chance))
        if kind in (1, 2):
            session.append_batch(_talk(name, 40 if kind == 1 else 5, chance))
            session.checkpoint()
        if kind == 4:
            image = {"type": "input_image", "detail": "auto", "image_url": f"sidecar:{_blob(store, name)}"}
            session.append(entry.user([image]))
        ids = [session.append(draft).id for draft in _talk(name, chance.randrange(2, 8), chance)]
        if kind == 3:
            first = ids[0]
            session.set_head(ids[-1], first)
            session.append_batch(_talk(name, 3, chance))
            session.append(Draft("label", {"label": "leaf", "target": first}))
            session.append(Draft("odd:note", {"text": name}))
            session.append(entry.user("long " * 9000))
    return name


def _blob(store: Store, name: str) -> str:
    return store.put_blob(name.encode() * 400)


def _talk(name: str, count: int, chance: Random) -> list[Draft]:
    words = [f"{name} says {chance.randrange(10**9)} " * chance.randrange(1, 30) for _ in range(count)]
    return [entry.user(text) if at % 2 else entry.assistant(text) for at, text in enumerate(words)]


# --- damages ---------------------------------------------------------------------------------------------------------


class Damage(NamedTuple):
    """One way to hurt one file: its path below the root, what was done, and its bytes afterwards."""

    path: str
    what: str
    data: bytes


def damages(path: str, data: bytes, chance: Random) -> Iterator[Damage]:
    """Every damage of a file: byte by byte when it is small, else page by page."""
    step = 1 if len(data) <= PAGE else PAGE
    for at in range(0, len(data), step):
        end = min(at + step, len(data))
        hurt = at + chance.randrange(end - at)
        bit = 1 << chance.randrange(8)
        kinds = {
            "flipped": data[:hurt] + bytes([data[hurt] ^ bit]) + data[hurt + 1 :],
            "zeroed": data[:at] + bytes(end - at) + data[end:],
            "cut": data[:at],
            "doubled": data[:end] + data[at:],
            "copied": data[:end] + data[at:end] + data[2 * end - at :],
        }
        for what, changed in kinds.items():
            if changed != data:
                yield Damage(path, f"{what} at {at}", changed)


# --- judging ---------------------------------------------------------------------------------------------------------

Truth = dict[str, tuple[str, dict[str, bytes], dict[str, str]]]
"""Of each session: its head, its lines by id, and the parent of each own entry."""

_Named = tuple[Space, bytes]


class Sweep:
    """A store, its bytes and its truth; judges damages one at a time in its place."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = _bytes_of(root)
        with Store.open(root, read_only=True) as store:
            self.truth = {name: _read(store, name) for name in store.session_ids()}
            self.packed = _blocks(store)
            self.named = {(place.space, place.digest) for place in store.objects.iterate()}
        self.told: Counter[str] = Counter()

    def cases(self, stride: int = 1, seed: int = 1, only: str = "") -> Iterator[Damage]:
        """Every ``stride``-th damage of the files whose path has ``only`` in it."""
        chance = Random(seed)
        number = 0
        for path, data in sorted(self.files.items()):
            for damage in damages(path, data, chance) if only in path else ():
                number += 1
                if number % stride == 0:
                    yield damage

    def judge(self, damage: Damage) -> None:
        """Hurt the store, look, repair, look again, and put everything back. Raises Fault."""
        (self.root / damage.path).write_bytes(damage.data)
        where = f"{damage.path} {damage.what}"
        try:
            try:
                store = Store.open(self.root, background=False)
            except AgentSessionError as error:
                self.told[error.code] += 1
                if damage.path != "store.json":
                    raise Fault(f"{where}: the store does not open: {error}") from error
                return
            with store:
                found = self._look(store, where)
                self._repair(store, damage, found, where)
        finally:
            self._restore()

    def _look(self, store: Store, where: str) -> FsckReport:
        report = store.fsck()
        fast = store.fsck(fast=True)
        if fast.findings and not report.findings:
            raise Fault(f"{where}: a fast check tells of {fast.findings}, a full one of nothing")
        self.told.update({each.code for each in report.findings} or {"nothing"})
        hurt = {each.session for each in report.findings}
        for name, (head, lines, _) in self.truth.items():
            try:
                got = _read(store, name)
            except AgentSessionError as error:
                if not report.findings:
                    raise Fault(f"{where}: {name} does not read, and fsck says nothing: {error}") from error
                continue
            if any(lines.get(key) != line for key, line in got[1].items()):
                raise Fault(f"{where}: {name} reads otherwise")
            if name not in hurt and (got[0], got[1]) != (head, lines):
                raise Fault(f"{where}: {name} reads less, and fsck says nothing of it")
        return report

    def _repair(self, store: Store, damage: Damage, found: FsckReport, where: str) -> None:
        directory = damage.path.split("/")[1] if damage.path.startswith("sessions/") else ""
        for name in self.truth:
            if name != directory:
                try:
                    store.open_session(name).close()
                except AgentSessionError as error:
                    if directory:
                        raise Fault(f"{where}: {name} does not open: {error}") from error
        said = store.repair(dry_run=True).to_json()
        report = store.repair()
        if _comparable(said) != _comparable(report.to_json()):
            raise Fault(f"{where}: dry run: {said}; done: {report.to_json()}")
        if any(each.severity == "error" for each in found.findings) and not report.changed and report.whole:
            raise Fault(f"{where}: fsck found {found.findings}, and a repair nothing")
        self._look_again(store, damage, report, where)

    def _look_again(self, store: Store, damage: Damage, report: RepairReport, where: str) -> None:
        missing = {name for each in report.sessions for name in each.missing}
        after = store.fsck()
        for each in after.findings:
            is_told = each.code == "missing_piece" or (each.code.startswith("missing_") and each.object in missing)
            if each.severity == "error" and not is_told and each.code != "corrupt_dictionary":
                raise Fault(f"{where}: after a repair fsck finds {each}")
        if store.repair().changed:
            raise Fault(f"{where}: a second repair changes something")
        there = self._still_there(damage)
        for space, digest in there:
            try:
                store.objects.get(space, digest)
            except AgentSessionError as error:
                if not self._in_journal(digest):
                    raise Fault(f"{where}: {space.name} {digest.hex()} was there and is not: {error}") from error
        of = {each.session: each for each in report.sessions}
        for name, (head, lines, parents) in self.truth.items():
            try:
                got_head, got, _ = _read(store, name, missing)
            except AgentSessionError as error:
                raise Fault(f"{where}: {name} does not read after a repair: {error}") from error
            if any(lines.get(key) != line for key, line in got.items() if line):
                raise Fault(f"{where}: {name} reads otherwise after a repair")
            whole = _hanging(parents, {key for key in parents if (Space.ENTRIES, _raw(key)) in there}, lines)
            if whole - got.keys():
                raise Fault(f"{where}: {name} lacks {len(whole - got.keys())} entries that were there")
            told = of[name]
            lost = lines.keys() - got.keys()
            if len(lost & parents.keys()) > told.lost_rows + len(told.orphans):
                raise Fault(f"{where}: {name} lost {len(lost)} entries, and the report says {told.to_json()}")
            if not lost and got_head != head:
                raise Fault(f"{where}: {name} has another head")
            store.open_session(name).close()

    # --- what is still there, by the bytes ---

    def _still_there(self, damage: Damage) -> set[_Named]:
        """Every object whose bytes, and a name for them, are still somewhere."""
        there = set(self.named)
        own = self.files[damage.path]
        others = [blocks for path, blocks in self.packed.items() if path != damage.path]
        elsewhere = {each for blocks in others for _, named in blocks for each in named}
        if damage.path.endswith(".pack"):
            elsewhere |= {_loose(path) for path in self.files if _is_loose(path)}
            for (start, end), named in self.packed[damage.path]:
                if damage.data[start:end] != own[start:end]:
                    there -= named - elsewhere
        elif _is_loose(damage.path):
            there -= {_loose(damage.path)} - elsewhere
        for path, data in self.files.items():
            if path.endswith("/journal"):
                now = damage.data if path == damage.path else data
                there |= _in_frames(data, now)
        return there

    def _in_journal(self, digest: bytes) -> bool:
        for path in (self.root / "sessions").glob("*/journal"):
            for record in _records(path.read_bytes()):
                if digest in (record.row[:32], record.row[32:64]):
                    return True
        return False

    def _restore(self) -> None:
        there = _bytes_of(self.root)
        for path, data in self.files.items():
            if there.pop(path, None) != data:
                target = self.root / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
        for path in there:
            (self.root / path).unlink()
        for kept in sorted(self.root.rglob("damaged"), reverse=True):
            for inside in (*sorted(kept.rglob("*"), reverse=True), kept):
                inside.rmdir()


def _bytes_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def _comparable(report: dict[str, Any]) -> object:
    """A report without what a dry run cannot know: where things were put, and what other repairs made of them."""
    sessions = [{**each, "replaced": "", "objects": 0} for each in report["sessions"]]
    return sessions, [report["objects"][kind] for kind in ("indexes", "packs", "loose")]


def _read(store: Store, name: str, missing: Iterable[str] = ()) -> tuple[str, dict[str, bytes], dict[str, str]]:
    found = store.read(name)
    source = found.source
    lines: dict[str, bytes] = {}
    parents: dict[str, str] = {}
    for at in range(len(source)):
        entry_id = source.entry_id(at)
        if at >= source.base_count:
            above = source.parent(at)
            parents[entry_id] = source.entry_id(above) if above >= 0 else ""
        try:
            lines[entry_id] = source.entry(at).line
        except AgentSessionError:
            if not missing:
                raise
            lines[entry_id] = b""
    head = found.leaf
    source.close()  # type: ignore[attr-defined]
    return head, lines, parents


def _hanging(parents: dict[str, str], there: set[str], lines: dict[str, bytes]) -> set[str]:
    """The own entries that are there and whose whole path is."""
    held: set[str] = set()
    for key, parent in parents.items():  # a parent comes before its children
        if key in there and (parent not in parents or parent in held):
            held.add(key)
    return held & lines.keys()


def _raw(name: str) -> bytes:
    return bytes.fromhex(name.removeprefix("sha256:"))


def _is_loose(path: str) -> bool:
    return path.startswith("objects/") and path.split("/")[1] not in ("pack", "dict")


def _loose(path: str) -> _Named:
    _, space, fan, rest = path.split("/")
    return Space[space.upper()], bytes.fromhex(fan + rest)


def _blocks(store: Store) -> dict[str, list[tuple[tuple[int, int], set[_Named]]]]:
    """Of every pack the place of each block and what it holds; envelopes need the block before them."""
    found: dict[str, list[tuple[tuple[int, int], set[_Named]]]] = {}
    for pack in store.objects.packs():
        blocks = []
        with pack.open() as file:
            before = 0
            for number in range(file.table.blocks):
                ref = file.table.block(number)
                start = before if ref.space is Space.ENTRIES else ref.offset
                named = {(ref.space, digest) for digest in file.digests(number)}
                blocks.append(((start, ref.offset + ref.size), named))
                before = ref.offset
        found[pack.path.removeprefix(store.root + "/")] = blocks
    return found


def _records(data: bytes) -> list[Record]:
    try:
        frames = scan_journal(data).frames
        return [each for frame in frames for each in decode_records(data[frame.payload_at : frame.end], frame.rows)]
    except AgentSessionError:
        return []


def _in_frames(pristine: bytes, now: bytes) -> set[_Named]:
    """The objects of a journal's records that lie whole in its bytes as they are now."""
    found: set[_Named] = set()
    for record in _records(pristine):
        if not record.envelope:
            continue
        if record.row + b"\xc4" in now and record.envelope in now:
            found.add((Space.ENTRIES, record.row[:32]))
            if record.content in now:
                found.add((Space.CONTENTS, record.row[32:64]))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the sweep; prints what fsck said how often, and every fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args(arguments)
    faults = 0
    with tempfile.TemporaryDirectory(prefix="corruption-") as directory:
        root = Path(directory) / "store"
        fill(root, options.sessions, options.seed)
        sweep = Sweep(root)
        for number, damage in enumerate(sweep.cases(options.stride, options.seed, options.only), 1):
            try:
                sweep.judge(damage)
            except Fault as fault:
                faults += 1
                print(f"FAULT {fault}", flush=True)
            if number % 500 == 0:
                print(f"{number} damages, {faults} faults", file=sys.stderr, flush=True)
    print(dict(sweep.told.most_common()))
    print(f"{faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
