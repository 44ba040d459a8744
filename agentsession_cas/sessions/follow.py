"""Following a session while it is written, without holding it (store.md A7).

A follower yields a Snapshot, or from a cursor what came after it, then each change in the order of the log, on every
branch. Invariants: it takes no lock and writes nothing; only whole frames are seen; nothing is told twice, and nothing
is passed over without a Reset; what is told is visible, and committed only when it was asked to tell no more than that.
A writer of this process wakes it at once; for another it looks after 100 ms, then ever more seldom, once a second at
last. It ends with NoSession when the session goes, and never continues into another one of that id.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Final, NamedTuple, Self

from agentsession_cas.core.accept import Elsewhere
from agentsession_cas.core.framing import Generation, Record
from agentsession_cas.core.header import FORMAT, Header
from agentsession_cas.core.rows import RowCode, decode_row
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import AgentSessionError, BadInput, NoSession
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions import opening
from agentsession_cas.sessions.follow_changes import Appended, Change, Followed, Head, Reset, Snapshot
from agentsession_cas.sessions.follow_cursor import Cursor, Trail
from agentsession_cas.sessions.follow_tail import Tail
from agentsession_cas.sessions.prefix import Prefix
from agentsession_cas.sessions.source import RowSource, hash_of
from agentsession_cas.sessions.wake import listen, unlisten

__all__ = ["PAUSE_MAX_S", "PAUSE_MIN_S", "Follower"]

PAUSE_MIN_S: Final = 0.1
PAUSE_MAX_S: Final = 1.0


class _Reading(NamedTuple):
    """A session being read: ``rest`` are records that were read and lie behind the rows its source holds."""

    session: Followed
    source: RowSource
    trail: Trail
    tail: Tail
    rest: deque[Record]


class Follower:
    """An iterator of changes. Use it as a context manager, or close it; any thread may close it, which ends it.

    Iterating waits for ever, :meth:`take` as long as it is told. One thread at a time takes.
    """

    def __init__(
        self,
        host: Host,
        objects: ObjectDatabase,
        directory: str,
        session: str,
        *,
        prefix_of: opening.PrefixOf,
        elsewhere: Elsewhere,
        require_open: Callable[[], None],
        cursor: Cursor | None,
        committed: bool,
    ) -> None:
        """Follow the session called ``session`` in ``directory``; ``require_open`` raises Closed when the store is."""
        self._host = host
        self._objects = objects
        self._directory = directory
        self._name = session
        self._prefix_of = prefix_of
        self._elsewhere = elsewhere
        self._require_open = require_open
        self._from = cursor
        self._only_committed = committed
        self._committed = 0
        self._reading: _Reading | None = None
        self._prefix: list[Prefix | None] = []
        self._mutex = threading.Lock()
        self._stirred = threading.Event()
        self._closed = False
        self._notices: list[Callable[[], object]] = []
        self.call_on_change(self._stirred.set)

    # --- taking changes ---

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        change = self.take()
        if change is None:
            raise StopIteration
        return change

    def take(self, timeout_s: float = math.inf) -> Change | None:
        """The next change; None when none came for ``timeout_s`` seconds, or the follower was closed.

        Raises NoSession, which ends it, when the session was deleted; Damaged when its files do not read; Closed when
        the store was closed.
        """
        if not isinstance(timeout_s, (int, float)) or math.isnan(timeout_s):
            raise BadInput(f"timeout_s is a number of seconds, not {timeout_s!r:.40}", where=self._name)
        clock = self._host.clock
        deadline, pause = clock.monotonic() + timeout_s, PAUSE_MIN_S
        while True:
            self._stirred.clear()
            with self._mutex:
                if self._closed:
                    return None
                change = self._step()
            left = deadline - clock.monotonic()
            if change is not None or left <= 0:
                return change
            clock.wait(self._stirred, min(pause, left))
            pause = min(2 * pause, PAUSE_MAX_S)

    def _step(self) -> Change | None:
        self._require_open()
        try:
            return self._next_told() or self._look() or self._next_told()
        except NoSession:
            self._let_go()
            raise

    def _next_told(self) -> Change | None:
        """The next row that is a change, of those that were read and may be told."""
        reading = self._reading
        if reading is None:
            return None
        table, trail = reading.source.table, reading.trail
        while not self._only_committed or trail.rows < self._committed:
            if trail.rows == len(table):
                if not reading.rest:
                    return None
                record = reading.rest.popleft()
                row = decode_row(record.row)
                reading.source.push(record, row, hash_of(row.entry) if record.envelope else "")
            number = trail.rows
            trail.step(table, self._committed)
            change = self._told(reading, number)
            if change is not None:
                return change
        return None

    @staticmethod
    def _told(reading: _Reading, number: int) -> Change | None:
        """What a row tells, the session standing behind it; None for a mark and a loss."""
        session, source, trail, *_ = reading
        row = source.table.row(number)
        session.leaf = source.id_of_ref(row.head)
        if row.code < RowCode.HEAD:
            entry = source.entry(source.position(number))
            return Appended(session, entry, session.leaf, str(trail.cursor()))
        return Head(session, session.leaf, str(trail.cursor())) if row.code == RowCode.HEAD else None

    # --- looking at the files ---

    def _look(self) -> Change | None:
        """Read what came since the last look; a Snapshot or a Reset where that takes the session read whole."""
        reading = self._reading
        if reading is None or not reading.tail.is_current():
            return self._read_whole()
        tail = reading.tail
        if self._only_committed:
            self._committed = max(self._committed, tail.committed())
        records = tail.read()
        reading.rest.extend(records)
        if records and reading.session.header.format != FORMAT:  # it may have been raised just before the first of them
            header = opening.read_header(self._host.fs, self._directory)
            if tail.is_current():
                reading.session.header = header
        return None

    def _read_whole(self) -> Change | None:
        fs = self._host.fs
        while True:
            try:
                found = opening.snapshot(self._host, self._objects, self._directory, self._known_prefix)
            except AgentSessionError as error:
                self._prefix.clear()  # which was closed with the rest
                if isinstance(error, NoSession):
                    raise NoSession("the session was deleted, or never was", where=self._name) from error
                raise
            table = found.source.table
            try:
                tail = Tail.of(fs, self._directory, found.state)
                if tail is not None:
                    return self._turn_to(found, tail)
            except BaseException:
                table.close()
                raise
            table.close()  # another generation came meanwhile

    def _known_prefix(self, header: Header, generation: Generation) -> Prefix | None:
        """The prefix, read once: it never changes."""
        if not self._prefix:
            self._prefix.append(self._prefix_of(header, generation))
        return self._prefix[0]

    def _turn_to(self, found: opening.Snapshot, tail: Tail) -> Change | None:
        """Go on in what was read whole where it holds what was told; else tell all of it anew.

        Nothing is taken over while it is not known how much of it is committed and that was asked for.
        """
        source, generation = found.source, tail.generation
        known = self._reading.trail.cursor() if self._reading is not None else self._from
        with ExitStack() as undo:
            undo.callback(tail.close)
            undo.callback(source.table.close)
            if known is not None and known.birth != generation.birth:
                raise NoSession("the session was deleted, and another has its id now", where=self._name)
            held = known is not None and known.is_held(generation, source.table)
            self._committed = max(self._committed if held else 0, tail.committed())
            if known is not None and held:
                rows = known.rows
            else:
                rows = min(len(source.table), self._committed) if self._only_committed else len(source.table)
                if rows < source.table.base:
                    return None
            reading = self._taken_over(found, tail, rows)
            undo.pop_all()
        kind = Snapshot if known is None else Reset
        session = reading.session
        return None if held else kind(session, session.leaf, str(reading.trail.cursor()))

    def _taken_over(self, found: opening.Snapshot, tail: Tail, rows: int) -> _Reading:
        """Stand behind the first ``rows`` rows of what was read; what was read before is let go."""
        header, source, *_ = found
        table, old = source.table, self._reading
        kept = max(rows, table.base)
        rest = deque(table.pending[kept - table.base :])
        trail = Trail.behind(tail.generation, table, rows, self._committed)
        leaf = source.id_of_ref(table.row(rows - 1).head) if rows else header.base
        source.cut(kept)
        if old is None:
            session = Followed(header, source, leaf, self._elsewhere)
        else:
            session = old.session
            session.turn_to(header, source, leaf)
            old.source.table.close()
            old.tail.close()
        self._reading = _Reading(session, source, trail, tail, rest)
        return self._reading

    # --- the end ---

    def call_on_change(self, notice: Callable[[], object]) -> None:
        """Have ``notice`` called, in another thread, when a writer of this process changed something, until the end."""
        self._notices.append(notice)
        listen(self._directory, notice)

    def close(self) -> None:
        """End it: a thread that waits in it gets None. Again is a no-op."""
        self._closed = True
        self._stirred.set()
        with self._mutex:
            self._let_go()

    def _let_go(self) -> None:
        self._closed = True
        for notice in self._notices:
            unlisten(self._directory, notice)
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.tail.close()
            reading.source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
