"""Seeded mistakes: a sweep with one rule broken, and the scene that has to notice.

They keep the scenes of ``sweep_scenes`` from going blind: each mistake is a few lines over the code it spoils.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pytest

from agentsession_cas.core.packer import Packer
from agentsession_cas.layout import Layout
from agentsession_cas.maintenance import sweep
from agentsession_cas.maintenance.sweep import _Sweep
from agentsession_cas.maintenance.sweep_pieces import Tied
from agentsession_cas.maintenance.sweep_roots import Roots, _Pieces
from agentsession_cas.objects.consolidate import Consolidator
from agentsession_cas.objects.packwriter import PackWriter
from agentsession_cas.sessions.services import HeldElsewhere
from tests.helpers.crashes import deaf, unsynced
from tests.helpers.engine_mistakes import fork_not_anchored
from tests.helpers.sweep_scenes import (
    ACTS,
    beside,
    collected,
    cut_short,
    deleted_in_part,
    lying_disk,
    swept,
    within,
)

__all__ = ["MISTAKES", "Mistake"]

Patch = pytest.MonkeyPatch


class Mistake(NamedTuple):
    """``make`` spoils the engine; ``scene`` is where it shows, by a Violation."""

    make: Callable[[Patch], None]
    scene: Callable[[], object]


@contextmanager
def _unlocked(*_: Any) -> Iterator[None]:
    yield


# --- what is durable -------------------------------------------------------------------------------------------------


def absence_not_synced(patch: Patch) -> None:
    """A session that somebody had half deleted comes back, its objects do not."""
    patch.setattr(_Sweep, "_make_absences_durable", lambda _: None)


def trash_emptied_before_the_sync(patch: Patch) -> None:
    """A session comes back without its files."""
    sound = _Sweep._make_absences_durable

    def early(self: Any) -> None:
        self.empty(sweep.SweepReport(dry_run=False))
        sound(self)

    patch.setattr(_Sweep, "_make_absences_durable", early)


def replacement_not_synced(patch: Patch) -> None:
    """A pack goes whose replacement may not be there after a power cut."""
    sound = PackWriter.__init__

    def init(self: Any, *given: Any) -> None:
        sound(self, *given)
        self._file = unsynced(self._file)

    patch.setattr(PackWriter, "__init__", init)


def replacement_not_verified(patch: Patch) -> None:
    """A pack goes whose replacement does not read."""

    def verify(*_: Any) -> Iterator[int]:
        yield from ()

    patch.setattr(PackWriter, "_verify", verify)


def replaced_before_the_replacement(patch: Patch) -> None:
    """For a moment neither is there."""

    def replace(moves: Any, pack: Any, writer: Any, stem: str) -> None:
        moves.remove([pack])
        moves.put(writer, stem)

    patch.setattr(sweep, "replace_pack", replace)


def replacement_name_not_synced(patch: Patch) -> None:
    """The name of the replacement may go, that of the pack it replaces is gone."""
    sound = PackWriter.place

    def place(self: Any) -> None:
        self._host = replace(self._host, fs=deaf(self._host.fs, directories=""))
        sound(self)

    patch.setattr(PackWriter, "place", place)


def pack_named_by_its_members(patch: Patch) -> None:
    """A pack made of another has its name, and goes in its place."""
    finish, merge = Packer.finish, Consolidator.merge

    def named(self: Any) -> Any:
        packed = finish(self)
        members = b"".join(sorted(key.to_bytes(8, "big") for key in packed.keys))
        return packed._replace(name=hashlib.sha256(members).digest())

    def merged(self: Any, inputs: Any, *given: Any) -> Any:
        moved = yield from merge(self, inputs, *given)
        self.remove([pack for pack in inputs if pack.stem in moved.written])
        return moved

    patch.setattr(Packer, "finish", named)
    patch.setattr(Consolidator, "merge", merged)
    replacement_not_verified(patch)


# --- what is needed --------------------------------------------------------------------------------------------------


def paths_of_bases_not_walked(patch: Patch) -> None:
    """Forks whose origin is gone lose what is above them."""
    patch.setattr(Roots, "_mark_path", lambda *_: None)


def pins_not_heeded(patch: Patch) -> None:
    """What a ref pins goes with its session."""
    sound = Roots.__init__

    class NoPins:
        def pins(self) -> tuple[()]:
            return ()

    patch.setattr(Roots, "__init__", lambda self, layout, objects, _: sound(self, layout, objects, NoPins()))  # type: ignore[arg-type]


def blobs_not_marked(patch: Patch) -> None:
    """Blobs go though bodies name them."""
    patch.setattr(Roots, "_mark_blobs", lambda *_: None)


def pieces_not_marked(patch: Patch) -> None:
    """Bodies lose their large strings."""
    patch.setattr(_Pieces, "mark", lambda _, needs: needs)


def pieces_not_tied(patch: Patch) -> None:
    """A power cut may bring back a body without its large strings."""
    patch.setattr(Tied, "stays", lambda *_: False)


# --- who acts meanwhile ----------------------------------------------------------------------------------------------


def swept_without_the_lock(patch: Patch) -> None:
    """Others find what is about to go, and rely on it."""
    patch.setattr(Layout, "alone", _unlocked)


def published_without_the_lock(patch: Patch) -> None:
    """The same, of those who should have waited."""
    patch.setattr(Layout, "shared", _unlocked)


def swept_without_the_epoch(patch: Patch) -> None:
    """Others remember what was there once."""
    patch.setattr(Layout, "move_epoch", lambda _: None)


def changes_not_marked(patch: Patch) -> None:
    """What came to be needed while sessions were marked goes."""
    sound = _Sweep.alone

    @contextmanager
    def alone(self: Any) -> Iterator[set[int]]:
        with sound(self):
            yield set()

    patch.setattr(_Sweep, "alone", alone)


def changes_between_holds_not_marked(patch: Patch) -> None:
    """The same, of what came between the times the store was held."""
    sound = _Sweep.alone
    held: list[Any] = []

    @contextmanager
    def alone(self: Any) -> Iterator[set[int]]:
        with sound(self) as late:
            yield set() if self in held else late
            held.append(self)

    patch.setattr(sweep, "_AT_ONCE", 1)
    patch.setattr(_Sweep, "alone", alone)


def late_pieces_not_marked(patch: Patch) -> None:
    """The same, of the large strings of a body that came to be needed."""
    sound = _Pieces.mark
    patch.setattr(_Pieces, "mark", lambda self, needs: sound(self, needs) if self._tied is not None else needs)


def blob_looked_up_without_the_lock(patch: Patch) -> None:
    """An append names a blob that it saw, and that is gone."""

    def has_blob(self: Any, blob: str) -> bool:
        return bool(self._services.elsewhere.has_blob(blob))

    patch.setattr(HeldElsewhere, "has_blob", has_blob)


MISTAKES: Final[dict[str, Mistake]] = {
    make.__name__: Mistake(make, scene)
    for make, scene in (
        (absence_not_synced, deleted_in_part),
        (trash_emptied_before_the_sync, lambda: deleted_in_part(60, start=1)),
        (replacement_not_synced, lambda: cut_short(swept, 40, "/pack")),
        (replacement_not_verified, lying_disk),
        (replaced_before_the_replacement, lambda: cut_short(swept, part="/pack")),
        (replacement_name_not_synced, lambda: cut_short(swept, 40, "/pack")),
        (pack_named_by_its_members, lambda: cut_short(collected, 2)),
        (paths_of_bases_not_walked, lambda: cut_short(swept)),
        (pins_not_heeded, lambda: cut_short(swept)),
        (blobs_not_marked, lambda: cut_short(swept)),
        (pieces_not_marked, lambda: cut_short(swept)),
        (pieces_not_tied, lambda: cut_short(swept)),
        (fork_not_anchored, lambda: beside(ACTS["fork"])),
        (swept_without_the_lock, lambda: beside(ACTS["twin"])),
        (published_without_the_lock, lambda: beside(ACTS["twin"])),
        (swept_without_the_epoch, lambda: beside(ACTS["twin"], warm=True)),
        (changes_not_marked, lambda: beside(ACTS["twin"])),
        (changes_between_holds_not_marked, lambda: beside(ACTS["twin"])),
        (late_pieces_not_marked, lambda: beside(ACTS["twin"], stride=3)),
        (blob_looked_up_without_the_lock, lambda: within(ACTS["name"])),
    )
}
