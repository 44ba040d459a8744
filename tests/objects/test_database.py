"""The object database as its users see it: round trips, several databases over one directory, threads."""

from __future__ import annotations

import gc
import hashlib
import os
import random
import shutil
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.packformat import Block, Grade
from agentsession_cas.core.packindex import Index
from agentsession_cas.core.slices import drain
from agentsession_cas.effects.host import Host, real_host
from agentsession_cas.effects.memory import memory_host
from agentsession_cas.errors import Closed, Corrupt, NoObject
from agentsession_cas.objects import ObjectDatabase, Space, packs, publish
from agentsession_cas.objects import pack as one_pack
from agentsession_cas.objects.database import Location
from tests.helpers.objects import Object, lay_out, named


def store(host: Host, root: str) -> str:
    lay_out(host.fs, root)
    return root


def some(n: int, start: int = 0) -> list[Object]:
    return [named(Space(k % 3), b'{"n":%d}' % k * (1 + k % 50)) for k in range(start, start + n)]


def mixed() -> tuple[Host, str]:
    host = memory_host()
    return host, store(host, "")


@pytest.fixture
def root(tmp_path: Path) -> str:
    return store(real_host(), str(tmp_path))


@pytest.fixture
def database(root: str) -> ObjectDatabase:
    return ObjectDatabase(real_host(), root)


def absent(database: ObjectDatabase, wanted: Object) -> bool:
    try:
        database.get(wanted[0], wanted[1])
    except NoObject:
        return True
    return False


# --- round trips -----------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(Space), st.binary(max_size=300)), min_size=1, max_size=30),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 20),
)
@settings(max_examples=50, deadline=None)
def test_equals_a_dictionary(batches: list[list[tuple[Space, bytes]]], loose_below: int) -> None:
    host, root = mixed()
    database = ObjectDatabase(host, root)
    model: dict[tuple[Space, bytes], bytes] = {}
    for batch in batches:
        objects = [named(space, data) for space, data in batch]
        lacking = {(space, name): data for space, name, data in objects if (space, name) not in model}
        done = database.publish(objects, loose_below=loose_below)
        assert done.loose + done.packed == len(lacking)
        assert done.held == len({(space, name) for space, name, _ in objects}) - len(lacking)
        assert (done.packed > 0) == (len(lacking) >= loose_below and len(lacking) > 0) == bool(done.pack)
        model |= lacking
    for reader in (database, ObjectDatabase(host, root)):
        assert {(space, name): reader.get(space, name) for space, name in model} == model
        assert sorted(at[:2] for at in reader.iterate()) == sorted(model)
        for space in Space:
            assert sorted(at.digest for at in reader.iterate(space)) == sorted(d for s, d in model if s is space)
            assert not reader.holds(space, hashlib.sha256(b"nowhere").digest())
        assert list(reader.check()) == []
        stats = reader.stats()
        assert stats.loose + stats.packed == len(model)
        assert stats.logical_bytes == sum(map(len, model.values()))


def test_layout_on_disk(database: ObjectDatabase, root: str) -> None:
    wanted = named(Space.CONTENTS, b"hello")
    database.publish([wanted])
    digest = wanted[1].hex()
    path = Path(root, "objects", "contents", digest[:2], digest[2:])
    assert path.read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
    done = database.publish(some(64))
    pack = Path(root, "objects", "pack", f"{done.pack}.pack")
    assert pack.name == f"pack-{hashlib.sha256(pack.read_bytes()).hexdigest()}.pack"
    assert pack.with_suffix(".idx").exists()
    assert os.listdir(Path(root, "tmp")) == []
    assert {path.stat().st_mode & 0o777 for path in Path(root, "objects").rglob("*") if path.is_file()} == {0o600}


def test_the_same_again_writes_nothing(database: ObjectDatabase, root: str) -> None:
    objects = some(100) + some(10, 200)
    database.publish(objects[:100])
    database.publish(objects[100:])
    before = sorted(Path(root).rglob("*"))
    for again in (database, ObjectDatabase(real_host(), root)):
        done = again.publish(objects + objects[:5])
        assert (done.held, done.loose, done.packed) == (110, 0, 0)
    assert sorted(Path(root).rglob("*")) == before


def test_bytes_under_a_wrong_name_are_refused_before_anything_is_written(database: ObjectDatabase, root: str) -> None:
    wrong = (Space.ENTRIES, hashlib.sha256(b"a").digest(), b"b")
    with pytest.raises(Corrupt):
        database.publish([*some(100), wrong])
    assert list(database.iterate()) == []
    assert list(Path(root, "objects", "pack").iterdir()) == []


def test_one_name_in_two_spaces(database: ObjectDatabase) -> None:
    content, medium = named(Space.CONTENTS, b"same"), named(Space.MEDIA, b"same")
    database.publish([content])
    assert absent(database, medium)
    database.publish([*some(100), medium])
    assert database.get(*medium[:2]) == database.get(*content[:2]) == b"same"
    assert absent(database, named(Space.ENTRIES, b"same"))


