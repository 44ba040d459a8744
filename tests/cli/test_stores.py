"""Which store a command uses, and what makes one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentsession_cas import Store
from agentsession_cas.history import Batch, CasStore
from tests.helpers.commands import Commands


def test_init_makes_a_store_here_and_leaves_one_that_is_there(cli: Commands) -> None:
    """As git init does: again is no error."""
    assert cli.ok("init", "--json").object == {"path": str(cli.store), "created": True}
    assert cli.ok("init", "--json").object == {"path": str(cli.store), "created": False}
    assert "already" in cli.ok("init").text
    Store.open(cli.store).close()


def test_init_makes_parents_and_takes_the_store_option(cli: Commands) -> None:
    """A path may lie in directories that are not there yet; --store and PATH name it alike."""
    cli.ok("init", "deep/down/store")
    assert (cli.directory / "deep/down/store/store.json").is_file()
    cli.ok("--store", "other", "init")
    assert (cli.directory / "other/store.json").is_file()


def test_init_refuses_a_place_that_holds_something_else(cli: Commands) -> None:
    """What is there stays there."""
    taken = cli.directory / "taken"
    taken.mkdir()
    (taken / "letter.txt").write_text("dear")
    ran = cli("init", "taken")
    assert (ran.code, ran.error_code) == (4, "store_exists")
    assert [each.name for each in taken.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("place", ["inner", "sessions/x", "objects/deep/down"])
def test_no_store_is_made_inside_a_store(held: Commands, place: str) -> None:
    """The outer one would take it for a session, or for objects, of its own: its fsck would find damage."""
    for verb in (("init", held.store / place), ("clone", held.store, held.store / place)):
        ran = held(*verb)
        assert (ran.code, ran.error_code) == (4, "store_exists")
    assert held.ok("fsck", "--json").object["findings"] == []


def test_init_over_a_file_is_one_line(cli: Commands) -> None:
    """A file where the store should be is a plain refusal."""
    (cli.directory / "taken").write_text("dear")
    ran = cli("init", "taken")
    assert ran.code in (1, 4)
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [["list"], ["show", "abcd"], ["fsck"], ["append", "abcd"], ["stats"], ["blob", "put"]]
)
def test_no_store_exits_10(cli: Commands, arguments: list[str]) -> None:
    """Where no store is, every command that needs one says so."""
    ran = cli(*arguments)
    assert (ran.code, ran.error_code, ran.out) == (10, "no_store", b"")


def test_a_named_store_that_is_not_there_is_not_looked_for_elsewhere(held: Commands) -> None:
    """A store that was named is the one, or none is."""
    assert held("--store", "elsewhere", "list").code == 10
    assert held("list", "--store", "elsewhere").code == 10


def test_the_store_is_the_named_then_the_environments_then_the_nearest_then_the_users(
    cli: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of cli.md, each seen by the one session it holds."""
    below = cli.directory / "a/b"
    below.mkdir(parents=True)
    homes = {
        "named": cli.directory / "named",
        "environment": cli.directory / "environment",
        "above": cli.directory / "a/.agentsession",
        "own": cli.directory / "data/agentsession",
    }
    for name, path in homes.items():
        path.parent.mkdir(exist_ok=True, parents=True)
        with Store.open(path, create=True) as store:
            store.create(id=f"in-{name}").close()
    monkeypatch.chdir(below)

    def used(*options: str) -> str:
        return str(cli.ok(*options, "list", "--json").object["id"])

    assert used() == "in-above"
    monkeypatch.setenv("AGENTSESSION_STORE", str(homes["environment"]))
    assert used() == "in-environment"
    assert used("--store", str(homes["named"])) == "in-named"
    monkeypatch.setenv("AGENTSESSION_STORE", "")
    monkeypatch.chdir(cli.directory)
    assert used() == "in-own"


def test_a_store_is_found_from_inside_itself(held: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory itself counts, as does any above."""
    monkeypatch.chdir(held.store / "objects")
    assert held.ok("list").out == b""


def test_a_later_layout_is_refused(held: Commands) -> None:
    """A store of another layout is not written to."""
    (held.store / "store.json").write_text(json.dumps({"layout": 99}))
    ran = held("list")
    assert (ran.code, ran.error_code) == (3, "unsupported_format")


def test_reading_writes_nothing(held: Commands) -> None:
    """Commands that look leave every file as it was."""
    with Store.open(held.store) as store, store.create(id="s-1") as session:
        session.append({"type": "info", "name": "n"})
    before = _files(held.store)
    for verb in ("list", "stats", "fsck"):
        held.ok(verb)
    for verb in ("show", "log", "context", "calls", "runs", "queue", "verify", "head", "project"):
        held.ok(verb, "s-1")
    assert _files(held.store) == before


def _files(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(root.rglob("*")) if path.is_file()
    }


def test_no_verb_is_help_and_a_usage_error(cli: Commands) -> None:
    """Help goes to stderr: nothing was asked for. Asked for, it goes to stdout."""
    ran = cli()
    assert (ran.code, ran.out) == (2, b"")
    assert "Usage: agentsession-cas" in ran.err
    assert "Usage: agentsession-cas" in cli.ok("--help").text


@pytest.mark.parametrize("arguments", [["nonsense"], ["list", "--nonsense"], ["show"], ["log", "x", "-n", "many"]])
def test_usage_errors_are_one_line_that_says_where_help_is(cli: Commands, arguments: list[str]) -> None:
    """Exit code 2, whatever was wrong with the words."""
    ran = cli(*arguments)
    assert (ran.code, ran.error_code) == (2, "usage")
    assert "--help`" in ran.err


def test_a_listing_names_conversations(held: Commands) -> None:
    """By the ids that the history package knows them by."""
    with Store.open(held.store) as store:
        message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
        CasStore(store).append(Batch("chat with Ada", "a-1", [message]))
    assert held.ok("list").lines[-1].endswith("chat with Ada")


def test_a_directory_is_not_taken_for_a_session(held: Commands) -> None:
    """Where a directory is called as a session begins, the session is meant: no directory is one."""
    with Store.open(held.store) as store:
        store.create(id="talk-2026").close()
    for name in ("talk", "talk-2026"):
        (held.directory / name).mkdir()
        assert held.ok("show", name).text.startswith("session talk-2026")
    assert held("show", "./talk").error_code == "not_regular"


def test_a_data_directory_that_is_no_whole_path_is_ignored(cli: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the XDG base directories have it: what is relative to nothing in particular says nothing."""
    own = cli.directory / "home" / ".local" / "share" / "agentsession"
    cli.ok("init", own)
    cli.ok("init", "here/agentsession")
    monkeypatch.setenv("XDG_DATA_HOME", "here")
    monkeypatch.setattr("sys.platform", "linux")
    assert cli.ok("blob", "put", stdin=b"x").lines
    with Store.open(own) as store:
        assert store.stats()["objects"]["loose"] == 1


def test_a_working_directory_that_is_gone(cli: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """No store is there, which is what is said."""
    gone = cli.directory / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    ran = cli("list")
    assert (ran.code, ran.error_code) == (10, "no_store")
    assert "the working directory is gone" in ran.err
