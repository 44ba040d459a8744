"""A whole session redacted in memory (format.md §10): the same tree, ids of its own, every request proven again."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.header import Header, new_header
from agentsession_cas.core.identity import hash_text, redacted_session_id
from agentsession_cas.core.jsonl import projection_lines, read_session
from agentsession_cas.core.memory import MemorySource
from agentsession_cas.core.redaction import Redacted, redact_session
from agentsession_cas.core.request import request_hash
from agentsession_cas.core.spans import Span, redacted_of
from agentsession_cas.core.tree import Session
from agentsession_cas.core.verify import verify
from agentsession_cas.errors import BadInput, CallIDRepeated, NoEntry, NotRedacted
from tests.helpers.legal import forked, grown, ticking_store
from tests.helpers.rewrites import scrub
from tests.helpers.tape import Tape

SESSIONS = Path(__file__).parents[2] / "fixtures" / "reference" / "sessions"
SOUND = ("basic", "branch", "fork", "compaction", "runs", "normalised", "parts", "omit")
PROFILE = "public@1"
NOWHERE = "sha256:" + "0" * 64

Json = dict[str, Any]


def same(text: str) -> str:
    """Change nothing."""
    return text


def shout(text: str) -> str:
    """Change some word of nearly every text, and no word of the format's."""
    for word in ("words-", "answer-", "output of", "part ", "sum-", "gpt", "hello", "Be ", "fact", "What"):
        text = text.replace(word, word.upper())
    return text


def session_of(redacted: Redacted) -> Session:
    """The redacted session, read back from its own lines."""
    made = Session(redacted.header, redacted.source, leaf=redacted.leaf)
    return read_session(b"\n".join(projection_lines(made)))


