"""Reading everything an object database holds and saying what is wrong: the objects' part of fsck (store.md A12).

Owns the codes of these findings. Each pack is judged by its bytes alone, then its idx by the pack. Damage in one file
hides nothing of another. Must not: repair, or judge what objects mean and who needs them.

| code | severity | |
|---|---|---|
| corrupt_object | error | a loose object that is no whole zstd frame |
| misnamed_object | error | a loose object whose bytes hash to another name |
| corrupt_pack | error | a pack that does not hash to its name, or whose table is lost |
| corrupt_block | error | a block of a pack that cannot be read: whoever needs its objects can name them |
| missing_piece | error | no good copy of a piece that a body needs (``core.pieces``) |
| broken_body | error | a body whose pieces are good but that, put together, does not hash to its name |
| corrupt_dictionary | error | a dictionary of which no copy is whole: no block made with it can be read |
| dictionary_copy | warning | a copy of a dictionary that is gone or not whole, the other one is |
| unreadable_file | error | the system refuses to read it |
| corrupt_idx, idx_mismatch | warning | an idx that is damaged, or disagrees with its pack; reads rebuild it |
| missing_idx | note | a pack without idx; reads rebuild it |
| bare_idx, stray_file | note | an idx without its pack; a file that does not belong |
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, NamedTuple, Protocol

from agentsession_cas.core.packformat import BlockRef, Space, Table
from agentsession_cas.core.packindex import Index
from agentsession_cas.core.pieces import Skeleton, decode_loose, digest_of_stored, join
from agentsession_cas.effects.host import Fs
from agentsession_cas.errors import AgentSessionError, Corrupt, DiskError, NoFile, NoObject
from agentsession_cas.objects.dictionaries import ENDINGS, Dictionaries
from agentsession_cas.objects.loose import Loose
from agentsession_cas.objects.pack import Pack, is_pack_file
from agentsession_cas.objects.packfile import Note, PackFile
from agentsession_cas.objects.packs import Packs

__all__ = ["BlockSeen", "Finding", "Gather", "Shows", "check_objects", "gather_alone", "see_blocks"]

Severity = Literal["error", "warning", "note"]

PIECE: Final = 1 << 20

Shows = Callable[[Skeleton], bool]
"""Whether a body surely comes out right; False says nothing."""


class BlockSeen(NamedTuple):
    """A block that was read: the digests of its objects, whether all its bodies of several parts come out right; or
    ``why`` it cannot be read."""

    number: int
    digests: list[bytes]
    shown: bool
    why: str


class Gather(Protocol):
    """Reads the blocks of the open file of a pack, in any order."""

    def __call__(self, pack: Pack, file: PackFile, shows: Shows) -> Iterator[BlockSeen]: ...


def see_blocks(file: PackFile, shows: Shows, first: int, end: int) -> Iterator[BlockSeen]:
    """The blocks from ``first`` to before ``end``."""
    for number, digests, skeletons, why in file.each_block(first, end):
        yield BlockSeen(number, digests, all(map(shows, skeletons)), why)


def gather_alone(pack: Pack, file: PackFile, shows: Shows) -> Iterator[BlockSeen]:  # noqa: ARG001
    """The :class:`Gather` that nobody helps with."""
    return see_blocks(file, shows, 0, file.table.blocks)



@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong: a stable code, how bad it is, the path, what exactly, and of which space and object if known.

    ``body`` is the raw digest of the one body that it concerns, if it does.
    """

    code: str
    severity: Severity
    path: str
    detail: str
    space: Space | None = None
    digest: bytes | None = None
    body: bytes | None = None


def check_objects(
    fs: Fs,
    objects_dir: str,
    loose: Loose,
    packs: Packs,
    dictionaries: Dictionaries,
    piece: Callable[[bytes], bytes],
    shows: Shows,
    note: Note,
    gather: Gather,
) -> Iterator[Finding]:
    """All findings; every byte is read. What appears or goes meanwhile is no finding.

    ``piece`` gives a piece by its raw digest, or raises NoObject, Corrupt, DiskError. ``note`` hears of every object:
    of a loose one that it has a file, of one in a pack that it was read. ``gather`` reads the blocks of a pack.
    """
    bodies = _Bodies(piece)
    known = {*loose.spaces.values(), packs.directory, dictionaries.directory}
    for name in fs.listdir(objects_dir):
        if f"{objects_dir}/{name}" not in known:
            yield Finding("stray_file", "note", f"{objects_dir}/{name}", "does not belong among the objects")
    for space in loose.spaces:
        yield from _check_space(fs, loose, space, bodies, note)
    yield from _check_dictionaries(dictionaries)
    yield from _check_names(fs, packs)
    packs.relist()
    for pack in packs.listed.values():
        shown: set[int] = set()
        found = list(_check_pack(fs, pack, note, partial(gather, shows=shows), shown))
        yield from found
        yield from _check_bodies(pack, bodies, shown, told=any(each.severity == "error" for each in found))


