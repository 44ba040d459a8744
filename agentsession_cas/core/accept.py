"""Everything an append decides, short of storing (store.md A1, A3): refusals in their order, both hashes, the outcome.

:func:`prepare` is the one door: a session in memory and a store's writer both append through it, so they cannot differ.
It reads the session through an :class:`~agentsession_cas.core.source.EntrySource` and changes nothing; whoever calls it
stores what it gives, in order. A refusal is an exception and leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

from agentsession_cas.core.canonical import canonical, fitted
from agentsession_cas.core.entry import (
    RESERVED,
    Draft,
    Entry,
    Reference,
    check_references,
    check_reserved,
    seal_content,
    sidecar_blobs,
)
from agentsession_cas.core.facts import Code, Facts, Flag, Kind
from agentsession_cas.core.header import FORMAT, REDACTION_MINOR, Header
from agentsession_cas.core.identity import ROOT, is_hash
from agentsession_cas.core.leaf import is_leaf_label, may_rest
from agentsession_cas.core.memory import Overlay
from agentsession_cas.core.normalise import merge_normalised, normalised_body
from agentsession_cas.core.parsing import LINE_MAX
from agentsession_cas.core.records import check_append
from agentsession_cas.core.required import check_items, check_required, check_synthetic
from agentsession_cas.core.source import EntrySource
from agentsession_cas.core.timestamps import is_canonical_ts
from agentsession_cas.errors import BadConvergence, BadID, BadJSON, BaseRule, LimitExceeded, NoEntry, NoRaise

__all__ = [
    "NOWHERE",
    "PLAIN_MAX",
    "Elsewhere",
    "Making",
    "Outcome",
    "Prepared",
    "Result",
    "check_convergence",
    "outcome_of",
    "prepare",
    "prepare_batch",
    "raised_for_append",
]


class Outcome(StrEnum):
    """What an append did (store.md A3)."""

    CONTINUED = "continued"
    BRANCHED = "branched"
    HELD = "held"
    LEAF_MOVED = "leaf_moved"
    LEAF_NOT_MOVED = "leaf_not_moved"


class Making(NamedTuple):
    """By-products of making an entry: its envelope, and the raw hashes of envelope and body, one behind the other."""

    envelope: bytes
    digests: bytes


class Prepared(NamedTuple):
    """An entry ready to be stored, or held already.

    ``parent_position`` is the parent's (-1: the universal root); in a batch it counts the entries of the batch added
    before it. ``head_after`` is the head once it is stored. ``unresolved`` lists the references that name nothing the
    session or :class:`Elsewhere` holds: an entry id, a blob's hash, or ``<session>@<entry>``. ``body`` is the entry's
    as it was prepared, ``made`` what its making gave: spared a second time, and not to be kept.
    """

    entry: Entry
    body: Mapping[str, Any]
    parent_position: int
    outcome: Outcome
    head_after: str
    unresolved: list[str]
    made: Making

    @property
    def held(self) -> bool:
        """Whether the session held the entry already: nothing is to be stored."""
        return self.outcome is Outcome.HELD


class Result(NamedTuple):
    """What an append reports (store.md A3)."""

    id: str
    outcome: Outcome
    durable: bool
    unresolved: list[str]

    @classmethod
    def of(cls, prepared: Prepared, *, durable: bool) -> Result:
        """The report of an entry that was stored."""
        return cls(prepared.entry.id, prepared.outcome, durable, prepared.unresolved)


class Elsewhere(Protocol):
    """What a session's entries may name that is not in the session."""

    def has_blob(self, blob: str) -> bool:
        """Whether the blob of that hash is held."""

    def has_entry(self, session: str, entry_id: str) -> bool:
        """Whether another session of that id holds the entry."""


class _Nowhere:
    """Nothing but the session itself is at hand."""

    def has_blob(self, blob: str) -> bool:  # noqa: ARG002
        return False

    def has_entry(self, session: str, entry_id: str) -> bool:  # noqa: ARG002
        return False


PLAIN_MAX: Final = LINE_MAX - 64 * 1024
"""A body up to this, without ``parents``, fits a line."""

_make: Final = tuple.__new__  # what a NamedTuple is made with, without the call around it

NOWHERE: Final[Elsewhere] = _Nowhere()
"""Nothing but the session itself is at hand: whatever lies outside is unresolved."""


