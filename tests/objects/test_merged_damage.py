"""Damage to packs made with dictionaries and neighbours: never wrong bytes, never called absent, always named."""

from __future__ import annotations

import hashlib
import random
from contextlib import nullcontext
from pathlib import Path

import pytest

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.packformat import Grade
from agentsession_cas.core.slices import drain
from agentsession_cas.core.zframes import Dictionary, train
from agentsession_cas.effects.host import real_host
from agentsession_cas.errors import NoObject
from agentsession_cas.objects import Space
from agentsession_cas.objects.archive import Archiver
from tests.helpers.objects import Object, flipped, lay_out, named, opened, readable


def session(count: int) -> list[Object]:
    objects: list[Object] = []
    chance = random.Random(1)
    parent = ""
    for n in range(count):
        words = " ".join(f"word{chance.randrange(60)}" for _ in range(20))
        entry = Entry.seal("item", {"n": n, "text": words}, parent, f"2026-01-01T00:00:{n:02}Z")
        for space, data in ((Space.CONTENTS, entry.content), (Space.ENTRIES, entry.envelope)):
            objects.append(named(space, data))
        parent = entry.id
    return objects


OBJECTS = session(24)


@pytest.fixture(scope="module")
def dictionary() -> Dictionary:
    made = train([data for space, _, data in session(900) if space is Space.CONTENTS], 2048)
    assert made is not None
    return made


@pytest.fixture(params=[Grade.EVERYDAY, Grade.ARCHIVE])
def root(request: pytest.FixtureRequest, tmp_path: Path, dictionary: Dictionary) -> Path:
    """One pack of a grade, made with a dictionary."""
    lay_out(real_host().fs, str(tmp_path))
    database = opened(tmp_path)
    database.publish(OBJECTS, loose_below=0)
    moves = database.consolidator(nullcontext)
    moves.dictionaries.publish(real_host(), str(tmp_path / "tmp"), dictionary)
    if request.param is Grade.EVERYDAY:
        drain(moves.merge(database.packs(), (), Grade.EVERYDAY, dictionary))
    else:
        drain(Archiver(moves, database.packs(), dictionary).run([wanted[:2] for wanted in OBJECTS]))
    return tmp_path


def errors(root: Path) -> set[str]:
    return {finding.code for finding in opened(root).check() if finding.severity == "error"}


def test_it_is_whole(root: Path) -> None:
    assert readable(root, OBJECTS) == len(OBJECTS)
    assert list(opened(root).check()) == []
    assert len(list(opened(root).iterate())) == len(OBJECTS)


@pytest.mark.parametrize("with_idx", [True, False])
def test_flipped_bytes_of_the_pack(root: Path, with_idx: bool) -> None:
    [pack], [idx] = root.glob("objects/pack/*.pack"), root.glob("objects/pack/*.idx")
    if not with_idx:
        idx.unlink()
    whole = pack.read_bytes()
    fewest = len(OBJECTS)
    for at in range(0, len(whole), 5):
        pack.write_bytes(flipped(whole, at))
        fewest = min(fewest, readable(root, OBJECTS))
        assert "corrupt_pack" in errors(root)
    assert fewest == 0 or with_idx


def test_a_lost_block_of_bodies_takes_the_envelopes_made_of_it(root: Path) -> None:
    [pack] = root.glob("objects/pack/*.pack")
    whole = pack.read_bytes()
    pack.write_bytes(flipped(whole, 60))
    blocks = [finding.detail for finding in opened(root).check() if finding.code == "corrupt_block"]
    [damaged] = opened(root).packs()
    archive = damaged.grade() is Grade.ARCHIVE
    lost = damaged.index().table.block(0)
    assert lost.space is Space.CONTENTS
    assert readable(root, OBJECTS) == (0 if archive else len(OBJECTS) - lost.objects)
    assert len(blocks) == (2 if archive else 1)


def test_truncated_packs(root: Path) -> None:
    [pack] = root.glob("objects/pack/*.pack")
    whole = pack.read_bytes()
    for size in range(0, len(whole), 13):
        pack.write_bytes(whole[:size])
        readable(root, OBJECTS)
        assert "corrupt_pack" in errors(root)


def test_flipped_bytes_of_the_idx_lose_nothing(root: Path) -> None:
    [idx] = root.glob("objects/pack/*.idx")
    whole = idx.read_bytes()
    for at in range(len(whole)):
        idx.write_bytes(flipped(whole, at))
        assert readable(root, OBJECTS) == len(OBJECTS)
        assert [finding.code for finding in opened(root).check()] == ["corrupt_idx"]


def test_flipped_bytes_of_both_copies_of_the_dictionary(root: Path) -> None:
    copies = sorted(root.glob("objects/dict/*"))
    whole = copies[0].read_bytes()
    assert len(copies) == 2
    for at in range(0, len(whole), 11):
        for path in copies:
            path.write_bytes(flipped(whole, at))
        if errors(root):
            assert errors(root) >= {"corrupt_dictionary", "corrupt_block"}
            assert readable(root, OBJECTS) == 0
        else:  # a bit of the frame that says nothing
            assert readable(root, OBJECTS) == len(OBJECTS)
        copies[1].write_bytes(whole)
        assert readable(root, OBJECTS) == len(OBJECTS)


def test_a_dictionary_under_anothers_name(root: Path, dictionary: Dictionary) -> None:
    other = train([data for space, _, data in session(700) if space is Space.CONTENTS], 1024)
    assert other is not None
    assert other.id != dictionary.id
    copies = sorted(root.glob("objects/dict/*"))
    database = opened(root)
    database.consolidator(nullcontext).dictionaries.publish(real_host(), str(root / "tmp"), other)
    for path in copies:
        path.write_bytes(path.with_name(f"{other.id:08x}{path.suffix}").read_bytes())
    assert readable(root, OBJECTS) == 0
    assert "corrupt_dictionary" in errors(root)


def test_strays_among_the_dictionaries(root: Path) -> None:
    (root / "objects" / "dict" / "notes.txt").write_bytes(b"?")
    assert [finding.code for finding in opened(root).check()] == ["stray_file"]
    with pytest.raises(NoObject):
        opened(root).get(Space.MEDIA, hashlib.sha256(b"absent").digest())
