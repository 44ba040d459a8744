"""What a session names, re-pointed; what becomes of a member whose entry was left out (format.md §10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.header import Header
from agentsession_cas.core.remap import Reference, Remap, remap_header_refs, remap_refs
from agentsession_cas.errors import NoPlace

TS = "2026-01-01T00:00:00Z"

Json = dict[str, Any]


def entry_id(letter: str) -> str:
    """An entry id of one hex digit."""
    return "sha256:" + letter * 64


A, B, C, D, E, NEW_A, NEW_B, NEW_E = map(entry_id, "abcde123")
KNOWN = {A: NEW_A, B: NEW_B, D: "", E: NEW_E}
"""A, B and E were written anew, D was left out, C is known to nobody."""


def mapped(session: str, entry: str) -> str | None:
    """Where the entries of this file now are."""
    return KNOWN.get(entry) if session in ("", "me") else None


REMAP = Remap(mapped, session=lambda session: f"new-{session}" if session != "strange" else None)


def remapped(type_: str, body: Json, remap: Remap = REMAP) -> Json:
    """The body of an entry, re-pointed."""
    return remap_refs(Entry.seal(type_, body, "", TS), remap).draft.body


@pytest.mark.parametrize(
    ("type_", "body", "after"),
    [
        ("item", {"queued_from": A, "from_link": B, "response": A}, {"queued_from": NEW_A, "from_link": NEW_B}),
        ("compaction", {"first_kept": A}, {"first_kept": NEW_A}),
        ("branch_summary", {"from": A}, {"from": NEW_A}),
        ("label", {"target": A, "label": "l"}, {"target": NEW_A}),
        ("outcome", {"target": A}, {"target": NEW_A}),
        ("dispatch", {"target": A}, {"target": NEW_A}),
        ("decision", {"target": A}, {"target": NEW_A}),
        ("link", {"rel": "judged_by", "session": "s", "target": A}, {"session": "new-s", "target": NEW_A}),
        ("link", {"rel": "peer", "cancel": "sent", "target": A}, {"target": NEW_A}),
        ("link", {"rel": "subsession", "session": "s", "target": A}, {"session": "new-s"}),
        ("link", {"rel": "subsession", "session": ""}, {}),
        ("config", {"omit": {"items": [A, B]}}, {"omit": {"items": [NEW_A, NEW_B]}}),
        (
            "config",
            {"omit": {"outputs": {"text": "t", "items": [A]}, "images": {"before": B, "placeholder": "p"}}},
            {"omit": {"outputs": {"text": "t", "items": [NEW_A]}, "images": {"before": NEW_B, "placeholder": "p"}}},
        ),
        (
            "config",
            {"instructions_omitted": [{"keep": 2, "of": A}, {"id": "x", "of": A}, {"keep": 0, "of": A}]},
            {"instructions_omitted": [{"keep": 2, "of": NEW_A}, {"id": "x", "of": A}, {"keep": 0, "of": A}]},
        ),
        (
            "compaction",
            {"first_kept": A, "config": {"omit": {"items": [B]}, "instructions_omitted": [{"keep": 1, "of": A}]}},
            {
                "first_kept": NEW_A,
                "config": {"omit": {"items": [NEW_B]}, "instructions_omitted": [{"keep": 1, "of": A}]},
            },
        ),
    ],
)
def test_every_member_that_names_something_is_re_pointed(type_: str, body: Json, after: Json) -> None:
    """And nothing else changes: not a provider's id, not a member of that name where the format has none."""
    assert remapped(type_, body) == {**body, **after}


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        ("item", {"queued_from": [A], "item": {"target": A}, "redacted": [1], "odd": {"target": A}}),
        ("item", {"queued_from": ""}),
        ("config", {"omit": {"items": [A, 1]}, "target": A, "instructions_omitted": {"of": A}}),
        ("config", {"omit": {"reasoning": 1, "items": [A]}}),
        ("config", {"omit": {"outputs": {"items": [A]}, "images": {"keep": 1, "before": A, "placeholder": "p"}}}),
        ("config", {"omit": [A]}),
        ("label", {"label": "l", "target": None}),
        ("info", {"target": A}),
        ("a:b", {"target": A, "first_kept": A, "session": "s"}),
    ],
)
def test_another_form_or_place_names_nothing(type_: str, body: Json) -> None:
    """It is left alone."""
    found = remap_refs(Entry.seal(type_, body, "", TS), REMAP)
    assert (found.draft.body, found.unmapped, found.dropped) == (body, [], [])
    assert found.opaque == (type_ == "a:b")


