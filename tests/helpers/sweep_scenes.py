"""What a sweep is put through: power cuts, kills, other processes at every step; and the judge of what is left.

A scene plays on a machine whose store has something of everything: a pack that is dead in part, one that is dead, loose
objects, blobs and pieces that are, a fork and a pin whose origins are gone. Invariants: a session that is there is
whole, whatever happened, no body lacks a piece, and what a sweep that came through leaves is needed. A scene raises
Violation.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Any, Final, NamedTuple

from agentsession_cas import RefTarget, Store, entry
from agentsession_cas.core.entry import Entry, sidecar_blobs
from agentsession_cas.core.identity import hash_bytes
from agentsession_cas.core.packformat import Space
from agentsession_cas.effects.durable import remove_tree
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import AgentSessionError, StoreLocked
from agentsession_cas.sessions.chain import ChainSource
from agentsession_cas.testing.simfs import Killed, Sim
from tests.helpers.crashes import Unseen, Violation, cuts

__all__ = ["ACTS", "beside", "collected", "cut_short", "deleted_in_part", "lying_disk", "resumed", "swept", "within"]

PICTURE: Final = b"a picture that nobody names yet"
NAMED: Final = b"a picture that somebody names"
LONG: Final = {"a": "needed and dead " * 300, "b": "dead in a pack and in a file " * 200, "d": "dead in a file " * 300}
"""Texts long enough to be pieces, and who has them."""
DELETED: Final = "bodeh"
MANY: Final = 33
"""Entries whose objects make a pack."""

Act = Callable[[Store], None]
Lines = list[bytes]


class Scene(NamedTuple):
    """A machine, what its sessions say, those that are gone included, and a path that a pin keeps."""

    sim: Sim
    truth: dict[str, Lines]
    pinned: str


def opened(host: Host) -> Store:
    """The store, with nothing done behind anybody's back."""
    return Store.open("/store", create=True, host=host, background=False)


def picture(data: bytes) -> dict[str, Any]:
    """An entry that names a blob."""
    part = {"type": "input_image", "image_url": f"sidecar:{hash_bytes(data)}"}
    return {"type": "item", "item": {"type": "message", "role": "user", "content": [part]}}


def lines(store: Store, name: str) -> Lines:
    """A session as its lines, every body read."""
    return [each.line for each in store.read(name)]


@cache
def _scene() -> Scene:
    sim = Sim()
    with opened(sim.host) as store:
        for name, size in {"a": MANY, "b": MANY, "o": 9, "c": 2}.items():
            with store.create(id=name) as session:
                session.append_batch([entry.user(f"{name} {n} " * 9) for n in range(size)])
                session.append(entry.user(LONG["a" if name in "ac" else "b"]))
                session.checkpoint()
        with store.create(id="pictures", media="sidecar") as session:
            store.put_blob(NAMED)
            session.append(picture(NAMED))
            session.checkpoint()
        store.fork("o", store.read("o").source.entry_id(3), id="f").close()
        pinned = store.read("o").source.entry_id(6)
        store.update_ref("pin", None, RefTarget("o", pinned))
        store.repack()
        for name, size, texts in (("d", MANY, "ab"), ("e", 2, "bd"), ("h", MANY, "d")):
            with store.create(id=name) as session:
                session.append_batch([entry.user(f"{name} {n} " * 9) for n in range(size)])
                make = entry.user if name == "e" else entry.assistant
                session.append_batch([make(LONG[kind]) for kind in texts])
                session.checkpoint()
        store.fork("h", store.read("h").source.entry_id(3), id="k").close()
        store.put_blob(PICTURE)
        truth = {name: lines(store, name) for name in store.session_ids()}
        for name in DELETED:
            store.delete(name)
        for name in sim.host.fs.listdir("/store/trash")[1:]:
            remove_tree(sim.host.fs, f"/store/trash/{name}")
    return Scene(next(sim.images(1)), truth, pinned)


def scene() -> Scene:
    """A machine of one's own."""
    made = _scene()
    return made._replace(sim=made.sim.clone())


# --- judging ---------------------------------------------------------------------------------------------------------


def judge(host: Host, truth: dict[str, Lines], pinned: str, where: str, *, gone: bool = True) -> None:
    """Every session that is there is whole, as are the pinned path and what names blobs; those that must be there are.

    ``gone``: what was deleted was deleted durably.
    """
    with opened(host) as store:
        try:
            found = {name: lines(store, name) for name in store.session_ids()}
            path = len(ChainSource(store.objects, pinned))
            for each in (each for name in found for each in store.read(name)):
                for blob in sidecar_blobs(each.content):
                    store.blob(blob)
            broken = [each for each in store.objects.check() if each.severity == "error"]
        except AgentSessionError as error:
            raise Violation(f"{where}: {type(error).__name__}: {error}") from error
    if broken:
        raise Violation(f"{where}: {broken}")
    if halves := set(host.fs.listdir("/store/sessions")) - found.keys():
        raise Violation(f"{where}: {halves} are half there")
    for name, read in found.items():
        if name not in truth or read != truth[name]:
            raise Violation(f"{where}: {name} is another")
        if gone and name in DELETED:
            raise Violation(f"{where}: {name} is back")
    if missing := {"a", "c", "f", "k", "pictures"} - found.keys():
        raise Violation(f"{where}: {missing} are gone")
    if path != 7:
        raise Violation(f"{where}: {path} entries above the pin")


