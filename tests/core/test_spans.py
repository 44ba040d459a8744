"""The ``redacted`` member, and what a redacted-only store takes (format.md §10)."""

from __future__ import annotations

from typing import Any

import pytest

from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.header import Header, new_header
from agentsession_cas.core.spans import (
    Span,
    check_redacted,
    check_redacted_header,
    clear_redacted,
    is_head_move,
    redacted_of,
    set_redacted,
)
from agentsession_cas.errors import BadRedacted, NotRedacted

TS = "2026-01-01T00:00:00Z"
HELD = "sha256:" + "a" * 64


def info(**body: Any) -> Entry:
    """An entry with a body."""
    return Entry.seal("info", body, "", TS)


def label(target: str | None, **more: Any) -> Entry:
    """A leaf label."""
    return Entry.seal("label", {"label": "leaf", "target": target, **more}, HELD, TS)


def header(**members: Any) -> Header:
    """A header."""
    return new_header(id="s", created_at=TS, **members)


@pytest.mark.parametrize(
    ("written", "spans"),
    [
        ([], []),
        ([1], [Span(1, 1)]),
        ([3, [5, 9], 10], [Span(3, 3), Span(5, 9), Span(10, 10)]),
        ([[1, 2], [3, 4]], [Span(1, 2), Span(3, 4)]),
    ],
)
def test_spans_are_read_and_written_alike(written: list[Any], spans: list[Span]) -> None:
    """A number is a position, a pair a range, [] an entry the redaction added."""
    assert redacted_of(info(redacted=written)) == spans
    assert set_redacted(Draft("info", {}), spans).body == {"redacted": written}


@pytest.mark.parametrize(
    "written",
    [
        None,
        1,
        "1",
        {},
        True,
        [0],
        [-1],
        [True],
        [1.5],
        ["1"],
        [None],
        [[1]],
        [[1, 1]],
        [[2, 1]],
        [[0, 2]],
        [[1, 2, 3]],
        [[1, True]],
        [1, 1],
        [2, 1],
        [[1, 3], 3],
        [[1, 3], [2, 4]],
        [5, [1, 2]],
    ],
)
def test_another_form_is_a_member_nobody_knows(written: Any) -> None:
    """Neither out of order, nor overlapping, nor anything but positions from 1."""
    assert redacted_of(info(redacted=written)) is None


def test_an_entry_without_the_member_is_not_redacted() -> None:
    """It was appended natively."""
    assert redacted_of(info(name="n")) is None


def test_before_0_13_the_member_means_nothing() -> None:
    """Whatever its form: the file was free to hold one."""
    entry = info(redacted=[1])
    assert redacted_of(entry, 12) is None
    assert redacted_of(entry, 13) == [Span(1, 1)]


@pytest.mark.parametrize("spans", [[Span(0, 0)], [Span(2, 1)], [Span(1, 1), Span(1, 1)], [Span(1, 3), Span(3, 4)]])
def test_what_no_entry_may_hold_is_refused(spans: list[Span]) -> None:
    """And the draft stays as it was."""
    draft = Draft("info", {"redacted": "kept"})
    with pytest.raises(BadRedacted):
        set_redacted(draft, spans)
    assert draft.body == {"redacted": "kept"}


def test_set_replaces_and_clear_removes_whatever_was_there() -> None:
    """In whatever form it was held; the id, of another body, goes."""
    draft = Draft("info", {"redacted": "odd", "name": "n"}, id=HELD, parent=HELD, ts=TS)
    marked = set_redacted(draft, [Span(4, 4)])
    assert (marked.body, marked.id, marked.parent, marked.ts) == ({"redacted": [4], "name": "n"}, None, HELD, TS)
    assert clear_redacted(draft).body == {"name": "n"}


def test_a_bare_leaf_label_is_a_head_move() -> None:
    """It names an entry of the session, or the root where that is held, and holds nothing else."""

    def holds(entry_id: str) -> bool:
        return entry_id == HELD

    assert is_head_move(label(HELD), holds)
    assert is_head_move(label(None), lambda entry_id: entry_id == "")
    assert not is_head_move(label(None), holds)
    assert not is_head_move(label("sha256:" + "b" * 64), holds)
    assert not is_head_move(label("free text"), lambda _: True)
    more: list[dict[str, Any]] = [{"legacy_id": "x"}, {"normalised": []}, {"note": 1}, {"synthetic": True}]
    assert not any(is_head_move(label(HELD, **each), holds) for each in more)
    assert not is_head_move(Entry.seal("label", {"label": "kept", "target": HELD}, HELD, TS), holds)
    converging = Entry.seal("label", {"label": "leaf", "target": HELD}, "", TS, [{"session": "t", "entry": HELD}])
    assert not is_head_move(converging, holds)


def test_a_redacted_only_store_takes_what_is_redacted_alone() -> None:
    """The header says so, and every entry does, but the record of a head move."""
    redacted = header(redacted=True)
    first = info(redacted=[1])
    check_redacted_header(redacted)
    check_redacted(redacted, [first, Entry.seal("info", {"redacted": []}, first.id, TS), label(None)])
    check_redacted(redacted, [first, Entry.seal("label", {"label": "leaf", "target": first.id}, first.id, TS)])
    with pytest.raises(NotRedacted) as refused:
        check_redacted(redacted, [first, info(name="native")])
    assert refused.value.where == info(name="native").id
    with pytest.raises(NotRedacted):
        check_redacted(header(), [first])
    with pytest.raises(NotRedacted):
        check_redacted(header(redacted=True, format="agentsession/0.12"), [first])
    with pytest.raises(NotRedacted):
        check_redacted(header(redacted=True, base=HELD), [label(None)])
