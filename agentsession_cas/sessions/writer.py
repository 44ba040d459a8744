"""The one writer of a session: append, commit, head moves, checkpoint, and the opening that makes its files sound.

Owns the order of every write to a session's files (architecture §3). Invariants: a refusal changes nothing; what is
visible is whole; memory follows the step it tells of; a commit is one sync; a checkpoint publishes objects, then rows,
then names the next generation, and only that last step holds up appends. Threads may share a writer: ``_mutex`` guards
appends and memory, ``_sync_mutex`` (taken first) the syncs and the change of generations. Knows no other session.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from agentsession_cas.core.accept import Elsewhere, Outcome, Prepared, prepare, raised_for_append
from agentsession_cas.core.contexthash import EMPTY_CONTEXT_HASH, context_hash_at
from agentsession_cas.core.entry import Draft
from agentsession_cas.core.framing import Record
from agentsession_cas.core.header import FORMAT, Header
from agentsession_cas.core.leaf import check_head_move
from agentsession_cas.core.rows import NO_DIGEST, REF_BASE, REF_ROOT, Row, RowCode, encode_row, ref_to
from agentsession_cas.core.spans import check_redacted
from agentsession_cas.core.timestamps import ts_from_ns, ts_to_ns
from agentsession_cas.effects.durable import swap
from agentsession_cas.effects.host import Lock
from agentsession_cas.errors import AgentSessionError, Closed, MirrorError, StoreLocked
from agentsession_cas.sessions.headerfile import HEADER_NAME, encode_header
from agentsession_cas.sessions.journal import Journal
from agentsession_cas.sessions.log import open_log, write_rows
from agentsession_cas.sessions.records import in_groups, mark_of, publish_records
from agentsession_cas.sessions.rowmaker import digest_of, make_row
from agentsession_cas.sessions.services import HeldElsewhere, Mark, Services, wants_sync
from agentsession_cas.sessions.source import RowSource, hash_of
from agentsession_cas.sessions.wake import wake

__all__ = ["CHECKPOINT_BYTES", "RELEASE_BYTES", "Writer"]

CHECKPOINT_BYTES: Final = 1 << 20
"""A journal past this is checkpointed."""
RELEASE_BYTES: Final = 256 * 1024
"""A journal past this is checkpointed when its writer lets it go."""


class Writer:
    """A session held for writing. Make one through a store. Leaving its context commits and releases.

    Raises Closed once released, or in a process that inherited it; WriterPoisoned after a failed sync.
    """

    def __init__(
        self,
        services: Services,
        directory: str,
        header: Header,
        journal: Journal,
        source: RowSource,
        groups: Sequence[int],
        lock: Lock,
    ) -> None:
        self._services = services
        self._directory = directory
        self._journal = journal
        self._lock: Lock | None = lock
        self._mutex = threading.RLock()
        self._sync_mutex = threading.Lock()
        self._checkpoint_mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._releasing = False
        self._process = services.host.process_id()
        self._elsewhere = HeldElsewhere(services)
        self._stamp = ("", 0)
        self._source = source
        self._groups = list(groups)
        self.header = header
        self._promised = frozenset(header.records)
        self._head, self._mark = self._state_of_rows()
        self._head_id = source.id_of_ref(self._head)
        self._head_context = ("", EMPTY_CONTEXT_HASH)
        source.remember(self._head_id, self._head)
        self._newest = journal.generation.newest
        for number in range(source.table.base, len(source.table)):
            self._newest = self._newest.with_row(number, source.table.row(number))

    # --- what is known ---

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.header.id

    @property
    def head(self) -> str:
        """The head: an entry id, "" for the universal root."""
        return self._head_id

    @property
    def is_mirror(self) -> bool:
        """Whether the session is a mirror (store.md A11)."""
        return self._mark == Mark.MIRROR

    @property
    def source(self) -> RowSource:
        """The session's entries; changes only under this writer's appends."""
        return self._source

    @property
    def journal_bytes(self) -> int:
        """Bytes of frames that no checkpoint has taken yet."""
        return self._journal.load

    def _state_of_rows(self) -> tuple[int, int]:
        table = self._source.table
        head = table.row(len(table) - 1).head if len(table) else (REF_BASE if self.header.base else REF_ROOT)
        return head, mark_of(table)

    def _require_open(self) -> None:
        if self._lock is None:
            raise Closed("the session was released", where=self.session_id, next_step="open it again")
        if self._services.host.process_id() != self._process:
            raise Closed(
                "this handle belongs to the process that forked this one",
                where=self.session_id,
                next_step="open the session in this process",
            )
        self._journal.require_sound()

    # --- append ---

    def append_batch(self, drafts: Sequence[Draft], durable: bool | None = None) -> tuple[list[Prepared], bool]:
        """Append entries that land whole or not at all, as one frame; each sees those before it (store.md A3).

        ``durable`` None follows the sync policy. Returns what each did, and whether all are committed. A refusal
        changes nothing.
        """
        prepared, owed = self.accept(drafts, durable)
        self.settle(owed)
        return prepared, owed >= 0

    def accept(self, drafts: Sequence[Draft], durable: bool | None = None) -> tuple[list[Prepared], int]:
        """The first half of :meth:`append_batch`: the rows it owes (-1: none) are settled after it, or with others."""
        with self._mutex, self._elsewhere as elsewhere:
            self._require_open()
            if self._mark == Mark.MIRROR:
                raise MirrorError(
                    "the session is a mirror: its record is written elsewhere",
                    where=self.session_id,
                    next_step="fork it, and append to the fork",
                )
            prepared = self._accept(drafts, elsewhere)
            policy, promised = self._services.sync, self._promised
            wanted = any(wants_sync(policy, promised, each.entry) for each in prepared) if durable is None else durable
            return prepared, self._journal.sequence if wanted else -1

    def settle(self, owed: int) -> None:
        """Commit the rows up to there, when any are owed, and wake who follows."""
        if owed >= 0:
            self._commit(owed)
        wake(self._directory)
        self._checkpoint_when_due()

    def _accept(self, drafts: Sequence[Draft], elsewhere: Elsewhere) -> list[Prepared]:
        """Decide all, then write one frame; everything tentative is taken back when anything fails."""
        table, head = self._source.table, (self._head, self._head_id)
        count = len(table)
        newest = self._newest
        try:
            prepared = [self._accept_one(draft, elsewhere) for draft in drafts]
            records = table.pending[count - table.base :]
            if records:
                self._raise_header()
                self._journal.append(records)
                self._groups.append(len(records))
        except BaseException:
            self._source.cut(count)
            self._head, self._head_id = head
            self._newest = newest
            raise
        return prepared

    def _accept_one(self, draft: Draft, elsewhere: Elsewhere) -> Prepared:
        source = self._source
        prepared = prepare(source, self.header, self._head_id, draft, now=self._now, elsewhere=elsewhere)
        if prepared.held:
            return prepared
        if self._services.redacted_only:
            check_redacted(self.header, (prepared.entry,), source)
        number = len(source.table)
        head = self._head
        if prepared.outcome is Outcome.CONTINUED:
            head = ref_to(number)
        elif prepared.outcome is Outcome.LEAF_MOVED:
            head = source.ref_of(source.find(prepared.head_after) if prepared.head_after else -1)
        entry, parent = prepared.entry, prepared.parent_position
        below_head = entry.parent == self._head_id
        row = make_row(
            source,
            entry,
            prepared.body,
            parent,
            head,
            parent_ref=self._head if below_head else source.ref_of(parent),
            before=self._context_of_head() if below_head else self._context_at(parent),
            ts=self._stamp[1] if entry.ts is self._stamp[0] else ts_to_ns(entry.ts),
            ref_of=source.ref_of,
            context_at=self._context_at,
        )
        record = Record(encode_row(row), entry.envelope, entry.content)
        source.push(record, entry.id)
        self._head, self._head_id = head, prepared.head_after
        if prepared.outcome is Outcome.CONTINUED:
            self._head_context = (self._head_id, hash_of(row.context))
        self._newest = self._newest.with_row(number, row)
        return prepared

    def _now(self) -> str:
        now = self._services.host.clock.now_ns()
        self._stamp = (ts_from_ns(now), now)
        return self._stamp[0]

    def _context_of_head(self) -> str:
        known, context = self._head_context
        return context if known == self._head_id else self._context_at(self._source.position_of_ref(self._head))

    def _context_at(self, position: int) -> str:
        source = self._source
        if position < 0:
            return EMPTY_CONTEXT_HASH
        if position == source.base_count - 1:
            return hash_of(self._journal.generation.base_context)
        if position < source.base_count:
            return context_hash_at(source, position)
        return hash_of(source.context_digest(position))

    def _raise_header(self) -> None:
        """Raise the header to this package's format before the frame that needs it, crash-safely (format.md §11)."""
        if self.header.format == FORMAT:
            return
        raised = raised_for_append(self._source, self.header)
        self._journal.forswear()  # a process that finds the new header before its name is durable has to sync it
        swap(self._services.host, self._services.tmp, f"{self._directory}/{HEADER_NAME}", encode_header(raised))
        self.header = raised

    # --- head ---

    def set_head(self, expected: str, to: str, durable: bool = False) -> bool:
        """Compare and swap the head (store.md A4); "" is the universal root. True when it is durable.

        Raises HeadMoved with the head held, NoEntry, HeadTarget, MirrorError.
        """
        with self._mutex:
            self._require_open()
            source = self._source
            check_head_move(source, self._head_id, expected, to)
            if self._mark == Mark.MIRROR:
                raise MirrorError(
                    "the session is a mirror", where=self.session_id, next_step="fork it at that entry instead"
                )
            ref = source.ref_of(source.find(to) if to else -1)
            if ref != self._head:
                self._append_special(RowCode.HEAD, 0, ref)
            owed = self._journal.sequence if durable else -1
        self.settle(owed)
        return durable

    def set_mark(self, mark: int) -> None:
        """Mark the session a record or a mirror, durably (store.md A11)."""
        with self._mutex:
            self._require_open()
            if mark != self._mark:
                self._append_special(RowCode.MARK, mark, self._head)
                self._mark = mark
            sequence = self._journal.sequence
        self._commit(sequence)

    def _push_special(self, code: RowCode, kind: int, head: int) -> Record:
        now = self._services.host.clock.now_ns()
        row = Row(NO_DIGEST, NO_DIGEST, NO_DIGEST, self._newest.special, head, 0, now, code, kind, 0, 0)
        record = Record(encode_row(row), b"", b"")
        self._newest = self._newest.with_row(self._source.push(record), row)
        return record

    def _append_special(self, code: RowCode, kind: int, head: int) -> None:
        number, newest = len(self._source.table), self._newest
        record = self._push_special(code, kind, head)
        try:
            self._journal.append((record,))
        except BaseException:
            self._source.cut(number)
            self._newest = newest
            raise
        self._groups.append(1)
        self._head, self._head_id = head, self._source.id_of_ref(head)

    # --- durability ---

    def commit(self) -> None:
        """Make everything accepted so far survive a crash: at most one sync (store.md A5)."""
        with self._mutex:
            self._require_open()
            sequence = self._journal.sequence
        self._commit(sequence)
        wake(self._directory)

    def _commit(self, sequence: int) -> None:
        with self._sync_mutex:
            with self._mutex:
                self._require_open()
                if self._journal.committed >= sequence:
                    return
                covered = self._journal.seal()
            self._journal.sync()
            with self._mutex:
                self._journal.settle(covered)
                self._witness()

    def witness(self) -> None:
        """Write HEAD for what is committed; a hint, whose failure fails nothing."""
        with self._mutex:
            self._witness()

    def _witness(self) -> None:
        entry = digest_of(self._head_id) if self._head_id else NO_DIGEST
        self._journal.witness(self._head, entry)

    # --- checkpoint ---

    def checkpoint(self, wait_s: float = 60.0) -> bool:
        """Publish what lies in the journal as objects and log rows, and begin its next generation.

        Everything accepted before it is committed on return. False when maintenance held the store for ``wait_s``.
        """
        with self._checkpoint_mutex:
            with self._mutex:
                self._require_open()
                groups = len(self._groups)
                taken = list(self._source.table.pending)
            if not taken:
                return True
            try:
                with self._services.shared(wait_s):
                    publish_records(self._services.objects, taken)
                    self._write_rows(taken, groups)
            except StoreLocked:
                return False
            return True

    def _write_rows(self, taken: Sequence[Record], groups: int) -> None:
        old, table = self._journal.generation, self._source.table
        tail = write_rows(
            self._services.host.fs, self._directory, old, table.tail, [record.row for record in taken]
        )
        with self._sync_mutex, self._mutex:
            self._require_open()
            self._next_generation(old.base + len(taken), tail, groups)

    def _checkpoint_when_due(self) -> None:
        if self._journal.load < CHECKPOINT_BYTES or not self._services.background:
            return
        with self._mutex:
            if self._lock is None or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self._housekeep, name="checkpoint", daemon=True)
            self._thread.start()

    def _housekeep(self) -> None:
        """What the checkpoint thread does: a checkpoint, and packs merged if they have become many."""
        self.tidy()
        if self._may_go_on():
            self._services.merge(self._may_go_on, thorough=True)

    def _may_go_on(self) -> bool:
        """Asked between slices of a merge: takes what came meanwhile into a checkpoint; False once a release waits."""
        if self._journal.load >= CHECKPOINT_BYTES and not self._releasing:
            self.tidy()
        return not self._releasing

    def tidy(self) -> None:
        """Checkpoint if that can be done now: what cannot be is done later, and only a failure that matters poisons."""
        with suppress(AgentSessionError):
            self.checkpoint(wait_s=0.0)

    def _next_generation(self, base: int, tail: bytes, groups: int) -> None:
        """The step that holds up appends: name the generation that begins at ``base``."""
        table, host = self._source.table, self._services.host
        carried = in_groups(table.pending[base - table.base :], self._groups[groups:])
        newest = self._journal.generation.newest
        for number in range(table.base, base):
            newest = newest.with_row(number, table.row(number))
        generation = self._journal.generation._replace(
            salt=host.entropy.take(8),
            base=base,
            newest=newest,
        )
        self._journal.replace(generation, tail, carried)
        self._groups = self._groups[groups:]
        try:
            table.rebase(generation, tail, open_log(host.fs, self._directory, generation))
        except BaseException as error:
            self._journal.poison(error)
            raise
        self._witness()

    def rewrite(self, *, lost: bool) -> None:
        """Copy the whole frames into a next generation: what another process left is never appended to.

        ``lost`` adds a row that says a tail was cut: a note for whoever asks later.
        """
        with self._sync_mutex, self._mutex:
            table = self._source.table
            if lost:
                self._push_special(RowCode.LOSS, 0, self._head)
                self._groups.append(1)
            generation = self._journal.generation._replace(salt=self._services.host.entropy.take(8))
            self._journal.replace(generation, table.tail, in_groups(table.pending, self._groups))
            self._witness()

    # --- release ---

    def close(self) -> None:
        """Commit and release (again is a no-op). A poisoned or inherited writer only lets go."""
        if self._lock is None:
            return
        try:
            if self._services.host.process_id() == self._process and not self._journal.poisoned:
                self._settle_down()
        finally:
            self._let_go()

    def _settle_down(self) -> None:
        self._releasing = True
        if self._thread is not None:
            self._thread.join()
        if self._journal.load >= RELEASE_BYTES:
            self.tidy()
            if self._services.background:
                self._services.merge(lambda: True, thorough=False)
        self.commit()

    def abandon(self) -> None:
        """Let go without committing: for a failed open, and after a failure that left nothing to save."""
        if self._lock is not None:
            self._let_go()

    def _let_go(self) -> None:
        lock, self._lock = self._lock, None
        self._journal.close()
        self._source.table.close()
        if lock is not None:
            lock.release()