def _raw(body: Entry) -> bytes:
    return bytes.fromhex(body.content_hash.removeprefix("sha256:"))


def nothing_dead(store: Store, pinned: str, where: str) -> None:
    """All objects there are needed."""
    needed: set[tuple[Space, str]] = set()
    entries: list[Entry] = [each for name in store.session_ids() for each in store.read(name)]
    chain = ChainSource(store.objects, pinned)
    for each in [*entries, *map(chain.entry, range(len(chain)))]:
        needed.update([(Space.ENTRIES, each.id), (Space.CONTENTS, each.content_hash)])
        needed.update((Space.MEDIA, blob) for blob in sidecar_blobs(each.content))
        needed.update((Space.PIECES, f"sha256:{piece.hex()}") for piece in store.objects.names(_raw(each)).pieces)
    held = {(place.space, f"sha256:{place.digest.hex()}") for place in store.objects.iterate()}
    if held != needed:
        raise Violation(f"{where}: {len(held - needed)} dead objects are left, {len(needed - held)} lack")
    if findings := [each for each in store.fsck().findings if each.severity != "note" and each.code != "ref_dangling"]:
        raise Violation(f"{where}: {findings}")


# --- scenes ----------------------------------------------------------------------------------------------------------


def swept(store: Store) -> None:
    """A sweep that waits for nothing."""
    store.sweep(0)


def collected(store: Store) -> None:
    """All of a gc, its sweep without grace."""
    store.sweep(0)
    store.gc()
    store.repack(True)


def cut_short(act: Act, images: int = 5, part: str = "") -> int:
    """Cut the power at every effect on a path with that part; afterwards it is done again and comes through.

    How many images there were, of which equal ones were judged once.
    """
    sim, truth, pinned = scene()
    judged, unjudged, unfinished = 0, Unseen(), Unseen()
    with opened(sim.host) as store:
        at_part = ((where, cut) for where, cut in cuts(sim, lambda: act(store)) if part in where)
        for at, (where, cut) in enumerate(at_part):
            left = list(cut.images(images, tear=True))
            judged += len(left)
            last = list(unfinished.of(left[-1:])) if at % 3 == 0 else []
            for image in unjudged.of(left):
                judge(image.host, truth, pinned, f"{where}: {image.story}")
            for image in last:
                with opened(image.host) as again:
                    act(again)
                    nothing_dead(again, pinned, f"{where}, again")
    return judged


def resumed(act: Act, stride: int = 1) -> int:
    """Kill the process after each effect, let another write what was dead and sweep too, then cut the power.

    After how many effects the first came through.
    """
    unjudged = Unseen()
    for at in count(0, stride):
        sim, truth, pinned = scene()
        sim.kill_after(at)
        try:
            with opened(sim.host) as store:
                act(store)
            return at
        except Killed:
            sim.heal()
        with opened(sim.process("p2")) as other:
            _twin(other)
            judge(other.layout.host, truth | _twins(truth), pinned, f"killed at {at}, running")
            act(other)
            judge(other.layout.host, truth | _twins(truth), pinned, f"killed at {at}, swept")
        for image in unjudged.of(sim.images(4)):
            judge(image.host, truth | _twins(truth), pinned, f"killed at {at}: {image.story}")
    raise AssertionError


def deleted_in_part(images: int = 6, start: int = 0) -> int:
    """Whoever deletes a session is killed at each effect of that; another process sweeps; then the power is cut.

    How many effects a deletion has.
    """
    unjudged = Unseen()
    for at in count(start):
        sim, truth, pinned = scene()
        with opened(sim.host) as store, store.create(id="x") as session:
            session.append_batch([entry.user(f"x {n} " * 9) for n in range(2)])
            session.checkpoint()
            truth = {**truth, "x": lines(store, "x")}
        sim.kill_after(at)
        try:
            with opened(sim.host) as store:
                store.delete("x")
            return at
        except Killed:
            sim.heal()
        with opened(sim.process("p2")) as other:
            for where, cut in cuts(sim, lambda: other.sweep(0)):
                many = images if "/trash/" in where or where.endswith("/sessions") else 2
                for image in unjudged.of(cut.images(many)):
                    judge(image.host, truth, pinned, f"killed at {at}, {where}: {image.story}")
    raise AssertionError


