"""A store against a dictionary: whatever is done in whatever order, both say the same (hypothesis)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from agentsession_cas.core.accept import Outcome
from agentsession_cas.core.contexthash import context_hash_at
from agentsession_cas.core.entry import Draft
from agentsession_cas.effects.memory import memory_host
from agentsession_cas.errors import (
    AgentSessionError,
    BaseRule,
    CallIDRepeated,
    HeadMoved,
    HeadTarget,
    NoEntry,
    NoSession,
    SessionExists,
)
from agentsession_cas.sessions.handle import SessionWriter
from agentsession_cas.sessions.source import RowSource, hash_of
from agentsession_cas.store import Store
from tests.helpers.engine import message

pytestmark = pytest.mark.heavy

Json = dict[str, Any]


@dataclass
class Kept:
    """A session in the dictionary. ``parents``: own entries in order, each with its parent, "" for the root."""

    base: str = ""
    prefix: list[str] = field(default_factory=list)
    parents: dict[str, str] = field(default_factory=dict)
    head: str = ""
    name: str = ""
    labels: set[str] = field(default_factory=set)
    """Leaf labels: no head rests on one."""
    calls: dict[str, str] = field(default_factory=dict)
    """By call_id, the entry that made it, of the prefix too."""
    made: int = 0

    @property
    def places(self) -> list[str]:
        """Where an entry may hang and a head may rest."""
        return [*self.parents, self.base]

    def path(self, entry_id: str) -> list[str]:
        """Ids from the root to an entry."""
        path: list[str] = []
        while entry_id in self.parents:
            path.append(entry_id)
            entry_id = self.parents[entry_id]
        return [*self.prefix, *reversed(path)]


names = st.sampled_from(["a", "b", "c", "d"])
durables = st.booleans()
picks = st.integers(0, 10**6)


class StoreMachine(RuleBasedStateMachine):
    """Sessions by name; writers are opened when they are needed and let go at random."""

    def __init__(self) -> None:
        super().__init__()
        self.host = memory_host()
        self.store = Store.open("/store", create=True, host=self.host, background=False)
        self.elsewhere = Store.open("/elsewhere", create=True, host=memory_host())
        self.kept: dict[str, Kept] = {}
        self.writers: dict[str, SessionWriter] = {}
        self.ticks = 0
        self.exports = 0

    # --- tools

    def writer(self, name: str) -> SessionWriter:
        if name not in self.writers:
            self.writers[name] = self.store.open_session(name)
        return self.writers[name]

    def some(self, pick: int) -> str:
        """One of the sessions there are."""
        return sorted(self.kept)[pick % len(self.kept)]

    def tick(self) -> str:
        self.ticks += 1
        return f"2026-01-01T00:00:00.{self.ticks:09d}".rstrip("0") + "Z"

    def refused(self, name: str, error: type[AgentSessionError], act: Callable[[SessionWriter], object]) -> None:
        """An act that is refused changes nothing."""
        with pytest.raises(error):
            act(self.writer(name))
        self.check(name)

    def landed(self, name: str, result: Any, parent: str, *, moves_to: str | None = None) -> None:
        """Take an append into the dictionary, and see that what was reported is what the dictionary says."""
        kept = self.kept[name]
        if moves_to is not None:
            assert result.outcome is Outcome.LEAF_MOVED
            kept.labels.add(result.id)
            kept.head = moves_to
        elif parent == kept.head:
            assert result.outcome is Outcome.CONTINUED
            kept.head = result.id
        else:
            assert result.outcome is Outcome.BRANCHED
        kept.parents[result.id] = parent

    # --- what is done

    @rule(name=names)
    def create(self, name: str) -> None:
        if name in self.kept:
            with pytest.raises(SessionExists):
                self.store.create(id=name)
            return
        self.writers[name] = self.store.create(id=name, created_at=self.tick())
        self.kept[name] = Kept(made=self.ticks)

    @precondition(lambda self: self.kept)
    @rule(name=names, pick=picks, at=picks)
    def fork(self, name: str, pick: int, at: int) -> None:
        origin = self.some(pick)
        held = [*self.kept[origin].prefix, *self.kept[origin].parents]
        if name in self.kept or not held:
            return
        base = held[at % len(held)]
        if base in self.kept[origin].labels:
            with pytest.raises(HeadTarget):
                self.store.fork(origin, base, id=name)
            assert not self.store.holds(name)
            return
        self.writers[name] = self.store.fork(origin, base, id=name, created_at=self.tick())
        prefix = held[: held.index(base) + 1] if base in self.kept[origin].prefix else self.kept[origin].path(base)
        calls = {call: entry for call, entry in self.kept[origin].calls.items() if entry in prefix}
        self.kept[name] = Kept(base, prefix, head=base, calls=calls, made=self.ticks)

    @precondition(lambda self: self.kept)
    @rule(pick=picks, text=st.text(max_size=60), durable=durables)
    def append(self, pick: int, text: str, durable: bool) -> None:
        name = self.some(pick)
        head = self.kept[name].head
        draft = Draft("item", message(text), ts=self.tick())
        result = self.writer(name).append(draft, durable)
        assert result.durable is durable
        self.landed(name, result, head)

    @precondition(lambda self: self.kept)
    @rule(pick=picks, at=picks, durable=durables)
    def branch(self, pick: int, at: int, durable: bool) -> None:
        """Append below any entry there is."""
        name = self.some(pick)
        kept = self.kept[name]
        parent = kept.places[at % len(kept.places)]
        if not parent:
            return
        draft = Draft("item", message("branch"), parent=parent, ts=self.tick())
        self.landed(name, self.writer(name).append(draft, durable), parent)

    @precondition(lambda self: self.kept)
    @rule(pick=picks, count=st.integers(1, 40), durable=durables)
    def batch(self, pick: int, count: int, durable: bool) -> None:
        name = self.some(pick)
        drafts = [Draft("item", message(f"{number} of a batch"), ts=self.tick()) for number in range(count)]
        for result in self.writer(name).append_batch(drafts, durable):
            self.landed(name, result, self.kept[name].head)

    @precondition(lambda self: self.kept)
    @rule(pick=picks, label=st.text(min_size=1, max_size=10))
    def rename(self, pick: int, label: str) -> None:
        name = self.some(pick)
        head = self.kept[name].head
        self.landed(name, self.writer(name).append(Draft("info", {"name": label}, ts=self.tick()), False), head)
        self.kept[name].name = label

    @precondition(lambda self: self.kept)
    @rule(pick=picks, at=picks)
    def label_leaf(self, pick: int, at: int) -> None:
        """Move the head by an entry."""
        name = self.some(pick)
        kept = self.kept[name]
        target = kept.places[at % len(kept.places)]
        if target in kept.labels:
            return
        parent = kept.head
        draft = Draft("label", {"label": "leaf", "target": target or None}, ts=self.tick())
        self.landed(name, self.writer(name).append(draft, False), parent, moves_to=target)

    @precondition(lambda self: self.kept)
    @rule(pick=picks, at=picks, durable=durables)
    def again(self, pick: int, at: int, durable: bool) -> None:
        """Append what is held: nothing moves."""
        name = self.some(pick)
        kept = self.kept[name]
        if not kept.parents:
            return
        writer = self.writer(name)
        entry = writer.entry([*kept.parents][at % len(kept.parents)])
        result = writer.append(entry, durable)
        assert (result.id, result.outcome) == (entry.id, Outcome.HELD)

    @precondition(lambda self: self.kept)
    @rule(pick=picks, call=st.sampled_from(["call 1", "call 2", "call 3"]))
    def call(self, pick: int, call: str) -> None:
        """A call_id is used once, on whatever branch; the prefix's count too."""
        name = self.some(pick)
        kept = self.kept[name]
        body = {"item": {"type": "function_call", "call_id": call, "name": "t", "arguments": "{}"}, "response": "r"}
        draft = Draft("item", body, ts=self.tick())
        writer = self.writer(name)
        if call in kept.calls:
            self.refused(name, CallIDRepeated, lambda writer: writer.append(draft, False))
            batch = [Draft("item", message("whole or not at all"), ts=self.tick()), draft]
            self.refused(name, CallIDRepeated, lambda writer: writer.append_batch(batch, True))
        else:
            result = writer.append(draft, False)
            self.landed(name, result, kept.head)
            kept.calls[call] = result.id

    @precondition(lambda self: self.kept)
    @rule(pick=picks, at=picks, durable=durables)
    def set_head(self, pick: int, at: int, durable: bool) -> None:
        name = self.some(pick)
        kept = self.kept[name]
        to = kept.places[at % len(kept.places)]
        if to in kept.labels:
            self.refused(name, HeadTarget, lambda writer: writer.set_head(kept.head, to))
            return
        assert self.writer(name).set_head(kept.head, to, durable=durable) is durable
        kept.head = to

    @precondition(lambda self: self.kept)
    @rule(pick=picks)
    def refusals(self, pick: int) -> None:
        name = self.some(pick)
        kept = self.kept[name]
        nowhere = f"sha256:{'0' * 64}"
        orphan = Draft("item", message("x"), parent=nowhere, ts=self.tick())
        self.refused(name, HeadMoved, lambda writer: writer.set_head(nowhere, kept.head))
        self.refused(name, NoEntry, lambda writer: writer.set_head(kept.head, nowhere))
        self.refused(name, NoEntry, lambda writer: writer.append(orphan))
        self.refused(name, NoEntry, lambda writer: writer.append_batch([Draft("item", message("y")), orphan]))
        if kept.base:
            self.refused(name, NoEntry, lambda writer: writer.set_head(kept.head, ""))
        if len(kept.prefix) > 1:
            above = Draft("item", message("x"), parent=kept.prefix[0], ts=self.tick())
            self.refused(name, BaseRule, lambda writer: writer.append(above))

    @precondition(lambda self: self.kept)
    @rule(pick=picks)
    def checkpoint(self, pick: int) -> None:
        assert self.writer(self.some(pick)).checkpoint()

    @precondition(lambda self: self.writers)
    @rule(pick=picks)
    def close(self, pick: int) -> None:
        name = sorted(self.writers)[pick % len(self.writers)]
        self.writers.pop(name).close()

    @precondition(lambda self: self.writers)
    @rule(pick=picks)
    def abandon(self, pick: int) -> None:
        """As a process that dies: what was visible stays so."""
        name = sorted(self.writers)[pick % len(self.writers)]
        self.writers.pop(name)._writer.abandon()

    @precondition(lambda self: self.kept)
    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        name = self.some(pick)
        if name in self.writers:
            self.writers.pop(name).close()
        self.store.delete(name)
        del self.kept[name]
        with pytest.raises(NoSession):
            self.store.read(name)

    @rule()
    def reopen_the_store(self) -> None:
        for writer in self.writers.values():
            writer.close()
        self.writers.clear()
        self.store.close()
        self.store = Store.open("/store", host=self.host, background=False)

    @precondition(lambda self: self.kept)
    @rule(pick=picks)
    def carry_elsewhere(self, pick: int) -> None:
        """Out as a file, into another store, and out again: the same bytes."""
        name = self.some(pick)
        self.exports += 1
        self.store.project(name, f"/{self.exports}.jsonl")
        data = self.host.fs.read(f"/{self.exports}.jsonl")
        assert data is not None
        if self.elsewhere.holds(name):
            self.elsewhere.delete(name)
        taken = self.elsewhere.import_file(data)
        assert (taken.entries, taken.head) == (len(self.kept[name].parents), self.kept[name].head)
        there = self.elsewhere.read(name)
        assert [entry.id for entry in there] == [*self.kept[name].prefix, *self.kept[name].parents]
        self.elsewhere.project(name, f"/{self.exports}.jsonl")
        assert self.elsewhere.layout.host.fs.read(f"/{self.exports}.jsonl") == data

    # --- what has to hold

    @invariant()
    def listing_and_sessions_agree(self) -> None:
        listed = self.store.list()
        wanted = sorted(self.kept, key=lambda name: self.kept[name].made, reverse=True)
        assert [summary.id for summary in listed] == wanted
        for summary in listed:
            kept = self.kept[summary.id]
            assert (summary.head, summary.entries, summary.name) == (kept.head, len(kept.parents), kept.name)
        for name in self.kept:
            self.check(name)

    def check(self, name: str) -> None:
        kept = self.kept[name]
        views = [self.store.read(name)]
        if name in self.writers:
            views.append(self.writers[name])
        for view in views:
            assert view.leaf == kept.head
            assert [view.source.entry_id(at) for at in range(len(view))] == [*kept.prefix, *kept.parents]
            own = [view.source.entry(at) for at in range(len(kept.prefix), len(view))]
            assert {entry.id: entry.parent for entry in own} == kept.parents
        source = views[0].source
        assert isinstance(source, RowSource)
        if kept.parents:
            last = len(source) - 1
            assert hash_of(source.context_digest(last)) == context_hash_at(source, last)
            assert [entry.id for entry in views[0].path(source.entry_id(last))] == kept.path(source.entry_id(last))
        source.close()


StoreMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestStore = StoreMachine.TestCase
