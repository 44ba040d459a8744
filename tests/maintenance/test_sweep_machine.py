"""After any history: nothing reachable is gone, and what is dead and old is gone (store.md A8)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentsession_cas import RefTarget, Store, entry
from agentsession_cas.core.entry import Entry, sidecar_blobs
from agentsession_cas.core.identity import hash_bytes
from agentsession_cas.core.packformat import Space
from agentsession_cas.errors import NoBlob
from agentsession_cas.sessions.chain import ChainSource
from agentsession_cas.testing.simfs import Sim

pytestmark = pytest.mark.heavy

DAY = 86400.0
GRACE = 14 * DAY

names = st.sampled_from("abcd")
picks = st.integers(0, 10**6)
texts = st.sampled_from(["hi", "there", "a large string " * 300, "another one, as large " * 250])
blobs = st.sampled_from([b"one", b"two", b"three"])


class SweepMachine(RuleBasedStateMachine):
    """Two processes over one store, of which each may do anything; nothing is held open but stores."""

    def __init__(self) -> None:
        super().__init__()
        self.sim = Sim()
        hosts = (self.sim.host, self.sim.process("p2"))
        self.stores = [Store.open("/store", create=True, host=host, background=False) for host in hosts]
        self.truth: dict[str, list[bytes]] = {}
        self.pins: dict[str, list[str]] = {}
        self.named: set[str] = set()
        """Blobs that were there when a session named them."""
        self.put_at: dict[str, int] = {}

    def some(self, pick: int) -> Store:
        return self.stores[pick % 2]

    def wrote(self, store: Store, name: str) -> None:
        self.truth[name] = [each.line for each in store.read(name)]

    # --- what is done ---

    @rule(name=names, pick=picks, text=texts, count=st.sampled_from([1, 1, 1, 35]), checkpoint=st.booleans())
    def append(self, name: str, pick: int, text: str, count: int, checkpoint: bool) -> None:
        store = self.some(pick)
        known = name in self.truth
        with store.open_session(name) if known else store.create(id=name, media="sidecar") as session:
            many: list[Any] = [entry.user(f"{n} {text}") for n in range(1, count)]
            session.append_batch([*many, entry.user(text)])
            if checkpoint:
                session.checkpoint()
        self.wrote(store, name)

    @precondition(lambda self: self.truth)
    @rule(pick=picks, at=picks, data=blobs)
    def name_a_blob(self, pick: int, at: int, data: bytes) -> None:
        store, name = self.some(pick), sorted(self.truth)[at % len(self.truth)]
        part = {"type": "input_image", "image_url": f"sidecar:{hash_bytes(data)}"}
        item = {"type": "message", "role": "user", "content": [part]}
        with store.open_session(name) as session:
            if not session.append({"type": "item", "item": item}).unresolved:
                self.named.add(hash_bytes(data))
        self.wrote(store, name)

    @rule(pick=picks, data=blobs)
    def put_a_blob(self, pick: int, data: bytes) -> None:
        blob = self.some(pick).put_blob(data)
        self.put_at[blob] = self.sim.clock.now_ns()
        self.named.update(blob for _ in self.naming(blob))

    def naming(self, blob: str) -> list[bytes]:
        """The lines that name a blob."""
        return [line for lines in self.truth.values() for line in lines if blob.encode() in line]

    @precondition(lambda self: self.truth)
    @rule(name=names, pick=picks, at=picks, under=picks)
    def fork(self, name: str, pick: int, at: int, under: int) -> None:
        store, origin = self.some(pick), sorted(self.truth)[at % len(self.truth)]
        ids = [Entry.from_line(line).id for line in self.truth[origin]]
        if name not in self.truth:
            store.fork(origin, ids[under % len(ids)], id=name).close()
            self.wrote(store, name)

    @precondition(lambda self: self.truth)
    @rule(pick=picks, at=picks, under=picks)
    def pin(self, pick: int, at: int, under: int) -> None:
        store, session = self.some(pick), sorted(self.truth)[at % len(self.truth)]
        ids = [Entry.from_line(line).id for line in self.truth[session]]
        pinned = ids[under % len(ids)]
        ref = f"pin-{len(self.pins)}"
        store.update_ref(ref, None, RefTarget(session, pinned))
        self.pins[ref] = [each.id for each in store.read(session).path(pinned)]

    @precondition(lambda self: any(self.pins.values()))
    @rule(pick=picks, at=picks)
    def unpin(self, pick: int, at: int) -> None:
        pinned = sorted(ref for ref, path in self.pins.items() if path)
        ref = pinned[at % len(pinned)]
        held = self.some(pick).refs.read(ref)
        assert held is not None
        self.some(pick).update_ref(ref, held.target, None)
        self.pins[ref] = []

    @precondition(lambda self: self.truth)
    @rule(pick=picks, at=picks)
    def delete(self, pick: int, at: int) -> None:
        name = sorted(self.truth)[at % len(self.truth)]
        self.some(pick).delete(name)
        del self.truth[name]

    @rule(pick=picks, all_=st.booleans())
    def repack(self, pick: int, all_: bool) -> None:
        self.some(pick).repack(all_)

    @rule(pick=picks)
    def collect(self, pick: int) -> None:
        self.some(pick).gc()

    @rule(pick=picks)
    def sweep(self, pick: int) -> None:
        self.some(pick).sweep(GRACE)

    @rule(pick=picks)
    def sweep_all(self, pick: int) -> None:
        self.some(pick).sweep(0)
        self.put_at.clear()
        assert self.held() == self.needed()

    @rule(days=st.sampled_from([1, 8, 15]))
    def wait(self, days: int) -> None:
        self.sim.clock.advance(days * DAY)

    # --- what has to hold ---

    def held(self) -> set[tuple[Space, str]]:
        places = self.stores[0].objects.iterate()
        return {(place.space, f"sha256:{place.digest.hex()}") for place in places}

    def needed(self) -> set[tuple[Space, str]]:
        """What sessions and pins need, journals aside, as far as it is held."""
        store = self.stores[0]
        held, needed = self.held(), set[tuple[Space, str]]()
        entries = [each for name in self.truth for each in store.read(name)]
        for path in filter(None, self.pins.values()):
            chain = ChainSource(store.objects, path[-1])
            entries += map(chain.entry, range(len(chain)))
        for each in entries:
            needed.update([(Space.ENTRIES, each.id), (Space.CONTENTS, each.content_hash)])
            needed.update((Space.MEDIA, blob) for blob in sidecar_blobs(each.content))
            if (Space.CONTENTS, each.content_hash) in held:
                named = store.objects.names(bytes.fromhex(each.content_hash[7:]))
                needed.update((Space.PIECES, f"sha256:{piece.hex()}") for piece in named.pieces)
        return needed & held

    @invariant()
    def nothing_that_is_needed_is_gone(self) -> None:
        for store in self.stores:
            assert {name: [each.line for each in store.read(name)] for name in store.session_ids()} == self.truth
            for path in filter(None, self.pins.values()):
                chain = ChainSource(store.objects, path[-1])
                assert [chain.entry_id(at) for at in range(len(chain))] == path
            now = self.sim.clock.now_ns()
            young = {blob for blob, at in self.put_at.items() if now - at < GRACE * 1e9}
            for blob in young | {blob for blob in self.named if self.naming(blob)}:
                self.found(store, blob)

    def found(self, store: Store, blob: str) -> None:
        try:
            assert hash_bytes(store.blob(blob)) == blob
        except NoBlob as error:
            raise AssertionError(f"{blob} is gone") from error

    def teardown(self) -> None:
        """Time passes, and what is dead goes."""
        self.sim.clock.advance(2 * GRACE)
        self.stores[1].sweep()
        assert self.held() == self.needed()
        findings = self.stores[1].fsck().findings
        assert [each for each in findings if each.severity == "error"] == []


SweepMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestSweep = SweepMachine.TestCase
