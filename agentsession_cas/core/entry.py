"""One entry: accepted and immutable (:class:`Entry`), or on its way to be appended (:class:`Draft`).

The line is the truth. An entry holds the canonical bytes of its body (*content*, format.md §4) and the few members of
its envelope; the decoded body, the whole line and the facts are made when somebody asks. An entry's hashes are of its
own members and of nothing else, and nothing unknown is ever dropped.

This module knows one line at a time. What needs the entries around it (parents that exist, the base rule, what a writer
must refuse) belongs to :mod:`~agentsession_cas.core.accept` and :mod:`~agentsession_cas.core.jsonl`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

from agentsession_cas.core.canonical import canonical, fitted
from agentsession_cas.core.facts import Facts, facts_of
from agentsession_cas.core.given import as_object
from agentsession_cas.core.identity import ROOT, is_hash
from agentsession_cas.core.normalise import Change, normalise_bytes
from agentsession_cas.core.parsing import parse, parse_trusted
from agentsession_cas.core.payload import ENTRY
from agentsession_cas.core.required import check_line
from agentsession_cas.core.timestamps import canonical_ts, is_canonical_ts
from agentsession_cas.errors import BadConvergence, BadEntry, BadFile, BadID, BadJSON, ReservedMember

__all__ = [
    "ENVELOPE",
    "RESERVED",
    "SIDECAR",
    "Draft",
    "Entry",
    "Json",
    "Reference",
    "Sealed",
    "check_references",
    "check_reserved",
    "seal_content",
    "sidecar_blobs",
]

Json = dict[str, Any]
Reference = dict[str, Any]
"""One element of ``parents``: ``{"entry": id, "session"?: id, …}`` with whatever else it holds (format.md §4)."""

ENVELOPE: Final = ("id", "parent", "parents", "ts", "type")
"""The members of a line that are not its body."""
RESERVED: Final = frozenset({*ENVELOPE, "content"})
"""Names a body may not have at its top level (format.md §4)."""

SIDECAR: Final = b'"sidecar:sha256:'
"""What a body without has no sidecar blob."""
_BLOB: Final = re.compile(rb'"sidecar:(sha256:[0-9a-f]{64})"')
_new: Final = object.__new__
_make: Final = tuple.__new__  # what a NamedTuple is made with, without the call around it


class Entry:
    """An accepted entry. Never changes; equal to another exactly when their ids are.

    ``parent`` is "" for a child of the universal root; ``parents`` is a list of references, [] when there are none;
    ``content_hash`` and ``id`` are ``sha256:`` hashes. Make one with :meth:`seal`, :meth:`from_line` or :meth:`stored`.
    """

    __slots__ = (
        "_body",
        "_content",
        "_facts",
        "_load",
        "content_hash",
        "id",
        "parent",
        "parents",
        "ts",
        "type",
    )

    id: str
    type: str
    parent: str
    parents: list[Reference]
    ts: str
    content_hash: str
    _content: bytes | None
    _load: Callable[[], bytes] | None
    _body: Json | None
    _facts: Facts | None

    @classmethod
    def seal(
        cls, type_: str, body: Mapping[str, Any], parent: str, ts: str, parents: Sequence[Reference] = ()
    ) -> Entry:
        """Compute both hashes of an entry that passed every check (format.md §4).

        ``parent`` is "" or an entry id, ``ts`` is in its one spelling, ``parents`` in the order to be written. The body
        is not kept, so changing it afterwards changes nothing here. Raises BadJSON for a value no line can hold and
        BadID for a parent that is no id.
        """
        if parent and not is_hash(parent):
            raise BadID("the parent is not an entry id", where="/parent")
        references = [dict(reference) for reference in parents]
        return cls.of_content(canonical(body), type_, body, parent, ts, references)

    @classmethod
    def of_content(
        cls, content: bytes, type_: str, body: Mapping[str, Any], parent: str, ts: str, parents: list[Reference]
    ) -> Entry:
        """:meth:`seal` for a caller that has the canonical bytes of ``body``; the entry keeps ``parents`` itself."""
        return seal_content(content, sha256(content).digest(), type_, body, parent, ts, parents).entry

    @classmethod
    def from_line(cls, data: bytes) -> Entry:
        """Read one line of a file and verify all that one line can show (format.md §2, §4, §5).

        ``data`` is the line without its LF, in any spelling; every member is kept. Raises BadJSON or LimitExceeded for
        bytes that fail the I-JSON test, BadFile for what is no entry object, BadID for an id, parent or ``ts`` of
        another form and for an id that is not the hash of the line, ReservedMember, BadConvergence for malformed
        ``parents``, BadEntry for a line without a member its type cannot be read without.
        """
        body = parse(data)
        if not isinstance(body, dict):
            raise BadFile("a line holds one JSON object")
        type_ = body.pop("type", None)
        if not isinstance(type_, str) or not type_:
            raise BadFile("the line has no type", where="/type")
        id_ = body.pop("id", None)
        if not is_hash(id_):
            raise BadID("the id is not sha256: and 64 lowercase hex digits", where="/id")
        parent = body.pop("parent", None)
        if parent is None:
            parent = ROOT
        elif not is_hash(parent):
            raise BadID("the parent is not an entry id", where="/parent")
        ts = body.pop("ts", None)
        if not isinstance(ts, str) or not is_canonical_ts(ts):
            raise BadID("the ts is not in its one spelling", where="/ts")
        parents = body.pop("parents", None)
        references = [] if parents is None else check_references(parents, parent)
        check_reserved(body)
        check_line(type_, body)
        entry = cls.of_content(fitted(canonical(body)), type_, body, parent, ts, references)
        if entry.id != id_:
            raise BadID(f"the id is not the hash of the line, which is {entry.id}", where=str(id_))
        return entry

    @classmethod
    def stored(
        cls,
        id_: str,
        type_: str,
        parent: str,
        ts: str,
        content_hash: str,
        load: Callable[[], bytes],
        *,
        parents: Sequence[Reference] = (),
        facts: Facts | None = None,
    ) -> Entry:
        """An entry whose envelope is known and verified; ``load`` gives its verified content when it is asked for."""
        entry = cls.__new__(cls)
        entry.id = id_
        entry.type = type_
        entry.parent = parent
        entry.parents = list(parents)
        entry.ts = ts
        entry.content_hash = content_hash
        entry._content = None
        entry._load = load
        entry._body = None
        entry._facts = facts
        return entry

    @property
    def content(self) -> bytes:
        """The canonical bytes of the body."""
        # Two threads may both load: they load the same bytes.
        content = self._content
        if content is None:
            assert self._load is not None
            content = self._content = self._load()
        return content

    @property
    def body(self) -> Json:
        """The decoded body. Shared: do not change it."""
        body = self._body
        if body is None:
            body = self._body = parse_trusted(self.content)
        return body

    @property
    def facts(self) -> Facts:
        """What is known of the entry without its body."""
        facts = self._facts
        if facts is None:
            facts = self._facts = facts_of(self.type, self.body, blobs=_names_blob(self.content))
        return facts

    @property
    def envelope(self) -> bytes:
        """The canonical bytes the id is the hash of."""
        return _envelope(self.content_hash, self.parent, self.parents, self.ts, self.type)

    @property
    def line(self) -> bytes:
        """The canonical bytes of the whole line, without its LF."""
        return canonical(self.members())

    @property
    def call_id(self) -> str:
        """The call an entry is about: of the item of an ``item``, else of the body; "" when it names none."""
        holder = self.body.get("item") if self.type == "item" else self.body
        call_id = holder.get("call_id") if isinstance(holder, dict) else None
        return call_id if isinstance(call_id, str) else ""

    def members(self) -> Json:
        """Every member of the line, as a dict of its own."""
        members: Json = parse_trusted(self.content)
        members["type"] = self.type
        members["id"] = self.id
        members["parent"] = self.parent or None
        members["ts"] = self.ts
        if self.parents:
            members["parents"] = [dict(reference) for reference in self.parents]
        return members

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Entry) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Entry({self.type}, {self.id})"


class Sealed(NamedTuple):
    """An entry with what its making gave: the canonical bytes its id is the hash of, and that hash, raw."""

    entry: Entry
    envelope: bytes
    digest: bytes


def seal_content(
    content: bytes,
    digest: bytes,
    type_: str,
    body: Mapping[str, Any],
    parent: str,
    ts: str,
    parents: list[Reference],
) -> Sealed:
    """:meth:`Entry.seal` where the canonical bytes of ``body`` and their SHA-256, raw, are known.

    The entry keeps ``parents`` itself.
    """
    entry = _new(Entry)
    entry.type = type_
    entry.parent = parent
    entry.parents = parents
    entry.ts = ts
    content_hash = entry.content_hash = "sha256:" + digest.hex()
    envelope = _envelope(content_hash, parent, parents, ts, type_)
    id_digest = sha256(envelope).digest()
    entry.id = "sha256:" + id_digest.hex()
    entry._content = content
    entry._load = None
    entry._body = None
    entry._facts = facts_of(type_, body, blobs=_names_blob(content))
    return _make(Sealed, (entry, envelope, id_digest))


def _envelope(content_hash: str, parent: str, parents: Sequence[Reference], ts: str, type_: str) -> bytes:
    named = f'"{parent}"' if parent else "null"
    if parents:
        named += f',"parents":{canonical(parents).decode()}'
    return f'{{"content":"{content_hash}","parent":{named},"ts":"{ts}","type":{_quoted(type_)}}}'.encode()


class Draft:
    """An entry not yet accepted: what a caller said of it, nothing filled in.

    ``parent`` None or "" is "not said": the head for an entry without an id, the universal root for one with its id
    (store.md A3). ``ts`` None means the time of the append. ``changes`` are the elements for ``normalised`` that
    decoding a line with values no line may hold already made.
    """

    __slots__ = ("body", "changes", "id", "parent", "parents", "ts", "type")

    def __init__(
        self,
        type_: str,
        body: Mapping[str, Any],
        *,
        id: str | None = None,
        parent: str | None = None,
        parents: Sequence[Mapping[str, Any]] = (),
        ts: str | None = None,
        changes: Sequence[Change] = (),
    ) -> None:
        self.type = type_
        self.body: Json = body if type(body) is dict else dict(as_object(body, "a body"))
        self.id = id
        self.parent = parent
        self.parents = parents
        self.ts = ts
        self.changes = changes

    @classmethod
    def of(cls, source: Draft | Entry | Mapping[str, Any] | bytes | str) -> Draft:
        """A draft of a draft (itself), an accepted entry, the members of a line, or the text of one.

        Text that fails the I-JSON test is normalised, and says so in ``changes`` (format.md §4). Raises BadEntry for
        what is no entry, BadID for an id, parent or ``ts`` that is no string, BadConvergence for ``parents`` that are
        no list, BadJSON for text that cannot be normalised.
        """
        if isinstance(source, Draft):
            return source
        if isinstance(source, Entry):
            return cls(
                source.type, source.body, id=source.id, parent=source.parent, parents=source.parents, ts=source.ts
            )
        changes: list[Change] = []
        if isinstance(source, str):
            source = source.encode("utf-8", "surrogatepass")
        if isinstance(source, bytes):
            source, changes = _decode(source)
        if not isinstance(source, Mapping):
            raise BadEntry(
                f"an entry is a JSON object, not a {type(source).__name__}", next_step="give the members of one line"
            )
        body = dict(source)
        type_ = body.pop("type", None)
        if not isinstance(type_, str) or not type_:
            raise BadEntry("the entry has no type", where="/type", next_step="give it one: item, config, run, …")
        parents = body.pop("parents", None)
        if not isinstance(parents, (list, tuple, type(None))):
            raise BadConvergence("parents is not a list", where="/parents")
        return cls(
            type_,
            body,
            id=_optional_text(body, "id"),
            parent=_optional_text(body, "parent"),
            parents=parents or (),
            ts=_optional_text(body, "ts"),
            changes=changes,
        )

    def at(
        self,
        *,
        parent: str | None = None,
        ts: str | datetime | None = None,
        parents: Sequence[Mapping[str, Any]] | None = None,
    ) -> Draft:
        """This draft somewhere else in the tree or in time; what is left out stays.

        ``parent`` is an entry id, ``parents`` are references; ``ts``, an RFC 3339 time or an aware ``datetime``, is
        respelled (format.md §4). The id, which is of the draft as it was, is dropped. Raises BadTimestamp.
        """
        return Draft(
            self.type,
            self.body,
            parent=self.parent if parent is None else parent,
            parents=self.parents if parents is None else parents,
            ts=self.ts if ts is None else canonical_ts(ts),
            changes=self.changes,
        )

    def __repr__(self) -> str:
        return f"Draft({self.type}, {self.body!r})"


def check_reserved(body: Mapping[str, Any]) -> None:
    """Raise ReservedMember for a body with a top-level member by an envelope name (format.md §4)."""
    if not RESERVED.isdisjoint(body):
        name = min(RESERVED.intersection(body))
        raise ReservedMember(f"a body may not have a member {name}", where=f"/{name}")


def check_references(value: object, parent: str) -> list[Reference]:
    """The references of a ``parents`` member, after every rule one entry alone can show (format.md §4, Convergence).

    Raises BadConvergence for a value that is no list of objects, a reference that names no entry id, names ``parent``,
    or names an entry a second time.
    """
    if not isinstance(value, (list, tuple)):
        raise BadConvergence("parents is not a list", where="/parents")
    seen = {parent}
    references: list[Reference] = []
    for position, reference in enumerate(value):
        named = reference.get("entry") if isinstance(reference, Mapping) else None
        where = f"/parents/{position}"
        if not isinstance(named, str) or not is_hash(named):
            raise BadConvergence("a reference names no entry id", where=where)
        if named in seen:
            what = "the entry's own parent" if named == parent else "an entry a second time"
            raise BadConvergence(f"a reference names {what}", where=where)
        seen.add(named)
        references.append(dict(reference))
    return references


def sidecar_blobs(content: bytes) -> list[str]:
    """The hashes of the blobs a body names by a ``sidecar:`` URL, each once, in order (store.md A9).

    ``content`` is canonical. A URL is a whole string value; text that merely speaks of one names nothing.
    """
    if SIDECAR not in content:
        return []
    return list(dict.fromkeys(found.decode() for found in _BLOB.findall(content)))


def _decode(data: bytes) -> tuple[Any, list[Change]]:
    """The members of a line, with a record of what was changed of its body to read them (format.md §4)."""
    try:
        return parse(data), []
    except BadJSON:
        members, changes = normalise_bytes(data, ENTRY)
    if not isinstance(members, dict):
        return members, []
    for change in changes:
        if change["at"].split("/")[1] in ENVELOPE:
            raise BadJSON("a value outside the body fails the I-JSON test", where=change["at"])
    return members, changes


def _optional_text(body: Json, name: str) -> str | None:
    """Take an envelope member out of the members of a line."""
    value = body.pop(name, None)
    if value is not None and not isinstance(value, str):
        raise BadID(f"the {name} is not a string", where=f"/{name}")
    return value


def _names_blob(content: bytes) -> bool:
    return SIDECAR in content and _BLOB.search(content) is not None


@lru_cache(maxsize=1024)
def _quoted(type_: str) -> str:
    """A type as canonical JSON."""
    return canonical(type_).decode()
