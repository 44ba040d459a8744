"""repair: what is left of a damaged session comes back, what is not is said, and what was replaced is kept."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import RefTarget, Store, entry
from agentsession_cas.core.entry import Draft
from agentsession_cas.core.framing import FRAMES_OFFSET, decode_head, encode_head
from agentsession_cas.core.header import Harness, Header, new_header
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.rows import BLOCK_SIZE, ROW_SIZE, ref_to, seal_row
from agentsession_cas.errors import AgentSessionError, Closed, NoSession, ReadOnly, SessionLocked, StoreLocked
from agentsession_cas.maintenance.findings import FsckReport
from agentsession_cas.maintenance.repair_header import mended_header, pieces_of
from agentsession_cas.maintenance.repair_log import seed_of
from agentsession_cas.maintenance.repair_pool import Pool
from agentsession_cas.maintenance.repair_report import RepairReport, SessionRepair
from agentsession_cas.sessions.headerfile import encode_header
from agentsession_cas.sessions.rowmaker import digest_of
from tests.helpers.damage import Bench, flip
from tests.helpers.damages import DAMAGE, TS

SESSIONS = ("alpha", "beta", "gamma", "delta")


def lines(bench: Bench, names: tuple[str, ...] = SESSIONS) -> dict[str, tuple[str, list[bytes]]]:
    with bench.store() as store:
        return {name: (store.read(name).leaf, [each.line for each in store.read(name)]) for name in names}


def repaired(bench: Bench, session: str | None = None) -> tuple[RepairReport, FsckReport]:
    with bench.store() as store:
        return store.repair(session), store.fsck()


def of(report: RepairReport, session: str) -> SessionRepair:
    return next(each for each in report.sessions if each.session == session)


def tree(root: Path) -> dict[str, bytes]:
    """Every file but locks, which say nothing once they are let go."""
    files = [path for path in root.rglob("*") if path.is_file() and "lock" not in str(path.relative_to(root))]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def zero(path: Path, start: int, size: int) -> None:
    data = bytearray(path.read_bytes())
    data[start : start + size] = bytes(len(data[start : start + size]))
    path.write_bytes(data)


# --- everything comes back -------------------------------------------------------------------------------------------

COMES_BACK = (
    "corrupt_object",
    "misnamed_object",
    "corrupt_pack",
    "corrupt_idx",
    "idx_mismatch",
    "missing_idx",
    "bare_idx",
    "dictionary_copy",
    "dangling_unknown",
    "bad_header",
    "misnamed_session",
    "journal_damaged",
    "journal_cut",
    "log_missing",
    "log_short",
    "log_row",
    "missing_entry",
)


@pytest.mark.parametrize("code", COMES_BACK)
def test_what_is_still_there_comes_back(bench: Bench, pristine: Bench, code: str) -> None:
    DAMAGE[code](bench)
    report, after = repaired(bench)
    assert report.whole
    assert after.findings == []
    assert lines(bench) == lines(pristine)
    with bench.store() as store:
        assert not store.repair().changed
        for name in SESSIONS:
            with store.open_session(name) as session:
                session.append(entry.user("goes on"), durable=True)
        assert store.fsck().findings == []


@pytest.mark.parametrize("code", [code for code in COMES_BACK if code not in ("corrupt_idx", "misnamed_session")])
def test_one_session_alone(bench: Bench, code: str) -> None:
    """Repaired by its id, a session needs no look at the others."""
    told = DAMAGE[code](bench)
    if told.session:
        report, after = repaired(bench, told.session)
        assert [each.session for each in report.sessions] == [told.session]
        assert report.objects is None
        assert not any(each.severity == "error" for each in after.findings)


@pytest.mark.parametrize("code", DAMAGE)
def test_any_damage_leaves_a_store_that_opens(bench: Bench, code: str) -> None:
    """Whatever was done to it; what fsck finds afterwards the report said, or a program wrote it wrong."""
    DAMAGE[code](bench)
    with bench.store() as store:
        said = store.repair(dry_run=True)
        report = store.repair()
        assert (said.changed, said.whole) == (report.changed, report.whole)
        missing = {name for each in report.sessions for name in each.missing}
        for each in store.fsck().findings:
            if each.code.startswith("missing_") and each.severity == "error" and each.code != "missing_piece":
                assert each.object in missing
        assert not store.repair().changed
        for name in store.session_ids():
            store.open_session(name).close()


def test_a_sound_store_needs_nothing(bench: Bench) -> None:
    before = tree(bench.root)
    report, _ = repaired(bench)
    assert not report.changed
    assert report.whole
    assert tree(bench.root) == before


# --- rows ------------------------------------------------------------------------------------------------------------


def test_rows_that_name_the_first_entry_come_back(bench: Bench) -> None:
    with bench.store() as store, store.create(id="named") as session:
        first = session.append(entry.function_call("c1", "look", "{}"))
        session.append_batch([entry.user(f"{n}") for n in range(40)])
        session.append_batch([entry.label(first.id, "where it began"), entry.function_call_output("c1", "seen")])
        session.checkpoint()
        session.append(entry.user("behind"), durable=True)
    before = lines(bench, ("named",))
    path = bench.session("named") / "log-0"
    zero(path, 0, path.stat().st_size)
    report, after = repaired(bench, "named")
    assert of(report, "named").changed
    assert after.findings == []
    assert lines(bench, ("named",)) == before


def test_a_log_of_zeros_comes_back_from_what_names_its_entries(bench: Bench, pristine: Bench) -> None:
    """The journal's tail names the last entries, each of them its parent."""
    path = bench.session("beta") / "log-0"
    zero(path, 0, path.stat().st_size)
    report, after = repaired(bench, "beta")
    assert of(report, "beta").recovered == 96
    assert after.findings == []
    assert lines(bench) == lines(pristine)


