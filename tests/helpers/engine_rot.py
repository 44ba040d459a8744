"""Rot: a byte of a session's files changes at rest. It is named as damage, or changes nothing; never are wrong bytes
served, and never does acknowledged content pass for a lost tail that somebody attests."""

from __future__ import annotations

from agentsession_cas.errors import Corrupt
from agentsession_cas.sessions.journal import HEAD_NAME, JOURNAL_NAME
from agentsession_cas.testing.simfs import Sim
from tests.helpers.engine import Player, observed
from tests.helpers.engine_model import Truth, World
from tests.helpers.engine_scenarios import Scenario
from tests.helpers.stores import ROOT, opened

__all__ = ["rot"]

SESSION = f"{ROOT}/sessions/s"


def rot(name: str, scenario: Scenario, *, stride: int, seed: int = 0, headless: bool = False) -> int:
    """Flip a byte in every ``stride`` of session ``s`` after a scenario; returns how many flips were judged.

    ``headless``: HEAD is gone, so that only later frames attest what was committed: the last group may pass for lost.
    """
    sim = Sim(seed=seed)
    player = Player(sim.host, World())
    scenario(player)
    player.close("s")
    truth = player.world.sessions["s"]
    if headless:
        sim.host.fs.unlink(f"{SESSION}/{HEAD_NAME}")
    least = truth.newest - headless
    flips = 0
    for file in sim.host.fs.listdir(SESSION):
        data = sim.host.fs.read(f"{SESSION}/{file}") or b""
        for offset in range(seed % stride, len(data), stride):
            if data[offset] or offset % 64 == 0:
                flips += 1
                _judge_flip(sim, f"{SESSION}/{file}", offset, truth, least, f"{name}: {file} flipped at {offset}")
    for file in (JOURNAL_NAME, "header", "log-0"):
        if sim.host.fs.stat(f"{SESSION}/{file}"):
            copy = sim.clone()
            copy.host.fs.unlink(f"{SESSION}/{file}")
            _judge(copy, truth, truth.newest, f"{name}: {file} gone")
    return flips


def _judge_flip(sim: Sim, path: str, offset: int, truth: Truth, least: int, where: str) -> None:
    copy = sim.clone()
    copy.flip(path, offset)
    _judge(copy, truth, least, where)


def _judge(copy: Sim, truth: Truth, least: int, where: str) -> None:
    store = opened(copy.host)
    try:
        found = observed(store, truth.id)
    except Corrupt:
        return
    truth.match(found, least, where)
