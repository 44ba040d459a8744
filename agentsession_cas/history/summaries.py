"""Summaries of a conversation, as notes beside its messages (history.md H2).

Owns the form of a summary node, and that the newest note of a node is the node. A store of them is a view over a
transcript: hashed, forked, pushed and checked with it, where that is in a store.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

from agentsession_cas.core.given import as_object, require, require_text
from agentsession_cas.history.protocols import Note, Transcript, note_id

__all__ = ["SummaryNode", "SummaryStore"]

KIND: Final = "summary"
ANEW: Final = "summaries"
"""The kind of a note that takes the place of all nodes before it."""
CACHED_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class SummaryNode:
    """A summary of messages ``earliest_seq`` to ``latest_seq``, or of the nodes ``source_ids`` names.

    ``depth`` 0 summarises messages. ``content`` is "" for one that was pruned: its parent says it. ``created_at`` is an
    RFC 3339 time.
    """

    id: str
    conversation_id: str
    depth: int
    content: str
    earliest_seq: int
    latest_seq: int
    token_count: int
    created_at: str
    expand_hint: str = ""
    source_ids: tuple[str, ...] = ()
    deleted: bool = False

    def to_json(self) -> dict[str, Any]:
        """Its members; what is empty is left out."""
        members = asdict(self) | {"source_ids": list(self.source_ids)}
        optional = ("expand_hint", "source_ids", "deleted")
        return {name: value for name, value in members.items() if value or name not in optional}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Self:
        """The node of a JSON object; members it does not know are left out."""
        given = as_object(members, "a summary node")
        known = {name: given[name] for name in cls.__dataclass_fields__ if name in given}
        return cls(**known | {"source_ids": tuple(known.get("source_ids", ()))})


@dataclass(slots=True)
class _Known:
    nodes: dict[str, SummaryNode]
    end: int


class SummaryStore:
    """The summary nodes of a transcript's conversations. Threads of execution may share it.

    Nodes are read once and remembered, for the ``cached_max`` conversations asked for last; what others keep meanwhile
    is seen.
    """

    def __init__(self, transcript: Transcript, cached_max: int = CACHED_MAX) -> None:
        self._transcript = transcript
        self._cached_max = cached_max
        self._cache: OrderedDict[str, _Known] = OrderedDict()
        self._mutex = threading.Lock()

    def save(self, node: SummaryNode) -> None:
        """Keep a node, or another version of one, durably."""
        conversation, note = _conversation(node), note_of(node)
        if self._transcript.reading(conversation).note(KIND, note_id(note)) is not None:
            # kept before, and what came since may have taken its place: a note is kept once
            note = Note(KIND, {**note.body, "again": self._end(conversation)})
        self._transcript.keep(conversation, [note])

    def get(self, conversation: str, id: str) -> SummaryNode | None:
        """A node; None when there is none, or it was deleted."""
        node = self._nodes(conversation).get(require(id, str, "the id of a node"))
        return None if node is None or node.deleted else node

    def list(
        self, conversation: str, *, depth: int | None = None, min_seq: int = 0, max_seq: int = 0, limit: int = 0
    ) -> list[SummaryNode]:
        """The nodes, by the messages they begin with; of a depth, and of messages from ``min_seq`` to ``max_seq``.

        A node counts that reaches into that range; ``max_seq`` 0 is its end. ``limit`` keeps the last so many.
        """
        found = [
            node
            for node in self.list_all(conversation)
            if not node.deleted
            and (depth is None or node.depth == depth)
            and node.latest_seq >= min_seq
            and (not max_seq or node.earliest_seq <= max_seq)
        ]
        return found[-limit:] if limit > 0 else found

    def list_all(self, conversation: str) -> list_[SummaryNode]:
        """Every node, those deleted too."""
        return sorted(self._nodes(conversation).values(), key=lambda node: (node.earliest_seq, node.depth, node.id))

    def search(self, conversation: str, query: str, top_k: int = 10) -> list_[SummaryNode]:
        """The nodes in which words of ``query`` stand most often, the newest first among equals."""
        words = require(query, str, "query").casefold().split()
        scored = []
        for node in self.list(conversation):
            text = f"{node.content} {node.expand_hint}".casefold()
            score = sum(text.count(word) for word in words)
            if score:
                scored.append((score, node.latest_seq, node.id, node))
        return [node for *_, node in sorted(scored, key=lambda each: each[:3], reverse=True)[: max(top_k, 0)]]

    def delete(self, conversation: str, id: str) -> None:
        """Delete a node; nothing happens when there is none."""
        node = self.get(conversation, id)
        if node is not None:
            self.save(replace(node, deleted=True))

    def rewrite(self, conversation: str, nodes: Iterable[SummaryNode]) -> None:
        """Have these nodes and no others, as one step."""
        bodies = [require(node, SummaryNode, "a node").to_json() for node in nodes]
        self._transcript.keep(conversation, [Note(ANEW, {"nodes": bodies, "after": self._end(conversation)})])

    def _end(self, conversation: str) -> int:
        return self._transcript.reading(conversation).notes(KIND).end

    def _nodes(self, conversation: str) -> dict[str, SummaryNode]:
        with self._mutex:
            known = self._cache.pop(conversation, None) or _Known({}, 0)
            start, reading = known.end, self._transcript.reading(conversation)
            news = reading.notes(ANEW, start)
            if news.end < start:  # cleared, and another conversation by now
                known, start = _Known({}, 0), 0
                news = reading.notes(ANEW)
            after = 0
            for body in news.bodies:
                known.nodes = {node.id: node for node in map(SummaryNode.from_json, body["nodes"])}
                after = int(body["after"])
            for body in reading.notes(KIND, max(start, after)).bodies:
                node = SummaryNode.from_json(body)
                known.nodes[node.id] = node
            known.end = news.end
            self._cache[conversation] = known
            while len(self._cache) > self._cached_max:
                self._cache.popitem(last=False)
            return dict(known.nodes)


list_ = list


def note_of(node: SummaryNode) -> Note:
    """A node as the note it is kept as."""
    return Note(KIND, require(node, SummaryNode, "a node").to_json())


def _conversation(node: SummaryNode) -> str:
    return require_text(require(node, SummaryNode, "a node").conversation_id, "conversation_id")
