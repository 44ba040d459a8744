"""Settling a session at rest: all its rows packed, its journal no longer than what it says (store.md Part B).

The same order as a checkpoint (architecture §3): what the journal has goes out as objects, the rows into a log of their
own under the next number, synced, its name too; then the generation that names it, by rename; HEAD; and only then the
log before it goes. A crash anywhere leaves the session as it was or as it is to be, and at most a file that no
generation names. The caller holds the session's lock and the store lock shared; other sessions may be settled at the
same time, each in this order. Sessions whose journal nobody attests, or that are damaged, are left to who opens them to
write.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from agentsession_cas.core.framing import FRAMES_OFFSET, Generation, HeadHint, Record, encode_head, encode_settled
from agentsession_cas.core.rows import Newest
from agentsession_cas.effects.durable import write_new
from agentsession_cas.effects.host import Fs, Host
from agentsession_cas.errors import AgentSessionError, DiskError
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.journal import HEAD_NAME, JOURNAL_NAME, clear_leftovers, log_name, next_name
from agentsession_cas.sessions.log import RowTable
from agentsession_cas.sessions.packedlog import PackedLog, packed_name, packed_rows
from agentsession_cas.sessions.records import publish_records
from agentsession_cas.sessions.recovery import Verdict, read_state_once

__all__ = ["SETTLED_MAX", "records_at_rest", "settle"]

SETTLED_MAX: Final = FRAMES_OFFSET - 1
"""The journal of a settled session is no longer than this, that of any other is."""


def records_at_rest(fs: Fs, directory: str) -> list[Record]:
    """What the journal of a session holds that could be settled; nothing where that cannot be told. Needs no lock."""
    try:
        state = read_state_once(fs, directory)
    except AgentSessionError:
        return []
    state.table.close()
    return state.table.pending if state.verdict is Verdict.CLEAN else []


def settle(host: Host, objects: ObjectDatabase, directory: str) -> bool:
    """Settle a session; False when its files are not fit for it. Raises Damaged, Corrupt, DiskError and its like."""
    fs = host.fs
    state = read_state_once(fs, directory)
    try:
        if state.verdict is not Verdict.CLEAN or state.hint is None:
            return False
        clear_leftovers(fs, directory, state.scan.generation.log)
        publish_records(objects, state.table.pending)
        old, count = state.scan.generation, len(state.table)
        generation = old._replace(salt=host.entropy.take(8), base=count, newest=_newest(old, state.table), packed=count)
        if count != old.packed:
            generation = generation._replace(log=old.log + 1)
            _write_packed(fs, directory, generation, state.table)
    finally:
        state.table.close()
    _name(fs, directory, generation)
    with suppress(DiskError):  # a hint: without it, who opens the session copies the generation
        _write_head(fs, directory, encode_head(HeadHint(generation.salt, count, *state.hint[2:4])))
    if generation.log != old.log:
        for name in (log_name(old.log), packed_name(old.log)):
            with suppress(DiskError):
                fs.unlink(f"{directory}/{name}")
    return True


def _newest(generation: Generation, table: RowTable) -> Newest:
    newest = generation.newest
    for number in range(table.base, len(table)):
        newest = newest.with_row(number, table.row(number))
    return newest


def _write_packed(fs: Fs, directory: str, generation: Generation, table: RowTable) -> None:
    path = f"{directory}/{packed_name(generation.log)}"
    packed = table.log if isinstance(table.log, PackedLog) else None
    data = packed_rows(generation, table, packed)
    if fs.stat(path) is not None:
        fs.unlink(path)  # of a settling that did not come to its end: nothing names it
    write_new(fs, path, data)
    fs.sync_dir(directory)


def _name(fs: Fs, directory: str, generation: Generation) -> None:
    staged = f"{directory}/{next_name(generation.salt)}"
    write_new(fs, staged, encode_settled(generation))
    fs.rename(staged, f"{directory}/{JOURNAL_NAME}")
    fs.sync_dir(directory)


def _write_head(fs: Fs, directory: str, data: bytes) -> None:
    file = fs.open(f"{directory}/{HEAD_NAME}", write=True)
    try:
        file.pwrite(data, 0)
    finally:
        file.close()
