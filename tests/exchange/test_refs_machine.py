"""Refs against a dictionary: any updates in any order, sessions deleted and made again, the store closed and opened."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agentsession_cas import RefTarget, Store, entry
from agentsession_cas.effects.memory import memory_host
from agentsession_cas.errors import NoEntry, NoRef, NoSession, RefMoved, RefName

pytestmark = pytest.mark.heavy

NAMES = ("a", "A", "a/b", "a/B", "b", "b/c/d", "b/c", "x.y", "X.z")
SESSIONS = ("s", "t", "u")
NOWHERE = "sha256:" + "0" * 64

name = st.sampled_from(NAMES)
session = st.sampled_from(SESSIONS)
Meant = tuple[RefTarget, int]
"""A target, and which session of that id is meant."""


def may_stand(one: str, others: set[str]) -> bool:
    """The rules on names, told once more."""
    for other in others - {one}:
        if one.startswith(f"{other}/") or other.startswith(f"{one}/"):
            return False
        pairs = zip(one.split("/"), other.split("/"), strict=False)
        for mine, theirs in pairs:
            if mine.lower() != theirs.lower():
                break
            if mine != theirs:
                return False
    return True


class Refs(RuleBasedStateMachine):
    """The store, and what it has to hold."""

    def __init__(self) -> None:
        super().__init__()
        self.host = memory_host()
        self.store = Store.open("/store", create=True, host=self.host, background=False)
        self.refs: dict[str, Meant] = {}
        self.logs: dict[str, list[tuple[RefTarget | None, RefTarget | None, str]]] = {}
        self.births: dict[str, int] = {}
        self.entries: dict[str, list[str]] = {}
        self.count = 0

    def teardown(self) -> None:
        self.store.close()

    # --- sessions

    @rule(id_=session)
    def create_or_delete(self, id_: str) -> None:
        if id_ in self.births:
            self.store.delete(id_)
            del self.births[id_]
            return
        self.count += 1
        with self.store.create(id=id_) as made:
            self.entries[id_] = [made.append(entry.user(f"{self.count} {n}")).id for n in range(2)]
            if self.count % 2:
                made.checkpoint()
        self.births[id_] = self.count

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = Store.open("/store", host=self.host, background=False)

    # --- refs

    def target(self, data: st.DataObject) -> RefTarget:
        id_ = data.draw(session)
        held = self.entries.get(id_, [])
        return RefTarget(id_, data.draw(st.sampled_from(["", "", *held, NOWHERE])))

    @rule(name=name, data=st.data(), right=st.integers(0, 9))
    def update(self, name: str, data: st.DataObject, right: int) -> None:
        held = self.refs.get(name)
        expected = held[0] if held else None
        if right == 0:
            expected = None if expected else self.target(data)
        to = None if data.draw(st.integers(0, 3)) == 0 else self.target(data)
        self.count += 1
        reason = f"update {self.count}"
        try:
            moved = self.store.update_ref(name, expected, to, reason)
        except RefMoved as moved_away:
            assert (right, moved_away.current) == (0, held[0] if held else None)  # noqa: PT017 - one of many
        except RefName:
            assert held is None
            assert not may_stand(name, set(self.refs))
        except NoSession:
            assert to is not None
            assert to.session not in self.births
        except NoEntry:
            assert to is not None
            assert to.entry not in ("", *self.entries[to.session])
        else:
            assert right != 0
            self.accepted(name, held, to, reason, moved)

    def accepted(self, name: str, held: Meant | None, to: RefTarget | None, reason: str, moved: bool) -> None:
        assert to is None or held is not None or may_stand(name, set(self.refs))
        assert to is None or to.session in self.births
        assert to is None or to.entry in ("", *self.entries[to.session])
        now = None if to is None else (to, self.births[to.session])
        assert moved == (now != held)
        if moved:
            self.logs.setdefault(name, []).append((held[0] if held else None, to, reason))
        if now is None:
            self.refs.pop(name, None)
        else:
            self.refs[name] = now

    @rule(name=name)
    def session_for(self, name: str) -> None:
        held = self.refs.get(name)
        self.count += 1
        before = set(self.store.session_ids())
        try:
            made = self.store.session_for(name, id=f"made-{self.count}")
        except RefName:
            assert held is None
            assert not may_stand(name, set(self.refs))
            assert set(self.store.session_ids()) == before
            return
        made.close()
        if held is not None and self.births.get(held[0].session) == held[1]:
            assert made.id == held[0].session
            return
        assert held is not None or may_stand(name, set(self.refs))
        assert made.id == f"made-{self.count}"
        self.births[made.id], self.entries[made.id] = self.count, []
        self.accepted(name, held, RefTarget(made.id), "made for it", True)

    # --- what holds

    @invariant()
    def it_is_as_the_dictionary_says(self) -> None:
        assert self.store.list_refs() == sorted((name, target) for name, (target, _) in self.refs.items())
        for name in NAMES:
            log = [(each.old, each.new, each.reason) for each in self.store.ref_log(name)]
            assert log == self.logs.get(name, [])[::-1]
            held = self.refs.get(name)
            try:
                assert self.store.resolve_ref(name) == (held[0] if held else "no")
                assert held is not None
                assert self.births.get(held[0].session) == held[1]
            except NoRef:
                assert held is None
            except NoSession as dangling:
                assert held is not None
                assert dangling.target == held[0]  # noqa: PT017 - what it holds is the point
                assert self.births.get(held[0].session) != held[1]
        pins = {(pin.name, pin.session, pin.entry) for pin in self.store.refs.pins()}
        assert pins == {(name, *target) for name, (target, _) in self.refs.items() if target.entry}


TestRefs = Refs.TestCase
TestRefs.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
