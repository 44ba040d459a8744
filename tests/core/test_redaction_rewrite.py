"""Which strings a rewrite is given, and what becomes of them (format.md §10)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsession_cas.core.canonical import LEVELS_MAX
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.header import Header
from agentsession_cas.core.rewrite import Strings, rewrite_header_strings
from agentsession_cas.core.rewriter import Rewriter, rewrite_strings
from agentsession_cas.errors import BadEntry, KeyCollision, NotRedacted
from tests.helpers.rewrites import given_to, scrub

TS = "2026-01-01T00:00:00Z"
ID = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
SIDECAR = "sidecar:" + ID

Json = dict[str, Any]


def mark(text: str) -> str:
    """Show that a string was given."""
    return text if text.startswith("*") else f"*{text}"


def rewritten(type_: str, body: Json, rewrite: Any = mark) -> Json:
    """The body of an entry, rewritten."""
    return rewrite_strings(Entry.seal(type_, body, "", TS), rewrite).body


BODIES: dict[str, tuple[str, Json, Json]] = {
    "item": (
        "item",
        {
            "item": {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "t", "odd": {"n": "v"}}],
            },
            "response": "r",
            "visible": False,
            "queued_from": ID,
            "from_link": ID,
            "failed": True,
            "source": {"kind": "k", "ref": "f", "odd": {"n": "v"}},
            "odd": {"n": ["v", 1, None]},
            "legacy_id": "old",
        },
        {
            "item": {
                "type": "*message",
                "role": "*user",
                "content": [{"type": "*input_text", "text": "*t", "odd": {"n": "*v"}}],
            },
            "response": "*r",
            "visible": False,
            "queued_from": ID,
            "from_link": ID,
            "failed": True,
            "source": {"kind": "*k", "ref": "*f", "odd": {"*n": "*v"}},
            "odd": {"*n": ["*v", 1, None]},
            "legacy_id": "old",
        },
    ),
    "call": (
        "item",
        {
            "item": {
                "type": "function_call",
                "call_id": "c",
                "name": "n",
                "arguments": '{"a":1}',
                "nested": {"call_id": "c"},
            }
        },
        {
            "item": {
                "type": "*function_call",
                "call_id": "c",
                "name": "*n",
                "arguments": '*{"a":1}',
                "nested": {"call_id": "*c"},
            }
        },
    ),
    "output": (
        "item",
        {
            "item": {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_image", "image_url": SIDECAR}],
            }
        },
        {
            "item": {
                "type": "*function_call_output",
                "call_id": "c",
                "output": [{"type": "*input_image", "image_url": SIDECAR}],
            }
        },
    ),
    "slug item": ("item", {"item": {"type": "a:b", "call_id": "c"}}, {"item": {"type": "*a:b", "call_id": "*c"}}),
    "response": (
        "response",
        {"response_id": "r", "model": "m", "status": "s", "request_hash": ID, "error": {"code": "c", "n": {"k": "v"}}},
        {
            "response_id": "*r",
            "model": "*m",
            "status": "*s",
            "request_hash": ID,
            "error": {"code": "*c", "n": {"k": "*v"}},
        },
    ),
    "a hash that is none": ("response", {"request_hash": "said"}, {"request_hash": "*said"}),
    "config": (
        "config",
        {
            "model": "m",
            "reasoning": {"effort": "low"},
            "tools_removed": ["t"],
            "extra": {"metadata": {"k": "v"}},
            "tools_added": [{"type": "function", "name": "t", "parameters": {"properties": {"p": {"type": "string"}}}}],
            "instructions_omitted": [{"keep": 1, "of": ID}, {"id": "o", "reason": "r", "of": "x"}],
            "omit": {
                "items": [ID],
                "outputs": {"text": "t", "items": [ID]},
                "images": {"before": ID, "placeholder": "p"},
            },
        },
        {
            "model": "*m",
            "reasoning": {"effort": "*low"},
            "tools_removed": ["*t"],
            "extra": {"*metadata": {"*k": "*v"}},
            "tools_added": [
                {"type": "*function", "name": "*t", "parameters": {"properties": {"p": {"type": "*string"}}}}
            ],
            "instructions_omitted": [{"keep": 1, "of": ID}, {"id": "*o", "reason": "*r", "of": "*x"}],
            "omit": {
                "items": [ID],
                "outputs": {"text": "*t", "items": [ID]},
                "images": {"before": ID, "placeholder": "*p"},
            },
        },
    ),
    "compaction": (
        "compaction",
        {
            "first_kept": ID,
            "summary": {"type": "message", "content": "s"},
            "pinned": [{"type": "message", "content": "p"}],
            "config": {"model": "m", "tools": [{"name": "t"}], "extra": {"k": "v"}, "omit": {"items": [ID]}},
            "tokens_before": 1,
        },
        {
            "first_kept": ID,
            "summary": {"type": "*message", "content": "*s"},
            "pinned": [{"type": "*message", "content": "*p"}],
            "config": {"model": "*m", "tools": [{"name": "*t"}], "extra": {"*k": "*v"}, "omit": {"items": [ID]}},
            "tokens_before": 1,
        },
    ),
    "branch_summary": (
        "branch_summary",
        {"from": ID, "summary": {"content": "s"}},
        {"from": ID, "summary": {"content": "*s"}},
    ),
    "dispatch": (
        "dispatch",
        {"call_id": "c", "target": ID, "idempotency_key": "k"},
        {"call_id": "c", "target": ID, "idempotency_key": "*k"},
    ),
    "label": ("label", {"target": ID, "label": "l"}, {"target": ID, "label": "*l"}),
    "a target of free text": ("label", {"target": "words", "label": "l"}, {"target": "*words", "label": "*l"}),
    "info": ("info", {"name": "n", "more": {"a": "b"}}, {"name": "*n", "more": {"*a": "*b"}}),
    "env": (
        "env",
        {
            "cwd": "/w",
            "vcs": {"system": "git", "revision": "1", "x": {"a": "b"}},
            "tools": {"go": "1"},
            "files": {"read": {"/p": ID}, "written": {"/q": "odd"}, "more": {"/r": "s"}},
            "workspace": {"kind": "local", "ref": "r", "host": "h", "instance": "i", "x": {"a": "b"}},
        },
        {
            "cwd": "*/w",
            "vcs": {"system": "*git", "revision": "*1", "x": {"*a": "*b"}},
            "tools": {"*go": "*1"},
            "files": {"read": {"*/p": ID}, "written": {"*/q": "*odd"}, "more": {"*/r": "*s"}},
            "workspace": {"kind": "*local", "ref": "*r", "host": "*h", "instance": "*i", "x": {"*a": "*b"}},
        },
    ),
    "subsession": (
        "link",
        {"rel": "x", "session": "child", "call_id": "c", "target": ID, "url": "u"},
        {"rel": "*x", "session": "child", "call_id": "c", "target": f"*{ID}", "url": "*u"},
    ),
    "custom": (
        "custom",
        {"ns": "n", "data": {"call_id": "c", "d": ["e"]}, "call_id": "c"},
        {"ns": "*n", "data": {"*call_id": "*c", "*d": ["*e"]}, "call_id": "c"},
    ),
    "extension": (
        "a:b",
        {"m": {"n": ["v"]}, "target": ID, "call_id": "c", "redacted": ["odd"], "legacy_id": "o"},
        {"*m": {"*n": ["*v"]}, "*target": f"*{ID}", "*call_id": "*c", "redacted": ["odd"], "legacy_id": "o"},
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_what_is_given_and_what_is_left(name: str) -> None:
    """Every string that is text, the names that are data; no name of the format's, no id, no hash, no call id."""
    type_, body, after = BODIES[name]
    assert rewritten(type_, body) == after


