"""``verify``: every reference file's verdict and exit code, through the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from agentsession_cas import Store
from tests.helpers.commands import Commands

SESSIONS: Final = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"
SOUND: Final = (
    "basic", "branch", "fork", "compaction", "runs", "normalised", "parts", "omit", "duplicate-id", "v0.4/basic"
)  # fmt: skip
BROKEN: Final = {
    "bad-first-kept": "first_kept",
    "bad-records": "record_missing",
    "truncated": "truncated",
    "bad-parent": "no_entry",
    "bad-base-root": "base_rule",
}
UNREADABLE: Final = ("bad-parent", "bad-base-root")
SHAPE: Final[dict[str, tuple[type, ...]]] = {
    "ok": (bool,),
    "format": (str,),
    "session": (str,),
    "entries": (int,),
    "leaf": (str, type(None)),
    "responses": (dict,),
    "truncated": (dict, type(None)),
    "repeated": (list,),
    "problems": (list,),
}


def _file(name: str) -> Path:
    return SESSIONS / f"{name}.jsonl"


def _report(cli: Commands, *arguments: str | Path, code: int) -> dict[str, Any]:
    ran = cli("verify", "--json", *arguments)
    assert ran.code == code
    report = ran.object
    assert report.keys() == SHAPE.keys()
    assert all(isinstance(report[name], kind) for name, kind in SHAPE.items())
    return report


@pytest.mark.parametrize("name", SOUND)
def test_sound_files_are_ok(cli: Commands, name: str) -> None:
    """A whole reference file verifies, and the exit code says so."""
    report = _report(cli, _file(name), code=0)
    assert report["ok"]
    assert report["responses"]["mismatched"] == 0
    lines = [line for line in _file(name).read_bytes().splitlines()[1:] if line.strip()]
    assert report["entries"] == len(set(lines))


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_exit_3(cli: Commands, name: str) -> None:
    """Each is broken in one way, and that way is the one error reported."""
    report = _report(cli, _file(name), code=3)
    assert not report["ok"]
    assert [problem["code"] for problem in report["problems"] if problem["severity"] == "error"] == [BROKEN[name]]
    assert (report["entries"] == 0) == (name in UNREADABLE)


def test_a_header_alone_is_nothing_to_verify(cli: Commands) -> None:
    """It is sound as far as it goes, and there was nothing to check: exit 1."""
    header = _file("basic").read_bytes().splitlines()[0]
    ran = cli("verify", "--json", "-", stdin=header + b"\n")
    assert ran.code == 1
    assert [problem["code"] for problem in ran.object["problems"]] == ["nothing_to_verify"]


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 4096, b"\xff\xfe\xff", b"{", b"[1]\n", b'{"type":"session"}\n', b"null\n", "ünï".encode("utf-16")],
    ids=["empty", "nuls", "no-utf8", "brace", "list", "bare-header", "null", "utf16"],
)
def test_what_is_no_session_file_is_a_report(cli: Commands, data: bytes) -> None:
    """Bytes that cannot be read at all are a verdict, with what stopped the reading."""
    (cli.directory / "odd.jsonl").write_bytes(data)
    report = _report(cli, "odd.jsonl", code=3)
    assert not report["ok"]
    assert report["problems"]


@pytest.mark.parametrize("argument", ["missing.jsonl", "."])
def test_a_path_that_is_no_file_is_a_report(cli: Commands, argument: str) -> None:
    """A missing file, or a directory, is a verdict too: a script that checks many sees which."""
    assert not _report(cli, argument, code=3)["ok"]


def test_many_files_give_an_object_each_and_the_worst_code(cli: Commands) -> None:
    """One broken file hides none of the others."""
    ran = cli("verify", "--json", _file("basic"), _file("bad-records"), _file("branch"))
    assert ran.code == 3
    assert [report["ok"] for report in ran.objects] == [True, False, True]


def test_a_name_that_is_nothing_is_an_error_beside_the_rest(held: Commands) -> None:
    """The others are still checked."""
    ran = held("verify", "--json", "no-such-session", _file("basic"))
    assert (ran.code, ran.error_code, ran.object["ok"]) == (1, "no_session", True)


@pytest.mark.parametrize("name", [*SOUND, "bad-first-kept", "bad-records"])
def test_a_session_of_a_store_verifies_as_its_file(held: Commands, name: str) -> None:
    """Imported, a session gets the verdict its file got."""
    session = held.ok("import", "--json", _file(name)).object["session"]
    of_file = held("verify", "--json", _file(name))
    of_store = held("verify", "--json", session)
    assert of_store.code == of_file.code
    for member in ("ok", "session", "entries", "leaf", "responses"):
        assert of_store.object[member] == of_file.object[member]


def test_a_corrupt_object_of_a_session_is_a_report(held: Commands) -> None:
    """Bytes that rotted under a session are told of, exit 3."""
    session = held.ok("import", "--json", _file("basic")).object["session"]
    for path in (held.store / "objects" / "contents").rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            path.write_bytes(b"rot")
    ran = held("verify", "--json", session)
    assert ran.code == 3
    assert not ran.object["ok"]
    assert ran.object["session"] == session


def test_a_link_to_a_session_that_disagrees_is_a_problem(held: Commands) -> None:
    """A subsession's header has to name the parent and the call."""
    with Store.open(held.store) as store:
        store.create(id="child", parent_session="another", spawned_by="call_1").close()
        with store.create(id="parent") as session:
            session.append({"type": "link", "rel": "subsession", "session": "child", "call_id": "call_1"})
    ran = held("verify", "--json", "parent")
    assert ran.code == 3
    assert [problem["code"] for problem in ran.object["problems"]] == ["link_mismatch"]


def test_the_words_name_what_is_wrong_and_where(cli: Commands) -> None:
    """For people: a verdict a line, problems below it."""
    ran = cli("verify", _file("basic"), _file("bad-records"))
    sound, broken, problem = ran.lines
    assert "basic.jsonl: ok: 9 entries" in sound
    assert "bad-records.jsonl: not ok" in broken
    assert problem.startswith("  error: record_missing (line 6, entry ")
    assert cli.ok("verify", "-q", _file("basic")).out == b""
