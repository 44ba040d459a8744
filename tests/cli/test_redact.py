"""``redact``: a copy to hand out, proven by a search of every file it brings for what was to go."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from agentsession_cas import Harness, Store, entry
from agentsession_cas.core.entry import Draft
from agentsession_cas.core.header import ALL_RECORDS
from agentsession_cas.core.identity import hash_bytes, hash_text, redacted_session_id
from agentsession_cas.layout import directory_name
from tests.helpers.commands import Commands

SESSION: Final = "01995b2a-0000-7000-8000-000000000001"
COPY: Final = "beeb8b34-10d8-5b7f-9cad-f2f0f1d38b9c"
"""The id of its redaction under ``public@1``, as format.md §3 has it."""

KEY: Final = 'sk-"quoted"\\and\tböse'
USER: Final = "alice.example"
HOME: Final = "/home/alice"
TOKEN: Final = "ghp_0123456789abcdef"
GONE: Final = (KEY, USER, HOME, TOKEN)
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]{8,}")
OPTIONS: Final = ("--profile", "public@1", "--secret", KEY, "--secret", USER, "--home", "--pattern", "ghp_[0-9a-f]{16}")

Json = dict[str, Any]


def _fill(store: Store) -> None:
    """A session with what is to go in every place a string can stand, all requests recorded as sent."""
    said = f"{KEY} {USER} {HOME}/x {TOKEN}"
    png = base64.b64encode(f"\x89 {TOKEN} {KEY}".encode()).decode()
    header: Json = {"id": SESSION, "cwd": f"{HOME}/work", "harness": Harness("h", said), "records": ALL_RECORDS}
    with store.create(**header, extra={"acme:who": {said: [said]}}) as session:
        parts = [{"id": "a", "text": f"part {said}", "source": said}, {"id": "b", "text": "plain"}]
        request: Json = {
            "model": "m",
            "instructions": f"part {said}\n\nplain",
            "tools": [{"type": "function", "name": "tool", "description": said, "parameters": {"default": said}}],
            "metadata": {"user": said},
        }
        session.append(entry.config_from_request(request, parts=parts))
        named = [{"id": "b", "text": "plain too"}, {"id": "a", "hash": hash_text(f"part {said}")}]
        session.append(entry.config(instructions_parts=named))
        session.append(
            entry.run_start(said, ref=said, trigger={**entry.trigger("human", ref=said), "acme:x": {said: said}})
        )
        image = {"type": "input_image", "image_url": f"data:image/png;base64,{png}"}
        session.append(entry.user([f"say {said}", image, f"cut {said} \ud800"], source=entry.trigger(said)))
        raw = base64.b64encode(json.dumps(said, ensure_ascii=False).encode()[:-1] + b'\xff"').decode()
        session.append(Draft("info", {"name": said, "normalised": [{"at": "/name", "raw": raw}]}))
        call_id = f"call-{USER}"
        arguments = json.dumps({"deep": json.dumps({"key": said, HOME: said})})
        output = [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": said}], "encrypted_content": said},
            {"type": "function_call", "call_id": call_id, "name": "tool", "arguments": arguments},
            {"type": "acme:note", "id": "n", "status": "completed", "text": said},
        ]
        asked = session.context().request()
        session.record_response(asked, {"id": f"resp-{USER}", "model": said, "status": "completed", "output": output})
        call = next(each for each in session if each.call_id == call_id).id
        child = {"rel": "subsession", "session": "child", "call_id": call_id, "note": said}
        session.append(entry.decision(call_id, call, verdict="proceed", args={said: said}, reason=said))
        session.append(entry.dispatch(call_id, call, idempotency_key=said))
        session.append(Draft("link", child))
        session.append(entry.function_call_output(call_id, said))
        asked = session.context().request()
        answer = {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": said, "annotations": []}],
        }
        session.record_response(asked, {"id": "resp-2", "status": "completed", "output": [answer]})
        session.append(session.end_run("done", ref=said))
        session.append(entry.env(f"{HOME}/w", read={f"{HOME}/{TOKEN}": hash_bytes(b"")}, tools={said: said}))
        session.append(entry.outcome("eval", call, label=said, details={said: {"n": said}}))
        session.append(entry.custom("acme:x", {said: [said, {said: 1}]}))
        session.append(entry.extension("acme:thing", {said: said}))
        session.append(entry.label(call, said))
        session.append(entry.queued({"type": "message", "role": "user", "content": said}, mode="steer", ref=said))
        session.append(session.compact(call, {"type": "message", "role": "user", "content": said}))
        session.append(entry.info(said))


def _forms(word: str) -> Iterator[bytes]:
    """A word as text, as JSON text of any kind, as that in JSON text again and again, and as base64 on its own."""
    texts = {word}
    for _ in range(4):
        texts |= {json.dumps(text, ensure_ascii=ascii_only)[1:-1] for text in texts for ascii_only in (True, False)}
    yield from (text.encode() for text in texts)
    yield base64.b64encode(word.encode()).rstrip(b"=")


def _found(data: bytes) -> list[bytes]:
    """What was to go, in bytes and in whatever they hold in base64."""
    inside = b"\n".join(base64.b64decode(each[: len(each) // 4 * 4]) for each in _BASE64.findall(data))
    return [form for word in GONE for form in _forms(word) if form in data or form in inside]


def _everything_in(store: Store) -> Iterator[bytes]:
    """Every file as it lies there, and every object decompressed."""
    for path in Path(store.root).rglob("*"):
        if path.is_file():
            yield path.read_bytes()
    for place in store.objects.iterate():
        yield store.objects.get(place.space, place.digest)


@pytest.fixture
def filled(held: Commands) -> Commands:
    """A store with one session in it that holds what is to go everywhere."""
    with Store.open(held.store) as store:
        _fill(store)
    return held


def _left_in_copy(cli: Commands, tmp_path: Path) -> set[bytes]:
    """What was to go, and is in the copy's own files, its projection, or a store that holds nothing else."""
    own = cli.store / "sessions" / directory_name(COPY)
    files = [path.read_bytes() for path in own.iterdir()]
    cli.ok("project", COPY, "-o", "copy.jsonl")
    files.append((cli.directory / "copy.jsonl").read_bytes())
    with Store.open(tmp_path / "public", create=True, redacted_only=True) as public:
        if public.holds(COPY):
            public.delete(COPY)
        public.import_file(cli.directory / "copy.jsonl")
        files += _everything_in(public)
    assert len(files) > 20
    return {form for data in files for form in _found(data)}


