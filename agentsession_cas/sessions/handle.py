"""The session a harness holds open: the tree of ``core``, with appends that land in the store (cli.md, The library)."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from agentsession_cas.core.accept import Result
from agentsession_cas.core.entry import Draft
from agentsession_cas.core.given import JsonObject, require
from agentsession_cas.core.request import record_response_bodies
from agentsession_cas.core.timestamps import ts_from_ns
from agentsession_cas.core.tree import Appendable, Session, drafts_of
from agentsession_cas.sessions.plain import Accepted
from agentsession_cas.sessions.services import Services
from agentsession_cas.sessions.writer import Writer

__all__ = ["SessionWriter"]

_make: Final = tuple.__new__  # what a NamedTuple is made with, without the call around it


class SessionWriter(Session):
    """A session held for writing. Leaving its context commits and releases. Threads may share it.

    Everything :class:`~agentsession_cas.core.tree.Session` reads is here too; ``leaf`` is the session's head.
    """

    def __init__(self, services: Services, writer: Writer) -> None:
        super().__init__(
            writer.header,
            writer.source,
            leaf=writer.head,
            clock=lambda: ts_from_ns(services.host.clock.now_ns()),
            elsewhere=services.elsewhere,
        )
        self._writer = writer
        self._services = services

    @property
    def is_mirror(self) -> bool:
        """Whether the session is a mirror, which takes no local append."""
        return self._writer.is_mirror

    def append(self, entry: Appendable, durable: bool | None = None) -> Result:
        """Append one entry (store.md A3). ``durable`` None follows the sync policy (A5); a refusal changes nothing.

        Raises what :func:`~agentsession_cas.core.accept.prepare` does, NoRaise, MirrorError, Closed, WriterPoisoned,
        and DiskError when the disk refuses.
        """
        drafts = (entry if type(entry) is Draft else Draft.of(entry),)
        writer = self._writer
        ((id_, outcome, unresolved, _, _, _),), committed = writer.append_batch(drafts, durable)
        self.header, self.leaf = writer.header, writer.head
        return _make(Result, (id_, outcome, committed, unresolved))

    def append_batch(self, entries: Iterable[Appendable], durable: bool | None = None) -> list[Result]:
        """Append entries that land whole or not at all, each seeing those before it (store.md A3)."""
        accepted, committed = self._writer.append_batch(drafts_of(entries), durable)
        self._follow()
        return _results(accepted, committed)

    def accept(self, entries: Iterable[Appendable], durable: bool | None = None) -> tuple[list[Result], int]:
        """:meth:`append_batch` without its sync: the results, true once :meth:`settle` was told of the rows they owe.

        That is -1 for none. Several batches may be accepted one after another and settled by the highest of theirs.
        """
        accepted, owed = self._writer.accept(drafts_of(entries), durable)
        self._follow()
        return _results(accepted, owed >= 0), owed

    def settle(self, owed: int) -> None:
        """Make so many rows durable, -1 for none: at most one sync, shared with whoever waits for one."""
        self._writer.settle(require(owed, int, "what an accept owes"))

    @property
    def accepted(self) -> int:
        """The rows accepted so far: what :meth:`settle` takes to make all of it durable."""
        return len(self._writer.source.table)

    def record_response(
        self,
        request: JsonObject,
        response: JsonObject,
        *,
        latency_ms: int | None = None,
        durable: bool | None = None,
    ) -> list[Result]:
        """Append what a model call gave: its output items, then the response entry, as one batch (openresponses.md §2).

        ``request`` is the request as it was sent, so that its hash proves it; the last result is the response entry's.
        Raises BadInput for a response without ``output``, a list of items.
        """
        bodies = record_response_bodies(request, response, latency_ms)
        return self.append_batch([Draft(type_, body) for type_, body in bodies], durable)

    def set_head(self, expected: str, to: str, *, durable: bool = False) -> bool:
        """Compare and swap the head (store.md A4); "" is the universal root. Returns whether the move is durable.

        Raises HeadMoved, with the head held, first; then NoEntry, HeadTarget, MirrorError.
        """
        done = self._writer.set_head(expected, to, durable)
        self._follow()
        return done

    def branch(self, entry_id: str) -> None:
        """Move the head to an entry, so that the next append continues from there."""
        position = self.position(entry_id)
        self.set_head(self.leaf, self.source.entry_id(position) if position >= 0 else "")

    def commit(self) -> None:
        """Make everything accepted so far survive a crash: at most one sync (store.md A5)."""
        self._writer.commit()

    def checkpoint(self) -> bool:
        """Publish what lies in the journal as objects and log rows; False when maintenance holds the store."""
        done = self._writer.checkpoint()
        if self._services.background:
            self._services.merge(lambda: True, thorough=False)  # or checkpoints leave as many packs
        return done

    def close(self) -> None:
        """Commit and release; again is a no-op."""
        self._writer.close()

    def _follow(self) -> None:
        self.header, self.leaf = self._writer.header, self._writer.head

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _results(accepted: Iterable[Accepted], durable: bool) -> list[Result]:
    return [_make(Result, (id_, outcome, durable, unresolved)) for id_, outcome, unresolved, _, _, _ in accepted]