def branched(root: Path) -> tuple[list[str], list[str]]:
    """A session of which rows 20 to 51 are branches of one entry each; ids of the trunk and of the branches."""
    with Store.open(root, create=True, background=False) as store, store.create(id="tree") as session:
        trunk = [session.append(entry.user(f"trunk {n}")).id for n in range(20)]
        branches = [session.append(entry.user(f"branch {n}").at(parent=trunk[n % 20])).id for n in range(44)]
        trunk += [session.append(entry.user(f"more {n}")).id for n in range(64)]
        session.checkpoint()
    return trunk, branches


def test_leaves_that_nothing_names_are_found_among_the_objects(tmp_path: Path) -> None:
    trunk, branches = branched(tmp_path / "store")
    zero(tmp_path / "store" / "sessions" / "tree" / "log-0", BLOCK_SIZE, BLOCK_SIZE)
    with Store.open(tmp_path / "store", background=False) as store:
        with pytest.raises(AgentSessionError):
            store.read("tree")
        report = store.repair("tree")
        assert of(report, "tree").recovered == 32
        found = store.read("tree")
        assert {each.id for each in found} == {*trunk, *branches}
        assert found.leaf == trunk[-1]
        assert store.fsck().findings == []


def test_no_more_leaves_are_taken_than_rows_were_lost(tmp_path: Path) -> None:
    """What a deleted fork left below the session's entries is not its own."""
    trunk, branches = branched(tmp_path / "store")
    path = tmp_path / "store" / "sessions" / "tree" / "log-0"
    with Store.open(tmp_path / "store", background=False) as store:
        with store.fork("tree", trunk[3], id="fork") as fork:
            fork.append_batch([entry.user(f"theirs {n}") for n in range(9)])
            fork.checkpoint()
        store.delete("fork")
        zero(path, 40 * ROW_SIZE, ROW_SIZE)
        report = store.repair("tree")
        assert of(report, "tree").recovered == 1
        assert {each.id for each in store.read("tree")} == {*trunk, *branches}


def test_another_sessions_entries_are_not_taken(tmp_path: Path) -> None:
    trunk, branches = branched(tmp_path / "store")
    with Store.open(tmp_path / "store", background=False) as store:
        with store.fork("tree", trunk[3], id="fork") as fork:
            theirs = fork.append(entry.user("theirs")).id
            fork.checkpoint()
        zero(tmp_path / "store" / "sessions" / "tree" / "log-0", 40 * ROW_SIZE, ROW_SIZE)
        store.repair("tree")
        held = {each.id for each in store.read("tree")}
        assert held == {*trunk, *branches}
        assert [each.id for each in store.read("fork")][-1] == theirs


