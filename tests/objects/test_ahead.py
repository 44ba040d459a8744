"""Blocks read ahead: what comes of them is what reading each by itself gives, and no thread is left behind."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core import zframes
from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.packformat import Block, Grade, Space, Table
from agentsession_cas.core.packspan import Span
from agentsession_cas.core.pieces import Cut, Skeleton, Stored, decode_skeleton, encode_stored, join, join_encoded
from agentsession_cas.core.slices import drain
from agentsession_cas.effects.host import Host
from agentsession_cas.effects.memory import memory_host
from agentsession_cas.errors import Corrupt
from agentsession_cas.objects import ObjectDatabase, inorder
from agentsession_cas.objects.ahead import HELPERS_MAX, Ahead, Helpers
from agentsession_cas.objects.pack import Pack
from tests.helpers.objects import body, lay_out
from tests.objects.test_inorder import OBJECTS, in_order, made, one_by_one, orders

NAME = "agentsession-ahead"


def at_work() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


@pytest.fixture
def store() -> Iterator[Host]:
    host = memory_host()
    made(host, "")
    yield host
    for thread in at_work():
        thread.join(10)
    assert not at_work()


BODIES = [
    body(canonical({"n": n, "text": f"{n:x}" * 99, "large": "l" * 5000 if n % 50 == 7 else ""})) for n in range(600)
]


@pytest.fixture
def everyday(store: Host) -> Host:
    """A store with many blocks of bodies one behind the other."""
    database = ObjectDatabase(store, "")
    database.publish(BODIES, loose_below=0)
    fresh = [pack for pack in database.packs() if pack.grade() is Grade.FRESH]
    drain(database.consolidator(nullcontext).merge(fresh, (), Grade.EVERYDAY, None))
    return store


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs so short that all there is makes many of them."""
    monkeypatch.setattr(inorder, "_SHORT", 1 << 12)
    monkeypatch.setattr(inorder, "_LONG", 1 << 15)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each thread that was asked for was started."""
    asked: list[bool] = []
    real = Helpers.start

    def noting(self: Helpers, work: Callable[[], None]) -> threading.Thread | None:
        thread = real(self, work)
        asked.append(thread is not None)
        return thread

    monkeypatch.setattr(Helpers, "start", noting)
    return asked


Answer = tuple[dict[bytes, bytes], dict[bytes, bytes], dict[int, list[bytes]], int]


def one_each(pack: Pack, first: int, last: int) -> Answer:
    """What blocks of bodies and pieces hold, as a pack reads each by itself."""
    whole: dict[bytes, bytes] = {}
    split: dict[bytes, bytes] = {}
    pieces: dict[int, list[bytes]] = {}
    for number in range(first, last + 1):
        space = pack.index().table.block(number).space
        if space is Space.CONTENTS:
            for digest, stored in zip(pack.block(number).digests(), objects_of(pack.block(number)), strict=True):
                (split if isinstance(stored, Skeleton) else whole)[digest] = encode_stored(stored)
        elif space is Space.PIECES:
            pieces[number] = pack.block(number).digests()
    return whole, split, pieces, last


def objects_of(block: Block) -> list[Stored]:
    return [block.stored(number) for number in range(block.first, block.first + len(block))]


def taken(ahead: Ahead) -> Answer:
    found = ahead.taken()
    assert ahead.pieces() is found.pieces
    return found.whole, found.split, {number: block.digests() for number, block in found.pieces.items()}, found.last


@pytest.mark.parametrize("many", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize("helped", [True, False], ids=["thread", "alone"])
def test_blocks_ahead_are_those_read_by_themselves(
    everyday: Host, monkeypatch: pytest.MonkeyPatch, many: bool, helped: bool
) -> None:
    monkeypatch.setattr(zframes, "_MANY", many and zframes._MANY)
    helpers = Helpers() if helped else None
    for pack in ObjectDatabase(everyday, "").packs():
        table = pack.index().table
        refs = [table.block(number) for number in range(table.blocks)]
        together = [at for at, ref in enumerate(refs) if ref.space in (Space.CONTENTS, Space.PIECES)]
        for size in (1 << 10, 1 << 14, 1 << 30):
            for first in range(0, table.blocks, 7):
                found = taken(Ahead(pack, first, size, helpers))
                last = found[-1]
                assert found == one_each(pack, first, last)
                assert sum(refs[at].raw for at in together if first <= at <= last) <= size
                if size == 1 << 30:
                    assert last == max((at for at in together if at >= first), default=-1)


@pytest.mark.parametrize("many", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize("space", [Space.CONTENTS, Space.PIECES])
def test_a_damaged_block_ends_it(everyday: Host, monkeypatch: pytest.MonkeyPatch, space: Space, many: bool) -> None:
    monkeypatch.setattr(zframes, "_MANY", many and zframes._MANY)
    packs = ObjectDatabase(everyday, "").packs()
    pack = max(packs, key=lambda each: each.index().table.blocks)
    table = pack.index().table
    bad = [number for number in range(table.blocks) if table.block(number).space is space][-1]
    good = one_each(pack, 0, bad - 1)
    file = everyday.fs.open(pack.path, write=True)
    ref = table.block(bad)
    file.pwrite(bytes(ref.size), ref.offset)
    found = taken(Ahead(pack, 0, 1 << 30, Helpers()))
    assert found[:3] == good[:3]
    assert found[3] < bad


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_table_that_makes_no_sense_ends_it(data: st.DataObject) -> None:
    [pack, *_] = ObjectDatabase(HELD, "").packs()
    true = pack.index().table
    file = HELD.fs.open(pack.path)
    at = data.draw(st.integers(0, true.blocks))
    offset = data.draw(st.sampled_from([8 * at, 8 * (true.blocks + 1) + 4 * at]))
    lying = bytearray(true.data)
    lying[offset : offset + 4] = data.draw(st.integers(0, 1 << 16)).to_bytes(4, "little")
    span = Span(Table(bytes(lying), true.blocks), 0, 1 << 20)
    span.fill(file.pread(span.size, span.start), {})
    span.expand()
    assert all(hashlib.sha256(each).digest() == name for name, each in span.taken().whole.items())


def test_a_frame_of_another_size_than_was_noted_ends_it() -> None:
    texts = [b"a" * 100, b"b" * 200, b"c" * 300]
    frames = zframes.Frames([zframes.compress(text) for text in texts], [100, 201, 300], None)
    frames.expand()
    assert frames.held() == texts[:1]


@given(orders)
@settings(max_examples=40, deadline=None)
def test_any_order_in_small_steps(order: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inorder, "_SHORT", 1 << 12)
        patch.setattr(inorder, "_LONG", 1 << 15)
        digests = [OBJECTS[at][1] for at in order if at < len(OBJECTS)]
        assert in_order(HELD, "", digests) == one_by_one(HELD, "", digests)


HELD = memory_host()
made(HELD, "")


def test_packs_are_merged_in_the_order_they_were_made_in() -> None:
    host = memory_host()
    lay_out(host.fs, "")
    database = ObjectDatabase(host, "")
    for first in range(0, len(BODIES), 60):
        database.publish(BODIES[first : first + 60], loose_below=0)
    drain(database.consolidator(nullcontext).merge(database.packs(), (), Grade.EVERYDAY, None))
    [merged] = database.packs()
    lie = [digest for space, digest, _ in merged.locations() if space is Space.CONTENTS]
    assert lie == [digest for _, digest, _ in BODIES]


@pytest.mark.usefixtures("small_steps")
def test_a_reader_that_goes_on_has_help(everyday: Host, started: list[bool]) -> None:
    digests = [digest for _, digest, _ in BODIES]
    assert in_order(everyday, "", digests[:10]) == [data for *_, data in BODIES[:10]]
    assert not started, "who wants little starts no thread"
    assert in_order(everyday, "", digests) == [data for *_, data in BODIES]
    assert started.count(True) > 2


@pytest.mark.usefixtures("small_steps")
def test_one_that_is_given_up_leaves_no_thread(everyday: Host, started: list[bool]) -> None:
    reading = ObjectDatabase(everyday, "").get_many(Space.CONTENTS, [digest for _, digest, _ in BODIES])
    while not started:
        next(reading)
    del reading
    for thread in at_work():
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.usefixtures("small_steps")
def test_without_threads_it_is_read_all_the_same(everyday: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert in_order(everyday, "", [digest for _, digest, _ in BODIES]) == [data for *_, data in BODIES]


def test_threads_are_few_and_none_outlives_the_close() -> None:
    helpers, go_on = Helpers(), threading.Event()

    def work() -> None:
        go_on.wait(10)

    threads = [helpers.start(work) for _ in range(HELPERS_MAX + 3)]
    assert sum(thread is not None for thread in threads) == HELPERS_MAX
    assert len(at_work()) == HELPERS_MAX
    threading.Timer(0.05, go_on.set).start()
    helpers.close()
    assert not at_work()
    assert helpers.start(work) is None


@pytest.mark.usefixtures("small_steps")
def test_a_database_that_is_closed_holds_nothing(
    everyday: Host, started: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    never, real = threading.Event(), Span.expand

    def slowly(self: Span) -> None:
        never.wait(0.01)
        real(self)

    monkeypatch.setattr(Span, "expand", slowly)
    database = ObjectDatabase(everyday, "")
    reader = database.in_order(Space.CONTENTS)
    for _, digest, data in BODIES[:300]:
        assert reader.get(digest) == data
    assert reader.whole
    assert any(started)
    database.close()
    assert not at_work()
    assert not reader.whole


@given(st.binary(max_size=200) | st.tuples(st.integers(0, 300), st.integers(0, 9), st.binary(max_size=90)))
@settings(max_examples=200, deadline=None)
def test_skeletons_are_put_together_as_they_lie(given_: bytes | tuple[int, int, bytes]) -> None:
    if isinstance(given_, bytes):
        data = given_
    else:
        offset, length, rest = given_
        words = b"".join(word.to_bytes(4, "little") for word in (1, offset, length))
        data = bytes(32) + words + b"p" * 32 + rest

    def piece(cut: Cut) -> bytes:
        return b"x" * min(cut.length, 7)

    def outcome(work: Callable[[], bytes]) -> bytes | type[Corrupt]:
        try:
            return work()
        except Corrupt:
            return Corrupt

    assert outcome(lambda: join_encoded(data, piece)) == outcome(lambda: join(decode_skeleton(data), piece))