# --- bodies of several parts -----------------------------------------------------------------------------------------


class _Bodies:
    """Puts bodies together, remembering what became of each piece."""

    def __init__(self, piece: Callable[[bytes], bytes]) -> None:
        self._piece = piece
        self._bad: dict[bytes, str] = {}
        self._good: set[bytes] = set()

    def check(self, skeleton: Skeleton, path: str, where: str) -> Iterator[Finding]:
        """What is wrong with a body that lies in ``path``; ``where`` says where in it."""
        name = f"{where}sha256:{skeleton.digest.hex()}"
        bad = [digest for digest in dict.fromkeys(cut.digest for cut in skeleton.cuts) if self._is_bad(digest)]
        for digest in bad:
            detail = f"the body {name} needs it: {self._bad[digest]}"
            yield Finding("missing_piece", "error", path, detail, Space.PIECES, digest, skeleton.digest)
        if bad:
            return
        try:
            found = hashlib.sha256(join(skeleton, lambda cut: self._piece(cut.digest)))
        except Corrupt as error:
            what = error.what
        except (NoObject, DiskError):
            return  # went meanwhile, with the body
        else:
            if found.digest() == skeleton.digest:
                return
            what = f"put together it hashes to sha256:{found.hexdigest()}"
        yield Finding("broken_body", "error", path, f"{name}: {what}", Space.CONTENTS, skeleton.digest, skeleton.digest)

    def _is_bad(self, digest: bytes) -> bool:
        if digest not in self._good and digest not in self._bad:
            try:
                self._piece(digest)
                self._good.add(digest)
            except AgentSessionError as error:
                self._bad[digest] = error.what
        return digest in self._bad


def _check_bodies(pack: Pack, bodies: _Bodies, shown: set[int], *, told: bool) -> Iterator[Finding]:
    """The bodies of a pack that have pieces, but those of the blocks ``shown``; ``told`` that it does not all read."""
    try:
        for number, skeleton in pack.skeletons(shown):
            yield from bodies.check(skeleton, pack.path, f"of block {number}, ")
    except NoFile:
        return  # repacked meanwhile
    except (Corrupt, DiskError) as error:
        if not told:
            code = "corrupt_block" if isinstance(error, Corrupt) else "unreadable_file"
            yield Finding(code, "error", pack.path, error.what, Space.CONTENTS)


# --- loose objects ---------------------------------------------------------------------------------------------------


def _check_space(fs: Fs, loose: Loose, space: Space, bodies: _Bodies, note: Note) -> Iterator[Finding]:
    for path, digest in loose.walk(space):
        if digest is None:
            yield Finding("stray_file", "note", path, "no object has this name")
            continue
        note(space, (digest,))
        try:
            data = fs.read(path)
            if data is None:
                continue
            stored = decode_loose(data)
        except Corrupt as error:
            yield Finding("corrupt_object", "error", path, error.what, space, digest)
            continue
        except DiskError as error:
            yield Finding("unreadable_file", "error", path, error.what, space, digest)
            continue
        found = digest_of_stored(stored)
        if found != digest:
            yield Finding("misnamed_object", "error", path, f"its bytes hash to sha256:{found.hex()}", space, digest)
        elif isinstance(stored, Skeleton):
            yield from bodies.check(stored, path, "")


# --- dictionaries ----------------------------------------------------------------------------------------------------


def _check_dictionaries(dictionaries: Dictionaries) -> Iterator[Finding]:
    numbers: set[int] = set()
    for path, number, _ in dictionaries.files():
        if number:
            numbers.add(number)
        else:
            yield Finding("stray_file", "note", path, "no dictionary has this name")
    for number in sorted(numbers):
        bad: dict[str, str] = {}
        for ending in ENDINGS:
            try:
                dictionaries.read(number, ending)
            except (Corrupt, DiskError) as error:
                bad[ending] = error.what
        for ending, why in bad.items():
            path = dictionaries.path(number, ending)
            if len(bad) == 1:
                yield Finding("dictionary_copy", "warning", path, f"{why}; the other copy is good")
            else:
                yield Finding("corrupt_dictionary", "error", path, f"{why}; nor is the other copy good")


# --- packs -----------------------------------------------------------------------------------------------------------


