"""What is remembered, what is asked, and what happens when the answer is not true any more (store.md A11)."""

from __future__ import annotations

import contextlib
import errno
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.core.packformat import Space
from agentsession_cas.errors import AgentSessionError, Changed, DiskError, HeaderDiffers, WriterPoisoned
from agentsession_cas.exchange import transfer
from agentsession_cas.exchange.endpoint import Delivery, Item, Manifest, Object, Receipt
from agentsession_cas.exchange.local import LocalEndpoint, names_of
from agentsession_cas.exchange.quarantine import Quarantine
from agentsession_cas.exchange.remembered import Remembered
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.testing.simfs import Killed, Sim
from tests.helpers.exchange import A, B, fetched, grow, lines, own, pushed, stores

Patch = pytest.MonkeyPatch


class Cut(Exception):
    """The connection is gone."""


@pytest.fixture
def two() -> Iterator[tuple[Store, Store]]:
    """Two empty stores."""
    with stores(Sim().host, A, B) as (a, b):
        yield a, b


def _incoming(store: Store) -> list[str]:
    return [name for name in store.layout.host.fs.listdir(store.layout.tmp) if name.startswith("incoming")]


# --- cut short -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrived", [0, 1, 5, 12])
def test_what_arrived_is_not_sent_again(two: tuple[Store, Store], monkeypatch: Patch, arrived: int) -> None:
    """The line drops after so many objects; the next push sends the rest."""
    a, b = two
    grow(a, "s", *"123456")
    monkeypatch.setattr(transfer, "_PIECE_BYTES", 1)
    take, taken = LocalEndpoint.take, 0

    def cut(self: LocalEndpoint, session: str, objects: Sequence[Object]) -> None:
        nonlocal taken
        if taken == arrived:
            raise Cut
        take(self, session, objects)
        taken += 1

    with monkeypatch.context() as patch:
        patch.setattr(LocalEndpoint, "take", cut)
        if arrived < 12:
            with pytest.raises(Cut):
                pushed(a, b, "s")
        else:
            patch.setattr(LocalEndpoint, "receive", _cut)
            with pytest.raises(Cut):
                pushed(a, b, "s")
    assert b.session_ids() == []
    assert pushed(a, b, "s").objects_sent == 12 - arrived
    assert lines(a, "s") == lines(b, "s")
    assert _incoming(b) == []


def _cut(*_: Any) -> Any:
    raise Cut


@pytest.mark.heavy
def test_what_a_power_cut_spoilt_in_the_quarantine_is_sent_again(monkeypatch: Patch) -> None:
    """Nothing there was synced, and nothing there is believed."""
    sim = Sim()
    with stores(sim.host, A, B) as (a, b):
        grow(a, "s", *"123456")
        with monkeypatch.context() as patch:
            patch.setattr(LocalEndpoint, "receive", _cut)
            with pytest.raises(Cut):
                pushed(a, b, "s")
        sent = set()
        for image in sim.images(30, seed=1):
            with stores(image.host, A, B) as (a2, b2):
                sent.add(pushed(a2, b2, "s").objects_sent)
                assert lines(a2, "s") == lines(b2, "s")
        assert {0, 12} <= sent


def test_a_refused_delivery_leaves_nothing(two: tuple[Store, Store]) -> None:
    """What had come with it is gone; no object is in the store."""
    a, b = two
    grow(a, "s", "1", "2")
    b.create(id="s", cwd="/elsewhere").close()
    with pytest.raises(HeaderDiffers):
        pushed(a, b, "s")
    assert _incoming(b) == []
    assert b.stats()["objects"] == {"loose": 0, "packed": 0, "packs": 0}


@pytest.mark.heavy
@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_one_side_dies_at_every_effect_and_the_other_goes_on(side: str, monkeypatch: Patch) -> None:
    """Two machines: the one that dies comes back with what its disk kept, the other never stopped."""
    at = 0
    while True:
        at += 1
        near, far = Sim(seed="near"), Sim(seed="far")
        a, b = _at(near, A), _at(far, B)
        grow(a, "s", "1", "2")
        _join(monkeypatch, a, b)
        pushed(a, B, "s")
        grow(a, "s", "3")
        dies = near if side == "sender" else far
        dies.kill_after(at)
        try:
            pushed(a, B, "s", handover=True)
        except (Killed, AgentSessionError):
            images = list(dies.images(2, seed=at))  # all that was not synced is there, or none of it
            image = images[at % len(images)]
            a, b = (_at(image, A), b) if side == "sender" else (a, _at(image, B))
            _join(monkeypatch, a, b)
            marks = {next(each.mark for each in store.list()) for store in (a, b)}
            assert "record" in marks
            if next(each.mark for each in a.list()) == "record":
                assert pushed(a, B, "s", handover=True).mark == "record"
            assert lines(a, "s") == lines(b, "s")
            assert [next(each.mark for each in store.list()) for store in (a, b)] == ["mirror", "record"]
            continue
        assert at > 5
        return


