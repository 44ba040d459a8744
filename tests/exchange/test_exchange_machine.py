"""Three stores that exchange, fork, delete, sweep, hand over and lose their power, against a model of dictionaries."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentsession_cas import entry
from agentsession_cas.errors import AgentSessionError
from agentsession_cas.testing.simfs import PowerCut, Sim
from tests.helpers.exchange import ROOTS, lines, mark, opened, own

pytestmark = pytest.mark.heavy

SESSIONS = ("s", "t", "fork")
root_of = st.sampled_from(ROOTS)
session_of = st.sampled_from(SESSIONS)


@dataclass
class Held:
    """A session as one store has it."""

    entries: list[str]
    head: str
    mark: str

    def copy(self) -> Held:
        return Held(list(self.entries), self.head, self.mark)


class Exchanging(RuleBasedStateMachine):
    """``model`` is what each store holds, by root and session; a record is kept in at least one store, if in any."""

    def __init__(self) -> None:
        super().__init__()
        self.sim = Sim()
        self.model: dict[tuple[str, str], Held] = {}
        self.texts = 0
        self._boot(self.sim)

    def _boot(self, sim: Sim) -> None:
        self.sim = sim
        self.stores = {root: opened(sim.host, root) for root in ROOTS}

    def _look(self, root: str, session: str) -> Held:
        store = self.stores[root]
        return Held(own(store, session), store.read(session).leaf, mark(store, session))

    # --- one store ---

    @rule(root=root_of, session=st.sampled_from(("s", "t")))
    def create(self, root: str, session: str) -> None:
        """Once: another of the same id would be another session."""
        if any(name == session for _, name in self.model) or self.texts > 10_000:
            return
        self.stores[root].create(id=session, created_at="2026-01-01T00:00:00Z").close()
        self.model[root, session] = Held([], "", "record")

    @rule(root=root_of, session=session_of, back=st.integers(0, 3), more=st.integers(1, 3))
    def append(self, root: str, session: str, back: int, more: int) -> None:
        """From the head, or from an earlier entry as a branch; a mirror refuses."""
        held = self.model.get((root, session))
        if held is None or held.mark == "mirror":
            return
        with self.stores[root].open_session(session) as writer:
            parent = held.entries[-back] if 0 < back <= len(held.entries) else None
            for _ in range(more):
                self.texts += 1
                draft = entry.user(str(self.texts))
                new = writer.append(draft.at(parent=parent) if parent else draft).id
                held.entries.append(new)
                held.head = new if parent in (None, held.head) else held.head
                parent = parent and new

    @rule(root=root_of, session=session_of, back=st.integers(1, 4))
    def set_head(self, root: str, session: str, back: int) -> None:
        """To an entry of its own."""
        held = self.model.get((root, session))
        if held is None or held.mark == "mirror" or back > len(held.entries):
            return
        self.stores[root].set_head(session, held.head, held.entries[-back])
        held.head = held.entries[-back]

    @rule(root=root_of)
    def fork(self, root: str) -> None:
        """One fork of one session, in one store."""
        held = self.model.get((root, "s"))
        if held is None or not held.entries or any(name == "fork" for _, name in self.model):
            return
        base = held.entries[len(held.entries) // 2]
        self.stores[root].fork("s", base, id="fork", created_at="2026-01-01T00:00:00Z").close()
        self.model[root, "fork"] = Held([], base, "record")

    @precondition(lambda self: len(self.model) > 2)
    @rule(root=root_of, session=session_of)
    def delete(self, root: str, session: str) -> None:
        """A mirror; a record is what the others live by."""
        held = self.model.get((root, session))
        if held is not None and held.mark == "mirror":
            self.stores[root].delete(session)
            del self.model[root, session]

    @rule(root=root_of)
    def sweep(self, root: str) -> None:
        """Everything nobody needs goes at once."""
        self.stores[root].sweep(0)

    @rule(root=root_of, session=session_of)
    def declare_record(self, root: str, session: str) -> None:
        """Rarely right, and always allowed."""
        held = self.model.get((root, session))
        if held is not None and self.texts % 5 == 0:
            assert self.stores[root].declare_record(session) is (held.mark == "mirror")
            held.mark = "record"

    # --- two of them ---

    @rule(root=root_of, other=root_of, session=session_of, handover=st.booleans(), force=st.booleans())
    def push(self, root: str, other: str, session: str, handover: bool, force: bool) -> None:
        """Entries as a set, the head if it may, the marks if they are handed over."""
        held, there = self.model.get((root, session)), self.model.get((other, session))
        if held is None or root == other or held.mark == "mirror":
            return
        (done,) = self.stores[root].push(other, session, handover=handover, force=force)
        new = [each for each in held.entries if there is None or each not in there.entries]
        assert (done.created, done.admitted) == (there is None, len(new))
        before = there.head if there is not None else ""
        after = there or Held([], "", "mirror")
        after.entries += new
        if not done.head.why:
            after.head = held.head
        else:
            assert not force
            after.head = before
        assert done.head.current == after.head
        if handover and (not done.head.why or after.mark == "record"):
            after.mark, held.mark = "record", "mirror"
        assert done.mark == after.mark
        self.model[other, session] = after
        if not done.head.why and len(after.entries) == len(held.entries) and after.entries == held.entries:
            assert lines(self.stores[root], session) == lines(self.stores[other], session)

    @rule(root=root_of, other=root_of, session=session_of)
    def fetch(self, root: str, other: str, session: str) -> None:
        """Entries as a set; the head of a mirror to what descends from it."""
        there, held = self.model.get((other, session)), self.model.get((root, session))
        if there is None or root == other:
            return
        (done,) = self.stores[root].fetch(other, session)
        new = [each for each in there.entries if held is None or each not in held.entries]
        assert (done.created, done.admitted) == (held is None, len(new))
        after = held or Held([], there.head, "mirror")
        after.entries += new
        if held is not None and held.mark == "mirror" and self._descends(root, session, held.head, there.head):
            after.head = there.head
        assert done.head.current == after.head
        self.model[root, session] = after

    def _descends(self, root: str, session: str, above: str, below: str) -> bool:
        found = self.stores[root].read(session)
        path = [each.id for each in found.path(below)]
        return not above or above in path

    # --- power ---

    @rule(seed=st.integers(0, 5))
    def power_cut(self, seed: int) -> None:
        """Between two operations: all of them were acknowledged."""
        images = list(self.sim.images(3, seed=seed))
        self._boot(images[seed % len(images)])

    @rule(
        root=root_of,
        other=root_of,
        session=session_of,
        at=st.integers(1, 40),
        seed=st.integers(0, 5),
        fetch=st.booleans(),
    )
    def cut_exchange(self, root: str, other: str, session: str, at: int, seed: int, fetch: bool) -> None:
        """In the middle of an exchange: what is found is between what was and what was to be."""
        held, there = self.model.get((root, session)), self.model.get((other, session))
        source, target = (there, held) if fetch else (held, there)
        if source is None or root == other or (not fetch and source.mark == "mirror"):
            return
        self.sim.cut_after(at)
        try:
            if fetch:
                self.stores[root].fetch(other, session)
            else:
                self.stores[root].push(other, session)
        except PowerCut:
            images = list(self.sim.images(3, seed=seed))
            self._boot(images[seed % len(images)])
        self.sim.heal()
        place = root if fetch else other
        if not self.stores[place].holds(session):
            assert target is None
            return
        found = self._look(place, session)
        before = target.entries if target is not None else []
        assert found.entries[: len(before)] == before
        assert set(found.entries) <= {*before, *source.entries}
        assert found.mark == (target.mark if target is not None else "mirror")
        assert found.head in (target.head if target is not None else source.head, source.head)
        self.model[place, session] = found

    # --- always ---

    @invariant()
    def holds_what_the_model_says(self) -> None:
        """Entries in their order, heads, marks; and each session that is anywhere has a record."""
        for root, store in self.stores.items():
            assert {name for place, name in self.model if place == root} == set(store.session_ids())
        for (root, session), held in self.model.items():
            assert self._look(root, session) == held
        for session in {name for _, name in self.model}:
            assert "record" in {held.mark for (_, name), held in self.model.items() if name == session}

    def teardown(self) -> None:
        """Nothing is wrong with any store."""
        for store in self.stores.values():
            try:
                assert store.fsck().ok
            except AgentSessionError as error:
                raise AssertionError(error) from error
            store.close()


TestExchanging = Exchanging.TestCase
TestExchanging.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
