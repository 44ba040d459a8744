"""The report on a stored session: what a file's reader checks as it reads is checked here too."""

from __future__ import annotations

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.header import Header, new_header
from agentsession_cas.core.memory import MemorySource
from agentsession_cas.core.tree import Session
from agentsession_cas.errors import Damaged, LinkMismatch, NoObject
from agentsession_cas.maintenance.verify import verify_stored

TS = "2026-01-01T00:00:00Z"
HEADER = new_header(id="s-1", created_at=TS)


def _nobody(session: str) -> Header | None:
    assert session
    return None


def _session(*entries: Entry) -> Session:
    source = MemorySource()
    for entry in entries:
        source.add(entry, len(source) - 1)
    return Session(HEADER, source, leaf=entries[-1].id)


def test_a_sound_session_is_ok() -> None:
    """Nothing to add to what verify says."""
    report = verify_stored(lambda: _session(Entry.seal("info", {"name": "n"}, "", TS)), _nobody)
    assert (report["ok"], report["entries"], report["problems"]) == (True, 1, [])


def test_an_id_that_is_not_the_hash_of_its_entry_is_an_error() -> None:
    """A row that says another time than was hashed."""
    true = Entry.seal("info", {"name": "n"}, "", TS)
    told = Entry.stored(
        true.id, "info", "", "2026-01-01T00:00:01Z", true.content_hash, lambda: canonical({"name": "n"})
    )
    report = verify_stored(lambda: _session(told), _nobody)
    assert not report["ok"]
    assert [(each["code"], each["severity"], each["entry"]) for each in report["problems"]] == [
        ("bad_id", "error", true.id)
    ]


def test_what_cannot_be_read_is_a_report() -> None:
    """Damage found on opening, and a body found missing on the way."""

    def damaged() -> Session:
        raise Damaged("the log is cut short", where="sessions/s-1/log-0 at 128")

    def missing() -> bytes:
        raise NoObject("the object is not there")

    report = verify_stored(damaged, _nobody)
    assert (report["ok"], [each["code"] for each in report["problems"]]) == (False, ["damaged"])
    lost = Entry.seal("config", {"model": "m"}, "", TS)
    hollow = Entry.stored(lost.id, "config", "", TS, lost.content_hash, missing, facts=lost.facts)
    report = verify_stored(lambda: _session(hollow), _nobody)
    assert (report["ok"], [each["code"] for each in report["problems"]]) == (False, ["no_object"])


def test_links_are_held_against_headers() -> None:
    """A child that names another parent; one that is not held is none of our business."""
    link = Entry.seal("link", {"rel": "subsession", "session": "child", "call_id": "c"}, "", TS)
    child = new_header(id="child", created_at=TS, parent_session="another", spawned_by="c")
    report = verify_stored(lambda: _session(link), {"child": child}.get)
    assert [each["code"] for each in report["problems"]] == [LinkMismatch.code]
    assert verify_stored(lambda: _session(link), _nobody)["ok"]