def test_a_prefix_whose_session_is_gone_is_no_other_forks(tmp_path: Path) -> None:
    """A fork inside the prefix of a fork loses its rows: what the other one continues from is not taken for them."""
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        with store.create(id="tree") as tree:
            trunk = [tree.append(entry.user(f"{n}")).id for n in range(40)]
            tree.checkpoint()
        with store.fork("tree", trunk[30], id="fork") as fork:
            fork.append(entry.user("theirs"))
        with store.fork("fork", trunk[3], id="inside") as inside:
            inside.append_batch([entry.user(f"lost {n}") for n in range(9)])
        store.delete("tree")
        (tmp_path / "store" / "sessions" / "inside" / "journal").write_bytes(b"")
        report = store.repair("inside")
        assert of(report, "inside").recovered == 0
        assert [each.id for each in store.read("inside")] == trunk[:4]


def test_heads_and_marks_survive(tmp_path: Path) -> None:
    """A mirror stays one, and the head where it was moved to, though the rows that say so fail their seals."""
    header = new_header(id="mirror", created_at=TS)
    with Store.open(tmp_path / "a", create=True, background=False) as store:
        with store.create(header) as session:
            ids = [session.append(entry.user(f"{n}")).id for n in range(40)]
            session.set_head(ids[-1], ids[7])
        store.project("mirror", tmp_path / "file.jsonl")
    with Store.open(tmp_path / "b", create=True, background=False) as store:
        store.import_file(tmp_path / "file.jsonl")
        log = tmp_path / "b" / "sessions" / "mirror" / "log-0"
        before = store.read("mirror")
        for row in range(32):
            flip(log, row * ROW_SIZE + 33)
        report = store.repair()
        assert report.whole
        found = store.read("mirror")
        assert ([each.id for each in found], found.leaf) == ([each.id for each in before], ids[7])
        with store.open_session("mirror") as session:
            assert session.is_mirror
        assert store.fsck().ok


def test_a_head_that_only_lost_rows_told_is_where_HEAD_saw_it(tmp_path: Path) -> None:  # noqa: N802
    """The rows of a branch are all lost: its entries come back by their ids, and the head is not the last of them."""
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        with store.create(id="s") as session:
            ids = [session.append(entry.user(f"{n}")).id for n in range(12)]
            session.set_head(ids[-1], ids[4])
            session.append(entry.user("a branch"))
            session.append(Draft("label", {"label": "leaf", "target": ids[2]}))
        store.repack()
        before = store.read("s")
        log = next((tmp_path / "store" / "sessions" / "s").glob("log-*.packed"))
        zero(log, 0, log.stat().st_size)
        assert of(store.repair("s"), "s").lost_rows == 1  # that of the first head move
        found = store.read("s")
        assert (found.leaf, {each.line for each in found}) == (ids[2], {each.line for each in before})
        assert [each.code for each in store.fsck().findings] == ["lost_rows"]
        assert not store.repair().changed


def test_a_HEAD_of_fewer_rows_says_nothing_of_the_last(tmp_path: Path) -> None:  # noqa: N802
    """It saw a head before rows that no sync had named yet; the head then is not the head now."""
    ids = straight(tmp_path / "store")
    with Store.open(tmp_path / "store", background=False) as store:
        store.open_session("s").close()
    directory = tmp_path / "store" / "sessions" / "s"
    said = decode_head((directory / "HEAD").read_bytes())
    assert said is not None
    early = said._replace(committed=5, head=ref_to(4), entry=digest_of(ids[4]))
    (directory / "HEAD").write_bytes(encode_head(early))
    flip(directory / "journal", FRAMES_OFFSET + BLOCK_SIZE + 5)
    with Store.open(tmp_path / "store", background=False) as store:
        store.repair("s")
        kept = store.read("s")
        assert kept.leaf == list(kept)[-1].id != ids[4]


