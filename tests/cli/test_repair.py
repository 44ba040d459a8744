"""The verb ``repair``: what it says, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.commands import Commands
from tests.helpers.damage import Bench, flip
from tests.helpers.damages import DAMAGE


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def bench(cli: Commands, made: Bench) -> Bench:
    """A store with four sessions where the commands look for one."""
    for path in sorted(made.root.rglob("*")):
        target = cli.store / path.relative_to(made.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.mkdir() if path.is_dir() else target.write_bytes(path.read_bytes())
    return made.at(cli.store)


def test_one_session(cli: Commands, bench: Bench) -> None:
    DAMAGE["log_row"](bench)
    refused = cli("log", "beta", "--all")
    assert (refused.code, refused.error_code) == (3, "damaged")
    assert "run repair" in refused.err
    would = cli.ok("repair", "beta", "--dry-run")
    assert would.text == "beta: would be repaired: 110 entries kept, 3 of them recovered, 20 objects put back\n"
    assert cli("fsck").code == 3
    done = cli.ok("repair", "beta", "--json").object
    assert set(done) == {"dry_run", "changed", "whole", "checked", "sessions", "objects", "refs"}
    assert (done["changed"], done["whole"], done["objects"]) == (True, True, None)
    assert [(each["session"], each["kept"], each["recovered"]) for each in done["sessions"]] == [("beta", 110, 3)]
    assert cli.ok("fsck", "--json").object["findings"] == []
    assert cli.ok("repair", "beta").text == "ok: 1 session, nothing to repair\n"
    assert cli.ok("repair", "beta", "--quiet").text == ""


def test_what_is_lost_exits_3_and_is_named(cli: Commands, bench: Bench) -> None:
    DAMAGE["journal_missing"](bench)
    ran = cli("repair", "beta")
    assert ran.code == 3
    assert "beta: repaired: 100 entries kept" in ran.text
    assert "lost: 10 rows of which nothing is left" in ran.text
    assert str(Path("sessions", "beta", "damaged", "1")) in ran.text
    assert cli.ok("fsck", "--json").object["findings"][0]["code"] == "lost_rows"


def test_the_whole_store(cli: Commands, bench: Bench) -> None:
    flip(bench.pack("pack"), -20)
    flip(bench.session("alpha") / "header", 30)
    ran = cli.ok("repair", "--all")
    assert "alpha: repaired: 6 entries kept, header mended" in ran.text
    assert "set aside: " in ran.text
    assert "200 objects saved from there, 0 do not read" in ran.text
    assert cli.ok("fsck", "--json").object["findings"] == []


def test_several_sessions_one_of_them_unknown(cli: Commands, bench: Bench) -> None:
    DAMAGE["log_row"](bench)
    ran = cli("repair", "nobody", "beta")
    assert ran.code == 1
    assert ran.error_code == "no_session"
    assert ran.text.startswith("beta: repaired")


def test_a_session_or_all_of_them(cli: Commands, bench: Bench) -> None:
    assert bench.root.exists()
    for arguments in ((), ("beta", "--all")):
        ran = cli("repair", *arguments)
        assert (ran.code, ran.error_code) == (2, "usage")
