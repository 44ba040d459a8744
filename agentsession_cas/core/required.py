"""What a body must hold: for its line to be readable at all, and for a writer to append it (format.md §5).

Looks at one body and nothing around it. A reader is held to less than a writer: members no type can be read without, in
the sets the format lists. Everything else in a form the format does not describe is kept and means nothing, so no check
here looks at it. Changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from agentsession_cas.core.facts import CODES
from agentsession_cas.core.identity import is_hash
from agentsession_cas.errors import BadEntry, SyntheticLabel

__all__ = [
    "DECIDERS",
    "MODES",
    "OUTCOME_KINDS",
    "RELATIONS",
    "RUN_REASONS",
    "RUN_SOURCES",
    "VERDICTS",
    "WORKSPACE_KINDS",
    "check_items",
    "check_line",
    "check_required",
    "check_synthetic",
    "is_extension",
    "join_parts",
]

MODES: Final = ("steer", "followup")
VERDICTS: Final = ("proceed", "reject", "hold", "answer")
DECIDERS: Final = ("human", "policy", "agent")
RUN_SOURCES: Final = ("input", "resume")
RUN_REASONS: Final = ("done", "stopped", "interrupted", "input_required", "aborted", "error")
OUTCOME_KINDS: Final = ("feedback", "test", "task", "tool_error", "eval", "custom")
RELATIONS: Final = ("subsession", "fork_of", "continued_in", "judged_by", "peer")
WORKSPACE_KINDS: Final = ("local", "container", "remote")

_EXTENSION = re.compile(r"[^:]+:.+", re.DOTALL)
_CALLEES: Final = frozenset({"subsession", "peer"})

Body = Mapping[str, Any]


class _Rule(NamedTuple):
    """A member, the test its value has to pass (None when it is missing), and the test in words."""

    name: str
    test: Callable[[object], bool]
    form: str


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _text(name: str) -> _Rule:
    return _Rule(name, _is_text, "a non-empty string")


def _object(name: str) -> _Rule:
    return _Rule(name, _is_object, "an object")


def _one_of(name: str, values: tuple[str, ...]) -> _Rule:
    return _Rule(name, lambda value: isinstance(value, str) and value in values, "one of " + ", ".join(values))


_LINE: Final[dict[str, tuple[_Rule, ...]]] = {
    "item": (_object("item"),),
    "compaction": (_text("first_kept"), _object("summary")),
    "branch_summary": (_text("from"), _object("summary")),
    "run": (_text("run_id"), _one_of("phase", ("start", "end"))),
    "dispatch": (_text("call_id"), _text("target")),
    "decision": (_text("call_id"), _text("target"), _one_of("verdict", VERDICTS)),
    "queued": (_object("item"), _one_of("mode", MODES)),
}
_RUN: Final = {"start": (_one_of("source", RUN_SOURCES),), "end": (_one_of("reason", RUN_REASONS),)}
_WRITER: Final[dict[str, tuple[_Rule, ...]]] = {
    "outcome": (_one_of("kind", OUTCOME_KINDS),),
    "link": (_one_of("rel", RELATIONS), _Rule("session", lambda value: isinstance(value, str), "a string")),
    "custom": (_text("ns"),),
}
_PENDING: Final = _Rule(
    "pending",
    lambda value: isinstance(value, (list, tuple)) and all(isinstance(call, str) for call in value),
    "a list of call ids, written even when empty",
)
_REASON: Final = _text("reason")


def is_extension(type_: str) -> bool:
    """Whether a type has the ``ns:name`` form, which any reader keeps and any writer may use (format.md §5)."""
    return _EXTENSION.fullmatch(type_) is not None


def check_line(type_: str, body: Body) -> None:
    """Raise BadEntry for a body its type cannot be read without: what makes a line malformed (format.md §5)."""
    rules = _LINE.get(type_)
    if rules is None:
        return
    _check(type_, body, rules)
    if type_ == "run":
        _check(type_, body, _RUN[body["phase"]])


def check_required(type_: str, body: Body) -> None:
    """Raise BadEntry for a body no writer may append: a member missing, or a type of no namespace (format.md §5).

    Includes what a config entry alone shows to be no valid list of parts (format.md §7).
    """
    if type_ not in CODES and not is_extension(type_):
        raise BadEntry(
            f"no entry type is called {type_}", where="/type", next_step="give a type of your own a name like ns:name"
        )
    check_line(type_, body)
    rules = _WRITER.get(type_)
    if rules is not None:
        _check(type_, body, rules)
    special = _SPECIAL.get(type_)
    if special is not None:
        special(body)


def check_synthetic(type_: str, body: Body) -> None:
    """Raise SyntheticLabel for a label only a projection writes (store.md A10)."""
    if type_ == "label" and body.get("synthetic") is True:
        raise SyntheticLabel("only a projection writes a synthetic label", where="/synthetic")


def check_items(type_: str, body: Body) -> None:
    """Raise BadEntry for a body that holds an ``item_reference``, which no writer may write (format.md §5)."""
    for pointer, item in _items(type_, body):
        if not isinstance(item, dict):
            continue
        kind = item.get("type")
        if kind == "item_reference" or (kind is None and "id" in item and len(item) <= 1 + ("type" in item)):
            raise BadEntry("an item_reference cannot be recorded", where=pointer, next_step="record the item it names")


def join_parts(parts: list[Any]) -> str | None:
    """The instructions a list of parts composes when each carries its text; None when one does not (format.md §7)."""
    texts = []
    for part in parts:
        text = part.get("text")
        if "id" not in part or ("hash" in part and text is None):
            return None
        texts.append(text if isinstance(text, str) else "")
    return "\n\n".join(texts)


def _check(type_: str, body: Body, rules: tuple[_Rule, ...]) -> None:
    for name, test, form in rules:
        if not test(body.get(name)):
            article = "an" if type_[0] in "aeiou" else "a"
            raise BadEntry(f"{article} {type_} entry needs {name}: {form}", where=f"/{name}")


def _items(type_: str, body: Body) -> Iterator[tuple[str, Any]]:
    """The items a body of that type holds, each with its pointer."""
    if type_ in ("item", "queued"):
        yield "/item", body.get("item")
    elif type_ in ("compaction", "branch_summary"):
        yield "/summary", body.get("summary")
        pinned = body.get("pinned")
        if type_ == "compaction" and isinstance(pinned, (list, tuple)):
            yield from ((f"/pinned/{position}", item) for position, item in enumerate(pinned))


def _check_run(body: Body) -> None:
    if body["phase"] == "end":
        _check("run", body, (_PENDING,))


def _check_decision(body: Body) -> None:
    if body["verdict"] == "reject":
        _check("decision", body, (_REASON,))


def _check_label(body: Body) -> None:
    """Both members are written; a null target names the universal root, for a leaf label or to clear one."""
    label = body.get("label", "")
    target = body.get("target", "")
    if label is not None and not _is_text(label):
        raise BadEntry("a label entry needs label: a non-empty string, or null to clear", where="/label")
    if target is None and label not in ("leaf", None):
        raise BadEntry("only a leaf label may name the universal root", where="/target")
    if target is not None and not _is_text(target):
        raise BadEntry("a label entry needs target: an entry id, or null for the universal root", where="/target")


def _check_link(body: Body) -> None:
    """A link names a session; a callee reached by a url may publish none, and a cancel notice names its link.

    What else a peer link needs is a record rule (format.md §9), which says so by its own name.
    """
    rel = body["rel"]
    reached = rel in _CALLEES and (_is_text(body.get("url")) or body.get("cancel") == "sent")
    if body["session"] == "" and not reached and rel != "peer":
        raise BadEntry("a link entry needs session: a non-empty string, unless a callee has a url", where="/session")


def _check_config(body: Body) -> None:
    """What a config entry alone shows of its lists (format.md §7); what needs the path is no condition."""
    replace = body.get("replace") is True
    parts = body.get("instructions_parts")
    if isinstance(parts, list) and parts:
        _check_parts(parts, body.get("instructions"), replace)
    omitted = body.get("instructions_omitted")
    if isinstance(omitted, list):
        _check_omitted(omitted, replace)
    omit = body.get("omit")
    if isinstance(omit, dict):
        _check_ids(omit.get("items"), "/omit/items")
        outputs = omit.get("outputs")
        if isinstance(outputs, dict):
            _check_ids(outputs.get("items"), "/omit/outputs/items")


def _check_parts(parts: list[Any], instructions: object, replace: bool) -> None:
    at = "/instructions_parts"
    ids = set()
    named = False
    for position, part in enumerate(parts):
        where = f"{at}/{position}"
        if _is_keep(part, {"keep"}, where):
            named = True
            continue
        if part["id"] in ids:
            raise BadEntry(f"the part {part['id']} is listed twice", where=where)
        ids.add(part["id"])
        if "hash" in part and part.get("text") is None:
            named = True
            if not is_hash(part["hash"]):
                raise BadEntry("the hash of a part is not sha256: and 64 lowercase hex digits", where=f"{where}/hash")
    if named and replace and not isinstance(instructions, str):
        raise BadEntry(
            "a part named by hash or keep resolves against nothing under replace",
            where=at,
            next_step="give each part its text, or the instructions beside them",
        )
    joined = join_parts(parts)
    if isinstance(instructions, str) and joined is not None and joined != instructions:
        raise BadEntry("the instructions are not their parts joined by a blank line", where="/instructions")


def _check_omitted(omitted: list[Any], replace: bool) -> None:
    ids: list[Any] = []
    kept = False
    for position, part in enumerate(omitted):
        where = f"/instructions_omitted/{position}"
        if _is_keep(part, {"keep", "of"}, where):
            kept = True
        elif "of" in part:
            raise BadEntry("of belongs beside a keep", where=f"{where}/of")
        else:
            ids.append(part["id"])
    if kept and replace:
        raise BadEntry("a keep counts over nothing under replace", where="/instructions_omitted")
    if kept and len(set(ids)) < len(ids):
        raise BadEntry("a list with a keep names each id once", where="/instructions_omitted")


def _is_keep(part: Any, members: set[str], where: str) -> bool:
    """Whether an element of a list of parts is a keep, alone with what it may carry, and not a part with an id."""
    if isinstance(part, dict) and _is_text(part.get("id")):
        if "keep" in part:
            raise BadEntry("a keep beside an id means nothing", where=where)
        return False
    keep = part.get("keep") if isinstance(part, dict) else None
    if type(keep) is not int or keep < 1:
        raise BadEntry("an element is neither a part with an id nor a keep of at least 1", where=where)
    if not part.keys() <= members:
        raise BadEntry("a keep carries a member it may not", where=where)
    if "of" in part and not is_hash(part["of"]):
        raise BadEntry("the of of a keep is not an entry id", where=f"{where}/of")
    return True


def _check_ids(ids: object, where: str) -> None:
    if isinstance(ids, list) and "" in ids:
        raise BadEntry("an omitted entry has an empty id", where=where)


_SPECIAL: Final[dict[str, Callable[[Body], None]]] = {
    "config": _check_config,
    "decision": _check_decision,
    "label": _check_label,
    "link": _check_link,
    "run": _check_run,
}
