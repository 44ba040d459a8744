"""Reading many objects gives what reading each by itself gives, damage and all."""

from __future__ import annotations

import hashlib
import random
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.packer import BLOCK_RAW, Packer
from agentsession_cas.core.packformat import Grade
from agentsession_cas.core.packindex import encode_index
from agentsession_cas.core.pieces import Cut, Skeleton
from agentsession_cas.core.slices import drain
from agentsession_cas.effects.host import Host, real_host
from agentsession_cas.effects.memory import memory_host
from agentsession_cas.errors import AgentSessionError, Closed, Corrupt, NoObject
from agentsession_cas.objects import ObjectDatabase, Space
from agentsession_cas.objects.archive import Archiver
from agentsession_cas.objects.packs import Place
from tests.helpers.objects import Object, body, lay_out, named

Answer = bytes | tuple[type[AgentSessionError], bool]


def bodies(count: int) -> list[Object]:
    """Small ones, long ones with pieces of their own or shared, of the same length or not; the empty one."""
    chance = random.Random(7)
    shared = ["s" * 5000, "t" * 5000, "u" * 4100]
    texts = ["x" * 9, *shared, "v" * 6000]
    made = [canonical({"n": n, "a": chance.choice(texts), "b": [chance.choice(texts)]}) for n in range(count)]
    return [body(data) for data in (*made, b"")]


OBJECTS = bodies(200)
ABSENT = hashlib.sha256(b"nowhere").digest()


def answer(read: Callable[[bytes], bytes], digest: bytes) -> Answer:
    """Which of several damages an error tells of depends on the pack looked into first, so that is not compared."""
    try:
        return read(digest)
    except AgentSessionError as error:
        return type(error), error.where != ""


def one_by_one(host: Host, root: str, digests: Sequence[bytes]) -> list[Answer]:
    """What a database that holds nothing in memory says of each."""
    database = ObjectDatabase(host, root, cache_max=0)
    return [answer(lambda each: database.get(Space.CONTENTS, each), digest) for digest in digests]


def in_order(host: Host, root: str, digests: Sequence[bytes]) -> list[Answer]:
    read = ObjectDatabase(host, root).in_order(Space.CONTENTS).get
    return [answer(read, digest) for digest in digests]


def made(host: Host, root: str) -> None:
    """Bodies in an archive, an everyday pack, fresh ones and loose files."""
    lay_out(host.fs, root)
    database = ObjectDatabase(host, root)
    database.publish(OBJECTS[:30], loose_below=0)
    moves = database.consolidator(nullcontext)
    drain(Archiver(moves, database.packs(), None).run([wanted[:2] for wanted in OBJECTS[:30]]))
    database.publish(OBJECTS[30:140], loose_below=0)
    drain(moves.merge([pack for pack in database.packs() if pack.grade() is Grade.FRESH], (), Grade.EVERYDAY, None))
    database.publish(OBJECTS[140:170], loose_below=0)
    database.publish(OBJECTS[170:190], loose_below=0)
    database.publish(OBJECTS[190:])


@pytest.fixture(scope="module")
def whole() -> tuple[Host, str]:
    host = memory_host()
    made(host, "")
    return host, ""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made(real_host(), str(tmp_path))
    return tmp_path


ranges = st.builds(
    lambda start, count, step: list(range(len(OBJECTS)))[start::step][:count],
    st.integers(0, len(OBJECTS) - 1),
    st.integers(1, 120),
    st.sampled_from([1, 1, 2, -1, 7]),
)
orders = st.lists(ranges | st.lists(st.integers(0, len(OBJECTS)), max_size=10), max_size=6).map(
    lambda parts: [at for part in parts for at in part]
)


@given(orders)
@settings(max_examples=80, deadline=None)
def test_any_order(whole: tuple[Host, str], order: list[int]) -> None:
    digests = [OBJECTS[at][1] if at < len(OBJECTS) else ABSENT for at in order]
    assert in_order(*whole, digests) == one_by_one(*whole, digests)