@pytest.mark.heavy
@pytest.mark.parametrize("forever", [False, True], ids=["once", "for ever"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("held", [False, True], ids=["new", "held"])
def test_the_receivers_disk_fails(held: bool, code: int, forever: bool, monkeypatch: Patch) -> None:
    """At one operation after the other: the error is typed, the session as it was or all there.

    The head may be where it was with the entries landed; what is done again comes to its end, and lasts.
    """
    failed = 0
    for at in itertools.count(1, 3):
        near, far = Sim(seed="near"), Sim(seed="far")
        a, b = _at(near, A), _at(far, B)
        _join(monkeypatch, a, b)
        if held:
            grow(a, "s", "1", "2")
            pushed(a, B, "s")
        before = (own(b, "s"), b.read("s").leaf) if held else None
        grow(a, "s", "3", "4")
        fault = far.fail(at, code, forever=forever)
        with contextlib.suppress(DiskError, WriterPoisoned):
            pushed(a, B, "s")
            assert forever or not fault.hits or lines(a, "s") == lines(b, "s")
        far.heal()
        if not fault.hits:
            break
        failed += 1
        b = _at(far, B)
        _join(monkeypatch, a, b)
        assert b.fsck().ok
        after = (own(a, "s"), a.read("s").leaf)
        there = (own(b, "s"), b.read("s").leaf) if b.holds("s") else None
        assert there in (before, after, (after[0], before[1] if before else ""))
        pushed(a, B, "s")
        far.clock.advance(40 * 86_400)
        b.sweep(0)  # what could not be let go of on a disk that fails, and nobody came back for
        assert _incoming(b) == []
        for image in far.images(2, seed=at):
            assert lines(_at(image, B), "s") == lines(a, "s")
    assert failed >= 2


def _at(sim: Sim, root: str) -> Store:
    sim.heal()
    return Store.open(root, create=True, host=sim.process("again"), background=False)


def _join(monkeypatch: Patch, a: Store, b: Store) -> None:
    """Let ``a`` reach ``b``, which is on another machine."""

    @contextmanager
    def reach(*_: Any) -> Iterator[Any]:
        yield LocalEndpoint(b._parts()), Remembered(a.layout, B)

    monkeypatch.setattr(Store, "_remote", reach)


# --- what is not true any more ---------------------------------------------------------------------------------------


def test_what_was_held_when_asked_may_be_gone(two: tuple[Store, Store], monkeypatch: Patch) -> None:
    """A sweep between question and delivery: it is asked again, and what went is sent."""
    a, b = two
    grow(a, "s", "1", "2")
    pushed(a, b, "s")
    b.delete("s")
    receive = LocalEndpoint.receive

    def swept(self: LocalEndpoint, delivery: Delivery) -> Receipt:
        monkeypatch.setattr(LocalEndpoint, "receive", receive)
        b.sweep(0)
        return receive(self, delivery)

    monkeypatch.setattr(LocalEndpoint, "receive", swept)
    assert pushed(a, b, "s").objects_sent == 4
    assert b.fsck().ok
    assert lines(a, "s") == lines(b, "s")


@pytest.mark.parametrize("there", [True, False])
def test_a_session_that_goes_or_comes_meanwhile(two: tuple[Store, Store], monkeypatch: Patch, there: bool) -> None:
    """Deleted after it was found, or made after it was not."""
    a, b = two
    grow(a, "s", "1", "2")
    if there:
        pushed(a, b, "s")
    grow(a, "s", "3")
    receive = LocalEndpoint.receive

    def changed(self: LocalEndpoint, delivery: Delivery) -> Receipt:
        monkeypatch.setattr(LocalEndpoint, "receive", receive)
        if there:
            b.delete("s")
        else:
            fetched(b, a, "s")
        return receive(self, delivery)

    monkeypatch.setattr(LocalEndpoint, "receive", changed)
    assert pushed(a, b, "s").created is there
    assert lines(a, "s") == lines(b, "s")


def test_it_is_not_asked_for_ever(two: tuple[Store, Store], monkeypatch: Patch) -> None:
    """A receiver that says so every time is believed in the end."""
    a, b = two
    grow(a, "s", "1")

    def always(self: LocalEndpoint, delivery: Delivery) -> Receipt:
        raise Changed("gone again")

    monkeypatch.setattr(LocalEndpoint, "receive", always)
    with pytest.raises(Changed):
        pushed(a, b, "s")


# --- what is remembered ----------------------------------------------------------------------------------------------


def test_a_push_costs_what_is_new(two: tuple[Store, Store], monkeypatch: Patch) -> None:
    """One entry more: one entry told, two objects sent, nobody asks for those before it or reads them."""
    a, b = two
    grow(a, "s", *map(str, range(1500)))
    pushed(a, b, "s")
    grow(a, "s", "new")
    told: list[Manifest] = []
    manifest = LocalEndpoint.manifest
    read = 0

    def listening(self: LocalEndpoint, session: str, after: int, *, prefix: bool) -> Manifest:
        told.append(manifest(self, session, after, prefix=prefix))
        return told[-1]

    def never(self: LocalEndpoint, session: str, entries: Sequence[str]) -> list[str]:
        raise AssertionError("asked for every entry")

    get = ObjectDatabase.get

    def counting(self: ObjectDatabase, *name: Any) -> bytes:
        nonlocal read
        read += 1
        return get(self, *name)

    monkeypatch.setattr(LocalEndpoint, "manifest", listening)
    monkeypatch.setattr(LocalEndpoint, "lacking", never)
    monkeypatch.setattr(ObjectDatabase, "get", counting)
    done = pushed(a, b, "s")
    assert (done.admitted, done.objects_sent) == (1, 2)
    assert [len(each.own) for each in told] == [1]
    assert read < 10


def _no_look(*_: Any, **__: Any) -> Any:
    raise AssertionError("a session was looked at")


def test_pushing_all_of_what_did_not_change_looks_at_no_session(monkeypatch: Patch) -> None:
    """Files' times are compared; what has changed since, on either side and however little, is seen all the same."""
    sim = Sim()
    with stores(sim.host, A, B) as (a, b):
        for session in "stu":
            grow(a, session, "1", "2")
        assert len(a.push(B, all=True)) == 3
        pushed(a, b, "u", handover=True)
        assert a.push(B, all=True) == []  # it is too soon to tell by times
        _settles(sim, a, monkeypatch)
        changes: list[tuple[str, Callable[[], object]]] = [
            ("s", lambda: grow(a, "s", "3")),
            ("s", lambda: a.set_head("s", a.read("s").leaf, own(a, "s")[0])),
            ("s", lambda: b.delete("s")),
            ("u", lambda: a.declare_record("u")),
        ]
        for session, change in changes:
            change()
            assert [each.session for each in a.push(B, all=True)] == [session]
            assert lines(a, session) == lines(b, session)
            _settles(sim, a, monkeypatch)


def _settles(sim: Sim, store: Store, monkeypatch: Patch) -> None:
    sim.clock.advance(5)
    assert store.push(B, all=True) == []
    with monkeypatch.context() as patch:
        for name in ("position", "manifest", "_state"):
            patch.setattr(LocalEndpoint, name, _no_look)
        assert store.push(B, all=True) == []


def test_what_is_remembered_is_not_believed(two: tuple[Store, Store]) -> None:
    """Whatever the files say, and whatever became of the remote: it ends up with the same bytes."""
    a, b = two
    grow(a, "s", "1", "2", "3")
    pushed(a, b, "s")
    fs = a.layout.host.fs
    top = f"{A}/logs/remotes"
    (name,) = fs.listdir(top)
    path = f"{top}/{name}/s"
    data = fs.read(path)
    assert data is not None
    file = fs.open(path, write=True)
    for spoilt in (b"", data[:-3], data.replace(b"3", b"7"), bytes(len(data)), b"[]", *(_flipped(data))):
        file.pwrite(spoilt.ljust(len(data)), 0)
        (new,) = grow(a, "s", "more")
        assert pushed(a, b, "s").head.current == new
        assert lines(a, "s") == lines(b, "s")
    file.close()
    b.delete("s")
    assert pushed(a, b, "s").created
    assert lines(a, "s") == lines(b, "s")


def _flipped(data: bytes) -> list[bytes]:
    return [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(0, len(data), 23)]


def test_a_remote_that_went_back_in_time(two: tuple[Store, Store]) -> None:
    """A copy of the remote from before the last push stands in its place: what it lacks is sent."""
    a, _ = two
    grow(a, "s", "1", "2")
    a.push(B, "s")
    old = Store.clone(B, "/old", host=a.layout.host)
    assert [each.admitted for each in old] == [2]
    grow(a, "s", "3", "4")
    a.push(B, "s")
    fs = a.layout.host.fs
    fs.rename(B, "/gone")
    fs.rename("/old", B)
    grow(a, "s", "5")
    with stores(a.layout.host, B) as (b,):
        assert pushed(a, b, "s").admitted == 3
        assert lines(a, "s") == lines(b, "s")


# --- what a receiver does not take -----------------------------------------------------------------------------------


def test_a_receiver_hashes_everything_again(two: tuple[Store, Store], monkeypatch: Patch) -> None:
    """Bytes of another name, a body that is not canonical, an envelope that is none, a parent that is not there."""
    a, b = two
    (one, two_) = grow(a, "s", "1", "2")
    load = LocalEndpoint.load

    def lying(self: LocalEndpoint, session: str, items: Sequence[Item], wanted: Any) -> Iterator[Object]:
        for space, digest, data in load(self, session, items, wanted):
            yield space, digest, data.replace(b'"1"', b'"x"')

    with monkeypatch.context() as patch:
        patch.setattr(LocalEndpoint, "load", lying)
        with pytest.raises(Changed):
            pushed(a, b, "s")
    assert b.session_ids() == []
    there = LocalEndpoint(b._parts())
    told = LocalEndpoint(a._parts()).manifest("s", 0, prefix=True)
    there.take("s", list(LocalEndpoint(a._parts()).load("s", told.own, set(_names(told.own)))))
    for wrong in ([two_], [two_, one], ["x"], [one, one.replace("sha256:", "sha256:0")[:71]]):
        delivery = Delivery(told.position.header, b"", [], wrong, one, None, force=False, follow=False)
        with pytest.raises(AgentSessionError):
            there.receive(delivery)
        there.take("s", list(LocalEndpoint(a._parts()).load("s", told.own, set(_names(told.own)))))
    assert b.session_ids() == []
    assert b.fsck().ok


def _names(items: Sequence[Item]) -> list[Any]:
    return [name for item in items for name in names_of(item)]


def test_bodies_that_hash_and_are_no_lines_are_refused(two: tuple[Store, Store]) -> None:
    """Everything has its hash, and is not what the format takes."""
    _, b = two
    there = LocalEndpoint(b._parts())
    header = Store.memory().create(id="s").header
    for body in (b'{"b":1,"a":2}', b'{"a":1 }', b"[]", b"", b'{"id":"x"}', b'{"a":1,"a":1}', b'{"label":"leaf"'):
        content = sha256(body).digest()
        envelope = (
            b'{"content":"sha256:' + content.hex().encode()
            + b'","parent":null,"ts":"2026-01-01T00:00:00Z","type":"info"}'
        )
        digest = sha256(envelope).digest()
        there.take("s", [(Space.CONTENTS, content, body), (Space.ENTRIES, digest, envelope)])
        id_ = f"sha256:{digest.hex()}"
        with pytest.raises(AgentSessionError):
            there.receive(Delivery(header, b"", [], [id_], id_, None, force=False, follow=False))
    assert b.session_ids() == []


def test_two_deliveries_of_one_session_share_a_quarantine() -> None:
    """One drops it while the other still adds: what the other adds next is there."""
    host = Sim().host
    with stores(host, A) as (a,):
        one, other = (Quarantine(host, a.layout.tmp, "s") for _ in range(2))
        def thing(data: bytes) -> Object:
            return Space.MEDIA, sha256(data).digest(), data

        one.add([thing(b"1")])
        other.add([thing(b"2"), thing(b"3")])
        assert sorted(one.objects().values()) == [b"1", b"2", b"3"]
        one.drop()
        one.drop()
        other.add([thing(b"4"), (Space.MEDIA, bytes(32), b"a lie")])
        assert list(one.objects().values()) == [b"4"]


def test_a_large_text_travels_whole(two: tuple[Store, Store]) -> None:
    """However it is kept on either side."""
    a, b = two
    text = "a long output " * 5000
    grow(a, "s", text)
    with a.open_session("s") as held:
        held.checkpoint()
        held.append(entry.user(text))
    pushed(a, b, "s")
    assert lines(a, "s") == lines(b, "s")
    assert len(own(b, "s")) == 2
    assert b.fsck().ok