def test_nothing_that_was_to_go_is_in_what_is_handed_out(filled: Commands, tmp_path: Path) -> None:
    """In no form: as text, escaped in JSON text, base64; and every response verifies."""
    with Store.open(filled.store, read_only=True) as store:
        original = b"".join(each.line for each in store.read(SESSION))
    assert len({each for each in (word.encode() for word in (USER, HOME, TOKEN)) if each in original}) == 3
    assert len(_found(original)) >= 8
    ran = filled.ok("redact", SESSION, *OPTIONS, "--json")
    assert ran.object["session"] == COPY
    assert _left_in_copy(filled, tmp_path) == set()
    report = filled.ok("verify", "--json", COPY).object
    assert report["ok"]
    assert report["responses"] == {"verified": 2, "no_hash": 0, "mismatched": 0, "other_form": 0}
    assert [problem for problem in report["problems"] if problem["severity"] != "note"] == []
    assert filled.ok("verify", "--json", SESSION).object["responses"]["verified"] == 2
    filled.ok("fsck")


def test_what_was_added_since_is_redacted_into_the_same_session(filled: Commands, tmp_path: Path) -> None:
    """It lies in the copy's journal then, which is searched as it lies there."""
    filled.ok("redact", SESSION, *OPTIONS)
    line = json.dumps({"type": "info", "name": f"again {KEY} {TOKEN}", "at": HOME})
    filled.ok("append", SESSION, stdin=line.encode())
    ran = filled.ok("redact", SESSION, *OPTIONS, "--json")
    answer = ran.object
    assert (answer["session"], answer["created"], answer["added"], answer["moved"]) == (COPY, False, 1, True)
    copy = filled.ok("show", COPY, answer["head"], "--json").object["entry"]
    assert copy["name"] == "again [redacted] [redacted]"
    assert copy["at"] == "[home]"
    assert _left_in_copy(filled, tmp_path) == set()
    again = filled.ok("redact", SESSION, *OPTIONS, "--json").object
    assert (again["added"], again["moved"], again["head"]) == (0, False, answer["head"])


