"""What the readers of a file make of its bytes: two damages that all of them answer alike are one.

Owns the comparison. A file is read by few functions, and everything else, be it a read, fsck or a repair, goes by what
those return: the header by its decoder and by what a repair takes from its pieces, HEAD by its decoder, journal and
log by recovery, by fsck and by a repair's evidence, a loose object and an idx by theirs. So it is enough to judge one
damage of those that give the same answer; that this holds is tried by judging some of the others too. Rows and records
are told by the members in which they differ from the whole ones, not by their bytes. Must not: judge.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from pathlib import Path
from typing import Final

from agentsession_cas.core.framing import decode_head
from agentsession_cas.core.packindex import Index
from agentsession_cas.core.pieces import decode_loose, digest_of_stored
from agentsession_cas.core.rows import Row, decode_row
from agentsession_cas.effects.host import real_host
from agentsession_cas.errors import AgentSessionError, Corrupt
from agentsession_cas.maintenance.findings import Findings
from agentsession_cas.maintenance.fsck_files import read_files
from agentsession_cas.maintenance.repair_files import Doubt, Evidence, gather
from agentsession_cas.maintenance.repair_header import pieces_of
from agentsession_cas.sessions.headerfile import decode_header
from agentsession_cas.sessions.recovery import read_state_once

__all__ = ["Answers", "answer_of_file"]

_ALIKE: Final = 16
"""As many characters of a header's hash as a repair goes by."""
_STRANGE: Final = 6
"""A row that differs in more members than this is another."""
_FS: Final = real_host().fs


def answer_of_file(path: str, data: bytes, pristine: bytes) -> Hashable | None:
    """What the readers of a file by itself make of ``data``; None for one that is judged every time."""
    name = path.rpartition("/")[2]
    if name == "header":
        return _of_header(data, pristine)
    if name == "HEAD":
        return decode_head(data), bool(data)
    if name.endswith(".idx"):
        return _of_idx(data)
    if path.startswith("objects/") and not path.startswith("objects/pack/"):
        found = _of_loose(data)
        return found if found in ("corrupt", _of_loose(pristine)) else "another"
    return None


def _of_header(data: bytes, pristine: bytes) -> Hashable:
    try:
        return decode_header(data).line
    except Corrupt:
        pass
    line, _, noted = pristine.partition(b"\n")
    cut = data.find(b"\n")
    whole, pieces = pieces_of(pristine), pieces_of(data)
    told = tuple((name, whole.get(name) == value) for name, value in sorted(pieces.items()))
    behind = data[cut + 1 :] if cut >= 0 else b""
    alike = next((at for at in range(_ALIKE) if behind[at : at + 1] != noted[at : at + 1]), _ALIKE)
    larger = (len(data) > len(pristine)) - (len(data) < len(pristine))
    return told, larger, data.startswith(line + b"\n"), data.endswith(noted), alike, cut >= 0


def _of_loose(data: bytes) -> Hashable:
    try:
        return digest_of_stored(decode_loose(data)) if data else b""
    except Corrupt:
        return "corrupt"


def _of_idx(data: bytes) -> Hashable:
    try:
        index = Index(data)
        keys = list(index.keys())
        index.test()
    except Corrupt as error:
        return error.what
    return index.pack_name, index.pack_size, bytes(index.table.data), tuple(keys)


class Answers:
    """What recovery, fsck and repair make of the files of one session, whose copy they may hurt, against the whole."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._whole = gather(_FS, str(directory))
        self._rows = [decode_row(row) if row is not None else None for row in self._whole.rows]
        records = self._whole.records.values()
        self._texts = {text for record in records for text in (record.envelope, record.content) if text}

    def of(self, name: str, data: bytes) -> Hashable:
        """What they answer with ``data`` in the file of that name; it is put back."""
        path = self._directory / name
        whole = path.read_bytes()
        path.write_bytes(data)
        try:
            return self._state(), self._findings(), self._evidence(gather(_FS, str(self._directory)))
        finally:
            path.write_bytes(whole)

    def _state(self) -> Hashable:
        try:
            state = read_state_once(_FS, str(self._directory))
        except AgentSessionError as error:
            return error.code
        state.table.close()
        return state.verdict, state.scan.sequence, state.scan.attested, state.hint is not None

    def _findings(self) -> Hashable:
        found = Findings("", "")
        files = read_files(_FS, str(self._directory), found)
        if files is not None:
            files.close()
        return tuple(each.code for each in found.all)

    def _evidence(self, found: Evidence) -> Hashable:
        whole = self._whole
        rows = tuple(
            None if row is None else row in whole.rows[at : at + 1] or hashlib.sha256(row).digest()
            for at, row in enumerate(found.rows)
        )
        said = (found.generation, whole.generation), (found.guess, whole.guess), (found.hint, whole.hint)
        differs = tuple(None if one is None else one == other for one, other in said)
        records = tuple((at, record == whole.records.get(at)) for at, record in sorted(found.records.items()))
        doubts = tuple(self._doubt(each) for each in found.doubts)
        return rows, differs, found.base, found.log, found.last_log, records, doubts, len(found.unreadable)

    def _doubt(self, doubt: Doubt) -> Hashable:
        row = self._members(decode_row(doubt.row), doubt) if doubt.row else None
        texts = tuple(text in self._texts if text else None for text in (doubt.envelope, doubt.content))
        return doubt.slot, doubt.placed, doubt.derived, row, texts

    def _members(self, row: Row, doubt: Doubt) -> Hashable:
        """Which members differ from the row that is meant: the one in its place, else the likest."""
        placed = self._rows[doubt.slot] if doubt.placed and doubt.slot < len(self._rows) else None
        among = self._rows if placed is None else [placed]
        best = min((_differing(row, other) for other in among if other is not None), key=sum, default=())
        is_entry = any(row.entry + row.content + row.context)
        if is_entry and (sum(best) > _STRANGE or (doubt.derived and best[0])):
            return "another"  # an id computed of members that differ leads nowhere
        return best


def _differing(row: Row, other: Row) -> tuple[bool, ...]:
    return tuple(one != two for one, two in zip(row, other, strict=True))
