"""Making a session's files in one step, and opening them to write or to read.

Create stages everything in ``tmp/``, syncs it, and renames it into place: never half a session. An open to write takes
the session's lock, goes on in place only where HEAD attests that nothing is unsynced, and else copies what is whole
into a next generation (architecture §3). An open to read takes nothing and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple, TypeVar

from agentsession_cas.core.framing import Generation, Scan
from agentsession_cas.core.header import Header
from agentsession_cas.core.rows import REF_BASE, REF_ROOT, ROW_SIZE, Newest, log_seed, seal_row, whole_rows
from agentsession_cas.effects.durable import create_with, remove_tree
from agentsession_cas.effects.host import Fs, Host, Lock, OpenFile
from agentsession_cas.errors import (
    AgentSessionError,
    BadInput,
    Corrupt,
    Damaged,
    FileTaken,
    NoFile,
    NoSession,
    NotRegular,
    SessionExists,
    SessionLocked,
)
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.headerfile import HEADER_NAME, decode_header, encode_header
from agentsession_cas.sessions.journal import JOURNAL_NAME, Journal, clear_leftovers, log_name
from agentsession_cas.sessions.log import open_log, open_rows
from agentsession_cas.sessions.prefix import Prefix
from agentsession_cas.sessions.recovery import State, Verdict, read_state, read_state_once
from agentsession_cas.sessions.services import Services
from agentsession_cas.sessions.source import RowSource
from agentsession_cas.sessions.staged import generation_bytes
from agentsession_cas.sessions.writer import CHECKPOINT_BYTES, Writer

__all__ = [
    "HEADER_NAME",
    "LOCK_NAME",
    "Placed",
    "Snapshot",
    "create_session",
    "directory_identity",
    "hold_placed",
    "lock_session",
    "open_writer",
    "place_session",
    "read_header",
    "snapshot",
]

LOCK_NAME = "lock"

PrefixOf = Callable[[Header, Generation], Prefix | None]

W = TypeVar("W", bound=Writer)


class Snapshot(NamedTuple):
    """A session as one read found it. ``leaf`` is the id of its head, "" for the universal root."""

    header: Header
    source: RowSource
    leaf: str
    state: State


def read_header(fs: Fs, directory: str) -> Header:
    """The header of a session; NoSession when it is not there, Damaged when its line cannot be read."""
    path = f"{directory}/{HEADER_NAME}"
    try:
        data = fs.read(path)
    except NotRegular as error:
        raise Damaged(error.what, where=path) from error
    if data is None:
        if fs.stat(directory) is None:
            raise NoSession("the session is not there", where=directory)
        raise Damaged("the header is absent", where=path)
    try:
        return decode_header(data)
    except Corrupt as error:
        raise Damaged(error.what, where=path) from error


def snapshot(host: Host, objects: ObjectDatabase, directory: str, prefix_of: PrefixOf) -> Snapshot:
    """Read a session beside its writer: no lock, nothing written (store.md Part B, readers)."""
    state, header = _files(host.fs, directory)
    with ExitStack() as undo:
        undo.callback(state.table.close)
        source = RowSource(state.table, objects, header.base, prefix_of(header, state.scan.generation))
        undo.callback(source.close)
        table = state.table
        head = table.row(len(table) - 1).head if len(table) else REF_BASE if header.base else REF_ROOT
        leaf = source.id_of_ref(head)
        source.remember(leaf, head)
        undo.pop_all()
    return Snapshot(header, source, leaf, state)


def _files(fs: Fs, directory: str) -> tuple[State, Header]:
    """State and header; never those of two sessions, when one is deleted and another made by its name meanwhile."""
    while True:
        there = directory_identity(fs, directory)
        state: State | None = None
        try:
            state = read_state(fs, directory)
            header = read_header(fs, directory)
            same = directory_identity(fs, directory) == there
        except AgentSessionError as error:
            if state is not None:
                state.table.close()
            if not isinstance(error, (Damaged, NoFile)) or directory_identity(fs, directory) == there:
                raise
            continue
        if same:
            return state, header
        state.table.close()


def directory_identity(fs: Fs, directory: str) -> tuple[int, int] | None:
    """Device and inode of a session's directory, None when it is not there: another pair is another session."""
    found = fs.stat(directory)
    return (found.device, found.inode) if found is not None else None


def lock_session(host: Host, directory: str, session_id: str, timeout_s: float) -> Lock:
    """Take a session's lock; SessionLocked, naming the holder, when another writer has it for ``timeout_s`` seconds."""
    path = f"{directory}/{LOCK_NAME}"
    if not isinstance(timeout_s, (int, float)):
        raise BadInput(f"timeout_s is a number of seconds, not {timeout_s!r:.40}", where=session_id)
    try:
        lock = host.fs.lock(path, exclusive=True, timeout_s=timeout_s, note=host.process)
    except (NoFile, NotRegular) as error:
        raise NoSession("the session is not there", where=session_id) from error
    if lock is None:
        holder = host.fs.lock_note(path)
        raise SessionLocked(
            f"the session is open in another writer{f' ({holder})' if holder else ''}",
            session=session_id,
            holder=holder,
            where=session_id,
            next_step="try again when it is closed; reading needs no lock",
        )
    return lock


