"""Hierarchical summaries that keep a conversation within a budget of tokens (history.md H2).

Owns when messages are summarised, and summaries condensed, and what of both a model gets. The newest *view*, a note,
says up to where messages are summarised, and which nodes have no parent yet; nodes and view are kept as one step, and a
node's id depends on what it summarises alone, so that work that was cut off is done again to the same end. Loading
reads the view, its nodes and the newest messages, and nothing that depends on the length of the conversation.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from agentsession_cas.core.timestamps import ts_from_ns
from agentsession_cas.effects.host import real_host
from agentsession_cas.errors import BadInput
from agentsession_cas.history.batch import Message
from agentsession_cas.history.fitting import Budget, fit
from agentsession_cas.history.protocols import Note, Reading, Transcript, note_id
from agentsession_cas.history.summaries import KIND, SummaryNode, SummaryStore, note_of
from agentsession_cas.history.tokens import MESSAGE_TOKENS, EstimateCounter, TokenCounter

__all__ = ["CompactResult", "DAGConfig", "Summarizer", "SummaryDAG", "summary_message"]

Summarizer = Callable[[list[Message], str], Any]
"""``(items, instructions) -> text``, or a coroutine function of that shape: where a caller's model comes in."""

VIEW: Final = "view"
LEAF_INSTRUCTIONS: Final = (
    "Summarise this part of a conversation for whoever continues it. Keep decisions, facts, names, numbers, file paths "
    "and what is still open. Write plain text, no preamble."
)
CONDENSE_INSTRUCTIONS: Final = (
    "These are summaries of consecutive parts of one conversation, oldest first. Condense them into one, keeping "
    "decisions, facts and what is still open. Write plain text, no preamble."
)


@dataclass(frozen=True, slots=True)
class DAGConfig:
    """The options of compaction. Raises BadInput for values that make no sense.

    ``chunk_size``: messages of a leaf. ``condense_threshold``: nodes of a depth without a parent from which on the
    oldest ``condense_group_size`` of them get one, up to ``max_depth``. ``token_budget``: tokens of a load.
    ``recent_ratio``: the part of it that is left to messages as they are; ``mid_ratio``: the part of the rest that
    leaves get before older, higher summaries. ``compact_threshold``: messages after which :meth:`SummaryDAG.compact`
    runs by itself, 0 never. ``prune_leaf_content``: whether that empties leaves that have a parent.
    ``archive_threshold``: messages outside the archive from which on the oldest ``archive_batch_size`` go into it, 0
    never.
    """

    chunk_size: int = 20
    condense_threshold: int = 8
    condense_group_size: int = 4
    max_depth: int = 8
    token_budget: int = 8000
    recent_ratio: float = 0.6
    mid_ratio: float = 0.5
    compact_threshold: int = 2000
    prune_leaf_content: bool = False
    archive_threshold: int = 0
    archive_batch_size: int = 500

    def __post_init__(self) -> None:
        sound = (
            self.chunk_size >= 1
            and 2 <= self.condense_group_size <= self.condense_threshold
            and self.max_depth >= 0
            and self.token_budget >= 1
            and 0 < self.recent_ratio <= 1
            and 0 <= self.mid_ratio <= 1
            and min(self.compact_threshold, self.archive_threshold) >= 0
            and self.archive_batch_size >= 1
        )
        if not sound:
            raise BadInput(f"these options of compaction make no sense: {self}", next_step="see DAGConfig")


class CompactResult(NamedTuple):
    """What a compaction did: nodes that were deleted and are gone, leaves emptied, nodes left."""

    deleted_removed: int
    leaf_pruned: int
    total_remaining: int


class _Top(NamedTuple):
    """A node without a parent: the id of its note, and its place; or, of one that is made just now, its number."""

    id: str
    place: int = -1
    fresh: int = -1

    def to_json(self, fresh: int) -> list[Any]:
        """Its id and place; one kept with the view has the distance to it, below zero."""
        return [self.id, self.place if self.fresh < 0 else self.fresh - fresh]

    @classmethod
    def of(cls, body: list[Any], place: int) -> _Top:
        """What ``to_json`` wrote, in a view at that place."""
        id, at = body
        return cls(id, at if at >= 0 else place + at)


