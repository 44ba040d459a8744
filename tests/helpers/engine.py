"""A process that uses a store and says to a model what it is about to do and what it was told is done.

Owns the operations scenarios are made of. Every entry is a message whose size is chosen and whose time is a tick, so
that the model knows each id before the store does. What an operation raises decides what the model may believe: power
cuts and kills pass through, a refusal must have changed nothing, a poisoned writer may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.header import Header, new_header
from agentsession_cas.core.identity import hash_bytes
from agentsession_cas.core.jsonl import read_session
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import AgentSessionError, Corrupt, NoBlob, NoSession
from agentsession_cas.sessions.handle import SessionWriter
from agentsession_cas.sessions.source import RowSource
from agentsession_cas.store import Store
from tests.helpers.crashes import Violation
from tests.helpers.engine_model import Found, Truth, World
from tests.helpers.stores import ROOT, opened

__all__ = ["Interrupt", "Player", "check_blobs", "message", "observe", "observed", "ts"]

EARLIER: Final = "agentsession/0.11"


def ts(tick: int) -> str:
    """The canonical time of a tick; all are as long."""
    return f"2026-01-01T00:00:00.{tick * 10 + 1:09d}Z"


def message(text: str) -> dict[str, Any]:
    """The body of an item entry."""
    return {"item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}}


def observed(store: Store, session_id: str) -> Found:
    """A session as a reader without the lock has it, every body loaded."""
    session = store.read(session_id)
    assert isinstance(session.source, RowSource)
    try:
        lines = [entry.line for entry in session]
        for position, line in enumerate(lines):
            if session.source.find(Entry.from_line(line).id) != position:
                raise Violation(f"{session_id}: the entry at {position} is not found by its id")
    finally:
        session.source.close()
    count = session.source.base_count
    return Found(session.header.line, tuple(lines[:count]), tuple(lines[count:]), session.leaf)


def observe(store: Store, where: str) -> dict[str, Found]:
    """Every session of a store; no legal state of one is an error."""
    found: dict[str, Found] = {}
    try:
        for session_id in store.session_ids():
            found[session_id] = observed(store, session_id)
    except AgentSessionError as error:
        raise Violation(f"{where}: {type(error).__name__}: {error}") from error
    for name in store.layout.host.fs.listdir(store.layout.sessions):
        if name not in found:
            raise Violation(f"{where}: {name} is half a session")
    return found


def check_blobs(store: Store, world: World, where: str) -> None:
    """Acknowledged blobs are there, others are there whole or not at all."""
    for data, must in world.blobs.items():
        try:
            if store.blob(hash_bytes(data)) != data:
                raise Violation(f"{where}: other bytes than those of the blob")
        except NoBlob as error:
            if must:
                raise Violation(f"{where}: an acknowledged blob is gone") from error
        except Corrupt as error:
            raise Violation(f"{where}: {error}") from error


class Interrupt(NamedTuple):
    """What somebody does just before an effect: the first of this kind whose path holds ``part``."""

    kind: str
    part: str
    act: Callable[[], None]


class Player:
    """A process. ``forgiving``: errors are noted in ``errors``, and the writer is opened again when it is needed."""

    def __init__(self, host: Host, world: World, tag: str = "a", *, forgiving: bool = False) -> None:
        self.host = host
        self.world = world
        self.tag = tag
        self.forgiving = forgiving
        self.errors: list[AgentSessionError] = []
        self.tear = False
        """Whether sectors that are being written may be destroyed."""
        self.interrupts: list[Interrupt] = []
        self.told: Callable[[], None] = lambda: None
        """Called when the model changed: what is visible at that moment is to be noted."""
        self.writers: dict[str, SessionWriter] = {}
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        """The store as this process has it open, made unless it is known to be."""
        if self._store is None:
            there = self.host.fs.stat(f"{ROOT}/store.json") is not None
            self._store = opened(self.host, create=not self.world.made)
            self.world.made = self.world.made or not there
        return self._store

    def before_effect(self, kind: str, path: str) -> None:
        """Let whoever waits for this effect act now."""
        for interrupt in self.interrupts:
            if interrupt.kind == kind and interrupt.part in path:
                self.interrupts.remove(interrupt)
                interrupt.act()
                return

    def on(self, kind: str, part: str, act: Callable[[], None]) -> None:
        """Let ``act`` happen just before the next effect of this kind on a path that holds ``part``."""
        self.interrupts.append(Interrupt(kind, part, act))

    # --- what is about to be, what is

    @contextmanager
    def _doing(self) -> Iterator[None]:
        self.told()
        try:
            yield
        except AgentSessionError as error:
            self.errors.append(error)
            if not self.forgiving:
                raise Violation(f"refused for no reason: {type(error).__name__}: {error}") from error
        self.told()

    def _writer(self, session_id: str) -> SessionWriter | None:
        """The writer of a session, opened when it is not; None when there is no session to open."""
        if session_id not in self.writers:
            self.open(session_id)
        return self.writers.get(session_id)

    @contextmanager
    def _changing(self, truth: Truth, writer: SessionWriter, state: int, durable: bool) -> Iterator[None]:
        """Around an operation that makes a state, if it works."""
        with self._doing():
            try:
                yield
            except AgentSessionError:
                if not self._poisoned(truth.id, writer):
                    truth.withdraw()
                    self._look(truth)
                raise
            truth.tell(state, durable=durable)

    def _look(self, truth: Truth) -> None:
        """Read a session behind the back of its writer, if the disk lets us."""
        try:
            found = observed(self.store, truth.id)
        except AgentSessionError:
            return
        truth.match(found, truth.done, f"after {self.errors}")

    def _poisoned(self, session_id: str, writer: SessionWriter) -> bool:
        """Whether a writer is done for; then it is let go."""
        try:
            writer._writer._journal.require_sound()
        except AgentSessionError:
            writer._writer.abandon()
            self.writers.pop(session_id, None)
            return True
        return False

    def entry(self, size: int, parent: str) -> Entry:
        """The next entry there will be, of a text of ``size`` letters."""
        self.world.ticks += 1
        words = f"{self.tag}{self.world.ticks}:"
        return Entry.seal("item", message(words.ljust(size, words[0])), parent, ts(self.world.ticks))

    # --- operations

    def create(self, session_id: str, header: Header | None = None, prefix: Sequence[Entry] = ()) -> None:
        """Make a session and hold it, unless one of that id could not be deleted."""
        if session_id in self.world.sessions:
            return
        self.world.ticks += 1
        header = header or new_header(id=session_id, created_at=ts(self.world.ticks))
        truth = Truth(session_id, [header.line], list(prefix), life=self.world.ticks)
        truth.begin([], header.base)
        truth.sizes.clear()
        self.world.sessions[session_id] = truth
        with self._doing():
            self.writers[session_id] = self.store.create(header)
            truth.born = self.world.made = True

    def fork(self, origin: str, at: int, session_id: str) -> None:
        """Make a session that continues from an own entry of another, whose writer may hold it."""
        truth = self.world.sessions.get(origin)
        if truth is None or at >= len(truth.own):
            return
        base = truth.own[at].id
        self.world.ticks += 1
        header = new_header(id=session_id, created_at=ts(self.world.ticks), parent_session=origin, base=base)
        self.create(session_id, header, truth.path(base))
        if session_id in self.writers and not self.tear:
            # The origin is committed through the base first (store.md A2). That sync is not its writer's, who may go on
            # in the block it covered: where sectors in flight are destroyed, only the fork is sure to keep the entries.
            truth.tell(next(k for k, state in enumerate(truth.states) if state.own > at), durable=True)

    def append(self, session_id: str, *sizes: int, durable: bool = False, under: int | None = None) -> None:
        """Append texts of these sizes as one batch, below own entry ``under`` or the head."""
        if self._writer(session_id) is None:
            return
        truth = self.world.sessions[session_id]
        parent = truth.head if under is None or under >= len(truth.own) else truth.own[under].id
        entries: list[Entry] = []
        for size in sizes:
            entries.append(self.entry(size, parent))
            parent = entries[-1].id
        self._land(truth, entries, sizes, durable)

    def copy(self, session_id: str, origin: str, at: int, *, durable: bool = False) -> None:
        """Append an entry with the body of another session's own entry."""
        there = self.world.sessions.get(origin)
        if self._writer(session_id) is None or there is None or at >= len(there.own):
            return
        self.world.ticks += 1
        truth = self.world.sessions[session_id]
        entry = Entry.seal("item", there.own[at].body, truth.head, ts(self.world.ticks))
        self._land(truth, [entry], (len(entry.content),), durable)

    def _land(self, truth: Truth, entries: list[Entry], sizes: tuple[int, ...], durable: bool) -> None:
        head, writer = truth.head, self.writers[truth.id]
        for entry in entries:
            head = entry.id if entry.parent == head else head
        drafts = [Draft.of(entry) for entry in entries]
        self._raises(truth)
        state = truth.begin(entries, head, sizes)
        with self._changing(truth, writer, state, durable):
            results = writer.append_batch(drafts, durable)
            if [(each.id, each.durable) for each in results] != [(entry.id, durable) for entry in entries]:
                raise Violation(f"{truth.id}: the results are {results}")

    @staticmethod
    def _raises(truth: Truth) -> None:
        """The first append to a session of an earlier format raises its header."""
        raised = Header.parse(truth.headers[-1]).raised().line
        if raised != truth.headers[-1]:
            truth.headers.append(raised)
            truth.raised_at = truth.newest + 1

    def again(self, session_id: str, at: int, *, durable: bool) -> None:
        """Append an own entry that is held; durable makes it so."""
        writer = self._writer(session_id)
        truth = self.world.sessions.get(session_id)
        if writer is None or truth is None or at >= len(truth.own):
            return
        state = next(k for k, state in enumerate(truth.states) if state.own > at)
        with self._doing():
            try:
                writer.append(Draft.of(truth.own[at]), durable)
            except AgentSessionError:
                self._poisoned(session_id, writer)
                raise
            truth.tell(state, durable=durable)

    def set_head(self, session_id: str, at: int, *, durable: bool = False) -> None:
        """Move the head to an own entry, -1 for the universal root."""
        writer = self._writer(session_id)
        truth = self.world.sessions.get(session_id)
        if writer is None or truth is None or at >= len(truth.own):
            return
        to = truth.own[at].id if at >= 0 else ""
        state = truth.begin([], to)
        with self._changing(truth, writer, state, durable):
            writer.set_head(truth.states[-2].head, to, durable=durable)

    def commit(self, session_id: str) -> None:
        """Make what was accepted durable."""
        self._making_durable(session_id, SessionWriter.commit)

    def checkpoint(self, session_id: str) -> None:
        """Publish what lies in the journal."""
        self._making_durable(session_id, SessionWriter.checkpoint)

    def _making_durable(self, session_id: str, act: Callable[[SessionWriter], object]) -> None:
        writer = self._writer(session_id)
        if writer is None:
            return
        truth = self.world.sessions[session_id]
        state = truth.done
        with self._doing():
            try:
                act(writer)
            except AgentSessionError:
                self._poisoned(session_id, writer)
                raise
            truth.tell(state, durable=True)

    def open(self, session_id: str) -> None:
        """Hold a session; what is there then is durable."""
        truth = self.world.sessions.get(session_id)
        with self._doing():
            try:
                writer = self.store.open_session(session_id)
            except NoSession:
                if truth is not None and truth.born and not truth.dying:
                    raise
                return
            self.writers[session_id] = writer
            if truth is None:
                raise Violation(f"{session_id} opens, but was never made or was deleted")
            found = observed(self.store, session_id)
            state = truth.match(found, truth.done, "on open")
            self.world.sessions[session_id] = truth.at(state, found.header, durable=True)

    def close(self, session_id: str) -> None:
        """Commit and let go."""
        writer = self.writers.pop(session_id, None)
        if writer is None:
            return
        truth = self.world.sessions[session_id]
        state = truth.done
        with self._doing():
            writer.close()
            truth.tell(state, durable=True)

    def abandon(self, session_id: str) -> None:
        """Let go without a word, as a process that dies does."""
        writer = self.writers.pop(session_id, None)
        if writer is not None:
            writer._writer.abandon()

    def leave(self) -> None:
        """Let go of everything without a word."""
        for session_id in list(self.writers):
            self.abandon(session_id)
        if self._store is not None:
            self._store.close()

    def reopen(self, session_id: str) -> None:
        """Let go and hold again."""
        self.close(session_id)
        self.open(session_id)

    def delete(self, session_id: str) -> None:
        """Let go and delete."""
        self.close(session_id)
        truth = self.world.sessions.get(session_id)
        if truth is None:
            return
        truth.dying = True
        with self._doing():
            try:
                self.store.delete(session_id)
            except NoSession:
                if truth.born and not self.errors:
                    raise
            self.world.sessions.pop(session_id)

    def take(self, session_id: str, sizes: Sequence[int], *, as_record: bool = True) -> None:
        """Import a file of an earlier format with texts of these sizes."""
        self.world.ticks += 1
        header = new_header(id=session_id, created_at=ts(self.world.ticks), format=EARLIER)
        entries: list[Entry] = []
        for size in sizes:
            entries.append(self.entry(size, entries[-1].id if entries else ""))
        data = b"".join(line + b"\n" for line in (header.line, *(entry.line for entry in entries)))
        head = read_session(data).leaf
        truth = Truth(session_id, [header.line], mirror=not as_record, life=self.world.ticks)
        truth.begin(entries, head)
        truth.sizes.clear()
        self.world.sessions[session_id] = truth
        with self._doing():
            self.store.import_file(data, as_record=as_record)
            truth.born = self.world.made = True

    def put_blob(self, data: bytes) -> None:
        """Keep a blob."""
        self.world.blobs.setdefault(data, False)
        with self._doing():
            self.store.put_blob(data)
            self.world.blobs[data] = self.world.made = True
