"""Threads as files: the bytes, what a torn end does, ids as file names, crashes, several processes."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.errors import BadInput, Corrupt
from agentsession_cas.ledger import FileRepository, Hydrated, Text, Turn
from agentsession_cas.ledger.journal import read_lines, replay
from agentsession_cas.testing.simfs import Sim

FIXTURE: Final = Path(__file__).parents[2] / "fixtures" / "ledger" / "thread.jsonl"
LINES: Final = FIXTURE.read_bytes().splitlines(keepends=True)


def test_a_file_of_the_other_implementation_reads(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(FIXTURE.read_bytes())
    turns, tip = FileRepository(tmp_path).hydrate_thread("t")
    assert (list(turns), tip) == (["0123456789abcdef", "fedcba9876543210"], "fedcba9876543210")
    first, last = turns.values()
    assert first.artifacts == (Text("Is 1 < 2 & 2 > 1?"),)
    assert (last.parent_id, last.control) == (first.id, "continue")
    assert last.artifacts[1].to_json() == {"kind": "ore:unknown", "Value": {"n": [1, 2.5]}}
    assert last.timestamp == "2026-07-15T12:00:01.123456789+02:00"


def test_what_is_written_is_its_lines_byte_for_byte(tmp_path: Path) -> None:
    """Each transaction of it, done again at its time."""
    times = iter(json.loads(line)["timestamp"] for line in LINES)
    turns = [Turn.from_json(json.loads(LINES[number])["payload"]["turn"]) for number in (0, 2)]
    repository = FileRepository(tmp_path, clock=lambda: next(times))
    repository.save_turn("t", turns[0])
    repository.update_thread_tip("t", turns[0].id)
    repository.save_turn("t", turns[1])
    repository.update_thread_tip("t", turns[1].id)
    repository.update_turn_control("t", turns[1].id, "continue")
    repository.update_turn_parent("t", turns[1].id, turns[0].id)
    wanted = FIXTURE.read_bytes().replace(
        b'"timestamp":"2026-07-15T12:00:01.123456789+02:00","payload":{"timestamp":"2026-07-15T12:00:01.123456789+02:00"',
        b'"timestamp":"2026-07-15T10:00:01.123456789Z","payload":{"timestamp":"2026-07-15T10:00:01.123456789Z"',
    )
    assert (tmp_path / "t.jsonl").read_bytes() == wanted


@pytest.mark.parametrize("whole", range(len(LINES)))
def test_a_torn_last_line_is_tolerated_and_cut_off_by_the_next_append(tmp_path: Path, whole: int) -> None:
    """Torn anywhere; what is appended behind it is read again."""
    path = tmp_path / "t.jsonl"
    for size in range(1, len(LINES[whole]) - 1, 7):
        torn = b"".join(LINES[:whole]) + LINES[whole][:size]
        path.write_bytes(torn)
        repository = FileRepository(tmp_path)
        before = repository.hydrate_thread("t")
        assert before == replay(read_lines(b"".join(LINES[:whole]))[0])
        assert path.read_bytes() == torn, "a reader writes nothing"
        repository.save_turn("t", Turn("new"))
        turns = {**before.turns, "new": Turn("new")}
        assert FileRepository(tmp_path).hydrate_thread("t") == Hydrated(turns, before.tip)


def test_a_whole_last_line_without_its_end_counts(tmp_path: Path) -> None:
    """Nothing that replays is cut off."""
    (tmp_path / "t.jsonl").write_bytes(FIXTURE.read_bytes().removesuffix(b"\n"))
    before = FileRepository(tmp_path).hydrate_thread("t")
    FileRepository(tmp_path).save_turn("t", Turn("new"))
    assert list(FileRepository(tmp_path).hydrate_thread("t").turns) == [*before.turns, "new"]


@pytest.mark.parametrize(
    "bad",
    [b"garbage\n", b"\0" * 40 + b"\n", b'{"tx_type":"unheard of","timestamp":"2026-07-15T10:00:00Z","payload":{}}\n',
     b'{"tx_type":"add_turn","timestamp":"2026-07-15T10:00:00Z","payload":{"turn":{"role":"user"}}}\n',
     b'{"tx_type":"update_tip","timestamp":"2026-07-15T10:00:00Z","payload":5}\n', b"[" * 100_000 + b"\n", b"NaN\n",
     b'{"tx_type":"update_tip","timestamp":"then","payload":{"current_tip":"x"}}\n', b"\xff\xfe\n"],
)  # fmt: skip
def test_a_malformed_line_ends_the_replay(tmp_path: Path, bad: bytes) -> None:
    """At the end of a file an append takes it away; before whole lines it is told, and nothing is lost."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(LINES[0] + bad)
    FileRepository(tmp_path).update_thread_tip("t", "x")
    assert FileRepository(tmp_path).hydrate_thread("t").tip == "x"
    damaged = LINES[0] + bad + LINES[1]
    path.write_bytes(damaged)
    assert FileRepository(tmp_path).hydrate_thread("t") == replay(read_lines(LINES[0])[0])
    with pytest.raises(Corrupt, match="line 2"):
        FileRepository(tmp_path).save_turn("t", Turn("new"))
    assert path.read_bytes() == damaged


