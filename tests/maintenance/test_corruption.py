"""The corruption sweep in short: some of the damages that ``tools.corruption`` does one and all."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random

import pytest

from tools.answers import Answers, answer_of_file
from tools.corruption import Options, Parts, cases, sweep
from tools.damages import Damage, damages, fill
from tools.judging import Fault, Sweep

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    root = tmp_path_factory.mktemp("sweep") / "store"
    fill(root, 7)
    return Sweep(root)


@pytest.mark.parametrize(
    ("only", "stride"),
    [("/journal", 23), ("packed", 311), ("/header", 1500), ("HEAD", 900), ("pack/pack", 60), ("store", 99)],
)
def test_some_of_every_kind(whole: Sweep, only: str, stride: int) -> None:
    paths = [path for path in sorted(whole.files) if only in path]
    some = list(islice(cases(whole.files, paths, Options(stride, seed=7)), 5))
    assert some
    for damage in some:
        whole.judge(damage)


def without_strays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair that finds nothing between whole frames leaves entries that are there."""
    monkeypatch.setattr("agentsession_cas.maintenance.repair_journal._strays", lambda *_: iter(()))


def hurt_in_a_record(whole: Sweep) -> Damage:
    path = next(path for path in sorted(whole.files) if path.endswith("s006/journal"))
    data = bytearray(whole.files[path])
    data[data.index(b'{"content"') + 20] ^= 1
    return Damage(path, "flipped", bytes(data))


def test_the_sweep_sees_what_a_repair_leaves(whole: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    hurt = hurt_in_a_record(whole)
    whole.judge(hurt)
    without_strays(monkeypatch)
    with pytest.raises(Fault):
        whole.judge(hurt)


def test_a_part_of_the_store_sees_it_too(whole: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hurt = hurt_in_a_record(whole)
    part = Parts(whole, tmp_path / "part").of(hurt.path)
    assert "s006" in part.truth.keys() < whole.truth.keys()
    part.judge(hurt)
    without_strays(monkeypatch)
    with pytest.raises(Fault):
        part.judge(hurt)


def test_every_damage_is_seen_and_few_are_judged(whole: Sweep) -> None:
    path = "sessions/s003/HEAD"
    tally = sweep(whole.root, [path], Options(again=10**6))
    assert tally.seen == len(list(damages(path, whole.files[path], Random(1))))
    assert tally.judged == 3  # no HEAD, an empty one, and one with something behind it
    assert not tally.faults


def test_answers_tell_damages_apart_that_readers_do(whole: Sweep, tmp_path: Path) -> None:
    loose = next(path for path in whole.files if path.startswith("objects/media/"))
    for path in ("sessions/s006/header", "sessions/s006/HEAD", loose):
        data = whole.files[path]
        assert answer_of_file(path, data, data) != answer_of_file(path, b"\0" * len(data), data)
    copied = tmp_path / "s006"
    copied.mkdir()
    for name in ("header", "HEAD", "journal"):
        (copied / name).write_bytes(whole.files[f"sessions/s006/{name}"])
    answers, journal = Answers(copied), whole.files["sessions/s006/journal"]
    hurt = hurt_in_a_record(whole).data
    there = journal.index(b'{"content"')
    further = journal[: there + 30] + b"!" + journal[there + 31 :]
    cut = journal[: there + 30]
    assert answers.of("journal", journal) != answers.of("journal", hurt)
    assert answers.of("journal", hurt) == answers.of("journal", further)
    assert answers.of("journal", hurt) != answers.of("journal", cut)
    assert (copied / "journal").read_bytes() == journal


def test_every_byte_of_a_small_file_and_every_page_of_a_large_one() -> None:
    small = list(damages("a", bytes(range(1, 9)), Random(1)))
    assert len(small) == 5 * 8
    large = [each.what for each in damages("a", bytes([1, 2]) * 5000, Random(1))]
    assert {what.split()[0] for what in large} >= {"flipped", "zeroed", "cut", "doubled"}
    assert {int(what.split()[-1]) for what in large} == {0, 4096, 8192}