def test_too_long_for_a_pack(database: ObjectDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "PACKED_MAX", 1000)
    long = named(Space.MEDIA, bytes(1001))
    done = database.publish([*some(70), long])
    assert (done.loose, done.packed) == (1, 70)
    assert database.get(*long[:2]) == long[2]


def test_empty_and_large(database: ObjectDatabase) -> None:
    bodies = (b"", os.urandom(5 << 20), bytes(9 << 20))
    objects = [named(Space.MEDIA, body) for body in bodies]
    for loose_below in (64, 0):
        database.publish(objects, loose_below=loose_below)
        database.publish(some(5, 10 * loose_below), loose_below=loose_below)
        assert [database.get(space, name) for space, name, _ in objects] == [data for *_, data in objects]


def test_nothing_to_do(database: ObjectDatabase) -> None:
    assert database.publish([]).held == 0
    assert database.stats().packs == 0
    assert [*database.iterate(), *database.check()] == []


def test_closed(database: ObjectDatabase) -> None:
    with database:
        database.publish(some(70))
    with pytest.raises(Closed):
        database.get(*some(1)[0][:2])
    with pytest.raises(Closed):
        database.publish(some(1))
    database.close()


def blocks_in_memory() -> set[int]:
    return {id(each) for each in gc.get_objects() if isinstance(each, Block)}


def test_a_closed_database_that_is_still_held_keeps_no_blocks(root: str) -> None:
    objects = some(200)
    before = blocks_in_memory()
    database = ObjectDatabase(real_host(), root)
    database.publish(objects)
    for space, digest, data in objects:
        assert database.get(space, digest) == data
    assert blocks_in_memory() - before
    database.close()
    assert not blocks_in_memory() - before


def test_iterate_says_where(database: ObjectDatabase, root: str) -> None:
    loose, packed = some(3), some(3000, 100)
    database.publish(loose)
    stem = database.publish(packed).pack
    places = list(database.iterate())
    assert [at.digest for at in places if at.block is None] == [
        name for space in Space for name in sorted(d for s, d, _ in loose if s is space)
    ]
    lying = [at for at in places if at.block is not None]
    assert {at.path for at in lying} == {f"{root}/objects/pack/{stem}.pack"}
    blocks = [at.block for at in lying if at.block is not None]
    assert blocks == sorted(blocks)
    assert blocks[-1] > 0
    for space in Space:  # the order they were published in
        assert [at.digest for at in lying if at.space is space] == [d for s, d, _ in packed if s is space]


def test_stats(database: ObjectDatabase, root: str) -> None:
    database.publish(some(5))
    database.publish(some(100, 10))
    sizes = {path: path.stat().st_size for path in Path(root, "objects").rglob("*") if path.is_file()}
    stats = database.stats()
    assert (stats.loose, stats.packed, stats.packs) == (5, 100, 1)
    assert stats.pack_bytes == sum(size for path, size in sizes.items() if path.parent.name == "pack")
    assert stats.loose_bytes + stats.pack_bytes == sum(sizes.values())
    assert stats.logical_bytes == sum(len(data) for *_, data in some(5) + some(100, 10))


# --- others at work --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 100])
def test_what_another_process_publishes_is_found(root: str, n: int) -> None:
    one, other = ObjectDatabase(real_host(), root), ObjectDatabase(real_host(), root)
    objects = some(n)
    assert absent(one, objects[0])
    other.publish(objects)
    assert [one.get(space, name) for space, name, _ in objects] == [data for *_, data in objects]
    more = some(n, 1000)
    other.publish(more)
    assert [one.get(space, name) for space, name, _ in more] == [data for *_, data in more]


def repacked(root: str, spare: str, objects: list[Object]) -> None:
    """Put all objects into one new pack and take away what there was: the effects of a repack."""
    ObjectDatabase(real_host(), store(real_host(), spare)).publish(objects, loose_below=0)
    old = [path for path in Path(root, "objects").rglob("*") if path.is_file()]
    for made in Path(spare, "objects", "pack").iterdir():
        shutil.copy(made, Path(root, "objects", "pack"))
    for path in sorted(old, key=lambda path: path.suffix != ".idx"):
        path.unlink()


@pytest.mark.parametrize("loose_below", [0, 1000])
@pytest.mark.parametrize("warm", [True, False])
def test_what_a_repack_moved_is_found(root: str, tmp_path: Path, loose_below: int, warm: bool) -> None:
    database = ObjectDatabase(real_host(), root)
    objects = some(100)
    ObjectDatabase(real_host(), root).publish(objects, loose_below=loose_below)
    ObjectDatabase(real_host(), root).publish(some(50, 500), loose_below=loose_below)
    if warm:
        database.get(*objects[0][:2])
    (tmp_path / "spare").mkdir()
    repacked(root, str(tmp_path / "spare"), objects + some(50, 500))
    assert [database.get(space, name) for space, name, _ in objects] == [data for *_, data in objects]
    assert list(database.check()) == []
    assert len(list(database.iterate())) == 150