@pytest.mark.parametrize(
    ("type_", "body", "left"),
    [
        ("run", {"run_id": "r", "phase": "end", "reason": "done", "pending": ["c", "d"]}, ["end", "done", "r"]),
        (
            "decision",
            {"call_id": "c", "target": ID, "verdict": "hold", "args": {"call_id": "c"}},
            ["call_id", "c", "hold"],
        ),
        ("queued", {"item": {"type": "message"}, "mode": "steer", "trigger": {"kind": "k"}}, ["message", "steer", "k"]),
        ("outcome", {"kind": "eval", "target": ID, "details": {"b": "2", "a": ["1"]}}, ["a", "1", "b", "2", "eval"]),
        ("link", {"rel": "judged_by", "session": "j", "target": ID}, ["judged_by"]),
        ("link", {"rel": "peer", "session": "", "cancel": "sent", "call_id": "c", "target": ID}, ["sent", "peer"]),
        ("config", {"omit": {"images": {"keep": 1, "before": ID, "placeholder": "p"}}}, [ID, "p"]),
        ("config", {"omit": {"outputs": {"items": [ID]}}}, [ID]),
        ("config", {"omit": {"items": [ID, 1]}}, ["items", ID]),
        ("item", {"item": {}, "queued_from": {"a": ID}}, ["a", ID]),
    ],
)
def test_members_come_in_sorted_order_and_a_member_in_another_form_is_data(
    type_: str, body: Json, left: list[str]
) -> None:
    """The order is the same on every run."""
    assert given_to(Entry.seal(type_, body, "", TS)) == left