def test_parent_and_parents_are_re_pointed_and_sorted_as_a_writer_sorts_them() -> None:
    """The element of another session goes with its session; whatever else an element holds is kept."""
    parents: list[Json] = [{"entry": B, "x": 1}, {"entry": C, "session": "strange"}, {"entry": A, "session": "me"}]
    entry = Entry.seal("a:b", {}, E, TS, parents)
    found = remap_refs(entry, REMAP)
    assert found.draft.parent == NEW_E
    assert list(found.draft.parents) == [
        {"entry": NEW_B, "x": 1},
        {"entry": NEW_A, "session": "new-me"},
        {"entry": C, "session": "strange"},
    ]
    assert found.unmapped == [
        Reference("/parents/1/entry", "strange", C),
        Reference("/parents/1/session", "strange", ""),
    ]
    assert entry.parents == parents
    assert (found.draft.id, found.draft.ts) == (None, TS)


def test_an_order_in_which_nothing_moved_stays() -> None:
    """A line that came with its id keeps its order."""
    parents = [{"entry": C}, {"entry": A, "session": "t"}]
    found = remap_refs(Entry.seal("info", {}, "", TS, parents), Remap(lambda *_: None))
    assert list(found.draft.parents) == parents
    assert len(found.unmapped) == 2


def test_what_is_left_as_written_is_told_by_its_place() -> None:
    """A reference of a kind without a function is left and not told."""
    body = {"omit": {"items": [A, C], "images": {"before": C, "placeholder": "p"}}}
    found = remap_refs(Entry.seal("config", body, C, TS), REMAP)
    assert found.draft.body["omit"]["items"] == [NEW_A, C]
    places = ["/parent", "/omit/images/before", "/omit/items/1"]
    assert found.unmapped == [Reference(place, "", C) for place in places]
    alone = remap_refs(Entry.seal("link", {"rel": "judged_by", "session": "s", "target": A}, C, TS), Remap())
    assert (alone.draft.body["session"], alone.draft.parent, alone.unmapped) == ("s", C, [])


# --- entries left out ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "body", "after", "dropped"),
    [
        ("item", {"item": {}, "queued_from": D, "from_link": D}, {"item": {}}, ["/queued_from", "/from_link"]),
        ("config", {"omit": {"items": [D, A]}}, {"omit": {"items": [NEW_A]}}, ["/omit/items/0"]),
        ("config", {"model": "m", "omit": {"items": [D]}}, {"model": "m"}, ["/omit/items/0"]),
        (
            "config",
            {"omit": {"items": [D], "reasoning": "other_models"}},
            {"omit": {"reasoning": "other_models"}},
            ["/omit/items/0"],
        ),
        (
            "config",
            {"omit": {"outputs": {"text": "t", "items": [D]}}},
            {"omit": {"outputs": {"text": "t"}}},
            ["/omit/outputs/items/0"],
        ),
        (
            "compaction",
            {"first_kept": A, "config": {"omit": {"items": [D]}}},
            {"first_kept": NEW_A, "config": {}},
            ["/config/omit/items/0"],
        ),
        ("config", {"omit": {}}, {"omit": {}}, []),
        ("label", {"label": "leaf", "target": D}, {"label": "leaf", "target": None}, []),
    ],
)
def test_one_of_several_is_lost_and_a_leaf_label_names_the_root(
    type_: str, body: Json, after: Json, dropped: list[str]
) -> None:
    """A list so emptied goes, and an omit left with nothing, which would clear; a checkpoint stays one."""
    found = remap_refs(Entry.seal(type_, body, "", TS), REMAP)
    assert found.draft.body == after
    assert sorted(each.at for each in found.dropped) == sorted(dropped)


