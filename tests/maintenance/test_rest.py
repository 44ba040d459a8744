"""Sessions at rest: small files, the same entries; no crash, kill, reader or writer that meets it loses anything."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.core.framing import (
    FRAMES_OFFSET,
    Generation,
    decode_records,
    encode_frame,
    encode_settled,
    record_packer,
    scan_journal,
)
from agentsession_cas.core.packedrows import PIECE_ROWS
from agentsession_cas.core.slices import drain
from agentsession_cas.effects.durable import write_new
from agentsession_cas.effects.host import Fs, Host, OpenFile
from agentsession_cas.errors import AgentSessionError, Damaged, StoreLocked
from agentsession_cas.maintenance.rest import settle_all, unsettled
from agentsession_cas.sessions import settling
from agentsession_cas.sessions.journal import next_name
from agentsession_cas.sessions.log import RowTable
from agentsession_cas.sessions.packedlog import PackedLog, packed_name, packed_rows
from agentsession_cas.testing.simfs import Sim
from tests.helpers.crashes import cuts, write_unsynced
from tests.helpers.stores import Lines, lines_of, opened


def contexts_of(store: Store, name: str) -> list[bytes]:
    source = store.read(name).source
    return [source.context_digest(at) for at in range(source.base_count, len(source))]  # type: ignore[attr-defined]


def read_ids(store: Store, name: str) -> list[str]:
    source = store.read(name).source
    return [source.entry_id(at) for at in range(len(source))]


def sizes(store: Store, name: str) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in Path(store.layout.session_dir(name)).iterdir()}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A long session with everything a row may say, and some short ones, forks among them."""
    with Store.open(tmp_path / "store", create=True, background=False) as made:
        for at, count in enumerate((1, 31, 32, 40)):
            with made.create(id=f"short-{at}") as session:
                found = session.append_batch([entry.user(f"{at} {n}") for n in range(count)])
                if at % 2:
                    session.checkpoint()
        with made.fork("short-3", found[20].id, id="forked") as session:
            call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
            session.append_batch([entry.item(call, response="r1"), entry.function_call_output("c1", "what it says")])
        made.create(id="empty").close()
        with made.create(id="long") as session:
            for turn in range(PIECE_ROWS // 40):
                results = session.append_batch([entry.user(f"{turn} {n}") for n in range(45)], durable=False)
                session.append(entry.label(results[3].id, f"a label {turn}"))
            session.append(session.compact_from(4, {"type": "message", "role": "user", "content": "so far"}))
            session.branch(results[7].id)
            session.append(entry.user("a branch"))
        yield made


@pytest.mark.parametrize("name", ["short-0", "short-1", "short-3"])
def test_a_packed_log_that_was_damaged_is_never_read_as_other_rows(store: Store, name: str) -> None:
    """Those past the last whole block too, which a reader takes from the log before anything is asked for."""
    store.repack()
    path = Path(store.layout.session_dir(name)) / "log-1.packed"
    data = path.read_bytes()
    path.chmod(0o600)
    for at in range(0, len(data), 3):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(Damaged):
            lines_of(store)


def test_nothing_a_session_says_changes(store: Store) -> None:
    lines = lines_of(store)
    contexts = {name: contexts_of(store, name) for name in lines}
    heads = {name: store.read(name).leaf for name in lines}
    assert store.repack().settled == len(lines)
    assert lines_of(store) == lines
    assert {name: contexts_of(store, name) for name in lines} == contexts
    assert {name: store.read(name).leaf for name in lines} == heads
    assert {each.id: each.head for each in store.list()} == heads
    assert store.fsck().findings == []
    assert store.repack().settled == 0
    for name in lines:
        found = sizes(store, name)
        assert set(found) == {"HEAD", "header", "journal", "lock"} | ({"log-1.packed"} if contexts[name] else set())
        assert found["journal"] < 200
        assert found.get("log-1.packed", 0) < 150 + 45 * len(contexts[name])


def test_a_settled_session_goes_on(store: Store) -> None:
    store.repack()
    lines = lines_of(store)
    for round_ in range(3):
        with store.open_session("long") as session:
            session.append(entry.user(f"{round_} in the journal"))
            if round_:
                session.append_batch([entry.user(f"{round_} {n}") for n in range(70)])
                session.checkpoint()
                assert sizes(store, "long")["journal"] >= FRAMES_OFFSET
            session.append(entry.user(f"{round_} behind the checkpoint"))
            lines["long"] = [each.line for each in session]
        contexts = contexts_of(store, "long")
        assert lines_of(store) == lines
        assert store.fsck().findings == []
        assert store.repack(round_ == 1).settled == 1
        assert lines_of(store) == lines
        assert contexts_of(store, "long") == contexts
        assert store.fsck().findings == []
    assert sizes(store, "long").keys() == {"HEAD", "header", "journal", "lock", "log-4.packed"}


def test_without_its_hint_a_settled_session_is_copied(store: Store) -> None:
    store.repack()
    lines = lines_of(store)
    Path(store.layout.session_dir("long"), "HEAD").unlink()
    with store.open_session("long") as session:
        assert [each.line for each in session] == lines["long"]
        session.append(entry.user("more"))
        lines["long"] = [each.line for each in session]
    assert lines_of(store) == lines
    assert store.fsck().findings == []


def test_a_session_that_is_written_is_passed_over(store: Store) -> None:
    with store.open_session("long") as session:
        session.append(entry.user("now"))
        assert store.repack().settled == len(store.session_ids()) - 1
        assert sizes(store, "long")["journal"] >= FRAMES_OFFSET
        session.append(entry.user("and now"))
    assert store.repack().settled == 1


def test_forks_of_settled_sessions(store: Store) -> None:
    whole = contexts_of(store, "long")
    store.repack()
    session = store.read("long")
    middle = session.entry(session.source.entry_id(200)).id
    with store.fork("long", middle, id="fork") as fork:
        fork.append(entry.user("from the middle"))
    assert store.read("long").source.find(middle) == 200
    assert len(store.read("fork")) == 202
    assert whole == contexts_of(store, "long")
    assert store.fsck().findings == []
    store.delete("long")
    store.repack()
    assert len(store.read("fork")) == 202
    assert {each.code for each in store.fsck().findings} == {"dangling_object"}


def test_every_flipped_byte_is_named(store: Store) -> None:
    store.repack()
    directory = Path(store.layout.session_dir("long"))
    for name in ("journal", "log-1.packed"):
        path = directory / name
        whole = path.read_bytes()
        for at in [*range(0, len(whole), len(whole) // 7), len(whole) - 1]:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1 :])
            assert {each.session for each in store.fsck(fast=True).findings if each.severity == "error"} == {"long"}
            with pytest.raises(AgentSessionError):
                read_ids(store, "long")
        path.write_bytes(whole[:-1])
        assert {each.session for each in store.fsck(fast=True).findings if each.severity == "error"} == {"long"}
        path.write_bytes(whole)
    (directory / "log-1.packed").unlink()
    assert "log_missing" in {each.code for each in store.fsck(fast=True).findings}
    with pytest.raises(Damaged, match="packed log is absent"):
        store.read("long")


def test_damage_in_one_piece_leaves_the_others(store: Store) -> None:
    store.repack()
    path = Path(store.layout.session_dir("long"), "log-1.packed")
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    found = [each for each in store.fsck(fast=True).findings if each.code == "log_row"]
    assert len(found) == 1
    assert found[0].path.endswith("log-1.packed")
    assert f"rows 0 to {PIECE_ROWS - 1}" in found[0].detail
    source = store.read("long").source
    assert source.entry_id(len(source) - 1)


# --- crashes ---------------------------------------------------------------------------------------------------------


def machine(seed: int = 0) -> tuple[Sim, Lines]:
    """A session in its journal, one with a log and a journal, and one settled and written to since."""
    sim = Sim(seed=seed)
    with opened(sim.host, create=True) as store:
        with store.create(id="a") as session:
            session.append_batch([entry.user(f"a {n} " * 9) for n in range(9)])
        with store.create(id="b") as session:
            session.append_batch([entry.user(f"b {n} " * 9) for n in range(40)])
            session.checkpoint()
            session.append(entry.user("b behind"))
        store.repack()
        for name in "ab":
            with store.open_session(name) as session:
                session.append_batch([entry.user(f"more {n}") for n in range(35)])
                if name == "b":
                    session.checkpoint()
                session.append(entry.user("and more"))
        with store.create(id="c") as session:
            session.append(entry.user("c"))
        return sim, lines_of(store)


def settled(host: Host) -> None:
    with opened(host) as store:
        store.repack()


def goes_on(host: Host, lines: Lines) -> None:
    """Everything is there, can be written to, and settled."""
    with opened(host) as store:
        assert lines_of(store) == lines
        for name in lines:
            with store.open_session(name) as session:
                session.append(entry.user("after"), durable=True)
        assert {name: found[:-1] for name, found in lines_of(store).items()} == lines
        store.repack()
        assert {name: found[:-1] for name, found in lines_of(store).items()} == lines
        assert {each.severity for each in store.fsck().findings} <= {"note"}


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(2))
def test_power_cut_at_every_effect(seed: int) -> None:
    assert cut_everywhere(seed, images=3) > 60


def cut_everywhere(seed: int, images: int) -> int:
    sim, lines = machine(seed)
    seen = 0
    for _, cut in cuts(sim, lambda: settled(sim.host)):
        for image in cut.images(images, tear=True):
            with opened(image.host) as store:
                assert lines_of(store) == lines
            seen += 1
        goes_on(image.host, lines)
    return seen


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(3))
def test_what_is_cut_is_several_settlings_at_once(seed: int) -> None:
    """Or the cuts tell nothing of them."""
    sim, _ = machine(seed)
    sim.log.clear()
    settled(sim.host)
    order = [each.path.split("/")[3] for each in sim.log if each.path.startswith("/store/sessions/")]
    spans = {name: (order.index(name), len(order) - order[::-1].index(name)) for name in "abc"}
    within = [[name for name, (first, end) in spans.items() if first < at < end] for at in range(len(order))]
    assert max(map(len, within)) == len(spans)


@pytest.mark.heavy
def test_kill_at_every_effect_then_power_cut() -> None:
    """What another process finds and goes on from is made durable by it."""
    sim, lines = machine()
    for _, cut in cuts(sim, lambda: settled(sim.host)):
        with opened(cut.host) as store:
            for name in lines:
                with store.open_session(name) as session:
                    session.append(entry.user("by another"), durable=True)
        for image in cut.images(3):
            with opened(image.host) as store:
                assert {name: found[:-1] for name, found in lines_of(store).items()} == lines


@pytest.mark.heavy
def test_readers_see_every_entry_meanwhile() -> None:
    sim, lines = machine()
    sim.record()
    settled(sim.host)
    for _, host in sim.readers(60):
        with Store.open("/store", host=host, read_only=True) as store:
            for name, wanted in lines.items():
                assert [each.line for each in store.read(name)] == wanted


def names_before_bytes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settling, "write_new", write_unsynced)


