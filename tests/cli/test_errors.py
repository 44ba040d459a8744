"""Errors as a person meets them: one line that says what, where and what next, and names nothing that is not there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from agentsession_cas import ALL_RECORDS, Store, entry
from tests.helpers.commands import Commands, Ran

SESSIONS: Final = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"
BASIC: Final = SESSIONS / "basic.jsonl"
ABSENT: Final = "sha256:" + "0" * 64


@pytest.fixture
def few(held: Commands) -> Commands:
    """A store with three sessions, one of them a fork, and a mirror."""
    with Store.open(held.store) as store:
        for name in ("first", "second"):
            with store.create(id=name, records=ALL_RECORDS) as session:
                session.append_batch([entry.user(name), entry.assistant("hello")])
        store.fork("first", store.read("first").leaf, id="fork").close()
    held.ok("import", BASIC, "--json")
    return held


def _mirror(cli: Commands) -> str:
    return str(next(each["id"] for each in cli.ok("list", "--json").objects if each["mark"] == "mirror"))


def _hurt(cli: Commands, session: str, file: str = "journal") -> Path:
    path = cli.store / "sessions" / session / file
    path.write_bytes(b"rot")
    return path


def _says(ran: Ran, code: int, error: str, *texts: str) -> None:
    assert (ran.code, ran.error_code) == (code, error)
    for text in texts:
        assert text in ran.err
    for absent in ("Traceback", "create=True"):
        assert absent not in ran.err


# --- damage ----------------------------------------------------------------------------------------------------------


def test_a_list_names_what_it_cannot_show(few: Commands) -> None:
    """A line each, with file and next step; the others are listed; the exit code is that of damage."""
    for form in ([], ["--json"]):
        assert len(few.ok("list", "--json").objects) == 4
        journal = _hurt(few, "second")
        ran = few("list", *form)
        _says(ran, 3, "damaged", str(journal), "run repair")
        assert b"second" not in ran.out
        assert b"first" in ran.out
        few.ok("delete", "second")
        with Store.open(few.store) as store:
            store.create(id="second").close()


def test_stats_and_project_all_go_on_past_damage(few: Commands) -> None:
    """What reads is counted and written; each session that does not is one line; the worst exit code."""
    mirror = _mirror(few)
    _hurt(few, "second")
    _hurt(few, "first", "header")
    ran = few("stats", "--json")
    assert (ran.code, ran.object["sessions"], len(ran.err.splitlines())) == (3, 2, 2)
    ran = few("project", "--all", "out", "--json")
    assert ran.code == 3
    assert [line.split(": ")[1] for line in ran.err.splitlines()] == ["damaged"] * 2
    assert "session second" in ran.err
    # The fork is read from the objects its prefix was anchored in.
    assert {each["session"] for each in ran.objects} == {"fork", mirror}
    assert len(list((few.directory / "out").iterdir())) == 2


def test_project_all_goes_on_past_a_blob_that_is_not_held(few: Commands) -> None:
    """As import and verify do."""
    with Store.open(few.store) as store, store.create(id="a-picture", media="sidecar") as session:
        session.append(entry.user([{"type": "input_image", "image_url": f"sidecar:{ABSENT}"}]))
    ran = few("project", "--all", "out", "--json")
    _says(ran, 1, "no_blob", "session a-picture", ABSENT)
    assert len(ran.objects) == 4


def test_fsck_tells_notes_of_one_kind_in_one_line(few: Commands) -> None:
    """With their number and the first place; errors stay a line each, and JSON has them all."""
    for data in (b"1", b"2", b"3"):
        few.ok("blob", "put", stdin=data)
    found = few.ok("fsck", "--json").object["findings"]
    notes = [each for each in found if each["code"] == "dangling_object"]
    assert len(notes) == 3
    lines = [line for line in few.ok("fsck").lines if line.startswith("note: dangling_object")]
    assert len(lines) == 1
    assert notes[0]["object"] in lines[0]
    assert lines[0].endswith(", and 2 more")
    for name in ("first", "second"):
        _hurt(few, name)
    assert len([line for line in few("fsck").lines if line.startswith("error: journal_damaged")]) == 2


# --- what there is to do ---------------------------------------------------------------------------------------------


def test_advice_names_what_there_is(few: Commands) -> None:
    """Not commands of a later version, and nothing that would lose something."""
    _says(few("import", BASIC), 4, "session_exists", "the same session needs nothing")
    assert "delete" not in few("import", BASIC).err
    mirror = _mirror(few)
    _says(few("append", mirror, stdin=b'{"type":"info"}\n'), 1, "mirror", "fork it")
    _says(few("head", mirror, "--set", "ROOT"), 1, "mirror", "fork it")
    with Store.open(few.store) as store, store.open_session("first"):
        ran = few("append", "first", stdin=b'{"type":"info"}\n')
        _says(ran, 11, "session_locked", "try again when it is closed")
        assert "timeout" not in ran.err


def test_a_store_that_is_not_there_and_one_without_its_settings(few: Commands) -> None:
    """What the one command says to do, the other does."""
    _says(few("--store", "no where", "list"), 10, "no_store", "`agentsession-cas init 'no where'`")
    (few.store / "store.json").unlink()
    _says(few("--store", ".agentsession", "list"), 10, "no_store", "store.json is missing", "init .agentsession")
    (few.store / ".DS_Store").write_text("x")
    _says(few("init", ".agentsession"), 4, "store_exists", ".DS_Store", "move it away")
    (few.store / ".DS_Store").unlink()
    few.ok("init", ".agentsession")
    assert len(few.ok("list", "--json").objects) == 4
    (few.store / "store.json").write_text("{")
    for command in (["list"], ["init"]):
        _says(few(*command), 3, "corrupt", "store.json", "restore the file", '{"layout":1}')
    (few.store / "store.json").write_text('{"layout":1}')
    assert len(few.ok("list", "--json").objects) == 4


@pytest.mark.parametrize("path", ["file", "file/below"])
def test_a_store_that_is_a_file(cli: Commands, path: str) -> None:
    """The path as it was typed, and that it is none."""
    (cli.directory / "file").write_text("dear")
    _says(cli("--store", path, "list"), 1, "not_regular", "a store is a directory", f"({path})")


# --- paths -----------------------------------------------------------------------------------------------------------


def test_the_path_that_was_typed_is_the_one_named(few: Commands) -> None:
    """Not a file that was to become it."""
    (few.directory / "taken").mkdir()
    _says(few("project", "first", "-o", "taken"), 1, "not_regular", str(few.directory / "taken"), "directory")
    blob = few.ok("blob", "put", stdin=b"x").text.strip()
    _says(few("blob", "get", blob, "-o", "taken"), 1, "not_regular", f"({few.directory / 'taken'})")
    for command in (["project", "first"], ["blob", "get", blob]):
        ran = few(*command, "-o", "nowhere/out")
        _says(ran, 1, "no_file", f"{few.directory / 'nowhere' / 'out'})")
    _says(few("blob", "put", "taken"), 1, "not_regular", "this is a directory, not a file (taken)")
    assert sorted(each.name for each in (few.directory / "taken").iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_takes_no_file(few: Commands) -> None:
    """The system's own words, and the path that was typed."""
    (few.directory / "shut").mkdir(mode=0o500)
    ran = few("project", "first", "-o", "shut/out")
    _says(ran, 1, "disk_error", f"{few.directory / 'shut' / 'out'})")