def taped(tape: Tape) -> Session:
    """A taped session."""
    return Session(tape.header, tape.source, leaf=tape.id(tape.at))


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """A value with strings that are names replaced, at any depth."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [renamed(each, names) for each in value]
    return {name: renamed(each, names) for name, each in value.items()} if isinstance(value, dict) else value


def check_is_copy(original: Session, redacted: Redacted) -> None:
    """The copy is the original but for ids, members naming entries and sessions, and ``redacted``."""
    names = {entry.id: old for old, entry in redacted.made.items()}
    assert len(names) == len(original)
    said = {each for entry in original for each in (entry.body.get("session"), entry.call_id) if isinstance(each, str)}
    names |= {redacted_session_id(each, PROFILE): each for each in said | {original.id} if each}
    copy = redacted.source
    for position, entry in enumerate(original):
        made = copy.entry(position)
        assert (made.type, made.ts) == (entry.type, entry.ts)
        assert copy.parent(position) == original.source.parent(position)
        assert redacted_of(made) == [Span(position + 1, position + 1)]
        body = {name: value for name, value in made.body.items() if name != "redacted"}
        assert renamed(body, names) == entry.body
        own = [each for each in entry.parents if each.get("session") in (None, original.id)]
        assert renamed(made.parents, names) == own
    assert names.get(redacted.leaf, "") == original.leaf
    assert copy.base_count == original.source.base_count


# --- the same tree ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOUND)
def test_a_reference_file_comes_through_whole(name: str) -> None:
    """Every response the original proves, the copy proves by the same hash."""
    original = read_session((SESSIONS / f"{name}.jsonl").read_bytes())
    redacted = redact_session(original, PROFILE, same)
    check_is_copy(original, redacted)
    copy = session_of(redacted)
    assert verify(copy)["ok"]
    assert verify(copy)["responses"] == verify(original)["responses"]
    assert copy.leaf == redacted.leaf


@pytest.mark.parametrize("name", SOUND)
def test_a_rewritten_file_verifies(name: str) -> None:
    """With hashes of its own."""
    original = read_session((SESSIONS / f"{name}.jsonl").read_bytes())
    copy = session_of(redact_session(original, PROFILE, shout))
    assert verify(copy)["ok"]
    assert verify(copy)["responses"] == verify(original)["responses"]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(5, 60), st.booleans())
def test_a_legal_session_redacted_with_the_identity_is_itself(seed: int, steps: int, promised: bool) -> None:
    """Whatever a harness writes: branches, runs, calls, omits, parts, folds, links."""
    rng = random.Random(seed)
    with (
        ticking_store() as store,
        grown(store, [rng.randrange(2**32) for _ in range(steps)], promised=promised).session as held,
    ):
        redacted = redact_session(held, PROFILE, same)
        check_is_copy(held, redacted)
        report, copied = verify(held), verify(session_of(redacted))
        assert (copied["ok"], copied["responses"]) == (report["ok"], report["responses"])


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.integers(5, 60), st.integers(0, 100))
def test_a_rewritten_legal_session_verifies_and_grows(seed: int, steps: int, cut: int) -> None:
    """Every request is proven again, and what was made of the first entries stays as the original grows."""
    rng = random.Random(seed)
    with ticking_store() as store, grown(store, [rng.randrange(2**32) for _ in range(steps)]).session as held:
        redacted = redact_session(held, PROFILE, shout)
        copied = verify(session_of(redacted))
        assert copied["ok"]
        assert copied["responses"] == verify(held)["responses"]
        earlier = MemorySource()
        for entry in list(held)[:cut]:
            earlier.add(entry, earlier.find(entry.parent) if entry.parent else -1)
        before = redact_session(Session(held.header, earlier), PROFILE, shout)
        assert [entry.id for entry in before.source] == [entry.id for entry in redacted.source][:cut]


def test_a_fork_and_its_origin_give_their_shared_prefix_the_same_bytes() -> None:
    """Handed what its origin's prefix became, a fork continues from it; its own entries count in its own file."""
    rng = random.Random(7)
    with ticking_store() as store:
        above = grown(store, [rng.randrange(2**32) for _ in range(40)])
        base = above.here.entries[len(above.here.entries) // 2]
        below = forked(store, above, base, [rng.randrange(2**32) for _ in range(20)])
        with above.session as origin, below.session as fork:
            first = redact_session(origin, PROFILE, shout)
            second = redact_session(fork, PROFILE, shout, prefix=first.made)
            count = fork.source.base_count
            assert [each.id for each in second.source][:count] == [
                first.made[fork.source.entry_id(at)].id for at in range(count)
            ]
            assert second.header.base == first.made[base].id
            assert second.header.parent_session == first.header.id
            assert redacted_of(second.source.entry(count)) == [Span(count + 1, count + 1)]
            assert verify(session_of(second))["ok"]
            alone = redact_session(fork, PROFILE, shout)
            assert verify(session_of(alone))["ok"]


def test_a_long_chain_is_no_recursion() -> None:
    """And a wide one: every entry below the first."""
    tape = Tape()
    tape.user("secret")
    for _ in range(3000):
        tape.add("info", {"name": "secret"})
    for _ in range(1000):
        tape.branch(0)
        tape.add("info", {"name": "n"})
    redacted = redact_session(taped(tape), PROFILE, scrub)
    assert len(redacted.source) == len(tape.source)
    assert redacted.source.entry(2).body["name"] == "***"


# --- the header, sessions and calls ----------------------------------------------------------------------------------


def test_the_header_of_a_redacted_session() -> None:
    """Its id is derived, its format this package's; what the original was made of is rewritten, not the rest."""
    members = {
        "type": "session", "format": "agentsession/0.12", "id": "01995b2a-0000-7000-8000-000000000001",
        "created_at": "2026-01-01T00:00:00Z", "payload": "openresponses/2026-04-24", "records": ["run"],
        "cwd": "/secret", "parent_session": "p", "spawned_by": "secret-1", "media": "sidecar", "acme:x": {"secret": 1},
        "redacted_from": "an early member",
    }  # fmt: skip
    redacted = redact_session(Session(Header.parse(members)), PROFILE, scrub)
    assert redacted.header.members() == {
        **members,
        "format": "agentsession/0.14",
        "id": "beeb8b34-10d8-5b7f-9cad-f2f0f1d38b9c",
        "cwd": "/***",
        "parent_session": redacted_session_id("p", PROFILE),
        "spawned_by": "***-1",
        "acme:x": {"***": 1},
        "redacted": True,
        "redacted_from": {"session": members["id"], "profile": PROFILE},
    }


def test_sessions_are_named_by_their_own_redactions() -> None:
    """But a callee of another system, whose session is not ours to redact."""
    tape = Tape()
    tape.call("c1")
    tape.link("subsession", "child", call_id="c1")
    tape.link("peer", "theirs", call_id="c1", url="https://x.test")
    tape.link("continued_in", "next")
    sessions = [entry.body.get("session") for entry in redact_session(taped(tape), PROFILE, same).source][1:]
    assert sessions == [redacted_session_id("child", PROFILE), "theirs", redacted_session_id("next", PROFILE)]


def test_references_to_another_session_go_unless_they_name_the_prefix() -> None:
    """Nobody here knows what became of that entry; an id of the original would only say that it was there."""
    tape = Tape()
    first, second = tape.id(tape.user("hi")), tape.id(tape.user("again"))
    tape.base()
    tape.add("info", {"name": "n"}, ({"session": "up", "entry": first}, {"session": "else", "entry": NOWHERE}))
    tape.add("info", {"name": "m"}, ({"session": tape.header.id, "entry": first}, {"entry": second}))
    tape.header = new_header(id=tape.header.id, created_at="2026-11-01T00:00:00Z", base=second, parent_session="up")
    redacted = redact_session(taped(tape), PROFILE, same)
    first, second = redacted.source.entry_id(0), redacted.source.entry_id(1)
    assert redacted.source.entry(2).parents == [{"session": redacted_session_id("up", PROFILE), "entry": first}]
    assert redacted.source.entry(3).parents == [{"entry": second}, {"session": redacted.header.id, "entry": first}]
    assert redacted.dropped == 1


def test_call_ids_change_everywhere_in_step() -> None:
    """A call, its dispatch, decision and output, its link, and what a run leaves pending."""
    tape = Tape()
    tape.start()
    tape.response("r1")
    call = tape.call("secret-1")
    tape.dispatch(call, "secret-1")
    tape.link("subsession", "child", call_id="secret-1")
    other = tape.call("plain")
    tape.decide(other, "hold", "plain")
    tape.output("secret-1")
    tape.end("input_required", ("plain",))
    original = taped(tape)
    redacted = redact_session(original, PROFILE, scrub)
    assert {entry.call_id for entry in redacted.source} == {"", "***-1", "plain"}
    assert verify(session_of(redacted))["problems"] == verify(original)["problems"]


def test_two_calls_made_one_are_refused() -> None:
    """What is to go from their ids has to leave them apart."""
    tape = Tape()
    tape.call("secret")
    tape.call("***")
    with pytest.raises(CallIDRepeated):
        redact_session(taped(tape), PROFILE, scrub)


def test_what_no_redaction_changes_refuses_the_session() -> None:
    """An extension's type, an old id, the name of a session that is another system's, the session's own id."""
    for type_, body in (
        ("secret:note", {}),
        ("info", {"legacy_id": "secret"}),
        ("link", {"rel": "peer", "session": "secret", "call_id": "c", "url": "https://x.test"}),
    ):
        tape = Tape()
        tape.add(type_, body)
        with pytest.raises(NotRedacted) as refused:
            redact_session(taped(tape), PROFILE, scrub)
        assert "secret" not in str(refused.value)
    with pytest.raises(NotRedacted):
        redact_session(Session(Tape(session="secret").header), PROFILE, scrub)


def test_a_profile_has_a_name() -> None:
    """Two sets of rules must not write into one session."""
    with pytest.raises(BadInput):
        redact_session(Session(Tape().header), "", same)


def test_what_may_still_name_something_is_told() -> None:
    """An extension's members, and references to nothing of the session."""
    tape = Tape()
    tape.add("acme:note", {"about": NOWHERE})
    tape.add("label", {"target": NOWHERE, "label": "l"})
    redacted = redact_session(taped(tape), PROFILE, same)
    assert redacted.opaque == [redacted.source.entry_id(0)]
    assert redacted.unmapped == 1
    assert redacted.source.entry(1).body["target"] == NOWHERE


# --- request hashes and parts ----------------------------------------------------------------------------------------


def _asked(**config: Any) -> Tape:
    tape = Tape(records=())
    tape.add("config", config)
    tape.user("a secret")
    return tape


def _answered(tape: Tape, request_hash: str = "") -> int:
    hash_ = request_hash or taped(tape).context().request_hash()
    return tape.response("r1", request_hash=hash_)


def test_only_a_request_the_original_proves_is_proven_again() -> None:
    """A redaction never certifies what the original could not; one that recorded nothing records nothing."""
    tape = _asked(model="m", instructions="the secret")
    proven = _answered(tape)
    wrong = tape.response("r2", request_hash=NOWHERE)
    silent = tape.response("r3")
    odd = tape.response("r4", request_hash="a secret")
    redacted = redact_session(taped(tape), PROFILE, scrub)
    bodies = [redacted.source.entry(position).body for position in (proven, wrong, silent, odd)]
    assert ["request_hash" in body for body in bodies] == [True, False, False, False]
    report = verify(session_of(redacted))
    assert report["ok"]
    assert report["responses"] == {"verified": 1, "no_hash": 3, "mismatched": 0, "other_form": 0}


def test_a_request_proven_in_another_form_is_recorded_in_the_normal_one() -> None:
    """It was shown to be the request, and that is what counts."""
    tape = Tape(records=())
    tape.add("item", {"item": {"type": "message", "role": "user", "content": "hi"}})
    context = taped(tape).context()
    raw = {"input": [{"type": "message", "role": "user", "content": "hi"}], "store": False}
    assert request_hash(raw) != context.request_hash()
    tape.response("r1", request_hash=request_hash(raw))
    assert verify(taped(tape))["responses"]["other_form"] == 1
    assert verify(session_of(redact_session(taped(tape), PROFILE, same)))["responses"]["verified"] == 1


def test_a_part_no_path_has_becomes_a_placeholder() -> None:
    """The original's hash would confirm a guess of its text. Responses below proved nothing there, and get no hash."""
    tape = _asked(instructions_parts=[{"id": "a", "text": "t"}])
    parts = [{"id": "x", "hash": hash_text("gone"), "source": "secret"}, {"keep": 1}, {"keep": 4}]
    tape.add("config", {"instructions_parts": parts})
    response = tape.response("r1", request_hash=NOWHERE)
    fold = {"first_kept": tape.id(1), "summary": {}, "config": {"instructions_parts": parts[:1]}}
    tape.add("compaction", fold)
    redacted = redact_session(taped(tape), PROFILE, scrub)
    placeholder = {"id": "x", "text": "[redacted]", "source": "***"}
    assert redacted.source.entry(2).body["instructions_parts"] == [
        placeholder,
        {"keep": 1},
        {"id": "redacted-1", "text": "[redacted]"},
    ]
    assert "request_hash" not in redacted.source.entry(response).body
    assert redacted.source.entry(4).body["config"]["instructions_parts"] == [placeholder]
    assert hash_text("gone").encode() not in b"".join(entry.line for entry in redacted.source)


def test_instructions_beside_a_part_no_path_has_stand_without_the_parts() -> None:
    """They are the record of what the model was sent, and are rewritten as any text."""
    for given_text, after in (("t\n\nthe secret", "t\n\nthe ***"), ("t\n\nplain", "t\n\nplain")):
        parts = [{"id": "x", "hash": hash_text("gone")}]
        tape = _asked(model="m", instructions=given_text, instructions_parts=parts)
        response = _answered(tape)
        redacted = redact_session(taped(tape), PROFILE, scrub)
        body = redacted.source.entry(0).body
        assert (body["instructions"], "instructions_parts" in body) == (after, False)
        assert "request_hash" in redacted.source.entry(response).body
        assert verify(session_of(redacted))["responses"]["verified"] == 1
    folded = Tape(records=())
    first = folded.user("hi")
    config = {"instructions": "a secret", "instructions_parts": [{"id": "x", "hash": hash_text("gone")}]}
    folded.add("compaction", {"first_kept": folded.id(first), "summary": {}, "config": config})
    made = redact_session(taped(folded), PROFILE, scrub).source.entry(1)
    assert made.body["config"] == {"instructions": "a ***"}


def test_a_session_already_redacted_is_redacted_again() -> None:
    """Its copy names it, and counts in it."""
    tape = _asked(instructions="the secret")
    first = session_of(redact_session(taped(tape), PROFILE, scrub))
    second = redact_session(first, "again@1", same)
    assert second.header.redacted_from is not None
    assert second.header.redacted_from.session == first.id
    entry: Entry = second.source.entry(1)
    assert redacted_of(entry) == [Span(2, 2)]


def test_a_redactor_sets_the_hash_of_a_response_before_it_appends_it() -> None:
    """Below its parent, or the leaf; one that carries none gets none, and nothing but the hash changes."""
    tape = _asked(model="m")
    session = taped(tape)
    answered = session.context().request_hash()
    body = {"response_id": "r1", "request_hash": NOWHERE, "status": "completed"}
    made = session.set_request_hash(Draft("response", body, parent=session.leaf, ts="2026-11-02T00:00:00Z"))
    assert made.body == {**body, "request_hash": answered}
    assert (made.parent, made.ts) == (session.leaf, "2026-11-02T00:00:00Z")
    assert session.set_request_hash(Draft("response", body)).body == made.body
    silent = Draft("response", {"response_id": "r1"})
    assert session.set_request_hash(silent) is silent
    tape.call("c", response="r1")
    session = taped(tape)
    assert session.request_hash_for("", Draft("response", body)) == answered
    assert session.request_hash_for(tape.id(0), silent) != answered
    session.append(session.set_request_hash(Draft("response", body, ts="2026-11-02T00:00:00Z")))
    session.verify(session.leaf)
    with pytest.raises(NoEntry):
        session.request_hash_for(NOWHERE, silent)
