"""Crash images: nothing legal is impossible, nothing illegal comes up, and a bad protocol is caught."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.effects import durable
from agentsession_cas.effects.host import Host, OpenFile
from agentsession_cas.testing.simfs import PowerCut, Sim

S = 512


def machine(seed: int = 0) -> Sim:
    sim = Sim(seed=seed)
    durable.ensure_dir(sim.host.fs, "/d")
    return sim


def made(sim: Sim, path: str, data: bytes) -> OpenFile:
    """A file that is wholly durable, its name too."""
    file = sim.host.fs.create(path)
    file.pwrite(data, 0)
    file.sync()
    sim.host.fs.sync_dir(durable.parent(path))
    return file


def contents(sim: Sim, path: str, budget: int = 200, *, tear: bool = False) -> set[bytes | None]:
    return {image.host.fs.read(path) for image in sim.images(budget, tear=tear)}


# --- all that is legal ------------------------------------------------------------------------------------------------


def test_nothing_pending_is_one_image() -> None:
    sim = machine()
    made(sim, "/d/f", b"data")
    (image,) = sim.images(40)
    assert image.host.fs.read("/d/f") == b"data"
    assert str(image.story) == "nothing was pending"


def test_each_sector_is_old_or_new_by_itself() -> None:
    sim = machine()
    file = made(sim, "/d/f", b"o" * 3 * S)
    file.pwrite(b"n" * 3 * S, 0)
    assert contents(sim, "/d/f") == {
        b"".join(bytes([letter]) * S for letter in letters) for letters in product(b"on", repeat=3)
    }


@pytest.mark.parametrize("width", [512, 4096])
def test_a_sector_is_never_split(width: int) -> None:
    sim = Sim(sector=width)
    file = made(sim, "/f", b"o" * 2 * width)
    file.pwrite(b"n" * 100, width - 50)
    halves = ((b"o" * width, b"o" * (width - 50) + b"n" * 50), (b"o" * width, b"n" * 50 + b"o" * (width - 50)))
    assert contents(sim, "/f") == {first + second for first, second in product(*halves)}


def test_a_sector_may_hold_any_version_between() -> None:
    sim = machine()
    file = made(sim, "/d/f", b"0")
    for k in b"123":
        file.pwrite(bytes([k]), 0)
    assert contents(sim, "/d/f") == {b"0", b"1", b"2", b"3"}


def test_the_first_image_has_all_and_the_second_nothing() -> None:
    sim = machine()
    file = made(sim, "/d/f", b"o" * 4000)
    file.pwrite(b"n" * 9000, 0)
    sim.host.fs.create("/d/g")
    sim.host.fs.rename("/d/f", "/d/h")
    first, second, *_ = sim.images(40)
    assert first.host.fs.listdir("/d") == ["g", "h"]
    assert first.host.fs.read("/d/h") == b"n" * 9000
    assert second.host.fs.listdir("/d") == ["f"]
    assert second.host.fs.read("/d/f") == b"o" * 4000


def test_a_file_that_grew_has_any_size_it_had_or_passed() -> None:
    sim = machine()
    file = made(sim, "/d/f", b"1" * 100)
    file.pwrite(b"2" * 2000, 100)
    file.pwrite(b"3" * 100, 2100)
    sizes = {len(found or b"") for found in contents(sim, "/d/f", 400)}
    assert {100, 2100, 2200} < sizes
    assert all(size in (100, 2100, 2200) or size % S == 0 for size in sizes)


def test_names_are_kept_or_undone_one_by_one() -> None:
    sim = machine()
    made(sim, "/d/a", b"1")
    fs = sim.host.fs
    fs.unlink("/d/a")
    fs.create("/d/b")
    fs.mkdir("/d/c")
    seen = {tuple(image.host.fs.listdir("/d")) for image in sim.images(100)}
    assert seen == {
        tuple(name for name, there in zip("abc", some, strict=True) if there)
        for some in product((True, False), repeat=3)
    }


def test_an_unsynced_rename_may_be_lost_or_half_done() -> None:
    sim = machine()
    made(sim, "/d/new", b"new")
    made(sim, "/d/f", b"old")
    sim.host.fs.rename("/d/new", "/d/f")
    assert contents(sim, "/d/f") == {b"old", b"new"}
    assert contents(sim, "/d/new") == {b"new", None}


def test_names_in_two_directories_persist_apart() -> None:
    sim = machine()
    durable.ensure_dir(sim.host.fs, "/e")
    made(sim, "/d/f", b"data")
    sim.host.fs.rename("/d/f", "/e/f")
    sim.host.fs.sync_dir("/e")
    assert contents(sim, "/e/f") == {b"data"}
    assert contents(sim, "/d/f") == {b"data", None}


@pytest.mark.parametrize("moves", [["/e/s"], ["/e/s", "/d/t"], ["/d/t", "/e/s"]])
def test_a_directory_is_never_in_two_places(moves: list[str]) -> None:
    sim = machine()
    durable.ensure_dir(sim.host.fs, "/e")
    durable.ensure_dir(sim.host.fs, "/d/s")
    made(sim, "/d/s/f", b"data")
    at = "/d/s"
    for target in moves:
        sim.host.fs.rename(at, target)
        at = target
    places = {"/d/s", *moves}
    seen = []
    for image in sim.images(300):
        found = [place for place in places if image.host.fs.stat(place) is not None]
        assert len(found) <= 1
        assert all(image.host.fs.read(f"{place}/f") == b"data" for place in found)
        seen += found
    assert set(seen) == places


def test_a_directory_moved_with_only_its_new_name_synced_is_there() -> None:
    sim = machine()
    durable.ensure_dir(sim.host.fs, "/e")
    durable.ensure_dir(sim.host.fs, "/d/s")
    sim.host.fs.rename("/d/s", "/e/s")
    sim.host.fs.sync_dir("/e")
    assert {image.host.fs.stat("/d/s") for image in sim.images(50)} == {None}
    assert {image.host.fs.stat("/e/s") is None for image in sim.images(50)} == {False}


def test_synced_bytes_without_a_synced_name_may_be_gone() -> None:
    sim = machine()
    file = sim.host.fs.create("/d/f")
    file.pwrite(b"data", 0)
    file.sync()
    assert contents(sim, "/d/f") == {b"data", None}


def test_a_synced_name_without_synced_bytes_may_hold_anything() -> None:
    sim = machine()
    sim.host.fs.create("/d/f").pwrite(b"data", 0)
    sim.host.fs.sync_dir("/d")
    assert contents(sim, "/d/f") > {b"", b"data", bytes(4)}


# --- space never written, torn sectors --------------------------------------------------------------------------------


def test_space_never_written_may_show_a_dead_files_bytes() -> None:
    sim = machine()
    old = made(sim, "/d/old", b"s" * 2 * S)
    old.close()
    sim.host.fs.unlink("/d/old")
    sim.host.fs.sync_dir("/d")
    file = made(sim, "/d/f", b"k" * S)
    file.pwrite(b"n" * S, S)
    assert contents(sim, "/d/f") == {b"k" * S + rest for rest in (b"", b"n" * S, bytes(S), b"s" * S)}


def test_zeros_written_into_new_space_are_no_zeros_until_synced() -> None:
    sim = machine()
    made(sim, "/d/old", b"s" * 4 * S)
    file = sim.host.fs.create("/d/f")
    file.pwrite(bytes(4 * S), 0)
    sim.host.fs.sync_dir("/d")
    assert any(b"s" in (found or b"") for found in contents(sim, "/d/f"))
    file.sync()
    assert contents(sim, "/d/f") == {bytes(4 * S)}


def test_what_an_image_lost_is_what_the_next_life_finds_in_new_space() -> None:
    sim = machine()
    file = made(sim, "/d/f", b"k" * S)
    file.pwrite(b"lost" * (S // 4), S)
    risen = False
    for image in sim.images(20):
        if image.host.fs.read("/d/f") == b"k" * S:
            image.host.fs.open("/d/f", write=True).pwrite(b"n" * S, S)
            risen |= any(b"lost" in (found or b"") for found in contents(image, "/d/f"))
    assert risen


def test_a_torn_sector_is_one_that_was_being_written() -> None:
    sim = machine()
    file = made(sim, "/d/f", b"o" * 4 * S)
    file.pwrite(b"n" * 2 * S, S)
    found = contents(sim, "/d/f", 300, tear=True)
    assert all(data and data[:S] == b"o" * S and data[3 * S :] == b"o" * S and len(data) == 4 * S for data in found)
    middle = {data[S : 2 * S] for data in found if data}
    assert {b"o" * S, b"n" * S} < middle
    assert any(b"o" in sector and b"n" in sector for sector in middle)
    assert any(not set(sector) & set(b"on") for sector in middle)
    file.sync()
    assert contents(sim, "/d/f", 50, tear=True) == {b"o" * S + b"n" * 2 * S + b"o" * S}


# --- budgets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 2, 7, 64])
def test_a_budget_is_kept_and_no_image_comes_twice(budget: int) -> None:
    sim = machine()
    file = made(sim, "/d/f", b"o" * 9000)
    file.pwrite(b"n" * 20_000, 100)
    stories = [str(image.story) for image in sim.images(budget, tear=True)]
    assert len(stories) == budget
    plain = [str(image.story) for image in sim.images(budget)]
    assert len(set(plain)) == budget


def test_another_seed_gives_other_images() -> None:
    sim = machine()
    made(sim, "/d/f", b"o" * 9000).pwrite(b"n" * 9000, 0)
    one, two = ({str(image.story) for image in sim.images(60, seed=seed)} for seed in (1, 2))
    assert one != two


def test_names_that_came_and_went_do_not_crowd_out_the_others() -> None:
    sim = machine()
    for k in range(300):
        sim.host.fs.create(f"/d/tmp{k}").close()
        sim.host.fs.unlink(f"/d/tmp{k}")
    file = made(sim, "/f", b"o" * 3 * S)
    file.pwrite(b"n" * 3 * S, 0)
    assert len(contents(sim, "/f", 100)) == 8


# --- nothing that is illegal ------------------------------------------------------------------------------------------

Step = tuple[str, int, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "sync", "rename", "sync_dir", "unlink"]),
        st.integers(0, 2),
        st.integers(0, 2000),
        st.integers(1, 1500),
    ),
    max_size=14,
)


class Ledger:
    """What may be seen after a crash, kept without the simulator's help: whole files, and whole lists of names."""

    def __init__(self) -> None:
        self.files: list[list[bytes]] = []
        """For each file ever made: its bytes when last synced, and after each write since."""
        self.names: list[dict[str, int]] = [{}]
        """The names when last synced, and after each change since."""

    def check(self, image: Sim) -> None:
        seen = {name: image.host.fs.read(f"/d/{name}") or b"" for name in image.host.fs.listdir("/d")}
        for name in {name for names in self.names for name in names} | set(seen):
            meant = {names.get(name) for names in self.names}
            if name not in seen:
                assert None in meant, f"{name} is gone"
            else:
                assert any(self.legal(seen[name], self.files[k]) for k in meant if k is not None), name

    @staticmethod
    def legal(found: bytes, versions: list[bytes]) -> bool:
        if not len(versions[0]) <= len(found) <= len(versions[-1]):
            return False
        for start in range(0, min(len(found), len(versions[0])), S):
            sectors = {version[start : start + S].ljust(S, b"\0") for version in versions}
            if found[start : start + S] not in {sector[: len(found) - start] for sector in sectors}:
                return False
        return True


