"""Sets of objects by space and key: what was added is there, once, and nothing else."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core import marks as module
from agentsession_cas.core.marks import PARTS, Marks, mark_of_key
from agentsession_cas.core.packindex import key_of

digests = st.lists(st.tuples(st.integers(0, 3), st.binary(min_size=32, max_size=32)), max_size=50)


@given(digests)
@settings(max_examples=100, deadline=None)
def test_what_was_added_is_there(added: list[tuple[int, bytes]]) -> None:
    marks = Marks()
    for space, digest in added:
        marks.add(space, digest)
    wanted = {mark_of_key(space, key_of(digest)) for space, digest in added}
    assert marks.all() == wanted
    for number in range(PARTS):
        assert marks.part(number) == {
            mark_of_key(space, key_of(digest)) for space, digest in added if digest[0] == number
        }


def test_spaces_are_told_apart() -> None:
    marks = Marks()
    marks.add(1, bytes(32))
    assert marks.all() == {1}
    assert mark_of_key(0, 0) not in marks.all()


def test_what_is_added_often_takes_no_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DUE", 100)
    marks = Marks()
    marks._due = 100
    keys = [key_of(sha256(bytes([n])).digest()) for n in range(40)]
    for _ in range(200):
        marks.add_keys(1, keys)
    assert sum(map(len, marks._parts)) <= 2 * 40 + 100 + 40
    assert len(marks.all()) == 40