def prepare(
    source: EntrySource,
    header: Header,
    head: str,
    draft: Draft,
    *,
    now: Callable[[], str],
    elsewhere: Elsewhere = NOWHERE,
) -> Prepared:
    """Decide one append (store.md A1, A3).

    ``head`` is the session's ("" for the universal root), ``now`` gives the canonical ``ts`` of a draft without one.
    Raises, in this order: BadEntry, ReservedMember, SyntheticLabel, BadEntry for an ``item_reference``, BadID for what
    is no id, NoEntry or BaseRule, BadConvergence, BadNormalisation or BadJSON, BadID, and, unless the entry is held,
    the record rules.
    """
    type_ = draft.type
    if not _passes(type_, draft.body):
        _check_body(type_, draft.body)
    parent, parent_position = _place(source, head, draft)
    references: list[Reference] = []
    if draft.parents:
        references = check_references(draft.parents, parent)
        check_convergence(source.find, header, references)
        if draft.id is None:
            references.sort(key=_reference_order)
    content, body = _content(draft)
    ts = draft.ts
    if ts is None:
        ts = now()
    elif not is_canonical_ts(ts):
        raise BadID(
            f"{ts!r:.80} is not the one spelling of a ts",
            where="/ts",
            next_step="write it like 2026-01-31T12:00:00Z, or leave it out",
        )
    hashed = sha256(content).digest()
    entry, envelope, digest = seal_content(content, hashed, type_, body, parent, ts, references)
    if len(content) > PLAIN_MAX or references:
        _check_size(entry)
    id_ = entry.id
    if draft.id is not None and draft.id != id_:
        raise BadID(
            f"the id is not the hash of the entry, which is {id_}",
            where=draft.id,
            next_step="leave the id out when anything of the entry was changed",
        )
    made = _make(Making, (envelope, digest + hashed))
    if source.find_child(parent_position, id_) >= 0:
        return Prepared(entry, body, parent_position, Outcome.HELD, head, [], made)
    facts = entry.facts
    if facts.code is not Code.ITEM or facts.kind is Kind.FUNCTION_CALL:
        check_append(source, header, parent_position, facts, body)
    if parent == head and facts.code is not Code.LABEL:
        outcome, head_after = Outcome.CONTINUED, id_
    else:
        outcome, head_after = outcome_of(source, head, entry)
    unresolved = _unresolved(source, header, entry, facts, body, elsewhere)
    return _make(Prepared, (entry, body, parent_position, outcome, head_after, unresolved, made))


def prepare_batch(
    source: EntrySource,
    header: Header,
    head: str,
    drafts: Iterable[Draft],
    *,
    now: Callable[[], str],
    elsewhere: Elsewhere = NOWHERE,
) -> list[Prepared]:
    """Decide a batch: each entry as :func:`prepare` does, over the session as the entries before it leave it."""
    overlay = Overlay(source)
    batch = []
    for draft in drafts:
        prepared = prepare(overlay, header, head, draft, now=now, elsewhere=elsewhere)
        batch.append(prepared)
        head = prepared.head_after
        if not prepared.held:
            overlay.add(prepared.entry, prepared.parent_position)
    return batch


def raised_for_append(source: EntrySource, header: Header) -> Header:
    """The header an append is written under: raised to this package's format (format.md §11).

    Raises NoRaise when the raise would give a member a meaning it was not written with: ``redacted_from`` in a header
    from before 0.13, or ``redacted`` in an entry under such a header (format.md §10).
    """
    if header.minor < REDACTION_MINOR:
        for position in range(len(source)):
            if source.facts(position).flags & Flag.REDACTED:
                raise NoRaise(
                    f"a session of {header.format} with an entry that holds redacted is not raised to {FORMAT}",
                    where=source.entry_id(position),
                    next_step="continue it in a new session",
                )
    return header.raised()


def outcome_of(source: EntrySource, head: str, entry: Entry) -> tuple[Outcome, str]:
    """What storing the entry does to the head (format.md §4)."""
    if is_leaf_label(entry.facts):
        target = entry.facts.target
        return (Outcome.LEAF_MOVED, target) if may_rest(source, target) else (Outcome.LEAF_NOT_MOVED, head)
    if entry.parent == head:
        return Outcome.CONTINUED, entry.id
    return Outcome.BRANCHED, head


def check_convergence(find: Callable[[str], int], header: Header, references: Iterable[Reference]) -> None:
    """Raise BadConvergence for a reference into this session that names no entry before it (format.md §4).

    ``find`` gives the position of an entry of the session, or -1.
    """
    for reference in references:
        if _foreign(header, reference) == "" and find(reference["entry"]) < 0:
            raise BadConvergence("a reference names no entry of this session", where=reference["entry"])


