"""Plainly wrong values at every public door: an error of this package each, never a TypeError or an AttributeError."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from agentsession_cas import (
    Draft,
    Harness,
    RefTarget,
    Session,
    SessionWriter,
    Store,
    entry,
    read_file,
    scan_file,
    write_file,
)
from agentsession_cas.core.jsonl import projection_lines, read_session
from agentsession_cas.errors import AgentSessionError, BadInput, NoEntry

MAKE: Final[Any] = entry
STORE: Final[Any] = Store
WRITE: Final[Any] = write_file
"""The doors as one without types sees them."""

WRONG: Final[tuple[Any, ...]] = (
    None, 5, -1, 1 << 70, b"x", "", "x", "\ud800", [], {}, [1], {"a": 1}, object()
)  # fmt: skip
ITEM: Final = {"type": "message", "role": "user", "content": "hi"}
RIGHT: Final[dict[str, Any]] = {
    "item": ITEM,
    "summary": ITEM,
    "config": {},
    "members": {},
    "verdict": "hold",
    "mode": "steer",
    "kind": "feedback",
    "reason": "done",
    "pending": [],
    "request": {"input": "hi"},
    "type_": "my:note",
    "one": None,
    "other": None,
}
"""A good value for a parameter by its name; any other takes "x"."""
HEADER: Final = ("id", "created_at", "harness", "cwd", "records", "parent_session", "spawned_by", "media", "extra")
NO_VALUES: Final = ("host", "background")
"""Parameters of a store that only its own tests give."""
FILTERS: Final = ("cwd", "harness", "parent", "after", "before", "extra", "limit")


def _tried(call: Callable[..., Any], /, *arguments: Any, **named: Any) -> None:
    """Call with wrong values: what it raises, if anything, is ours."""
    with suppress(AgentSessionError):
        made = call(*arguments, **named)
        if isinstance(made, (SessionWriter, Store)):
            made.close()


def _calls(function: Callable[..., Any]) -> Iterator[tuple[Any, ...]]:
    """One wrong value in every place, for as many places as the function has."""
    for count in range(1, 4):
        with suppress(TypeError):
            inspect.signature(function).bind(*[None] * count)
            yield from ((value,) * count for value in WRONG)


def _methods(kind: type) -> list[str]:
    public = [name for name in dir(kind) if not name.startswith("_")]
    return [name for name in public if inspect.isfunction(getattr(kind, name))]


def _makers() -> list[str]:
    return [name for name in entry.__all__ if inspect.isfunction(getattr(entry, name))]


@pytest.mark.parametrize("name", _makers())
def test_constructors(name: str) -> None:
    """Each parameter in turn, the others being good."""
    make = getattr(entry, name)
    parameters = [each for each in inspect.signature(make).parameters.values() if each.kind is not each.VAR_KEYWORD]
    good = {each.name: RIGHT.get(each.name, "x") for each in parameters if each.default is each.empty}
    if name == "workspace":
        good["kind"] = "local"
    for parameter in parameters:
        for value in WRONG:
            _tried(make, **{**good, parameter.name: value})


@pytest.mark.parametrize("name", _methods(Store))
def test_the_store(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every method, and afterwards the session that was there is there."""
    monkeypatch.chdir(tmp_path)
    store = Store.memory()
    store.create(id="held").close()
    for arguments in _calls(getattr(store, name)):
        _tried(getattr(store, name), *arguments)
    if name not in ("close", "delete"):
        assert store.holds("held")