def test_the_entry_is_not_changed_and_the_draft_keeps_its_place() -> None:
    """Parent, convergence and time are the writer's to change."""
    entry = Entry.seal("info", {"name": "n"}, ID, TS, [{"session": "s", "entry": OTHER}])
    draft = rewrite_strings(entry, mark)
    assert entry.body == {"name": "n"}
    assert (draft.id, draft.parent, draft.ts, list(draft.parents)) == (None, ID, TS, entry.parents)


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        ("env", {"files": {"read": {"/home/a/x": ID, "/home/b/x": ID}}}),
        ("custom", {"ns": "n", "data": {"deep": [{"/home/a/x": 1, "/home/b/x": 2}]}}),
        ("a:b", {"/home/a/x": 1, "/home/b/x": 2}),
        ("a:b", {"rename": 1}),
        ("a:b", {"legacy": "m", "legacy_id": "o"}),
    ],
)
def test_two_names_made_one_are_refused(type_: str, body: Json) -> None:
    """And a name that would be one of the envelope's, or of every entry's; the error tells no name."""

    def rewrite(text: str) -> str:
        return {"rename": "parents", "legacy": "legacy_id"}.get(text, "[path]" if text.startswith("/") else text)

    with pytest.raises(KeyCollision) as refused:
        rewritten(type_, body, rewrite)
    assert "home" not in str(refused.value)


def test_a_member_its_type_cannot_hold_is_refused() -> None:
    """A closed word may not become another; one that never was right is left to whoever reads it."""
    with pytest.raises(BadEntry):
        rewritten("run", {"run_id": "r", "phase": "start", "source": "input"})
    assert rewritten("outcome", {"kind": "mine", "target": ID})["kind"] == "*mine"


def test_a_result_that_is_no_unicode_is_repaired() -> None:
    """A line holds no lone surrogate."""
    assert rewritten("info", {"name": "n"}, lambda _: "x\ud800y") == {"name": "x\ufffdy"}


# --- the header, and being strict ------------------------------------------------------------------------------------

HEADER: Json = {
    "type": "session",
    "format": "agentsession/0.14",
    "id": "s",
    "created_at": TS,
    "payload": "openresponses/2026-04-24",
    "harness": {"name": "h", "version": "1", "x": {"a": "b"}},
    "records": ["run"],
    "cwd": "/w",
    "parent_session": "p",
    "spawned_by": "c",
    "base": ID,
    "media": "sidecar",
    "redacted": True,
    "redacted_from": {"session": "o", "profile": "p"},
    "acme:extra": {"a": ["b"]},
    "labels": "l",
}