def _passes(type_: str, body: Mapping[str, Any]) -> bool:
    """Whether a body is one that :func:`_check_body` has nothing against, by a short look: most are."""
    item = body.get("item") if type_ == "item" else None
    if type(item) is not dict:
        return False
    kind = item.get("type")
    return type(kind) is str and kind != "item_reference" and RESERVED.isdisjoint(body)


def _check_body(type_: str, body: Mapping[str, Any]) -> None:
    """What a writer asks of a body by itself, in the order of refusals."""
    check_required(type_, body)
    check_reserved(body)
    check_synthetic(type_, body)
    check_items(type_, body)


def _check_size(entry: Entry) -> None:
    """Raise LimitExceeded for an entry whose line is longer than a line may be (format.md §4)."""
    size = len(entry.line)
    if size > LINE_MAX:
        raise LimitExceeded(
            f"the entry is a line of {size} bytes, more than {LINE_MAX}", next_step="keep large data as a blob"
        )


def _place(source: EntrySource, head: str, draft: Draft) -> tuple[str, int]:
    """The parent and its position, after the parent and the base rule (store.md A3, format.md §4).

    What a null parent means depends on whether there is an id: it has to be one.
    """
    if draft.id is not None and not is_hash(draft.id):
        raise BadID(f"{draft.id!r:.80} is no entry id", where="/id", next_step="leave the id out: it is computed")
    parent = head if draft.id is None and not draft.parent else draft.parent or ROOT
    if parent == ROOT:
        if source.base_count:
            raise BaseRule("an entry of a session with a base cannot hang from the universal root", where="/parent")
        return ROOT, -1
    position = source.find(parent)
    if position < 0:
        raise NoEntry(
            "the parent is not in the session",
            where=parent,
            next_step="append it first, or leave parent out to continue from the head",
        )
    if position < source.base_count - 1:
        raise BaseRule(
            "an entry cannot hang from above the base", where=parent, next_step="fork the session at that entry"
        )
    return parent, position


def _content(draft: Draft) -> tuple[bytes, dict[str, Any]]:
    """The canonical bytes of a body and the body they are of, normalised only where it has to be (format.md §4)."""
    brought = draft.body.get("normalised")
    # A body that comes with its id keeps its order, but not a form the format cannot carry.
    if not draft.changes and (brought is None or draft.id is not None):
        if brought is not None:
            merge_normalised(brought, ())
        try:
            return fitted(canonical(draft.body)), draft.body
        except BadJSON:
            pass
    body = normalised_body(draft.type, draft.body, draft.changes)
    return fitted(canonical(body)), body


def _unresolved(
    source: EntrySource, header: Header, entry: Entry, facts: Facts, body: dict[str, Any], elsewhere: Elsewhere
) -> list[str]:
    """The references of an entry that cannot be resolved, which are listed and never refused (store.md A1)."""
    missing: list[str] = []
    name = _NAMING.get(facts.code)
    if name is not None and name in body and _names_own(facts):
        named = body[name]
        if isinstance(named, str) and named and source.find(named) < 0:
            missing.append(named)
    if facts.flags & Flag.BLOBS:
        missing += (blob for blob in sidecar_blobs(entry.content) if not elsewhere.has_blob(blob))
    for reference in entry.parents:
        session = _foreign(header, reference)
        if session and not elsewhere.has_entry(session, reference["entry"]):
            missing.append(f"{session}@{reference['entry']}")
    return missing


def _names_own(facts: Facts) -> bool:
    """Whether what a body names is an entry of this session: of links, some name one of another."""
    return facts.code is not Code.LINK or facts.kind is Kind.JUDGED_BY or bool(facts.flags & Flag.CANCEL)


def _foreign(header: Header, reference: Reference) -> str:
    """The other session a reference is into, or "" for this one."""
    session = reference.get("session")
    return session if isinstance(session, str) and session != header.id else ""


def _reference_order(reference: Reference) -> tuple[str, str]:
    """How a writer sorts references: by session and entry in code point order, those without a session first."""
    session = reference.get("session")
    return (session if isinstance(session, str) else "", reference["entry"])


_NAMING: Final = {
    Code.ITEM: "queued_from",
    Code.COMPACTION: "first_kept",
    Code.BRANCH_SUMMARY: "from",
    Code.LABEL: "target",
    Code.OUTCOME: "target",
    Code.LINK: "target",
}
"""Which member names an entry of this session; a decision's and a dispatch's target is tested before."""
