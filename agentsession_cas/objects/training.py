"""Which dictionary packs are made with, and when a new one is trained.

Owns sizes and thresholds. An everyday dictionary is small, made of what came lately, and one more is trained whenever
the store has grown sixteenfold; an archive's is large, made of all it archives. Which is which its size says. Must not:
write packs, or remove a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from agentsession_cas.core.packformat import Space
from agentsession_cas.core.pieces import Skeleton, Stored
from agentsession_cas.core.slices import Slices
from agentsession_cas.core.zframes import Dictionary, train
from agentsession_cas.errors import Corrupt, DiskError
from agentsession_cas.objects.consolidate import Consolidator
from agentsession_cas.objects.pack import Pack

__all__ = ["archive_dictionary", "trained_everyday"]

EVERYDAY_SIZE: Final = 64 << 10
EVERYDAY_DUE: Final = 4 << 20
"""Bytes of objects from which on there is an everyday dictionary."""
EVERYDAY_GROWTH: Final = 16
ARCHIVE_DUE: Final = 8 << 20
ARCHIVE_SIZES: Final = (96 << 10, 1 << 20)
ARCHIVE_SHARE: Final = 128
"""An archive's dictionary has this part of its bytes: more would cost more than it saves."""
SAMPLES: Final = 32
"""A dictionary is made of so many times its bytes, an everyday one of twice as many."""
SAMPLE_MAX: Final = 8 << 10
SAMPLES_MIN: Final = 1 << 20
_SAMPLED: Final = (Space.CONTENTS, Space.PIECES)


def trained_everyday(moves: Consolidator, inputs: Sequence[Pack]) -> Slices[Dictionary | None]:
    """The dictionary to make an everyday pack of ``inputs`` with: a new one, made of them, when one is due."""
    known = _numbers(moves, everyday=True)
    if _served(moves.packs.listed.values()) >= EVERYDAY_DUE * EVERYDAY_GROWTH ** len(known):
        trained = yield from _trained(moves, inputs, EVERYDAY_SIZE)
        if trained is not None:
            return trained
    return _newest(moves, known)


def archive_dictionary(moves: Consolidator, inputs: Sequence[Pack], new: int, held: int) -> Slices[Dictionary | None]:
    """The dictionary to archive ``inputs`` with: a new one unless these are less than what is archived.

    ``new`` are the bytes of their objects, ``held`` those of the objects archived already.
    """
    known = _numbers(moves, everyday=False)
    if new >= ARCHIVE_DUE and (new > held or not known):
        least, most = ARCHIVE_SIZES
        trained = yield from _trained(moves, inputs, max(least, min(most, new // ARCHIVE_SHARE)))
        if trained is not None:
            return trained
    return _newest(moves, known or _numbers(moves, everyday=True))


def _trained(moves: Consolidator, inputs: Sequence[Pack], size: int) -> Slices[Dictionary | None]:
    samples = yield from _sample_bodies(inputs, SAMPLES * size * (2 if size <= EVERYDAY_SIZE else 1))
    if sum(map(len, samples)) < SAMPLES_MIN:
        return None
    trained = train(samples, size)
    if trained is not None:
        moves.dictionaries.publish(moves.host, moves.tmp_dir, trained)
    return trained


def _sample_bodies(packs: Sequence[Pack], wanted: int) -> Slices[list[bytes]]:
    """The beginnings of bodies out of blocks that lie evenly apart, ``wanted`` bytes or a little more."""
    share = wanted / max(1, _served(packs))
    samples: list[bytes] = []
    credit = 0.0
    for pack in packs:
        with suppress(Corrupt, DiskError), pack.open() as file:
            for number in range(file.table.blocks):
                if file.table.space_of(number) not in _SAMPLED:
                    continue
                credit += share
                if credit >= 1:
                    credit = min(1.0, credit - 1)
                    block = file.block(number)
                    first = block.first
                    samples += [_sample(block.stored(at)) for at in range(first, first + len(block))]
                    yield 0
    return samples


def _sample(stored: Stored) -> bytes:
    return (stored.rest if isinstance(stored, Skeleton) else stored)[:SAMPLE_MAX]


def _served(packs: Iterable[Pack]) -> int:
    served = 0
    for pack in packs:
        with suppress(Corrupt, DiskError):
            served += pack.index().table.served_size()
    return served


def _numbers(moves: Consolidator, *, everyday: bool) -> list[int]:
    """The ids of all dictionaries of a kind, the one trained last first."""
    ages: dict[int, int] = {}
    for path, number, _ in moves.dictionaries.files():
        found = moves.host.fs.stat(path)
        if number and found is not None and (moves.dictionaries.size(number) <= EVERYDAY_SIZE) is everyday:
            ages[number] = max(found.mtime_ns, ages.get(number, 0))
    return sorted(ages, key=lambda number: (-ages[number], number))


def _newest(moves: Consolidator, numbers: Iterable[int]) -> Dictionary | None:
    return next(_readable(moves, numbers), None)


def _readable(moves: Consolidator, numbers: Iterable[int]) -> Iterator[Dictionary]:
    for number in numbers:
        with suppress(Corrupt, DiskError):
            yield moves.dictionaries.get(number)
