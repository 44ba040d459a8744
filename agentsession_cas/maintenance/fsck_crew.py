"""The sessions of a check, looked at by this process and by one on every other core (``effects.workers``).

Owns who looks at which session. A worker's look counts when it has no error in it; what may be damaged is looked at
again here, where all that the check knows is at hand: so the findings are those of a check that nobody helped. A worker
that fails costs its one session, which is looked at here too. A long session that is looked at here is shared in
ranges of its rows (``fsck_ranges``), which come first. Nobody is asked before the check has taken a while, or meets a
long session: most stores are checked in less than an interpreter takes to start. Must not: judge, or order what was
found.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from agentsession_cas.core.packformat import Space
from agentsession_cas.effects.host import real_host
from agentsession_cas.effects.threads import helped
from agentsession_cas.effects.workers import Lost, Worker
from agentsession_cas.errors import AgentSessionError
from agentsession_cas.layout import Layout
from agentsession_cas.maintenance.findings import Finding
from agentsession_cas.maintenance.fsck_ranges import Looked, Range, RangeLooker
from agentsession_cas.maintenance.fsck_session import check_session
from agentsession_cas.maintenance.survey import Survey, header_of
from agentsession_cas.objects.database import ObjectDatabase

__all__ = ["PATIENCE_S", "Crew", "Look", "looker"]

PATIENCE_S: Final = 0.5
_DIGEST: Final = 32


class Look(NamedTuple):
    """What one name among the sessions comes to: sessions and own entries to count, and what is wrong."""

    sessions: int = 0
    entries: int = 0
    findings: Sequence[Finding] = ()


class _Told(NamedTuple):
    """A worker's look, None when it is not sure; whether it noted all that the session needs; that, digests joined.

    ``assumed`` are the envelopes it took to be sound.
    """

    look: Look | None
    complete: bool
    needed: dict[Space, bytes]
    assumed: bytes


def looker(root: str, media: bytes, sound: bool) -> Callable[[str | Range], _Told | Looked | None]:
    """What looks at sessions, and ranges of one, in a worker. ``media`` are the blobs listed, their digests joined.

    ``sound`` says that all objects that were listed are; which these are is known where the answers go.
    """
    host = real_host()
    layout = Layout(host, root)
    survey = Survey(ObjectDatabase(host, root), partial(header_of, layout), fast=False)
    survey.listed[Space.MEDIA].update(_split(media))
    assumed = survey.assumed = set() if sound else None
    ranges = RangeLooker(layout, survey)

    def look(asked: str | Range) -> _Told | Looked | None:
        if isinstance(asked, Range):
            return ranges.look(asked)
        survey.complete = True
        for digests in survey.needed.values():
            digests.clear()
        if assumed is not None:
            assumed.clear()
        try:
            checked = check_session(layout, asked, survey)
        except AgentSessionError:
            found = None
        else:
            found = Look() if checked is None else Look(1, *checked)
        if found is not None and any(each.severity == "error" for each in found.findings):
            found = None
        # what was needed is told in any case: a path once walked is not walked again
        needed = {space: b"".join(each) for space, each in survey.needed.items()}
        return _Told(found, survey.complete, needed, b"".join(assumed or ()))

    return look


def _split(digests: bytes) -> Iterator[bytes]:
    return (digests[at : at + _DIGEST] for at in range(0, len(digests), _DIGEST))


class Crew:
    """Whoever looks at sessions. A context manager, which ends the workers."""

    def __init__(self, layout: Layout, survey: Survey, own: Callable[[str], Look], patience_s: float) -> None:
        """``own`` looks at a session here."""
        self._layout = layout
        self._survey = survey
        self._own = own
        self._clock = layout.host.clock
        self._patient_until = self._clock.monotonic() + patience_s
        self._asked = survey.fast  # bodies are what takes long
        self._workers: list[tuple[Worker, Lock]] = []
        self._threads: list[Thread] = []
        self._left: deque[str] = deque()
        self._told: SimpleQueue[tuple[str, _Told | None]] = SimpleQueue()
        self._ranges: deque[tuple[Range, SimpleQueue[tuple[Range, Looked | None]]]] = deque()

    def look_at(self, names: list[str]) -> Iterator[tuple[str, Look]]:
        """Each of the sessions with what is to be said of it, as they are done."""
        self._left.extend(names)
        self._hand_out()
        for _ in names:
            if self._clock.monotonic() >= self._patient_until and len(self._left) > 1 and self._start():
                self._hand_out()
            name, told = self._next()
            yield name, self._counted(told) or self._own(name)

    def look_at_ranges(
        self, ranges: list[Range], own: Callable[[Range], array[int]], meanwhile: Callable[[], None]
    ) -> list[int] | None:
        """As :data:`~agentsession_cas.maintenance.fsck_ranges.Share`; the session is one that is looked at here."""
        self._start()
        if not self._workers:
            return None
        looked: SimpleQueue[tuple[Range, Looked | None]] = SimpleQueue()
        self._ranges.extend((each, looked) for each in ranges)
        try:
            self._hand_out()
            meanwhile()
            left: list[int] = []
            for _ in ranges:
                each, found = self._next_range(looked)
                left += own(each) if found is None or not self._are_listed(found.assumed) else found.left
        finally:
            self._ranges.clear()
        return sorted(left)

    def _next_range(self, looked: SimpleQueue[tuple[Range, Looked | None]]) -> tuple[Range, Looked | None]:
        """A range that a worker looked at, or one to look at here."""
        with suppress(Empty):
            return looked.get_nowait()
        with suppress(IndexError):
            return self._ranges.popleft()[0], None
        return looked.get()

    def _start(self) -> bool:
        """Start the workers, once; whether that was now."""
        if self._asked:
            return False
        self._asked = True
        media = b"".join(self._survey.listed[Space.MEDIA])
        workers = self._layout.host.workers(looker, (self._layout.root, media, self._survey.sound))
        self._workers = [(each, Lock()) for each in workers]
        return True

    def _hand_out(self) -> None:
        """Let the workers take from what is left."""
        feeders = [partial(self._feed, worker, turn) for worker, turn in self._workers]
        self._threads += helped(feeders, "fsck", daemon=True)

    def _feed(self, worker: Worker, turn: Lock) -> None:
        """Have a worker answer until nothing is left, ranges first; one thread after the other has it."""
        with turn:
            while (taken := self._take()) is not None:
                asked, told = taken
                try:
                    answer = worker.ask(asked)
                except Lost:
                    told.put((asked, None))
                    return
                told.put((asked, answer))

    def _take(self) -> tuple[str | Range, SimpleQueue[Any]] | None:
        with suppress(IndexError):
            return self._ranges.popleft()
        with suppress(IndexError):
            return self._left.popleft(), self._told
        return None

    def _next(self) -> tuple[str, _Told | None]:
        """A session that a worker looked at, or one to look at here; waits when the workers have all that is left."""
        with suppress(Empty):
            return self._told.get_nowait()
        with suppress(IndexError):
            return self._left.popleft(), None
        return self._told.get()

    def _counted(self, told: _Told | None) -> Look | None:
        """What a worker is sure of."""
        if told is None:
            return None
        for space, digests in told.needed.items():
            self._survey.needed[space].update(_split(digests))
        if not self._are_listed(told.assumed):
            return None
        if told.look is not None:
            self._survey.complete = self._survey.complete and told.complete
        return told.look

    def _are_listed(self, envelopes: bytes) -> bool:
        return self._survey.listed[Space.ENTRIES].issuperset(_split(envelopes))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.clear()
        for worker, _ in self._workers:
            worker.end()
        for thread in self._threads:
            thread.join()