def generation_before_the_sync_of_its_log(patch: pytest.MonkeyPatch) -> None:
    sound_name = settling._name
    late: dict[str, OpenFile] = {}

    def unsynced(fs: Fs, path: str, data: bytes) -> None:
        if not path.endswith(".packed"):
            write_new(fs, path, data)
            return
        file = late[path.rpartition("/")[0]] = fs.create(path)
        file.pwrite(data, 0)

    def named(fs: Fs, directory: str, generation: Generation) -> None:
        sound_name(fs, directory, generation)
        file = late.pop(directory)
        file.sync()
        file.close()

    patch.setattr(settling, "write_new", unsynced)
    patch.setattr(settling, "_name", named)


def generation_before_the_name_of_its_log(patch: pytest.MonkeyPatch) -> None:
    def unnamed(fs: Fs, directory: str, generation: Generation, table: RowTable) -> None:
        packed = table.log if isinstance(table.log, PackedLog) else None
        data = packed_rows(generation, table, packed)
        write_new(fs, f"{directory}/{packed_name(generation.log)}", data)

    patch.setattr(settling, "_write_packed", unnamed)


def log_removed_while_a_crash_may_ask_for_it(patch: pytest.MonkeyPatch) -> None:
    def unsynced(fs: Fs, directory: str, generation: Generation) -> None:
        staged = f"{directory}/{next_name(generation.salt)}"
        write_new(fs, staged, encode_settled(generation))
        fs.rename(staged, f"{directory}/journal")

    patch.setattr(settling, "_name", unsynced)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "mistake",
    [
        names_before_bytes,
        generation_before_the_sync_of_its_log,
        generation_before_the_name_of_its_log,
        log_removed_while_a_crash_may_ask_for_it,
    ],
)
def test_a_seeded_mistake_is_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, AgentSessionError)):
        cut_everywhere(0, images=20)


