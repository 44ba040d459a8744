"""Every refusal to make, fork, take in or move a session: its own error, no byte changed (store.md A2, A4, A10)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentsession_cas import ALL_RECORDS, Store, entry
from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.header import FORMAT, Header, new_header
from agentsession_cas.core.identity import hash_bytes
from agentsession_cas.core.jsonl import projection_lines
from agentsession_cas.errors import (
    AgentSessionError,
    BadConvergence,
    BadEntry,
    BadHeader,
    BadID,
    BaseRule,
    BlobMismatch,
    HeadMoved,
    HeadTarget,
    MediaDiffers,
    MirrorError,
    NoEntry,
    NoRaise,
    NoSession,
    NotRedacted,
    ReadOnly,
    RedactedFrom,
    SessionExists,
    SessionLocked,
    Superseded,
    Truncated,
    UnresolvedMigration,
    UnsupportedFormat,
)

Json = dict[str, Any]

ABSENT = "sha256:" + "f" * 64
TS = "2026-01-01T00:00:00Z"
FORKED_AT = "aside"
"""The entry of ``main`` that the fork ``fork`` continues from."""


def bytes_of(root: Path) -> dict[str, bytes | None]:
    """Every file below a directory with its bytes, every directory with None; but for locks, and what was removed."""
    paths = {str(path.relative_to(root)): path for path in root.rglob("*") if not {"locks", "trash"} & {*path.parts}}
    return {name: None if path.is_dir() else path.read_bytes() for name, path in paths.items()}


class Place:
    """A store on disk with a tree, a fork of it, a mirror, and a session of before 0.13 that holds ``redacted``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = Store.open(root / "store", create=True, background=False)
        self.ids: dict[str, str] = {}
        with self.store.create(id="main", records=ALL_RECORDS, cwd="/w") as session:
            self.ids["root"] = session.append(entry.user("hi")).id
            self.ids["aside"] = session.append(entry.user("aside")).id
            session.branch(self.ids["root"])
            self.ids["label"] = session.append(entry.leaf_label(self.ids["aside"])).id
            session.branch(self.ids["root"])
            drawn = entry.user("drawn together").at(parents=[{"entry": self.ids["aside"]}])
            self.ids["converged"] = session.append(drawn).id
        with self.store.fork("main", self.ids[FORKED_AT], id="fork", records=ALL_RECORDS) as fork:
            self.ids["own"] = fork.append(entry.user("of the fork")).id
        with self.store.create(id="copy") as copy:
            self.ids["copied"] = copy.append(entry.user("x")).id
            lines = list(projection_lines(copy))
        self.store.delete("copy")
        self.store.import_file(b"\n".join(lines))
        early = new_header(id="early", created_at=TS).members() | {"format": "agentsession/0.12"}
        marked = Entry.seal("acme:x", {"redacted": [1]}, "", TS)
        self.ids["early"] = marked.id
        self.store.import_file(b"\n".join([Header.parse(early).line, marked.line]), as_record=True)

    def refuses(self, error: type[AgentSessionError], act: Callable[[], object]) -> None:
        """Check that an act fails with exactly that error and leaves the disk as it was."""
        before = bytes_of(self.root)
        with pytest.raises(AgentSessionError) as caught:
            act()
        assert type(caught.value) is error
        assert caught.value.what
        assert bytes_of(self.root) == before

    def lines(self, *lines: bytes, header: Json | None = None, session: str = "main") -> bytes:
        """A session of the store as a file under another id, its header's members changed, lines added."""
        first, *rest = projection_lines(self.store.read(session))
        members = {**Header.parse(first).members(), "id": "new", **(header or {})}
        return b"\n".join([canonical(members), *rest, *lines, b""])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


Act = Callable[[Place], object]

