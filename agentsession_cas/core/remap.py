"""What a session names, re-pointed: every member naming an entry or a session, and nothing else (format.md §10).

Owns what happens to a member whose entry was left out: lost, moved to what stands in the place, or refused. Which
members name anything is :mod:`~agentsession_cas.core.roles`. Says nothing of what stands in a left-out entry's place:
that is the writer's. Changes no body in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from agentsession_cas.core.canonical import pointer_of
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.entry import Reference as Convergence
from agentsession_cas.core.header import Header
from agentsession_cas.core.identity import ROOT
from agentsession_cas.core.reading import text
from agentsession_cas.core.required import is_extension
from agentsession_cas.core.rewrite import At
from agentsession_cas.core.roles import Role, Spot, body_spot
from agentsession_cas.errors import NoPlace

__all__ = ["Reference", "Remap", "Remapped", "remap_header_refs", "remap_refs"]

Json = dict[str, Any]

_GONE: Final = object()
"""Instead of a value: the member goes."""


@dataclass(frozen=True, slots=True)
class Remap:
    """Where references now point. Each function gives the id to name instead, or None to leave one as written.

    ``entry`` takes a session and an entry id, the session "" for this file; only ``parents`` names one. ``bound`` takes
    an entry that bounds a range from below (``first_kept``, ``before``), which a left-out entry leaves to the first
    entry written after it on its path; ``entry`` stands in when there is none. Both give "" for an entry left out with
    nothing in its place. ``session`` takes a session id. ``base`` is the base of the file written to, "" for none. A
    reference of a kind without a function is left, and not reported.
    """

    entry: Callable[[str, str], str | None] | None = None
    bound: Callable[[str], str | None] | None = None
    session: Callable[[str], str | None] | None = None
    base: str = ROOT


class Reference(NamedTuple):
    """One member naming something: its pointer, the session ("" for this file) and the entry ("" for a session)."""

    at: str
    session: str
    entry: str


class Remapped(NamedTuple):
    """What became of an entry. ``unmapped`` were left as written, ``dropped`` went with the entry they named.

    ``opaque`` is an extension entry: its own members may name anything, and came through as written.
    """

    draft: Draft
    unmapped: list[Reference]
    dropped: list[Reference]
    opaque: bool


def remap_refs(entry: Entry | Draft, remap: Remap) -> Remapped:
    """The entry with its references re-pointed: a draft without an id, all else as it was.

    When a reference to several was re-pointed, ``parents`` is sorted as a writer sorts it. Raises NoPlace for a member
    that has to name one entry, when that was left out and nothing stands in its place.
    """
    return _Walk(remap).entry(entry)


def remap_header_refs(header: Header, remap: Remap) -> tuple[Header, list[Reference]]:
    """The header with ``base`` and ``parent_session`` re-pointed, and the references left as written.

    ``redacted_from`` names the original whatever is made of it. Raises NoPlace for a base that was left out.
    """
    walk = _Walk(remap)
    members = header.members()
    if header.base:
        members["base"] = walk.one(header.base, Role.ENTRY, ("base",))
    if header.parent_session:
        members["parent_session"] = walk.named_session(header.parent_session, ("parent_session",))
    return Header.parse(members), walk.unmapped


class _Walk:
    """One entry, or one header, on its way."""

    def __init__(self, remap: Remap) -> None:
        self._remap = remap
        self.unmapped: list[Reference] = []
        self._dropped: list[Reference] = []

    def entry(self, entry: Entry | Draft) -> Remapped:
        parent = entry.parent or ROOT
        if parent:
            parent = self._mapped("", parent, ("parent",)) or self._remap.base
        parents = self._parents([dict(reference) for reference in entry.parents], parent)
        body = self._value(entry.body, body_spot(entry.type), ())
        draft = Draft(entry.type, body, parent=parent, parents=parents, ts=entry.ts)
        return Remapped(draft, self.unmapped, self._dropped, is_extension(entry.type))

    def _parents(self, references: list[Convergence], parent: str) -> list[Convergence]:
        """The convergence references: what was left out goes, and so does what would name an entry again."""
        kept: list[Convergence] = []
        seen = {parent}
        moved = False
        for number, reference in enumerate(references):
            at = ("parents", number, "entry")
            session, named = text(reference, "session"), reference["entry"]
            new = self._mapped(session, named, at)
            if not new or new in seen:
                self._dropped.append(Reference(pointer_of(at), session, named))
                continue
            seen.add(new)
            moved = moved or new != named
            kept.append({**reference, "entry": new})
            if session:
                kept[-1]["session"] = self.named_session(session, ("parents", number, "session"))
                moved = moved or kept[-1]["session"] != session
        if moved:
            kept.sort(key=lambda each: (text(each, "session"), each["entry"]))
        return kept

    def _value(self, value: Any, spot: Spot, at: At) -> Any:
        """A value with what it names re-pointed, or _GONE; what names nothing is given back as it is."""
        if not spot.names:
            return value
        spot = spot.at(value)
        if type(value) is str:
            return self._name(value, spot.role, at) if value and spot.names else value
        if type(value) is dict:
            return self._object(value, spot, at)
        if type(value) is list and spot.elements is not None:
            made = [self._value(each, spot.elements, (*at, number)) for number, each in enumerate(value)]
            left = [each for each in made if each is not _GONE]
            return _GONE if spot.vanishes and not left and made else left
        return value

    def _object(self, value: Json, spot: Spot, at: At) -> Any:
        made = {
            name: self._value(member, inside, (*at, name)) if (inside := spot.members.get(name)) else member
            for name, member in value.items()
        }
        left = {name: member for name, member in made.items() if member is not _GONE}
        return _GONE if spot.vanishes and not left and made else left

    def _name(self, named: str, role: Role, at: At) -> Any:
        if role is Role.SESSION:
            return self.named_session(named, at)
        if role is Role.MEMBER:
            new = self._mapped("", named, at)
            if new:
                return new
            self._dropped.append(Reference(pointer_of(at), "", named))
            return _GONE
        return self.one(named, role, at) or None

    def one(self, named: str, role: Role, at: At) -> str:
        """The id that takes the place of one; "" for the universal root. Raises NoPlace."""
        new = self._mapped("", named, at, bound=role is Role.BOUND)
        if not new and role is not Role.LEAF:
            raise NoPlace(
                "the member names an entry that was left out, and nothing stands in its place",
                where=pointer_of(at),
                next_step="leave the entry out too, or write one in its place",
            )
        return new

    def _mapped(self, session: str, named: str, at: At, *, bound: bool = False) -> str:
        new: str | None
        if bound and self._remap.bound is not None:
            new = self._remap.bound(named)
        elif self._remap.entry is not None:
            new = self._remap.entry(session, named)
        else:
            return named
        if new is None:
            self.unmapped.append(Reference(pointer_of(at), session, named))
            return named
        return new

    def named_session(self, session: str, at: At) -> str:
        """The id of a session, re-pointed."""
        if self._remap.session is None:
            return session
        new = self._remap.session(session)
        if new is None:
            self.unmapped.append(Reference(pointer_of(at), session, ""))
        return new or session