@pytest.mark.heavy
@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_a_disk_that_refuses_leaves_the_sessions(code: int, forever: bool) -> None:
    """Also when the power fails next: a sync that failed is of nothing, whatever the cache shows. No lock is left."""
    sim, lines = machine()
    for nth in range(1, 300):
        failing = sim.clone()
        fault = failing.fail(nth, code, forever=forever)
        with suppress(AgentSessionError):
            settled(failing.host)
        failing.heal()
        for image in failing.images(2):
            with opened(image.host) as store:
                assert lines_of(store) == lines
        with opened(failing.process("p2")) as store:
            assert lines_of(store) == lines
            for name in lines:
                store.open_session(name).close()
        if not fault.hits:
            goes_on(failing.host, lines)
            return
    raise AssertionError("it never came to an end")


def test_a_session_that_cannot_be_settled_holds_up_no_other() -> None:
    """Damaged, locked, or on a bad sector: the others of its lot are settled all the same."""
    sim = Sim()
    with opened(sim.host, create=True) as store:
        for at in range(12):
            with store.create(id=f"s{at:02}") as session:
                session.append(entry.user(str(at)))
        held = opened(sim.process("p2")).open_session("s05")
        sim.flip("/store/sessions/s03/journal", 20)
        sim.fail(3, errno.EIO, kinds=frozenset({"rename"}))  # the first journal, behind a pack and its idx
        settled_now = store.repack().settled
        sim.heal()
        held.close()
        assert settled_now == 9
        assert store.repack().settled == 2
        assert len(store.list(on_damage=lambda *_: None)) == 11


