"""Which entries are redacted ones, what of the original they were made from, and what a redacted-only store takes.

Owns the ``redacted`` member: its form, who it is read for (format.md §10: before 0.13 it means nothing, whatever its
form) and the checks that rest on it. Says nothing of how an entry is redacted. Changes no entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.header import FORMAT_MINOR, REDACTION_MINOR, Header
from agentsession_cas.core.identity import ROOT, is_hash
from agentsession_cas.core.leaf import is_leaf_label
from agentsession_cas.core.source import EntrySource
from agentsession_cas.errors import BadRedacted, NotRedacted

__all__ = [
    "Span",
    "check_redacted",
    "check_redacted_header",
    "clear_redacted",
    "is_head_move",
    "redacted_of",
    "set_redacted",
]


class Span(NamedTuple):
    """Entries of the original, by position in its file order: 1-based, prefix included, ``last`` included."""

    first: int
    last: int

    def to_json(self) -> int | list[int]:
        """The span as an entry holds it: a number for one position, else ``[first, last]``."""
        return self.first if self.first == self.last else [self.first, self.last]


def redacted_of(entry: Entry | Draft, minor: int = FORMAT_MINOR) -> list[Span] | None:
    """The spans of a redacted entry, [] for one the redaction added; None for an entry that is not redacted.

    ``minor`` is that of the format the session's header names: before 0.13 the member is one nobody knows, and so is
    one in another form (format.md §10).
    """
    if minor < REDACTION_MINOR or "redacted" not in entry.body:
        return None
    spans = [_span(element) for element in _elements(entry.body["redacted"])]
    return [span for span in spans if span] if _ascend(spans) else None


def set_redacted(draft: Draft, spans: Iterable[Span]) -> Draft:
    """The draft marked as made from those entries of the original; no spans mark one the redaction added.

    Whatever ``redacted`` it held is replaced. Raises BadRedacted for spans that are not ascending, that overlap, or
    that begin before 1 or past their end.
    """
    made = list(spans)
    if not _ascend([span if 1 <= span.first <= span.last else None for span in made]):
        raise BadRedacted("spans ascend from 1 and do not overlap", where="/redacted")
    return _with_body(draft, {**draft.body, "redacted": [span.to_json() for span in made]})


def clear_redacted(draft: Draft) -> Draft:
    """The draft without ``redacted``, in whatever form: for content of a redacted entry appended as one's own."""
    return _with_body(draft, {name: value for name, value in draft.body.items() if name != "redacted"})


def is_head_move(entry: Entry, holds: Callable[[str], bool]) -> bool:
    """Whether an entry records a head move and holds nothing else (format.md §10, a bare leaf label).

    ``holds`` says whether an id is one of the session's entries; "" stands for the universal root.
    """
    if not is_leaf_label(entry.facts) or entry.parents or entry.body.keys() - {"label", "target"}:
        return False
    target = entry.body.get("target")
    return holds(ROOT) if target is None else is_hash(target) and holds(target)


def check_redacted(header: Header, entries: Iterable[Entry], source: EntrySource | None = None) -> None:
    """Refuse what a redacted-only store does not take: the session, or entries about to join it (format.md §10).

    ``source`` is the session the entries join; without one they are the whole session, prefix included. Raises
    NotRedacted.
    """
    check_redacted_header(header)
    met: set[str] = set()

    def holds(entry_id: str) -> bool:
        if entry_id == ROOT:
            return not header.base
        return entry_id in met or (source is not None and source.find(entry_id) >= 0)

    for entry in entries:
        if redacted_of(entry, header.minor) is None and not is_head_move(entry, holds):
            raise NotRedacted(
                "the entry is not a redacted one, and the store holds no other",
                where=entry.id,
                next_step="append it in the original and redact that",
            )
        met.add(entry.id)


def check_redacted_header(header: Header) -> None:
    """Refuse a session that says it is not redacted, for a redacted-only store. Raises NotRedacted."""
    if not header.redacted:
        raise NotRedacted("the session is not redacted, and the store holds no other", where=header.id)


def _elements(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else (None,)


def _span(element: Any) -> Span | None:
    """The span an element of ``redacted`` stands for; None for one in another form."""
    if type(element) is int:
        return Span(element, element) if element >= 1 else None
    if isinstance(element, list) and len(element) == 2 and all(type(end) is int for end in element):
        first, last = element
        return Span(first, last) if 1 <= first < last else None
    return None


def _ascend(spans: Iterable[Span | None]) -> bool:
    last = 0
    for span in spans:
        if span is None or span.first <= last:
            return False
        last = span.last
    return True


def _with_body(draft: Draft, body: dict[str, Any]) -> Draft:
    """The draft with another body, and so without the id it had."""
    return Draft(
        draft.type, body, parent=draft.parent, parents=draft.parents, ts=draft.ts, changes=draft.changes
    )