def test_packs_with_blocks_of_any_size_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    digests = [digest for _, digest, _ in OBJECTS]
    for size in (1, 500, 1 << 18):
        monkeypatch.setitem(BLOCK_RAW, Grade.EVERYDAY, dict.fromkeys(Space, size))
        host = memory_host()
        made(host, "")
        assert in_order(host, "", digests) == one_by_one(host, "", digests) == [data for *_, data in OBJECTS]


def test_a_body_of_an_everyday_pack_lies_in_a_small_block(root: Path) -> None:
    database = ObjectDatabase(real_host(), str(root))
    [pack] = [pack for pack in database.packs() if pack.grade() is Grade.EVERYDAY]
    table = pack.index().table
    refs = [table.block(number) for number in range(table.blocks)]
    assert sum(ref.space is Space.CONTENTS for ref in refs) > 1
    assert all(ref.raw < 5000 for ref in refs if ref.space is Space.CONTENTS)


def test_all_of_it_is_read_by_few_looks_into_an_idx(whole: tuple[Host, str], monkeypatch: pytest.MonkeyPatch) -> None:
    database = ObjectDatabase(*whole)
    asked: list[bytes] = []
    seek = database._packs.seek

    def counted(space: Space, digest: bytes) -> Place | None:
        asked.append(digest)
        return seek(space, digest)

    monkeypatch.setattr(database._packs, "seek", counted)
    wanted = [wanted for wanted in OBJECTS if wanted[2]]
    assert list(database.get_many(Space.CONTENTS, [digest for _, digest, _ in wanted])) == [d for *_, d in wanted]
    assert len(asked) < len(wanted) / 2


@given(st.data())
@settings(max_examples=30, deadline=None, phases=(Phase.generate,))
def test_damage_is_told_as_it_is_one_by_one(data: st.DataObject) -> None:
    host = memory_host()
    made(host, "")
    files = sorted(f"/objects/pack/{name}" for name in host.fs.listdir("/objects/pack"))
    for path in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=3, unique=True)):
        held = host.fs.read(path)
        assert held is not None
        at = data.draw(st.integers(0, len(held) - 1))
        host.fs.unlink(path)
        if data.draw(st.integers(0, 4)):
            file = host.fs.create(path)
            file.pwrite(held[:at] + bytes([held[at] ^ 1 << at % 8]) + held[at + 1 :], 0)
            file.close()
    digests = [digest for _, digest, _ in OBJECTS]
    read = in_order(host, "", digests)
    assert read == one_by_one(host, "", digests)
    assert all(not isinstance(got, bytes) or got == data for got, (*_, data) in zip(read, OBJECTS, strict=True))


@pytest.mark.parametrize("grade", [Grade.FRESH, Grade.EVERYDAY])
def test_what_lies_in_another_space_is_not_served(root: Path, grade: Grade) -> None:
    database = ObjectDatabase(real_host(), str(root))
    texts = [b'{"k":%d,"text":"%s"}' % (k, b"y" * (k % 900)) for k in range(300)]
    objects = [named(Space(k % 2), text) for k, text in enumerate(texts)]
    pack = database.publish(objects, loose_below=0).pack
    if grade is Grade.EVERYDAY:
        inputs = [each for each in database.packs() if each.stem == pack]
        drain(database.consolidator(nullcontext).merge(inputs, (), grade, None))
    for wanted in (Space.ENTRIES, Space.CONTENTS):
        read = database.in_order(wanted).get
        for space, digest, text in objects:
            if space is wanted:
                assert read(digest) == text
            else:
                with pytest.raises(NoObject):
                    read(digest)


def misnamed(root: Path, stored: Sequence[tuple[Space, bytes, bytes | Skeleton]]) -> None:
    """A pack whose checksums are right and whose objects are other ones than its idx says."""
    packer = Packer()
    parts = [packer.add(*each) for each in stored]
    end = packer.finish()
    data = b"".join([*parts, end.tail])
    stem = root / "objects" / "pack" / f"pack-{end.name.hex()}"
    stem.with_suffix(".pack").write_bytes(data)
    stem.with_suffix(".idx").write_bytes(encode_index(end.name, end.size, end.table, list(end.keys)))


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    lay_out(real_host().fs, str(tmp_path))
    return tmp_path


