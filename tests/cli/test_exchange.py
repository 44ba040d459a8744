"""remote, push, fetch, clone: what they print, the shapes scripts rely on (cli.md), and how they exit."""

from __future__ import annotations

from agentsession_cas import RefTarget, Store, entry
from tests.helpers.commands import Commands


def _store(held: Commands, name: str) -> Store:
    return Store.open(held.directory / name, create=True)


def _grown(held: Commands, name: str, session: str, *texts: str) -> list[str]:
    with _store(held, name) as store:
        writer = store.open_session(session) if store.holds(session) else store.create(id=session)
        with writer:
            return [writer.append(entry.user(text)).id for text in texts]


def test_remotes(held: Commands) -> None:
    """Added, listed, removed, kept in the file people edit."""
    _store(held, "other").close()
    path = str(held.directory / "other")
    assert held("remote", "add", "up", "other").lines == [f"up is {path}"]
    assert held("remote", "add", "--json", "up", "other").object == {"name": "up", "path": path, "added": False}
    assert held("remote", "add", "up", "elsewhere").code == 4
    assert held("remote", "add", "a/b", "other").error_code == "bad_input"
    assert held("remote", "list", "--json").objects == [{"name": "up", "path": path}]
    assert held("remote", "list").lines == [f"up  {path}"]
    assert held("remote", "remove", "up").lines == ["forgot up"]
    assert held("remote", "remove", "up").error_code == "no_remote"
    assert held("remote", "list").lines == []


def test_push_and_fetch_say_what_they_did(held: Commands) -> None:
    """In words, and in the shape of cli.md."""
    (first,) = _grown(held, ".agentsession", "s", "one")
    _store(held, "other").close()
    assert held("remote", "add", "up", "other").code == 0
    ran = held("push", "up", "s")
    assert ran.code == 0
    assert ran.text.startswith("s: 1 entry of a new session, 2 objects sent (")
    (second,) = _grown(held, ".agentsession", "s", "two")
    told = held("push", "up", "s", "--ref", "main", "--json").object
    assert told.pop("bytes_sent") > 100
    assert told == {
        "session": "s", "created": False, "admitted": 1, "objects_sent": 2,
        "head": {"moved": True, "forced": False, "current": second, "why": None},
        "refs": [{"name": "main", "moved": True, "why": None}], "mark": "mirror",
    }
    assert held("push", "up", "--all", "--json").objects == []
    told = held("fetch", "other", "ref:main", "--json").object
    assert told == {
        "session": "s", "created": False, "admitted": 0, "objects_received": 0, "bytes_received": 0,
        "head": {"moved": False, "forced": False, "current": second, "why": None}, "mark": "record",
    }
    assert held("push", "up", "s", "--handover", "--json").object["mark"] == "record"
    assert held("push", "up", "s").error_code == "mirror"
    (third,) = _grown(held, "other", "s", "three")
    assert held("fetch", "up", "s", "--json").object["head"]["current"] == third
    assert first in held("log", "s", "--json").text


def test_a_conflict_exits_4(held: Commands) -> None:
    """A head, or a name, that is not where it was last seen; and force."""
    _grown(held, ".agentsession", "s", "one")
    _store(held, "other").close()
    assert held("push", "other", "s", "--ref", "main").code == 0
    with _store(held, "other") as other:
        other.declare_record("s")
        other.create(id="another").close()
        other.update_ref("main", RefTarget("s"), RefTarget("another"))
    (theirs,) = _grown(held, "other", "s", "theirs")
    _grown(held, ".agentsession", "s", "ours")
    ran = held("push", "other", "s", "--json")
    assert (ran.code, ran.object["head"]["moved"], ran.object["head"]["current"]) == (4, False, theirs)
    ran = held("push", "other", "s")
    assert ran.code == 4
    assert "head not moved" in ran.text
    ran = held("push", "other", "s", "--ref", "main")
    assert (ran.code, "ref main not moved: " in ran.text) == (4, True)
    ran = held("push", "other", "s", "--force", "--ref", "main")
    assert (ran.code, "head moved by force" in ran.text, "ref main is there" in ran.text) == (0, True, True)


def test_what_cannot_be_pushed_does_not_stop_the_others(held: Commands) -> None:
    """Each error is a line, the exit code the worst of them; nothing to do is a usage error."""
    _grown(held, ".agentsession", "good", "one")
    _grown(held, ".agentsession", "clash", "one")
    with _store(held, "other") as other:
        other.create(id="clash", cwd="/elsewhere").close()
    ran = held("push", "other", "clash", "good", "--json")
    assert (ran.code, ran.error_code, ran.object["session"]) == (4, "header_differs", "good")
    assert held("fetch", "other", "never").error_code == "no_session"
    assert held("push", "other").code == 2
    assert held("push", "other", "--all", "good").code == 2
    assert held("push", "nowhere", "good").error_code == "no_remote"
    assert held("push", "./nowhere", "good").code == 10


def test_clone(held: Commands) -> None:
    """Every session, and the way back."""
    _grown(held, ".agentsession", "s", "one")
    assert held("clone", ".agentsession", "deep/copy").lines == [
        "cloned 1 session to deep/copy"
    ]
    assert held("--store", "deep/copy", "remote", "list", "--json").object["name"] == "origin"
    assert held("--store", "deep/copy", "fetch", "origin", "--all", "--json").object["created"] is False
    assert held("clone", "nowhere", "other").code == 10
