"""``append``, ``head``, ``fork``, ``delete``: what changes a session, and what refuses to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentsession_cas import Store
from tests.helpers.commands import Commands


def _lines(*entries: dict[str, Any] | str) -> bytes:
    return "".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in entries).encode()


def _info(number: int) -> dict[str, Any]:
    return {"type": "info", "number": number}


def _numbers(cli: Commands, session: str = "s-1") -> list[int]:
    """The numbers appended, on the path to the head."""
    return [each["entry"]["number"] for each in cli.ok("show", session, "--json").objects]


@pytest.fixture
def one(held: Commands) -> Commands:
    """A store with one empty session, s-1."""
    with Store.open(held.store) as store:
        store.create(id="s-1").close()
    return held


def test_append_reports_each_entry(one: Commands) -> None:
    """One object per line of stdin, in order; blank lines are none."""
    ran = one.ok(
        "append", "s-1", "--json", stdin=b"\n" + _lines(_info(1), "", _info(2)) + b'{"type":"info","number":3}'
    )
    assert [each["outcome"] for each in ran.objects] == ["continued"] * 3
    assert [each["durable"] for each in ran.objects] == [False] * 3
    assert [set(each) for each in ran.objects] == [{"id", "outcome", "durable", "unresolved"}] * 3
    assert _numbers(one) == [1, 2, 3]


def test_durable_says_so(one: Commands) -> None:
    """--durable is acknowledged as durable, entry by entry."""
    ran = one.ok("append", "s-1", "--json", "--durable", stdin=_lines(_info(1), _info(2)))
    assert [each["durable"] for each in ran.objects] == [True, True]


def test_append_stops_at_the_first_refusal(one: Commands) -> None:
    """What came before is kept and reported; the error names the line; nothing after is looked at."""
    ran = one("append", "s-1", "--json", stdin=_lines(_info(1), _info(2), {"type": "nonsense"}, _info(4)))
    assert (ran.code, ran.error_code) == (1, "bad_entry")
    assert "line 3" in ran.err
    assert len(ran.objects) == 2
    assert _numbers(one) == [1, 2]


def test_a_batch_lands_whole_or_not_at_all(one: Commands) -> None:
    """--batch: one refusal refuses all."""
    ran = one("append", "s-1", "--batch", "--json", stdin=_lines(_info(1), {"type": "nonsense"}))
    assert (ran.code, ran.error_code, ran.out) == (1, "bad_entry", b"")
    assert _numbers(one) == []
    ran = one.ok("append", "s-1", "--batch", "--json", "--durable", stdin=_lines(_info(1), _info(2)))
    assert [each["durable"] for each in ran.objects] == [True, True]
    assert _numbers(one) == [1, 2]


def test_an_empty_batch_is_nothing(one: Commands) -> None:
    """No lines, no entries, no error."""
    assert one.ok("append", "s-1", "--batch", stdin=b"").out == b""
    assert one.ok("append", "s-1", stdin=b"").out == b""


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"not json", "bad_json"),
        (b'{"type":"info","a":1,"a":2}', "bad_json"),
        (b'{"type":"info","a":NaN}', "bad_json"),
        (b'{"type":"info","a":1e400}', "bad_json"),
        (b'{"type":"info","a":' + b"[" * 5000 + b"]" * 5000 + b"}", "limit_exceeded"),
        (b"[1]", "bad_entry"),
        (b"{}", "bad_entry"),
        (b'{"type":"item"}', "bad_entry"),
        (b'{"type":"info","content":1}', "reserved_member"),
        (b'{"type":"info","parent":"sha256:' + b"0" * 64 + b'"}', "no_entry"),
        (b'{"type":"info","parents":7}', "bad_convergence"),
        (b"\xff\xfe\x00", "bad_json"),
    ],
)
def test_bad_lines_are_refused_by_name(one: Commands, line: bytes, code: str) -> None:
    """One line of error with the line's number, and nothing landed."""
    ran = one("append", "s-1", stdin=line + b"\n")
    assert ran.code in (1, 3)
    assert ran.error_code == code
    assert "line 1" in ran.err
    assert _numbers(one) == []


def test_text_that_is_not_utf8_is_kept_as_the_format_says(one: Commands) -> None:
    """Provider bytes never make an append fail needlessly: the change is on record."""
    one.ok("append", "s-1", stdin=b'{"type":"info","name":"a\xffb"}\n')
    entry = one.ok("show", "s-1", "HEAD", "--json").object["entry"]
    assert entry["name"] == "a�b"
    assert entry["normalised"] == [{"at": "/name", "raw": "ImH/YiI="}]


def test_a_held_entry_is_held(one: Commands) -> None:
    """Handing an entry over again, with its id, changes nothing."""
    one.ok("append", "s-1", stdin=_lines(_info(1)))
    entry = one.ok("show", "s-1", "HEAD", "--json").object["entry"]
    assert one.ok("append", "s-1", "--json", stdin=_lines(entry)).object["outcome"] == "held"


