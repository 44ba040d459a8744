"""What is looked up among a session's rows, however little of them was read for it, against a look at every row."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas import SessionWriter, Store, entry
from agentsession_cas.core.entry import Draft
from agentsession_cas.core.facts import Code
from agentsession_cas.core.framing import Generation, Record
from agentsession_cas.core.jsonl import projection_lines, read_session
from agentsession_cas.core.rows import (
    NO_DIGEST,
    PARENTS_BIT,
    REF_ELSEWHERE,
    Row,
    RowCode,
    encode_row,
    ref_to,
    row_of_ref,
)
from agentsession_cas.core.source import path_positions
from agentsession_cas.core.tree import Session
from agentsession_cas.errors import BadConvergence
from agentsession_cas.sessions import callindex, idindex, source
from agentsession_cas.sessions.callindex import CallIndex
from agentsession_cas.sessions.idindex import IdIndex
from agentsession_cas.sessions.log import RowTable
from agentsession_cas.sessions.rowruns import is_run, row_runs
from tests.helpers.legal import ticking_store

SEEDS = st.lists(st.integers(0, 2**32 - 1), max_size=25)
CHANCES = st.integers(0, 2**32 - 1).map(random.Random)
CALLS = range(4)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes that read a few rows at a time, so that a short session takes many looks."""
    monkeypatch.setattr(idindex, "FIRST_ROWS", 3)
    monkeypatch.setattr(callindex, "FIRST_ROWS", 3)
    monkeypatch.setattr(source, "_SHORT", 5)


def row_of(number: int, chance: random.Random) -> Row:
    """A row of any kind: some ids begin alike, some rows are no entries, some targets are wrong."""
    if chance.random() < 0.1:
        return Row(NO_DIGEST, NO_DIGEST, NO_DIGEST, 0, 0, 0, 0, RowCode.HEAD, 0, 0, 0)
    id_ = bytes([chance.randrange(3), 0, 0, 0]) + (number + 1).to_bytes(28, "big")
    code = chance.choice([Code.ITEM, Code.ITEM, Code.DECISION, Code.DISPATCH])
    target = chance.choice([0, 1, REF_ELSEWHERE, ref_to(chance.randrange(number + 1))]) if code is not Code.ITEM else 0
    parent = chance.choice([number + 1] * 5 + [chance.randrange(number + 2)])
    return Row(id_, NO_DIGEST, NO_DIGEST, parent, 0, target, 0, code, 0, 0, chance.choice(CALLS))


class Rows:
    """A table that grows and shrinks, its indexes beside it, and the same told from every row."""

    def __init__(self, count: int, chance: random.Random) -> None:
        self.chance = chance
        self.table = RowTable(Generation(bytes(8), bytes(16), 0, 0), b"", None)
        self.rows: list[Row] = []
        self.ever: list[Row] = []
        for _ in range(count):
            self._add()
        self.ids, self.calls = IdIndex(self.table), CallIndex(self.table)

    def _add(self, *, item: bool = False) -> Row:
        row = row_of(len(self.ever), self.chance)
        while item and row.code != Code.ITEM:
            row = row_of(len(self.ever), self.chance)
        if row_of_ref(row.target) >= len(self.rows) and row.target != REF_ELSEWHERE:
            row = row._replace(target=0)
        self.table.push(Record(encode_row(row), b"x" if row.code < RowCode.HEAD else b"", b""))
        self.rows.append(row)
        self.ever.append(row)
        return row

    def push(self) -> None:
        number = len(self.rows)
        self.calls.push(number, self._add())

    def extend(self) -> None:
        """Several items in one go."""
        first, calls = len(self.rows), dict[int, list[int]]()
        for number in range(first, first + self.chance.randrange(1, 4)):
            if call := self._add(item=True).call:
                calls.setdefault(call, []).append(number)
        self.calls.extend(first, len(self.rows) - first, calls)

    def cut(self) -> None:
        count = self.chance.randrange(len(self.rows) + 1)
        self.ids.cut(count)
        self.calls.cut(count)
        self.table.cut(count)
        del self.rows[count:]

    def look(self) -> None:
        """Ask one thing."""
        match self.chance.randrange(4):
            case 0:
                row = self.chance.choice(self.ever)
                held = row in self.rows and row.code < RowCode.HEAD
                find = self.chance.choice([self.ids.find, self.ids.first])
                assert find(row.entry) == (self.rows.index(row) if held else -1)
            case 1:
                call = self.chance.choice(CALLS)
                assert list(self.calls.numbers(call)) == self._about(call)
            case 2:
                call, number = self.chance.choice(CALLS), self.chance.randrange(-1, len(self.rows))
                found = {*self._about(call), *filter(self._is_stray, range(len(self.rows)))}
                assert self.calls.numbers_behind(number, call) == sorted(at for at in found if at > number)
            case _:
                known = self.calls.known
                assert known is None or all(row.call in known for row in self.rows if row.call)

    def _about(self, call: int) -> list[int]:
        return [at for at, row in enumerate(self.rows) if call and row.call == call]

    def _is_stray(self, number: int) -> bool:
        row = self.rows[number]
        target = row_of_ref(row.target) if row.target != REF_ELSEWHERE else -1
        named = self.rows[target].call if target >= 0 else 0
        return row.code in (Code.DECISION, Code.DISPATCH) and named != row.call


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 70), CHANCES, st.lists(st.integers(0, 9), max_size=40))
def test_an_index_finds_what_a_look_at_every_row_finds(count: int, chance: random.Random, steps: list[int]) -> None:
    rows = Rows(count, chance)
    for step in steps:
        if step == 0:
            rows.cut()
        elif step < 3 or not rows.rows:
            rows.push()
        elif step == 3:
            rows.extend()
        else:
            rows.look()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), CHANCES)
