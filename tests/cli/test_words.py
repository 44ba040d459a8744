"""Every type of entry in words: a line of a log, and the passage of a conversation."""

from __future__ import annotations

from typing import Any, Final

import pytest

from agentsession_cas import Draft, Entry, entry
from agentsession_cas.cli.output import Part, clip, counted, safe, width
from agentsession_cas.cli.words import entry_line, item_said, passage, short

TARGET: Final = "sha256:" + "ab" * 32
SHORT: Final = "ab" * 6
SUMMARY: Final = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "so far"}]}
USAGE: Final = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}


def _sealed(draft: Draft) -> Entry:
    return Entry.seal(draft.type, draft.body, "", "2026-01-02T03:04:05.678Z")


PEER: Final = _sealed(entry.peer("c", session="s"))
LINES: Final = [
    (entry.user("hi"), "user", "hi"),
    (entry.user([{"type": "input_image", "image_url": "x"}, "look"]), "user", "[input_image]\nlook"),
    (entry.function_call("c", "ls", {"a": 1}), "call", 'ls({"a":1})'),
    (entry.function_call_output("c", "done"), "output", "done"),
    (entry.item({"type": "reasoning", "summary": []}), "reasoning", "(not shown by the provider)"),
    (entry.item({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}), "reasoning", "hm"),
    (entry.item({"type": "compaction", "encrypted_content": "x"}), "compaction", "(the provider's own, encrypted)"),
    (entry.item({"type": "x:note", "text": "n"}), "x:note", "n"),
    (
        entry.config(
            model="m", tools_added=[{"type": "function", "name": "t"}], instructions="Be brief.", replace=True
        ),
        "config",
        "anew · m · tools t · instructions: Be brief.",
    ),
    (entry.config(tools_removed=["t"], extra={"top_p": 1}), "config", "without t · top_p"),
    (entry.config(instructions_parts=[{"id": "a", "text": "b"}]), "config", "instructions: 1 part"),
    (entry.config(instructions=""), "config", "no instructions"),
    (
        entry.config(extra={"seed": None, "top_p": 1}, reasoning={"effort": "low"}),
        "config",
        "without seed · top_p, reasoning",
    ),
    (entry.config(omit={"reasoning": "other_models"}), "config", "omits reasoning of other models"),
    (
        entry.config(omit={"items": [TARGET], "outputs": {"text": "x", "items": [TARGET] * 2}, "images": {"keep": 1}}),
        "config",
        "omits 1 item, 2 outputs, images",
    ),
    (entry.config(omit={}), "config", "omits nothing any more"),
    (entry.config(instructions_omitted=[{"id": "a"}]), "config", "parts left out"),
    (entry.config(instructions_omitted=[]), "config", "no parts left out"),
    (
        entry.response(response_id="r", status="completed", usage=USAGE, latency_ms=5, attempts=2),
        "response",
        "r · completed · 7 in + 3 out tokens · 5 ms · 2 attempts",
    ),
    (entry.response(incomplete={"reason": "max_output_tokens"}), "response", "stopped short: max_output_tokens"),
    (entry.response(error={"code": "c", "message": "m"}), "response", "error: m"),
    (entry.compaction(TARGET, SUMMARY, config={}), "compaction", "so far"),
    (entry.branch_summary(TARGET, SUMMARY), "branch_summary", "so far"),
    (entry.run_start("r", ref="why"), "run", "r · starts (input) · why"),
    (entry.run_end("r", reason="aborted", pending=["c", "d"]), "run", "r · ends (aborted) · still pending: c, d"),
    (entry.dispatch("c", TARGET), "dispatch", "c handed to its tool"),
    (entry.reject("c", TARGET, reason="no", by="human"), "decision", "c · reject · by human · no"),
    (entry.proceed("c", TARGET, args={"a": 1}), "decision", 'c · proceed · with {"a":1}'),
    (entry.withdrawal("c", TARGET, reason="lost"), "decision", "c · withdrawn · lost"),
    (entry.queued(SUMMARY, mode="steer"), "queued", "steer: so far"),
    (entry.label(TARGET, "good"), "label", f"good on {SHORT}"),
    (entry.leaf_label(""), "label", "leaf on the universal root"),
    (entry.clear_label(TARGET), "label", f"none on {SHORT}"),
    (entry.info("n"), "info", "name n"),
    (entry.info(colour="red"), "info", "colour"),
    (entry.env(cwd="/w"), "env", "/w"),
    (entry.outcome("test", TARGET, score=0.5, passed=False), "outcome", f"test · score 0.5 · failed · on {SHORT}"),
    (entry.subsession("s", "c"), "link", "subsession · s · by c"),
    (entry.cancel_sent(PEER), "link", f"peer · told to stop · s · by c · on {short(PEER.id)}"),
    (entry.judged_by("j", target=TARGET), "link", f"judged_by · j · on {SHORT}"),
    (entry.continued_in("s"), "link", "continued_in · s"),
    (entry.custom("ns", {}), "custom", "ns"),
    (entry.extension("x:y", {"a": 1}), "x:y", '{"a":1}'),
]