@pytest.mark.parametrize("path", ["./nosuch", "../nosuch", "/nosuch/nosuch"])
def test_what_looks_like_a_path_is_one(few: Commands, path: str) -> None:
    """No session of that name is looked for in vain, with a store or without one."""
    for before in ([], ["--store", "nowhere"]):
        ran = few(*before, "verify", path, "--json")
        assert (ran.code, ran.object["problems"][0]["code"]) == (3, "no_file")
        _says(few(*before, "show", path), 1, "no_file", path)


def test_a_session_by_the_name_of_a_path_is_still_one(few: Commands) -> None:
    """An id may be any text."""
    with Store.open(few.store) as store:
        store.create(id="./odd").close()
    assert few.ok("head", "./odd").text == "ROOT\n"
    assert few("verify", "./odd", "--json").object["session"] == "./odd"


# --- words -----------------------------------------------------------------------------------------------------------


def test_a_short_form_that_is_too_short(few: Commands) -> None:
    """When it is the beginning of one; any other is simply not there."""
    _says(few("show", "fir"), 1, "no_session", "too short", "at least 4 characters")
    _says(few("show", "xyz"), 1, "no_session", "holds no such session")
    head = few.ok("head", "first").text.strip().removeprefix("sha256:")
    _says(few("show", "first", head[:2]), 1, "no_entry", "too short", "at least 4 characters")


