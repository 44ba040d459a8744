"""The entries that need no second look: checked against row, envelope and body without being made.

Owns a shorter way to the answer that nothing is wrong, for an entry of no ``parents`` and no blob that names nothing
below the base but what came before it: nearly all. Its envelope is put together from its row and hashed, its body is
parsed and written again, its context hash chained. Whatever does not fit, and whatever is wrong, is left to
:mod:`~agentsession_cas.maintenance.fsck_entries`, which says what it is. Must not: report.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

import orjson

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.contexthash import CONTRIBUTING, EMPTY_CONTEXT_HASH, next_context_hash
from agentsession_cas.core.entry import RESERVED, SIDECAR
from agentsession_cas.core.envelopes import put_together
from agentsession_cas.core.facts import Code, facts_of
from agentsession_cas.core.identity import HASH_PREFIX, is_hash
from agentsession_cas.core.required import check_line
from agentsession_cas.core.rows import (
    NO_DIGEST,
    PARENTS_BIT,
    REF_BASE,
    REF_ELSEWHERE,
    REF_ROOT,
    TS_BIT,
    Row,
    ref_to,
    row_of_ref,
)
from agentsession_cas.errors import AgentSessionError
from agentsession_cas.maintenance.checked_source import CheckedSource
from agentsession_cas.maintenance.survey import Survey
from agentsession_cas.sessions.rowentry import ROW_TYPES
from agentsession_cas.sessions.rowmaker import digest_of

__all__ = ["PlainCheck"]

_BODY_MAX: Final = 1 << 20
"""Bytes of a body; what a line may hold is tested by whoever makes one."""
_MADE_MAX: Final = 4096
_TYPES: Final = {code: name.encode() for code, name in ROW_TYPES.items() if code != Code.COMPACTION}
_NEITHER: Final = PARENTS_BIT | TS_BIT


class PlainCheck:
    """Goes over the entries of one session, in order. ``context_at`` gives the context hash at a position."""

    def __init__(self, source: CheckedSource, survey: Survey, context_at: Callable[[int], str]) -> None:
        self._source = source
        self._survey = survey
        self._context_at = context_at
        self._base = digest_of(source.base) if source.base else b""
        self._fetch = survey.bodies.get
        self._made: dict[int, str] = {}
        """Context hashes by reference, of rows that do not hold theirs."""
        self._last = (REF_ROOT, b"", EMPTY_CONTEXT_HASH)
        """Of the entry that passed last: its reference, its id, raw, and the context hash there."""

    def passes(self, number: int, position: int, row: Row) -> bool:
        """Whether all is well with an entry; False says nothing."""
        type_ = _TYPES.get(row.code)
        if type_ is None or row.flags & _NEITHER:
            return False
        try:
            above = self._above(row.parent)
            if above is None:
                return False
            envelope = put_together(row.content, above, row.ts, type_)
            if sha256(envelope).digest() != row.entry or not self._is_held(number, row, envelope):
                return False
            content = self._content(number, row)
            return content is not None and self._says_so(number, position, row, above, content)
        except (AgentSessionError, ValueError, TypeError, RecursionError):
            return False

    def _above(self, ref: int) -> bytes | None:
        """The id a parent reference names, raw; b"" for the root, None where another one has it."""
        if ref == self._last[0]:
            return self._last[1]
        if ref in (REF_ROOT, REF_BASE):
            return self._base if ref == REF_BASE else b""
        number = row_of_ref(ref)
        digest = self._source.digest_at(number)
        return digest if self._source.is_first(digest, number) else None

    def _is_held(self, number: int, row: Row, envelope: bytes) -> bool:
        """Whether a good copy of the envelope is where it is looked for, and no earlier entry has the id."""
        source = self._source
        table = source.table
        held = table.record(number)
        if held is not None:
            if held.envelope != envelope:
                return False
        elif not self._survey.is_sound(row.entry):
            return False
        return source.is_first(row.entry, number)

    def _content(self, number: int, row: Row) -> bytes | None:
        held = self._source.table.record(number)
        if held is None:
            return self._fetch(row.content)
        return held.content if sha256(held.content).digest() == row.content else None

    def _says_so(self, number: int, position: int, row: Row, above: bytes, content: bytes) -> bool:
        """Whether a body is as bodies are, and says what its row does."""
        type_ = ROW_TYPES[row.code]
        body = orjson.loads(content)
        if type(body) is not dict or len(content) > _BODY_MAX or SIDECAR in content or canonical(body) != content:
            return False
        if not RESERVED.isdisjoint(body):
            return False
        check_line(type_, body)
        facts = facts_of(type_, body)
        if facts[:4] != (row.code, row.kind, row.flags, row.call) or row.target != self._target(number, facts.target):
            return False
        context = self._context(row, type_, body, content)
        if row.context != NO_DIGEST:
            if context != HASH_PREFIX + row.context.hex():
                return False
        elif number >= self._source.table.packed:
            return False
        else:
            self._remember(ref_to(number), context)
        if self._source.table.record(number) is not None:
            self._survey.need_body(row.content, content)
        self._last = (ref_to(number), row.entry, context)
        self._source.keep_plain(position, row, above, content, body, facts)
        return True

    def _target(self, number: int, named: str) -> int:
        """The reference a row has of a target that came before it, or of none that is there."""
        if not named:
            return REF_ROOT
        found = self._source.find(named) if is_hash(named) else -1
        ref = self._source.ref_of(found) if found >= 0 else REF_ELSEWHERE
        return ref if row_of_ref(ref) < number else REF_ELSEWHERE

    def _context(self, row: Row, type_: str, body: dict[str, Any], content: bytes) -> str:
        before = self._context_above(row.parent)
        if row.code not in CONTRIBUTING:
            return before
        if type_ == "item" and body.keys() == {"item", "response"} and type(body["response"]) is str:
            # what is behind the item is the last member: no text holds an open quote
            share = sha256(content[: content.rindex(b',"response":"')] + b"}").hexdigest()
            return HASH_PREFIX + sha256(f'["{before}","item","sha256:{share}"]'.encode()).hexdigest()
        return next_context_hash(before, type_, body, HASH_PREFIX + row.content.hex(), _asks_nothing)

    def _context_above(self, ref: int) -> str:
        """The context hash that the row of a parent holds, or else follows for it."""
        if ref == self._last[0]:
            return self._last[2]
        if ref == REF_ROOT:
            return EMPTY_CONTEXT_HASH
        return self._made.get(ref) or self._context_at(self._source.position_of_ref(ref))

    def _remember(self, ref: int, context: str) -> None:
        if len(self._made) >= _MADE_MAX:
            self._made.clear()
        self._made[ref] = context


def _asks_nothing(entry_id: str) -> tuple[str, str] | None:
    raise AssertionError(entry_id)
