"""What the corruption sweep holds against a damage: told from the store's bytes, without the code that repairs.

Owns the judgement of one damage: fsck names it, or nothing is lost; reads give no wrong byte, nor fewer entries unsaid;
the other sessions open; a repair brings back everything that is still anywhere in the store, says what is lost, and
leaves a store that fsck finds sound but for that. Must not: choose damages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agentsession_cas import Store
from agentsession_cas.core.framing import Record, decode_records, scan_journal
from agentsession_cas.core.packformat import Space
from agentsession_cas.errors import AgentSessionError
from agentsession_cas.maintenance.findings import Finding, FsckReport
from agentsession_cas.maintenance.repair_report import RepairReport
from tools.damages import Damage

__all__ = ["Fault", "Sweep", "is_loose", "loose_name", "raw"]


class Fault(AssertionError):
    """The store lost something unsaid, or a repair left something that was there."""


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
            self.usual = set(store.fsck().findings)
        self.told: Counter[str] = Counter()

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
        new, fast = self._new(report), self._new(store.fsck(fast=True))
        if fast and not new:
            raise Fault(f"{where}: a fast check tells of {fast}, a full one of nothing")
        self.told.update({each.code for each in new} or {"nothing"})
        hurt = {each.session for each in new}
        for name, (head, lines, _) in self.truth.items():
            try:
                got = _read(store, name)
            except AgentSessionError as error:
                if not new:
                    raise Fault(f"{where}: {name} does not read, and fsck says nothing: {error}") from error
                continue
            if any(lines.get(key) != line for key, line in got[1].items()):
                raise Fault(f"{where}: {name} reads otherwise")
            if name not in hurt and (got[0], got[1]) != (head, lines):
                raise Fault(f"{where}: {name} reads less, and fsck says nothing of it")
        return report

    def _new(self, report: FsckReport) -> list[Finding]:
        """What was not found before; a part of a store has objects that only the other sessions need."""
        return [each for each in report.findings if each not in self.usual and each.code != "dangling_object"]

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
        journals: set[bytes] | None = None
        for space, digest in there:
            try:
                store.objects.get(space, digest)
            except AgentSessionError as error:
                if journals is None:
                    journals = self._in_journals()
                if digest not in journals:
                    raise Fault(f"{where}: {space.name} {digest.hex()} was there and is not: {error}") from error
        of = {each.session: each for each in report.sessions}
        for name, (head, lines, parents) in self.truth.items():
            try:
                got_head, got, _ = _read(store, name, missing)
            except AgentSessionError as error:
                raise Fault(f"{where}: {name} does not read after a repair: {error}") from error
            if any(lines.get(key) != line for key, line in got.items() if line):
                raise Fault(f"{where}: {name} reads otherwise after a repair")
            whole = _hanging(parents, {key for key in parents if (Space.ENTRIES, raw(key)) in there}, lines)
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
            elsewhere |= {loose_name(path) for path in self.files if is_loose(path)}
            for (start, end), named in self.packed[damage.path]:
                if damage.data[start:end] != own[start:end]:
                    there -= named - elsewhere
        elif is_loose(damage.path):
            there -= {loose_name(damage.path)} - elsewhere
        for path, data in self.files.items():
            if path.endswith("/journal"):
                now = damage.data if path == damage.path else data
                there |= _in_frames(data, now)
        return there

    def _in_journals(self) -> set[bytes]:
        found: set[bytes] = set()
        for path in (self.root / "sessions").glob("*/journal"):
            for record in _records(path.read_bytes()):
                found.update((record.row[:32], record.row[32:64]))
        return found

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


def raw(name: str) -> bytes:
    return bytes.fromhex(name.removeprefix("sha256:"))


def is_loose(path: str) -> bool:
    return path.startswith("objects/") and path.split("/")[1] not in ("pack", "dict")


def loose_name(path: str) -> _Named:
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