def open_writer(
    services: Services,
    sessions: str,
    directory: str,
    session_id: str,
    prefix_of: PrefixOf,
    timeout_s: float,
    kind: type[W],
) -> W:
    """Hold a session for writing, as a ``kind`` of writer: lock, read, make sound. Damaged refuses."""
    host = services.host
    with ExitStack() as undo:
        lock = lock_session(host, directory, session_id, timeout_s)
        undo.callback(lock.release)
        state = read_state_once(host.fs, directory)
        undo.callback(state.table.close)
        header = read_header(host.fs, directory)
        writer = _writer(services, directory, header, state, prefix_of, lock, kind)
        undo.pop_all()
    try:
        if state.verdict is not Verdict.CLEAN:
            clear_leftovers(host.fs, directory, state.scan.generation.log)
            host.fs.sync_dir(directory)
            host.fs.sync_dir(sessions)
            writer.rewrite(lost=state.verdict is Verdict.LOST)
        if writer.journal_bytes > CHECKPOINT_BYTES:
            writer.tidy()
            writer.commit()  # nothing is left to commit, but a poisoned writer says so
    except BaseException:
        writer.abandon()
        raise
    return writer


def _writer(
    services: Services,
    directory: str,
    header: Header,
    state: State,
    prefix_of: PrefixOf,
    lock: Lock,
    kind: type[W],
) -> W:
    """A writer over files that were read; when it cannot be had, those held open are closed."""
    scan, fs = state.scan, services.host.fs
    with ExitStack() as undo:
        undo.callback(state.table.close)
        source = RowSource(state.table, services.objects, header.base, prefix_of(header, scan.generation))
        undo.callback(source.close)
        file = fs.open(f"{directory}/{JOURNAL_NAME}", write=True)
        undo.callback(file.close)
        journal = Journal(fs, directory, scan, file)
        writer = kind(services, directory, header, journal, source, [len(group) for group in state.groups], lock)
        undo.pop_all()
    return writer


def create_session(
    services: Services,
    sessions: str,
    directory: str,
    header: Header,
    *,
    rows: Sequence[bytes] = (),
    newest: Newest = Newest(),  # noqa: B008 - immutable
    base_context: bytes = bytes(32),
    prefix_of: PrefixOf,
) -> Writer:
    """Make a session in one step and hold it. ``rows`` (124 bytes each) are its first, their objects already durable.

    ``newest`` is what those rows have newest. Raises SessionExists.
    """
    placed = place_session(services, directory, header, rows, newest, base_context)
    (writer,) = hold_placed(services, sessions, [placed], prefix_of)
    return writer


class Placed(NamedTuple):
    """A session that has its name and is locked: it lasts once ``sessions/`` is synced. ``scan`` is of its journal."""

    directory: str
    header: Header
    lock: Lock
    scan: Scan


def place_session(
    services: Services, directory: str, header: Header, rows: Sequence[bytes], newest: Newest, base_context: bytes
) -> Placed:
    """Make a session's files, synced, and give them their name. Arguments and errors as :func:`create_session` has."""
    host = services.host
    fs = host.fs
    stage = f"{services.tmp}/new-{host.entropy.take(12).hex()}"
    seed_birth = host.entropy.take(16)
    generation = Generation(host.entropy.take(8), seed_birth, 0, len(rows), newest, base_context)
    fs.mkdir(stage)
    lock: Lock | None = None
    try:
        log, tail = _rows(generation, rows)
        data, end, sequence = generation_bytes(generation, tail, ())
        made = {HEADER_NAME: encode_header(header), log_name(generation.log): log, JOURNAL_NAME: data}
        with ExitStack() as held:
            staged: list[OpenFile] = []
            for name, content in made.items():
                if content:
                    staged.append(create_with(fs, f"{stage}/{name}", content))
                    held.callback(staged[-1].close)
            lock = lock_session(host, stage, header.id, 0.0)
            for file in staged:
                file.sync()
        fs.sync_dir(stage)
        fs.rename(stage, directory)
    except BaseException as error:
        if lock is not None:
            lock.release()
        if isinstance(error, AgentSessionError):
            _discard(fs, stage)
        if isinstance(error, FileTaken):
            raise SessionExists(
                "the store holds a session of this id", where=header.id, next_step="open it, or choose another id"
            ) from error
        raise
    return Placed(directory, header, lock, Scan(generation, tail, [], end, sequence, 0, zero=True))


def hold_placed(services: Services, sessions: str, placed: Sequence[Placed], prefix_of: PrefixOf) -> list[Writer]:
    """Make the names of sessions durable, all by one sync, and hold them. A failure lets go of every one."""
    fs = services.host.fs
    writers: list[Writer] = []
    try:
        fs.sync_dir(sessions)
        for directory, header, lock, scan in placed:
            table = open_rows(scan.generation, scan.tail, open_log(fs, directory, scan.generation))
            state = State(scan, None, Verdict.CLEAN, [], table)
            writers.append(_writer(services, directory, header, state, prefix_of, lock, Writer))
    except BaseException:
        for writer in writers:
            writer.abandon()
        for each in placed[len(writers) :]:
            each.lock.release()
        raise
    for writer in writers:
        writer.witness()
    return writers


def _rows(generation: Generation, rows: Sequence[bytes]) -> tuple[bytes, bytes]:
    """The log of a new session, and the tail for its journal."""
    seed = log_seed(generation.birth, generation.log)
    sealed = b"".join(seal_row(row, number, seed) for number, row in enumerate(rows))
    whole = whole_rows(len(rows)) * ROW_SIZE
    return sealed[:whole], sealed[whole:]


def _discard(fs: Fs, stage: str) -> None:
    """Best effort: what stays in ``tmp`` is emptied by a sweep."""
    with suppress(AgentSessionError):
        remove_tree(fs, stage)
