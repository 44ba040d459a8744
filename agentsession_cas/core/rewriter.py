"""The strings of a whole file rewritten, entry by entry: what one entry cannot see is carried from those before it.

Owns two things (format.md §7, §10). A part of the instructions named by the hash of its text is given the hash of what
that text became. And instructions beside parts that a delta does not repeat are those parts joined only as the path
resolves them, so the parts in force are replayed along every path, branches too, each step at the cost of its own list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.identity import hash_text, is_hash
from agentsession_cas.core.instructions import (
    SEPARATOR,
    Texts,
    decode_elements,
    is_unresolved,
    join_instructions,
    read_part,
    remember_parts,
    resolve_parts,
)
from agentsession_cas.core.required import check_required
from agentsession_cas.core.rewrite import At, Rewrite, Strings
from agentsession_cas.core.roles import Spot, body_spot
from agentsession_cas.errors import BadEntry, InstructionsJoin

__all__ = ["Rewriter", "UnmetPart", "rewrite_strings"]

Json = dict[str, Any]

_PARTS: Final = "instructions_parts"
_CHECKPOINT: Final = body_spot("compaction").members["config"]


class UnmetPart(NamedTuple):
    """A part that was written and that its path cannot rebuild once rewritten: a hash of no text of it, or a bad keep.

    ``entry`` is the id of the original's entry, ``at`` the pointer of the ``hash`` or the ``keep`` in its body, ``id``
    the part's as the original wrote it, "" for a keep. All three are for the redactor alone: not to be published.
    """

    entry: str
    at: str
    id: str


@dataclass(frozen=True, slots=True, eq=False)
class _Force:
    """The parts in force behind an entry, as the original wrote them, and the texts that left force with it.

    ``before`` is what was in force before, None behind a replace or a checkpoint.
    """

    parts: Sequence[Json] = ()
    retired: Texts = field(default_factory=dict)
    before: _Force | None = None


_NONE: Final = _Force()


def rewrite_strings(entry: Entry | Draft, rewrite: Rewrite) -> Draft:
    """The entry with ``rewrite`` applied to every string of its body that is text, and the names that are data.

    The draft keeps parent, parents and ts, and has no id: its hashes are another session's to compute. Raises what
    :meth:`Rewriter.rewrite` does. An entry of a file wants a :class:`Rewriter`.
    """
    return Rewriter(rewrite).rewrite(entry)


class Rewriter:
    """Rewrites the entries of one file: give it every one in file order, prefix included.

    ``calls`` and ``strict`` are as :class:`~agentsession_cas.core.rewrite.Strings` has them. Not for threads to share.
    """

    def __init__(self, rewrite: Rewrite, *, calls: bool = False, strict: bool = False) -> None:
        self._strings = Strings(rewrite, calls=calls, strict=strict)
        self._after: dict[str, _Force] = {}
        self._met: dict[str, str] = {}  # the hash of a text: that of what it became
        self._retired: set[tuple[str, str]] = set()
        self.unmet: list[UnmetPart] = []
        """Every part written so far that its path cannot rebuild, in the order met."""

    @property
    def strings(self) -> Strings:
        """The function at work, for what is no entry: the header."""
        return self._strings

    def rewrite(self, entry: Entry | Draft) -> Draft:
        """The next entry of the file rewritten, as :func:`rewrite_strings` has it.

        Raises KeyCollision for names made one, InstructionsJoin for instructions that would change beside parts the
        path does not resolve, BadEntry for a member made one its type cannot hold.
        """
        force = self._after.get(entry.parent or "", _NONE)
        special = {}
        if entry.type == "config":
            force = self._read_config(entry, force)
            special = self._specials(entry.body, force, ())
        elif entry.type == "compaction" and isinstance(entry.body.get("config"), dict):
            force = self._read_checkpoint(entry)
            special = {"config": lambda config: self._rewrite_checkpoint(config, force)}
        body = self._strings.body(entry.type, entry.body, special)
        if entry.id:
            self._after[entry.id] = force
        _check(entry.type, entry.body, body)
        return Draft(entry.type, body, parent=entry.parent, parents=entry.parents, ts=entry.ts)

    def left_out(self, entry: Entry | Draft) -> None:
        """Say that the redactor does not write an entry, in place of rewriting it or behind it.

        The entries under it then read the parts in force above it.
        """
        if entry.id:
            self._after[entry.id] = self._after.get(entry.parent or "", _NONE)

    # --- the parts in force ---

    def _read_config(self, entry: Entry | Draft, force: _Force) -> _Force:
        body = entry.body
        elements = decode_elements(body.get(_PARTS)) or []
        if body.get("replace") is True:
            force = _NONE
        if not elements and not isinstance(body.get("instructions"), str):
            return force
        parts, _ = resolve_parts(elements, force.parts, self._texts_named(elements, force))
        self._note_unmet(entry.id or "", f"/{_PARTS}", elements, parts)
        retired: Texts = {}
        remember_parts(retired, force.parts, parts)
        self._retired.update(retired)
        return _Force(parts, retired, force)

    def _read_checkpoint(self, entry: Entry | Draft) -> _Force:
        """A checkpoint writes each part whole: none of its hashes or keeps is resolved (context.md §1.5)."""
        elements = decode_elements(entry.body["config"].get(_PARTS)) or []
        parts = [read_part(element) for element in elements]
        self._note_unmet(entry.id or "", f"/config/{_PARTS}", elements, parts)
        return _Force(parts)

    def _texts_named(self, elements: Sequence[Json], force: _Force) -> Texts:
        """The texts that elements name by hash and that left force on this path since the last fresh start."""
        found: Texts = {}
        for element in elements:
            key = (element.get("id"), element.get("hash"))
            if isinstance(element.get("text"), str) or key not in self._retired:
                continue
            at: _Force | None = force
            while at is not None and key not in at.retired:
                at = at.before
            if at is not None:
                found[key] = at.retired[key]
        return found

    def _note_unmet(self, entry: str, at: str, elements: Sequence[Json], parts: Sequence[Json]) -> None:
        """Note each element that gave no part: what resolved is as long as its keep, what did not is itself."""
        position = 0
        for number, element in enumerate(elements):
            part = parts[position]
            keep, id_ = element.get("keep"), element.get("id")
            named = isinstance(id_, str) and id_ != ""
            position += 1 if named or part is element else keep or 1
            if part is not element or not is_unresolved(part):
                continue
            member = "hash" if is_hash(element.get("hash")) else "keep"
            if member in element:
                self.unmet.append(UnmetPart(entry, f"{at}/{number}/{member}", id_ if isinstance(id_, str) else ""))

    # --- what they become ---

    def _specials(self, body: Json, force: _Force, at: At) -> dict[str, Any]:
        """How the instructions of a config or a checkpoint, and its parts, become what they become."""
        elements = decode_elements(body.get(_PARTS)) or []
        if not elements:
            return {}
        spot = body_spot("config").members[_PARTS].elements
        assert spot is not None
        return {
            "instructions": lambda given: self._rewrite_instructions(given, force.parts, at),
            _PARTS: lambda parts: [
                self._rewrite_part(part, spot, (*at, _PARTS, number)) for number, part in enumerate(parts)
            ],
        }

    def _rewrite_checkpoint(self, config: Json, force: _Force) -> Json:
        at = ("config",)
        return self._strings.object(config, _CHECKPOINT.at(config), at, self._specials(config, force, at))

    def _rewrite_instructions(self, given: Any, parts: Sequence[Json], at: At) -> Any:
        """Instructions beside parts: the rewritten parts joined when they are the parts joined, else a text."""
        strings = self._strings
        if not isinstance(given, str):
            return strings.value(given, Spot(), (*at, "instructions"))
        if any(map(is_unresolved, parts)):
            if strings.text(given) != given:
                raise InstructionsJoin(
                    "the instructions would change beside a part whose text the path does not have",
                    where="/".join(("", *map(str, at), "instructions")),
                    next_step="give the entries before it, or leave the entry out",
                )
            return given
        if join_instructions(parts) != given:
            return strings.text(given)
        return SEPARATOR.join(strings.text(part["text"]) if part["text"] else "" for part in parts)

    def _rewrite_part(self, part: Json, spot: Spot, at: At) -> Json:
        """An element of the parts: the hash of a text that changed is made again, that of a text met follows it."""
        made = self._strings.object(part, spot.at(part), at)
        text, hash_ = part.get("text"), str(part.get("hash"))
        if isinstance(text, str):
            self._met[hash_text(text)] = hash_text(made["text"])
            if is_hash(hash_) and made["text"] != text:
                made["hash"] = self._met[hash_text(text)]
        elif is_hash(hash_):
            made["hash"] = self._met.get(hash_, hash_)
        return made


def _check(type_: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Raise BadEntry for a body that a writer could append and that its rewrite made one nobody can."""
    if after == before:
        return
    try:
        check_required(type_, after)
    except BadEntry as error:
        try:
            check_required(type_, before)
        except BadEntry:
            return
        raise BadEntry(f"once rewritten, {error.what}", where=error.where) from error
