"""Seeded mistakes: the real engine with one rule of architecture §3 broken, and where the explorer has to notice.

Each is a few lines over the code it spoils. They keep the explorer from going blind: if none of the images it looks at
tells a broken engine from a sound one, it is worth nothing.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest

from agentsession_cas import store
from agentsession_cas.core import framing, rows
from agentsession_cas.core.framing import Generation, HeadHint, Scan, encode_generation
from agentsession_cas.core.rows import ROW_SIZE, log_seed, sealed_ok, whole_rows
from agentsession_cas.effects import durable
from agentsession_cas.errors import AgentSessionError, Damaged, DiskError
from agentsession_cas.exchange import forks
from agentsession_cas.layout import Layout
from agentsession_cas.objects.publish import Publisher
from agentsession_cas.sessions import log, opening, recovery, writer
from agentsession_cas.sessions.journal import HEAD_NAME, JOURNAL_NAME, Journal, log_name
from agentsession_cas.sessions.records import in_groups, publish_records
from agentsession_cas.sessions.recovery import Verdict
from agentsession_cas.sessions.source import RowSource
from agentsession_cas.sessions.writer import Writer
from agentsession_cas.testing.simfs import SimEntropy
from tests.helpers.crashes import Through, Violation, deaf
from tests.helpers.engine_explorer import Explorer
from tests.helpers.engine_readers import watched_readers
from tests.helpers.engine_rot import rot
from tests.helpers.engine_scenarios import SCENARIOS, init

__all__ = ["MISTAKES", "Mistake", "hunt"]

Patch = pytest.MonkeyPatch
Stage = Callable[[int], None]
"""Explores with a seed; raises Violation."""


NOTICED: Final = (Violation, AgentSessionError, IndexError)
"""What shows a mistake: the judge, or a broken engine that trips over itself; no other error is one of the engine's."""


class Mistake(NamedTuple):
    """``make`` spoils the engine; ``stages`` are where it shows, the likeliest first."""

    make: Callable[[Patch], None]
    stages: tuple[Stage, ...]


# --- where to look ----------------------------------------------------------------------------------------------------


def _power(name: str, *, tear: bool = False) -> Stage:
    return lambda seed: _explorer(seed, tear).power(name, SCENARIOS[name])


def _resume(name: str, start: int = 0, stop: int = 1000) -> Stage:
    """Only a few of the second process' effects are explored, there being one for each effect of the first."""
    return lambda seed: _explorer(seed, density=0.1).resume(
        name, SCENARIOS.get(name, init), start=start, stop=stop, fresh=name not in SCENARIOS
    )


def _faults(code: int, name: str, kinds: frozenset[str] | None = None) -> Stage:
    return lambda seed: _explorer(seed).faults(name, SCENARIOS[name], code, kinds=kinds, alone=True)


def _readers(name: str) -> Stage:
    def stage(seed: int) -> None:
        watched_readers(name, SCENARIOS[name], sector=512, tries=6000, seed=seed)

    return stage


def _rot(name: str, *, headless: bool = False) -> Stage:
    def stage(seed: int) -> None:
        rot(name, SCENARIOS[name], stride=11, seed=seed, headless=headless)

    return stage


def _explorer(seed: int, tear: bool = False, density: float = 1.0) -> Explorer:
    return Explorer(sector=(512, 512, 4096)[seed % 3], tear=tear, seed=seed, density=density)


def hunt(mistake: Mistake, rounds: int = 6) -> str:
    """Explore until the mistake shows; what showed, or "" when nothing did."""
    for seed in range(rounds):
        for stage in mistake.stages:
            try:
                stage(seed)
            except NOTICED as noticed:
                return f"{type(noticed).__name__}: {noticed}"
    return ""


# --- tools of sabotage ------------------------------------------------------------------------------------------------


def _deaf_fs(function: Callable[..., Any], **left_out: str) -> Callable[..., Any]:
    """A function whose first argument is a file system."""
    return lambda fs, *rest, **more: function(deaf(fs, **left_out), *rest, **more)


