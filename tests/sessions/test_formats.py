"""Formats of earlier minors in a store: read as they stand, raised by the first append that adds something."""

from __future__ import annotations

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.core.header import FORMAT, FORMAT_MINOR, format_of
from agentsession_cas.core.jsonl import projection_lines

NOTHING_RAISES = range(5, FORMAT_MINOR)


def early_file(minor: int) -> bytes:
    """A session file of an earlier minor: a call that was handed off."""
    with Store.memory() as store, store.create(id="early", records=("dispatch",)) as session:
        session.append(entry.user("hi"))
        call = session.append(entry.function_call("c1", "t", {})).id
        session.append(entry.dispatch("c1", call))
        lines = list(projection_lines(session))
    return b"\n".join([lines[0].replace(FORMAT.encode(), format_of(minor).encode()), *lines[1:]])


@pytest.mark.parametrize("minor", NOTHING_RAISES)
def test_only_an_append_that_adds_something_raises_a_format(minor: int) -> None:
    early = format_of(minor)
    with Store.memory() as store:
        store.import_file(early_file(minor), as_record=True)
        assert store.read("early").header.format == early
        with store.open_session("early") as session:
            held = session.entry(session.leaf)
            assert session.append(held).outcome == "held"
            assert session.append_batch([held])[0].outcome == "held"
            session.branch(session.entry(session.leaf).parent)
            session.set_head(session.leaf, held.id)
            session.commit()
            assert session.header.format == early
        with store.open_session("early") as session:
            assert session.header.format == early
            session.append(entry.function_call_output("c1", "ok"))
            assert session.header.format == FORMAT
            assert store.read("early").header.format == FORMAT
        assert store.read("early").header.format == FORMAT
        assert store.list()[0].header.format == FORMAT
        assert store.fsck().ok


@pytest.mark.parametrize("minor", NOTHING_RAISES)
def test_a_fork_is_of_this_format_and_its_origin_stays(minor: int) -> None:
    with Store.memory() as store:
        store.import_file(early_file(minor))
        with store.fork("early", store.read("early").leaf, id="fork") as fork:
            fork.append(entry.user("on"))
            assert fork.header.format == FORMAT
        assert store.read("early").header.format == format_of(minor)