def lying_disk() -> None:
    """What is written to a pack does not come back as it was."""
    sim, truth, pinned = scene()

    def flip(kind: str, path: str) -> None:
        if kind == "sync" and path.endswith(".pack"):
            sim.flip(path, 200)

    sim.watch(flip)
    with opened(sim.host) as store, suppress(AgentSessionError):
        store.sweep(0)
    sim.watch(None)
    judge(sim.host, truth, pinned, "with a disk that lies")


# --- beside others ---------------------------------------------------------------------------------------------------


def _twins(truth: dict[str, Lines]) -> dict[str, Lines]:
    return {f"twin-{name}": truth[name] for name in "be"}


def _twin(store: Store) -> None:
    """Sessions that say what dead ones said."""
    truth = _scene().truth
    for name in "be":
        with store.create(id=f"twin-{name}") as session:
            session.append_batch([Entry.from_line(line) for line in truth[name]])
            session.checkpoint()


def _twin_undone(store: Store) -> None:
    """The same, and away again."""
    _twin(store)
    for name in "be":
        store.delete(f"twin-{name}")


def _name(store: Store) -> None:
    """Name a blob that is dead; one that is not found is put."""
    with store.create(id="namer", media="sidecar") as session:
        if session.append(picture(PICTURE)).unresolved:
            store.put_blob(PICTURE)


def _put(store: Store) -> None:
    """Put a blob again, and only then name it."""
    store.put_blob(PICTURE)
    with store.create(id="putter", media="sidecar") as session:
        if session.append(picture(PICTURE)).unresolved:
            raise Violation("a blob that was put just now is gone")


def _fork(store: Store) -> None:
    """Fork what is not checkpointed, and let the origin go."""
    with store.create(id="origin") as origin:
        first = origin.append(entry.user("only in a journal")).id
        store.fork("origin", first, id="child").close()
    store.delete("origin")


def _fork_of_fork(store: Store) -> None:
    """Fork a fork whose origin is gone, in the middle of its path."""
    store.fork("f", store.read("f").source.entry_id(1), id="grandchild").close()


def _maintain(store: Store) -> None:
    """What is refused beside a sweep, or waits for it."""
    store.repack()


ACTS: Final[dict[str, Act]] = {
    act.__name__.strip("_"): act for act in (_twin, _twin_undone, _name, _put, _fork, _fork_of_fork, _maintain)
}


def beside(act: Act, *, start: int = 0, stride: int = 1, warm: bool = False) -> int:
    """Let another process act wholly within each effect of a sweep, and each step it tells of; how many there were.

    ``warm``: that process has published the dead objects itself, and remembers it.
    """
    unjudged = Unseen()
    for at in count(start, stride):
        sim, truth, pinned = scene()
        other = opened(sim.process("p2"))
        if warm:
            _twin_undone(other)
        turn = _Turn(at, lambda: act(other))  # noqa: B023 - called in this round
        sim.watch(lambda _kind, _path: turn.step())  # noqa: B023
        with opened(sim.host) as store:
            store.sweep(0, progress=lambda done, total: turn.step() if total < 256 or done % 64 == 0 else None)  # noqa: B023
        sim.watch(None)
        if not turn.came:
            return at
        if turn.refused:
            act(other)
        known = truth | _twins(truth) | _told(other)
        judge(other.layout.host, known, pinned, f"beside step {at}")
        other.sweep(0)
        for image in unjudged.of(sim.images(3)):
            judge(image.host, known, pinned, f"beside step {at}: {image.story}")
    raise AssertionError


def within(act: Act, *, start: int = 0, stride: int = 1) -> int:
    """Let another process sweep within each effect of what a process does; how many effects there were."""
    unjudged = Unseen()
    for at in count(start, stride):
        sim, truth, pinned = scene()
        sweeper = opened(sim.process("p2"))
        turn = _Turn(at, lambda: sweeper.sweep(0))  # noqa: B023 - called in this round
        sim.watch(lambda _kind, _path: turn.step())  # noqa: B023
        with opened(sim.host) as store:
            act(store)
            sim.watch(None)
            if not turn.came:
                return at
            known = truth | _twins(truth) | _told(store)
        judge(sim.host, known, pinned, f"within effect {at}")
        for image in unjudged.of(sim.images(3)):
            judge(image.host, known, pinned, f"within effect {at}: {image.story}")
    raise AssertionError


def _told(store: Store) -> dict[str, Lines]:
    """What sessions say that are as somebody made them just now."""
    return {
        name: lines(store, name)
        for name in ("namer", "putter", "child", "grandchild")
        if store.holds(name)
    }


class _Turn:
    """Lets somebody act at one step; held off by a lock, he is refused."""

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        self._left = at
        self._act = act
        self._acting = False
        self.came = False
        self.refused = False

    def step(self) -> None:
        """Another step of the sweep."""
        if self._acting:
            return
        self._left -= 1
        if self._left == -1:
            self.came = self._acting = True
            try:
                self._act()
            except StoreLocked:
                self.refused = True
            self._acting = False