def test_an_end_torn_by_another_process_meanwhile(tmp_path: Path) -> None:
    """A handle notices what was done to the file since its last append."""
    repository = FileRepository(tmp_path)
    repository.save_turn("t", Turn("one"))
    with (tmp_path / "t.jsonl").open("ab") as file:
        file.write(LINES[0][:50])
    repository.save_turn("t", Turn("two"))
    assert list(repository.hydrate_thread("t").turns) == ["one", "two"]


@given(st.binary(max_size=60) | st.sampled_from(LINES).flatmap(lambda line: st.binary(max_size=4).map(line.__add__)))
@settings(deadline=None)
def test_any_bytes_read(data: bytes) -> None:
    entries, end = read_lines(data)
    assert 0 <= end <= len(data)
    assert read_lines(data[:end])[0] == entries
    replay(entries)


@pytest.mark.parametrize("id", ["../x", "a/b", "/x", ".", "..", ".hidden", "a\\b", "a\0b", "a\nb", "x" * 250, "\ud800"])
def test_an_id_that_is_no_plain_file_name_is_refused(tmp_path: Path, id: str) -> None:
    repository = FileRepository(tmp_path / "d")
    for act in (repository.hydrate_thread, repository.journal, lambda id: repository.save_turn(id, Turn("t"))):
        with pytest.raises(BadInput):
            act(id)
    assert [path.name for path in tmp_path.rglob("*")] == ["d"]


def test_power_cut_at_every_effect() -> None:
    """What was acknowledged is there, the one under way may be, and the thread goes on."""
    sim = Sim(seed=1)
    done: list[str] = []
    images = effects = 0

    def look(kind: str, path: str) -> None:
        nonlocal images, effects
        effects += 1
        for image in sim.images(12):
            images += 1
            repository = FileRepository("/threads", host=image.host)
            found = list(repository.hydrate_thread("t").turns)
            assert found in (done, [*done, f"t{len(done)}"]), f"before {kind} {path}: {image.story}"
            repository.save_turn("t", Turn("new"))
            assert list(FileRepository("/threads", host=image.host).hydrate_thread("t").turns) == [*found, "new"]

    sim.watch(look)
    repository = FileRepository("/threads", host=sim.host)
    for number in range(6):
        size = 40_000 if number == 3 else 10
        repository.save_turn("t", Turn(f"t{number}", artifacts=(Text("x" * size),)))
        done.append(f"t{number}")
    assert images >= effects >= 16


def _write(directory: str, name: str) -> None:
    repository = FileRepository(directory)
    for number in range(25):
        repository.save_turn("t", Turn(f"{name}-{number}"))


def test_processes_take_turns(tmp_path: Path) -> None:
    """Four of them, one file: every line is whole and none is lost."""
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(str(tmp_path), f"p{number}")) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert len(FileRepository(tmp_path).hydrate_thread("t").turns) == 100