def _deaf_services(function: Callable[..., Any], **left_out: str) -> Callable[..., Any]:
    """A function whose first argument is a store's services."""

    def careless(services: Any, *rest: Any, **more: Any) -> Any:
        host = replace(services.host, fs=deaf(services.host.fs, **left_out))
        return function(services._replace(host=host), *rest, **more)

    return careless


def _deaf_journal(patch: Patch, method: str, **left_out: str) -> None:
    """A method of the journal during which its file system is deaf."""
    sound: Callable[..., Any] = getattr(Journal, method)

    def careless(self: Any, *rest: Any) -> Any:
        fs, self._fs = self._fs, deaf(self._fs, **left_out)
        try:
            return sound(self, *rest)
        finally:
            self._fs = fs

    patch.setattr(Journal, method, careless)


# --- mistakes: syncs --------------------------------------------------------------------------------------------------


def generation_not_synced(patch: Patch) -> None:
    """The next generation is named before its bytes are on the disk."""
    _deaf_journal(patch, "stage", files="")


def generation_name_not_synced(patch: Patch) -> None:
    """What comes after a rename is acknowledged though the rename may be undone."""
    _deaf_journal(patch, "replace", directories="")


def rows_not_synced(patch: Patch) -> None:
    """The journal moves past rows the log may not have."""
    patch.setattr(writer, "write_rows", _deaf_fs(log.write_rows, files=""))


def log_name_not_synced(patch: Patch) -> None:
    """A journal names a log whose name may be gone."""
    patch.setattr(writer, "write_rows", _deaf_fs(log.write_rows, directories=""))


def acknowledged_before_the_sync(patch: Patch) -> None:
    """The sync is left for later."""
    patch.setattr(Journal, "sync", lambda _: None)


def head_before_the_sync(patch: Patch) -> None:
    """HEAD tells of a sync that has not happened yet."""
    sound = Writer._commit

    def commit(self: Any, sequence: int) -> None:
        journal = self._journal
        committed, journal.committed = journal.committed, max(journal.committed, sequence)
        self.witness()
        journal.committed = committed
        sound(self, sequence)

    patch.setattr(Writer, "_commit", commit)


def committed_up_to_the_end_of_the_sync(patch: Patch) -> None:
    """What was appended while a sync ran counts as synced by it."""
    sound = Journal.settle
    patch.setattr(Journal, "settle", lambda self, _: sound(self, self.sequence))


def held_not_committed(patch: Patch) -> None:
    """A durable append of an entry that is held finds nothing to sync."""
    sound = Writer.append_batch

    def append_batch(self: Any, drafts: Any, durable: bool | None = None) -> Any:
        count = len(self.source.table)
        prepared, _ = sound(self, drafts, False)
        if durable and len(self.source.table) > count:
            self.commit()
        return prepared, bool(durable)

    patch.setattr(Writer, "append_batch", append_batch)


def created_files_not_synced(patch: Patch) -> None:
    """A new session is named before its files are on the disk."""
    patch.setattr(opening, "create_with", _deaf_fs(durable.create_with, files=""))


def created_names_not_synced(patch: Patch) -> None:
    """A new session is named before the names in it are."""
    patch.setattr(store, "create_session", _deaf_services(opening.create_session, directories=""))


def created_session_not_synced(patch: Patch) -> None:
    """Appends to a session are acknowledged while its own name may go."""
    patch.setattr(store, "create_session", _deaf_services(opening.create_session, directories="/sessions"))


def opened_session_not_synced(patch: Patch) -> None:
    """Who opens a session believes that its maker made its name durable."""
    patch.setattr(store, "open_writer", _deaf_services(opening.open_writer, directories="/sessions"))


def deleted_session_not_synced(patch: Patch) -> None:
    """A deleted session comes back."""
    patch.setattr(store, "move", lambda fs, source, target: fs.rename(source, target))


def header_name_not_synced(patch: Patch) -> None:
    """A raised header may be undone under entries that need it."""
    patch.setattr(writer, "swap", durable.publish)


