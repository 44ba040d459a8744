"""The one writer of a session: append, commit, head moves, checkpoint, and the opening that makes its files sound.

Owns the order of every write to a session's files (architecture §3). Invariants: a refusal changes nothing; what is
visible is whole; memory follows the step it tells of; a commit is one sync; a checkpoint publishes objects, then rows,
copies what came meanwhile into the next generation and names it, and only the end of that last step holds up appends.
Threads may share a writer: ``_mutex`` guards appends and memory, ``_sync_mutex`` (taken first) the syncs and the change
of generations. Knows no other session.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from agentsession_cas.core.accept import raised_for_append
from agentsession_cas.core.entry import Draft
from agentsession_cas.core.framing import Record
from agentsession_cas.core.header import FORMAT, Header
from agentsession_cas.core.leaf import check_head_move
from agentsession_cas.core.rows import RowCode, decode_row
from agentsession_cas.effects.durable import swap
from agentsession_cas.effects.host import Lock, OpenFile
from agentsession_cas.effects.pace import PAUSE_S, Pace, Rest, no_rest, turns_of
from agentsession_cas.effects.threads import helper
from agentsession_cas.errors import AgentSessionError, Closed, MirrorError, StoreLocked
from agentsession_cas.sessions.headerfile import HEADER_NAME, encode_header
from agentsession_cas.sessions.journal import Journal
from agentsession_cas.sessions.log import open_log, write_rows
from agentsession_cas.sessions.plain import Accepted
from agentsession_cas.sessions.records import in_groups, in_parts, mark_of, publish_records
from agentsession_cas.sessions.services import HeldElsewhere, Mark, Services, wants_sync
from agentsession_cas.sessions.source import RowSource
from agentsession_cas.sessions.staged import Staged
from agentsession_cas.sessions.tip import Tip
from agentsession_cas.sessions.wake import wake

__all__ = ["CHECKPOINT_BYTES", "RELEASE_BYTES", "Writer"]

CHECKPOINT_BYTES: Final = 1 << 20
"""A journal past this is checkpointed as soon as appends pause."""
BURST_BYTES: Final = 4 << 20
"""A journal past this is checkpointed though appends go on coming."""
HELD_UP_BYTES: Final = 64 << 20
"""Past this, appends wait a little each: else they leave the checkpoint no time, and memory no end."""
RELEASE_BYTES: Final = 256 * 1024
"""A journal past this is checkpointed when its writer lets it go."""
_PAUSE_S: Final = 0.02
"""Appends that stay away for so long have paused."""
_CARRIED_MAX: Final = 128
_CARRIED_BYTES: Final = 128 * 1024
"""So many records, and bytes of them, are copied into the next generation while appends wait; more before."""
_ROUNDS_MAX: Final = 8


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
        self._release = threading.Event()
        self._next_checkpoint = 0.0
        self._pace = Pace(services.host.clock, self._release)
        self._process_id = services.host.process_id
        self._process = self._process_id()
        self._turns = turns_of(self._process)
        self._elsewhere = HeldElsewhere(services)
        self._source = source
        self._groups = list(groups)
        self.header = header
        self._promised = frozenset(header.records)
        self._mark = mark_of(source.table)
        first, clock = journal.generation, services.host.clock
        self._tip = Tip(
            source, first.newest, base_context=first.base_context, clock=clock, redacted_only=services.redacted_only
        )

    # --- what is known ---

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.header.id

    @property
    def head(self) -> str:
        """The head: an entry id, "" for the universal root."""
        return self._tip.head_id

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

    def _require_open(self) -> None:
        if self._lock is None:
            raise Closed("the session was released", where=self.session_id, next_step="open it again")
        if self._process_id() != self._process:
            raise Closed(
                "this handle belongs to the process that forked this one",
                where=self.session_id,
                next_step="open the session in this process",
            )
        self._journal.require_sound()

    # --- append ---

    def append_batch(self, drafts: Sequence[Draft], durable: bool | None = None) -> tuple[list[Accepted], bool]:
        """Append entries that land whole or not at all, as one frame; each sees those before it (store.md A3).

        ``durable`` None follows the sync policy. Returns what each did, and whether all are committed. A refusal
        changes nothing.
        """
        accepted, owed = self.accept(drafts, durable)
        self._settle(owed)
        return accepted, owed >= 0

    def accept(self, drafts: Sequence[Draft], durable: bool | None = None) -> tuple[list[Accepted], int]:
        """The first half of :meth:`append_batch`: the rows it owes (-1: none) are settled after it, or with others."""
        with self._mutex:
            self._require_open()
            if self._mark == Mark.MIRROR:
                raise MirrorError(
                    "the session is a mirror: its record is written elsewhere",
                    where=self.session_id,
                    next_step="fork it, and append to the fork",
                )
            accepted = self._accept(drafts)
            wanted = durable
            if wanted is None:
                policy, promised = self._services.sync, self._promised
                wanted = any(wants_sync(policy, promised, each.type, each.code, each.kind) for each in accepted)
            return accepted, self._journal.sequence if wanted else -1

    def settle(self, owed: int) -> None:
        """Commit the rows up to there, when any are owed, and wake who follows."""
        if owed >= 0:
            self._require_open()
        self._settle(owed)

    def _settle(self, owed: int) -> None:
        if owed >= 0:
            self._commit(owed)
        wake(self._directory)
        journal = self._journal
        if journal.end >= CHECKPOINT_BYTES and journal.load >= CHECKPOINT_BYTES:
            self._checkpoint_when_due()

    def _accept(self, drafts: Sequence[Draft]) -> list[Accepted]:
        """Decide all, then write one frame; everything tentative is taken back when anything fails."""
        tip, elsewhere, header = self._tip, self._elsewhere, self.header
        mark = tip.mark()
        try:
            accepted = tip.accept(header, drafts, elsewhere)
            records = self._source.table.since(mark.rows)
            if records:
                if header.format != FORMAT:
                    self._raise_header()
                self._journal.append(records)
                self._groups.append(len(records))
        except BaseException:
            tip.back_to(mark)
            raise
        finally:
            if elsewhere.locked:
                elsewhere.let_go()
        return accepted

    def _raise_header(self) -> None:
        """Raise the header to this package's format before the frame that needs it, crash-safely (format.md §11)."""
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
            check_head_move(source, self._tip.head_id, expected, to)
            if self._mark == Mark.MIRROR:
                raise MirrorError("the session is a mirror", where=self.session_id, next_step="fork it at that entry")
            ref = source.ref_of(source.find(to) if to else -1)
            if ref != self._tip.head:
                self._append_special(RowCode.HEAD, 0, ref)
            owed = self._journal.sequence if durable else -1
        self.settle(owed)
        return durable

    def set_mark(self, mark: int) -> None:
        """Mark the session a record or a mirror, durably (store.md A11)."""
        with self._mutex:
            self._require_open()
            if mark != self._mark:
                self._append_special(RowCode.MARK, mark, self._tip.head)
                self._mark = mark
            sequence = self._journal.sequence
        self._commit(sequence)

    def _append_special(self, code: RowCode, kind: int, head: int) -> None:
        mark = self._tip.mark()
        record = self._tip.special(code, kind, head)
        try:
            self._journal.append((record,))
        except BaseException:
            self._tip.back_to(mark)
            raise
        self._groups.append(1)
        self._tip.move(head)

    # --- durability ---

    def commit(self) -> None:
        """Make everything accepted so far survive a crash: at most one sync (store.md A5)."""
        with self._mutex:
            self._require_open()
            sequence = self._journal.sequence
        self._commit(sequence)
        wake(self._directory)

    def _commit(self, sequence: int) -> None:
        """For callers that required it to be open: between the sync's return and theirs, every call is a cold one."""
        journal, mutex = self._journal, self._mutex
        with self._sync_mutex:
            with mutex:
                if self._lock is None:  # let go by another thread meanwhile
                    self._require_open()
                if journal.committed >= sequence:
                    return
                covered = journal.seal()
            journal.sync()
            with mutex:
                journal.settle(covered)
                tip = self._tip
                head = tip.head_at(covered) if covered < journal.sequence else (tip.head, tip.head_digest)
                journal.witness(*head, tip.newest)  # and not of what came meanwhile, which may yet be lost

    def witness(self) -> None:
        """Write HEAD for what is committed; a hint, whose failure fails nothing."""
        with self._mutex:
            tip = self._tip
            self._journal.witness(tip.head, tip.head_digest, tip.newest)

    # --- checkpoint ---

    def checkpoint(self, wait_s: float = 60.0, rest: Rest = no_rest) -> bool:
        """Publish what lies in the journal as objects and log rows, and begin its next generation.

        Everything accepted before it is committed on return. False when maintenance held the store for ``wait_s``.
        ``rest`` is called where others may run.
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
                    for part in in_parts(taken):
                        publish_records(self._services.objects, part, rest=rest)
                    self._write_rows(taken, groups, rest)
            except StoreLocked:
                return False
            while taken:  # bit by bit: to give back the memory of many takes long too
                del taken[-_CARRIED_MAX:]
                rest()
            return True

    def _write_rows(self, taken: Sequence[Record], groups: int, rest: Rest) -> None:
        host, old = self._services.host, self._journal.generation
        rows = [record.row for record in taken]
        tail = write_rows(host.fs, self._directory, old, self._source.table.tail, rows, rest)
        newest = old.newest
        for number, row in enumerate(rows, old.base):
            newest = newest.with_row(number, decode_row(row, 0))
            rest()
        generation = old._replace(salt=host.entropy.take(8), base=old.base + len(rows), newest=newest)
        with self._journal.stage(generation, tail) as staged:
            self._copy_ahead(staged, groups, rest)
            with self._sync_mutex, self._mutex:
                self._require_open()
                before = self._next_generation(staged, tail, groups)
            before.close()

    def _copy_ahead(self, staged: Staged, groups: int, rest: Rest) -> None:
        """Copy what came meanwhile while more comes, until little is left: copying is faster than appending."""
        for _ in range(_ROUNDS_MAX):
            with self._mutex:
                self._require_open()
                records = self._source.table.since(staged.sequence)
                sizes = self._groups[groups + staged.groups :]
            if len(records) <= _CARRIED_MAX and sum(len(each.content) for each in records) <= _CARRIED_BYTES:
                return
            staged.add(in_groups(records, sizes), rest)

    def _checkpoint_when_due(self) -> None:
        if not self._services.background:
            return
        with self._mutex:
            if (self._thread is None or not self._thread.is_alive()) and self._lock is not None:
                self._thread = helper(self._housekeep, "checkpoint", daemon=True)
        if self._thread is None:
            self.tidy()
        if self._journal.load >= HELD_UP_BYTES:
            self._services.host.clock.sleep(PAUSE_S)

    def _housekeep(self) -> None:
        """What the checkpoint thread does, in its turn: a checkpoint, and packs merged if they have become many."""
        self._await_pause()
        with self._turns.taken(self._release):
            if self._tidied():
                self._services.merge(self._may_go_on, thorough=True)
                self._tidied()

    def _await_pause(self) -> None:
        """Let a burst of appends pass: they would wait for the interpreter that a checkpoint holds."""
        seen = -1
        while seen != self._journal.sequence and self._journal.load < BURST_BYTES:
            seen = self._journal.sequence
            if self._services.host.clock.wait(self._release, _PAUSE_S):
                return

    def _may_go_on(self) -> bool:
        """Asked between slices of a merge: others have their turn, and what came goes into a checkpoint.

        After a checkpoint the merge has as long to itself: else a bulk build leaves it no time, and itself many packs.
        """
        self._turns.give_way(self._release)
        if self._services.host.clock.monotonic() < self._next_checkpoint:
            return not self._release.is_set()
        return self._tidied()

    def _tidied(self) -> bool:
        """Checkpoint if it is due; False once a release waits."""
        if self._journal.load >= CHECKPOINT_BYTES and not self._release.is_set():
            began = self._services.host.clock.monotonic()
            self.tidy(self._pace)
            ended = self._services.host.clock.monotonic()
            self._next_checkpoint = ended + (ended - began)
        return not self._release.is_set()

    def tidy(self, rest: Rest = no_rest) -> None:
        """Checkpoint if that can be done now: what cannot be is done later, and only a failure that matters poisons."""
        with suppress(AgentSessionError):
            self.checkpoint(0.0, rest)

    def _next_generation(self, staged: Staged, tail: bytes, groups: int) -> OpenFile:
        """The step that holds up appends: add what came last, name the generation. Returns the file before it."""
        table, fs = self._source.table, self._services.host.fs
        staged.add(in_groups(table.since(staged.sequence), self._groups[groups + staged.groups :]))
        before = self._journal.replace(staged)
        self._groups = self._groups[groups:]
        try:
            table.rebase(staged.generation, tail, open_log(fs, self._directory, staged.generation))
        except BaseException as error:
            self._journal.poison(error)
            raise
        self.witness()
        return before

    def rewrite(self, *, lost: bool) -> None:
        """Copy the whole frames into a next generation: what another process left is never appended to.

        ``lost`` adds a row that says a tail was cut: a note for whoever asks later.
        """
        with self._sync_mutex, self._mutex:
            table = self._source.table
            if lost:
                self._tip.special(RowCode.LOSS, 0, self._tip.head)
                self._groups.append(1)
            generation = self._journal.generation._replace(salt=self._services.host.entropy.take(8))
            with self._journal.stage(generation, table.tail) as staged:
                staged.add(in_groups(table.pending, self._groups))
                self._journal.replace(staged).close()
            self.witness()

    # --- release ---

    def close(self) -> None:
        """Commit and release (again is a no-op). A poisoned or inherited writer only lets go."""
        if self._lock is None:
            return
        try:
            if self._process_id() == self._process and not self._journal.poisoned:
                self._settle_down()
        finally:
            self._let_go()

    def _settle_down(self) -> None:
        self._release.set()
        self._turns.stir()
        cut_off = self._thread is not None and self._thread.is_alive()
        if self._thread is not None:
            self._thread.join()
        long = self._journal.load >= RELEASE_BYTES
        if long:
            self.tidy()
        if self._services.background and (long or cut_off):
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
