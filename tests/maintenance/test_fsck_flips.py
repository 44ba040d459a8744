"""A flipped bit anywhere in a store: fsck names it, or nothing is lost; reads give no wrong bytes, nor fewer unsaid."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from agentsession_cas.errors import AgentSessionError
from agentsession_cas.maintenance.findings import FsckReport
from agentsession_cas.store import Store
from tests.helpers.damage import Bench

pytestmark = pytest.mark.heavy

Truth = dict[str, tuple[str, list[bytes]]]
"""Head and lines of each session."""

FLIPS_PER_FILE = 12


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("flips") / "store", published=40)


def files_of(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def read(store: Store, session: str) -> tuple[str, list[bytes]]:
    found = store.read(session)
    return found.leaf, [each.line for each in found]


def truth_of(root: Path) -> Truth:
    with Store.open(root, read_only=True) as store:
        return {session: read(store, session) for session in store.session_ids()}


def offsets(data: bytes, chance: Random) -> list[int]:
    """Where to flip: half of the places among the bytes that are not zero, which say something."""
    telling = [at for at, byte in enumerate(data) if byte]
    some = chance.sample(telling, min(len(telling), FLIPS_PER_FILE // 2))
    return [*some, *(chance.randrange(len(data)) for _ in range(FLIPS_PER_FILE // 2))]


def judge(root: Path, truth: Truth, what: str) -> FsckReport | None:
    """Check one damaged store; None when it does not open, which names the damage too."""
    try:
        store = Store.open(root, read_only=True)
    except AgentSessionError:
        return None
    with store:
        fast = store.fsck(fast=True)
        report = store.fsck()
        assert not fast.findings or report.findings, what
        told = {each.session for each in report.findings}
        for session, (head, lines) in truth.items():
            try:
                found = read(store, session)
            except AgentSessionError:
                assert report.findings, f"{what}: {session} does not read"
                continue
            if session in told:
                assert found[1] == lines[: len(found[1])], f"{what}: {session} reads otherwise"
            else:
                assert found == (head, lines), f"{what}: {session} reads otherwise, and nothing is said of it"
    return report


def test_a_flip_is_named_or_harmless(small: Bench) -> None:
    chance = Random(20260424)
    truth = truth_of(small.root)
    named: dict[str, int] = {}
    for name in files_of(small.root):
        path = small.root / name
        data = path.read_bytes()
        for at in offsets(data, chance) if data else ():
            damaged = bytearray(data)
            damaged[at] ^= 1 << chance.randrange(8)
            path.write_bytes(damaged)
            report = judge(small.root, truth, f"{name} offset {at}")
            for code in {each.code for each in report.findings} if report is not None else ("unopened",):
                named[code] = named.get(code, 0) + 1
        path.write_bytes(data)
    assert truth_of(small.root) == truth
    expected = {"bad_header", "journal_cut", "journal_damaged", "log_row", "corrupt_pack", "corrupt_idx"}
    assert expected <= named.keys(), named


def test_a_file_cut_short_or_lost_is_named_or_harmless(small: Bench) -> None:
    truth = truth_of(small.root)
    for name in files_of(small.root):
        path = small.root / name
        data = path.read_bytes()
        for cut in sorted({0, 1, len(data) // 2, max(0, len(data) - 1)}):
            path.write_bytes(data[:cut])
            judge(small.root, truth, f"{name} cut to {cut}")
        path.unlink()
        judge(small.root, truth, f"{name} lost")
        path.write_bytes(data)
    assert truth_of(small.root) == truth