def test_the_text_of_a_header() -> None:
    """``cwd``, the harness and what the format does not define; the names of those stay."""
    after = rewrite_header_strings(Header.parse(HEADER), mark).members()
    assert after == {
        **HEADER,
        "cwd": "*/w",
        "harness": {"name": "*h", "version": "*1", "x": {"*a": "*b"}},
        "acme:extra": {"*a": ["*b"]},
        "labels": "*l",
    }


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        ("info", {"legacy_id": "a secret"}),
        ("info", {"the secret member": 1}),
        ("item", {"item": {"type": "a:b", "secret": 1}}),
        ("a:secret", {}),
        ("custom", {"ns": "n", "call_id": "a secret"}),
        ("info", {"name": "n", "legacy_id": "o", "normalised": [{"at": "/legacy_id", "was": '"secret"'}]}),
    ],
)
def test_being_strict_refuses_what_is_left(type_: str, body: Json) -> None:
    """A string that a rewrite is not given, and would change; the error does not tell it."""
    with pytest.raises(NotRedacted) as refused:
        Strings(scrub, strict=True).body(type_, body)
    assert "secret" not in str(refused.value)


def test_being_strict_passes_what_holds_nothing() -> None:
    """The format's own names and its hashes are not looked at: nothing in them is anybody's."""
    body = {"call_id": "c", "target": ID, "redacted": ["a secret"]}
    assert Strings(lambda text: text.replace("a", "*"), strict=True).body("dispatch", body) == body


def test_call_ids_go_everywhere_at_once_when_asked() -> None:
    """On the item, on every record of it, and in what a run leaves pending."""
    strings = Strings(scrub, calls=True)
    call = {"item": {"type": "function_call", "call_id": "secret-1", "name": "n"}}
    assert strings.body("item", call)["item"]["call_id"] == "***-1"
    assert strings.body("dispatch", {"call_id": "secret-1", "target": ID})["call_id"] == "***-1"
    assert strings.body("run", {"pending": ["secret-1"]})["pending"] == ["***-1"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
NAMES = st.sampled_from(
    [
        "item",
        "omit",
        "instructions",
        "instructions_parts",
        "instructions_omitted",
        "config",
        "target",
        "call_id",
        "files",
        "normalised",
        "redacted",
        "legacy_id",
        "data",
        "args",
        "workspace",
        "extra",
        "pending",
        "source",
        "label",
    ]
)
TYPES = st.sampled_from(["item", "config", "compaction", "run", "decision", "env", "link", "custom", "label", "a:b"])


@settings(max_examples=200, deadline=None)
@given(TYPES, st.dictionaries(NAMES, JSON, max_size=5))
def test_a_body_in_any_form_at_all_comes_through_as_it_was(type_: str, body: Json) -> None:
    """A rewrite that changes nothing changes nothing, whatever a member holds."""
    assert Rewriter(lambda text: text).rewrite(Draft(type_, body)).body == body


@settings(max_examples=200, deadline=None)
@given(TYPES, st.dictionaries(NAMES, JSON, max_size=5))
def test_nothing_that_is_left_could_hold_a_word(type_: str, body: Json) -> None:
    """With a strict rewrite, either the word is gone from the whole body or the entry is refused."""
    rewrite = Strings(lambda text: text.replace("0", "[gone]"), calls=True, strict=True)
    try:
        after = rewrite.body(type_, {name: value for name, value in body.items() if name != "redacted"})
    except (NotRedacted, KeyCollision):
        return
    left: list[Any] = [after]
    while left:
        value = left.pop()
        assert not isinstance(value, str) or "0" not in value
        left += [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []


def test_as_deep_as_a_line_may_be() -> None:
    """Every level a body may have."""
    data: Any = "secret"
    for level in range(LEVELS_MAX - 2):
        data = [data] if level % 2 else {"secret": data}
    deep: Any = rewritten("custom", {"ns": "n", "data": data}, scrub)["data"]
    while not isinstance(deep, str):
        deep = deep[0] if isinstance(deep, list) else deep["***"]
    assert deep == "***"
