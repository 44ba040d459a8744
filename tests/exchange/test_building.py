"""New sessions too long for memory are made in pieces; what comes of it is what always comes (store.md A11)."""

from __future__ import annotations

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.errors import AgentSessionError, HeaderDiffers, NotRedacted
from agentsession_cas.exchange import building, receiving
from agentsession_cas.objects import database
from tests.helpers.exchange import B, Three, fetched, grow, lines, mark, own, pushed
from tests.helpers.exchange_scenes import many_sessions


@pytest.fixture(autouse=True)
def _in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one entry each, whatever the length."""
    monkeypatch.setattr(receiving, "_WHOLE", -1)
    monkeypatch.setattr(receiving, "_BUILT_BYTES", 1)
    monkeypatch.setattr(building, "_PACK_BYTES", 1)
    monkeypatch.setattr(database, "_LISTED_MIN", 0)


def test_it_is_the_session_that_was_sent(three: Three) -> None:
    """Branches, a head that was moved back, calls, blobs, a name; and it goes on from there."""
    a, b, c = three
    blob = a.put_blob(b"\x89PNG")
    with a.create(id="s", media="sidecar", cwd="/work") as session:
        first = session.append(entry.user("first")).id
        session.append(entry.user([{"type": "input_image", "image_url": f"sidecar:{blob}"}]))
        session.append(entry.function_call("call_1", "f", {}))
        session.append(entry.function_call_output("call_1", "done"))
        session.append(entry.user("a branch").at(parent=first))
        session.append(entry.info("its name"))
        session.set_head(session.leaf, first)
    done = pushed(a, b, "s")
    assert (done.created, done.admitted, done.head.moved, done.head.current) == (True, 6, True, first)
    assert lines(a, "s") == lines(b, "s")
    assert own(a, "s") == own(b, "s")
    assert (mark(b, "s"), b.read("s").leaf, b.blob(blob)) == ("mirror", first, b"\x89PNG")
    assert [(each.name, each.entries) for each in b.list()] == [("its name", 6)]
    assert fetched(c, b, "s").created
    grow(a, "s", "more")
    assert pushed(a, b, "s").admitted == 1
    assert lines(a, "s") == lines(b, "s")
    assert lines(c, "s") != lines(b, "s")
    for store in (b, c):
        store.sweep(0)
        assert store.fsck().ok


def test_an_empty_session(three: Three) -> None:
    """It has a header, and a mark."""
    a, b, _ = three
    a.create(id="s").close()
    assert pushed(a, b, "s").created
    assert lines(a, "s") == lines(b, "s")
    assert mark(b, "s") == "mirror"


def test_calls_that_the_sender_has_twice_are_its_own(three: Three) -> None:
    """They lie in different pieces."""
    a, b, _ = three
    with Store.memory() as other, other.create(id="s") as one:
        said = one.append(entry.user("1"))
        one.append(entry.function_call("call_1", "f", {}))
        first = [one.header.line, *(each.line for each in one)]
        with other.create(id="other") as two:
            two.append(one.entry(said.id))
            again = two.entry(two.append(entry.function_call("call_1", "g", {})).id)
    a.import_file([*first, again.line], as_record=True)
    assert pushed(a, b, "s").admitted == 3
    assert lines(a, "s") == lines(b, "s")


def test_what_is_refused_leaves_nothing(three: Three, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some of its pieces were taken: no session, nothing in ``tmp``."""
    a, b, _ = three
    grow(a, "s", "1", "2", "3")
    merge, merged = building._Builder.merge, 0

    def third(self: building._Builder, *arguments: object) -> int:
        nonlocal merged
        merged += 1
        if merged == 3:
            raise HeaderDiffers("for the test")
        return merge(self, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(building._Builder, "merge", third)
        with pytest.raises(HeaderDiffers):
            pushed(a, b, "s")
    assert b.session_ids() == []
    assert b.layout.host.fs.listdir(b.layout.tmp) == []
    with Store.open("/r", create=True, host=a._host, background=False, redacted_only=True) as narrow:
        with pytest.raises(NotRedacted):
            pushed(a, narrow, "s")
        assert narrow.session_ids() == []
    assert pushed(a, b, "s").created


def test_a_session_of_that_id_that_comes_meanwhile(three: Three, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is merged into."""
    a, b, _ = three
    grow(a, "s", "1", "2")
    fill = building._fill

    def raced(*arguments: object) -> None:
        monkeypatch.setattr(building, "_fill", fill)
        fetched(b, a, "s")
        fill(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(building, "_fill", raced)
    assert not pushed(a, b, "s").created
    assert lines(a, "s") == lines(b, "s")
    assert b.layout.host.fs.listdir(b.layout.tmp) == []


@pytest.mark.heavy
def test_power_cuts() -> None:
    """Whole or absent, at every effect that settles something; there, once it was acknowledged."""
    assert many_sessions(lambda a: a.push(B, "one", "two", "three")) > 60


def test_a_name_before_its_bytes_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seeded mistake: the session has its name while its files lack theirs."""

    def unsynced(*_: object) -> None:
        """Sync nothing."""

    fill = building._fill

    def careless(layout: object, *rest: object) -> None:
        fs = layout.host.fs  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setattr(type(fs), "sync_dir", unsynced)
            fill(layout, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(building, "_fill", careless)
    with pytest.raises((AgentSessionError, AssertionError)):
        many_sessions(lambda a: a.push(B, "one", "two", "three"))


def test_a_receiver_looks_for_loose_objects_by_listing(three: Three) -> None:
    """What lies loose is not sent again."""
    a, b, _ = three
    grow(a, "s", "1", "2")
    pushed(a, b, "s")
    b.delete("s")
    assert pushed(a, b, "s").objects_sent == 0