@dataclass(slots=True)
class _View:
    """Up to where messages are summarised, and the nodes that have no parent, by depth."""

    covered: int = 0
    compacted: int = 0
    frontier: list[list[_Top]] = field(default_factory=list)

    @classmethod
    def of(cls, reading: Reading) -> _View:
        """The newest view of a conversation."""
        found = reading.latest(VIEW)
        if found is None:
            return cls()
        body, place = found
        return cls(body["covered"], body["compacted"], [[_Top.of(each, place) for each in d] for d in body["frontier"]])

    def note(self, fresh: int) -> Note:
        """The view as a note, to be kept right behind the ``fresh`` nodes made for it."""
        frontier = [[top.to_json(fresh) for top in depth] for depth in self.frontier]
        return Note(VIEW, {"covered": self.covered, "compacted": self.compacted, "frontier": frontier})

    def tops(self) -> list[_Top]:
        """Those without a parent, of all depths."""
        return [each for depth in self.frontier for each in depth]


class SummaryDAG:
    """The summaries of a transcript's conversations. One thread of execution at a time for each conversation."""

    def __init__(
        self,
        transcript: Transcript,
        summarizer: Summarizer,
        config: DAGConfig | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        if not callable(summarizer):
            raise BadInput("the summarizer is called, and cannot be", next_step="give (items, instructions) -> text")
        self.summaries = SummaryStore(transcript)
        self._transcript = transcript
        self._summarizer = summarizer
        self._config = config or DAGConfig()
        self._counter = counter or EstimateCounter()

    # --- making them ---

    def ingest(self, conversation: str) -> int:
        """Summarise every whole chunk that is not, and condense; returns how many messages that were."""
        done = 0
        while self._ingest_chunk(conversation):
            done += self._config.chunk_size
        return done

    def _ingest_chunk(self, conversation: str) -> bool:
        reading = self._transcript.reading(conversation)
        view = _View.of(reading)
        start, end = view.covered, view.covered + self._config.chunk_size
        if reading.count() < end:
            return False
        text = self._summarize(reading.range(start, end), LEAF_INSTRUCTIONS)
        fresh = [self._node(conversation, 0, text, start, end - 1, ())]
        view.covered = end
        _push(view, fresh[0], 0)
        self._condense(conversation, reading, view, fresh)
        self._transcript.keep(conversation, [*map(note_of, fresh), view.note(len(fresh))])
        return True

    def _condense(self, conversation: str, reading: Reading, view: _View, fresh: list[SummaryNode]) -> None:
        """Give parents where a depth has too many nodes without one."""
        for depth in range(self._config.max_depth):
            while depth < len(view.frontier) and len(view.frontier[depth]) >= self._config.condense_threshold:
                group = view.frontier[depth][: self._config.condense_group_size]
                nodes = [fresh[top.fresh] if top.fresh >= 0 else _noted(reading, top) for top in group]
                text = self._summarize([summary_message(node) for node in nodes], CONDENSE_INSTRUCTIONS)
                ids = tuple(node.id for node in nodes)
                parent = self._node(
                    conversation, depth + 1, text, nodes[0].earliest_seq, nodes[-1].latest_seq, ids
                )
                del view.frontier[depth][: len(group)]
                _push(view, parent, len(fresh))
                fresh.append(parent)

    def _node(
        self, conversation: str, depth: int, text: str, earliest: int, latest: int, sources: tuple[str, ...]
    ) -> SummaryNode:
        name = f"{conversation}\n{depth}\n{earliest}\n{latest}"
        return SummaryNode(
            id=hashlib.sha256(name.encode()).hexdigest()[:16],
            conversation_id=str(conversation),
            depth=depth,
            content=text,
            earliest_seq=earliest,
            latest_seq=latest,
            token_count=self._counter.count(text) + MESSAGE_TOKENS,
            created_at=ts_from_ns(real_host().clock.now_ns()),
            expand_hint=f"messages {earliest} to {latest}",
            source_ids=sources,
        )

    def _summarize(self, items: list[Message], instructions: str) -> str:
        text = self._summarizer(items, instructions)
        if inspect.isawaitable(text):
            text = asyncio.run(_awaited(text))
        if not isinstance(text, str):
            raise BadInput(f"the summarizer gave a {type(text).__name__}, not a text")
        return text

    # --- using them ---

    def assemble(self, conversation: str, token_budget: int = 0) -> list[Message]:
        """What a model gets: summaries, oldest first, then the newest messages, within a budget of tokens.

        A summary whose messages are all there as they are is left out.
        """
        budget = token_budget or self._config.token_budget
        reading = self._transcript.reading(conversation)
        chosen = self._chosen(reading, budget - int(budget * self._config.recent_ratio))
        recent = self._recent(reading, budget - self._weight(chosen))
        while chosen and chosen[-1].earliest_seq >= recent.begin:
            chosen.pop()
            recent = self._recent(reading, budget - self._weight(chosen))
        return [*map(summary_message, chosen), *recent.messages]

    def _chosen(self, reading: Reading, budget: int) -> list[SummaryNode]:
        """The newest leaves, within their part, then the newest of the others, in the order of their messages."""
        nodes = [_noted(reading, top) for top in _View.of(reading).tops()]
        nodes.sort(key=lambda node: node.earliest_seq, reverse=True)
        left, left_leaves = budget, int(budget * self._config.mid_ratio)
        chosen = []
        for leaves in (True, False):
            for node in nodes:
                cost = self._counter.count_messages([summary_message(node)])
                if (node.depth == 0) is not leaves or cost > left or (leaves and cost > left_leaves):
                    continue
                chosen.append(node)
                left -= cost
                left_leaves -= cost
        return sorted(chosen, key=lambda node: node.earliest_seq)

    def _weight(self, nodes: Sequence[SummaryNode]) -> int:
        return self._counter.count_messages([summary_message(node) for node in nodes])

    def _recent(self, reading: Reading, budget: int) -> _Recent:
        """The newest messages that fit, and the number of the first of them."""
        if budget < 1:
            return _Recent([], reading.count())
        read: list[Message] = []
        spent = 0
        whole = True
        for message in reading.tail():
            if spent > budget and message.get("role") == "user":
                read.append(message)  # the turn that does not fit as a whole is shown with the message that began it
                whole = False
                break
            if spent <= budget:
                read.append(message)
            spent += self._counter.count_messages([message])
        messages = fit(read[::-1], Budget(max_tokens=budget), self._counter)
        begin = 0 if whole and len(messages) == len(read) else reading.count() - len(messages)
        return _Recent(messages, begin)

    # --- looking after them ---

    def compact(self, conversation: str) -> CompactResult:
        """Forget deleted nodes and, when leaves are pruned, empty those that have a parent; as one step."""
        nodes = self.summaries.list_all(conversation)
        with_parent = {source for node in nodes if not node.deleted for source in node.source_ids}
        kept, pruned = [], 0
        for node in nodes:
            if node.deleted:
                continue
            if self._config.prune_leaf_content and node.depth == 0 and node.content and node.id in with_parent:
                node, pruned = replace(node, content="", token_count=0), pruned + 1
            kept.append(node)
        if len(kept) < len(nodes) or pruned:
            self.summaries.rewrite(conversation, kept)
        return CompactResult(len(nodes) - len(kept), pruned, len(kept))

    def compact_when_due(self, conversation: str) -> None:
        """Compact once enough messages came since the last time."""
        view = _View.of(self._transcript.reading(conversation))
        if self._config.compact_threshold and view.covered - view.compacted >= self._config.compact_threshold:
            self.compact(conversation)
            view.compacted = view.covered
            self._transcript.keep(conversation, [view.note(0)])

    def expand(self, conversation: str, node_id: str) -> list[Message]:
        """The messages behind a node, as they are. Raises BadInput when there is no such node."""
        node = self.summaries.get(conversation, node_id)
        if node is None:
            raise BadInput("the conversation has no such summary", where=f"{conversation}: {node_id!r:.40}")
        return self._transcript.reading(conversation).range(node.earliest_seq, node.latest_seq + 1)

    def tops(self, conversation: str) -> list[SummaryNode]:
        """The nodes without a parent, oldest first."""
        reading = self._transcript.reading(conversation)
        nodes = [_noted(reading, top) for top in _View.of(reading).tops()]
        return sorted(nodes, key=lambda node: node.earliest_seq)


def _push(view: _View, node: SummaryNode, number: int) -> None:
    """Put the ``number``-th node that is made just now among those without a parent."""
    while len(view.frontier) <= node.depth:
        view.frontier.append([])
    view.frontier[node.depth].append(_Top(note_id(note_of(node)), fresh=number))


def _noted(reading: Reading, top: _Top) -> SummaryNode:
    found = reading.note(KIND, top.id, top.place)
    if found is None:
        raise BadInput("a summary is gone", where=f"note {top.id}", next_step="run fsck")
    return SummaryNode.from_json(found.body)


class _Recent(NamedTuple):
    messages: list[Message]
    begin: int


def summary_message(node: SummaryNode) -> Message:
    """A summary as a message to a model."""
    text = f"Summary of messages {node.earliest_seq} to {node.latest_seq} ({node.id}): {node.content}"
    return {"type": "message", "role": "system", "content": text}


async def _awaited(work: Any) -> Any:
    return await work
