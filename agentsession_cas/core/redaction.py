"""A whole session redacted, in memory: every entry rewritten and re-pointed, every request hash made again.

Owns what a redaction of a session is (format.md §10): one entry for each entry, in file order, so that the copy has the
original's tree; ids of its own; ``redacted`` naming the position each came from; a ``request_hash`` on just those
responses whose request the original proved. The same original and the same rewrite give the same bytes, which is how a
copy grows. What cannot be shown to be free of what the rewrite takes out is refused, never written. Linear, and no
recursion over history. Does no I/O, and looks into no sidecar blob.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.facts import Code, Facts, Kind, facts_of
from agentsession_cas.core.header import FORMAT, Header
from agentsession_cas.core.identity import ROOT, redacted_session_id
from agentsession_cas.core.memory import MemorySource
from agentsession_cas.core.redactrules import PLACEHOLDER
from agentsession_cas.core.remap import Remap, remap_header_refs, remap_refs
from agentsession_cas.core.requestwalk import RequestWalk, SavedWalk
from agentsession_cas.core.rewrite import Rewrite, rewrite_header_strings
from agentsession_cas.core.rewriter import Rewriter, UnmetPart
from agentsession_cas.core.source import EntrySource
from agentsession_cas.core.spans import Span, set_redacted
from agentsession_cas.core.tree import Session
from agentsession_cas.core.undo import walk_tree
from agentsession_cas.errors import AgentSessionError, BadInput, CallIDRepeated, InstructionsJoin

__all__ = ["Redacted", "redact_session"]

Json = dict[str, Any]

_PARTS: Final = "instructions_parts"
_NONE: Final[Mapping[str, Entry]] = {}


@dataclass(slots=True)
class Redacted:
    """A redacted session. ``made`` has each entry by the id of the original's entry it was made from.

    ``dropped`` counts references that went because they named another session's entry, ``unmapped`` those left because
    they name nothing in the original; ``opaque`` are the ids of extension entries, whose own members may name anything.
    """

    header: Header
    source: MemorySource = field(default_factory=MemorySource)
    leaf: str = ROOT
    made: dict[str, Entry] = field(default_factory=dict)
    dropped: int = 0
    unmapped: int = 0
    opaque: list[str] = field(default_factory=list)


def redact_session(
    original: Session, profile: str, rewrite: Rewrite, *, prefix: Mapping[str, Entry] = _NONE
) -> Redacted:
    """The redacted session of ``original`` under a profile: ``rewrite`` says what each string of text becomes.

    Call ids are rewritten too, everywhere in step. A session named is named by the id its own redaction under the
    profile has, but for a callee on another system; a reference into one is kept when its entry is ``prefix``'s, and
    else dropped. ``prefix`` has the redacted entries a fork's base leads to, where its origin was redacted; without,
    they are made here. An instruction part its path cannot rebuild becomes a placeholder.

    Raises NotRedacted for a string that no redaction changes (a name of the format, a ``legacy_id``, a session's id)
    and that ``rewrite`` would, CallIDRepeated for calls it makes one, KeyCollision, BadEntry, BadInput for no profile.
    """
    if not profile:
        raise BadInput("a redaction has a profile, which names its rules", next_step="give it a name and a version")
    return _Redaction(original, profile, rewrite, prefix).run()


class _Redaction:
    """One redaction. Positions are the original's, and the copy's."""

    def __init__(self, original: Session, profile: str, rewrite: Rewrite, prefix: Mapping[str, Entry]) -> None:
        self._original = original
        self._source = original.source
        self._profile = profile
        self._rewriter = Rewriter(rewrite, calls=True, strict=True)
        self._prefix = prefix
        self._calls: dict[str, str] = {}
        self._redacted = Redacted(original.header, MemorySource(base_count=original.source.base_count))

    def run(self) -> Redacted:
        redacted, source = self._redacted, self._source
        rewritten = _Rewritten(source, map(self._rewritten, self._original))
        hashes = _request_hashes(source, rewritten)
        for position in range(len(source)):
            old = source.entry_id(position)
            entry = self._prefix.get(old) if position < source.base_count else None
            if entry is None:
                entry = self._made(rewritten.entry(position), position, hashes.get(position))
            redacted.source.add(entry, source.parent(position))
            redacted.made[old] = entry
        redacted.leaf = self._entry("", self._original.leaf) or ROOT
        redacted.header = self._header()
        return redacted

    # --- what the entries say ---

    def _rewritten(self, entry: Entry) -> Draft:
        """An entry rewritten. Instructions beside parts that the path cannot rebuild stand without them."""
        rewriter = self._rewriter
        known = len(rewriter.unmet)
        try:
            draft = rewriter.rewrite(entry)
        except InstructionsJoin:
            return rewriter.rewrite(_without_parts(entry))
        unmet = rewriter.unmet[known:]
        if unmet and isinstance(_settings(entry.body, entry.type).get("instructions"), str):
            draft = rewriter.rewrite(_without_parts(entry))
        elif unmet:
            draft = _with_placeholders(draft, unmet)
        self._check_call(entry, draft)
        return draft

    def _check_call(self, entry: Entry, draft: Draft) -> None:
        if entry.facts.kind != Kind.FUNCTION_CALL:
            return
        new, old = draft.body["item"].get("call_id"), entry.call_id
        if old and self._calls.setdefault(new, old) != old:
            raise CallIDRepeated(
                "two calls whose ids hold what is to go would have one id",
                where=entry.id,
                next_step="give what is to go in their ids a placeholder that keeps them apart",
            )

    # --- what they name ---

    def _made(self, entry: Entry, position: int, request_hash: str | None) -> Entry:
        """The entry made of a rewritten one; ``request_hash`` is None where there is none, "" where it goes."""
        redacted, strings = self._redacted, self._rewriter.strings
        draft = Draft(entry.type, entry.body, parent=entry.parent, parents=entry.parents, ts=entry.ts)
        if request_hash is not None:
            draft.body = {name: value for name, value in entry.body.items() if name != "request_hash"}
            draft.body.update({"request_hash": request_hash} if request_hash else {})
        for number, reference in enumerate(entry.parents):
            # Its session and its entry are re-pointed; whatever else a reference holds comes through as written.
            more = {name: value for name, value in reference.items() if name not in ("session", "entry")}
            strings.keep_all(more, ("parents", number))
        remap = Remap(self._entry, session=self._session)
        if entry.type == "link" and isinstance(entry.body.get("url"), str):
            # A callee of another system: its session is not ours to redact.
            strings.keep_all(entry.body.get("session"), ("session",))
            remap = replace(remap, session=None)
        remapped = remap_refs(draft, remap)
        redacted.dropped += len(remapped.dropped)
        redacted.unmapped += len(remapped.unmapped)
        draft = set_redacted(remapped.draft, [Span(position + 1, position + 1)])
        parents = [dict(reference) for reference in draft.parents]
        made = Entry.seal(draft.type, draft.body, draft.parent or ROOT, entry.ts, parents)
        if remapped.opaque:
            redacted.opaque.append(made.id)
        return made

    def _entry(self, session: str, entry_id: str) -> str | None:
        """The id of what was made from an entry; "" for another session's that is not known here."""
        made = self._redacted.made.get(entry_id)
        if made is not None:
            return made.id
        return None if session in ("", self._original.id) else ROOT

    def _session(self, session: str) -> str:
        return redacted_session_id(session, self._profile)

    def _header(self) -> Header:
        strings = self._rewriter.strings
        header = rewrite_header_strings(self._original.header, strings)
        header, _ = remap_header_refs(header, Remap(self._entry, session=self._session))
        strings.keep(self._profile, ("redacted_from", "profile"))
        members = header.members()
        members.update(id=self._session(self._original.id), format=FORMAT, redacted=True)
        members["redacted_from"] = {"session": self._original.id, "profile": self._profile}
        return Header.parse(members)


class _Rewritten:
    """The original with its bodies rewritten and nothing re-pointed: what its requests are made of."""

    def __init__(self, source: EntrySource, drafts: Iterable[Draft]) -> None:
        self._source = source
        self._contents: list[bytes] = []
        self._facts: list[Facts] = []
        for draft in drafts:
            self._contents.append(canonical(draft.body))
            self._facts.append(facts_of(draft.type, draft.body))
        self.base_count = source.base_count
        self.find = source.find
        self.find_child = source.find_child
        self.find_legacy = source.find_legacy
        self.entry_id = source.entry_id
        self.parent = source.parent
        self.with_call = source.with_call
        self.about_call = source.about_call
        self.continued = source.continued
        self.is_above = source.is_above

    def __len__(self) -> int:
        return len(self._contents)

    def entry(self, position: int) -> Entry:
        old = self._source.entry(position)
        content = self._contents[position]
        return Entry.stored(
            old.id, old.type, old.parent, old.ts, old.content_hash, lambda: content, parents=old.parents
        )

    def facts(self, position: int) -> Facts:
        return self._facts[position]


def _request_hashes(original: EntrySource, rewritten: EntrySource) -> dict[int, str]:
    """The hash each response with one has in the copy, "" where the original's own does not hold.

    A request is made of settings and items, not of ids, so it can be hashed before there are any.
    """
    hashes: dict[int, str] = {}
    old, new = RequestWalk(original), RequestWalk(rewritten)
    turns: dict[int, tuple[SavedWalk, SavedWalk]] = {-1: (old.save(), new.save())}
    last = -1
    for position, depth, children in walk_tree(original):
        if depth <= last:
            for walk, saved in zip((old, new), turns[depth - 1], strict=True):
                walk.restore(saved)
        last = depth
        facts = original.facts(position)
        if facts.code != Code.RESPONSE:
            old.read(position, facts)
            new.read(position, rewritten.facts(position))
        elif isinstance(original.entry(position).body.get("request_hash"), str):
            hashes[position] = _hash_again(old, new, position)
        if children > 1:
            turns[depth] = old.save(), new.save()
    return hashes


def _hash_again(old: RequestWalk, new: RequestWalk, position: int) -> str:
    try:
        return new.verify(position).rebuilt if old.verify(position).ok else ""
    except AgentSessionError:  # a request that cannot be rebuilt proves nothing
        return ""


def _settings(body: Json, type_: str) -> Json:
    """The object that holds an entry's instructions: a config is one, a compaction has its checkpoint."""
    held = body.get("config") if type_ == "compaction" else body
    return held if isinstance(held, dict) else {}


def _with_settings(draft: Draft | Entry, settings: Json, *, id: str | None = None) -> Draft:
    body = {**draft.body, "config": settings} if draft.type == "compaction" else settings
    return Draft(draft.type, body, id=id, parent=draft.parent, parents=draft.parents, ts=draft.ts)


def _without_parts(entry: Entry) -> Draft:
    settings = {name: value for name, value in _settings(entry.body, entry.type).items() if name != _PARTS}
    return _with_settings(entry, settings, id=entry.id)


def _with_placeholders(draft: Draft, unmet: Sequence[UnmetPart]) -> Draft:
    """The draft with a text of its own for each part that nothing above it has."""
    settings = _settings(draft.body, draft.type)
    parts = list(settings[_PARTS])
    free = _free_ids(parts)
    for each in unmet:
        number = int(each.at.split("/")[-2])
        part = {name: value for name, value in parts[number].items() if name not in ("hash", "keep")}
        parts[number] = {**part, "id": part.get("id") or next(free), "text": PLACEHOLDER}
    return _with_settings(draft, {**settings, _PARTS: parts})


def _free_ids(parts: Sequence[Json]) -> Iterator[str]:
    """Ids that no part of a list has."""
    taken = {part.get("id") for part in parts if isinstance(part.get("id"), str)}
    number = 0
    while True:
        number += 1
        if f"redacted-{number}" not in taken:
            yield f"redacted-{number}"