CREATE: dict[str, tuple[type[AgentSessionError], Act]] = {
    "an id that is held": (SessionExists, lambda p: p.store.create(id="main")),
    "a fork under an id that is held": (
        SessionExists,
        lambda p: p.store.fork("main", p.ids["root"], id="fork"),
    ),
    "a base nobody holds": (NoEntry, lambda p: p.store.create(id="new", base=ABSENT)),
    "a fork at no entry of it": (NoEntry, lambda p: p.store.fork("main", ABSENT, id="new")),
    "a fork of no session": (NoEntry, lambda p: p.store.fork("absent", ABSENT, id="new")),
    "a base that is a leaf label": (HeadTarget, lambda p: p.store.fork("main", p.ids["label"], id="new")),
    "another media form": (MediaDiffers, lambda p: p.store.fork("main", p.ids["root"], id="new", media="sidecar")),
    "another media form than the fork above": (
        MediaDiffers,
        lambda p: p.store.fork("fork", p.ids["own"], id="new", media="sidecar"),
    ),
    "a prefix that converges an entry off it": (
        BadConvergence,
        lambda p: p.store.fork("main", p.ids["converged"], id="new"),
    ),
    "a prefix that holds redacted from before 0.13": (
        NoRaise,
        lambda p: p.store.fork("early", p.ids["early"], id="new"),
    ),
    "a later format": (
        UnsupportedFormat,
        lambda p: p.store.create(Header({**_header(), "format": "agentsession/0.15"})),
    ),
    "another payload": (UnsupportedFormat, lambda p: p.store.create(Header({**_header(), "payload": "chat/2024"}))),
    "redacted_from without redacted": (
        RedactedFrom,
        lambda p: p.store.create(id="new", redacted_from={"session": "main"}),
    ),
    "redacted from itself": (
        RedactedFrom,
        lambda p: p.store.create(id="new", redacted=True, redacted_from={"session": "new"}),
    ),
    "redacted from nothing": (RedactedFrom, lambda p: p.store.create(id="new", redacted=True, redacted_from={})),
    "redacted from no session": (
        RedactedFrom,
        lambda p: p.store.create(id="new", redacted=True, redacted_from={"profile": "p"}),
    ),
    "redacted from a session of no name": (
        RedactedFrom,
        lambda p: p.store.create(id="new", redacted=True, redacted_from={"session": ""}),
    ),
    "no media form": (BadHeader, lambda p: p.store.create(id="new", media="elsewhere")),
}


def _header() -> Json:
    return new_header(id="new", created_at=TS).members()


@pytest.mark.parametrize("name", CREATE)
def test_a_session_that_is_not_made_leaves_nothing(place: Place, name: str) -> None:
    error, act = CREATE[name]
    place.refuses(error, lambda: act(place))
    assert not place.store.holds("new")
    assert place.store.fsck().ok


def _wrong_id() -> bytes:
    return Entry.seal("info", {"name": "x"}, "", TS).line.replace(b'"name":"x"', b'"name":"y"')


def _old(*lines: str, **header: str) -> bytes:
    members = {**_header(), "format": "agentsession/0.4", **header}
    return b"\n".join([Header(members).line, *(line.encode() for line in lines)])


IMPORT: dict[str, tuple[type[AgentSessionError], Callable[[Place], bytes]]] = {
    "a held id": (SessionExists, lambda p: p.lines(header={"id": "main"})),
    "a line that fails its hash": (BadID, lambda p: p.lines(_wrong_id())),
    "a last line cut short": (Truncated, lambda p: p.lines()[:-1] + b'\n{"type":"info"'),
    "a line of no namespace missing what it needs": (
        BadEntry,
        lambda p: p.lines(Entry.seal("item", {"a": 1}, "", TS).line),
    ),
    "a parent that is not there": (NoEntry, lambda p: p.lines(Entry.seal("info", {"name": "x"}, ABSENT, TS).line)),
    "a reference to no entry before it": (
        BadConvergence,
        lambda p: p.lines(Entry.seal("info", {"name": "x"}, "", TS, [{"entry": ABSENT}]).line),
    ),
    "an own entry above the base": (
        BaseRule,
        lambda p: p.lines(Entry.seal("info", {"name": "x"}, p.ids["root"], TS).line, session="fork"),
    ),
    "an own entry at the universal root": (
        BaseRule,
        lambda p: p.lines(Entry.seal("info", {"name": "x"}, "", TS).line, session="fork"),
    ),
    "another media form than where its base is": (
        MediaDiffers,
        lambda p: p.lines(header={"media": "sidecar"}, session="fork"),
    ),
    "what no migration can write again": (
        UnresolvedMigration,
        lambda _: _old('{"type":"acme:x","id":"e1","parent":null,"ts":"2026-01-01T00:00:00Z"}'),
    ),
    "redacted_from without redacted": (
        RedactedFrom,
        lambda p: p.lines(header={"redacted_from": {"session": "main"}}),
    ),
    "a later format": (UnsupportedFormat, lambda p: p.lines().replace(FORMAT.encode(), b"agentsession/0.15", 1)),
    "another major": (UnsupportedFormat, lambda p: p.lines().replace(FORMAT.encode(), b"agentsession/1.0", 1)),
}


