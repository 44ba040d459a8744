"""What one fsck knows beyond the session at hand: the objects listed, what sessions need of them, paths known good.

Owns the sets of raw digests that tell a dangling object from a needed one. Everything noted as needed stays noted, so a
session that changed while it was read only makes fewer objects dangling. Must not: judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from agentsession_cas.core.header import Header
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.pieces import names_in, split
from agentsession_cas.errors import Corrupt, DiskError, NoObject, NoSession
from agentsession_cas.layout import Layout
from agentsession_cas.objects.database import Location, ObjectDatabase
from agentsession_cas.sessions.opening import read_header

__all__ = ["Survey", "header_of"]

Resolve = Callable[[str], Header | None]


def header_of(layout: Layout, session: str) -> Header | None:
    """The header of a session, None when it is not held. Raises Damaged, DiskError."""
    try:
        return read_header(layout.host.fs, layout.session_dir(session))
    except NoSession:
        return None


class Survey:
    """The common part of one check. ``resolve`` gives the header of a held session, None when it is not held.

    ``fast`` skips bodies.
    """

    def __init__(self, objects: ObjectDatabase, resolve: Resolve, *, fast: bool) -> None:
        self.objects: Final = objects
        self.bodies: Final = objects.in_order(Space.CONTENTS)
        self.resolve: Final = resolve
        self.fast: Final = fast
        self.listed: Final[dict[Space, set[bytes]]] = {space: set() for space in Space}
        self.needed: Final[dict[Space, set[bytes]]] = {space: set() for space in Space}
        self.paths: Final[set[bytes]] = set()
        """Entries whose whole path is known to be held and good."""
        self.contexts: Final[dict[str, str]] = {}
        """The context hash at every base met."""
        self.sound = False
        """Whether what was listed was read too, and hashed, and nothing was wrong."""
        self.assumed: set[bytes] | None = None
        """Envelopes that are taken to be sound, because somebody else will know; None to know them here."""
        self.complete = True
        """Whether ``needed`` holds all that the sessions looked at need."""

    def list_objects(self) -> Corrupt | DiskError | None:
        """Note every object the store holds; returns what kept some of them from being listed."""
        try:
            for found in self.objects.iterate():
                self.listed[found.space].add(found.digest)
        except (Corrupt, DiskError) as error:
            return error
        return None

    def note(self, space: Space, digests: Iterable[bytes]) -> None:
        """Note objects that the store holds."""
        self.listed[space].update(digests)

    @property
    def count(self) -> int:
        """Distinct objects listed."""
        return sum(len(digests) for digests in self.listed.values())

    def need(self, space: Space, digest: bytes) -> None:
        """Note that a session needs the object."""
        self.needed[space].add(digest)

    def holds(self, space: Space, digest: bytes) -> bool:
        """Whether the object was listed, or has come since; a listed one is not read."""
        return digest in self.listed[space] or self.objects.holds(space, digest)

    def is_sound(self, digest: bytes) -> bool:
        """Whether a good copy of an envelope is known to be held; it is not looked for."""
        if self.assumed is not None:
            self.assumed.add(digest)
            return True
        return self.sound and digest in self.listed[Space.ENTRIES]

    def get(self, space: Space, digest: bytes) -> tuple[bytes, str]:
        """The object's verified bytes and "", or b"" and why there is no good copy."""
        try:
            return self.objects.get(space, digest), ""
        except (NoObject, Corrupt, DiskError) as error:
            return b"", str(error)

    def need_body(self, digest: bytes, data: bytes) -> None:
        """Note that a session needs the pieces of a body whose bytes lie in its journal, which may be held already."""
        self.needed[Space.PIECES].update(names_in(split(digest, data)).pieces)

    def need_pieces(self) -> Corrupt | DiskError | None:
        """Note the pieces that needed bodies need; returns what kept some of them from being noted.

        No piece is called dangling then.
        """
        try:
            for body in self.objects.skeletons():
                if body.digest in self.needed[Space.CONTENTS]:
                    self.needed[Space.PIECES].update(names_in(body).pieces)
        except (Corrupt, DiskError) as error:
            self.needed[Space.PIECES] |= self.listed[Space.PIECES]
            return error
        return None

    def dangling(self) -> list[Location]:
        """A location of every listed object that nothing needs, each object once."""
        found: dict[tuple[Space, bytes], Location] = {}
        if any(digests - self.needed[space] for space, digests in self.listed.items()):
            with suppress(Corrupt, DiskError):  # told when they were listed first
                for place in self.objects.iterate():
                    if place.digest in self.listed[place.space] and place.digest not in self.needed[place.space]:
                        found.setdefault((place.space, place.digest), place)
        return list(found.values())
