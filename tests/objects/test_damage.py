"""Damaged files: reads never give wrong bytes or call a damaged object absent, check names it, publish heals it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from agentsession_cas.core.packindex import Index, encode_index
from agentsession_cas.effects.host import real_host
from agentsession_cas.errors import Corrupt, DiskError, NoObject
from agentsession_cas.objects import Space
from agentsession_cas.objects.loose import Loose
from tests.helpers.objects import Object, flipped, lay_out, named, opened, readable

OBJECTS = [named(Space(k % 3), b'{"n":%d}' % k * (1 + k)) for k in range(12)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    lay_out(real_host().fs, str(tmp_path))
    return tmp_path


def packed(root: Path) -> tuple[Path, Path]:
    """The pack and the idx of all objects."""
    stem = opened(root).publish(OBJECTS, loose_below=0).pack
    return root / "objects" / "pack" / f"{stem}.pack", root / "objects" / "pack" / f"{stem}.idx"


def path_of(root: Path, wanted: Object) -> Path:
    return Path(Loose(real_host().fs, str(root / "objects"), lambda skeleton: skeleton.rest).path(*wanted[:2]))


def found(root: Path) -> list[tuple[str, str]]:
    return [(finding.severity, finding.code) for finding in opened(root).check()]


# --- loose -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 11])
def test_flipped_loose_object(root: Path, k: int) -> None:
    database = opened(root)
    database.publish(OBJECTS)
    space, name, data = OBJECTS[k]
    path = path_of(root, OBJECTS[k])
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(flipped(whole, at))
        findings = list(database.check())
        try:
            assert database.get(space, name) == data  # a bit of the frame that says nothing
            assert findings == []
        except Corrupt:
            assert [(f.space, f.digest, f.path) for f in findings] == [(space, name, str(path))]
            assert {f.code for f in findings} <= {"corrupt_object", "misnamed_object"}
            assert not database.holds(space, name)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(Corrupt):
            database.get(space, name)
        assert [f.code for f in database.check()] == ["corrupt_object"]


def test_misnamed_loose_object(root: Path) -> None:
    opened(root).publish(OBJECTS)
    one, other = OBJECTS[0], OBJECTS[3]
    path_of(root, one).write_bytes(path_of(root, other).read_bytes())
    with pytest.raises(Corrupt) as caught:
        opened(root).get(*one[:2])
    assert other[1].hex() in caught.value.what
    assert caught.value.where == str(path_of(root, one))
    [finding] = opened(root).check()
    assert (finding.code, finding.digest) == ("misnamed_object", one[1])
    assert other[1].hex() in finding.detail


def test_strays(root: Path) -> None:
    database = opened(root)
    database.publish(OBJECTS)
    packs = root / "objects" / "pack"
    strays = [
        root / "objects" / "notes.txt",
        root / "objects" / "entries" / "README",
        root / "objects" / "entries" / "xy",
        path_of(root, OBJECTS[0]).parent / "short",
        path_of(root, OBJECTS[0]).with_suffix(".bak"),
        packs / "pack-12.pack",
        packs / "tmp.idx",
    ]
    for stray in strays:
        stray.write_bytes(b"?")
    bare = packs / f"pack-{'0' * 64}.idx"
    bare.write_bytes(b"?")
    findings = {Path(f.path): (f.severity, f.code) for f in database.check()}
    assert findings == {**dict.fromkeys(strays, ("note", "stray_file")), bare: ("note", "bare_idx")}
    assert readable(root, OBJECTS) == len(OBJECTS)
    assert database.stats().packs == 0
    assert len(list(database.iterate())) == len(OBJECTS)


def test_a_directory_in_the_place_of_an_object(root: Path) -> None:
    path = path_of(root, OBJECTS[0])
    path.mkdir(parents=True)
    with pytest.raises(DiskError):
        opened(root).get(*OBJECTS[0][:2])
    assert [(f.severity, f.code, f.path) for f in opened(root).check()] == [("error", "unreadable_file", str(path))]


# --- packs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_idx", [True, False])
def test_every_flipped_byte_of_a_pack(root: Path, with_idx: bool) -> None:
    pack, idx = packed(root)
    if not with_idx:
        idx.unlink()
    whole = pack.read_bytes()
    unread = set()
    for at in range(len(whole)):
        pack.write_bytes(flipped(whole, at))
        unread.add(len(OBJECTS) - readable(root, OBJECTS))
        errors = [f for f in opened(root).check() if f.severity == "error"]
        assert errors[0].code == "corrupt_pack"
        assert {f.path for f in errors} == {str(pack)}
    # one block of four objects at a time, or, without an idx, all that is not known to be elsewhere
    assert unread == ({0, 4} if with_idx else {0, 4, 12})


@pytest.mark.parametrize("with_idx", [True, False])
def test_every_truncation_of_a_pack(root: Path, with_idx: bool) -> None:
    pack, idx = packed(root)
    if not with_idx:
        idx.unlink()
    whole = pack.read_bytes()
    for size in range(len(whole)):
        pack.write_bytes(whole[:size])
        good = readable(root, OBJECTS)
        assert with_idx or good == 0
        assert ("error", "corrupt_pack") in found(root)


def test_a_bad_block_is_named(root: Path) -> None:
    pack, idx = packed(root)
    whole = pack.read_bytes()
    pack.write_bytes(flipped(whole, 30))
    lost = [wanted for wanted in OBJECTS if not opened(root).holds(*wanted[:2])]
    assert len(lost) == 4
    for with_idx in (True, False):
        if not with_idx:
            idx.unlink()
        [finding] = [f for f in opened(root).check() if f.code == "corrupt_block"]
        assert (finding.space, finding.digest) == (lost[0][0], None)
        assert f"block 0 (4 of the {lost[0][0].name.lower()})" in finding.detail


def test_a_listing_with_a_bad_block_gives_the_rest_and_then_says_so(root: Path) -> None:
    pack, idx = packed(root)
    opened(root).publish([named(Space.ENTRIES, b"loose")])
    pack.write_bytes(flipped(pack.read_bytes(), 30))
    idx.unlink()
    places: list[bytes] = []
    with pytest.raises(Corrupt) as caught:
        places.extend(at.digest for at in opened(root).iterate())
    assert caught.value.where == str(pack)
    assert len(places) == 9


def test_the_table_lost_with_the_idx(root: Path) -> None:
    pack, idx = packed(root)
    pack.write_bytes(pack.read_bytes()[:-10])
    assert readable(root, OBJECTS) == len(OBJECTS)
    idx.unlink()
    database = opened(root)
    with pytest.raises(Corrupt):
        database.get(Space.ENTRIES, hashlib.sha256(b"anything").digest())
    with pytest.raises(Corrupt):
        list(database.iterate())
    assert database.stats().packs == 1
    assert database.stats().packed == 0


def test_a_pack_under_another_name(root: Path) -> None:
    pack, idx = packed(root)
    other = pack.with_name(f"pack-{'ab' * 32}.pack")
    pack.rename(other)
    idx.rename(other.with_suffix(".idx"))
    assert readable(root, OBJECTS) == len(OBJECTS)
    assert found(root) == [("error", "corrupt_pack"), ("warning", "corrupt_idx")]


# --- idx files -------------------------------------------------------------------------------------------------------


def test_every_flipped_byte_of_an_idx_loses_nothing(root: Path) -> None:
    pack, idx = packed(root)
    whole = idx.read_bytes()
    rows = len(whole) - 9 * len(OBJECTS)
    for at in [*range(0, rows, 13), *range(rows, len(whole))]:
        idx.write_bytes(flipped(whole, at))
        assert readable(root, OBJECTS) == len(OBJECTS)
        assert {place[:2] for place in opened(root).iterate()} == {wanted[:2] for wanted in OBJECTS}
        assert found(root) == [("warning", "corrupt_idx")]
    for size in range(0, len(whole), 29):
        idx.write_bytes(whole[:size])
        assert readable(root, OBJECTS) == len(OBJECTS)
        assert found(root) == [("warning", "corrupt_idx")]
    assert pack.exists()


def test_missing_idx(root: Path) -> None:
    _, idx = packed(root)
    whole = idx.read_bytes()
    idx.unlink()
    assert readable(root, OBJECTS) == len(OBJECTS)
    assert found(root) == [("note", "missing_idx")]
    assert not idx.exists()  # readers write nothing
    database = opened(root)
    with pytest.raises(NoObject):
        database.get(Space.ENTRIES, hashlib.sha256(b"absent").digest())
    assert {at[:2] for at in database.iterate()} == {wanted[:2] for wanted in OBJECTS}
    assert database.stats().packed == len(OBJECTS)
    idx.write_bytes(whole)
    assert found(root) == []


def test_an_idx_of_another_pack_is_not_used(root: Path) -> None:
    _, idx = packed(root)
    others = [named(Space.ENTRIES, b"other %d" % k) for k in range(12)]
    stem = opened(root).publish(others, loose_below=0).pack
    idx.write_bytes(idx.with_name(f"{stem}.idx").read_bytes())
    assert readable(root, OBJECTS) == len(OBJECTS)
    assert found(root) == [("warning", "corrupt_idx")]


def test_an_idx_that_disagrees_is_named(root: Path) -> None:
    """All checksums right, but two digests swapped in the making."""
    _, idx = packed(root)
    index = Index(idx.read_bytes())
    keys = index.keys()
    keys[0], keys[1] = keys[1], keys[0]
    idx.write_bytes(encode_index(index.pack_name, index.pack_size, bytes(index.table.data), keys))
    assert readable(root, OBJECTS) == len(OBJECTS) - 2
    assert found(root) == [("warning", "idx_mismatch")]


def test_a_bare_idx_is_nothing(root: Path) -> None:
    pack, idx = packed(root)
    pack.unlink()
    for wanted in OBJECTS:
        with pytest.raises(NoObject):
            opened(root).get(*wanted[:2])
    assert found(root) == [("note", "bare_idx")]
    assert list(opened(root).iterate()) == []
    assert opened(root).publish(OBJECTS, loose_below=0).pack == idx.stem  # and is completed
    assert readable(root, OBJECTS) == len(OBJECTS)
    assert found(root) == []


# --- healing ---------------------------------------------------------------------------------------------------------


def test_another_copy_serves(root: Path) -> None:
    opened(root).publish(OBJECTS)
    loose = {wanted[1]: path_of(root, wanted) for wanted in OBJECTS}
    kept = {path: path.read_bytes() for path in loose.values()}
    for path in kept:
        path.unlink()
    pack, _ = packed(root)
    for path, data in kept.items():
        path.write_bytes(data)
    whole = pack.read_bytes()
    pack.write_bytes(bytes(len(whole)))
    assert readable(root, OBJECTS) == len(OBJECTS)
    pack.write_bytes(whole)
    for path in kept:
        path.write_bytes(b"rotten")
    assert readable(root, OBJECTS) == len(OBJECTS)


def test_a_rotten_loose_copy_is_replaced(root: Path) -> None:
    spoil_loose_copies(root)
    done = opened(root).publish(OBJECTS)
    assert (done.held, done.loose, done.packed) == (5, 7, 0)
    assert readable(root, OBJECTS) == len(OBJECTS)
    assert found(root) == []


def test_a_pack_is_written_without_a_look_at_loose_copies(root: Path) -> None:
    spoil_loose_copies(root)
    done = opened(root).publish(OBJECTS, loose_below=len(OBJECTS))
    assert (done.held, done.loose, done.packed) == (0, 0, 12)
    assert readable(root, OBJECTS) == len(OBJECTS)
    assert found(root) == [("error", "corrupt_object")] * 5


def spoil_loose_copies(root: Path) -> None:
    """All objects loose, five of them rotten, two of them gone."""
    opened(root).publish(OBJECTS)
    for wanted in OBJECTS[:5]:
        path_of(root, wanted).write_bytes(b"rotten")
    for wanted in OBJECTS[5:7]:
        path_of(root, wanted).unlink()


def test_a_rotten_copy_in_a_pack_is_replaced(root: Path) -> None:
    pack, _ = packed(root)
    pack.write_bytes(flipped(pack.read_bytes(), 30))
    done = opened(root).publish(OBJECTS)
    assert (done.held, done.loose) == (8, 4)
    assert readable(root, OBJECTS) == len(OBJECTS)


@pytest.mark.parametrize("spoil", [lambda data: bytes(len(data)), lambda data: data[:50]])
@pytest.mark.parametrize("with_idx", [True, False])
def test_a_rotten_pack_is_replaced_under_its_own_name(
    root: Path, spoil: Callable[[bytes], bytes], with_idx: bool
) -> None:
    pack, idx = packed(root)
    whole = pack.read_bytes()
    pack.write_bytes(spoil(whole))
    if not with_idx:
        idx.unlink()
    database = opened(root)
    assert not database.holds(*OBJECTS[0][:2])
    assert database.publish(OBJECTS, loose_below=0).pack == pack.stem
    assert pack.read_bytes() == whole
    assert [database.get(space, name) for space, name, _ in OBJECTS] == [data for *_, data in OBJECTS]
    assert found(root) == []