def test_what_does_not_hash_to_its_name_is_not_served(bare: Path) -> None:
    good = [body(b'{"n":%d}' % n) for n in range(9)]
    stored = [(space, digest, data if n != 5 else b"another") for n, (space, digest, data) in enumerate(good)]
    misnamed(bare, stored)
    digests = [digest for _, digest, _ in good]
    read = in_order(real_host(), str(bare), digests)
    assert read == one_by_one(real_host(), str(bare), digests)
    assert [isinstance(got, bytes) for got in read] == [n != 5 for n in range(9)]


def test_a_body_whose_pieces_are_others_is_not_served(bare: Path) -> None:
    texts = [c * 5000 for c in (b"a", b"b", b"c")]
    pieces = [named(Space.PIECES, text) for text in texts]
    whole = [body(b'{"t":"%s"}' % text) for text in texts]
    skeletons = [
        (space, digest, Skeleton(digest, (Cut(6, 5000, piece[1]),), b'{"t":""}'))
        for (space, digest, _), piece in zip(whole, pieces, strict=True)
    ]
    wrong = (Space.PIECES, pieces[1][1], b"x" * 5000)
    misnamed(bare, [pieces[0], wrong, pieces[2], *skeletons])
    digests = [digest for _, digest, _ in whole] * 2
    read = in_order(real_host(), str(bare), digests)
    assert read == one_by_one(real_host(), str(bare), digests)
    assert [isinstance(got, bytes) for got in read] == [True, False, True] * 2


def test_long_bodies_are_not_held(bare: Path) -> None:
    database = ObjectDatabase(real_host(), str(bare), cache_max=0)
    size = 5 << 20
    short = [body(b'{"n":%d}' % n) for n in range(4)]
    long = [body(b'{"n":%d,"many":[%s0]}' % (n, b"0," * (size // 2))) for n in range(4)]
    for each in zip(short, long, strict=True):
        database.publish(each, loose_below=0)
    drain(database.consolidator(nullcontext).merge(database.packs(), (), Grade.EVERYDAY, None))
    read = database.in_order(Space.CONTENTS).get
    tracemalloc.start()
    try:
        for (_, first, _), (_, second, _) in zip(short, long, strict=True):
            read(first)
            read(first)
            read(first)
            assert hashlib.sha256(read(second)).digest() == second
        assert tracemalloc.get_traced_memory()[0] < size
    finally:
        tracemalloc.stop()


def test_objects_that_move_are_found_again(root: Path) -> None:
    database, other = (ObjectDatabase(real_host(), str(root)) for _ in range(2))
    read = database.in_order(Space.CONTENTS).get
    assert [read(digest) for _, digest, _ in OBJECTS[:50]] == [data for *_, data in OBJECTS[:50]]
    moves = other.consolidator(nullcontext)
    loose = [(Space.CONTENTS, digest) for digest in other.loose_digests(Space.CONTENTS)]
    drain(moves.merge(other.packs(), loose, Grade.EVERYDAY, None))
    assert [read(digest) for _, digest, _ in OBJECTS] == [data for *_, data in OBJECTS]
    with pytest.raises(NoObject):
        read(ABSENT)


def test_nothing_is_read_once_it_is_closed(root: Path) -> None:
    database = ObjectDatabase(real_host(), str(root))
    read = database.in_order(Space.CONTENTS).get
    for _, digest, data in OBJECTS[:20]:
        assert read(digest) == data
    database.close()
    for _, digest, _ in OBJECTS[:20]:
        with pytest.raises(Closed):
            read(digest)
    with pytest.raises(Closed):
        database.get_many(Space.CONTENTS, [])


def test_a_piece_that_is_gone_is_told(root: Path) -> None:
    database = ObjectDatabase(real_host(), str(root))
    wanted = body(canonical({"text": "only here" * 1000}))
    database.publish([wanted])
    [piece] = database.names(wanted[1]).pieces
    Path(database.loose_path(Space.PIECES, piece)).unlink()
    with pytest.raises(Corrupt, match="is missing"):
        database.in_order(Space.CONTENTS).get(wanted[1])