def test_the_answer(filled: Commands) -> None:
    """The id alone on stdout; what whoever hands it out should know, beside it."""
    ran = filled.ok("redact", SESSION, *OPTIONS)
    assert ran.lines == [COPY]
    assert "extension entry" in ran.err
    assert filled.ok("-q", "redact", SESSION, *OPTIONS).err == ""
    answer = filled.ok("redact", SESSION, *OPTIONS, "--json").object
    assert answer.pop("head") == filled.ok("head", COPY).lines[0]
    assert answer == {
        "session": COPY, "moved": False, "base": None, "created": False, "added": 0,
        "origins": [], "unchecked": [], "opaque": 1, "dropped": 0, "unmapped": 0,
    }  # fmt: skip


def test_a_fork_brings_the_redaction_of_its_origin(filled: Commands) -> None:
    """And says so."""
    fork = filled.ok("fork", SESSION, "HEAD").lines[0]
    ran = filled.ok("redact", fork, *OPTIONS, "--json")
    answer = ran.object
    assert answer["session"] == redacted_session_id(fork, "public@1")
    assert answer["origins"] == [COPY]
    assert answer["base"] == answer["head"] == filled.ok("head", COPY).lines[0]
    assert COPY in ran.err


RULES = """
home = true
[[rules]]
secret = 'sk-"quoted"\\and\tböse'
placeholder = "[key]"
[[rules]]
secret = "alice.example"
[[rules]]
pattern = "ghp_[0-9a-f]{16}"
"""


def test_rules_from_a_file(filled: Commands, tmp_path: Path) -> None:
    """The same rules, out of the process list, each with a placeholder of its own."""
    (filled.directory / "rules.toml").write_text(RULES)
    ran = filled.ok("redact", SESSION, "--profile", "public@1", "--rules", "rules.toml", "--json")
    assert ran.object["session"] == COPY
    assert _left_in_copy(filled, tmp_path) == set()
    assert b"[key]" in filled.ok("project", COPY).out


def test_rules_that_changed_are_a_conflict(filled: Commands) -> None:
    """The copy is what it was; another profile is another copy."""
    filled.ok("redact", SESSION, *OPTIONS)
    before = filled.ok("project", COPY).out
    ran = filled("redact", SESSION, *OPTIONS, "--secret", "plain")
    assert (ran.code, ran.error_code) == (4, "profile_differs")
    assert filled.ok("project", COPY).out == before
    other = filled.ok("redact", SESSION, "--profile", "public@2", "--secret", "plain", "--json").object
    assert other["session"] != COPY


def test_without_rules_the_copy_says_what_the_original_does(filled: Commands, tmp_path: Path) -> None:
    """Its ids are its own all the same, and its entries name what they came from; so the search finds everything."""
    assert "no rule was given" in filled.ok("redact", SESSION, "--profile", "public@1").err
    assert len(_left_in_copy(filled, tmp_path)) >= 8
    with Store.open(filled.store, read_only=True) as store:
        for position, (old, new) in enumerate(zip(store.read(SESSION), store.read(COPY), strict=True), 1):
            assert new.id != old.id
            assert new.body["redacted"] == [position]
            assert new.body.keys() - {"redacted"} == old.body.keys()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("--profile", ""), 1),
        (("--profile", "p", "--secret", ""), 2),
        (("--profile", "p", "--pattern", "("), 2),
        (("--profile", "p", "--secret", "redacted"), 2),
        (("--profile", "p", "--rules", "absent.toml"), 1),
        (("--profile", "p", "--rules", "odd.toml"), 2),
    ],
)
def test_what_makes_no_sense_is_one_line_and_makes_nothing(
    filled: Commands, arguments: tuple[str, ...], code: int
) -> None:
    """And no line tells a value."""
    (filled.directory / "odd.toml").write_text("[[rule]]\nsecret = 'hunter2'\n")
    ran = filled("redact", SESSION, *arguments)
    assert ran.code == code
    assert ran.error_code
    assert "hunter2" not in ran.err
    assert [each["id"] for each in filled.ok("list", "--json").objects] == [SESSION]


def test_what_no_redaction_reaches_refuses_and_makes_nothing(filled: Commands) -> None:
    """The type of an extension entry is its name, and is kept."""
    filled.ok("append", SESSION, stdin=b'{"type":"alice.example:x"}')
    ran = filled("redact", SESSION, *OPTIONS)
    assert (ran.code, ran.error_code) == (1, "not_redacted")
    assert USER not in ran.err
    assert [each["id"] for each in filled.ok("list", "--json").objects] == [SESSION]
