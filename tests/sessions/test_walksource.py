"""A source for walks gives what the rows' own source gives, whatever it lets go of on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentsession_cas import Session, Store, entry
from agentsession_cas.core.facts import Code
from agentsession_cas.maintenance.verify import verify_stored
from agentsession_cas.sessions import walksource
from agentsession_cas.sessions.source import RowSource
from agentsession_cas.sessions.walksource import ENTRY_SIZE, WalkSource
from tests.helpers.damage import call_and_output


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A session with a branch in log and journal, and a fork of it."""
    root: Path = tmp_path_factory.mktemp("walk") / "st"
    with Store.open(root, create=True, background=False) as store:
        with store.create(id="main") as session:
            first = session.append(entry.config(model="m", instructions="be brief", replace=True))
            for number in range(40):
                session.append_batch([entry.user(f"say {number}" * 20), *call_and_output(f"c{number}")])
            session.branch(first.id)
            session.append(entry.user("another way"))
            session.checkpoint()
            last = session.append(entry.label(first.id, "named"))
            session.append(entry.Draft("link", {"rel": "continued_in", "session": "another"}))
            session.append_batch(call_and_output("behind"))
        store.repack()
        with store.fork("main", last.id, id="fork") as fork:
            fork.append(entry.Draft("link", {"rel": "judged_by", "session": "another"}))
            fork.append_batch([entry.user("in the fork"), *call_and_output("f")])
            fork.checkpoint()
        yield store


def opened(store: Store, session: str) -> tuple[RowSource, Session]:
    read = store.read(session)
    assert isinstance(read.source, RowSource)
    return read.source, read


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(session=st.sampled_from(["main", "fork"]), asked=st.lists(st.integers(0, 10_000), max_size=60))
def test_whatever_is_asked_in_whatever_order(store: Store, session: str, asked: list[int]) -> None:
    plain, _read = opened(store, session)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walksource, "KEPT_MAX", 4000)
        patch.setattr(walksource, "FACTS_MAX", 5)
        walked = WalkSource.of(plain)
        for number in asked:
            at = number % len(plain)
            assert walked.facts(at) == plain.facts(at)
            assert walked.parent(at) == plain.parent(at)
            assert walked.entry(at).line == plain.entry(at).line
            assert len(walked._facts) <= 5
            assert len(walked._entries) <= 4000 // ENTRY_SIZE + 1
            assert sum(len(each.content) for each in walked._entries.values()) <= 4000 + len(plain.entry(at).content)


@pytest.mark.parametrize("session", ["main", "fork"])
def test_its_links_are_those_its_facts_show(store: Store, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walksource, "_COLUMN_ROWS", 7)
    walked = WalkSource.of(opened(store, session)[0])
    own = range(walked.base_count, len(walked))
    assert walked.links() == [at for at in own if walked.facts(at).code == Code.LINK]
    assert len(walked.links()) == 1


@pytest.mark.parametrize("session", ["main", "fork"])
def test_an_entry_asked_for_twice_is_one(store: Store, session: str) -> None:
    walked = WalkSource.of(opened(store, session)[0])
    assert all(walked.entry(at) is walked.entry(at) for at in range(len(walked)))


def test_a_stored_session_verifies_as_its_file_does(store: Store) -> None:
    _, read = opened(store, "fork")
    report = verify_stored(lambda: store.read("fork"), store.header_of)
    assert report["ok"]
    assert report["entries"] == len(read)
    assert report["leaf"] == read.leaf
