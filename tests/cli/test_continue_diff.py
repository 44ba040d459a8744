"""``continue`` and ``diff``: what they print, what they leave, and how they fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsession_cas import Store, entry
from tests.helpers.commands import Commands


@pytest.fixture
def talk(held: Commands) -> Commands:
    """A store with the session ``talk``: a config, three messages, a name."""
    with Store.open(held.store) as store, store.create(id="talk", cwd="/src") as session:
        session.append(entry.config(model="m-1", instructions="Be brief."))
        for words in ("one", "two", "three"):
            session.append(entry.user(words))
        session.append(entry.info("the talk"))
    return held


def short(entry_id: str) -> str:
    return entry_id.removeprefix("sha256:")[:12]


# --- continue --------------------------------------------------------------------------------------------------------


def test_continue_prints_the_successor_and_retires_the_session(talk: Commands) -> None:
    (successor,) = talk.ok("continue", "talk", "--summary", "So far, one two three.").lines
    assert [each["id"] for each in talk.ok("list", "--current", "--json").objects] == [successor]
    listed = {each["id"]: each for each in talk.ok("list", "--json").objects}
    assert listed["talk"]["superseded_by"] == successor
    assert listed[successor]["name"] == "the talk"
    assert listed[successor]["header"]["parent_session"] == "talk"
    request = talk.ok("context", successor, "--json").object["request"]
    assert (request["model"], request["instructions"]) == ("m-1", "Be brief.")
    (item,) = request["input"]
    assert item["role"] == "system"
    assert item["content"] == [{"type": "input_text", "text": "So far, one two three."}]
    assert talk.ok("verify", successor, "talk").code == 0


def test_continue_as_json_and_from_stdin(talk: Commands) -> None:
    done = talk.ok("continue", "talk", "--id", "next", "--summary", "-", "--json", stdin=b" so far \n").object
    head = talk.ok("head", "next", "--json").object["head"]
    assert done == {"session": "next", "head": head, "moved": False, "base": None}
    (item,) = talk.ok("context", "next", "--json").object["items"]
    assert item["content"][0]["text"] == "so far"


def test_continue_without_a_summary(talk: Commands) -> None:
    talk.ok("continue", "talk", "--id", "next")
    assert talk.ok("context", "next", "--json").object["items"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("absent",), 1, "no_session"),
        (("talk", "--id", "talk"), 4, "session_exists"),
        (("talk", "--summary", "-"), 2, "usage"),
    ],
)
def test_continue_refuses_and_leaves_nothing(talk: Commands, arguments: tuple[str, ...], code: int, error: str) -> None:
    before = talk.ok("list", "--json").objects
    ran = talk("continue", *arguments)
    assert (ran.code, ran.error_code, ran.out) == (code, error, b"")
    assert [each["superseded_by"] for each in talk.ok("list", "--json").objects] == [None]
    assert [each["id"] for each in before] == ["talk"]


def test_a_session_continues_once(talk: Commands) -> None:
    talk.ok("continue", "talk", "--id", "next")
    ran = talk("continue", "talk")
    assert (ran.code, ran.error_code) == (1, "superseded")
    assert "next" in ran.err
    assert len(talk.ok("list", "--json").objects) == 2


def test_a_session_somebody_writes_is_locked(talk: Commands) -> None:
    with Store.open(talk.store) as store, store.open_session("talk"):
        assert talk("continue", "talk").code == 11


# --- diff ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def forked(talk: Commands) -> Commands:
    """``talk`` and ``side``, a fork after "two" that goes on otherwise."""
    with Store.open(talk.store) as store:
        base = next(each.id for each in store.read("talk") if "two" in str(each.body))
        with store.fork("talk", base, id="side") as side:
            side.append(entry.user("drei"))
            side.append(entry.config(model="m-2"))
    return talk


def test_diff_tells_what_each_has_alone(forked: Commands) -> None:
    told = forked.ok("diff", "talk", "side", "--json").object
    ids = [each["id"] for each in forked.ok("log", "talk", "--json").objects][::-1]
    assert told["a"] == {"session": "talk", "leaf": ids[-1]}
    assert told["b"]["session"] == "side"
    assert (told["common"], told["common_entries"]) == (ids[2], 3)
    assert [each["id"] for each in told["only_a"]] == ids[3:]
    assert [(each["type"], each["who"], each["text"]) for each in told["only_b"]] == [
        ("item", "user", "drei"),
        ("config", "config", "m-2"),
    ]
    lines = forked.ok("diff", "talk", "side").lines
    assert lines[0] == f"--- talk at {short(ids[-1])}"
    assert lines[1].startswith("+++ side at ")
    assert lines[2] == f"  3 entries in common, up to {short(ids[2])}"
    assert [line[0] for line in lines[3:]] == ["-", "-", "+", "+"]
    assert lines[3].split() == ["-", short(ids[3]), "user", "three"]


def test_diff_of_a_session_and_its_file(forked: Commands, tmp_path: Path) -> None:
    forked.ok("project", "talk", "-o", "talk.jsonl")
    told = forked.ok("diff", "talk.jsonl", "talk", "--json").object
    assert (told["only_a"], told["only_b"], told["common_entries"]) == ([], [], 5)
    data = (tmp_path / "talk.jsonl").read_bytes()
    assert forked.ok("diff", "-", "talk", "--json", stdin=data).object["a"]["session"] == "talk"
    assert len(forked.ok("diff", "talk.jsonl@HEAD~1", "talk", "--json").object["only_b"]) == 1


def test_diff_between_two_points(forked: Commands) -> None:
    told = forked.ok("diff", "talk@HEAD~2", "talk@HEAD", "--json").object
    assert (len(told["only_a"]), len(told["only_b"])) == (0, 2)
    told = forked.ok("diff", "talk@ROOT", "talk", "--json").object
    assert (told["a"]["leaf"], told["common"], told["common_entries"], len(told["only_b"])) == (None, None, 0, 5)
    assert forked.ok("diff", "talk@ROOT", "side@ROOT").lines[2] == "  nothing in common"


def test_diff_of_every_branch(forked: Commands) -> None:
    with Store.open(forked.store) as store, store.open_session("side") as side:
        side.branch(side.path(side.leaf)[-2].id)
        side.append(entry.user("vier"))
    assert len(forked.ok("diff", "talk", "side", "--json").object["only_b"]) == 2
    assert len(forked.ok("diff", "talk", "side", "--all", "--json").object["only_b"]) == 3


def test_diff_of_requests(forked: Commands) -> None:
    told = forked.ok("diff", "talk", "side", "--request", "--json").object
    assert told["equal"] is False
    assert '-  "model": "m-1",' in told["diff"]
    assert '+  "model": "m-2",' in told["diff"]
    lines = forked.ok("diff", "talk", "side", "--request").lines
    assert lines[2:] == told["diff"]
    same = forked.ok("diff", "talk", "talk@HEAD~1", "--request", "--json").object
    assert (same["equal"], same["diff"]) == (True, [])


def test_diff_knows_ids_that_hold_an_at(forked: Commands) -> None:
    with Store.open(forked.store) as store:
        store.create(id="me@home").close()
    assert forked.ok("diff", "me@home", "talk", "--json").object["a"]["session"] == "me@home"
    assert forked.ok("diff", "me@home@ROOT", "talk", "--json").object["a"]["session"] == "me@home"


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("talk", "absent"), 1, "no_session"),
        (("talk@nowhere", "talk"), 1, "no_entry"),
        (("absent@HEAD", "talk"), 1, "no_session"),
        (("talk", "absent.jsonl"), 1, "no_file"),
        (("talk",), 2, "usage"),
    ],
)
def test_diff_refuses(forked: Commands, arguments: tuple[str, ...], code: int, error: str) -> None:
    ran = forked("diff", *arguments)
    assert (ran.code, ran.error_code) == (code, error)


def test_diff_shows_a_terminal_nothing_but_text(forked: Commands) -> None:
    with Store.open(forked.store) as store, store.create(id="odd\x1b[2J") as odd:
        odd.append(entry.user("\x1b]0;gotcha\x07"))
    assert "\x1b" not in forked.ok("diff", "odd\x1b[2J", "talk").text
