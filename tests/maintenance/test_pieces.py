"""Large strings once, as a store's users see it: size, the same bytes, sweep, fsck, forks, processes, redaction."""

from __future__ import annotations

import base64
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.entry import Draft
from agentsession_cas.core.identity import hash_bytes
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.pieces import PIECE_MIN, decode_loose, encode_stored
from agentsession_cas.core.zframes import expand
from agentsession_cas.errors import Corrupt
from agentsession_cas.maintenance.findings import Finding
from agentsession_cas.maintenance.sweep_roots import _Pieces
from agentsession_cas.objects import Published
from agentsession_cas.testing.simfs import Sim
from tests.helpers.crashes import cuts
from tests.helpers.damage import flip
from tests.helpers.stores import lines_of


def screenshot(size: int, seed: int = 1) -> str:
    """Base64 of bytes that no compressor makes smaller."""
    return base64.b64encode(random.Random(seed).randbytes(size * 3 // 4)).decode()


def shown(shot: str, number: int) -> Draft:
    """An item with a screenshot, like no other item."""
    parts = [
        {"type": "input_text", "text": f"look {number}"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{shot}"},
    ]
    return entry.item({"type": "message", "role": "user", "content": parts})


def weight(root: Path, part: str = "") -> int:
    """Bytes of all files below."""
    return sum(path.stat().st_size for path in (root / part).rglob("*") if path.is_file())


def pieces_of(store: Store) -> set[str]:
    """The pieces there are, each in one copy."""
    found = [place.digest.hex() for place in store.objects.iterate(Space.PIECES)]
    assert len(found) == len(set(found))
    return set(found)


def name_of(text: str) -> str:
    """The name of the piece that a string becomes."""
    return hash_bytes(canonical(text)[1:-1]).removeprefix("sha256:")


# --- size and bytes --------------------------------------------------------------------------------------------------


def test_a_screenshot_in_200_items_of_20_sessions_costs_what_it_costs_once(tmp_path: Path) -> None:
    size = 1 << 18
    shot = screenshot(size)
    root = tmp_path / "store"
    with Store.open(root, create=True, background=False) as store:
        for at in range(20):
            with store.create(id=f"s{at}") as session:
                for number in range(10):
                    session.append(shown(shot, 100 * at + number))
    assert size * 3 // 4 < weight(root, "objects") < 1.1 * size
    with Store.open(root, background=False) as store:
        assert len(pieces_of(store)) == 1
        for name in store.session_ids():
            texts = [each.body["item"]["content"][1]["image_url"] for each in store.read(name)]
            assert texts == [f"data:image/png;base64,{shot}"] * 10
        saved = store.stats()["saved"]["dedup"]
        assert saved > 199 * size
        before = weight(root, "objects")
        for all_ in (False, True):
            store.repack(all=all_)
            assert len(pieces_of(store)) == 1
            assert weight(root, "objects") < 1.02 * before
        assert store.fsck().findings == []


def long_texts() -> list[str]:
    """Strings around the threshold, with all that JSON escapes."""
    units = ["x", '"', "\\", "\n", "\x00", "é", "😀", '\\"', "\u2028", "a\nb"]
    lengths = (PIECE_MIN - 9, PIECE_MIN, 70_000)
    return [unit * (length // len(canonical(unit)[1:-1]) + 1) for unit in units for length in lengths]


@pytest.mark.parametrize("loose", [True, False])
def test_projections_and_imports_are_the_same_bytes(tmp_path: Path, loose: bool) -> None:
    texts = long_texts()[: 12 if loose else 99]
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        with store.create(id="a") as session:
            for number, text in enumerate(texts):
                session.append(entry.custom("test", {text: [text, {"deep": [text, number]}]}))
        store.project("a", tmp_path / "before")
        with store.open_session("a") as session:
            session.checkpoint()
        assert bool(store.objects.loose_digests(Space.PIECES)) is loose
        store.project("a", tmp_path / "after")
        for all_ in (False, True):
            store.repack(all=all_)
            store.project("a", tmp_path / f"repacked{all_}")
        assert store.fsck().findings == []
    files = [(tmp_path / name).read_bytes() for name in ("before", "after", "repackedFalse", "repackedTrue")]
    assert files == files[:1] * 4
    with Store.open(tmp_path / "other", create=True, background=False) as other:
        other.import_file(tmp_path / "after", as_record=True)
        other.project("a", tmp_path / "imported")
        assert pieces_of(other) == {name_of(text) for text in texts if len(canonical(text)) - 2 >= PIECE_MIN}
        assert other.fsck().findings == []
    assert (tmp_path / "imported").read_bytes() == files[0]


def test_a_fork_shares_the_pieces_of_its_origin(tmp_path: Path) -> None:
    shot = screenshot(50_000)
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        with store.create(id="a") as session:
            ids = [session.append(shown(shot, number)).id for number in range(3)]
        with store.fork("a", ids[1], id="b") as fork:  # publishes what lies in the journal
            fork.append(shown(shot, 9))
            fork.checkpoint()
        assert len(pieces_of(store)) == 1
        store.delete("a")
        store.sweep(0)
        assert [each.body["item"]["content"][0]["text"] for each in store.read("b")] == ["look 0", "look 1", "look 9"]
        assert store.fsck().findings == []


# --- sweep -----------------------------------------------------------------------------------------------------------


def filled(store: Store, name: str, shots: list[str], count: int = 3) -> None:
    with store.create(id=name) as session:
        session.append_batch([shown(shot, number) for number in range(count) for shot in shots])
        session.checkpoint()


@pytest.mark.parametrize("repacked", ["", "everyday", "archive"])
def test_pieces_go_with_the_last_body_that_needs_them(tmp_path: Path, repacked: str) -> None:
    own, shared, others = (screenshot(20_000, seed) for seed in range(3))
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        filled(store, "a", [own, shared])
        filled(store, "b", [shared, others], 20)
        if repacked:
            store.repack(all=repacked == "archive")
        kept = lines_of(store)["b"]
        assert store.sweep(0).objects == 0
        store.delete("a")
        dry = store.sweep(0, dry_run=True)
        report = store.sweep(0)
        assert report.objects == dry.objects == 6 + 3 + 1  # envelopes, bodies that b has not, its own piece
        assert pieces_of(store) == {name_of(f"data:image/png;base64,{shot}") for shot in (shared, others)}
        assert lines_of(store) == {"b": kept}
        assert store.fsck().findings == []
        store.delete("b")
        store.sweep(0)
        assert list(store.objects.iterate()) == []


def test_what_comes_to_need_a_piece_during_a_sweep_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead body and a dead piece are found held by a checkpoint that runs between finding and deleting."""
    shot = screenshot(20_000)
    text = f"data:image/png;base64,{shot}"
    mark, came = _Pieces.mark, list[int]()
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        filled(store, "a", [shot])
        store.delete("a")
        beside = Store.open(tmp_path / "store", background=False)

        def marked(self: Any, needs: Any) -> Any:
            found = mark(self, needs)
            if not came:
                came.append(1)
                filled(beside, "b", [shot], 2)  # bodies that a had too
                filled(beside, "c", [shot + "AAAA"], 1)
                with beside.create(id="d") as session:
                    session.append(entry.user(text))  # another body, the same piece
                    session.checkpoint()
            return found

        monkeypatch.setattr(_Pieces, "mark", marked)
        store.sweep(0)
        assert came
        assert name_of(text) in pieces_of(store)
        assert [len(lines) for lines in lines_of(store).values()] == [2, 1, 1]
        beside.close()
        assert [each.code for each in store.fsck().findings if each.severity != "note"] == []


def test_a_sweep_that_forgets_pieces_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Pieces, "mark", lambda _self, needs: needs)
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        filled(store, "a", [screenshot(20_000)])
        store.sweep(0)
        assert {each.code for each in store.fsck().findings} >= {"missing_piece", "missing_content"}


def test_no_piece_goes_while_a_body_does_not_read(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        filled(store, "a", [screenshot(20_000)])
        body = next(iter(store.read("a"))).content_hash.removeprefix("sha256:")
        flip(tmp_path / "store" / "objects" / "contents" / body[:2] / body[2:], 30)
        filled(store, "b", [screenshot(20_000, 2)], 1)
        store.delete("b")
        store.sweep(0)
        assert len(pieces_of(store)) == 2


# --- fsck ------------------------------------------------------------------------------------------------------------


Hurt = Callable[[Path], None]


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def another(path: Path) -> None:
    path.write_bytes((next(other for other in path.parents[1].rglob("?" * 62) if other != path)).read_bytes())


@pytest.mark.parametrize(
    ("hurt", "code"), [(Path.unlink, ""), (cut_off, "corrupt_object"), (another, "misnamed_object")]
)
def test_a_piece_that_is_not_good(tmp_path: Path, hurt: Hurt, code: str) -> None:
    first, second = (screenshot(20_000, seed) for seed in range(2))
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        filled(store, "a", [first], 2)
        filled(store, "b", [second], 2)
        piece = name_of(f"data:image/png;base64,{first}")
        hurt(tmp_path / "store" / "objects" / "pieces" / piece[:2] / piece[2:])
        found = store.fsck().findings

        def of(code: str) -> list[Finding]:
            return [each for each in found if each.code == code]

        assert [each.object for each in of("missing_piece")] == [f"sha256:{piece}"] * 2
        assert [each.session for each in of("missing_content")] == ["a"] * 2
        assert {each.code for each in found if each.severity == "error"} == {"missing_piece", "missing_content"} | (
            {code} if code else set()
        )
        with pytest.raises(Corrupt):
            next(iter(store.read("a"))).body  # noqa: B018
        assert len([each.body for each in store.read("b")]) == 2
    # whoever writes the string again makes it whole
    with Store.open(tmp_path / "store", background=False) as store:
        filled(store, "c", [first], 2)
        assert store.fsck().findings == []


def test_a_dangling_piece_is_a_note(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        filled(store, "a", [screenshot(20_000)], 1)
        piece = b"x" * PIECE_MIN
        store.objects.publish([(Space.PIECES, bytes.fromhex(hash_bytes(piece)[7:]), piece)])
        found = store.fsck()
        assert [(each.code, each.object) for each in found.findings] == [("dangling_object", hash_bytes(piece))]
        assert found.ok
        store.delete("a")
        assert {each.code for each in store.fsck().findings} == {"dangling_object"}
        assert len(store.fsck().findings) == 4


def test_a_body_in_a_journal_needs_the_piece_that_is_held(tmp_path: Path) -> None:
    """A checkpoint was cut off behind its pieces."""
    text = "x" * PIECE_MIN
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        with store.create(id="a") as session:
            session.append(entry.user(text))
        piece = text.encode()
        store.objects.publish([(Space.PIECES, bytes.fromhex(hash_bytes(piece)[7:]), piece)])
        assert store.fsck().findings == []


# --- others beside ---------------------------------------------------------------------------------------------------


def test_a_torn_checkpoint_leaves_nothing_that_does_not_read() -> None:
    """The power fails at any effect of a checkpoint with pieces; sessions read as they were, fsck has no error."""
    text = "0123456789abcdef" * 256
    sim = Sim(seed=3)
    with Store.open("/store", create=True, host=sim.host, background=False) as store:
        with store.create(id="a") as session:
            session.append(entry.user(text), durable=True)
            session.checkpoint()
        with store.create(id="b") as session:
            session.append_batch([entry.user(f"{text}{n % 2}") for n in range(4)], durable=True)
            session.append(entry.user(text), durable=True)
            whole = lines_of(store)
            left = [cut for _, cut in cuts(sim, session.checkpoint)]
    assert len(left) > 21
    for cut in left:
        for image in cut.images(2):
            with Store.open("/store", host=image.host, background=False) as store:
                assert lines_of(store) == whole
                found = store.fsck().findings
                assert [each for each in found if each.severity == "error"] == []
                with store.open_session("b") as session:
                    session.checkpoint()
                assert lines_of(store) == whole
                assert not [each for each in store.fsck().findings if each.severity == "error"]


CHILD = """
import sys
from agentsession_cas import Store, entry
root, name = sys.argv[1:]
text = "0123456789" * 20000
with Store.open(root) as store, store.create(id=name) as session:
    for number in range(30):
        session.append(entry.user(f"{text}{number % 3}"))
    session.append(entry.user(name))
    session.checkpoint()
"""


def test_processes_share_pieces(tmp_path: Path) -> None:
    root = tmp_path / "store"
    Store.open(root, create=True).close()
    children = [subprocess.Popen([sys.executable, "-c", CHILD, str(root), f"s{at}"]) for at in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    with Store.open(root, background=False) as store:
        assert [len(list(store.read(f"s{at}"))) for at in range(3)] == [31] * 3
        assert store.fsck().findings == []
        store.repack()
        assert len(pieces_of(store)) == 3
        assert store.fsck().findings == []


def test_threads_share_pieces(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        texts = [f"{n}" * 9000 for n in range(9)]
        failed: list[BaseException] = []

        def work(name: str) -> None:
            try:
                with store.create(id=name) as session:
                    session.append_batch([entry.user(text) for text in texts])
                    session.checkpoint()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(f"s{at}",)) for at in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert store.fsck().findings == []
        assert len(pieces_of(store)) == 9


# --- redaction -------------------------------------------------------------------------------------------------------


def plain(root: Path) -> Iterator[bytes]:
    """All bytes that lie in a store's files, expanded where they are compressed."""
    with Store.open(root, read_only=True) as store:
        for pack in store.objects.packs():
            with pack.open() as file:
                for number in range(file.table.blocks):
                    block = file.block(number)
                    yield from (encode_stored(block.stored(block.first + at)) for at in range(len(block)))
    for path in root.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            yield data
            if path.parents[2].name == "objects":
                yield encode_stored(decode_loose(data))
            elif path.suffix in (".zdict", ".spare"):
                yield expand(data)


@pytest.mark.parametrize("count", [3, 70])
def test_a_redacted_copy_leaks_no_piece(tmp_path: Path, count: int) -> None:
    def scrub(text: str) -> str:
        return text.replace("the secret", "nothing")

    hidden = "0123456789" * 1000 + "the secret" + "abcdefghij" * 1000
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        with store.create(id="a") as session:
            session.append_batch([entry.user(f"{hidden} {number}") for number in range(count)])
            session.checkpoint()
        made = store.redact("a", "public@1", scrub).session
        store.project(made, tmp_path / "redacted")
        assert any(b"the secret" in data for data in plain(tmp_path / "store"))
    for only in (False, True):
        with Store.open(tmp_path / f"other{only}", create=True, background=False, redacted_only=only) as other:
            other.import_file(tmp_path / "redacted")
            other.repack(all=only)
            assert len(list(other.objects.iterate(Space.PIECES))) == count
            assert other.fsck().ok
        assert not any(b"the secret" in data for data in plain(tmp_path / f"other{only}"))


def test_publishing_counts_what_it_was_handed(tmp_path: Path) -> None:
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        bodies = [b'{"n":%d,"t":"%s"}' % (n, b"%d" % n * PIECE_MIN) for n in range(3)]
        objects = [(Space.CONTENTS, bytes.fromhex(hash_bytes(body)[7:]), body) for body in bodies]
        assert store.objects.publish(objects) == Published(0, 3, 0)
        assert store.objects.publish(objects) == Published(3, 0, 0)
        packed = store.objects.publish([(Space.MEDIA, objects[0][1], bodies[0]), *objects], loose_below=1)
        assert (packed.held, packed.loose, packed.packed) == (3, 0, 1)