def test_the_first_of_rows_with_the_same_id_is_known(count: int, chance: random.Random) -> None:
    rows = Rows(count, chance)
    twice = chance.choice(rows.rows)
    rows.table.push(Record(encode_row(twice), b"x", b""))
    if twice.code < RowCode.HEAD:
        assert rows.ids.find(twice.entry) >= 0
        assert rows.ids.first(twice.entry) == rows.rows.index(twice)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 200), st.integers(0, 9), CHANCES)
def test_runs_of_rows_are_what_their_parents_say(count: int, first: int, chance: random.Random) -> None:
    rows = [row_of(number, chance) for number in range(first + count)][first:]
    for at in range(len(rows)):
        if chance.random() < 0.9 and rows[at].code < RowCode.HEAD:
            rows[at] = rows[at]._replace(parent=ref_to(first + at - 1))
    view = memoryview(b"".join(encode_row(row) + bytes(4) for row in rows))
    told = []
    for number, parent, more in row_runs(view, first):
        told += [(number, parent), *((number + at, ref_to(number + at - 1)) for at in range(1, more + 1))]
    entries = [(at, row.parent) for at, row in enumerate(rows, first) if row.code < RowCode.HEAD]
    assert told == entries
    assert is_run(view, first) == (entries == [(at, ref_to(at - 1)) for at in range(first, first + count)])


# --- whole sessions ---


def grow(session: SessionWriter, seeds: list[int]) -> None:
    """Entries of every shape that an append looks up, on a few branches, in log, tail and journal."""
    for seed in seeds:
        chance = random.Random(seed)
        ids = [session.source.entry_id(at) for at in range(len(session))]
        own = ids[max(0, session.source.base_count - 1) :]
        match chance.randrange(9):
            case 0:
                session.set_head(session.leaf, chance.choice(own))
            case 1:
                session.checkpoint()
            case 2:
                session.append(entry.info(name="old").at(ts="0001-01-01T00:00:00Z"))
            case 3:
                others = [each for each in ids if each != session.leaf]
                session.append(Draft("acme:y", {"n": seed}, parents=[{"entry": each} for each in others[:1]]))
            case 4:
                session.append(Draft("acme:x", {"n": seed}, parent=chance.choice(own)))
            case 5 | 6:
                session.append(entry.function_call(f"{session.id}.{len(session)}", "t", "{}"))
            case _:
                touch(session, chance)


def touch(session: SessionWriter, chance: random.Random) -> None:
    """Say something about one of the calls there, if anything may be said."""
    able = [call for call in session.calls() if call.pending and not call.rejected and not call.answered]
    if not able:
        session.append(entry.user("nothing to do"))
        return
    call = chance.choice(able).entry
    done = entry.function_call_output(call.call_id, "x")
    session.append(chance.choice([entry.hold(call), entry.proceed(call), entry.dispatch(call), done]))


def check(session: Session) -> None:
    """All that can be looked up, against the session read whole from its projection."""
    found, read = session.source, read_session(b"\n".join(projection_lines(session))).source
    places = range(len(read))
    ids = [read.entry_id(at) for at in places]
    if len(found) < len(read):
        ids.pop()  # the line that names the head
        places = range(len(ids))
    assert (len(found), found.base_count) == (len(ids), read.base_count)
    assert [found.find(each) for each in ids] == list(places)
    assert [found.entry_id(at) for at in places] == ids
    assert [found.parent(at) for at in places] == [read.parent(at) for at in places]
    for at in places:
        assert found.entry(at).line == read.entry(at).line
        above = set(path_positions(read, at))
        assert [found.is_above(each, at) for each in places] == [each in above for each in places]
        call_id = read.entry(at).call_id
        assert list(found.with_call(call_id)) == list(read.with_call(call_id))
    assert (found.find("sha256:" + "0" * 64), found.is_above(-1, len(found) - 1)) == (-1, False)


