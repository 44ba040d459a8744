"""Entries in words: a line each for a log, a passage each for a conversation.

Pure: takes entries, gives text that is not yet made safe for a terminal. A member in a form the format does not
describe reads as absent, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from agentsession_cas.cli.output import Part, Styled, bold, counted, dim, warn
from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.entry import Entry
from agentsession_cas.core.reading import text
from agentsession_cas.core.types.config import ConfigView
from agentsession_cas.core.types.decisions import DecisionView, DispatchView
from agentsession_cas.core.types.env import EnvView
from agentsession_cas.core.types.folds import BranchSummaryView, CompactionView
from agentsession_cas.core.types.items import ItemView
from agentsession_cas.core.types.links import LinkView
from agentsession_cas.core.types.notes import CustomView, InfoView, LabelView, OutcomeView
from agentsession_cas.core.types.responses import ResponseView
from agentsession_cas.core.types.runs import QueuedView, RunView
from agentsession_cas.core.types.views import ExtensionView, view

__all__ = ["Said", "clock_time", "entry_line", "item_said", "passage", "short"]

SHORT: Final = 12
_OUTPUT_LINES: Final = 20
_INDENT: Final = "    "


class Said(NamedTuple):
    """Who says what: a speaker or a kind, and text of any length."""

    who: str
    text: str


def short(entry_id: str) -> str:
    """An entry id as people read it: the first digits, which name it where they are unique; ``ROOT`` for ""."""
    return entry_id.removeprefix("sha256:")[:SHORT] if entry_id else "ROOT"


def clock_time(ts: str) -> str:
    """A canonical time to the second."""
    return ts[:19] + "Z"


def item_said(item: Mapping[str, Any]) -> Said:
    """What an item says, in full."""
    kind = text(item, "type")
    if kind == "message":
        return Said(text(item, "role") or "message", _content(item.get("content")))
    if kind == "function_call":
        return Said("call", f"{text(item, 'name')}({text(item, 'arguments')})")
    if kind == "function_call_output":
        return Said("output", _content(item.get("output")))
    if kind == "reasoning":
        summary = _content(item.get("summary")) or _content(item.get("content"))
        return Said("reasoning", summary or "(not shown by the provider)")
    if kind == "compaction":
        return Said("compaction", "(the provider's own, encrypted)")
    return Said(kind or "item", _content(item.get("content")) or text(item, "text"))


def entry_line(entry: Entry) -> Said:
    """An entry as one line of a log."""
    seen = view(entry)
    match seen:
        case ItemView():
            return item_said(seen.item)
        case CompactionView() | BranchSummaryView():
            return Said(entry.type, item_said(seen.summary).text)
        case _:
            return Said(entry.type, _record(seen))


def passage(entry: Entry) -> Iterator[tuple[Part, ...]]:
    """An entry as lines of a conversation; what is only on record is one line, in the background."""
    seen = view(entry)
    time = dim(f"  {clock_time(entry.ts)}  {short(entry.id)}")
    match seen:
        case ItemView():
            said = item_said(seen.item)
            hidden = "" if seen.visible else ", hidden"
            yield _speaker(seen, said), dim(hidden), time
            yield from _indented(said.text, _OUTPUT_LINES if said.who == "output" else 0)
        case CompactionView():
            yield bold("compacted"), dim(f": what came before {short(seen.first_kept)} is now"), time
            yield from _indented(item_said(seen.summary).text)
        case BranchSummaryView():
            yield bold("branch summary"), dim(f": what the branch ending at {short(seen.left)} did"), time
            yield from _indented(item_said(seen.summary).text)
        case _:
            yield dim(f"{entry.type}: {_one_line(_record(seen))}"), time


def _speaker(seen: ItemView, said: Said) -> Part:
    if seen.kind == "function_call":
        return Styled(f"call {seen.call_id}", colour="cyan", bold=True)
    if seen.kind == "function_call_output":
        if seen.failed:
            return warn(f"output of {seen.call_id}, failed")
        return Styled(f"output of {seen.call_id}", colour="cyan")
    if said.who == "reasoning":
        return dim("reasoning")
    return Styled(said.who, colour="green" if said.who == "assistant" else "", bold=True)


def _indented(text: str, lines_max: int = 0) -> Iterator[tuple[Part, ...]]:
    lines = (text.replace("\r\n", "\n").rstrip("\n") or "(empty)").split("\n")
    cut = lines_max and len(lines) > lines_max
    for line in lines[:lines_max] if cut else lines:
        yield (f"{_INDENT}{line.expandtabs(4)}",)
    if cut:
        yield (dim(f"{_INDENT}… {len(lines) - lines_max} more lines: show this entry to see them"),)


def _record(seen: object) -> str:
    """What an entry that is no part of the conversation says."""
    match seen:
        case ConfigView():
            return _config(seen)
        case ResponseView():
            return _response(seen)
        case RunView():
            return _run(seen)
        case DispatchView():
            return f"{seen.call_id} handed to its tool"
        case DecisionView():
            return _decision(seen)
        case QueuedView():
            return f"{seen.mode}: {item_said(seen.item).text}"
        case LabelView():
            on = "the universal root" if seen.body.get("target") is None else short(text(seen.body, "target"))
            label = text(seen.body, "label")
            return f"{label} on {on}" if label else f"none on {on}"
        case InfoView():
            return f"name {text(seen.body, 'name')}" if seen.body.get("name") else _names(seen.body)
        case EnvView():
            return text(seen.body, "cwd") or _names(seen.body)
        case _:
            return _note(seen)


def _note(seen: object) -> str:
    match seen:
        case OutcomeView():
            parts = [seen.kind, "" if seen.score is None else f"score {seen.score}", seen.label]
            passed = "" if seen.passed is None else "passed" if seen.passed else "failed"
            return _joined(*parts, passed, f"on {short(seen.target)}" if seen.target else "")
        case LinkView():
            told = "told to stop" if seen.cancel else ""
            on = f"on {short(seen.target)}" if seen.target else ""
            return _joined(seen.rel, told, seen.session, seen.url, f"by {seen.call_id}" if seen.call_id else "", on)
        case CustomView():
            return seen.ns
        case ExtensionView():
            return canonical(seen.body).decode()
        case _:
            return ""


def _config(seen: ConfigView) -> str:
    added = [text(tool, "name") or text(tool, "type") for tool in seen.tools_added]
    instructions = seen.instructions or (
        counted(len(seen.instructions_parts), "part") if seen.instructions_parts else seen.instructions
    )
    removed = [*seen.tools_removed, *(name for name, value in seen.extra.items() if value is None)]
    others = [name for name, value in seen.extra.items() if value is not None]
    others += [name for name in ("reasoning", "text") if getattr(seen, name) is not None]
    omitted = seen.instructions_omitted
    return _joined(
        "anew" if seen.replace else "",
        seen.model,
        f"tools {', '.join(added)}" if added else "",
        f"without {', '.join(removed)}" if removed else "",
        "" if seen.omit is None else _omit(seen.omit),
        ", ".join(others),
        "" if omitted is None else "parts left out" if omitted else "no parts left out",
        f"instructions: {instructions}" if instructions else "no instructions" if instructions == "" else "",
    )


def _omit(omit: Mapping[str, Any]) -> str:
    """What a request no longer holds."""
    if not omit:
        return "omits nothing any more"
    items, outputs = omit.get("items"), omit.get("outputs")
    muted = outputs.get("items") if isinstance(outputs, Mapping) else None
    told = [
        "reasoning of other models" if omit.get("reasoning") == "other_models" else "",
        counted(len(items), "item") if isinstance(items, list) and items else "",
        counted(len(muted), "output") if isinstance(muted, list) and muted else "",
        "images" if omit.get("images") else "",
    ]
    return f"omits {', '.join(filter(None, told))}".rstrip()


def _response(seen: ResponseView) -> str:
    usage = seen.usage or {}
    tokens = [f"{usage[name]} {word}" for name, word in _TOKENS.items() if isinstance(usage.get(name), int)]
    error = seen.error or {}
    return _joined(
        seen.response_id,
        seen.status,
        f"{' + '.join(tokens)} tokens" if tokens else "",
        f"{seen.latency_ms} ms" if seen.latency_ms else "",
        f"{seen.attempts} attempts" if seen.attempts > 1 else "",
        f"stopped short: {text(seen.incomplete, 'reason')}" if seen.incomplete else "",
        f"error: {text(error, 'message') or text(error, 'code')}" if error else "",
    )


_TOKENS: Final = {"input_tokens": "in", "output_tokens": "out"}


def _run(seen: RunView) -> str:
    if seen.phase == "start":
        return _joined(seen.run_id, f"starts ({seen.source})", seen.ref)
    pending = f"still pending: {', '.join(seen.pending)}" if seen.pending else ""
    return _joined(seen.run_id, f"ends ({seen.reason})", pending, seen.ref)


def _decision(seen: DecisionView) -> str:
    what = "withdrawn" if seen.withdrawn else seen.verdict
    args = "" if seen.args is None else f"with {canonical(seen.args).decode()}"
    return _joined(seen.call_id, what, args, f"by {seen.by}" if seen.by else "", seen.reason)


def _joined(*parts: str) -> str:
    return " · ".join(part for part in parts if part)


def _names(members: Mapping[str, Any]) -> str:
    return ", ".join(members)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _content(value: object) -> str:
    """The text of a message, an output or a summary; what is no text is named in brackets."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    return "\n".join(_part(part) for part in value if isinstance(part, dict))


def _part(part: Mapping[str, Any]) -> str:
    said = text(part, "text") or text(part, "refusal")
    return said if said or "text" in part else f"[{text(part, 'type') or 'part'}]"