def _play(sim: Sim, ledger: Ledger, steps: Iterable[Step]) -> None:
    fs = sim.host.fs
    for stamp, (kind, which, offset, size) in enumerate(steps):
        name, names = "abc"[which], dict(ledger.names[-1])
        path = f"/d/{name}"
        if kind == "sync_dir":
            fs.sync_dir("/d")
            ledger.names = [names]
        elif kind == "write":
            if name not in names:
                ledger.files.append([b""])
                ledger.names.append({**names, name: len(ledger.files) - 1})
            file = fs.open(path, write=True) if name in names else fs.create(path)
            versions = ledger.files[ledger.names[-1][name]]
            data = bytes([1 + stamp]) * size
            before = versions[-1].ljust(offset, b"\0")
            versions.append(before[:offset] + data + before[offset + size :])
            file.pwrite(data, offset)
            file.close()
        elif name in names and kind == "sync":
            file = fs.open(path, write=True)
            file.sync()
            file.close()
            ledger.files[names[name]] = ledger.files[names[name]][-1:]
        elif name in names and kind == "unlink":
            del names[name]
            ledger.names.append(names)
            fs.unlink(path)
        elif name in names:
            names["abc"[which - 1]] = names.pop(name)
            ledger.names.append(names)
            fs.rename(path, f"/d/{'abc'[which - 1]}")