def found_objects_not_synced(patch: Patch) -> None:
    """An object that is found is taken for a durable one."""
    sound = Publisher._seek

    def seek(self: Any, unsure: Any, loose_below: int, work: Any) -> None:
        sound(self, unsure, loose_below, work)
        work.syncs.clear()

    patch.setattr(Publisher, "_seek", seek)


# --- mistakes: order and place ----------------------------------------------------------------------------------------


def objects_after_the_rename(patch: Patch) -> None:
    """Rows are the log's before what they name is in the store."""
    late: list[Any] = []
    sound = Writer._write_rows

    def write_rows(self: Any, *taken: Any) -> None:
        sound(self, *taken)
        for objects, records in late:
            publish_records(objects, records)
        late.clear()

    patch.setattr(writer, "publish_records", lambda *what, **_: late.append(what))
    patch.setattr(Writer, "_write_rows", write_rows)


def header_after_the_frame(patch: Patch) -> None:
    """A frame stands under a header that is too old for it."""
    raises, accepts = Writer._raise_header, Writer._accept

    def accept(self: Any, *given: Any) -> Any:
        patch.setattr(Writer, "_raise_header", lambda _: None)
        prepared = accepts(self, *given)
        raises(self)
        return prepared

    patch.setattr(Writer, "_accept", accept)


def header_raised_under_a_witness(patch: Patch) -> None:
    """A header whose name is not durable yet is found by a process that believes HEAD and goes on in place."""
    patch.setattr(Journal, "forswear", lambda _: None)


def batch_in_several_frames(patch: Patch) -> None:
    """A part of a batch survives."""
    sound = Journal.append

    def append(self: Any, records: Sequence[Any]) -> None:
        for record in records:
            sound(self, [record])

    patch.setattr(Journal, "append", append)


def carried_frames_dropped(patch: Patch) -> None:
    """What was appended during a checkpoint is not in the next generation."""
    sound = Writer._next_generation

    def next_generation(self: Any, *what: Any) -> Any:
        patch.setattr(writer, "in_groups", lambda *_: [])
        try:
            return sound(self, *what)
        finally:
            patch.setattr(writer, "in_groups", in_groups)

    patch.setattr(Writer, "_next_generation", next_generation)


def acknowledged_blocks_written_again(patch: Patch) -> None:
    """A frame goes into a block that a sync has made durable; the device destroys it."""
    sound = Journal.append

    def append(self: Any, records: Any) -> None:
        self._sealed = -1
        sound(self, records)

    patch.setattr(Journal, "append", append)


def blocks_sealed_at_the_end_of_the_sync(patch: Patch) -> None:
    """A frame written while a sync runs goes into a block that it makes durable."""
    settle = Journal.settle

    def settled(self: Any, sequence: int) -> None:
        settle(self, sequence)
        self._sealed = self.end

    patch.setattr(Journal, "seal", lambda self: self.sequence)
    patch.setattr(Journal, "settle", settled)


def log_trusted_row_by_row(patch: Patch) -> None:
    """Rows are added to a block of the log that has trusted ones; the device destroys it."""
    for module in (rows, framing, log, opening):
        patch.setattr(module, "whole_rows", lambda count: count)


def generation_written_in_place(patch: Patch) -> None:
    """The next generation is written over the one before."""

    def replaced(self: Any, staged: Any) -> Any:
        file, path, _ = staged.finish()
        data = file.pread(file.size(), 0)
        self._fs.unlink(path)
        self._file.pwrite(data.ljust(self._size, b"\0"), 0)
        self._file.sync()
        self.generation, self.end, self._sealed = staged.generation, staged.end, staged.end
        self.sequence = self.committed = staged.sequence
        self._size = max(self._size, len(data))
        return file

    patch.setattr(Journal, "replace", replaced)


