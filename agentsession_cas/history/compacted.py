"""A conversation that outgrows a model's window (history.md H2): kept whole, given as summaries and newest messages.

Owns the order of work on a conversation: appends, and what follows them, one after the other for each conversation. A
summariser that fails loses nothing: the next append tries again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from agentsession_cas.core.given import as_seconds, require
from agentsession_cas.errors import BadInput, Closed
from agentsession_cas.history.archive import ArchiveManifest, ArchiveResult, archive, hot_start, load_manifest
from agentsession_cas.history.batch import Message
from agentsession_cas.history.dag import CompactResult, DAGConfig, Summarizer, SummaryDAG
from agentsession_cas.history.fitting import DEFAULT, Budget, fit
from agentsession_cas.history.ids import ConversationId
from agentsession_cas.history.protocols import Transcript
from agentsession_cas.history.summaries import SummaryStore
from agentsession_cas.history.tokens import EstimateCounter, TokenCounter
from agentsession_cas.history.views import new_batch

__all__ = ["Compacted", "Coordinator", "build_summary_index"]

_LOG: Final = logging.getLogger(__name__)
_WORKERS: Final = 4
_Done = TypeVar("_Done")


class Coordinator(Protocol):
    """Maintains conversations, in turn with their appends."""

    def compact(self, conversation: str) -> CompactResult:
        """Forget deleted summaries, and empty leaves that have a parent where that is wanted."""

    def archive(self, conversation: str) -> ArchiveResult:
        """Move the oldest messages to where they take least room."""

    def shutdown(self, timeout: float | None = None) -> bool:
        """Take no more work and wait for what is under way; whether it is all done."""


class Compacted:
    """Keeps the whole transcript, and gives summaries and the newest messages within a budget of tokens.

    ``summarizer`` is ``(items, instructions) -> text``, or a coroutine function; it runs in threads of this object's
    own. ``config`` holds the options, which may also be given by name. Threads of execution may share it; it is a
    :class:`Coordinator` too. Raises BadInput for options that make no sense.
    """

    def __init__(
        self,
        store: Transcript,
        summarizer: Summarizer,
        config: DAGConfig | None = None,
        *,
        token_counter: TokenCounter | None = None,
        **options: Any,
    ) -> None:
        self._config = _with_options(config or DAGConfig(), options)
        self._store = store
        self._counter = token_counter or EstimateCounter()
        self.dag = SummaryDAG(store, summarizer, self._config, self._counter)
        self._queue = _Queue()

    # --- a history ---

    def load(self, conversation: str, budget: Budget = DEFAULT) -> list[Message]:
        """The messages for the next call; works after a shutdown too."""
        require(budget, Budget, "budget")
        messages = self.dag.assemble(ConversationId(conversation), budget.max_tokens)
        return fit(messages, Budget(max_messages=budget.max_messages), self._counter)

    def append(self, conversation: str, messages: Iterable[Mapping[str, Any]]) -> None:
        """Keep new messages durably; summaries follow in the background.

        Raises Closed, InvalidBatch, ConversationClosed.
        """
        batch = new_batch(conversation, messages)
        self._queue.run(batch.conversation, lambda: self._store.append(batch))
        self._queue.later(batch.conversation, lambda: self._follow_up(batch.conversation))

    def clear(self, conversation: str) -> None:
        """Remove a conversation, its summaries and its archive; its id takes no append any more."""
        self._queue.run(ConversationId(conversation), lambda: self._store.clear(conversation))

    def _follow_up(self, conversation: str) -> None:
        """What is due behind an append."""
        try:
            self.dag.ingest(conversation)
            self.dag.compact_when_due(conversation)
            reading = self._store.reading(conversation)
            if 0 < self._config.archive_threshold <= reading.count() - hot_start(reading):
                archive(self._store, conversation, self._config.archive_batch_size)
        except Exception as error:  # a summariser may raise anything
            _LOG.warning("%s: what was said is kept, and not summarised yet: %s", conversation, error)

    # --- a coordinator ---

    def compact(self, conversation: str) -> CompactResult:
        """Summarise what is due, then forget deleted summaries and empty what is to be pruned. Raises Closed."""
        checked = ConversationId(conversation)

        def work() -> CompactResult:
            self.dag.ingest(checked)
            return self.dag.compact(checked)

        return self._queue.run(checked, work)

    def archive(self, conversation: str) -> ArchiveResult:
        """Move the oldest hot messages, ``archive_batch_size`` at most. Raises Closed."""
        checked = ConversationId(conversation)
        return self._queue.run(checked, lambda: archive(self._store, checked, self._config.archive_batch_size))

    def manifest(self, conversation: str) -> ArchiveManifest:
        """What of a conversation is archived."""
        return load_manifest(self._store, ConversationId(conversation))

    def expand(self, conversation: str, node: str) -> list[Message]:
        """The messages behind a summary, as they are. Raises BadInput when there is no such summary."""
        return self.dag.expand(ConversationId(conversation), node)

    def settle(self) -> None:
        """Wait for what is under way in the background."""
        self._queue.settle()

    def shutdown(self, timeout: float | None = None) -> bool:
        """Take no more work, and wait for what is under way, ``timeout`` seconds at most; whether it is all done.

        Nothing is cancelled. False says that it goes on: another shutdown waits for the rest of the same.
        """
        return self._queue.shutdown(None if timeout is None else as_seconds(timeout, "timeout"))


def _with_options(config: DAGConfig, options: dict[str, Any]) -> DAGConfig:
    try:
        return replace(require(config, DAGConfig, "config"), **options)
    except TypeError as error:
        raise BadInput(f"no such option of compaction, or no such value: {error}", next_step="see DAGConfig") from None


class _Queue:
    """Work one after the other for each conversation; side by side for several."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="history")
        self._waiting: set[str] = set()
        self._running: set[Future[None]] = set()
        self._closing = False

    def run(self, conversation: str, work: Callable[[], _Done]) -> _Done:
        """Do something in the caller's thread, in turn. Raises Closed."""
        with self._mutex:
            if self._closing:
                raise Closed("the history was shut down", where=conversation, next_step="make another one")
        with self._turn(conversation):
            return work()

    def later(self, conversation: str, work: Callable[[], None]) -> None:
        """Have something done in the background, unless as much waits for its turn already."""

        def in_turn() -> None:
            with self._turn(conversation):
                with self._mutex:
                    self._waiting.discard(conversation)
                work()

        with self._mutex:
            if conversation in self._waiting:
                return
            with suppress(RuntimeError):  # shut down just now: the next one to open it goes on
                future = self._pool.submit(in_turn)
                self._waiting.add(conversation)
                self._running.add(future)
                future.add_done_callback(self._running.discard)

    def settle(self) -> None:
        """Wait for all that waits and runs."""
        while True:
            with self._mutex:
                running = set(self._running)
            if not running:
                return
            wait(running)

    def shutdown(self, timeout: float | None) -> bool:
        """Take no more and wait; whether all is done."""
        with self._mutex:
            self._closing = True
            running = set(self._running)
        self._pool.shutdown(wait=False)
        return not wait(running, timeout).not_done

    @contextmanager
    def _turn(self, conversation: str) -> Iterator[None]:
        with self._mutex:
            lock, users = self._locks.get(conversation, (threading.Lock(), 0))
            self._locks[conversation] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._mutex:
                lock, users = self._locks.pop(conversation)
                if users > 1:
                    self._locks[conversation] = lock, users - 1


def build_summary_index(store: SummaryStore | None, conversation: str, budget: int) -> str:
    """The top summaries of a conversation as text for a system prompt, at most ``budget`` characters.

    The oldest are left out first, and the text says how many; "" when there are none.
    """
    nodes = [] if store is None else store.list(conversation)
    with_parent = {source for node in nodes for source in node.source_ids}
    tops = [node for node in nodes if node.id not in with_parent]
    lines = [f"[{node.id}] messages {node.earliest_seq}-{node.latest_seq}: {node.content}" for node in tops]
    for begin in range(len(lines)):
        note = [f"({begin} older summaries left out)"] if begin else []
        text = "\n".join([*note, *lines[begin:]])
        if len(text) <= budget:
            return text
    return ""