@pytest.mark.parametrize(("draft", "who", "text"), LINES, ids=lambda each: each.type if isinstance(each, Draft) else "")
def test_every_type_has_its_line_and_its_passage(draft: Draft, who: str, text: str) -> None:
    """The line says who and what; the passage says the same, and when."""
    sealed = _sealed(draft)
    assert entry_line(sealed) == (who, text)
    told = _plain(passage(sealed))
    assert "2026-01-02T03:04:05Z" in told
    assert all(line.strip() in told for line in text.split("\n"))


def test_members_in_another_form_read_as_absent() -> None:
    """What the format does not describe is no reason to fail."""
    odd: list[tuple[str, dict[str, Any]]] = [
        ("response", {"usage": 7, "error": "x", "status": [], "latency_ms": "5"}),
        ("label", {"target": 9, "label": {}}),
        ("info", {"name": ["n"]}),
        ("env", {"cwd": 1}),
        ("outcome", {"kind": "odd", "score": "high", "target": 3}),
        ("link", {"rel": "odd", "session": 5}),
        ("config", {"tools_added": 3, "instructions": 5, "extra": [], "tools_removed": "t"}),
        ("item", {"item": {"type": "message", "role": 5, "content": 7}}),
        ("item", {"item": {"type": "function_call", "name": None, "arguments": {}}}),
        ("item", {"item": {"type": "function_call_output", "output": [1, {"type": 3}]}}),
    ]
    for type_, body in odd:
        sealed = Entry.seal(type_, body, "", "2026-01-01T00:00:00Z")
        assert isinstance(entry_line(sealed).text, str)
        assert _plain(passage(sealed))


def test_speakers_are_told_apart() -> None:
    """A failed output and a hidden item say so; a long output is cut, a long message is not."""
    failed = _plain(passage(_sealed(entry.function_call_output("c", "oh", failed=True))))
    assert failed.startswith("output of c, failed")
    assert "user, hidden" in _plain(passage(_sealed(entry.user("psst", visible=False))))
    assert "(empty)" in _plain(passage(_sealed(entry.function_call_output("c", ""))))
    long = "\n".join(map(str, range(100)))
    assert "… 80 more lines" in _plain(passage(_sealed(entry.function_call_output("c", long))))
    assert "    99" in _plain(passage(_sealed(entry.user(long)))).splitlines()


def test_refusals_are_read() -> None:
    """A refusal is what was said."""
    part = {"type": "refusal", "refusal": "I will not."}
    assert item_said({"type": "message", "role": "assistant", "content": [part]}).text == "I will not."


@pytest.mark.parametrize(
    ("text", "columns", "clipped"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("a  b\nc", 9, "a b c"),
        ("测试会话", 5, "测试…"),
        ("e\u0301te", 3, "e\u0301te"),
        ("", 3, ""),
    ],
)
def test_clip_counts_columns(text: str, columns: int, clipped: str) -> None:
    """Wide characters take two, combining ones none."""
    assert clip(text, columns) == clipped
    assert width(clipped) <= columns


def test_safe_and_counted() -> None:
    """Escapes are spelled as Python spells them; one thing is not many."""
    assert safe("\x1b\x00\x7f\x85\u2029\ud800\n\t") == "\\x1b\\x00\\x7f\\x85\\u2029\\ud800\\n\\t"
    assert safe("é 测 🎉") == "é 测 🎉"
    assert [counted(n, "entry", "entries") for n in (0, 1, 2)] == ["0 entries", "1 entry", "2 entries"]


def _plain(lines: Any) -> str:
    def text(part: Part) -> str:
        return part if isinstance(part, str) else part.text

    return "\n".join("".join(text(part) for part in parts) for parts in lines)