def _check_names(fs: Fs, packs: Packs) -> Iterator[Finding]:
    try:
        names = set(fs.listdir(packs.directory))
    except NoFile:
        return
    for name in sorted(names):
        stem, _, ending = name.rpartition(".")
        path = f"{packs.directory}/{name}"
        if ending == "idx" and is_pack_file(f"{stem}.pack"):
            if f"{stem}.pack" not in names:
                yield Finding("bare_idx", "note", path, "its pack is not there")
        elif not is_pack_file(name):
            yield Finding("stray_file", "note", path, "neither a pack nor an idx")


@dataclass(frozen=True, slots=True)
class _Scan:
    """A pack read through: its table as bytes, its size, the keys of its objects, and the blocks that do not read.

    ``shown`` are those of which every body of several parts comes out right.
    """

    table: bytes
    size: int
    keys: array[int]
    bad: dict[int, tuple[BlockRef | None, str]]
    shown: set[int]


def _check_pack(
    fs: Fs, pack: Pack, note: Note, gather: Callable[[Pack, PackFile], Iterator[BlockSeen]], shown: set[int]
) -> Iterator[Finding]:
    try:
        whole = _check_whole(fs, pack)
        own, lost = _scan(pack, None, note, gather)
        index, bad_idx = _read_idx(pack)
        scan = own or (_scan(pack, index.table, note, gather)[0] if index is not None else None)
    except NoFile:
        return  # repacked meanwhile
    if whole is not None:
        yield whole
    elif own is None:
        yield Finding("corrupt_pack", "error", pack.path, lost)
    if bad_idx is not None:
        yield bad_idx
    if own is not None and index is not None and not _agree(own, index):
        yield Finding("idx_mismatch", "warning", pack.idx_path, "disagrees with its pack")
    if scan is not None:
        shown |= scan.shown
        for number, (ref, why) in scan.bad.items():
            of = f" ({ref.objects} of the {ref.space.name.lower()})" if ref is not None else ""
            space = ref.space if ref is not None else None
            yield Finding("corrupt_block", "error", pack.path, f"block {number}{of}: {why}", space)


def _check_whole(fs: Fs, pack: Pack) -> Finding | None:
    """Whether the pack's bytes hash to its name. Raises NoFile."""
    found = hashlib.sha256()
    try:
        file = fs.open(pack.path)
        try:
            for offset in range(0, file.size(), PIECE):
                found.update(file.pread(PIECE, offset))
        finally:
            file.close()
    except NoFile:
        raise
    except DiskError as error:
        return Finding("unreadable_file", "error", pack.path, error.what)
    if found.digest() == pack.name:
        return None
    return Finding("corrupt_pack", "error", pack.path, f"its bytes hash to sha256:{found.hexdigest()}")


def _scan(
    pack: Pack, table: Table | None, note: Note, gather: Callable[[Pack, PackFile], Iterator[BlockSeen]]
) -> tuple[_Scan | None, str]:
    """What the pack says by its own or another table, or why it says nothing. Raises NoFile."""
    try:
        with pack.open(table) as file:
            keys = array("Q", bytes(8 * file.table.objects))
            bad: dict[int, tuple[BlockRef | None, str]] = {}
            shown: set[int] = set()
            for each in gather(pack, file):
                if each.why:
                    bad[each.number] = _ref(file.table, each.number), each.why
                    continue
                file.take_block(each.number, each.digests, keys, note)
                if each.shown:
                    shown.add(each.number)
            return _Scan(bytes(file.table.data), file.size, keys, dict(sorted(bad.items())), shown), ""
    except NoFile:
        raise
    except (Corrupt, DiskError) as error:
        return None, error.what


def _ref(table: Table, number: int) -> BlockRef | None:
    try:
        return table.block(number)
    except Corrupt:
        return None


def _read_idx(pack: Pack) -> tuple[Index | None, Finding | None]:
    try:
        _, index = pack.load_idx()
        index.test()
    except NoFile:
        return None, Finding("missing_idx", "note", pack.idx_path, "the pack has no idx")
    except Corrupt as error:
        return None, Finding("corrupt_idx", "warning", pack.idx_path, error.what)
    except DiskError as error:
        return None, Finding("unreadable_file", "error", pack.idx_path, error.what)
    return index, None


def _agree(scan: _Scan, index: Index) -> bool:
    """Whether the idx says what the pack says, as far as that reads."""
    if index.table.data != scan.table or index.pack_size != scan.size:
        return False
    try:
        keys = index.keys()
    except Corrupt:
        return False
    for ref, _ in scan.bad.values():
        if ref is not None:
            keys[ref.first : ref.first + ref.objects] = scan.keys[ref.first : ref.first + ref.objects]
    return keys == scan.keys
