"""Instruction parts and omitted lists: the tables of context.md §1.2 and §1.3 row by row, and the deltas."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.identity import hash_text
from agentsession_cas.core.instructions import is_unresolved
from agentsession_cas.core.settings import EMPTY, Replay, Settings, Unresolved, apply, from_checkpoint
from agentsession_cas.errors import BadEntry

Json = dict[str, Any]


def part(id_: str, text: str, source: str = "") -> Json:
    return {"id": id_, "text": text, "source": source} if source else {"id": id_, "text": text}


def named(id_: str, text: str, /, **members: Any) -> Json:
    return {"id": id_, "hash": hash_text(text), **members}


A, B, C, D = part("a", "A"), part("b", "B", "sb"), part("c", "C"), part("d", "D")
IN_FORCE = [A, B, C, D]


def with_parts(*parts: Json) -> Settings:
    return apply(EMPTY, "base", {"instructions_parts": list(parts)})


def resolved(delta: list[Json], *before: Json) -> list[Json]:
    return list(apply(with_parts(*(before or IN_FORCE)), "delta", {"instructions_parts": delta}).instructions_parts)


RESOLVE: dict[str, tuple[list[Json], list[Json]]] = {
    "keep all": ([{"keep": 4}], IN_FORCE),
    "keep in two": ([{"keep": 1}, {"keep": 3}], IN_FORCE),
    "keep some": ([{"keep": 2}], [A, B]),
    "keep past the end": ([{"keep": 5}], [{"keep": 5}]),
    "keep moves the cursor though it fails": ([{"keep": 3}, {"keep": 2}], [A, B, C, {"keep": 2}]),
    "a failed keep moves the cursor": (
        [{"keep": 2}, part("b", "b2"), {"keep": 2}],
        [{"keep": 2}, part("b", "b2"), C, D],
    ),
    "a failed keep moves past the end": ([{"keep": 9}, {"keep": 1}], [{"keep": 9}, {"keep": 1}]),
    "an id brings the cursor back": ([{"keep": 9}, named("a", "A"), {"keep": 1}], [{"keep": 9}, A, B]),
    "keep zero": ([{"keep": 0}, {"keep": 1}], [{"keep": 0}, A]),
    "keep negative": ([{"keep": -1}], [{"keep": -1}]),
    "keep fraction": ([{"keep": 1.5}], [{"keep": 1.5}]),
    "keep true": ([{"keep": True}], [{"keep": True}]),
    "keep text": ([{"keep": "1"}], [{"keep": "1"}]),
    "keep takes a part named elsewhere": ([{"keep": 2}, part("b", "new")], [{"keep": 2}, part("b", "new")]),
    "neither id nor keep": ([{"text": "x"}, {"keep": 1}], [{"text": "x"}, A]),
    "empty id": ([{"id": "", "text": "x"}], [{"id": "", "text": "x"}]),
    "id in force moves the cursor": ([part("b", "new"), {"keep": 2}], [part("b", "new"), C, D]),
    "new id leaves the cursor": ([part("n", "N"), {"keep": 2}], [part("n", "N"), A, B]),
    "text, no source": ([part("b", "new")], [part("b", "new")]),
    "text with source": ([part("b", "new", "s2")], [part("b", "new", "s2")]),
    "text beside hash": ([named("b", "B", text="T")], [part("b", "T")]),
    "empty text beside hash": ([named("b", "B", text="")], [part("b", "")]),
    "hash of the part in force": ([named("b", "B")], [B]),
    "hash with a source": ([named("b", "B", source="s2")], [part("b", "B", "s2")]),
    "hash unknown": ([named("b", "x")], [named("b", "x")]),
    "hash of a new id": ([named("n", "N")], [named("n", "N")]),
    "hash of another form": ([{"id": "b", "hash": 5}], [part("b", "")]),
    "id alone": ([{"id": "b"}], [part("b", "")]),
    "id alone, source": ([{"id": "b", "source": "s"}], [part("b", "", "s")]),
    "keep beside an id": ([{"id": "b", "text": "T", "keep": 3}, {"keep": 1}], [part("b", "T"), C]),
    "text of another form": ([{"id": "b", "text": 5}], [part("b", "")]),
    "reordered": ([named("c", "C"), named("a", "A"), {"keep": 1}], [C, A, B]),
}


@pytest.mark.parametrize(("delta", "after"), RESOLVE.values(), ids=RESOLVE)
def test_resolving_parts(delta: list[Json], after: list[Json]) -> None:
    assert resolved(delta) == after


def test_an_id_in_force_twice_means_its_first_part() -> None:
    assert resolved([part("a", "new"), {"keep": 1}], A, B, part("a", "A2"), C) == [part("a", "new"), B]
    assert resolved([named("a", "A2")], A, B, part("a", "A2")) == [named("a", "A2")]
    twice = with_omitted([OA, OB, OA, OC])
    after = apply(twice, "x", {"instructions_omitted": [OA, {"keep": 1}]})
    assert after.instructions_omitted == (OA, OB)


def test_instructions_are_the_texts_joined() -> None:
    assert with_parts(*IN_FORCE).instructions == "A\n\nB\n\nC\n\nD"
    assert apply(with_parts(*IN_FORCE), "x", {"instructions_parts": [{"keep": 1}]}).instructions == "A"


INSTRUCTIONS: dict[str, tuple[Json, str, list[Json]]] = {
    "parts beside a string that joins": ({"instructions_parts": [A], "instructions": "A"}, "A", [A]),
    "parts resolved beside another string": ({"instructions_parts": [A], "instructions": "other"}, "A", [A]),
    "unresolved, no string": ({"instructions_parts": [A, {"keep": 9}]}, "A\n\n", [A, {"keep": 9}]),
    "unresolved, a string": ({"instructions_parts": [{"keep": 9}], "instructions": "all"}, "all", [{"keep": 9}]),
    "unresolved, empty string": ({"instructions_parts": [{"keep": 9}], "instructions": ""}, "", [{"keep": 9}]),
    "string alone": ({"instructions": "all"}, "all", []),
    "empty string alone": ({"instructions": ""}, "", []),
    "empty parts and a string": ({"instructions_parts": [], "instructions": "all"}, "all", []),
    "empty parts": ({"instructions_parts": []}, "A\n\nB\n\nC\n\nD", IN_FORCE),
    "null": ({"instructions_parts": None, "instructions": None}, "A\n\nB\n\nC\n\nD", IN_FORCE),
    "parts of another form": ({"instructions_parts": ["a"]}, "A\n\nB\n\nC\n\nD", IN_FORCE),
    "neither": ({"model": "m"}, "A\n\nB\n\nC\n\nD", IN_FORCE),
}


@pytest.mark.parametrize(("delta", "instructions", "parts"), INSTRUCTIONS.values(), ids=INSTRUCTIONS)
def test_instructions_table(delta: Json, instructions: str, parts: list[Json]) -> None:
    after = apply(with_parts(*IN_FORCE), "delta", delta)
    assert after.instructions == instructions
    assert list(after.instructions_parts) == parts


def test_an_unresolved_part_stays_unresolved_when_kept() -> None:
    before = apply(with_parts(A), "1", {"instructions_parts": [{"keep": 1}, named("b", "unknown")]})
    kept = apply(before, "2", {"instructions_parts": [{"keep": 2}], "instructions": "beside"})
    assert kept.instructions_parts == before.instructions_parts
    assert kept.instructions == "beside"
    replay = Replay(before)
    assert replay.config("2", {"instructions_parts": [{"keep": 2}]}) is Unresolved.NONE


def test_what_a_delta_cannot_resolve_is_said() -> None:
    assert Replay(with_parts(A)).config("x", {"instructions_parts": [{"keep": 2}]}) is Unresolved.PART
    assert Replay(with_parts(A)).config("x", {"instructions_parts": [named("n", "N"), A]}) is Unresolved.PART
    assert Replay(with_parts(A)).config("x", {"instructions_parts": [{"keep": 1}]}) is Unresolved.NONE
    assert Replay(with_parts(A)).config("x", {"instructions_parts": [named("a", "x")]}) is Unresolved.PART
    assert Replay(with_parts(A)).config("x", {"instructions_parts": [named("a", "A")]}) is Unresolved.NONE


class TestHistory:
    """A hash may name a text that left force since the last replace or checkpoint."""

    def test_a_removed_part(self) -> None:
        after = apply(with_parts(A, B), "1", {"instructions_parts": [{"keep": 1}]})
        assert apply(after, "2", {"instructions_parts": [named("b", "B")]}).instructions_parts == (B,)

    def test_a_changed_part(self) -> None:
        after = apply(with_parts(B), "1", {"instructions_parts": [part("b", "B2")]})
        assert apply(after, "2", {"instructions_parts": [named("b", "B")]}).instructions_parts == (B,)

    def test_parts_a_string_replaced(self) -> None:
        after = apply(with_parts(A, B), "1", {"instructions": "all"})
        assert apply(after, "2", {"instructions_parts": [named("b", "B")]}).instructions_parts == (B,)

    def test_the_most_recent_source(self) -> None:
        after = with_parts(part("a", "A", "s1"))
        for id_, source in (("1", "s2"), ("2", "")):
            after = apply(after, id_, {"instructions_parts": [part("a", "A", source)]})
        after = apply(after, "3", {"instructions": "all"})
        assert apply(after, "4", {"instructions_parts": [named("a", "A")]}).instructions_parts == (A,)
        with_source = apply(after, "4", {"instructions_parts": [named("a", "A", source="s1")]})
        assert with_source.instructions_parts == (part("a", "A", "s1"),)

    def test_of_the_same_id_only(self) -> None:
        after = apply(with_parts(A), "1", {"instructions": "all"})
        other = apply(after, "2", {"instructions_parts": [named("b", "A")]})
        assert is_unresolved(other.instructions_parts[0])

    def test_a_replace_forgets(self) -> None:
        after = apply(with_parts(A), "1", {"replace": True, "instructions_parts": [named("a", "A")]})
        assert after.instructions_parts == (named("a", "A"),)
        again = apply(apply(with_parts(A), "1", {"replace": True}), "2", {"instructions_parts": [named("a", "A")]})
        assert is_unresolved(again.instructions_parts[0])

    def test_a_checkpoint_forgets(self) -> None:
        before = apply(with_parts(A), "1", {"instructions": "all"})
        after = from_checkpoint(before.checkpoint())
        assert is_unresolved(apply(after, "2", {"instructions_parts": [named("a", "A")]}).instructions_parts[0])

    def test_an_unresolved_part_in_force_hides_it(self) -> None:
        before = apply(with_parts(A), "1", {"instructions_parts": [named("a", "unknown")]})
        assert is_unresolved(apply(before, "2", {"instructions_parts": [named("a", "A")]}).instructions_parts[0])

    def test_a_part_kept_with_its_text_and_source_is_not_in_it(self) -> None:
        before = apply(with_parts(A, B), "1", {"instructions_parts": [{"keep": 2}]})
        assert before._texts == {}


class TestInstructionsDelta:
    """The smallest honest delta, and that a reader resolves it to what was meant."""

    def test_nothing_moved(self) -> None:
        assert with_parts(*IN_FORCE).instructions_delta(IN_FORCE) is None
        assert EMPTY.instructions_delta([]) is None

    @pytest.mark.parametrize(
        ("want", "delta"),
        [
            ([A, B, C], [{"keep": 3}]),
            ([A, C, D], [{"keep": 1}, named("c", "C"), {"keep": 1}]),
            ([A, part("b", "B2"), C, D], [{"keep": 1}, part("b", "B2"), {"keep": 2}]),
            ([A, part("b", "B", "s2"), C, D], [{"keep": 1}, part("b", "B", "s2"), {"keep": 2}]),
            ([A, part("b", "B"), C, D], [{"keep": 1}, part("b", "B"), {"keep": 2}]),
            ([D, A, B, C], [named("d", "D"), named("a", "A"), {"keep": 2}]),
            ([part("n", "N"), *IN_FORCE], [part("n", "N"), {"keep": 4}]),
            ([A, part("n", "N"), B, C, D], [{"keep": 1}, part("n", "N"), {"keep": 3}]),
            ([A, B, part("n", "N"), part("m", "M"), D], [{"keep": 2}, part("n", "N"), part("m", "M"), named("d", "D")]),
            ([*IN_FORCE, part("n", "N")], [{"keep": 4}, part("n", "N")]),
            ([{"id": "n"}, A], [part("n", ""), {"keep": 1}]),
        ],
    )
    def test_shape(self, want: list[Json], delta: list[Json]) -> None:
        assert with_parts(*IN_FORCE).instructions_delta(want) == {"instructions_parts": delta}

    def test_empty_over_something(self) -> None:
        assert with_parts(A).instructions_delta([]) == {"instructions": ""}
        assert Settings(instructions="all").instructions_delta([]) == {"instructions": ""}
        empty = with_parts(part("a", ""))
        assert empty.instructions == ""
        assert empty.instructions_delta([]) == {"instructions": ""}
        assert apply(empty, "x", {"instructions": ""}).instructions_parts == ()

    def test_what_left_force_is_named_by_its_hash(self) -> None:
        after = apply(with_parts(A, B), "1", {"instructions_parts": [part("a", "A2")]})
        assert after.instructions_delta([A, B]) == {"instructions_parts": [named("a", "A"), named("b", "B")]}
        assert after.instructions_delta([part("b", "B")]) == {"instructions_parts": [part("b", "B")]}

    def test_an_unresolved_part_carries_its_text(self) -> None:
        before = apply(with_parts(A, B), "1", {"instructions_parts": [named("a", "x"), named("b", "B")]})
        assert before.instructions_delta([A, B]) == {"instructions_parts": [A, {"keep": 1}]}

    def test_an_earlier_source_is_written_beside_the_hash(self) -> None:
        after = with_parts(part("a", "A", "s1"))
        after = apply(after, "1", {"instructions_parts": [part("a", "A", "s2")]})
        after = apply(after, "2", {"instructions": "all"})
        assert after.instructions_delta([part("a", "A", "s2")]) == {"instructions_parts": [named("a", "A")]}
        want = [part("a", "A", "s1")]
        delta = after.instructions_delta(want)
        assert delta == {"instructions_parts": [named("a", "A", source="s1")]}
        assert list(apply(after, "3", delta).instructions_parts) == want

    def test_no_source_cannot_be_written_beside_a_hash(self) -> None:
        after = with_parts(part("a", "A"))
        after = apply(after, "1", {"instructions_parts": [part("a", "A", "s2")]})
        after = apply(after, "2", {"instructions": "all"})
        delta = after.instructions_delta([part("a", "A")])
        assert delta == {"instructions_parts": [part("a", "A")]}
        assert list(apply(after, "3", delta).instructions_parts) == [part("a", "A")]

    def test_one_part_in_five_hundred_costs_its_text(self) -> None:
        parts = [part(f"memory-{n}", f"fact {n} " * 20, "memory") for n in range(500)]
        parts[250] = part("memory-250", "corrected", "memory")
        before = with_parts(*(p if n != 250 else part("memory-250", "old", "memory") for n, p in enumerate(parts)))
        delta = before.instructions_delta(parts)
        assert delta is not None
        assert len(canonical(delta)) < 200 + len("corrected")

    @pytest.mark.parametrize("want", [[{"text": "x"}], [A, A], [{"keep": 1}], [named("a", "A")]])
    def test_refuses_what_no_reader_could_resolve(self, want: list[Json]) -> None:
        with pytest.raises(BadEntry):
            with_parts(A).instructions_delta(want)


parts_lists = st.lists(
    st.builds(part, st.sampled_from("abcd"), st.sampled_from(["", "X", "Y"]), st.sampled_from(["", "s", "t"])),
    unique_by=lambda p: p["id"],
    max_size=4,
)
raw_elements = st.one_of(
    st.builds(lambda n: {"keep": n}, st.integers(0, 5)),
    st.builds(part, st.sampled_from("abcd"), st.sampled_from(["", "X", "Y"]), st.sampled_from(["", "s"])),
    st.builds(named, st.sampled_from("abcd"), st.sampled_from(["", "X", "Y", "unknown"])),
    st.builds(lambda id_: {"id": id_}, st.sampled_from("abcd")),
)
deltas = st.one_of(
    st.builds(lambda e: {"instructions_parts": e}, st.lists(raw_elements, max_size=5)),
    st.builds(lambda e, s: {"instructions_parts": e, "instructions": s}, st.lists(raw_elements), st.just("beside")),
    st.just({"instructions": "all"}),
    st.just({"replace": True}),
)


@given(st.lists(deltas, max_size=5), st.lists(parts_lists, min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
def test_a_delta_gives_what_was_wanted(before: list[Json], wants: list[list[Json]]) -> None:
    state = EMPTY
    for n, delta in enumerate(before):
        state = apply(state, f"before-{n}", delta)
    for n, want in enumerate(wants):
        wanted = state.instructions_delta(want)
        if wanted is None:
            assert list(state.instructions_parts) == want
            continue
        state = apply(state, f"want-{n}", wanted)
        assert list(state.instructions_parts) == want
        assert state.instructions == "\n\n".join(p["text"] for p in want)


def omitted(id_: str, **members: Any) -> Json:
    return {"id": id_, "reason": "budget", **members}


OA, OB, OC = omitted("a"), omitted("b", size=3), omitted("c", acme=1)


def with_omitted(*lists: list[Json]) -> Settings:
    state = EMPTY
    for n, elements in enumerate(lists, 1):
        state = apply(state, f"list-{n}", {"instructions_omitted": elements})
    return state


OMITTED: dict[str, tuple[list[Json], list[Json]]] = {
    "whole": ([OC, OA], [OC, OA]),
    "clears": ([], []),
    "keep": ([{"keep": 2}], [OA, OB]),
    "keep past the end": ([{"keep": 4}, {"keep": 1}], [{"keep": 4}, {"keep": 1}]),
    "an id carries everything": ([{"id": "b"}, {"keep": 1}], [{"id": "b"}, OC]),
    "keep beside an id": ([{"id": "b", "keep": 9, "of": "x"}, {"keep": 1}], [{"id": "b", "keep": 9, "of": "x"}, OC]),
    "hash is no form": ([{"id": "b", "hash": hash_text("x")}], [{"id": "b", "hash": hash_text("x")}]),
    "neither": ([{"reason": "x"}, {"keep": 1}], [{"reason": "x"}, OA]),
    "keep takes what is named": ([{"keep": 1}, OA], [{"keep": 1}, OA]),
    "unknown of": ([{"keep": 1, "of": "nobody"}, {"keep": 1}], [{"keep": 1, "of": "nobody"}, OA]),
    "of the list in force": ([{"keep": 1, "of": "list-2"}, {"keep": 1}], [OA, OA]),
    "of an earlier list": ([{"keep": 2, "of": "list-1"}], [omitted("x"), OB]),
    "cursors of their own": ([{"keep": 1}, {"keep": 1, "of": "list-1"}, {"keep": 1}], [OA, omitted("x"), OB]),
    "an id moves every cursor": ([OB, {"keep": 1, "of": "list-1"}, {"keep": 1}], [OB, omitted("z"), OC]),
    "an id moves a list named later": ([omitted("x"), {"keep": 1, "of": "list-1"}], [omitted("x"), OB]),
    "of past the end": ([{"keep": 4, "of": "list-1"}, OA], [{"keep": 4, "of": "list-1"}, OA]),
    "of not a string": ([{"keep": 1, "of": 5}], [OA]),
    "of without a keep": ([{"of": "list-1"}, {"keep": 1}], [{"of": "list-1"}, OA]),
}


@pytest.mark.parametrize(("delta", "after"), OMITTED.values(), ids=OMITTED)
def test_resolving_omitted_lists(delta: list[Json], after: list[Json]) -> None:
    before = with_omitted([omitted("x"), OB, omitted("z")], [OA, OB, OC])
    assert list(apply(before, "delta", {"instructions_omitted": delta}).instructions_omitted) == after


def test_omitted_list_stays_until_written() -> None:
    before = with_omitted([OA])
    for delta in ({"model": "m"}, {"instructions_omitted": None}, {"instructions_omitted": "x"}, {"instructions": "i"}):
        assert apply(before, "x", delta).instructions_omitted == (OA,)
    assert apply(before, "x", {"replace": True}).instructions_omitted == ()
    replaced = apply(before, "x", {"replace": True, "instructions_omitted": [{"keep": 1}]})
    assert replaced.instructions_omitted == ({"keep": 1},)


def test_an_unresolved_omitted_element_may_be_kept_later() -> None:
    before = apply(with_omitted([OA]), "1", {"instructions_omitted": [{"keep": 1}, {"keep": 5}]})
    assert before.instructions_omitted == (OA, {"keep": 5})
    assert apply(before, "2", {"instructions_omitted": [{"keep": 2}]}).instructions_omitted == (OA, {"keep": 5})


def test_of_counts_over_the_resolved_list() -> None:
    before = with_omitted([OA, OB], [{"keep": 2}, OC], [])
    assert apply(before, "x", {"instructions_omitted": [{"keep": 3, "of": "list-2"}]}).instructions_omitted == (
        OA,
        OB,
        OC,
    )


def test_of_ends_at_a_replace_and_a_checkpoint() -> None:
    element = {"keep": 1, "of": "list-1"}
    for state in (apply(with_omitted([OA]), "r", {"replace": True}), from_checkpoint(with_omitted([OA]).checkpoint())):
        replay = Replay(state)
        assert replay.config("x", {"instructions_omitted": [element]}) is Unresolved.OF
        assert replay.settings().instructions_omitted == (element,)


def test_a_bad_of_is_said_and_a_bad_keep_is_not() -> None:
    for elements, said in (
        ([{"keep": 1, "of": "nobody"}], Unresolved.OF),
        ([{"keep": 9, "of": "list-1"}], Unresolved.OF),
        ([{"keep": 1, "of": "list-1"}, OA], Unresolved.OF),
        ([{"keep": 9}], Unresolved.NONE),
        ([{"keep": 1, "of": "list-1"}], Unresolved.NONE),
        ([{"of": "nobody"}, {"keep": 0, "of": "nobody"}], Unresolved.NONE),
        ([{"keep": 1, "of": "nobody"}, {"keep": 1}], Unresolved.OF),
    ):
        assert Replay(with_omitted([OA])).config("x", {"instructions_omitted": elements}) is said


class TestOmittedDelta:
    """The shortest of the whole list, keeps, and keeps over an earlier list."""

    LONG: ClassVar = [omitted(f"part-{n}", source="memory", size=100 + n) for n in range(20)]

    def test_nothing_moved(self) -> None:
        assert with_omitted(self.LONG).omitted_delta(self.LONG) is None
        assert EMPTY.omitted_delta([]) is None

    def test_clear(self) -> None:
        assert with_omitted([OA]).omitted_delta([]) == []

    def test_keeps(self) -> None:
        want = [*self.LONG[:7], omitted("new"), *self.LONG[8:]]
        assert with_omitted(self.LONG).omitted_delta(want) == [
            {"keep": 7},
            omitted("new"),
            self.LONG[8],
            {"keep": 11},
        ]

    @pytest.mark.parametrize(
        ("want", "delta"),
        [
            (LONG[:5], [{"keep": 5}]),
            ([*LONG, omitted("new")], [{"keep": 20}, omitted("new")]),
            ([*LONG[:4], omitted("new"), *LONG[4:]], [{"keep": 4}, omitted("new"), {"keep": 16}]),
            (LONG[3:], [LONG[3], {"keep": 16}]),
        ],
    )
    def test_runs_of_what_stays_are_counted(self, want: list[Json], delta: list[Json]) -> None:
        before = with_omitted(self.LONG)
        assert before.omitted_delta(want) == delta
        assert list(apply(before, "x", {"instructions_omitted": delta}).instructions_omitted) == want

    def test_a_hand_back_is_one_element(self) -> None:
        other = [omitted(f"other-{n}") for n in range(20)]
        assert with_omitted(self.LONG, other).omitted_delta(self.LONG) == [{"keep": 20, "of": "list-1"}]

    def test_sixteen_lists_back(self) -> None:
        others = [[omitted(f"other-{n}-{k}") for k in range(5)] for n in range(17)]
        assert with_omitted(self.LONG, *others[:16]).omitted_delta(self.LONG) == [{"keep": 20, "of": "list-1"}]
        assert with_omitted(self.LONG, *others).omitted_delta(self.LONG) == self.LONG

    def test_the_newest_of_equals(self) -> None:
        state = with_omitted(self.LONG, [OA], self.LONG, [OB])
        assert state.omitted_delta(self.LONG) == [{"keep": 20, "of": "list-3"}]

    def test_whole_when_shorter_or_not_to_be_counted(self) -> None:
        tiny = [{"id": "a"}, {"id": "b"}]
        assert with_omitted(tiny).omitted_delta([{"id": "b"}]) == [{"id": "b"}]
        twice = [*self.LONG, self.LONG[0]]
        assert with_omitted(self.LONG).omitted_delta(twice) == twice
        nameless = [*self.LONG, {"reason": "x"}]
        assert with_omitted(self.LONG).omitted_delta(nameless) == nameless
        assert with_omitted(twice).omitted_delta(self.LONG[:10]) == self.LONG[:10]

    def test_equality_is_of_json_values(self) -> None:
        assert with_omitted([omitted("a", size=1)]).omitted_delta([omitted("a", size=True)]) is not None


omitted_elements = st.builds(
    lambda id_, reason: {"id": id_, "reason": reason},
    st.sampled_from("abcdef"),
    st.sampled_from(["over the budget", ""]),
)


@given(st.lists(st.lists(omitted_elements, max_size=6, unique_by=lambda e: e["id"]), min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_an_omitted_delta_gives_what_was_wanted(wants: list[list[Json]]) -> None:
    state = EMPTY
    for n, want in enumerate(wants):
        delta = state.omitted_delta(want)
        if delta is not None:
            replay = Replay(state)
            assert replay.config(f"list-{n}", {"instructions_omitted": delta}) is Unresolved.NONE
            state = replay.settings()
            assert len(canonical(delta)) <= len(canonical(want))
        assert list(state.instructions_omitted) == want