@pytest.mark.parametrize("as_record", [False, True])
@pytest.mark.parametrize("name", IMPORT)
def test_a_file_that_is_not_taken_leaves_nothing(place: Place, name: str, as_record: bool) -> None:
    error, make = IMPORT[name]
    data = make(place)
    place.refuses(error, lambda: place.store.import_file(data, as_record=as_record))
    assert not place.store.holds("new")


def test_a_file_with_a_wrong_blob_is_not_taken(place: Place) -> None:
    blob = hash_bytes(b"right")
    part = {"type": "input_image", "image_url": f"sidecar:{blob}", "detail": "auto"}
    with Store.memory() as other, other.create(id="new", media="sidecar") as session:
        session.append(entry.user([part]))
        data = b"\n".join(projection_lines(session))
    media = place.root / "media"
    media.mkdir()
    held = media / blob.removeprefix("sha256:")
    held.write_bytes(b"wrong")
    place.refuses(BlobMismatch, lambda: place.store.import_file(data, media=media))
    assert not place.store.holds("new")
    held.write_bytes(b"right")
    assert place.store.import_file(data, media=media).unresolved == []
    assert place.store.blob(blob) == b"right"


HEADS: dict[str, tuple[type[AgentSessionError], Act]] = {
    "another head than expected": (HeadMoved, lambda p: p.store.set_head("main", p.ids["root"], p.ids["aside"])),
    "the root, expected where it is not": (HeadMoved, lambda p: p.store.set_head("main", "", p.ids["aside"])),
    "expected wrongly, to nowhere": (HeadMoved, lambda p: p.store.set_head("main", p.ids["root"], ABSENT)),
    "to nowhere": (NoEntry, lambda p: p.store.set_head("main", p.ids["converged"], ABSENT)),
    "to a leaf label": (HeadTarget, lambda p: p.store.set_head("main", p.ids["converged"], p.ids["label"])),
    "a fork to the root": (BaseRule, lambda p: p.store.set_head("fork", p.ids["own"], "")),
    "a fork above its base": (BaseRule, lambda p: p.store.set_head("fork", p.ids["own"], p.ids["root"])),
    "a mirror": (MirrorError, lambda p: p.store.set_head("copy", p.ids["copied"], "")),
    "no session": (NoSession, lambda p: p.store.set_head("absent", "", "")),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_is_not_moved_leaves_everything(place: Place, name: str) -> None:
    error, act = HEADS[name]
    heads = {each: place.store.read(each).leaf for each in ("main", "fork", "copy")}
    place.refuses(error, lambda: act(place))
    assert {each: place.store.read(each).leaf for each in heads} == heads


def test_a_head_that_moved_says_where_it_is(place: Place) -> None:
    with pytest.raises(HeadMoved) as caught:
        place.store.set_head("main", "", place.ids["aside"])
    assert caught.value.current == place.ids["converged"]


def test_a_session_somebody_holds_is_neither_deleted_nor_continued_nor_opened(place: Place) -> None:
    with place.store.open_session("main"):
        for act in (place.store.delete, place.store.open_session, place.store.continue_session):
            place.refuses(SessionLocked, partial(act, "main"))
    place.refuses(NoSession, lambda: place.store.delete("absent"))
    place.refuses(MirrorError, lambda: place.store.continue_session("copy"))


def test_a_second_successor_leaves_nothing(place: Place) -> None:
    place.store.continue_session("main", id="next").close()
    place.refuses(Superseded, lambda: place.store.continue_session("main", id="new"))
    assert not place.store.holds("new")


def test_a_store_opened_to_read_takes_nothing(place: Place) -> None:
    data = place.lines()
    with Store.open(place.root / "store", read_only=True) as store:
        acts: list[Callable[[], object]] = [
            lambda: store.create(id="new"),
            lambda: store.fork("main", place.ids["root"], id="new"),
            lambda: store.open_session("main"),
            lambda: store.continue_session("main"),
            lambda: store.delete("main"),
            lambda: store.set_head("main", place.ids["converged"], place.ids["aside"]),
            lambda: store.import_file(data),
            lambda: store.put_blob(b"x"),
            lambda: store.redact("main", "p", str),
        ]
        for act in acts:
            place.refuses(ReadOnly, act)


def test_a_store_of_what_is_redacted_makes_nothing_else(place: Place) -> None:
    data = place.lines()
    with Store.open(place.root / "redacted", create=True, redacted_only=True, background=False) as store:
        place.refuses(NotRedacted, lambda: store.create(id="new"))
        place.refuses(NotRedacted, lambda: store.import_file(data))
        assert store.session_ids() == []
