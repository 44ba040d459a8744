"""Refs under power cuts: what was acknowledged of them, a scenario that moves them about, and the judge of an image.

An update is there whole, ref and log, or not at all; what was acknowledged is there; what a ref pins reads without its
session. Everything else about a session is explored elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from agentsession_cas import RefTarget, SessionWriter, Store, entry
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import AgentSessionError, NoRef, NoSession
from agentsession_cas.sessions.chain import ChainSource
from agentsession_cas.testing.simfs import Killed, Sim
from tests.helpers.crashes import Violation
from tests.helpers.stores import opened

__all__ = ["ONE", "TWO", "World", "judge", "machine", "power", "resume", "scenario", "second"]

ONE: Final = RefTarget("one")
TWO: Final = RefTarget("two")
Move = tuple[RefTarget | None, RefTarget | None, str]


@dataclass
class World:
    """What was acknowledged of each name, its log oldest first, and what is under way."""

    held: dict[str, RefTarget] = field(default_factory=dict)
    log: dict[str, list[Move]] = field(default_factory=dict)
    pending: tuple[str, RefTarget | None, str] | None = None
    deleted: set[str] = field(default_factory=set)
    """Sessions that may be gone."""

    def copy(self) -> World:
        """The same, on its own."""
        log = {name: list(moves) for name, moves in self.log.items()}
        return replace(self, held=dict(self.held), log=log, deleted=set(self.deleted))

    def doing(self, name: str, to: RefTarget | None, reason: str, act: Callable[[], object]) -> None:
        """Move a name in some way, and note that it was acknowledged."""
        self.log.setdefault(name, [])
        self.pending = (name, to, reason)
        act()
        self.done()

    def update(self, store: Store, name: str, to: RefTarget | None, reason: str) -> None:
        """Move a name from what it holds."""
        before = self.held.get(name)
        self.doing(name, to, reason, lambda: store.update_ref(name, before, to, reason))

    def done(self) -> None:
        """What was under way came to be."""
        assert self.pending is not None
        name, to, reason = self.pending
        self.pending = None
        before = self.held.get(name)
        if before != to:
            self.log[name].append((before, to, reason))
        if to is None:
            self.held.pop(name, None)
        else:
            self.held[name] = to

    def settle(self, store: Store) -> None:
        """Take what is seen of the update under way, whether it was acknowledged or not."""
        if self.pending is not None:
            name, to, _ = self.pending
            if to != self.held.get(name) and seen(store).get(name) == to:
                self.done()
            self.pending = None


def machine() -> Sim:
    """A store with sessions one and two, all of it durable."""
    sim = Sim()
    with Store.open("/store", create=True, host=sim.host, background=False) as store:
        for name in ("one", "two"):
            with store.create(id=name) as session:
                session.append(entry.user(f"in {name}"), durable=True)
    return sim


def scenario(store: Store, world: World) -> None:
    """Names made, pinned to what no sync has covered, moved, deleted, made again; sessions by name; one that goes."""
    with store.open_session("one") as held:
        pin = _pinned(held)
        world.update(store, "main", ONE, "first")
        world.update(store, "main", pin, "pin")
        world.update(store, "keep/this", pin, "")
        world.update(store, "main", TWO, "move")
        world.update(store, "main", TWO, "nothing")
    world.update(store, "main", None, "gone")
    world.update(store, "main", ONE, "again")
    chat, next_ = RefTarget("chat"), RefTarget("next")
    world.doing("chat", chat, "made for it", lambda: store.session_for("chat", id="chat").close())
    world.doing("chat", next_, "continued", lambda: store.continue_ref("chat", id="next").close())
    world.deleted.add("one")
    store.delete("one")
    world.update(store, "main", TWO, "moved on")


def _pinned(held: SessionWriter) -> RefTarget:
    held.append(entry.user("not synced"), durable=False)
    return RefTarget("one", held.append(entry.user("nor this"), durable=False).id)


def seen(store: Store) -> dict[str, RefTarget]:
    """What every name holds; none is damaged."""

    def damaged(name: str, error: AgentSessionError) -> None:
        raise Violation(f"{name}: {error}")

    return dict(store.list_refs(on_damage=damaged))


def judge(host: Host, world: World, where: str, *, thorough: bool = True) -> None:
    """Compare what a store holds with what was acknowledged, then move every name once more."""
    try:
        with opened(host) as store:
            world = world.copy()
            _compare(store, world, where)
            world.settle(store)
            if thorough:
                if {each.severity for each in store.fsck().findings} - {"note", "warning"}:
                    raise Violation(f"{where}: {store.fsck().findings}")
                for name in world.log:
                    world.update(store, name, None if name == "main" else TWO, "afterwards")
                _compare(store, world, f"{where}, afterwards")
    except AgentSessionError as error:
        raise Violation(f"{where}: {type(error).__name__}: {error}") from error


def _compare(store: Store, world: World, where: str) -> None:
    found = seen(store)
    if set(found) - set(world.log):
        raise Violation(f"{where}: a name from nowhere: {found}")
    for name, acknowledged in world.log.items():
        log = [(each.old, each.new, each.reason) for each in store.ref_log(name)][::-1]
        legal = [(world.held.get(name), acknowledged)]
        if world.pending is not None and world.pending[0] == name and world.pending[1] != world.held.get(name):
            _, to, reason = world.pending
            legal.append((to, [*acknowledged, (world.held.get(name), to, reason)]))
        if (found.get(name), log) not in legal:
            raise Violation(f"{where}: {name} holds {found.get(name)}, its log says {log}; legal is {legal}")
        _leads(store, world, name, found.get(name), where)


def _leads(store: Store, world: World, name: str, target: RefTarget | None, where: str) -> None:
    """What a ref holds resolves, and what it pins reads, in the session and without it."""
    try:
        resolved = store.resolve_ref(name)
    except NoRef:
        resolved = None
    except NoSession as error:
        if error.target is None or error.target[0] not in world.deleted:
            raise Violation(f"{where}: {name}: {error}") from error
        resolved = RefTarget(*error.target)
    if resolved != target:
        raise Violation(f"{where}: {name} resolves to {resolved}, lists as {target}")
    if target is None or not target.entry:
        return
    chain = ChainSource(store.objects, target.entry)
    if [chain.entry(at).body["item"]["role"] for at in range(len(chain))] != ["user"] * 3:
        raise Violation(f"{where}: the pin of {name} does not read")
    if store.holds(target.session) and store.read(target.session).source.find(target.entry) < 0:
        raise Violation(f"{where}: the session lost what {name} pins")


# --- exploring -------------------------------------------------------------------------------------------------------


def power(per_cut: int, *, tear: bool = False) -> int:
    """Cut before every effect that has to do with refs; how many images were judged."""
    sim, world, judged = machine(), World(), 0

    def cut(kind: str, path: str) -> None:
        nonlocal judged
        budget = 2 * per_cut if kind in ("sync", "sync_dir") else per_cut
        for image in sim.images(budget, tear=tear, seed=sim.count):
            judge(image.host, world, f"{sim.count} {kind} {path} {image.story}", thorough=judged % 5 == 0)
            judged += 1

    sim.watch(cut)
    with opened(sim.host) as store:
        scenario(store, world)
    sim.watch(None)
    for image in sim.images(4 * per_cut, tear=tear):
        judge(image.host, world, f"end {image.story}")
    return judged


def resume(start: int, stride: int) -> int:
    """Kill the process after an effect and let a second go on from what it sees; then cut the power in that one."""
    cuts = 0
    for at in range(start, 10_000, stride):
        sim, world = machine(), World()
        sim.kill_after(at)
        try:
            with opened(sim.host) as store:
                scenario(store, world)
        except Killed:
            second(sim, world, f"killed at {at}")
            cuts += 1
        else:
            return cuts
    raise AssertionError("the scenario never ends")


def second(sim: Sim, world: World, where: str) -> None:
    """Acknowledge what is seen, and name what the first process made."""
    sim.kill("p1")
    sim.heal()
    judge(sim.clone().host, world, where)
    with opened(sim.process("p2")) as store:
        world.settle(store)
        for name in list(world.log):
            held = world.held.get(name)
            world.update(store, name, held if held is None or store.holds(held.session) else TWO, "seen")
        for image in sim.images(3, seed=sim.count):
            judge(image.host, world, f"{where}, seen, {image.story}", thorough=False)
        for name in store.session_ids():
            world.update(store, f"late/{name}", RefTarget(name), "late")
        for name in [*world.log][:2]:
            world.update(store, name, TWO, "on")
    for image in sim.images(4, seed=sim.count):
        judge(image.host, world, f"{where}, second, {image.story}")
