"""Hostile values, names and files: each survives exactly, or is refused by the right error with nothing changed."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.entry import Draft
from agentsession_cas.core.header import new_header
from agentsession_cas.effects.host import Fs
from agentsession_cas.effects.memory import memory_host
from agentsession_cas.errors import (
    AgentSessionError,
    BadHeader,
    BadJSON,
    Corrupt,
    LimitExceeded,
    NoEntry,
    NoSession,
    NoStore,
    SessionExists,
    UnsupportedFormat,
)
from agentsession_cas.layout import directory_name
from agentsession_cas.store import Store
from agentsession_cas.testing.simfs import Sim
from tests.helpers.engine import Player, message, observed, ts
from tests.helpers.engine_model import World

pytestmark = pytest.mark.heavy

Json = dict[str, Any]
ROOT: Final = "/store"


def made() -> Store:
    """A store in memory, with a session ``s`` of one entry."""
    store = Store.open(ROOT, create=True, host=memory_host(), background=False)
    with store.create(id="s", created_at=ts(0)) as writer:
        writer.append(Draft("item", message("before"), ts=ts(1)))
    return store


def everything(fs: Fs, path: str = ROOT) -> dict[str, bytes]:
    """Every file below a path."""
    found: dict[str, bytes] = {}
    for name in fs.listdir(path):
        below = f"{path}/{name}"
        stat = fs.stat(below)
        assert stat is not None
        found |= everything(fs, below) if stat.is_dir else {below: fs.read(below) or b""}
    return found


def unchanged(store: Store, error: type[AgentSessionError], act: Callable[[], object]) -> AgentSessionError:
    """An act that is refused leaves every file of the store as it was."""
    before = everything(store.layout.host.fs)
    with pytest.raises(error) as refused:
        act()
    assert everything(store.layout.host.fs) == before
    return refused.value


# --- values -----------------------------------------------------------------------------------------------------------

BIG: Final = "x" * (64 << 20)


def nested(depth: int) -> object:
    """Lists within lists."""
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


SURVIVING: Final[dict[str, tuple[object, bytes]]] = {
    "NUL": ("a\0b", rb'"a\u0000b"'),
    "U+2028": ("a\u2028b", '"a\u2028b"'.encode()),
    "NFD text": (unicodedata.normalize("NFD", "é"), '"e\u0301"'.encode()),
    "2^53": (2**53, b"9007199254740992"),
    "2^70": (2**70, b"1.1805916207174113e+21"),
    "-0.0": (-0.0, b"0"),
    "1.0": (1.0, b"1"),
    "1e-7": (1e-7, b"1e-7"),
    "5e-324": (5e-324, b"5e-324"),
    "keys beyond U+FFFF": ({"\uffff": 1, "\U0001f600": 2, "a": 3}, '{"a":3,"\U0001f600":2,"\uffff":1}'.encode()),
    "256 levels with the two around": (nested(254), b"[" * 254 + b"0" + b"]" * 254),
    "a 64 MB string": (BIG, f'"{BIG}"'.encode()),
}
"""Each value, and the canonical bytes it is kept as (format.md §4)."""


@pytest.mark.parametrize("name", SURVIVING)
def test_a_value_survives_exactly(name: str) -> None:
    value, kept = SURVIVING[name]
    content = b'{"data":{"v":' + kept + b'},"ns":"t"}'
    store = made()
    with store.open_session("s") as writer:
        entry_id = writer.append(Draft("custom", {"ns": "t", "data": {"v": value}}, ts=ts(2)), durable=True).id
        assert writer.entry(entry_id).content == content
    store = Store.open(ROOT, host=store.layout.host)
    assert store.read("s").entry(entry_id).content == content
    with store.open_session("s") as writer:
        writer.checkpoint()
    store.close()
    store = Store.open(ROOT, host=store.layout.host)
    assert store.read("s").entry(entry_id).content == content
    if name != "a 64 MB string":
        assert store.read("s").entry(entry_id).body["data"]["v"] == value
    store.project("s", "/s.jsonl")
    data = store.layout.host.fs.read("/s.jsonl")
    assert data is not None
    other = Store.open("/other", create=True, host=store.layout.host)
    other.import_file(data)
    assert other.read("s").entry(entry_id).content == content


CHANGED: Final[dict[str, tuple[object, bytes, str]]] = {
    "lone surrogate": ("a\ud800b", '"a\ufffdb"'.encode(), r'"a\ud800b"'),
    "2^53+1": (2**53 + 1, b"9007199254740992", "9007199254740993"),
    "1234567890123456789": (1234567890123456789, b"1234567890123456800", "1234567890123456789"),
}
"""Values no line can hold: what they become, and what is noted of them."""


@pytest.mark.parametrize("name", CHANGED)
def test_a_value_that_no_line_can_hold_is_changed_and_noted(name: str) -> None:
    value, kept, was = CHANGED[name]
    store = made()
    with store.open_session("s") as writer:
        entry_id = writer.append(Draft("custom", {"ns": "t", "data": {"v": value}}, ts=ts(2)), durable=True).id
    entry = Store.open(ROOT, host=store.layout.host).read("s").entry(entry_id)
    assert entry.content.startswith(b'{"data":{"v":' + kept + b"}")
    assert entry.body["normalised"] == [{"at": "/data/v", "was": was}]


REFUSED: Final[dict[str, tuple[object, type[AgentSessionError]]]] = {
    "NaN": (float("nan"), BadJSON),
    "infinity": (float("inf"), BadJSON),
    "10^400": (10**400, BadJSON),
    "a surrogate in a name": ({"\ud800": 1}, BadJSON),
    "257 levels with the two around": (nested(255), LimitExceeded),
    "5,000 levels": (nested(5000), LimitExceeded),
    "a set": ({1, 2}, BadJSON),
    "bytes": (b"bytes", BadJSON),
    "a name that is no string": ({1: 2}, BadJSON),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_is_refused_and_nothing_changes(name: str) -> None:
    value, error = REFUSED[name]
    store = made()
    with store.open_session("s") as writer:
        bad = Draft("custom", {"ns": "t", "data": {"v": value}}, ts=ts(2))
        good = Draft("item", message("good"), ts=ts(3))
        unchanged(store, error, lambda: writer.append(bad, durable=True))
        unchanged(store, error, lambda: writer.append_batch([good, bad], durable=True))
        assert len(writer) == 1
        writer.append(good, durable=True)
    assert len(observed(store, "s").own) == 2


LINES: Final[dict[str, bytes]] = {
    "1e400": b'{"type":"custom","ns":"t","data":1e400}',
    "NaN": b'{"type":"custom","ns":"t","data":NaN}',
    "Infinity": b'{"type":"custom","ns":"t","data":-Infinity}',
    "duplicate keys": b'{"type":"custom","ns":"t","data":{"a":1,"a":1}}',
    "duplicate keys by escapes": rb'{"type":"custom","ns":"t","data":{"a":1,"\u0061":2}}',
    "duplicate envelope": b'{"type":"custom","ns":"t","type":"custom"}',
    "5,000 levels": b'{"type":"custom","ns":"t","data":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "cut short": b'{"type":"custom","ns":"t"',
    "two values": b'{"type":"custom","ns":"t"} {}',
    "nothing": b"",
    "NULs": bytes(100),
    "a list": b"[]",
    "a number": b"7",
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_is_refused_by_append_and_by_import(name: str) -> None:
    line = LINES[name]
    store = made()
    with store.open_session("s") as writer:
        unchanged(store, AgentSessionError, lambda: writer.append(line))
    header = new_header(id="t", created_at=ts(0)).line
    if line:
        # not the last line: that may be cut short
        refused = unchanged(store, AgentSessionError, lambda: store.import_file(header + b"\n" + line + b"\n{}\n"))
        assert "line 2" in str(refused)
    assert not store.holds("t")


def test_a_line_of_bytes_that_are_no_text_is_taken_with_a_note() -> None:
    store = made()
    with store.open_session("s") as writer:
        entry_id = writer.append(b'{"type":"custom","ns":"t","data":"a\xff\xc3(","ts":"2026-01-01T00:00:01Z"}').id
        body = writer.entry(entry_id).body
    assert body["data"] == "a\ufffd\ufffd("
    assert [sorted(note) for note in body["normalised"]] == [["at", "raw"]]


# --- names ------------------------------------------------------------------------------------------------------------

IDS: Final = [
    "../x",
    "..",
    ".",
    "a/b",
    "a-b",
    "a_b",
    "/etc/passwd",
    "测试",
    "CON",
    "con",
    "nul",
    "com1",
    "CON.txt",
    "a" * 1000,
    "a" * 999 + "b",
    "Ü" * 200,
    "Abc",
    "abc",
    "ABC",
    "%61bc",
    "a b",
    " ",
    "a\nb",
    "a\0b",
    "\u2028",
    "e\u0301",
    "é",
    "~",
    "-rf",
    "\U0001f600",
]


def test_session_ids_of_all_kinds_live_side_by_side_on_a_real_disk(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with Store.open(root, create=True) as store:
        for number, session_id in enumerate(IDS):
            with store.create(id=session_id, created_at=ts(number)) as writer:
                writer.append(Draft("item", message(session_id), ts=ts(number)), durable=True)
    with Store.open(root) as store:
        assert [summary.id for summary in store.list()] == IDS[::-1]
        for session_id in IDS:
            with store.open_session(session_id) as writer:
                assert writer.entry(writer.leaf).body == message(session_id)
                assert writer.id == session_id
            with pytest.raises(SessionExists):
                store.create(id=session_id)
        for session_id in IDS[::2]:
            store.delete(session_id)
        assert [summary.id for summary in store.list()] == IDS[1::2][::-1]
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    names = [path.name for path in (root / "sessions").iterdir()]
    assert len(names) == len(IDS[1::2])
    assert all(len(name) <= 200 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-%") for name in names)


@given(st.text(min_size=1, max_size=80), st.text(min_size=1, max_size=80))
def test_directory_names_are_injective_also_where_case_does_not_count(first: str, second: str) -> None:
    assert (directory_name(first).lower() == directory_name(second).lower()) == (first == second)


@given(st.text(st.characters(categories=["C", "L", "N", "P", "S", "Z"]), min_size=1, max_size=400))
def test_no_id_leads_out_of_the_directory(session_id: str) -> None:
    name = directory_name(session_id)
    assert "/" not in name
    assert name not in ("", ".", "..")
    assert name.isascii()
    assert len(name) <= 200


@pytest.mark.parametrize("session_id", ["\ud800", "nobody", "../s", "s/", "S"])
def test_a_session_that_is_not_there_is_not_there_by_any_name(session_id: str) -> None:
    store = made()
    assert not store.holds(session_id)
    for act in (store.read, store.open_session, store.delete):
        unchanged(store, NoSession, lambda act=act: act(session_id))  # type: ignore[misc]


def test_an_id_that_no_header_can_hold_is_refused() -> None:
    store = made()
    unchanged(store, AgentSessionError, lambda: store.create(id="\ud800"))
    unchanged(store, BadHeader, lambda: store.create(new_header(id="", created_at=ts(0))))


NO_IDS: Final = ["x", "sha256:", "sha256:zz", "sha256:" + "A" * 64, "sha256:" + "0" * 63, "\ud800"]


@pytest.mark.parametrize("entry_id", NO_IDS)
def test_what_is_no_entry_id_names_no_entry(entry_id: str) -> None:
    store = made()
    with store.open_session("s") as writer:
        head = writer.leaf
        unchanged(store, AgentSessionError, lambda: writer.append(Draft("item", message("x"), parent=entry_id)))
        unchanged(store, NoEntry, lambda: writer.set_head(head, entry_id))
        unchanged(store, AgentSessionError, lambda: writer.set_head(entry_id, head))
        unchanged(store, NoEntry, lambda: writer.entry(entry_id))
        assert len(writer) == 1
    unchanged(store, AgentSessionError, lambda: store.fork("s", entry_id))
    unchanged(store, AgentSessionError, lambda: store.blob(entry_id))


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\n", bytes(5000), b"\xff" * 100, b"{}\n", b"null\n", b"\xef\xbb\xbf"])
def test_a_file_that_is_none_is_refused(data: bytes) -> None:
    store = made()
    unchanged(store, AgentSessionError, lambda: store.import_file(data))


def test_a_header_with_no_entries_is_an_empty_session() -> None:
    store = made()
    header = new_header(id="t", created_at=ts(0))
    taken = store.import_file(header.line, as_record=True)
    assert (taken.entries, taken.head) == (0, "")
    with store.open_session("t") as writer:
        writer.append(Draft("item", message("first"), ts=ts(1)), durable=True)
    assert len(observed(store, "t").own) == 1


@settings(max_examples=60)
@given(st.binary(max_size=200))
def test_any_bytes_are_imported_or_refused(data: bytes) -> None:
    store = made()
    with pytest.raises(AgentSessionError):
        store.import_file(data)
    assert store.session_ids() == ["s"]


def grown() -> Sim:
    """A machine whose session has a log with whole blocks and a journal with frames."""
    sim = Sim()
    player = Player(sim.host, World())
    player.create("s")
    player.append("s", *[20] * 40, durable=True)
    player.checkpoint("s")
    player.append("s", 300, durable=True)
    player.leave()
    return sim


GROWN: Final = grown()


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(["journal", "header", "log-0"]),
    st.binary(max_size=300) | st.integers(0, 9000).map(bytes),
    st.integers(0, 26_000),
    st.booleans(),
)
def test_any_bytes_in_the_files_of_a_session_are_harmless_or_named(name: str, data: bytes, at: int, cut: bool) -> None:
    """Written over what was there, or instead of it."""
    sim = GROWN.clone()
    path = f"{ROOT}/sessions/s/{name}"
    before = sim.host.fs.read(path) or b""
    sim.host.fs.unlink(path)
    sim.host.fs.create(path).pwrite(data if cut else before[:at].ljust(at, b"\0") + data + before[at + len(data) :], 0)
    store = Store.open(ROOT, host=sim.host)
    sound = observed(Store.open(ROOT, host=GROWN.clone().host), "s")
    try:
        found = observed(store, "s")
    except Corrupt:
        return
    assert found == sound


@settings(max_examples=40)
@given(st.binary(max_size=100))
def test_any_bytes_in_the_settings_are_no_store_of_ours(data: bytes) -> None:
    store = made()
    fs = store.layout.host.fs
    fs.unlink(f"{ROOT}/store.json")
    fs.create(f"{ROOT}/store.json").pwrite(data, 0)
    with pytest.raises((Corrupt, UnsupportedFormat)):
        Store.open(ROOT, host=store.layout.host)


NO_SETTINGS: Final = [b"[]", b"{}", b"7", b'{"layout":"1"}', b'{"layout":2}', b'{"layout":null}', b'"layout"']


@pytest.mark.parametrize("data", NO_SETTINGS)
def test_settings_of_another_kind_are_refused(data: bytes) -> None:
    store = made()
    fs = store.layout.host.fs
    fs.unlink(f"{ROOT}/store.json")
    fs.create(f"{ROOT}/store.json").pwrite(data, 0)
    for create in (False, True):
        with pytest.raises((Corrupt, UnsupportedFormat)):
            Store.open(ROOT, host=store.layout.host, create=create)


def test_no_store_is_made_where_none_is_asked_for() -> None:
    host = memory_host()
    with pytest.raises(NoStore):
        Store.open(ROOT, host=host)
    assert host.fs.stat(ROOT) is None
