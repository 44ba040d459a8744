"""Sessions for asyncio: what the library's ask and append, awaited (cli.md, The library).

A twin's calls run one after another, so that an answer knows of every append that was asked before it. What costs
nothing is there at once: ``id``, ``header``, ``leaf``, ``len()``; everything else is awaited, properties too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from agentsession_cas.aio.lanes import Asked, Lanes, OffLoop, Twin, loaded
from agentsession_cas.aio.turns import Cancelled, Turns
from agentsession_cas.core.accept import Result
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.given import JsonObject
from agentsession_cas.core.header import Header
from agentsession_cas.core.request import record_response_bodies
from agentsession_cas.core.tree import Appendable
from agentsession_cas.core.tree import Session as Tree
from agentsession_cas.sessions import handle

__all__ = ["Session", "SessionWriter"]

_PIECE: Final = 256
"""Entries that are loaded at once."""

R = TypeVar("R")


class Session(Twin):
    """A session that was read: see :class:`~agentsession_cas.core.tree.Session`. ``async for`` gives its entries."""

    def __init__(self, lanes: Lanes, tree: Tree, turns: Turns[Any] | None = None) -> None:
        self._tree = tree
        self._turns: Turns[Any] = turns or Turns(lanes, tree)

    async def _ask(self, call: Any) -> Any:
        return await self._turns.ask(lambda _: call(self._tree))

    @property
    def id(self) -> str:
        """The session id."""
        return self._tree.id

    @property
    def header(self) -> Header:
        """The header."""
        return self._tree.header

    @property
    def leaf(self) -> str:
        """The entry the next append continues from, "" at the universal root."""
        return self._tree.leaf

    def __len__(self) -> int:
        return len(self._tree)

    async def __aiter__(self) -> AsyncIterator[Entry]:
        """The entries in file order."""
        for start in range(0, len(self), _PIECE):
            for entry in await self._ask(lambda tree, start=start: _entries(tree, start)):
                yield entry

    name = Asked(lambda tree: str(tree.name))
    superseded_by = Asked(lambda tree: str(tree.superseded_by))
    leaf_position = Asked(lambda tree: int(tree.leaf_position))

    callees = OffLoop(Tree.callees)
    calls = OffLoop(Tree.calls)
    children = OffLoop(Tree.children)
    compact = OffLoop(Tree.compact)
    compact_from = OffLoop(Tree.compact_from)
    compact_keeping = OffLoop(Tree.compact_keeping)
    context = OffLoop(Tree.context)
    context_hash = OffLoop(Tree.context_hash)
    dispatches = OffLoop(Tree.dispatches)
    end_run = OffLoop(Tree.end_run)
    entry = OffLoop(Tree.entry)
    head_label = OffLoop(Tree.head_label)
    is_prefix = OffLoop(Tree.is_prefix)
    judges = OffLoop(Tree.judges)
    labels = OffLoop(Tree.labels)
    leaves = OffLoop(Tree.leaves)
    mark_leaf = OffLoop(Tree.mark_leaf)
    open_run = OffLoop(Tree.open_run)
    path = OffLoop(Tree.path)
    pending_calls = OffLoop(Tree.pending_calls)
    pending_queued = OffLoop(Tree.pending_queued)
    position = OffLoop(Tree.position)
    request_context = OffLoop(Tree.request_context)
    request_hash_for = OffLoop(Tree.request_hash_for)
    runs = OffLoop(Tree.runs)
    set_request_hash = OffLoop(Tree.set_request_hash)
    settings = OffLoop(Tree.settings)
    summarize_branch = OffLoop(Tree.summarize_branch)
    unresolved_of = OffLoop(Tree.unresolved_of)
    verify = OffLoop(Tree.verify)
    verify_links = OffLoop(Tree.verify_links)
    verify_records = OffLoop(Tree.verify_records)


def _entries(tree: Tree, start: int) -> list[Entry]:
    source = tree.source
    return loaded([source.entry(at) for at in range(start, min(start + _PIECE, len(source)))])


class SessionWriter(Session):
    """A session held for writing: see :class:`~agentsession_cas.sessions.handle.SessionWriter`.

    Tasks may share it. Leaving its context commits and releases. Appends of several tasks that have to be durable share
    their syncs. An append whose wait is cancelled lands whole or not at all: ask :meth:`cancelled` which.
    """

    def __init__(self, lanes: Lanes, writer: handle.SessionWriter) -> None:
        super().__init__(lanes, writer, Turns(lanes, writer, writer.settle))
        self._lanes = lanes
        self._writer = writer

    @property
    def is_mirror(self) -> bool:
        """Whether the session is a mirror, which takes no local append."""
        return self._writer.is_mirror

    async def append(self, entry: Appendable, durable: bool | None = None) -> Result:
        """Append one entry; raises as the library's does."""
        (result,) = await self._append((entry,), entry, durable)
        return result

    async def append_batch(self, entries: Iterable[Appendable], durable: bool | None = None) -> list[Result]:
        """Append entries that land whole or not at all; raises as the library's does."""
        return await self._append(entries, entries, durable)

    async def _append(self, entries: Iterable[Appendable], given: object, durable: bool | None) -> list[Result]:
        return await self._turns.append(given, lambda writer: writer.accept(entries, durable))

    async def record_response(
        self,
        request: JsonObject,
        response: JsonObject,
        *,
        latency_ms: int | None = None,
        durable: bool | None = None,
    ) -> list[Result]:
        """Append what a model call gave, as one batch; raises as the library's does."""

        def accept(writer: handle.SessionWriter) -> tuple[list[Result], int]:
            bodies = record_response_bodies(request, response, latency_ms)
            return writer.accept([Draft(type_, body) for type_, body in bodies], durable)

        return await self._turns.append(response, accept)

    async def set_head(self, expected: str, to: str, *, durable: bool = False) -> bool:
        """Compare and swap the head; raises as the library's does. Returns whether the move is durable."""

        def move(writer: handle.SessionWriter) -> tuple[bool, int]:
            writer.set_head(expected, to)
            return durable, writer.accepted if durable else -1

        return await self._turns.accept(move)

    async def branch(self, entry_id: str) -> None:
        """Move the head to an entry, so that the next append continues from there."""
        await self._turns.accept(lambda writer: (writer.branch(entry_id), -1))

    async def commit(self) -> None:
        """Make everything accepted so far survive a crash; shares the sync of whoever else waits for one."""
        await self._turns.accept(lambda writer: (None, writer.accepted))

    async def cancelled(self) -> list[Cancelled]:
        """What became of the appends whose wait was cancelled since this was last asked."""
        return await self._turns.cancelled()

    checkpoint = OffLoop(handle.SessionWriter.checkpoint)
    reset_leaf = OffLoop(handle.SessionWriter.reset_leaf)

    async def close(self) -> None:
        """Commit and release, when all that was asked before is done; again is a no-op."""
        if not self._lanes.are_shut:
            await self._turns.ask(lambda _: None)  # what was asked before
        await self._lanes.close(self._writer.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
