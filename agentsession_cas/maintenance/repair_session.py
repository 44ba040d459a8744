"""The repair of one session: what its files and the store still hold of it, as a session that opens again.

Owns the order of its writes (architecture §3, "Open to write"): with the session's lock, objects first, then a copy of
what will be replaced, the header, a log under a number no log had, at last the journal generation that names it, by a
rename. Before that rename the session is as it was, after it repaired; a crash anywhere is repaired by the next one. A
session that reads is left alone but for objects that lie elsewhere. Must not: touch packs, loose files, other sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.contexthash import EMPTY_CONTEXT_HASH, context_hash_at
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.envelope import read_envelope
from agentsession_cas.core.framing import Generation, HeadHint, encode_head
from agentsession_cas.core.header import Header
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.rows import (
    NO_DIGEST,
    REF_BASE,
    ROW_SIZE,
    RowCode,
    decode_row,
    log_seed,
    row_of_ref,
    seal_row,
    whole_rows,
)
from agentsession_cas.core.timestamps import ts_from_ns
from agentsession_cas.effects.durable import ensure_dir, swap, write_new
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import AgentSessionError, BadHeader, Corrupt, Damaged, DiskError
from agentsession_cas.layout import DAMAGED, Layout, directory_name, session_id_of
from agentsession_cas.maintenance.repair_entries import Found, Search, parent_digest, rebuilt_envelope
from agentsession_cas.maintenance.repair_files import Evidence, gather, read_quietly
from agentsession_cas.maintenance.repair_header import header_of_pieces, mended_header, pieces_of
from agentsession_cas.maintenance.repair_pool import Pool
from agentsession_cas.maintenance.repair_report import SessionRepair
from agentsession_cas.maintenance.repair_rows import NewRows, Prefixed
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.chain import ChainSource
from agentsession_cas.sessions.headerfile import HEADER_NAME, encode_header
from agentsession_cas.sessions.journal import HEAD_NAME, JOURNAL_NAME, leftovers, log_name
from agentsession_cas.sessions.opening import lock_session, read_header
from agentsession_cas.sessions.recovery import read_state_once
from agentsession_cas.sessions.rowmaker import digest_of
from agentsession_cas.sessions.source import hash_of
from agentsession_cas.sessions.staged import generation_bytes

__all__ = ["repair_session"]

_BATCH: Final = 4096
"""Objects published at once."""
_FILES: Final = (HEADER_NAME, JOURNAL_NAME, HEAD_NAME)

_Object = tuple[Space, bytes, bytes]


class _Headed(NamedTuple):
    """The header a session has, or will have; ``how`` is "", "mended" or "rebuilt"."""

    header: Header
    how: str
    note: str


def repair_session(layout: Layout, objects: ObjectDatabase, pool: Pool, name: str, *, dry_run: bool) -> SessionRepair:
    """Repair the session in directory ``name``; ``dry_run`` says what would be done, takes no lock and writes nothing.

    Raises SessionLocked while another writer has it, NoSession, Damaged when not even its id can be told, DiskError and
    its like; what was written by then is whole.
    """
    directory = f"{layout.sessions}/{name}"
    if dry_run:
        return _Repair(layout, objects, pool, name, directory).run(dry_run)
    lock = lock_session(layout.host, directory, session_id_of(name) or name, 0.0)
    try:
        return _Repair(layout, objects, pool, name, directory).run(dry_run)
    finally:
        lock.release()


class _Repair:
    """One repair under way; the session's lock is held."""

    def __init__(self, layout: Layout, objects: ObjectDatabase, pool: Pool, name: str, directory: str) -> None:
        self._layout = layout
        self._host: Host = layout.host
        self._objects = objects
        self._pool = pool
        self._name = name
        self._directory = directory
        self._evidence: Evidence = gather(layout.host.fs, directory)

    def run(self, dry_run: bool) -> SessionRepair:
        """Look, and unless ``dry_run`` write."""
        evidence = self._evidence
        headed = self._header()
        header = headed.header
        report = SessionRepair(header.id, header=headed.how, notes=[headed.note] if headed.note else [])
        report.notes += evidence.unreadable
        sound = self._is_sound()
        prefix = self._prefix(header)
        base = digest_of(header.base) if header.base else b""
        search = Search(evidence, self._pool, base, frozenset(map(digest_of, prefix.ids)))
        search.run([] if sound else self._named(header))
        put = list(self._lacking(search, report, sound))
        made = NewRows(prefix, self._host.clock.now_ns(), search.envelope, search.content)
        if sound:
            report.kept = sum(bool(found.digest) for found in search.items)
        else:
            report.lost_rows = max(0, len(evidence.lost) - search.recovered - search.specials)
            made.make(search.items, report.lost_rows, evidence.last_head)
            made.orphans += search.unhung
            report.kept = sum(row.code < RowCode.HEAD for row in made.rows)
            report.recovered = search.recovered
            report.orphans = [hash_of(digest) for digest in made.orphans]
        report.objects = len(put)
        left: list[str] = []
        if sound and evidence.generation is not None:
            left = leftovers(self._host.fs, self._directory, evidence.generation.log)
        report.notes += [f"{name} was left by a crash" for name in left]
        report.changed = bool(put or headed.how or not sound or left or self._in_the_way())
        if report.changed and not dry_run:
            self._write(headed, None if sound else made, put, left, report)
        return report

    # --- looking ---

    def _is_sound(self) -> bool:
        """Whether journal and log read whole, an uncommitted tail aside."""
        try:
            state = read_state_once(self._host.fs, self._directory)
        except (Damaged, DiskError):
            return False
        state.table.close()
        return all(row is not None for row in self._evidence.rows[: self._evidence.base])

    def _header(self) -> _Headed:
        fs, path = self._host.fs, f"{self._directory}/{HEADER_NAME}"
        try:
            return _Headed(read_header(fs, self._directory), "", "")
        except (Damaged, DiskError):
            data = read_quietly(fs, path, [])
        header = mended_header(data)
        if header is not None and directory_name(header.id) == self._name:
            return _Headed(header, "mended", "")
        pieces = pieces_of(data)
        told = pieces.get("id")
        is_told = isinstance(told, str) and directory_name(told) == self._name
        id_ = session_id_of(self._name) or (str(told) if is_told else "")
        if not id_:
            raise Damaged("the header is lost, and with it the session's id", where=path)
        created = ts_from_ns(min((decode_row(row).ts for row in self._rows()), default=self._host.clock.now_ns()))
        try:
            header, taken = header_of_pieces(id_, created, self._base_of_rows(), pieces)
        except BadHeader as error:
            raise Damaged(f"no header can be made: {error.what}", where=path) from error
        kept = f"kept of it: {', '.join(taken)}" if taken else "nothing of it could be kept"
        return _Headed(header, "rebuilt", f"the header was made anew; {kept}")

    def _rows(self) -> Iterator[bytes]:
        return (row for row in self._evidence.rows if row is not None)

    def _base_of_rows(self) -> str:
        """The base that entries hang from, as their envelopes name it; "" when there is none to tell."""
        for row in map(decode_row, self._rows()):
            if row.code < RowCode.HEAD and row.parent == REF_BASE:
                data = self._pool.get(Space.ENTRIES, row.entry)
                parent = parent_digest(data) if data is not None else None
                if parent:
                    return hash_of(parent)
        return ""

    def _prefix(self, header: Header) -> Prefixed:
        generation = self._evidence.generation
        if not header.base:
            return Prefixed((), NO_DIGEST, lambda _: EMPTY_CONTEXT_HASH, _no_entry)
        try:
            chain = ChainSource(self._objects, header.base)
        except AgentSessionError:  # what is lost above the base is nothing this session's rows depend on
            known = generation.base_context if generation is not None else NO_DIGEST
            return Prefixed((header.base,), known, lambda _: hash_of(known), _no_entry)
        ids = tuple(chain.entry_id(at) for at in range(len(chain)))
        if generation is not None:
            context = generation.base_context
        else:
            try:
                context = digest_of(context_hash_at(chain, len(chain) - 1))
            except AgentSessionError:
                context = NO_DIGEST
        return Prefixed(ids, context, lambda at: context_hash_at(chain, at), chain.entry)

    def _named(self, header: Header) -> Iterator[bytes]:
        """Entries that HEAD, the bases of forks and pins say the session holds."""
        hint = self._evidence.hint
        if hint is not None and self._evidence.is_witnessed and row_of_ref(hint.head) >= 0:
            yield hint.entry
        for other in self._pool.headers():
            if other.base and other.parent_session == header.id and other.id != header.id:
                yield digest_of(other.base)
        known = self._evidence.generation
        yield from self._pool.pinned(header.id, known.birth if known is not None else b"")

    def _lacking(self, search: Search, report: SessionRepair, sound: bool) -> Iterator[_Object]:
        """The objects of what is kept that the store does not serve and that can be had; the others are noted."""
        records = self._evidence.records
        for found in search.items:
            if not found.digest or (sound and found.slot in records):
                continue
            wanted = [(Space.ENTRIES, found.digest, self._envelope(search, found))]
            content = _content_digest(found, wanted[0][2])
            wanted.append((Space.CONTENTS, content, None))
            for space, digest, made in wanted:
                if (space, digest) in self._pool.promised or self._pool.held(space, digest) is not None:
                    continue
                data = made if made is not None else search.content(digest)
                if data is None:
                    report.missing.append(hash_of(digest))
                else:
                    self._pool.promised.add((space, digest))
                    yield space, digest, data

    def _envelope(self, search: Search, found: Found) -> bytes | None:
        if self._pool.held(Space.ENTRIES, found.digest) is not None:
            return found.envelope or None
        if found.envelope:
            return found.envelope
        data = search.envelope(found.digest)
        if data is None and found.row is not None:
            data = rebuilt_envelope(found.row, found.parent)
        return data or None

    # --- writing ---

    def _write(
        self, headed: _Headed, made: NewRows | None, put: list[_Object], left: list[str], report: SessionRepair
    ) -> None:
        with self._layout.shared():
            self._layout.settle()
            for at in range(0, len(put), _BATCH):
                self._objects.publish(put[at : at + _BATCH])
            for name in left:
                self._host.fs.unlink(f"{self._directory}/{name}")
            if made is None and not headed.how and not self._in_the_way():
                return
            kept = self._keep(report)
            self._make_way(kept)
            if headed.how:
                swap(self._host, self._layout.tmp, f"{self._directory}/{HEADER_NAME}", encode_header(headed.header))
            if made is not None:
                self._name_rows(made, kept)

    def _keep(self, report: SessionRepair) -> str:
        """Put a copy of what will be replaced, and what is said of it, beside it, durably; the directory it is in."""
        fs, top = self._host.fs, f"{self._directory}/{DAMAGED}"
        stage = f"{self._layout.tmp}/kept-{self._host.entropy.take(10).hex()}"
        fs.mkdir(stage)
        for name in _FILES:
            data = read_quietly(fs, f"{self._directory}/{name}", [])
            if data:
                write_new(fs, f"{stage}/{name}", data)
        ensure_dir(fs, top)
        numbers = [int(name) for name in fs.listdir(top) if name.isdigit()]
        report.replaced = f"{top}/{max(numbers, default=0) + 1}"
        write_new(fs, f"{stage}/report.json", canonical(report.to_json()) + b"\n")
        fs.sync_dir(stage)
        fs.rename(stage, report.replaced)
        fs.sync_dir(top)
        return report.replaced

    def _name_rows(self, made: NewRows, kept: str) -> None:
        """Write the new log and the generation that names it; then the old files go beside."""
        fs, directory, entropy = self._host.fs, self._directory, self._host.entropy
        old = self._evidence.generation
        birth = old.birth if old is not None else entropy.take(16)
        log = self._evidence.last_log + 1
        seed, bodies = log_seed(birth, log), made.bodies
        sealed = b"".join(seal_row(body, number, seed) for number, body in enumerate(bodies))
        whole = whole_rows(len(bodies)) * ROW_SIZE
        if whole:
            write_new(fs, f"{directory}/{log_name(log)}", sealed[:whole])
        generation = Generation(
            entropy.take(8), birth, log, len(bodies), made.newest, made.prefix.base_context
        )
        staged = f"{directory}/{JOURNAL_NAME}.next-{generation.salt.hex()}"
        write_new(fs, staged, generation_bytes(generation, sealed[whole:], ())[0])
        fs.sync_dir(directory)
        fs.rename(staged, f"{directory}/{JOURNAL_NAME}")
        fs.sync_dir(directory)
        hint = HeadHint(generation.salt, len(bodies), made.head, made.head_digest)
        with suppress(DiskError):  # a hint, whose failure fails nothing
            self._witness(encode_head(hint))
        for name in leftovers(fs, directory, log):
            fs.rename(f"{directory}/{name}", f"{kept}/{name}")
        fs.sync_dir(kept)
        fs.sync_dir(directory)

    def _in_the_way(self) -> list[str]:
        """The names that files have to have and directories have."""
        found = {name: self._host.fs.stat(f"{self._directory}/{name}") for name in _FILES}
        return [name for name, stat in found.items() if stat is not None and stat.is_dir]

    def _make_way(self, kept: str) -> None:
        """Move away what is no file and lies where one has to be."""
        for name in self._in_the_way():
            self._host.fs.rename(f"{self._directory}/{name}", f"{kept}/{name}")

    def _witness(self, data: bytes) -> None:
        fs, path = self._host.fs, f"{self._directory}/{HEAD_NAME}"
        file = fs.open(path, write=True) if fs.stat(path) is not None else fs.create(path)
        try:
            file.pwrite(data, 0)
        finally:
            file.close()


def _content_digest(found: Found, envelope: bytes | None) -> bytes:
    if found.row is not None:
        return found.row.content
    return digest_of(read_envelope(envelope or found.envelope).content)


def _no_entry(position: int) -> Entry:
    raise Corrupt(f"nothing tells of entry {position} of the prefix")