def test_a_mirror_takes_no_append(held: Commands) -> None:
    """An imported session is a mirror unless taken as the record."""
    header = {
        "type": "session",
        "id": "m",
        "format": "agentsession/0.14",
        "created_at": "2026-01-01T00:00:00Z",
        "payload": "openresponses/2026-04-24",
    }
    (held.directory / "m.jsonl").write_bytes(_lines(header))
    held.ok("import", "m.jsonl")
    ran = held("append", "m", stdin=_lines(_info(1)))
    assert (ran.code, ran.error_code) == (1, "mirror")
    held.ok("delete", "m")
    held.ok("import", "m.jsonl", "--as-record")
    held.ok("append", "m", stdin=_lines(_info(1)))


def test_a_locked_session_exits_11_and_names_it(one: Commands) -> None:
    """Another writer has it: append, head --set and delete say so, reading does not mind."""
    with Store.open(one.store) as store, store.open_session("s-1"):
        for command in (["append", "s-1"], ["head", "s-1", "--set", "ROOT"], ["delete", "s-1"]):
            ran = one(*command, stdin=_lines(_info(1)))
            assert (ran.code, ran.error_code) == (11, "session_locked")
            assert "s-1" in ran.err
        one.ok("show", "s-1")


def test_head_moves_by_compare_and_swap(one: Commands) -> None:
    """A wrong expectation exits 4 and moves nothing."""
    one.ok("append", "s-1", stdin=_lines(_info(1), _info(2), _info(3)))
    first = one.ok("show", "s-1", "HEAD~2", "--json").object["entry"]["id"]
    third = one.ok("head", "s-1", "--json").object
    assert third["moved"] is False
    ran = one("head", "s-1", "--set", first, "--expect", "HEAD~1")
    assert (ran.code, ran.error_code) == (4, "head_moved")
    assert third["head"] in ran.err
    assert one.ok("head", "s-1", "--json").object == third
    moved = one.ok("head", "s-1", "--set", first[7:15], "--expect", third["head"], "--json").object
    assert moved == {"session": "s-1", "head": first, "moved": True}
    assert _numbers(one) == [1]
    one.ok("append", "s-1", stdin=_lines(_info(4)))
    assert _numbers(one) == [1, 4]


def test_head_to_the_root_and_onto_itself(one: Commands) -> None:
    """ROOT is a place the head may be; moving to where it is moves nothing."""
    one.ok("append", "s-1", stdin=_lines(_info(1)))
    assert one.ok("head", "s-1", "--set", "HEAD", "--json").object["moved"] is False
    assert one.ok("head", "s-1", "--set", "ROOT", "--json").object == {"session": "s-1", "head": None, "moved": True}
    assert one.ok("head", "s-1").text == "ROOT\n"
    assert _numbers(one) == []


def test_head_compares_before_it_looks_for_the_target(one: Commands) -> None:
    """HeadMoved is tested first, also when the target is not there either (store.md A4)."""
    one.ok("append", "s-1", stdin=_lines(_info(1)))
    nowhere = "sha256:" + "0" * 64
    assert one("head", "s-1", "--set", nowhere, "--expect", nowhere).error_code == "head_moved"
    assert one("head", "s-1", "--set", nowhere).error_code == "no_entry"
    assert one("head", "s-1", "--expect", "HEAD").code == 2


def test_fork_continues_from_an_entry(one: Commands) -> None:
    """The new session starts at its base and grows by itself."""
    one.ok("append", "s-1", stdin=_lines(_info(1), _info(2)))
    base = one.ok("show", "s-1", "HEAD~1", "--json").object["entry"]["id"]
    fork = one.ok("fork", "s-1", "HEAD~1", "--id", "s-1-fork", "--json").object
    assert fork == {"session": "s-1-fork", "head": base, "moved": False, "base": base}
    one.ok("append", "s-1-fork", stdin=_lines(_info(3)))
    assert _numbers(one, "s-1-fork") == [1, 3]
    assert _numbers(one) == [1, 2]
    again = one("fork", "s-1", "HEAD", "--id", "s-1-fork")
    assert (again.code, again.error_code) == (4, "session_exists")
    assert one("fork", "s-1", "ROOT").code == 2
    for verb in (("fork", "s-1", "HEAD"), ("continue", "s-1")):
        assert one(*verb, "--id", "").error_code == "bad_input"
    made_up = one.ok("fork", "s-1", "HEAD").text.strip()
    assert _numbers(one, made_up) == [1, 2]


def test_delete_and_its_dry_run(one: Commands) -> None:
    """A dry run removes nothing; a fork outlives what it continues from."""
    one.ok("append", "s-1", stdin=_lines(_info(1), _info(2)))
    one.ok("fork", "s-1", "HEAD", "--id", "fork")
    assert one.ok("delete", "s-1", "--dry-run", "--json").object == {"session": "s-1", "deleted": False}
    assert "2 entries" in one.ok("delete", "s-1", "--dry-run").text
    assert one.ok("delete", "s-1", "--json").object == {"session": "s-1", "deleted": True}
    assert one("show", "s-1").error_code == "no_session"
    assert one("delete", "s-1").code == 1
    assert _numbers(one, "fork") == [1, 2]
    one.ok("fsck")
