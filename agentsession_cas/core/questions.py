"""What a session says at a point of it: context, calls, runs, inputs owed, links, and the folds a writer makes there.

One place where a leaf named by id becomes a position; the answers are those of the modules asked. Every question takes
the entry to ask at, "" being the universal root, and asks at the session's own leaf when given none. Changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentsession_cas.core import calls as calls_of
from agentsession_cas.core import links as links_of
from agentsession_cas.core import runs as runs_of
from agentsession_cas.core.calls import Call
from agentsession_cas.core.context import Context, context_at, settings_at, unresolved_of
from agentsession_cas.core.contexthash import context_hash_at
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.given import require
from agentsession_cas.core.header import Header
from agentsession_cas.core.links import Callee
from agentsession_cas.core.outputs import request_context, request_hash_for, verify_response
from agentsession_cas.core.queue import pending_queued
from agentsession_cas.core.recordwalk import verify_records
from agentsession_cas.core.runs import Run
from agentsession_cas.core.settings import Settings
from agentsession_cas.core.source import EntrySource
from agentsession_cas.core.types.folds import branch_summary, compaction
from agentsession_cas.errors import BadInput, FirstKept

__all__ = ["Questions"]


class Questions(ABC):
    """The questions of a session, for whoever has a header, a source and a leaf."""

    header: Header
    source: EntrySource
    leaf: str

    @abstractmethod
    def position(self, entry_id: str) -> int:
        """The position of an entry named by id or ``legacy_id``, -1 for "". Raises NoEntry."""

    def _at(self, leaf: str | None) -> int:
        return self.position(self.leaf if leaf is None else leaf)

    def context(self, leaf: str | None = None) -> Context:
        """What a model call there receives (format.md §6). Raises NoEntry, FirstKept."""
        return context_at(self.source, self._at(leaf))

    def settings(self, leaf: str | None = None) -> Settings:
        """The request settings in force there (format.md §7). Raises NoEntry."""
        return settings_at(self.source, self._at(leaf))

    def context_hash(self, leaf: str | None = None) -> str:
        """The context hash there (store.md A13). Raises NoEntry."""
        return context_hash_at(self.source, self._at(leaf))

    def request_context(self, response: str) -> Context:
        """The context of the request a response entry answered (format.md §6). Raises NoEntry, BadInput, FirstKept."""
        return request_context(self.source, self._entry_at(response))

    def request_hash_for(self, parent: str, response: Entry | Draft) -> str:
        """The request hash a response would verify with below ``parent``, "" being the leaf. Raises NoEntry, FirstKept.

        Its output items, which name its ``response_id``, are on that path already.
        """
        body = response.body if isinstance(response, Entry) else require(response, Draft, "a response").body
        response_id = str(body.get("response_id") or "")
        return request_hash_for(self.source, self._at(parent or None), response_id)

    def set_request_hash(self, draft: Draft) -> Draft:
        """A response with the request hash it has below its parent, when it carries one at all (format.md §10).

        For a response redacted from another, just before it is appended. Clear the hash of one that did not verify
        there. Raises as :meth:`request_hash_for`.
        """
        if not require(draft, Draft, "a response").body.get("request_hash"):
            return draft
        body = {**draft.body, "request_hash": self.request_hash_for(draft.parent or "", draft)}
        return Draft(draft.type, body, parent=draft.parent, parents=draft.parents, ts=draft.ts)

    def verify(self, response: str) -> None:
        """Check the request hash of a response entry (format.md §6).

        Raises NoHash when there was nothing to check, HashMismatch or OmitDivergence, NoEntry, BadInput, FirstKept.
        """
        verify_response(self.source, self._entry_at(response)).require()

    def verify_records(self, leaf: str | None = None) -> None:
        """Raise the first record rule the session, or the path to there, breaks (context.md §2)."""
        verify_records(self.source, self.header, self._at(leaf))

    def verify_links(self, resolve: Callable[[str], Header | None]) -> None:
        """Raise what is wrong with the first subsession link; ``resolve`` finds a session's header (format.md §9)."""
        links_of.verify_links(self.source, self.header, resolve)

    def calls(self, leaf: str | None = None) -> list[Call]:
        """The calls of the path, in path order (context.md §2). Raises NoEntry."""
        return calls_of.calls(self.source, self._at(leaf))

    def pending_calls(self, leaf: str | None = None) -> list[Call]:
        """The calls of the path without an output. Raises NoEntry."""
        return calls_of.pending_calls(self.source, self._at(leaf))

    def dispatches(self, call: str) -> list[Entry]:
        """Every dispatch of the call of a ``function_call`` entry, on any branch, in file order. Raises NoEntry."""
        found = calls_of.dispatches(self.source, self._entry_at(call))
        return [self.source.entry(position) for position in found]

    def runs(self, leaf: str | None = None) -> list[Run]:
        """The runs of the path, in path order (context.md §2). Raises NoEntry."""
        return runs_of.runs(self.source, self._at(leaf))

    def open_run(self, leaf: str | None = None) -> Run | None:
        """The run open there, or None. Raises NoEntry."""
        return runs_of.open_run(self.source, self._at(leaf))

    def end_run(self, reason: str, ref: str = "") -> Draft:
        """The entry that ends the run open at the leaf, its pending list computed (format.md §9). Raises BadEntry."""
        return runs_of.end_run(self.source, self._at(None), reason, ref)

    def pending_queued(self, leaf: str | None = None) -> list[Entry]:
        """The queued inputs still owed there, in path order (format.md §9). Raises NoEntry."""
        return pending_queued(self.source, self._at(leaf))

    def callees(self, leaf: str | None = None) -> list[Callee]:
        """The callees of the path's calls, in path order (format.md §9). Raises NoEntry."""
        return links_of.callees(self.source, self._at(leaf))

    def judges(self, leaf: str | None = None) -> list[Entry]:
        """The ``judged_by`` links of the path, in path order. Raises NoEntry."""
        return links_of.judges(self.source, self._at(leaf))

    def unresolved_of(self, leaf: str | None = None) -> list[Entry]:
        """The configs of the path with an ``of`` it cannot resolve (context.md §1.3). Raises NoEntry."""
        return [self.source.entry(position) for position in unresolved_of(self.source, self._at(leaf))]

    def compact(
        self,
        first_kept: str,
        summary: Mapping[str, Any],
        *,
        pinned: Iterable[Mapping[str, Any]] = (),
        tokens_before: int | None = None,
        usage: Mapping[str, Any] | None = None,
    ) -> Draft:
        """The entry that folds what lies before ``first_kept`` on the leaf's path into ``summary``, not yet appended.

        Its checkpoint is the settings in force at the leaf. Raises NoEntry, and FirstKept for an entry off the path.
        """
        kept = self._entry_at(first_kept)
        leaf = self._at(None)
        if not self.source.is_above(kept, leaf):
            raise FirstKept("the entry kept first is not on the path to the leaf", where=first_kept)
        return compaction(
            self.source.entry_id(kept),
            summary,
            config=settings_at(self.source, leaf).checkpoint(),
            pinned=pinned,
            tokens_before=tokens_before,
            usage=usage,
        )

    def compact_from(self, first: int, summary: Mapping[str, Any]) -> Draft:
        """:meth:`compact` for a request input split at an index: item ``first`` of the leaf's context is kept first.

        Raises BadInput for an index outside the context, or of what an earlier compaction contributed.
        """
        context = self.context()
        if not 0 <= require(first, int, "an index") < len(context.items):
            raise BadInput(f"the context has {len(context.items)} items and none at {first}")
        kept = context.item_entries[first]
        if self.source.entry(self.source.find(kept)).type == "compaction":
            raise BadInput(f"item {first} is an earlier compaction's, which only the last one can contribute")
        return self.compact(kept, summary)

    def compact_keeping(self, kept: int, summary: Mapping[str, Any]) -> Draft:
        """:meth:`compact` for a request input whose last ``kept`` items stay. Raises BadInput for fewer than 1."""
        return self.compact_from(len(self.context().items) - require(kept, int, "a number of items"), summary)

    def summarize_branch(
        self, left: str, summary: Mapping[str, Any], *, usage: Mapping[str, Any] | None = None
    ) -> Draft:
        """The entry that carries what the branch ending at ``left`` did over to the leaf. Raises NoEntry."""
        return branch_summary(self.source.entry_id(self._entry_at(left)), summary, usage=usage)

    def _entry_at(self, entry_id: str) -> int:
        """The position of an entry; the universal root is none."""
        position = self.position(entry_id)
        if position < 0:
            raise BadInput("the universal root is no entry")
        return position