def _one_wrong(function: Callable[..., Any], good: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each parameter in turn wrong, what is required beside it being good."""
    parameters = inspect.signature(function).parameters.values()
    several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    named = [each.name for each in parameters if each.kind not in several and each.name not in NO_VALUES]
    needed = {each.name: good[each.name] for each in parameters if each.name in named and each.default is each.empty}
    for name in named:
        for value in WRONG:
            if name != "timeout_s" or value != 5:  # seconds, which would be waited
                yield {**needed, name: value}


@pytest.mark.parametrize("name", [each for each in _methods(Store) if each != "close"])
def test_one_wrong_value_for_a_method_of_the_store(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others being good."""
    monkeypatch.chdir(tmp_path)
    store = Store.memory()
    store.create(id="held").close()
    good = {
        "session": store.read("held") if name == "origin_dispatches" else "held",
        **dict.fromkeys(("entry", "call", "parent", "call_id", "expected", "to", "profile", "name"), "x"),
        **dict.fromkeys(("remote", "path"), "x"),
        **({"expected": None, "next": RefTarget("held")} if name == "update_ref" else {}),
        "rewrite": str, "data": b"x", "source": [b"{}"], "target": "out.jsonl",
    }
    for arguments in _one_wrong(getattr(store, name), good):
        if not store.holds("held"):
            store.create(id="held").close()
        _tried(getattr(store, name), **arguments)


@pytest.mark.parametrize("name", _methods(SessionWriter))
def test_one_wrong_value_for_a_method_of_a_session(name: str) -> None:
    """The others being good."""
    with Store.memory() as store:
        session = store.create(id="held")
        said = session.append(entry.user("hi")).id
        answered = session.append(entry.response(response_id="r")).id
        good = {
            **dict.fromkeys(("entry_id", "first_kept", "left", "expected", "to", "parent", "call"), said),
            "entry": entry.user("x"), "entries": [entry.user("x")], "summary": ITEM, "reason": "done",
            "first": 0, "kept": 1, "owed": 1, "draft": entry.response(response_id="r"), "resolve": lambda _: None,
            "request": {"input": "hi"}, "response": answered,
        }
        if name == "record_response":
            good["response"] = {"output": []}
        elif name == "request_hash_for":
            good["response"] = entry.response(response_id="r")
        for arguments in _one_wrong(getattr(session, name), good):
            _tried(getattr(session, name), **arguments)


@pytest.mark.parametrize("kind", ["held for writing", "read", "of a file"])
@pytest.mark.parametrize("name", _methods(Session))
def test_a_session(name: str, kind: str) -> None:
    """Every method of it, wherever the session is kept."""
    with Store.memory() as store, store.create(id="held") as writer:
        writer.append(entry.user("hi"))
        session: Session = writer
        if kind == "read":
            session = store.read("held")
        elif kind == "of a file":
            session = read_session(list(projection_lines(writer)))
        for arguments in _calls(getattr(session, name)):
            _tried(getattr(session, name), *arguments)


def test_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of a header, filters of a list, drafts, and functions that take a path."""
    monkeypatch.chdir(tmp_path)
    for value in WRONG:
        store = Store.memory()
        for name in HEADER:
            _tried(store.create, **{name: value})
        for name in FILTERS:
            _tried(store.list, **{name: value})
        _tried(store.create, harness=Harness(value))
        for call in (Store, Store.open, read_file, scan_file, Draft.of):
            _tried(call, value)
        _tried(write_file, value, "out")
        _tried(write_file, "out", value)
        _tried(Draft, "info", value)
        _tried(Draft("info", {}).at, parent=value)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda _: MAKE.user(None), "a text or a list of parts"),
        (lambda _: MAKE.user(b"x"), "a text or a list of parts"),
        (lambda _: MAKE.user([]), "has no part"),
        (lambda _: MAKE.assistant(None), "a text or a list of parts"),
        (lambda _: MAKE.dispatch(None), "call.entry"),
        (lambda _: MAKE.config_from_request("gpt"), "the request is a JSON object, not 'gpt'"),
        (lambda store: store.create(harness="me"), 'give Harness("my-agent", "1.0")'),
        (lambda store: store.create(records="all"), "records is a list"),
        (lambda store: store.create("my-session"), 'id="…"'),
        (lambda store: store.open_session(None), "a session id is a non-empty string"),
        (lambda store: store.read(""), "a session id is a non-empty string"),
        (lambda store: store.delete(""), "a session id is a non-empty string"),
        (lambda store: store.put_blob("text"), "encode a text first"),
        (lambda store: store.import_file(None), "a path goes to"),
        (lambda store: store.project("held", None), "the file to write is a path"),
        (lambda _: STORE("st"), "Store.open(path)"),
        (lambda _: STORE.open(None), "where a store is is a path"),
        (lambda store: WRITE("out", store.read("held")), "is a path"),
        (lambda store: store.read("held").append_batch(MAKE.user("hi")), "open_session()"),
        (lambda store: store.origin_dispatches("held", "x"), "store.read(id)"),
        (lambda store: store.origin_dispatches(store.read("held"), None), "None"),
        (lambda store: store.subsession("held", None), "call_id"),
    ],
)
def test_the_message_helps(call: Callable[[Any], object], says: str) -> None:
    """What was wrong, and what to do."""
    store = Store.memory()
    store.create(id="held").close()
    with pytest.raises(AgentSessionError) as caught:
        call(store)
    assert says in str(caught.value)
    assert store.holds("held")


def test_a_batch_is_a_list() -> None:
    """One entry is none, and neither is nothing."""
    with Store.memory() as store, store.create() as session:
        held = session.entry(session.append(entry.user("hi")).id)
        wrongs: tuple[Any, ...] = (None, entry.user("hi"), held, {"type": "info"}, "{}", b"{}")
        for wrong in wrongs:
            with pytest.raises(BadInput, match="a batch of entries is a list"):
                session.append_batch(wrong)
        assert len(session) == 1


def test_the_text_of_a_line_is_appended_as_its_bytes_are() -> None:
    """Text that JSON cannot carry is normalised on the way, on record."""
    with Store.memory() as store, store.create() as session:
        assert session.append('{"type":"info","name":"é"}').outcome == "continued"
        assert session.name == "é"
        held = session.entry(session.append('{"type":"info","name":"\udc00"}').id)
        assert held.body["normalised"][0]["at"] == "/name"
        with pytest.raises(AgentSessionError) as caught:
            session.append("hello")
        assert caught.value.code == "bad_json"


def test_a_directory_may_be_a_path(tmp_path: Path) -> None:
    """As most programs have theirs."""
    with Store.open(tmp_path / "st", create=True) as store:
        store.create(id="held", cwd=tmp_path).close()
        assert store.read("held").header.cwd == str(tmp_path)
        assert [each.id for each in store.list(cwd=tmp_path)] == ["held"]
        assert store.project("held", tmp_path / "out.jsonl") == str(tmp_path / "out.jsonl")
        text: Any = (tmp_path / "out.jsonl").open()  # not as "rb"
        with text, pytest.raises(AgentSessionError) as caught:
            store.import_file(text)
        assert caught.value.next_step == 'open the file as "rb"'


@pytest.mark.parametrize("base", [None, "", "sha256:" + "0" * 64, 5])
def test_a_fork_at_no_entry_is_none(base: Any) -> None:
    """And no session is left that continues from nothing."""
    with Store.memory() as store:
        store.create(id="held").close()
        with pytest.raises(NoEntry):
            store.fork("held", base)
        assert store.session_ids() == ["held"]