def store_believed_to_be_durable(patch: Patch) -> None:
    """Who finds a store believes that its maker made its name durable."""
    sound = Layout.create.__func__  # type: ignore[attr-defined]

    def create(cls: Any, host: Any, root: str, /, **how: Any) -> Any:
        made = sound(cls, host, root, **how)
        host.fs.sync_dir(root)
        return made

    patch.setattr(Layout, "create", classmethod(create))
    patch.setattr(Layout, "settle", lambda _: None)


def scratch_rows_kept(patch: Patch) -> None:
    """Rows past the base that look right are trusted, so that a checkpoint does not write them again."""
    sound = log.write_rows

    def write_rows(fs: Any, directory: str, generation: Any, tail: bytes, bodies: Sequence[bytes], *_: Any) -> bytes:
        whole, seed = whole_rows(generation.base), log_seed(generation.birth, generation.log)
        old = fs.read(f"{directory}/{log_name(generation.log)}") or b""
        known = list(bodies)
        for at in range(len(known)):
            number = generation.base + at
            if number >= whole and sealed_ok(old, number * ROW_SIZE, number, seed):
                known[at] = old[number * ROW_SIZE : number * ROW_SIZE + ROW_SIZE - 4]
        return sound(fs, directory, generation, tail, known)

    patch.setattr(writer, "write_rows", write_rows)


def no_salt(patch: Patch) -> None:
    """Generations of all sessions look alike."""
    sound = SimEntropy.take
    patch.setattr(SimEntropy, "take", lambda self, n: b"saltsalt" if n == 8 else sound(self, n))


def fork_not_anchored(patch: Patch) -> None:
    """What a fork's prefix has in its origin's journal is left there."""
    patch.setattr(forks, "publish_records", lambda *_: None)


# --- mistakes: recovery and failure -----------------------------------------------------------------------------------


def torn_journals_go_on(patch: Patch) -> None:
    """A writer appends behind whatever it finds."""
    sound = recovery.decide
    patch.setattr(recovery, "decide", lambda *seen: sound(*seen) and Verdict.CLEAN)


def left_frames_synced_in_place(patch: Patch) -> None:
    """What another process left is synced instead of written again: a failed sync made its pages look clean."""

    def rewrite(self: Any, *, lost: bool) -> None:
        self._journal.seal()
        self._journal.sync()
        self.witness()

    patch.setattr(Writer, "rewrite", rewrite)


def failed_syncs_tried_again(patch: Patch) -> None:
    """A sync that works after one that failed is believed."""

    def sync(self: Any) -> None:
        try:
            self._file.sync()
        except DiskError:
            self._file.sync()

    patch.setattr(Journal, "sync", sync)


def refused_rows_remembered(patch: Patch) -> None:
    """Memory runs ahead of the disk."""
    patch.setattr(RowSource, "cut", lambda *_: None)


def refused_frames_left(patch: Patch) -> None:
    """A frame that was written whole is refused because zeros behind it found no room."""
    sound = Journal.append

    class Short(Through):
        def size(self) -> int:
            return 0

    def append(self: Any, records: Any) -> None:
        file, self._file = self._file, Short(self._file)
        try:
            sound(self, records)
        finally:
            self._file = file

    patch.setattr(Journal, "append", append)


def head_not_heeded(patch: Patch) -> None:
    """Rot at the end of what was acknowledged passes for a lost tail."""
    sound = recovery.decide
    patch.setattr(recovery, "decide", lambda scan, _, where: sound(scan, None, where))


def later_frames_not_heeded(patch: Patch) -> None:
    """Rot before frames that prove it passes for a lost tail when HEAD is gone."""
    sound = recovery.decide

    def decide(scan: Scan, hint: HeadHint | None, where: str) -> Verdict:
        return sound(scan._replace(attested=0), hint, where)

    patch.setattr(recovery, "decide", decide)


def absent_journal_taken_for_an_empty_one(patch: Patch) -> None:
    """A session whose journal is gone reads as a new one."""
    sound = recovery._journal_bytes

    def journal_bytes(fs: Any, directory: str) -> bytes:
        try:
            return sound(fs, directory)
        except Damaged:
            return encode_generation(Generation(bytes(8), bytes(16), 0, 0), b"")

    patch.setattr(recovery, "_journal_bytes", journal_bytes)


