"""Instruction parts through a rewrite: hashes made again, joins joined again, what no path has (format.md §7, §10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentsession_cas.core.context import settings_at
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.identity import hash_text
from agentsession_cas.core.jsonl import read_session
from agentsession_cas.core.memory import MemorySource
from agentsession_cas.core.rewriter import Rewriter, UnmetPart
from agentsession_cas.errors import InstructionsJoin
from tests.helpers.rewrites import given_to, rewritten, scrub

SESSIONS = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"
TS = "2026-01-01T00:00:00Z"
ID = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64

Json = dict[str, Any]


class File:
    """Entries of a file, each below the one before unless it says otherwise."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def config(self, parent: int | None = None, **body: Any) -> int:
        """A config entry; its position."""
        return self._add("config", body, parent)

    def fold(self, config: Json, parent: int | None = None) -> int:
        """A compaction with a checkpoint; its position."""
        return self._add("compaction", {"first_kept": ID, "summary": {}, "config": config}, parent)

    def _add(self, type_: str, body: Json, parent: int | None) -> int:
        above = len(self.entries) - 1 if parent is None else parent
        parent_id = self.entries[above].id if above >= 0 else ""
        self.entries.append(Entry.seal(type_, body, parent_id, TS))
        return len(self.entries) - 1

    def rewritten(self, rewrite: Any = scrub, left_out: tuple[int, ...] = ()) -> tuple[list[Json], list[UnmetPart]]:
        """The bodies rewritten, in file order, and the parts that their paths cannot rebuild."""
        rewriter = Rewriter(rewrite)
        bodies = []
        for position, entry in enumerate(self.entries):
            if position in left_out:
                rewriter.left_out(entry)
            else:
                bodies.append(rewriter.rewrite(entry).body)
        return bodies, rewriter.unmet


def part(id_: str, text: str, **more: Any) -> Json:
    """A part with its text."""
    return {"id": id_, "text": text, **more}


def test_a_part_whose_text_changed_has_its_hash_made_again() -> None:
    """One whose text stayed keeps what it was written with."""
    parts = [
        part("a", "secret", hash=hash_text("secret"), x={"secret": 1}),
        part("b", "t", hash=OTHER, source="secret"),
    ]
    assert rewritten("config", {"instructions_parts": parts}, scrub)["instructions_parts"] == [
        {"id": "a", "text": "***", "hash": hash_text("***"), "x": {"***": 1}},
        {"id": "b", "text": "t", "hash": OTHER, "source": "***"},
    ]


def test_instructions_that_are_the_parts_joined_are_joined_again() -> None:
    """They are not given whole, so a rewrite cannot cross from one part into the next."""
    parts = [part("a", "one se"), part("b", "cret two secret")]
    body = {"instructions": "one se\n\ncret two secret", "instructions_parts": parts}
    seen = given_to(Draft("config", body))
    assert body["instructions"] not in seen
    after = rewritten("config", body, lambda text: text.replace("se\n\ncret", "!").replace("secret", "***"))
    assert after["instructions"] == "one se\n\ncret two ***"
    checkpoint = {"first_kept": ID, "summary": {}, "config": body}
    assert rewritten("compaction", checkpoint, scrub)["config"]["instructions"] == "one se\n\ncret two ***"


def test_instructions_that_are_no_join_are_given_whole() -> None:
    """Alone, or beside parts they are not made of."""
    assert rewritten("config", {"instructions": "a secret"}, scrub) == {"instructions": "a ***"}
    odd = {
        "first_kept": ID,
        "summary": {},
        "config": {"instructions": "a secret", "instructions_parts": [part("a", "t")]},
    }
    assert rewritten("compaction", odd, scrub)["config"]["instructions"] == "a ***"
    assert rewritten("config", {"instructions": "secret", "instructions_parts": ["secret"]}, scrub) == {
        "instructions": "***",
        "instructions_parts": ["***"],
    }


@pytest.mark.parametrize("element", [{"id": "b", "hash": OTHER}, {"keep": 1}])
def test_instructions_beside_a_part_nobody_has_may_not_change(element: Json) -> None:
    """They could not be shown to be the parts joined any more."""
    body = {"instructions": "a secret", "instructions_parts": [part("a", "t"), element]}
    assert rewritten("config", body, lambda text: text) == body
    with pytest.raises(InstructionsJoin) as refused:
        rewritten("config", body, scrub)
    assert refused.value.where == "/instructions"


def named(id_: str, text: str, **more: Any) -> Json:
    """A part named by the hash of its text."""
    return {"id": id_, "hash": hash_text(text), **more}


def test_a_part_named_by_hash_follows_its_text() -> None:
    """In force, out of force on its path, and across an entry that changes nothing."""
    file = File()
    file.config(instructions_parts=[part("a", "secret a"), part("b", "b")])
    file.config(model="m")
    file.config(instructions_parts=[named("b", "b"), named("a", "secret a")])
    file.config(instructions_parts=[part("a", "other")])
    file.config(instructions_parts=[part("a", "third"), part("c", "c")])
    file.config(instructions_parts=[named("a", "secret a")])
    bodies, unmet = file.rewritten()
    assert bodies[2] == {"instructions_parts": [named("b", "b"), named("a", "*** a")]}
    assert bodies[5] == {"instructions_parts": [named("a", "*** a")]}
    assert unmet == []


def test_instructions_beside_named_parts_are_joined_as_the_path_resolves_them() -> None:
    """Keeps, hashes and texts, in the order the delta lists them."""
    file = File()
    file.config(instructions_parts=[part("a", "secret a"), part("b", "b secret"), part("c", "c")])
    whole = "c\n\nsecret a\n\nnew\n\nb secret"
    file.config(
        instructions=whole, instructions_parts=[named("c", "c"), named("a", "secret a"), part("n", "new"), {"keep": 1}]
    )
    bodies, unmet = file.rewritten()
    assert bodies[1]["instructions"] == "c\n\n*** a\n\nnew\n\nb ***"
    assert unmet == []


