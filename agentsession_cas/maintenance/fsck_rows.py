"""A session's rows by themselves, in order: checksums, references, heads, marks, and what block 0 says of them.

One pass that reads no body and no object, and keeps one byte of each row. What passes it may be walked: every
reference leads to a row that is an entry and comes before. Must not: judge what only an envelope or a body shows.
"""

from __future__ import annotations

from typing import Final

from agentsession_cas.core.facts import Code, Kind
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.rows import (
    REF_BASE,
    REF_ELSEWHERE,
    REF_ROOT,
    Newest,
    Row,
    RowCode,
    ref_to,
    row_of_ref,
)
from agentsession_cas.maintenance.findings import Findings
from agentsession_cas.maintenance.fsck_files import SessionFiles, report_bad_rows
from agentsession_cas.maintenance.repair_rows import LOST_ROWS
from agentsession_cas.maintenance.survey import Survey
from agentsession_cas.sessions.journal import HEAD_NAME
from agentsession_cas.sessions.services import Mark

__all__ = ["check_rows"]

_SPECIAL: Final = 0
_ENTRY: Final = 1
_LEAF_LABEL: Final = 2
_UNREAD: Final = 3

_CODES: Final = frozenset(Code)
_KINDS: Final = frozenset(Kind)
_SPECIALS: Final = frozenset(RowCode)
_MARKS: Final = (Mark.RECORD, Mark.MIRROR)
_NOT_REACHED: Final = -1


def check_rows(files: SessionFiles, based: bool | None, survey: Survey, found: Findings) -> tuple[int, bool]:
    """Check every row; returns how many are entries, and whether all of them may be walked.

    ``based`` says whether the session has a base, None when its header cannot be read. What the rows name is noted as
    needed.
    """
    check = _RowCheck(files, based, found)
    bad: list[int] = []
    hinted = row_of_ref(files.hint.head) if files.hint is not None else _NOT_REACHED
    for number, row in files.rows():
        if number == files.base:
            check.close_generation()
        if row is None:
            bad.append(number)
            check.skip()
            continue
        if number >= files.base and bool(files.pending[number - files.base].envelope) != (row.code < RowCode.HEAD):
            check.report("row_invalid", number, "its frame has an envelope exactly when it should not")
        check.read(number, row)
        if row.code < RowCode.HEAD:
            survey.need(Space.ENTRIES, row.entry)
            survey.need(Space.CONTENTS, row.content)
        if number == hinted:
            _check_hint(files, row, found)
    if files.base == files.count:
        check.close_generation()
    report_bad_rows(files, bad, found)
    return check.entries, check.sound


def _check_hint(files: SessionFiles, row: Row, found: Findings) -> None:
    """Whether HEAD, when it speaks of this generation, names the entry of its row."""
    hint = files.hint
    if hint is not None and hint.salt == files.scan.generation.salt and hint.entry != row.entry:
        detail = f"row {row_of_ref(hint.head)} has sha256:{row.entry.hex()}, HEAD sha256:{hint.entry.hex()}"
        found.add("head_mismatch", detail, path=f"{files.directory}/{HEAD_NAME}")


