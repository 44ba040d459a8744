"""A small store on a real disk, and ways to hurt its files: flips, and journals forged with right checksums."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

from agentsession_cas import entry
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.framing import Generation, Record, decode_records, scan_journal
from agentsession_cas.core.rows import Row, decode_row, encode_row
from agentsession_cas.maintenance.findings import FsckReport
from agentsession_cas.sessions.rowmaker import digest_of
from agentsession_cas.sessions.staged import generation_bytes
from agentsession_cas.store import Store

__all__ = ["Bench", "Forged", "call_and_output", "flip", "record_of", "row_of"]


def flip(path: Path, offset: int, bits: int = 1) -> None:
    """Change one byte; a negative offset counts from the end."""
    data = bytearray(path.read_bytes())
    data[offset] ^= bits
    path.write_bytes(data)


def call_and_output(call: str) -> list[entry.Draft]:
    """A function call and its output."""
    return [entry.function_call(call, "read", "{}"), entry.function_call_output(call, f"the output of {call}")]


class Forged(NamedTuple):
    """A journal taken apart: put it together again and every checksum is right."""

    generation: Generation
    tail: bytes
    groups: list[list[Record]]


def row_of(forged: Forged, at: int, **changes: Any) -> Forged:
    """The journal with its record ``at`` (of the first group) changed in the named members of its row."""
    record = forged.groups[0][at]
    row: Row = decode_row(record.row)._replace(**changes)
    forged.groups[0][at] = record._replace(row=encode_row(row))
    return forged


def record_of(forged: Forged, at: int, entry: Entry) -> Forged:
    """The journal with the entry of its record ``at`` replaced; the row has its hashes and is otherwise as it was."""
    forged = row_of(forged, at, entry=digest_of(entry.id), content=digest_of(entry.content_hash))
    forged.groups[0][at] = forged.groups[0][at]._replace(envelope=entry.envelope, content=entry.content)
    return forged


class Bench:
    """A store at ``root`` with these sessions, all released:

    - ``alpha``: six entries with a call, all in its journal;
    - ``beta``: ``published`` entries, checkpointed, and ten more: a log, a pack, and a journal;
    - ``gamma``: five entries, checkpointed loose;
    - ``delta``: a fork of ``beta`` in the middle, three entries of its own in its journal.
    """

    def __init__(self, root: Path, published: int = 100) -> None:
        self.root = root
        middle = published // 2
        with self.store(create=True) as store:
            with store.create(id="alpha", cwd="/work") as alpha:
                alpha.append_batch([entry.user("one"), *call_and_output("c1"), entry.info(name="first")])
                alpha.append_batch([entry.assistant("two"), entry.user("three")])
            with store.create(id="beta") as beta:
                self.beta = [beta.append(entry.user(f"beta {n}")).id for n in range(published)]
                beta.checkpoint()
                self.beta += [beta.append(entry.user(f"beta {n}")).id for n in range(published, published + 10)]
            with store.create(id="gamma") as gamma:
                self.gamma = [gamma.append(entry.user(f"gamma {n}")).id for n in range(5)]
                gamma.checkpoint()
            with store.fork("beta", self.beta[middle], id="delta") as delta:
                delta.append_batch([entry.user(f"delta {n}") for n in range(3)])

    def store(self, *, create: bool = False) -> Store:
        """The store, opened anew."""
        return Store.open(self.root, create=create, background=False)

    def fsck(self, *, fast: bool = False) -> FsckReport:
        """What fsck says of it."""
        with self.store() as store:
            return store.fsck(fast=fast)

    def session(self, name: str) -> Path:
        """A session's directory."""
        return self.root / "sessions" / name

    def loose(self, space: str, hash_: str) -> Path:
        """The file of a loose object."""
        digest = hash_.removeprefix("sha256:")
        return self.root / "objects" / space / digest[:2] / digest[2:]

    def pack(self, ending: str) -> Path:
        """The one pack, or its idx."""
        return next((self.root / "objects" / "pack").glob(f"*.{ending}"))

    def content_hash(self, session: str, entry_id: str) -> str:
        """The content hash of an entry."""
        with self.store() as store:
            return store.read(session).entry(entry_id).content_hash

    def forge(self, session: str, change: Callable[[Forged], Forged]) -> None:
        """Rewrite a session's journal, whole and unattested; all its records are in the first group."""
        path = self.session(session) / "journal"
        data = path.read_bytes()
        scan = scan_journal(data)
        payloads = [(data[frame.payload_at : frame.end], frame.rows) for frame in scan.frames]
        records = [record for payload, count in payloads for record in decode_records(payload, count)]
        changed = change(Forged(scan.generation, scan.tail, [records]))
        path.write_bytes(generation_bytes(*changed)[0])
        (self.session(session) / "HEAD").unlink()

    def at(self, root: Path) -> Bench:
        """The same store, copied to another place."""
        other = copy(self)
        other.root = root
        return other