def test_a_body_that_does_not_hash_holds_up_no_other_session() -> None:
    """Its frame passes its checksum: the bytes were wrong when they were written."""
    sim = Sim()
    with opened(sim.host, create=True) as store:
        for at in range(3):
            with store.create(id=f"s{at}") as session:
                session.append(entry.user(f"hello {at}"))
                session.append(entry.user(str(at)))
        path = "/store/sessions/s1/journal"
        data = sim.host.fs.read(path)
        assert data is not None
        scan = scan_journal(data)
        frame = scan.frames[0]
        (record,) = decode_records(data[frame.payload_at : frame.end], 1)
        forged = record_packer()([record._replace(content=record.content.replace(b"hello", b"hallo"))])
        file = sim.host.fs.open(path, write=True)
        file.pwrite(encode_frame(scan.generation.salt, frame.offset, 0, 0, 1, forged), frame.offset)
        file.close()
        assert store.repack().settled == 2
        assert {each.session for each in store.fsck().findings if each.severity == "error"} == {"s1"}
        assert [len(store.read(name)) for name in ("s0", "s2")] == [2, 2]


def test_a_store_that_others_hold_ends_a_settling_and_leaves_no_lock() -> None:
    """Whoever waits a minute for it at one session does not do so at each."""
    sim, lines = machine()
    with opened(sim.host) as store:
        asked = list[bool]()

        @contextmanager
        def switch() -> Iterator[None]:
            asked.append(True)
            if len(asked) > 1:  # once it is to be published, and then to settle
                raise StoreLocked("the store is held")
            with store.layout.shared():
                yield

        with pytest.raises(StoreLocked):
            drain(settle_all(store.layout, store.objects, unsettled(store.layout, 0.0), switch, lambda: None))
        assert asked
    goes_on(sim.process("p2"), lines)