@pytest.mark.parametrize("options", [["--json"], ["--store", "x"], ["-q"], ["--no-progress"]])
def test_options_without_a_verb(cli: Commands, options: list[str]) -> None:
    """One line, as any usage error."""
    _says(cli(*options), 2, "usage", "a verb is missing", "--help`")


def test_a_verb_that_is_nearly_one(cli: Commands) -> None:
    """Is asked after; what is like none is not."""
    _says(cli("lst"), 2, "usage", "did you mean list?")
    assert "did you mean" not in cli("frobnicate").err
    assert cli("frobnicate").code == 2


# --- lines -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        (b"hello", "bad_json", "each line is one JSON object"),
        (b'{"type":"info","id":"abc"}', "bad_id", "leave the id out"),
        (b'{"type":"info","id":"' + ABSENT.encode() + b'"}', "base_rule", "the base, or an entry after it"),
        (b'{"type":"info","ts":"yesterday"}', "bad_id", "2026-01-31T12:00:00Z"),
        (b'{"type":"info","parent":"' + ABSENT.encode() + b'"}', "no_entry", "leave parent out"),
        (b'{"type":"item"}', "bad_entry", "README"),
        (b'{"type":"info","a":' + b"[" * 300 + b"]" * 300 + b"}", "limit_exceeded", "blob"),
    ],
)
def test_a_slip_in_a_line_is_no_damage(few: Commands, line: bytes, code: str, says: str) -> None:
    """Exit code 1 for whatever the line is, and what to do about it; the fork is where the base rule counts."""
    for form in ([], ["--batch"]):
        _says(few("append", "fork", *form, stdin=line + b"\n"), 1, code, says)
    assert few.ok("fsck").code == 0


def test_a_head_that_cannot_be_is_no_damage(few: Commands) -> None:
    """Nor is it, for a fork, the universal root."""
    _says(few("head", "fork", "--set", "ROOT"), 1, "base_rule", "name the base")


@pytest.mark.parametrize("verb", ["show", "import", "verify"])
def test_a_file_that_is_none_says_what_was_expected(few: Commands, verb: str) -> None:
    """And the line is named once."""
    (few.directory / "odd.jsonl").write_text("dear\n")
    ran = few(verb, "odd.jsonl")
    told = ran.text + ran.err
    assert ran.code == 3
    assert "bad_json" in told
    assert "one JSON object a line" in told
    assert told.count("line 1") == 1


def test_a_line_that_was_changed_says_so(few: Commands) -> None:
    """Its id is no longer its hash."""
    (few.directory / "changed.jsonl").write_bytes(BASIC.read_bytes().replace(b"2+2", b"2+3", 1))
    _says(few("show", "changed.jsonl"), 3, "bad_id", "line 3", "was changed")
