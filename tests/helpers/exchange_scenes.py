"""Exchanges under power cuts and kills: two stores on one disk, what was acknowledged between them, and the judge.

What may never be: an entry that was acknowledged and is gone, a mirror that knows what its record does not, a session
that nobody is the record of, half a session, a store that fsck finds fault with, an exchange that cannot be finished.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from agentsession_cas import RefTarget, Store, entry
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import AgentSessionError
from agentsession_cas.testing.simfs import Killed, Sim
from tests.helpers.crashes import Violation
from tests.helpers.exchange import A, B, grow, lines, mark, own, pushed, stores

__all__ = ["Acked", "judge", "killed", "machine", "many_sessions", "power", "scenario"]

BLOB: Final = b"\x89PNG " * 40
ERRORS: Final = ("error",)


@dataclass
class Acked:
    """What was acknowledged: entries held, by store and session; refs there; sessions that are not new any more."""

    held: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    refs: dict[str, RefTarget] = field(default_factory=dict)
    moving: bool = False
    """Whether a handover is under way or done, so that either store, or both, may be the record."""

    def note(self, store: Store, session: str) -> None:
        """What a store holds now is acknowledged."""
        self.held[store.root, session] = own(store, session)


def machine() -> Sim:
    """A store with a session of media and a fork of it, all of it durable, and an empty store."""
    sim = Sim()
    with stores(sim.host, A, B) as (a, _):
        blob = a.put_blob(BLOB)
        with a.create(id="origin", media="sidecar") as session:
            session.append(entry.user("1"))
            base = session.append(entry.user([{"type": "input_image", "image_url": f"sidecar:{blob}"}])).id
        with a.fork("origin", base, id="s") as fork:
            fork.append(entry.user("2"), durable=True)
    return sim


def scenario(a: Store, b: Store, acked: Acked) -> None:
    """A session pushed, grown, pushed again with a name, fetched, handed over, grown there, and pushed back."""
    acked.note(a, "s")
    pushed(a, b, "s")
    acked.note(b, "s")
    (held,) = grow(a, "s", "3")
    blob = a.put_blob(BLOB + b"2")
    with a.open_session("s") as session:
        session.append(entry.user([{"type": "input_image", "image_url": f"sidecar:{blob}"}]), durable=False)
        session.append(entry.user("a branch").at(parent=held), durable=False)
        acked.held[A, "s"] = own(a, "s")[:2]
        pushed(a, b, "s", refs=["main"])
        acked.note(a, "s")  # the sender commits first
        acked.note(b, "s")
        acked.refs["main"] = RefTarget("s")
    grow(a, "s", "4")
    acked.note(a, "s")
    b.fetch(A, "s")
    acked.note(b, "s")
    acked.moving = True
    pushed(a, b, "s", handover=True)
    grow(b, "s", "5")
    acked.note(b, "s")
    pushed(b, a, "s")
    acked.note(a, "s")


def judge(host: Host, acked: Acked, where: str, *, finish: bool) -> None:
    """Compare both stores with what was acknowledged; ``finish`` goes on until they agree."""
    try:
        with stores(host, A, B) as (a, b):
            _compare(a, b, acked, where)
            if finish:
                _finish(a, b, acked, where)
    except AgentSessionError as error:
        raise Violation(f"{where}: {type(error).__name__}: {error}") from error


def _compare(a: Store, b: Store, acked: Acked, where: str) -> None:
    for store in (a, b):
        faults = [each for each in store.fsck().findings if each.severity in ERRORS]
        if faults:
            raise Violation(f"{where}: {store.root}: {faults}")
    for (root, session), ids in acked.held.items():
        store = a if root == A else b
        if not store.holds(session) or own(store, session)[: len(ids)] != ids:
            raise Violation(f"{where}: {root} lost entries of {session}")
    for name, target in acked.refs.items():
        if b.resolve_ref(name) != target:
            raise Violation(f"{where}: {name} leads to {b.resolve_ref(name)}")
    if not b.holds("s"):
        return
    marks = mark(a, "s"), mark(b, "s")
    if "record" not in marks or (marks != ("record", "mirror") and not acked.moving):
        raise Violation(f"{where}: the marks are {marks}")
    record, mirror = (a, b) if marks[0] == "record" else (b, a)
    if marks != ("record", "record") and not set(own(mirror, "s")) <= set(own(record, "s")):
        raise Violation(f"{where}: the mirror knows more than the record")


def _finish(a: Store, b: Store, acked: Acked, where: str) -> None:
    """Do again what may have been cut short: it comes to its end, and both stores are the same."""
    if acked.moving:
        if mark(a, "s") == "record":
            pushed(a, b, "s", handover=True)
        grow(b, "s", "afterwards")
        done = pushed(b, a, "s")
    else:
        grow(a, "s", "afterwards")
        done = pushed(a, b, "s", refs=["main"])
        if any(ref.why for ref in done.refs):
            raise Violation(f"{where}: {done.refs}")
    if done.head.why or lines(a, "s") != lines(b, "s"):
        raise Violation(f"{where}: {done}")
    if pushed(b if acked.moving else a, a if acked.moving else b, "s").admitted:
        raise Violation(f"{where}: a repeated push is none")
    for store in (a, b):
        if any(name.startswith("incoming") for name in store.layout.host.fs.listdir(store.layout.tmp)):
            raise Violation(f"{where}: {store.root} keeps what was admitted")
        store.sweep(0)
    _compare(a, b, acked, f"{where}, finished and swept")
    if b.blob(next(iter(_blobs(a)))) != BLOB:
        raise Violation(f"{where}: the blob is gone")


def _blobs(store: Store) -> list[str]:
    from agentsession_cas.exchange.projection import session_blobs

    return session_blobs(store.read("s"))


Play = Callable[[Store, Store, Acked], None]


def power(per_cut: int, play: Play = scenario, *, every: int = 4) -> int:
    """Cut before every effect that settles something, and some others; how many images were judged.

    Every few of them are gone on from.
    """
    sim, acked, judged = machine(), Acked(), 0

    def cut(kind: str, path: str) -> None:
        nonlocal judged
        settles = kind in ("sync", "sync_dir", "rename")
        budget = per_cut if settles else 0 if sim.count % 5 else 1
        for image in sim.images(budget, seed=sim.count) if budget else ():
            judge(image.host, acked, f"{sim.count} {kind} {path} {image.story}", finish=judged % every == 0)
            judged += 1

    sim.watch(cut)
    with stores(sim.host, A, B) as (a, b):
        play(a, b, acked)
    sim.watch(None)
    for image in sim.images(8, seed=sim.count):
        judge(image.host, acked, f"end {image.story}", finish=True)
    return judged


def killed(start: int, stride: int, play: Play = scenario) -> int:
    """Kill the process after an effect, let another go on from what it sees, and cut the power in that one."""
    cuts = 0
    for at in range(start, 10_000, stride):
        sim, acked = machine(), Acked()
        sim.kill_after(at)
        try:
            with stores(sim.host, A, B) as (a, b):
                play(a, b, acked)
        except Killed:
            sim.kill("p1")
            sim.heal()
            judge(sim.process("p2"), acked, f"killed at {at}", finish=True)
            for image in sim.images(3, seed=sim.count):
                judge(image.host, acked, f"killed at {at}, finished, {image.story}", finish=False)
            cuts += 1
        else:
            return cuts
    raise AssertionError("the scenario never ends")


# --- several new sessions ---------------------------------------------------------------------------------------------

MANY: Final = ("one", "two", "three")


def many_sessions(push: Callable[[Store], object]) -> int:
    """Push three new sessions; what the disk may hold if the power goes is judged. How many images that was.

    Each is there as its record has it, or not at all; all are once that was acknowledged.
    """
    sim, judged = Sim(), 0
    with stores(sim.host, A, B) as (a, b):
        for number, session in enumerate(MANY):
            grow(a, session, *"12345"[: number + 1])

        def cut(kind: str, path: str) -> None:
            nonlocal judged
            settles = kind in ("sync", "sync_dir", "rename")
            for image in sim.images(2, seed=sim.count) if settles else ():
                _judge_many(image.host, f"{sim.count} {kind} {path} {image.story}", acknowledged=False)
                judged += 1

        sim.watch(cut)
        push(a)
        sim.watch(None)
        for image in sim.images(20, seed=1):
            _judge_many(image.host, f"end {image.story}", acknowledged=True)
        if a.push(B, all=True) or not b.fsck().ok:
            raise Violation("a repeated push is none")
    return judged


def _judge_many(host: Host, where: str, *, acknowledged: bool) -> None:
    with stores(host, A, B) as (a, b):
        there = b.session_ids()
        if not b.fsck().ok or (acknowledged and set(there) != set(MANY)):
            raise Violation(f"{where}: {there} {b.fsck().findings}")
        if any(lines(b, session) != lines(a, session) for session in there):
            raise Violation(f"{where}: half a session")
        a.push(B, all=True)
        if set(b.session_ids()) != set(MANY):
            raise Violation(f"{where}: it cannot be finished")