@pytest.mark.parametrize(
    ("type_", "body", "where"),
    [
        ("label", {"label": "l", "target": D}, "/target"),
        ("outcome", {"target": D}, "/target"),
        ("dispatch", {"target": D}, "/target"),
        ("decision", {"target": D}, "/target"),
        ("branch_summary", {"from": D}, "/from"),
        ("compaction", {"first_kept": D}, "/first_kept"),
        ("link", {"rel": "judged_by", "session": "s", "target": D}, "/target"),
        ("link", {"rel": "peer", "cancel": "sent", "target": D}, "/target"),
        ("config", {"omit": {"images": {"before": D, "placeholder": "p"}}}, "/omit/images/before"),
        ("config", {"instructions_omitted": [{"keep": 1, "of": D}]}, "/instructions_omitted/0/of"),
    ],
)
def test_what_has_to_name_one_entry_is_refused(type_: str, body: Json, where: str) -> None:
    """Nothing stands in the place of the one it named."""
    with pytest.raises(NoPlace) as refused:
        remapped(type_, body)
    assert refused.value.where == where


def test_a_bound_moves_down_where_the_others_move_up() -> None:
    """``first_kept`` and ``before`` go to the first entry written after the one left out."""
    below: Callable[[str], str | None] = {D: NEW_B, A: NEW_A}.get
    remap = Remap(mapped, bound=below)
    assert remapped("compaction", {"first_kept": D}, remap)["first_kept"] == NEW_B
    omit = {"omit": {"images": {"before": D, "placeholder": "p"}, "items": [D, A]}}
    assert remapped("config", omit, remap)["omit"] == {
        "images": {"before": NEW_B, "placeholder": "p"},
        "items": [NEW_A],
    }
    with pytest.raises(NoPlace):
        remapped("compaction", {"first_kept": D}, Remap(mapped, bound=lambda _: ""))
    left = remap_refs(Entry.seal("compaction", {"first_kept": C}, "", TS), remap)
    assert left.unmapped == [Reference("/first_kept", "", C)]


def test_a_parent_left_out_with_nothing_above_it_is_the_root_or_the_base() -> None:
    """In a file with a base every own entry hangs from it."""
    entry = Entry.seal("info", {}, D, TS, [{"entry": D}, {"entry": A}])
    assert remap_refs(entry, REMAP).draft.parent == ""
    found = remap_refs(entry, Remap(mapped, base=B))
    assert found.draft.parent == B
    assert list(found.draft.parents) == [{"entry": NEW_A}]
    assert found.dropped == [Reference("/parents/0/entry", "", D)]


def test_a_reference_that_would_name_an_entry_again_goes() -> None:
    """Two that were left out may both come to one entry, or to the parent."""
    places = {A: NEW_A, C: NEW_A, D: NEW_B, B: B}
    together = Remap(lambda _, entry: places[entry])
    entry = Entry.seal("info", {}, D, TS, [{"entry": A}, {"entry": C}, {"entry": B}])
    found = remap_refs(entry, together)
    assert list(found.draft.parents) == [{"entry": NEW_A}, {"entry": B}]
    assert [each.at for each in found.dropped] == ["/parents/1/entry"]
    onto_parent = remap_refs(Entry.seal("info", {}, A, TS, [{"entry": C}]), together)
    assert list(onto_parent.draft.parents) == []


def test_a_header_names_its_base_and_the_session_it_came_from() -> None:
    """Its original stays, whatever is made of it."""
    members = {
        "type": "session",
        "format": "agentsession/0.14",
        "id": "s",
        "created_at": TS,
        "payload": "openresponses/2026-04-24",
        "parent_session": "p",
        "base": A,
        "redacted": True,
        "redacted_from": {"session": "o"},
    }
    header, unmapped = remap_header_refs(Header.parse(members), REMAP)
    assert header.members() == {**members, "parent_session": "new-p", "base": NEW_A}
    assert unmapped == []
    _, unmapped = remap_header_refs(Header.parse({**members, "parent_session": "strange", "base": C}), REMAP)
    assert unmapped == [Reference("/base", "", C), Reference("/parent_session", "strange", "")]
    with pytest.raises(NoPlace):
        remap_header_refs(Header.parse({**members, "base": D}), REMAP)
