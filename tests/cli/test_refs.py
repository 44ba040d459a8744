"""Names on the command line: ``refs``, ``ref``, and ``ref:NAME`` wherever a session is taken (cli.md)."""

from __future__ import annotations

import pytest

from agentsession_cas import Store, entry
from tests.helpers.commands import Commands


@pytest.fixture
def named(held: Commands) -> Commands:
    """A store with sessions ``one``, of three entries, and ``two``, empty."""
    with Store.open(held.store) as store:
        with store.create(id="one") as one:
            for text in ("first", "second", "third"):
                one.append(entry.user(text))
        store.create(id="two").close()
    return held


def entries(named: Commands, session: str = "one") -> list[str]:
    with Store.open(named.store) as store:
        return [each.id for each in store.read(session)]


def test_set_show_list_move_delete_log(named: Commands) -> None:
    ids = entries(named)
    assert named.ok("ref", "main", "--set", "one", "--reason", "begun").lines == ["one"]
    assert named.ok("ref", "main").lines == ["one"]
    assert named.ok("ref", "main", "--set", "one@HEAD~1").lines == [f"one@{ids[1]}"]
    assert named.ok("refs").lines == [f"main  one@{ids[1]}"]
    assert named.ok("ref", "main", "--set", "two", "--expect", f"one@{ids[1][:20]}").lines == ["two"]
    assert named.ok("ref", "main", "--set", "NONE").lines == ["deleted main"]
    assert named("ref", "main").error_code == "no_ref"
    told = named.ok("ref", "main", "--log").lines
    assert [line.split("  ")[1] for line in told] == ["deleted, was two", "two", f"one@{ids[1]}", "made: one"]
    assert told[-1].endswith("  begun")
    assert named.ok("refs").lines == []


def test_json(named: Commands) -> None:
    ids = entries(named)
    shape = {"name": "main", "session": "one", "entry": None, "dangling": False}
    assert named.ok("ref", "main", "--set", "one", "--json").object == {**shape, "moved": True}
    assert named.ok("ref", "main", "--set", "one", "--json").object == {**shape, "moved": False}
    assert named.ok("ref", "main", "--json").object == shape
    named.ok("ref", "other", "--set", f"one@{ids[0]}", "--json")
    named.ok("delete", "one", "--quiet")
    assert named.ok("refs", "--json").objects == [
        {**shape, "dangling": True},
        {"name": "other", "session": "one", "entry": ids[0], "dangling": True},
    ]
    assert named.ok("refs", "o", "--json").object["name"] == "other"
    assert named.ok("ref", "main", "--json").object == {**shape, "dangling": True}
    gone = named.ok("ref", "main", "--set", "NONE", "--json").object
    assert gone == {"name": "main", "session": None, "entry": None, "dangling": False, "moved": True}
    last, first = named.ok("ref", "main", "--log", "--json").objects
    assert (last["old"], last["new"]) == ({"session": "one", "entry": None}, None)
    assert (first["old"], first["new"], first["reason"]) == (None, {"session": "one", "entry": None}, "")
    assert set(first) == {"name", "old", "new", "time", "reason"}


@pytest.mark.parametrize("expect", ["two", "NONE", "one@HEAD~1", "gone", "gone@x"])
def test_a_moved_ref_is_a_conflict(named: Commands, expect: str) -> None:
    named.ok("ref", "main", "--set", "one")
    ran = named("ref", "main", "--set", "two", "--expect", expect)
    assert (ran.code, ran.error_code) == (4, "ref_moved")
    assert "holds one, not" in ran.err
    assert named.ok("ref", "main").lines == ["one"]


def test_only_if_it_is_new(named: Commands) -> None:
    named.ok("ref", "main", "--set", "one", "--expect", "NONE")
    assert named("ref", "main", "--set", "two", "--expect", "NONE").code == 4


def test_a_dangling_ref_is_shown_moved_and_no_session(named: Commands) -> None:
    named.ok("ref", "main", "--set", "one")
    named.ok("delete", "one")
    assert named.ok("ref", "main").lines == ["one  its session is gone"]
    assert named.ok("refs").lines == ["main  one  its session is gone"]
    for verb in ("show", "head", "verify", "append", "delete", "continue"):
        assert named(verb, "ref:main").error_code == "no_session"
    named.ok("ref", "main", "--set", "two", "--expect", "one")