# --- mistakes: readers ------------------------------------------------------------------------------------------------


def first_damage_believed(patch: Patch) -> None:
    """A reader takes a journal that changes under it for a damaged one."""
    patch.setattr(opening, "read_state", recovery.read_state_once)


def journal_read_before_head(patch: Patch) -> None:
    """A reader's journal is older than the HEAD it is judged by."""

    class Late(Through):
        def __getattr__(self, name: str) -> Any:
            return self._read if name == "read" else getattr(self._inner, name)

        def _read(self, path: str) -> bytes | None:
            if path.endswith(HEAD_NAME):
                self._journal = self._inner.read(path.replace(HEAD_NAME, JOURNAL_NAME))
            return self._journal if path.endswith(JOURNAL_NAME) else self._inner.read(path)  # type: ignore[no-any-return]

    sound = recovery.read_state_once
    patch.setattr(recovery, "read_state_once", lambda fs, directory: sound(Late(fs), directory))


def two_sessions_mixed(patch: Patch) -> None:
    """A reader does not notice that another session came by the name."""
    patch.setattr(opening, "directory_identity", lambda *_: None)


_EIO, _FULL = errno.EIO, errno.ENOSPC

MISTAKES: Final[dict[str, Mistake]] = {
    make.__name__: Mistake(make, tuple(stages))
    for make, *stages in (
        (generation_not_synced, _power("checkpoint")),
        (generation_name_not_synced, _power("checkpoint")),
        (rows_not_synced, _power("rows")),
        (log_name_not_synced, _power("rows")),
        (acknowledged_before_the_sync, _power("durable")),
        (head_before_the_sync, _power("durable")),
        (committed_up_to_the_end_of_the_sync, _power("during")),
        (held_not_committed, _power("held")),
        (created_files_not_synced, _power("durable")),
        (created_names_not_synced, _power("durable")),
        (created_session_not_synced, _power("durable")),
        (opened_session_not_synced, _resume("durable")),
        (deleted_session_not_synced, _power("delete")),
        (header_name_not_synced, _power("raised")),
        (found_objects_not_synced, _resume("checkpoint", 15, 45)),
        (objects_after_the_rename, _power("checkpoint")),
        (header_after_the_frame, _power("raised")),
        (header_raised_under_a_witness, _resume("raised", 54, 59)),
        (batch_in_several_frames, _power("batch")),
        (carried_frames_dropped, _power("busy")),
        (acknowledged_blocks_written_again, _power("durable", tear=True)),
        (blocks_sealed_at_the_end_of_the_sync, _power("during", tear=True)),
        (log_trusted_row_by_row, _power("checkpoint", tear=True)),
        (generation_written_in_place, _power("checkpoint")),
        (scratch_rows_kept, _power("busy"), _power("head")),
        (no_salt, _power("durable"), _power("lazy")),
        (fork_not_anchored, _power("fork")),
        (torn_journals_go_on, _power("lazy")),
        (left_frames_synced_in_place, _faults(_EIO, "lazy", kinds=frozenset({"sync"}))),
        (failed_syncs_tried_again, _faults(_EIO, "lazy", kinds=frozenset({"sync"}))),
        (refused_rows_remembered, _faults(_FULL, "lazy")),
        (refused_frames_left, _faults(_FULL, "grow")),
        (head_not_heeded, _rot("durable")),
        (later_frames_not_heeded, _rot("durable", headless=True)),
        (absent_journal_taken_for_an_empty_one, _rot("durable")),
        (store_believed_to_be_durable, _resume("init", 8, 24)),
        (journal_read_before_head, _readers("durable"), _readers("lazy"), _readers("grow")),
        (first_damage_believed, _readers("lazy"), _readers("grow")),
        (two_sessions_mixed, _readers("delete")),
    )
}