@settings(max_examples=120, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 99))
def test_an_image_holds_nothing_else(steps: list[Step], seed: int) -> None:
    sim, ledger = machine(seed), Ledger()
    _play(sim, ledger, steps)
    for image in sim.images(25, seed=seed):
        ledger.check(image)
        for again in image.images(3):  # nothing is pending after a reboot
            ledger.check(again)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 99))
def test_before_a_crash_the_simulator_is_a_file_system(steps: list[Step], seed: int) -> None:
    sim, ledger = machine(seed), Ledger()
    _play(sim, ledger, steps)
    assert sim.host.fs.listdir("/d") == sorted(ledger.names[-1])
    for name, k in ledger.names[-1].items():
        assert sim.host.fs.read(f"/d/{name}") == ledger.files[k][-1]
    clone = sim.clone()
    for image in clone.images(10):
        ledger.check(image)


# --- what it is for ---------------------------------------------------------------------------------------------------

Protocol = Callable[[Host, bytes], None]


def right(host: Host, data: bytes) -> None:
    file = host.fs.create("/d/staged")
    file.pwrite(data, 0)
    file.sync()
    file.close()
    host.fs.rename("/d/staged", "/d/f")
    host.fs.sync_dir("/d")


def no_fsync(host: Host, data: bytes) -> None:
    host.fs.create("/d/staged").pwrite(data, 0)
    host.fs.rename("/d/staged", "/d/f")
    host.fs.sync_dir("/d")


