"""The corruption sweep in short: some of the damages that ``tools.corruption`` does one and all."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from tools.corruption import Damage, Fault, Sweep, damages, fill


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    root = tmp_path_factory.mktemp("sweep") / "store"
    fill(root, 7)
    return Sweep(root)


@pytest.mark.parametrize(
    ("only", "stride"),
    [("/journal", 23), ("packed", 311), ("/header", 1500), ("HEAD", 900), ("pack/pack", 60), ("store", 99)],
)
def test_some_of_every_kind(sweep: Sweep, only: str, stride: int) -> None:
    cases = list(islice(sweep.cases(stride, seed=7, only=only), 5))
    assert cases
    for damage in cases:
        sweep.judge(damage)


def test_the_sweep_sees_what_a_repair_leaves(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that finds nothing in journals leaves entries that are there."""
    path = next(path for path in sorted(sweep.files) if path.endswith("s006/journal"))
    data = bytearray(sweep.files[path])
    data[data.index(b'{"content"') + 20] ^= 1
    hurt = Damage(path, "flipped", bytes(data))
    sweep.judge(hurt)
    monkeypatch.setattr("agentsession_cas.maintenance.repair_journal._strays", lambda *_: iter(()))
    with pytest.raises(Fault):
        sweep.judge(hurt)


def test_every_byte_of_a_small_file_and_every_page_of_a_large_one() -> None:
    small = list(damages("a", bytes(range(1, 9)), Random(1)))
    assert len(small) == 5 * 8
    large = [each.what for each in damages("a", bytes([1, 2]) * 5000, Random(1))]
    assert {what.split()[0] for what in large} >= {"flipped", "zeroed", "cut", "doubled"}
    assert {int(what.split()[-1]) for what in large} == {0, 4096, 8192}