def test_every_branch_reads_its_own_path() -> None:
    """Branches interleaved in the file do not see each other's parts."""
    file = File()
    root = file.config(instructions_parts=[part("a", "secret")])
    left = file.config(parent=root, instructions_parts=[part("a", "left secret")])
    right = file.config(parent=root, instructions_parts=[part("a", "right")])
    file.config(parent=left, instructions="left secret", instructions_parts=[{"keep": 1}])
    file.config(parent=right, instructions="right\n\nsecret", instructions_parts=[{"keep": 1}, part("z", "secret")])
    file.config(parent=right, instructions_parts=[named("a", "left secret")])
    bodies, unmet = file.rewritten()
    assert bodies[3]["instructions"] == "left ***"
    assert bodies[4]["instructions"] == "right\n\n***"
    # The text was met, so the hash is of what it became; and yet no part of this path has it.
    assert bodies[5]["instructions_parts"] == [named("a", "left ***")]
    assert unmet == [UnmetPart(file.entries[5].id, "/instructions_parts/0/hash", "a")]


def test_what_the_path_cannot_rebuild_is_told_in_the_order_met() -> None:
    """A hash nobody met keeps the original's, for the redactor to write over; a keep names parts that are not there."""
    file = File()
    file.config(instructions_parts=[{"id": "x", "hash": OTHER}, {"keep": 2}, part("a", "t")])
    file.config(replace=True, instructions_parts=[named("a", "t")])
    file.fold({"instructions_parts": [named("a", "t"), {"keep": 1}, part("b", "t")]})
    bodies, unmet = file.rewritten()
    assert bodies[0]["instructions_parts"][0] == {"id": "x", "hash": OTHER}
    assert [(each.entry, each.at, each.id) for each in unmet] == [
        (file.entries[0].id, "/instructions_parts/0/hash", "x"),
        (file.entries[0].id, "/instructions_parts/1/keep", ""),
        (file.entries[1].id, "/instructions_parts/0/hash", "a"),
        (file.entries[2].id, "/config/instructions_parts/0/hash", "a"),
        (file.entries[2].id, "/config/instructions_parts/1/keep", ""),
    ]


def test_a_part_behind_an_unresolved_one_is_counted_right() -> None:
    """What a keep takes is as long as it says, what did not resolve is one part."""
    file = File()
    file.config(instructions_parts=[part("a", "1"), {"id": "x", "hash": OTHER}, part("b", "2"), part("c", "3")])
    file.config(instructions_parts=[{"keep": 2}, {"id": "y", "hash": OTHER}, {"keep": 2}, {"keep": 1}])
    _, unmet = file.rewritten()
    assert [each.at for each in unmet] == [
        "/instructions_parts/1/hash",
        "/instructions_parts/1/hash",
        "/instructions_parts/3/keep",
    ]


def test_entries_below_one_left_out_read_what_is_above_it() -> None:
    """As the redacted path does: what only the left-out entry put in force is not there."""
    file = File()
    file.config(instructions_parts=[part("a", "t")])
    file.config(instructions_parts=[{"keep": 1}, part("b", "secret")])
    file.config(model="m")
    file.config(instructions_parts=[named("a", "t"), named("b", "secret")])
    file.config(instructions_parts=[{"keep": 2}])
    bodies, unmet = file.rewritten(left_out=(1,))
    assert [each.at for each in unmet] == ["/instructions_parts/1/hash"]
    assert bodies[2]["instructions_parts"] == [named("a", "t"), named("b", "secret")]
    again, unmet = file.rewritten()
    assert unmet == []
    assert again[3]["instructions_parts"] == [named("a", "t"), named("b", "***")]


def test_left_out_behind_its_rewrite_counts_too() -> None:
    """A redactor may see what an entry becomes before it decides."""
    file = File()
    file.config(instructions_parts=[part("a", "secret")])
    file.config(instructions_parts=[named("a", "secret")])
    rewriter = Rewriter(scrub)
    rewriter.rewrite(file.entries[0])
    rewriter.left_out(file.entries[0])
    assert rewriter.rewrite(file.entries[1]).body == {"instructions_parts": [named("a", "***")]}
    assert [each.at for each in rewriter.unmet] == ["/instructions_parts/0/hash"]


@pytest.mark.parametrize("name", ["parts", "compaction", "omit", "basic"])
def test_a_reference_file_resolves_to_the_rewritten_parts(name: str) -> None:
    """At every entry, the settings of the rewritten file are the settings of the file, rewritten."""
    session = read_session((SESSIONS / f"{name}.jsonl").read_bytes())

    def louder(text: str) -> str:
        return text.replace("ff", "FF").replace("Be", "be")

    rewriter, copy = Rewriter(louder), MemorySource()
    for position, entry in enumerate(session):
        draft = rewriter.rewrite(entry)
        content = Entry.seal(entry.type, draft.body, entry.parent, TS).content
        stored = Entry.stored(entry.id, entry.type, entry.parent, entry.ts, entry.content_hash, content.__bytes__)
        copy.add(stored, session.source.parent(position))
    assert rewriter.unmet == []
    for position in range(len(copy)):
        before, after = settings_at(session.source, position), settings_at(copy, position)
        assert [part["text"] for part in after.instructions_parts] == [
            louder(part["text"]) for part in before.instructions_parts
        ]
        assert after.instructions == louder(before.instructions)
