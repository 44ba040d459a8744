"""Listings of a store with damage in it: the others are listed, and whoever asks hears of what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.errors import AgentSessionError, Damaged, SessionExists
from agentsession_cas.exchange.files import read_file

LONG = "a session with a long name " * 20


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Five sessions, three of them damaged: a header, a journal, and a header under a name that is no longer an id."""
    store = Store.open(tmp_path / "st", create=True)
    for name in ("good", "header", "journal", "fine", LONG):
        with store.create(id=name) as session:
            session.append(entry.info(name))
    for name, file in (("header", "header"), ("journal", "journal"), (LONG, "header")):
        (Path(store.layout.session_dir(name)) / file).write_bytes(b"rot")
    return store


class Heard(dict[str, AgentSessionError]):
    """What was told of each session."""

    def __call__(self, session: str, error: AgentSessionError) -> None:
        assert session not in self
        self[session] = error


def test_a_list_tells_of_what_it_leaves_out(store: Store) -> None:
    """Whichever file is damaged; without anybody to tell, it is left out as it was."""
    heard = Heard()
    assert [each.id for each in store.list(on_damage=heard)] == ["fine", "good"]
    assert set(heard) == {"header", "journal", ""}
    assert {type(error) for error in heard.values()} == {Damaged}
    assert "%%" in heard[""].where
    assert [each.id for each in store.list()] == ["fine", "good"]


def test_ids_and_counts_tell_too(store: Store) -> None:
    """An id is known while its header reads; a session counts while its rows do."""
    heard = Heard()
    assert sorted(store.session_ids(heard)) == ["fine", "good", "journal"]
    assert set(heard) == {"header", ""}
    heard = Heard()
    assert store.stats(heard)["sessions"] == store.stats()["sessions"] == 2
    assert set(heard) == {"header", "journal", ""}


def test_what_lies_there_by_mistake_is_no_damage(store: Store) -> None:
    """A file, and a directory by no session's name."""
    sessions = Path(store.layout.sessions)
    (sessions / "note").write_text("x")
    (sessions / ".DS_Store").write_text("x")
    (sessions / "Backup").mkdir()
    for call in (store.list, store.session_ids, store.stats):
        heard = Heard()
        call(on_damage=heard)
        assert set(heard) <= {"header", "journal", ""}


def test_a_body_that_does_not_read_is_told_of_once(tmp_path: Path) -> None:
    """A name that a listing needs, and bytes that a count does."""
    with Store.open(tmp_path / "st", create=True) as store:
        with store.create(id="held") as session:
            session.append(entry.info("a name"))
            session.checkpoint()
        for path in (tmp_path / "st" / "objects").rglob("*"):
            if path.is_file():
                path.chmod(0o600)
                path.write_bytes(b"rot")
    with Store.open(tmp_path / "st") as store:
        heard = Heard()
        assert store.list(on_damage=heard) == []
        assert set(heard) == {"held"}


def test_a_held_id_is_imported_no_second_time(store: Store, tmp_path: Path) -> None:
    """And nobody is told to delete what he has."""
    file = store.project("good", tmp_path / "good.jsonl")
    with pytest.raises(SessionExists) as caught:
        store.import_file(file)
    assert "delete" not in str(caught.value)
    assert "the same session needs nothing" in caught.value.next_step


def test_a_projection_names_the_path_it_was_asked_for(store: Store, tmp_path: Path) -> None:
    """Not the file it writes first; and leaves none."""
    (tmp_path / "taken").mkdir()
    for target in (tmp_path / "taken", tmp_path / "nowhere" / "out.jsonl"):
        with pytest.raises(AgentSessionError) as caught:
            store.project("good", target)
        assert str(target) in caught.value.where
        assert ".part" not in caught.value.where
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".part")]
    assert read_file(store.project("good", tmp_path / "taken" / "out.jsonl")).id == "good"


def test_a_list_knows_the_newest_name_and_successor_while_they_are_in_a_journal(tmp_path: Path) -> None:
    """Behind and before other entries, checkpointed or not."""
    with Store.open(tmp_path / "st", create=True) as store, store.create(id="old") as session:
        session.append_batch([entry.user("a"), entry.info("first"), entry.user("b"), entry.info("second")])
        session.append(entry.user("c"))
        store.continue_session(session, id="new").close()
        for checkpointed in (False, True):
            if checkpointed:
                session.checkpoint()
            found = {each.id: each for each in store.list()}
            assert (found["old"].name, found["old"].superseded_by) == ("second", "new")
            assert found["new"].superseded_by == ""