def sync_too_late(host: Host, data: bytes) -> None:
    file = host.fs.create("/d/staged")
    file.pwrite(data, 0)
    host.fs.rename("/d/staged", "/d/f")
    file.sync()
    host.fs.sync_dir("/d")


def no_sync_dir(host: Host, data: bytes) -> None:
    file = host.fs.create("/d/staged")
    file.pwrite(data, 0)
    file.sync()
    host.fs.rename("/d/staged", "/d/f")


def in_place(host: Host, data: bytes) -> None:
    file = host.fs.open("/d/f", write=True)
    file.pwrite(data, 0)
    file.sync()


def unlink_first(host: Host, data: bytes) -> None:
    host.fs.unlink("/d/f")
    right(host, data)


class Caught(Exception):
    pass


def explore(protocol: Protocol, size: int) -> int:
    """Replace a file twice, cut after each effect, and see whether it is always whole and never older than promised."""
    versions = [bytes([letter]) * size for letter in b"abc"]
    acknowledged, images = 0, 0
    sim = machine()
    made(sim, "/d/f", versions[0])

    def look(kind: str, path: str) -> None:
        nonlocal images
        for image in sim.images(30, tear=True):
            images += 1
            if image.host.fs.read("/d/f") not in versions[acknowledged:]:
                raise Caught(f"before {kind} {path}: {image.story}")

    sim.watch(look)
    for data in versions[1:]:
        protocol(sim.host, data)
        acknowledged += 1
        look("the end", "")
        if sim.host.fs.stat("/d/staged") is not None:
            sim.host.fs.unlink("/d/staged")
    return images


@pytest.mark.parametrize("size", [10, 3000])
@pytest.mark.parametrize("wrong", [no_fsync, sync_too_late, no_sync_dir, in_place, unlink_first])
def test_a_bad_protocol_is_caught(wrong: Protocol, size: int) -> None:
    with pytest.raises(Caught):
        explore(wrong, size)


@pytest.mark.parametrize("size", [0, 10, 3000])
def test_a_good_protocol_passes(size: int) -> None:
    assert explore(right, size) > 20


def test_an_image_can_be_cut_again() -> None:
    sim = machine()
    made(sim, "/d/f", b"old")
    sim.host.fs.create("/d/g").pwrite(b"lost", 0)
    for image in sim.images(10):
        image.cut_after(2)
        with pytest.raises(PowerCut):
            right(image.host, b"new")
        assert contents(image, "/d/f") == {b"old"}