def test_a_pin_names_an_entry_that_nothing_else_does(tmp_path: Path) -> None:
    """All rows are lost, and HEAD with them; the leaf that a ref pins tells itself and the path above it."""
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        with store.create(id="s") as session:
            ids = [session.append(entry.user(f"{n}")).id for n in range(6)]
        store.repack()
        store.update_ref("kept", None, RefTarget("s", ids[-1]))
        directory = tmp_path / "store" / "sessions" / "s"
        (directory / "HEAD").unlink()
        log = next(directory.glob("log-*.packed"))
        zero(log, 0, log.stat().st_size)
        with store.create(id="other") as session:  # has nothing to do with it
            session.append(entry.user("other"))
        assert [digest_of(each) for each in ids[-1:]] == list(Pool(store._layout, store.objects).pinned("s", b""))
        report = of(store.repair("s"), "s")
        assert (report.recovered, [each.id for each in store.read("s")]) == (6, ids)
        assert not list(Pool(store._layout, store.objects).pinned("s", b"another birth"))


# --- journals --------------------------------------------------------------------------------------------------------


def straight(root: Path, count: int = 12, size: int = 1500) -> list[str]:
    """A session all in its journal, a frame each."""
    with Store.open(root, create=True, background=False) as store, store.create(id="s") as session:
        return [session.append(entry.user(f"{n} " * (size // 2)), durable=False).id for n in range(count)]


@pytest.mark.parametrize("page", range(4))
def test_frames_behind_a_hole(tmp_path: Path, page: int) -> None:
    """Entries before it stay; those behind it hang from nothing and are kept as objects, each of them named."""
    ids = straight(tmp_path / "store")
    zero(tmp_path / "store" / "sessions" / "s" / "journal", FRAMES_OFFSET + page * BLOCK_SIZE, BLOCK_SIZE)
    with Store.open(tmp_path / "store", background=False) as store:
        found = of(store.repair("s"), "s")
        kept = [each.id for each in store.read("s")]
        assert kept == ids[: len(kept)]
        assert 0 < found.lost_rows <= 5
        assert found.kept + found.lost_rows + len(found.orphans) == len(ids)
        assert set(found.orphans) <= set(ids) - set(kept)
        for orphan in found.orphans:
            assert store.objects.get(Space.ENTRIES, digest_of(orphan))
        after = store.fsck()
        errors = {each.object for each in after.findings if each.severity == "error"}
        assert errors == set(found.missing)
        assert len(errors) <= 1
        told = next(each for each in after.findings if each.code == "lost_rows")
        assert f" {found.lost_rows + len(found.orphans)} rows" in told.detail
        with store.open_session("s") as session:
            session.append(entry.user("goes on"), durable=True)


def test_a_body_that_is_hurt_costs_its_entry_nothing_else(tmp_path: Path) -> None:
    ids = straight(tmp_path / "store")
    with Store.open(tmp_path / "store", background=False) as store:
        path = tmp_path / "store" / "sessions" / "s" / "journal"
        lost = store.read("s").entry(ids[4]).content_hash
        flip(path, path.read_bytes().index(b"4 4 4 ") + 100)
        found = of(store.repair("s"), "s")
        assert (found.kept, found.lost_rows, found.orphans, found.missing) == (len(ids), 0, [], [lost])
        source = store.read("s").source
        assert [source.entry_id(at) for at in range(len(source))] == ids
        errors = [each for each in store.fsck().findings if each.severity == "error"]
        assert [(each.code, each.object) for each in errors] == [("missing_content", lost)]


def test_an_envelope_or_a_row_that_is_hurt_costs_nothing(tmp_path: Path) -> None:
    ids = straight(tmp_path / "store")
    path = tmp_path / "store" / "sessions" / "s" / "journal"
    with Store.open(tmp_path / "store", background=False) as store:
        whole = [each.line for each in store.read("s")]
        data, head = path.read_bytes(), (path.parent / "HEAD").read_bytes()
        envelope = data.index(b'{"content":"sha256:', data.index(b"3 3 3 "))
        for at in (*range(envelope - 127, envelope - 3, 9), *range(envelope - 2, envelope + 210, 23)):
            flip(path, at)
            report = store.repair("s")
            assert report.whole, at - envelope
            assert [each.line for each in store.read("s")] == whole
            assert store.fsck().findings == []
            for left in sorted((tmp_path / "store").rglob("*"), reverse=True):
                if left.is_file() and ("objects/" in str(left) or "damaged" in str(left) or "log-" in left.name):
                    left.unlink()
            path.write_bytes(data)
            (path.parent / "HEAD").write_bytes(head)
    assert len(ids) == len(whole)


def test_the_other_copy_of_a_body_may_lie_in_any_journal(tmp_path: Path) -> None:
    """Also in one of a deleted session."""
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        with store.create(id="first") as first:
            same = first.append(entry.user("the same words")).id
            first.checkpoint()
        with store.create(id="second") as second:
            second.append(entry.user("other"))
            second.append(entry.user("the same words"))
        store.delete("second")
        name = store.read("first").entry(same).content_hash
        Path(tmp_path / "store" / "objects" / "contents" / name[7:9] / name[9:]).unlink()
        assert not store.fsck().ok
        assert store.repair("first").whole
        assert store.fsck().ok


# --- headers ---------------------------------------------------------------------------------------------------------

HEADER: Header = new_header(
    id="some-session", created_at=TS, cwd="/work", harness=Harness("h", "1"), records=["run"], extra={"x:y": {"a": [1]}}
)


def test_one_byte_of_a_header_is_made_good_exactly() -> None:
    data = encode_header(HEADER)
    for at in range(0, len(data), 3):
        for byte in (0, data[at] ^ 1, 255):
            assert mended_header(data[:at] + bytes([byte]) + data[at + 1 :]) == HEADER


@given(st.integers(0, len(encode_header(HEADER)) - 1))
@settings(deadline=None, max_examples=60)
def test_a_header_cut_short_keeps_the_members_before_the_cut(cut: int) -> None:
    data = encode_header(HEADER)[:cut]
    exact = mended_header(data)
    assert exact in (None, HEADER)
    for name, value in pieces_of(data).items():
        assert name in ("name", "version", "a") or HEADER.members()[name] == value


def test_a_header_that_is_lost_is_made_anew(bench: Bench) -> None:
    """The id is the directory's, the base what entries hang from."""
    (bench.session("delta") / "header").write_bytes(b'{"base":"sha256:00","cwd":"/there","created_at":"20')
    report, after = repaired(bench, "delta")
    assert of(report, "delta").header == "rebuilt"
    assert not report.whole
    assert after.ok
    with bench.store() as store:
        found = store.read("delta")
        assert (found.header.id, found.header.cwd) == ("delta", "/there")
        assert len(found) == 51 + 3


def test_an_id_that_is_lost_is_said(bench: Bench) -> None:
    with bench.store() as store:
        store.create(id="x" * 300).close()
        path = Path(store.layout.session_dir("x" * 300))
        (path / "header").unlink()
        report = store.repair()
        told = next(each for each in report.sessions if each.error)
        assert "id" in told.error
        assert not report.whole


# --- packs and loose objects -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [0, 10, -1, -60, -300])
def test_a_pack_hurt_outside_its_blocks(bench: Bench, pristine: Bench, where: int) -> None:
    """Header, trailer and table: the objects are all there, in a pack of another name; the damaged one is kept."""
    path = bench.pack("pack")
    flip(path, where)
    spoilt = path.read_bytes()
    report, after = repaired(bench)
    assert report.objects is not None
    assert report.objects.packs == [str(path)]
    assert Path(report.objects.replaced, path.name).read_bytes() == spoilt
    assert after.findings == []
    assert lines(bench) == lines(pristine)


def test_a_pack_that_says_nothing_any_more_is_set_aside(bench: Bench) -> None:
    path = bench.pack("pack")
    path.write_bytes(b"rot" * 99)
    report, after = repaired(bench)
    missing = set(of(report, "beta").missing)
    assert len(missing) == 100
    assert {each.object for each in after.findings if each.severity == "error"} <= missing
    assert not path.exists()


def test_what_has_a_copy_elsewhere_is_put_back(bench: Bench) -> None:
    """A rotten loose blob of which a pack has a copy."""
    with bench.store() as store:
        name = store.put_blob(b"picture" * 99)
        path = bench.loose("media", name)
        good = path.read_bytes()
        path.write_bytes(good[:-2])
        report = store.repair()
        assert report.objects is not None
        assert report.objects.loose == [str(path)]
        assert not path.exists()
        path.write_bytes(good)
        store.objects.publish([(Space.MEDIA, digest_of(name), b"picture" * 99)], loose_below=0)
        assert store.blob(name) == b"picture" * 99


# --- the door --------------------------------------------------------------------------------------------------------


def test_a_dry_run_says_it_all_and_writes_nothing(bench: Bench) -> None:
    DAMAGE["journal_missing"](bench)
    DAMAGE["corrupt_pack"](bench)
    DAMAGE["bad_header"](bench)
    before = tree(bench.root)
    with Store.open(bench.root, read_only=True) as store:
        said = store.repair(dry_run=True)
    assert tree(bench.root) == before
    assert said.dry_run
    report, _ = repaired(bench)
    for ours, theirs in zip(said.sessions, report.sessions, strict=True):
        theirs.replaced = ""
        assert ours == theirs


def test_what_it_replaced_is_kept_beside(bench: Bench) -> None:
    DAMAGE["log_row"](bench)
    path = bench.session("beta")
    old = {name: (path / name).read_bytes() for name in ("journal", "log-0", "HEAD", "header")}
    report, _ = repaired(bench, "beta")
    kept = Path(of(report, "beta").replaced)
    assert kept == path / "damaged" / "1"
    assert {name: (kept / name).read_bytes() for name in old} == old
    assert json.loads((kept / "report.json").read_bytes())["recovered"] == 3
    flip(path / "log-1", 77)
    report, _ = repaired(bench, "beta")
    assert of(report, "beta").replaced == str(path / "damaged" / "2")
    assert (path / "damaged" / "2" / "log-1").exists()


def test_locks(bench: Bench) -> None:
    """One that is written is left alone: it is whole, or its repair waits."""
    with bench.store() as store:
        with store.open_session("alpha"):
            with pytest.raises(SessionLocked):
                store.repair("alpha")
            assert store.repair().whole
        lock = store.layout.host.fs.lock(store.layout.repack_lock, exclusive=True, note="somebody")
        assert lock is not None
        with pytest.raises(StoreLocked, match="somebody"):
            store.repair()
        lock.release()
        with store.open_session("alpha"):
            flip(bench.session("alpha") / "journal", 9)
            assert "alpha" in next(each.error for each in store.repair().sessions if each.error)


def test_refusals(bench: Bench) -> None:
    store = bench.store()
    with pytest.raises(NoSession):
        store.repair("nobody")
    with Store.open(bench.root, read_only=True) as reading, pytest.raises(ReadOnly):
        reading.repair()
    store.close()
    with pytest.raises(Closed):
        store.repair()


def test_progress_comes_to_its_end(bench: Bench) -> None:
    told: list[tuple[int, int]] = []
    with bench.store() as store:
        store.repair(progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1] == (6, 6)


def test_in_memory() -> None:
    with Store.memory() as store:
        with store.create(id="m") as session:
            session.append(entry.user("hi"))
        assert not store.repair().changed


# --- the seed of a log -----------------------------------------------------------------------------------------------


@given(st.binary(min_size=124, max_size=124), st.integers(0, 40), st.integers(0, (1 << 32) - 1))
@settings(deadline=None, max_examples=200)
def test_a_seal_yields_its_seed(body: bytes, number: int, seed: int) -> None:
    data = bytes(2 * ROW_SIZE) + seal_row(body, number, seed)
    assert seed_of(data, 2, number) == seed


def test_the_journals_first_block_is_not_needed(bench: Bench, pristine: Bench) -> None:
    """Neither salt, birth nor base: the rows tell the seed, and the first frame the base."""
    for name in SESSIONS:
        zero(bench.session(name) / "journal", 0, BLOCK_SIZE)
        os.unlink(bench.session(name) / "HEAD")
    report, after = repaired(bench)
    assert report.whole
    assert after.findings == []
    assert lines(bench) == lines(pristine)


# --- what lies in the way, what was left -----------------------------------------------------------------------------


def test_a_directory_where_HEAD_should_be_keeps_nobody_out(bench: Bench) -> None:  # noqa: N802
    """HEAD is a hint: who reads or writes goes on without it, fsck notes it, and a repair moves it away."""
    head = bench.session("beta") / "HEAD"
    head.unlink()
    head.mkdir()
    with bench.store() as store:
        assert len(store.read("beta")) == 110
        assert {each.id for each in store.list()} == {"alpha", "beta", "gamma", "delta"}
        with store.open_session("beta") as session:
            last = session.append(entry.user("goes on"), durable=True).id
        assert [(each.code, each.session) for each in store.fsck().findings] == [("unreadable_head", "beta")]
        assert "repair" in store.fsck().findings[0].detail
        assert store.repair("beta", dry_run=True).changed
        report = of(store.repair("beta"), "beta")
        assert (report.changed, report.whole, report.kept) == (True, True, 111)
        assert Path(report.replaced, "HEAD").is_dir()
        assert store.read("beta").leaf == last
        store.open_session("beta").close()
        assert head.is_file()
        assert store.fsck().findings == []
        assert not store.repair().changed


def left_by_a_crash(bench: Bench) -> list[Path]:
    """An earlier log and a generation without its name, beside a session that was let go."""
    paths = [bench.session("beta") / name for name in ("log-7", "log-7.packed", "journal.next-0011")]
    for path in paths:
        path.write_bytes(b"\0" * 4096)
        os.utime(path, (1, 1))
    return paths


@pytest.mark.parametrize("how", ["repair", "gc", "repack"])
def test_what_a_crash_left_beside_a_session_goes(bench: Bench, how: str) -> None:
    paths = left_by_a_crash(bench)
    before = lines(bench)
    with bench.store() as store:
        assert {each.code for each in store.fsck().findings} == {"leftover_file"}
        if how == "repair":
            assert of(store.repair("beta", dry_run=True), "beta").changed
            assert all(path.exists() for path in paths)
            assert of(store.repair("beta"), "beta").whole
            assert not store.repair("beta").changed
        else:
            store.gc() if how == "gc" else store.repack()
        assert not any(path.exists() for path in paths)
        assert store.fsck().findings == []
    assert lines(bench) == before


def test_gc_leaves_a_session_that_is_being_written_alone(bench: Bench) -> None:
    paths = left_by_a_crash(bench)
    with bench.store() as store, store.open_session("beta"):
        store.gc()
        assert all(path.exists() for path in paths)


# --- what several need -----------------------------------------------------------------------------------------------


def test_what_two_sessions_lack_is_put_back_once_and_a_dry_run_says_so(tmp_path: Path) -> None:
    """The one good copy lies in the journal of a third."""
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        for name in ("a", "b", "c"):
            with store.create(id=name) as session:
                session.append(entry.user("the same words"))
                if name != "c":
                    session.checkpoint()
        body = next(iter(store.read("a"))).content_hash
        Path(store.objects.loose_path(Space.CONTENTS, digest_of(body))).unlink()
        would, done = store.repair(dry_run=True), store.repair()
        for report in (would, done):
            assert [(each.session, each.changed, each.objects) for each in report.sessions] == [
                ("a", True, 1),
                ("b", False, 0),
                ("c", False, 0),
            ]
        assert store.fsck().findings == []


def test_a_body_that_is_lost_is_the_one_thing_fsck_names(tmp_path: Path) -> None:
    """Rows packed without a context hash follow from bodies: of those below the lost one it is not asked."""
    with Store.open(tmp_path / "store", create=True, background=False) as store:
        with store.create(id="s") as session:
            for n in range(6):
                session.append(entry.user(f"{n}"))
        store.repack()
        lost = list(store.read("s"))[2].content_hash
        held = [(each.space, each.digest) for each in store.objects.iterate() if each.digest != digest_of(lost)]
        objects = [(space, digest, store.objects.get(space, digest)) for space, digest in held]
    for path in (tmp_path / "store" / "objects" / "pack").iterdir():
        path.unlink()
    with Store.open(tmp_path / "store", background=False) as store:
        store.objects.publish(objects)
        wrong = [each for each in store.fsck().findings if each.severity != "note"]
        assert [(each.code, each.session, each.object) for each in wrong] == [("missing_content", "s", lost)]
        assert store.repair().sessions[0].missing == [lost]