def ask(session: Session, chance: random.Random, ids: list[str]) -> None:
    """One thing first, of a session that was just read: what it needs is found for it alone."""
    found, leaf = session.source, session.leaf_position
    path = path_positions(found, leaf)
    assert path[-1:] == ([leaf] if leaf >= 0 else [])
    match chance.randrange(3):
        case 0:
            position = chance.randrange(len(ids))
            assert found.find(ids[position]) == position
        case 1:
            position = chance.randrange(len(ids))
            assert found.is_above(position, leaf) == (position in path)
        case _:
            calls = {call.call_id: call.position for call in session.calls()}
            assert all(found.find(found.entry_id(at)) == at for at in calls.values())


@settings(max_examples=30, deadline=None)
@given(SEEDS, SEEDS, SEEDS, CHANCES)
def test_forks_of_forks_hold_what_their_files_say(
    seeds: list[int], more: list[int], most: list[int], chance: random.Random
) -> None:
    with ticking_store() as store:
        with store.create(id="0", cwd="/") as session:
            session.append(entry.user("first"))
            grow(session, seeds)
            check(session)
        for number, each in enumerate((more, most)):
            origin = store.read(str(number))
            held = [at.id for at in origin if at.type != "label"]
            base = chance.choice([origin.leaf or held[0], *held])
            try:
                fork = store.fork(origin.id, base, id=str(number + 1))
            except BadConvergence:
                return
            with fork:
                ask(fork, chance, [at.id for at in store.read(fork.id)])
                grow(fork, each)
                check(fork)
            ids = [at.id for at in store.read(fork.id)]
            for _ in range(4):
                ask(store.read(fork.id), chance, ids)
            check(store.read(fork.id))
        assert store.fsck().ok  # which works out the context hash at every base anew
        store.delete("0")
        check(store.read("1"))
        check(store.read("2"))


def test_a_fork_reads_no_row_of_a_long_prefix_until_one_is_asked_for() -> None:
    """Nor does what looks at its own entries: an open, its head."""
    with Store.memory() as store:
        with store.create(id="origin") as session:
            for _ in range(4):
                session.append_batch([entry.user(str(number)) for number in range(600)])
            session.checkpoint()
            leaf = session.leaf
        with store.fork("origin", leaf, id="fork") as fork:
            assert "base_count" not in vars(fork.source)
            fork.append(entry.user("on"))
        read = store.read("fork")
        assert (read.leaf, "base_count" in vars(read.source)) == (fork.leaf, False)
        assert (read.leaf_position, len(read)) == (2400, 2401)


@pytest.mark.parametrize("reopened", [False, True])
def test_an_entry_held_far_behind_its_parent_is_found(reopened: bool) -> None:
    with Store.memory() as store:
        session = store.create(id="s")
        ids = [each.id for each in session.append_batch([entry.user(str(number)) for number in range(30)])]
        draft = Draft("item", entry.user("aside").body, parent=ids[2], ts="2026-01-01T00:00:00Z")
        held = session.append(draft).id
        session.append_batch([entry.user(str(number)) for number in range(30)])
        if reopened:
            session.close()
            session = store.open_session("s")
        with session:
            again = session.append(draft)
            assert (again.id, again.outcome) == (held, "held")


def test_a_head_that_was_cut_away_is_not_found() -> None:
    with Store.memory() as store, store.create(id="s") as session:
        session.append_batch([entry.user(str(number)) for number in range(3)])
        found = store.snapshot("s").source
        found.cut(2)
        assert (found.find(session.leaf), len(found)) == (-1, 2)


def test_flags_of_rows_outlast_a_checkpoint() -> None:
    with Store.memory() as store, store.create(id="s") as session:
        first, _ = session.append_batch([entry.user("a"), entry.user("b")])
        assert store.snapshot("s").source.flags & PARENTS_BIT == 0
        session.append(Draft("acme:x", {}, parents=[{"entry": first.id}]))
        flags = [store.snapshot("s").source.flags, session._writer.source.flags]
        session.checkpoint()
        session.append(entry.user("c"))
        flags += [store.snapshot("s").source.flags, session._writer.source.flags]
        assert all(each & PARENTS_BIT for each in flags)


def test_calls_that_come_in_one_go_are_known() -> None:
    rows = Rows(40, random.Random(1))
    assert list(rows.calls.numbers(99)) == []
    first = len(rows.rows)
    rows.table.push(Record(encode_row(row_of(first, rows.chance)._replace(code=Code.ITEM, call=50)), b"x", b""))
    rows.calls.extend(first, 1, {50: [first]})
    assert rows.calls.known is not None
    assert 50 in rows.calls.known
    assert 51 not in rows.calls.known