def test_a_repack_in_the_middle_of_a_listing_hides_nothing(root: str, tmp_path: Path) -> None:
    database = ObjectDatabase(real_host(), root)
    objects = some(40)
    database.publish(objects[:20], loose_below=0)
    database.publish(objects[20:], loose_below=0)
    (tmp_path / "spare").mkdir()
    listing = database.iterate()
    seen: list[Location] = [next(listing)]
    repacked(root, str(tmp_path / "spare"), objects)
    seen += listing
    assert {at[:2] for at in seen} == {wanted[:2] for wanted in objects}


def test_threads_read_while_one_publishes_and_one_closes_packs(root: str, tmp_path: Path) -> None:
    database = ObjectDatabase(real_host(), root)
    objects = [*some(150), *some(10, 500)]
    database.publish(objects[:150])
    database.publish(objects[150:])
    failed: list[BaseException] = []
    stop = threading.Event()

    def read(seed: int) -> None:
        rng = random.Random(seed)
        try:
            while not stop.is_set():
                space, name, data = rng.choice(objects)
                assert database.get(space, name) == data
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for k in range(10):
        database.publish(some(70, 1000 * (k + 1)))
        if k % 3 == 2:
            spare = tmp_path / f"spare{k}"
            spare.mkdir()
            repacked(root, str(spare), objects + [o for j in range(k + 1) for o in some(70, 1000 * (j + 1))])
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == []


def test_two_threads_publish_the_same(root: str) -> None:
    database = ObjectDatabase(real_host(), root)
    failed: list[BaseException] = []

    def write(start: int) -> None:
        try:
            for k in range(20):
                database.publish(some(10, start + 5 * k))
                database.publish(some(70, start + 100 * k))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(start,)) for start in (0, 0, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert list(database.check()) == []
    for wanted in some(105):
        assert database.get(*wanted[:2]) == wanted[2]


# --- memory ----------------------------------------------------------------------------------------------------------


def test_blocks_kept_are_bounded_in_bytes(root: str) -> None:
    objects = some(3000)
    ObjectDatabase(real_host(), root).publish(objects)
    for cache_max in (0, 200_000):
        database = ObjectDatabase(real_host(), root, cache_max=cache_max)
        cache = database._packs._cache
        for space, name, data in objects:
            assert database.get(space, name) == data
            assert sum(block.size for block in cache._blocks.values()) == cache._size <= cache_max
        assert len(cache._blocks) > 1 or not cache_max


@pytest.mark.parametrize("known_max", [packs.KNOWN_MAX, 150, 0])
def test_what_lies_in_many_packs_is_found(root: str, monkeypatch: pytest.MonkeyPatch, known_max: int) -> None:
    """However many keys are kept in memory, and when packs come and go."""
    monkeypatch.setattr(packs, "KNOWN_MAX", known_max)
    database = ObjectDatabase(real_host(), root)
    for k in range(6):
        database.publish(some(70, 70 * k))
        assert database.publish(some(70 * (k + 1))).held == 70 * (k + 1)
        again = ObjectDatabase(real_host(), root)
        done = again.publish([*some(70 * (k + 1)), *some(5, 10_000 + 10 * k)])
        assert (done.held, done.loose) == (70 * (k + 1), 5)
        assert len(again._packs._known) <= known_max
    moves = database.consolidator(nullcontext)
    drain(moves.merge(database.packs(), (), Grade.EVERYDAY, None))
    database.forget()
    done = database.publish([*some(420), *some(64, 20_000)], loose_below=0)
    assert (done.held, done.packed) == (420, 64)


def test_the_newest_packs_are_opened_first(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their names are: the objects of a pack are found with no more idx files open than packs as new."""
    batches = [some(8, 8 * at) for at in range(7)]
    for at, batch in enumerate(batches):
        with ObjectDatabase(real_host(), root) as database:
            before = {pack.stem for pack in database.packs()}
            database.publish(batch, loose_below=1)
            (stem,) = {pack.stem for pack in database.packs()} - before
        os.utime(f"{root}/objects/pack/{stem}.pack", ns=(0, at * 10**9))
    opened: list[int] = []

    def count(data: bytes | memoryview) -> Index:
        opened.append(1)
        return Index(data)

    monkeypatch.setattr(one_pack, "Index", count)
    for at, batch in enumerate(reversed(batches), 1):
        with ObjectDatabase(real_host(), root) as database:
            opened.clear()
            assert [database.get(space, digest) for space, digest, _ in batch] == [data for _, _, data in batch]
            assert len(opened) == at


def test_remembered_objects_are_bounded(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "REMEMBERED_MAX", 100)
    database = ObjectDatabase(real_host(), root)
    for k in range(10):
        database.publish(some(30, 30 * k))
        assert len(database._publisher._durable) == min(100, 30 * (k + 1))
    assert set(database._publisher._durable) >= {bytes([space]) + name for space, name, _ in some(90, 210)}