@pytest.mark.parametrize(
    ("name", "code", "status"), [("a//b", "ref_name", 1), ("con", "ref_name", 1), ("other", "no_ref", 1)]
)
def test_errors(named: Commands, name: str, code: str, status: int) -> None:
    for arguments in (("ref", name), ("head", f"ref:{name}"), ("show", f"ref:{name}")):
        ran = named(*arguments)
        assert (ran.code, ran.error_code) == (status, code)


def test_what_cannot_be_set(named: Commands) -> None:
    assert named("ref", "main", "--set", "gone").error_code == "no_session"
    assert named("ref", "main", "--set", "one@0000").error_code == "no_entry"
    assert named("ref", "main", "--set", "one@ROOT").code == 2
    assert named("ref", "main", "--set", "one", "--log").code == 2
    assert named("ref", "main", "--expect", "one").code == 2
    assert named("ref", "main", "--reason", "one").code == 2
    assert named.ok("refs").lines == []


def test_every_verb_takes_a_ref(named: Commands) -> None:
    named.ok("ref", "a/main", "--set", "one")
    for verb in ("show", "log", "context", "calls", "runs", "queue", "head", "project"):
        assert named.ok(verb, "ref:a/main").out == named.ok(verb, "one").out
    assert named.ok("verify", "ref:a/main", "--json").object == named.ok("verify", "one", "--json").object
    assert named.ok("diff", "ref:a/main", "one", "--json").object["only_b"] == []
    assert named.ok("diff", "ref:a/main@HEAD~1", "one", "--json").object["common_entries"] == 2
    line = b'{"type":"info","name":"n"}\n'
    named.ok("append", "ref:a/main", stdin=line)
    assert len(entries(named)) == 4
    named.ok("fork", "ref:a/main", "HEAD", "--id", "fork")
    named.ok("redact", "ref:a/main", "--profile", "p@1", "--secret", "second")
    named.ok("ref", "copy", "--set", "ref:a/main")
    assert named.ok("ref", "copy").lines == ["one"]
    named.ok("delete", "ref:a/main")
    assert "one" not in [each["id"] for each in named.ok("list", "--json").objects]


def test_a_name_that_is_continued_moves_along(named: Commands) -> None:
    named.ok("ref", "main", "--set", "one")
    named.ok("continue", "one", "--id", "next")
    assert named.ok("ref", "main").lines == ["one"]
    assert named.ok("continue", "ref:main", "--id", "last", "--summary", "so far").lines == ["last"]
    assert named.ok("ref", "main").lines == ["last"]
    assert [each["id"] for each in named.ok("list", "--current", "--parent", "next", "--json").objects] == ["last"]


def test_a_pin_is_where_looking_begins(named: Commands) -> None:
    ids = entries(named)
    named.ok("ref", "main", "--set", f"one@{ids[1]}")
    for verb in ("show", "context", "calls", "runs", "queue"):
        assert named.ok(verb, "ref:main").out == named.ok(verb, "one", "--at", ids[1]).out
    assert [each["id"] for each in named.ok("log", "ref:main", "--json").objects] == [ids[1], ids[0]]
    assert named.ok("diff", "ref:main", "one", "--json").object["a"]["leaf"] == ids[1]
    assert named.ok("show", "ref:main", "--at", "HEAD").out == named.ok("show", "one").out
    assert named.ok("head", "ref:main").lines == [ids[2]]
    named.ok("ref", "copy", "--set", "ref:main")
    assert named.ok("ref", "copy").lines == [f"one@{ids[1]}"]


def test_a_damaged_ref_is_named_and_hides_no_other(named: Commands) -> None:
    for name in ("a", "b"):
        named.ok("ref", name, "--set", "one")
    (named.store / "refs" / "a").write_bytes(b"?")
    ran = named("refs")
    assert (ran.code, ran.lines, ran.error_code) == (3, ["b  one"], "damaged")
    assert "ref a" in ran.err
    assert named("ref", "a").code == 3


def test_a_ref_to_a_damaged_session_does_not_dangle(named: Commands) -> None:
    named.ok("ref", "main", "--set", "one")
    (named.store / "sessions" / "one" / "journal").unlink()
    assert named.ok("refs", "--json").object["dangling"] is False
    assert named("ref", "main").code == 3


def test_a_reason_is_harmless_on_a_terminal(named: Commands) -> None:
    named.ok("ref", "main", "--set", "one", "--reason", "\x1b[2J\nx")
    assert "\x1b" not in named.ok("ref", "main", "--log").text
    assert len(named.ok("ref", "main", "--log").lines) == 1
