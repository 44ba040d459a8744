"""Names of refs: what is allowed, what may stand side by side, and file names that lead back (store.md A6)."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.refnames import (
    check_beside,
    check_ref_name,
    check_ref_prefix,
    near,
    ref_file,
    ref_of_file,
)
from agentsession_cas.errors import BadInput, RefName

ALLOWED = (
    "a",
    "agents/main",
    "A.b-c_9/..d/.e/f..g",
    "x" * 200,
    "con1",
    "com0",
    "com10",
    "lpt",
    "cons/nulls",
    "a.con",
    "...a",
)
REFUSED = (
    "",
    "/",
    "a/",
    "/a",
    "a//b",
    ".",
    "..",
    "a/./b",
    "a/../b",
    "a.",
    "a./b",
    "x...",
    "con",
    "NUL",
    "a/Aux",
    "prn.txt",
    "a/COM1.tar.gz/b",
    "lpt9",
    "a b",
    "a\n",
    "a\0",
    "é",
    "a\\b",
    "a:b",
    "a+b",
    "a^b",
    "@",
    "\udc00",
    "x" * 201,
    "a/" * 100 + "b",
)


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(name: str) -> None:
    assert check_ref_name(name) == name
    assert ref_of_file(ref_file(name)) == name


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(RefName):
        check_ref_name(name)


@pytest.mark.parametrize("name", [None, 5, b"a", ["a"]])
def test_what_is_no_text(name: object) -> None:
    with pytest.raises(BadInput, match="is a str"):
        check_ref_name(name)


@pytest.mark.parametrize("prefix", ["", "a", "agents/", "agents/m", "con", "a/.", "a/..", "a.", "."])
def test_how_a_name_may_begin(prefix: str) -> None:
    assert check_ref_prefix(prefix) == prefix
    assert check_ref_name(f"{prefix}x")


@pytest.mark.parametrize("prefix", ["/", "a//", "con/", "a./b", "a b", "x" * 201])
def test_how_none_begins(prefix: str) -> None:
    with pytest.raises(RefName):
        check_ref_prefix(prefix)


# --- side by side ----------------------------------------------------------------------------------------------------

SEGMENT = st.sampled_from(["a", "A", "b", "B", "ab", "aB", "Ab"])
NAME = st.lists(SEGMENT, min_size=1, max_size=4).map("/".join)


def clash(one: str, other: str) -> bool:
    """The rule as the text has it: no ref under a ref, no two prefixes that differ in case alone."""
    if one == other:
        return False
    if one.startswith(other + "/") or other.startswith(one + "/"):
        return True
    first, second = one.split("/"), other.split("/")
    for count in range(1, min(len(first), len(second)) + 1):
        mine, theirs = first[:count], second[:count]
        if mine != theirs and [each.lower() for each in mine] == [each.lower() for each in theirs]:
            return True
    return False


@given(NAME, st.lists(NAME, max_size=5))
@settings(max_examples=500, deadline=None)
def test_what_may_stand_side_by_side(name: str, others: list[str]) -> None:
    wrong = any(clash(name, other) for other in others)
    assert {other for other in others if clash(name, other)} <= set(near(name, map(ref_file, others)))
    try:
        check_beside(name, others)
    except RefName:
        assert wrong
    else:
        assert not wrong


def test_few_of_many_names_are_looked_at() -> None:
    files = [ref_file(f"support/{number}") for number in range(10_000)]
    assert list(near("support/new", files)) == []
    assert list(near("support/7/new", files)) == ["support/7"]
    assert list(near("support", files)) == [f"support/{number}" for number in range(10_000)]


# --- file names ------------------------------------------------------------------------------------------------------


@given(st.text("aAbBzZ09._-/", min_size=1, max_size=200))
@settings(max_examples=500, deadline=None)
def test_a_file_name_leads_back(name: str) -> None:
    try:
        check_ref_name(name)
    except RefName:
        return
    file = ref_file(name)
    assert ref_of_file(file) == name
    assert len(file.encode()) <= 251
    assert file == file.lower()
    assert "/" not in file
    assert file not in (".", "..")


def test_no_two_names_share_a_file_where_case_does_not_count() -> None:
    names = ["a", "A", "a/b", "A/b", "a/B", "a.b", "a-b", "ab", "aB", "AB"]
    for one, other in combinations(names, 2):
        assert ref_file(one).casefold() != ref_file(other).casefold()


@given(st.text(max_size=40) | st.text("aA+^.0123456789abcdef_-", max_size=20))
@settings(max_examples=500, deadline=None)
def test_any_other_file_is_no_ref(file: str) -> None:
    name = ref_of_file(file)
    assert name == "" or ref_file(name) == file


@pytest.mark.parametrize("file", ["", "A", "a/b", "a^", "a^0", "a^-1", "a^4", "a^0_1", "a^01", "a+", "con", "a.tmp."])
def test_files_that_are_none(file: str) -> None:
    assert ref_of_file(file) == ""
