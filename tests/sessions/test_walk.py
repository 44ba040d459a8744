"""All entries of a session in one walk against the same entries one by one, wherever their rows lie."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import SessionWriter, entry
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.rows import ROW_SIZE, log_seed, seal_row, sealed_count, sealed_ok
from agentsession_cas.core.source import every_entry
from agentsession_cas.core.tree import Session
from tests.helpers.legal import ticking_store

STEPS = st.lists(st.integers(0, 2**32 - 1), max_size=90)


def grow(session: SessionWriter, seeds: list[int]) -> None:
    """Entries of every shape a row may have, on a few branches, in log, tail and journal."""
    for seed in seeds:
        rng = random.Random(seed)
        ids = [each.id for each in every_entry(session.source)]
        match rng.randrange(8):
            case 0 if ids:
                own = ids[session.source.base_count :]
                session.set_head(session.leaf, rng.choice(own or [session.leaf]))
            case 1:
                session.checkpoint()
            case 2:
                session.append(Draft("acme:x", {"n": seed}))
            case 3 if ids and session.leaf != ids[0]:  # an entry converges any but its parent
                session.append(Draft("info", {"name": str(seed)}, parents=[{"entry": ids[0]}]))
            case 4:
                session.append(entry.info(name="old").at(ts="0001-01-01T00:00:00Z"))
            case _:
                session.append_batch([entry.user(str(seed)), entry.config(model=str(seed))])


def told(each: Entry) -> tuple[Any, ...]:
    """All there is of an entry."""
    named = each.id, each.type, each.parent, each.parents, each.ts, each.content_hash
    return *named, each.envelope, each.body, each.facts, each.call_id, each.line


def check(session: Session) -> None:
    source = session.source
    walked = list(session)
    single = [source.entry(position) for position in range(len(source))]
    assert [(each.id, each.type, each.parent) for each in walked] == [(e.id, e.type, e.parent) for e in single]
    assert [told(each) for each in walked] == [told(each) for each in single]


@settings(max_examples=40, deadline=None)
@given(STEPS, STEPS)
def test_a_walk_gives_what_each_position_gives(seeds: list[int], more: list[int]) -> None:
    with ticking_store() as store:
        with store.create(id="s", cwd="/") as session:
            session.append(entry.user("first"))
            grow(session, seeds)
            check(session)
            at = session.leaf
        check(store.read("s"))
        with store.fork("s", at, id="fork") as fork:
            grow(fork, more)
            check(fork)
        check(store.read("fork"))


def test_a_walk_over_whole_blocks_of_the_log() -> None:
    with ticking_store() as store, store.create(cwd="/") as session:
        for number in range(0, 1300, 130):
            session.append_batch([entry.user(f"{number} {at}") for at in range(130)])
            if number % 520 == 0:
                session.set_head(session.leaf, session.path()[number // 2].id)
                session.checkpoint()
        check(session)
        check(store.read(session.id))


def test_a_walk_is_of_the_moment_it_began() -> None:
    with ticking_store() as store, store.create(cwd="/") as session:
        session.append_batch([entry.user(str(number)) for number in range(40)])
        before = [each.id for each in session]
        walk = iter(session)
        first = next(walk)
        session.append(entry.user("later"))
        session.checkpoint()
        session.append(entry.user("last"))
        assert [first.id, *(each.id for each in walk)] == before


def test_an_entry_of_a_row_has_no_other_members() -> None:
    with ticking_store() as store, store.create(cwd="/") as session:
        session.append(entry.user("x"))
        with pytest.raises(AttributeError, match="no colour"):
            _ = next(iter(session)).colour  # type: ignore[attr-defined]


@settings(deadline=None)
@given(st.integers(0, 70), st.integers(0, 2**40), st.integers(0, 70 * ROW_SIZE - 1), st.integers(0, 255))
def test_rows_are_counted_up_to_the_first_that_is_not_whole(count: int, number: int, at: int, byte: int) -> None:
    seed = log_seed(bytes(16), 3)
    data = bytearray(b"".join(seal_row(bytes([n]) * 124, number + n, seed) for n in range(count)))
    if at < len(data):
        data[at] = byte
    single = [sealed_ok(bytes(data), n * ROW_SIZE, number + n, seed) for n in range(count)]
    assert sealed_count(bytes(data), number, seed) == [*single, False].index(False)


def test_what_was_read_ahead_is_let_go_behind_a_walk_and_a_kept_entry_still_reads() -> None:
    with ticking_store() as store:
        with store.create(id="s", cwd="/") as session:
            session.append_batch([entry.user(f"{n} {'text ' * 90}") for n in range(300)])
            session.checkpoint()
        for whole in (True, False):
            walk = iter(store.read("s"))
            kept = [next(walk) for _ in range(50)]
            assert all(each.body for each in kept[:30])
            read = kept[-1]._fetch.__self__  # type: ignore[attr-defined]
            assert read.whole
            kept += list(walk) if whole else []
            del walk
            assert not read.whole
            assert [each.line for each in kept] == [each.line for each in store.read("s")][: len(kept)]
