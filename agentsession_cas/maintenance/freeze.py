"""Some bodies put where they take least room, the rest of the store left as it is (history.md H2).

Owns one run of it: a pack of grade ARCHIVE of their own. The copies that are elsewhere go with the next repack that
touches them; a run that is stopped leaves nothing, or a pack of good copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from agentsession_cas.core.packformat import PACKED_MAX, Grade, Space
from agentsession_cas.errors import NoObject
from agentsession_cas.layout import Layout
from agentsession_cas.maintenance.turn import turn
from agentsession_cas.objects.database import ObjectDatabase

__all__ = ["freeze"]


def freeze(layout: Layout, objects: ObjectDatabase, contents: Iterable[bytes], wait_s: float = 60.0) -> str:
    """Pack these bodies, by their digests and in that order; the pack's file name, "" when none of them is published.

    Raises StoreLocked when a repack or a sweep runs, or the store is held for ``wait_s`` seconds; DiskError and its
    like.
    """
    with turn(layout):
        moves = objects.consolidator(partial(layout.shared, wait_s))
        writer = moves.writer(Grade.ARCHIVE, None)
        try:
            for digest in dict.fromkeys(contents):
                try:
                    data = objects.get(Space.CONTENTS, digest)
                except NoObject:
                    continue  # still in a journal
                if len(data) <= PACKED_MAX:
                    writer.add(Space.CONTENTS, digest, data)
            if not writer.objects:
                return ""
            stem = _done(writer.finish())
            with moves.switch():
                moves.put(writer, stem)
            return f"{stem}.pack"
        finally:
            writer.abandon()


def _done(work: Iterable[object]) -> str:
    """The result of work that comes in slices."""
    slices = iter(work)
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return str(end.value)