class _RowCheck:
    """The pass over the rows of one session."""

    def __init__(self, files: SessionFiles, based: bool | None, found: Findings) -> None:
        self._files = files
        self._based = based
        self._found = found
        self._kinds = bytearray()
        self._newest = Newest()
        self._head: int | None = None if based is None else REF_BASE if based else REF_ROOT
        self._gap = False
        self.entries = 0
        self.sound = True

    def skip(self) -> None:
        """Pass over a row that cannot be read."""
        self._kinds.append(_UNREAD)
        self._head = None
        self._gap = True
        self.sound = False

    def read(self, number: int, row: Row) -> None:
        """Check the next row."""
        if row.code in _SPECIALS:
            self._read_special(number, row)
        elif row.code in _CODES and row.kind in _KINDS:
            self._read_entry(number, row)
        else:
            self.report("row_invalid", number, f"code {row.code} with kind {row.kind} is none")
            self.skip()
            return
        self._head = row.head
        self._newest = self._newest.with_row(number, row)

    def close_generation(self) -> None:
        """Compare what block 0 says of the rows below the base, all of which were read."""
        generation = self._files.scan.generation
        if not self._gap and generation.newest != self._newest:
            detail = f"offset 0: it says {tuple(generation.newest)} of the rows, they say {tuple(self._newest)}"
            self._found.add("generation_mismatch", detail, path=self._files.journal)
            self.sound = False

    # --- rows ---

    def _read_special(self, number: int, row: Row) -> None:
        if row.parent != self._newest.special and not self._gap:
            self.report("row_invalid", number, "it does not name the row before it that is no entry")
        if row.code == RowCode.MARK and row.kind not in _MARKS:
            self.report("bad_mark", number, f"the mark {row.kind} is none")
        if row.code == RowCode.LOSS:
            self._read_loss(number, row)
        if row.code == RowCode.HEAD:
            if not self._may_rest(number, row.head):
                self.report("bad_head", number, "the head is moved to where none may rest")
        elif self._head is not None and row.head != self._head:
            self.report("bad_head", number, "a row that moves nothing has another head")
        self._kinds.append(_SPECIAL)

    def _read_loss(self, number: int, row: Row) -> None:
        path, offset = self._files.place(number)
        if row.kind == LOST_ROWS:
            detail = f"offset {offset}: row {number}: a repair found {row.target} rows lost"
            self._found.add("lost_rows", detail, path=path)
        else:
            self._found.add("lost_tail", f"offset {offset}: row {number} says so", path=path)

    def _read_entry(self, number: int, row: Row) -> None:
        leaf = row.code == Code.LABEL and row.kind == Kind.LEAF
        self._kinds.append(_LEAF_LABEL if leaf else _ENTRY)
        self.entries += 1
        self._check_parent(number, row.parent)
        if not self._is_target(row.target):
            self.report("row_invalid", number, f"its target {row.target} is no reference")
        if self._head is None or row.head == self._head:
            return
        moved = row.target if leaf else ref_to(number) if row.parent == self._head else REF_ELSEWHERE
        if row.head != moved or not self._may_rest(number, row.head):
            self.report("bad_head", number, "its head is neither the one before, nor the entry, nor what it labels")

    def _check_parent(self, number: int, parent: int) -> None:
        if parent == REF_ROOT:
            if self._based:
                self.report("base_rule", number, "an entry of a session with a base hangs from the universal root")
        elif parent == REF_BASE:
            if self._based is False:
                self.report("base_rule", number, "an entry hangs from a base, and the session has none")
        elif parent == REF_ELSEWHERE:
            self.report("base_rule", number, "an entry hangs from above the base")
        elif row_of_ref(parent) >= number or self._kinds[row_of_ref(parent)] == _SPECIAL:
            self.report("row_invalid", number, f"its parent {parent} is no entry before it")

    def _is_target(self, ref: int) -> bool:
        if ref == REF_BASE:
            return self._based is not False
        number = row_of_ref(ref)
        if ref in (REF_ROOT, REF_ELSEWHERE):
            return True
        return number < self._files.count and (number >= len(self._kinds) or self._kinds[number] != _SPECIAL)

    def _may_rest(self, number: int, ref: int) -> bool:
        if ref == REF_ROOT:
            return not self._based
        if ref == REF_BASE:
            return self._based is not False
        at = row_of_ref(ref)
        return at < min(number + 1, len(self._kinds)) and self._kinds[at] in (_ENTRY, _UNREAD)

    def report(self, code: str, number: int, what: str) -> None:
        """Note a row that may not be walked."""
        path, offset = self._files.place(number)
        self._found.add(code, f"offset {offset}: row {number}: {what}", path=path)
        self.sound = False
