"""What a writer does with the journal it finds: the whole table, then the same over files."""

from __future__ import annotations

from itertools import product
from typing import Final

import pytest

from agentsession_cas.core.framing import FRAMES_OFFSET, Generation, HeadHint, Scan
from agentsession_cas.errors import Damaged, NoSession
from agentsession_cas.sessions.journal import HEAD_NAME, JOURNAL_NAME
from agentsession_cas.sessions.recovery import Verdict, decide, read_state
from agentsession_cas.testing.simfs import Sim
from tests.helpers.engine import Player, observed
from tests.helpers.engine_model import World
from tests.helpers.stores import ROOT, opened

pytestmark = pytest.mark.heavy

SALT, OTHER = b"saltsalt", b"tlastlas"
WHOLE: Final = 7
"""Rows that are whole in every journal here, five of them below its base."""
SESSION: Final = f"{ROOT}/sessions/s"

BEHIND: Final = {
    "zeros": (True, 0),
    "bytes": (False, 0),
    "a later frame that attests less": (False, 6),
    "a later frame that attests as much": (False, 7),
    "a later frame that attests more": (False, 8),
}
HEADS: Final = {
    "absent": None,
    "of another generation, behind": HeadHint(OTHER, 3, 0, bytes(32)),
    "of another generation, ahead": HeadHint(OTHER, 9, 0, bytes(32)),
    "at nothing": HeadHint(SALT, 0, 0, bytes(32)),
    "behind": HeadHint(SALT, 6, 0, bytes(32)),
    "equal": HeadHint(SALT, 7, 0, bytes(32)),
    "ahead": HeadHint(SALT, 8, 0, bytes(32)),
}


def wanted(behind: str, head: str) -> Verdict | None:
    """The rule in words (architecture §3, loss or damage); None is damage."""
    if head == "ahead" or behind == "a later frame that attests more":
        return None
    if behind != "zeros":
        return Verdict.LOST
    return Verdict.CLEAN if head == "equal" else Verdict.REWRITE


@pytest.mark.parametrize(("behind", "head"), [*product(BEHIND, HEADS)])
def test_the_table(behind: str, head: str) -> None:
    zero, attested = BEHIND[behind]
    scan = Scan(Generation(SALT, bytes(16), 0, 5), b"", [], FRAMES_OFFSET + 99, WHOLE, attested, zero)
    verdict = wanted(behind, head)
    if verdict is None:
        with pytest.raises(Damaged, match=f"8 rows were committed, 7 are whole.*offset {FRAMES_OFFSET + 99}"):
            decide(scan, HEADS[head], "journal")
    else:
        assert decide(scan, HEADS[head], "journal") is verdict


# --- the same, over files ---------------------------------------------------------------------------------------------


@pytest.fixture
def player() -> Player:
    """A session with one durable entry, one lazy entry, and its writer gone without a word."""
    player = Player(Sim().host, World())
    player.create("s")
    player.append("s", 100, durable=True)
    player.append("s", 100)
    player.abandon("s")
    return player


def overwrite(player: Player, name: str, data: bytes, offset: int = 0) -> None:
    file = player.host.fs.open(f"{SESSION}/{name}", write=True)
    file.pwrite(data, offset)
    file.close()


def test_what_another_process_left_is_written_again(player: Player) -> None:
    before = player.host.fs.read(f"{SESSION}/{JOURNAL_NAME}")
    assert read_state(player.host.fs, SESSION).verdict is Verdict.REWRITE
    player.open("s")
    assert read_state(player.host.fs, SESSION).verdict is Verdict.CLEAN
    after = player.host.fs.read(f"{SESSION}/{JOURNAL_NAME}")
    assert before is not None
    assert after is not None
    assert before[:64] != after[:64]
    assert len(observed(player.store, "s").own) == 2


def test_a_lost_tail_is_told_and_then_it_is_over(player: Player) -> None:
    state = read_state(player.host.fs, SESSION)
    last = state.scan.frames[-1]
    overwrite(player, JOURNAL_NAME, b"!", last.end - 1)
    assert read_state(player.host.fs, SESSION).verdict is Verdict.LOST
    assert len(observed(player.store, "s").own) == 1
    player.store.open_session("s").close()
    state = read_state(player.host.fs, SESSION)
    assert state.verdict is Verdict.CLEAN
    # the loss is a row of its own: a note for whoever asks
    assert [record.envelope == b"" for group in state.groups for record in group] == [False, True]


@pytest.mark.parametrize("damage", ["journal gone", "log gone", "log short", "rows flipped", "head ahead"])
def test_damage_refuses_readers_and_writers_and_changes_nothing(damage: str) -> None:
    sim = Sim()
    player = Player(sim.host, World())
    player.create("s")
    player.append("s", *[20] * 70, durable=True)
    player.checkpoint("s")
    player.append("s", 20, durable=True)
    player.close("s")
    fs = sim.host.fs
    if damage == "journal gone":
        fs.unlink(f"{SESSION}/{JOURNAL_NAME}")
    elif damage == "log gone":
        fs.unlink(f"{SESSION}/log-0")
    elif damage == "log short":
        data = fs.read(f"{SESSION}/log-0") or b""
        fs.unlink(f"{SESSION}/log-0")
        fs.create(f"{SESSION}/log-0").pwrite(data[:4096], 0)
    elif damage == "rows flipped":
        sim.flip(f"{SESSION}/log-0", 5000)
    else:
        overwrite(player, JOURNAL_NAME, bytes(64), read_state(fs, SESSION).scan.frames[-1].offset)
    files = {name: fs.read(f"{SESSION}/{name}") for name in fs.listdir(SESSION)}
    store = opened(sim.process("p2"))
    with pytest.raises(Damaged) as read:
        observed(store, "s")
    assert "repair" in read.value.next_step
    assert SESSION in read.value.where
    if damage != "rows flipped":
        # opening reads no row below the last piece but the head's
        with pytest.raises(Damaged):
            store.open_session("s")
    assert {name: fs.read(f"{SESSION}/{name}") for name in fs.listdir(SESSION)} == files
    assert not fs.lock_note(f"{SESSION}/lock")


def test_a_session_that_is_not_there_is_no_damage() -> None:
    sim = Sim()
    store = opened(sim.host, create=True)
    with pytest.raises(NoSession):
        store.open_session("s")
    with pytest.raises(NoSession):
        store.read("s")
    assert not store.holds("s")


def test_leftovers_of_a_dead_checkpoint_are_cleared(player: Player) -> None:
    fs = player.host.fs
    fs.create(f"{SESSION}/{JOURNAL_NAME}.next-00").pwrite(b"half", 0)
    player.open("s")
    assert set(fs.listdir(SESSION)) == {"header", JOURNAL_NAME, HEAD_NAME, "lock"}
