"""A session's entries: envelopes and bodies against their hashes, against the format, and against their rows.

Owns what is compared with what. An entry is put together from its own envelope and body and read as a line of a file
would be; then its row is made anew and has to be the one that is stored. Must not: walk rows that
:mod:`~agentsession_cas.maintenance.fsck_rows` did not pass, or read another session's rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from agentsession_cas.core.accept import check_convergence
from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.contexthash import EMPTY_CONTEXT_HASH, context_hash_at
from agentsession_cas.core.entry import Entry, check_reserved, sidecar_blobs
from agentsession_cas.core.envelope import Envelope, read_envelope
from agentsession_cas.core.facts import Code, code_of
from agentsession_cas.core.header import Header
from agentsession_cas.core.identity import ROOT, is_hash
from agentsession_cas.core.leaf import is_leaf_label
from agentsession_cas.core.packformat import Space
from agentsession_cas.core.parsing import parse
from agentsession_cas.core.rows import NO_DIGEST, PARENTS_BIT, REF_ELSEWHERE, TS_BIT, Row, RowCode, row_of_ref
from agentsession_cas.core.timestamps import is_canonical_ts, ts_to_ns
from agentsession_cas.errors import AgentSessionError, BadConvergence, BadEntry, Corrupt, NoObject
from agentsession_cas.maintenance.checked_source import CheckedSource
from agentsession_cas.maintenance.findings import Findings
from agentsession_cas.maintenance.fsck_files import SessionFiles
from agentsession_cas.maintenance.fsck_plain import PlainCheck
from agentsession_cas.maintenance.survey import Survey
from agentsession_cas.sessions.rowmaker import digest_of, make_row
from agentsession_cas.sessions.source import hash_of

__all__ = ["EntryCheck", "check_held", "check_path"]


_NOT_HELD: Final = "no good copy is held"


def _envelope_of(data: bytes) -> Envelope:
    """An envelope whose members are of their kinds, ``parents`` aside, which the entry shows. Raises Corrupt."""
    envelope = read_envelope(data)
    hashes = is_hash(envelope.content) and (envelope.parent == ROOT or is_hash(envelope.parent))
    texts = isinstance(envelope.type, str) and isinstance(envelope.ts, str)
    if not (hashes and texts and is_canonical_ts(envelope.ts)):
        raise Corrupt("an envelope with a member of another kind")
    return envelope


def _entry_of(entry_id: str, envelope: Envelope, content: bytes) -> Entry:
    """The entry of an envelope and a body, read as a line would be. Raises what :meth:`Entry.from_line` does."""
    body = parse(content)
    if not isinstance(body, dict):
        raise BadEntry("the body is no JSON object")
    if canonical(body) != content:
        raise BadEntry("the body is not written in canonical JSON")
    check_reserved(body)
    line = {**body, "type": envelope.type, "id": entry_id, "parent": envelope.parent or None, "ts": envelope.ts}
    if envelope.parents:
        line["parents"] = envelope.parents
    return Entry.from_line(canonical(line))


def check_held(files: SessionFiles, survey: Survey, found: Findings) -> None:
    """Whether the objects of the rows that read are held: what can still be said of a session that does not."""
    for number, row in files.rows():
        if row is None or row.code >= RowCode.HEAD or number >= files.base:
            continue
        for space, digest in ((Space.ENTRIES, row.entry), (Space.CONTENTS, row.content)):
            if not survey.holds(space, digest):
                code = "missing_entry" if space is Space.ENTRIES else "missing_content"
                found.add(code, f"row {number}: {_NOT_HELD}", object=hash_of(digest))


class EntryCheck:
    """Checks the own entries of one session whose rows passed.

    ``deep`` loads bodies, which takes a ``source`` that has the prefix, read from envelopes alone.
    """

    def __init__(
        self, source: CheckedSource, header: Header, base_context: bytes, survey: Survey, found: Findings, *, deep: bool
    ) -> None:
        self._deep = deep
        self._source = source
        self._header = header
        self._base_context = base_context
        self._survey = survey
        self._found = found
        self.plain = PlainCheck(source, survey, self._context_at) if deep else None
        """The shorter look at an entry; None where bodies are not loaded."""
        self._blind: set[int] = set()
        """Rows whose bodies are not there: the context hash below them cannot be told."""

    def check_all(self, start: int = 0, left: Iterable[int] = ()) -> None:
        """Check every entry from row ``start`` on; of those above it, which had the shorter look, the ones ``left``."""
        source, plain = self._source, self.plain
        table = source.table
        for number in left:
            self._check(number, source.position(number), table.row(number))
        position = source.position(start)
        rest = ((at, table.row(at)) for at in range(start, len(table)))
        for number, row in rest if start else enumerate(table.rows()):
            if row.code >= RowCode.HEAD:
                continue
            if plain is None or not plain.passes(number, position, row):
                self._check(number, position, row)
            position += 1

    def _check(self, number: int, position: int, row: Row) -> None:
        envelope = self._envelope(number, row)
        content = self._content(number, row)
        if content is None:
            self._blind.add(number)
        if envelope is None or content is None:
            return
        if self._deep:
            self._check_entry(number, position, row, envelope, content)
        else:
            self._compare_envelope(number, row, envelope)

    def check_base_context(self) -> None:
        """Whether block 0 of the journal has the context hash at the base, which rows are held to.

        Loads the prefix's bodies, which have to be good.
        """
        source, contexts = self._source, self._survey.contexts
        known = contexts.get(self._header.base)
        if known is None:
            known = contexts[self._header.base] = context_hash_at(source, source.base_count - 1)
        if known != hash_of(self._base_context):
            detail = f"offset 0: the context hash at the base is {known}, it says {hash_of(self._base_context)}"
            self._found.add("generation_mismatch", detail)
            self._base_context = digest_of(known)

    # --- what is there ---

    def _envelope(self, number: int, row: Row) -> Envelope | None:
        table = self._source.table
        if number >= table.base:
            data, why = table.pending[number - table.base].envelope, ""
            if hashlib.sha256(data).digest() != row.entry:
                self._report("entry_hash", number, "its envelope in the journal hashes to another id", row.entry)
                return None
        else:
            data, why = self._survey.get(Space.ENTRIES, row.entry)
        if why:
            self._report("missing_entry", number, why, row.entry)
            return None
        try:
            return _envelope_of(data)
        except Corrupt as error:
            self._report("bad_entry", number, error.what, row.entry)
            return None

    def _content(self, number: int, row: Row) -> bytes | None:
        """The body; b"" where bodies are not loaded and it is held."""
        table = self._source.table
        if number >= table.base:
            data = table.pending[number - table.base].content
            if hashlib.sha256(data).digest() == row.content:
                self._survey.need_body(row.content, data)
                return data
            self._report("content_hash", number, "its body in the journal hashes to another name", row.content)
            return None
        if self._deep:
            data, why = self._survey.get(Space.CONTENTS, row.content)
        else:
            data, why = b"", "" if self._survey.holds(Space.CONTENTS, row.content) else _NOT_HELD
        if why:
            self._report("missing_content", number, why, row.content)
            return None
        return data

    # --- what it says ---

    def _compare_envelope(self, number: int, row: Row, envelope: Envelope) -> None:
        """Whether row and envelope say the same, as far as that can be told without the body."""
        source = self._source
        pairs = {
            "type": (row.code, int(code_of(envelope.type))),
            "parent": (source.id_of_ref(row.parent), envelope.parent),
            "content": (hash_of(row.content), envelope.content),
            "parents": (bool(row.flags & PARENTS_BIT), bool(envelope.parents)),
        }
        if not row.flags & TS_BIT:
            pairs["ts"] = (row.ts, ts_to_ns(envelope.ts))
        self._report_differing(number, row, [name for name, (ours, theirs) in pairs.items() if ours != theirs])

    def _check_entry(self, number: int, position: int, row: Row, envelope: Envelope, content: bytes) -> None:
        try:
            entry = _entry_of(hash_of(row.entry), envelope, content)
        except AgentSessionError as error:
            self._report("bad_entry", number, str(error), row.entry)
            return
        if self._source.find(entry.id) != position:
            self._report("repeated_entry", number, "an earlier row has it too", row.entry)
            return
        self._source.keep(position, entry)
        self._check_references(number, position, entry)
        self._compare_row(number, row, entry)
        _check_blobs(entry, self._survey, self._found)

    def _check_references(self, number: int, position: int, entry: Entry) -> None:
        def before(entry_id: str) -> int:
            at = self._source.find(entry_id)
            return at if at < position else -1

        try:
            check_convergence(before, self._header, entry.parents)
        except BadConvergence as error:
            self._report("bad_convergence", number, str(error), digest_of(entry.id))

    def _compare_row(self, number: int, row: Row, entry: Entry) -> None:
        source = self._source
        parent = source.find(entry.parent) if entry.parent else -1
        if entry.parent and parent < 0:
            self._report("row_mismatch", number, f"its parent {entry.parent} is not in the session", row.entry)
            return
        untold: list[int] = []

        def context_at(position: int) -> str:
            try:
                return self._context_at(position)
            except (NoObject, Corrupt):  # of a body above it, which is told of where its own row is
                untold.append(position)
                return EMPTY_CONTEXT_HASH

        made = make_row(
            source,
            entry,
            entry.body,
            parent,
            row.head,
            parent_ref=source.ref_of(parent),
            before=context_at(parent) if parent >= 0 else EMPTY_CONTEXT_HASH,
            ts=ts_to_ns(entry.ts),
            ref_of=source.ref_of,
            context_at=context_at,
        )
        if row.context == NO_DIGEST and number < source.table.packed:
            made = made._replace(context=NO_DIGEST)  # packed without: it follows from the bodies
        if row.target == REF_ELSEWHERE and row_of_ref(made.target) > number:
            made = made._replace(target=REF_ELSEWHERE)  # what it names came after it
        if untold or row_of_ref(row.parent) in self._blind:
            made = made._replace(context=row.context)
        differing = [name for name, ours, theirs in zip(Row._fields, row, made, strict=True) if ours != theirs]
        self._report_differing(number, row, differing)

    def _context_at(self, position: int) -> str:
        return self._source.context_at(position, hash_of(self._base_context))

    def _report_differing(self, number: int, row: Row, names: list[str]) -> None:
        if names:
            self._report("row_mismatch", number, f"{', '.join(names)} differ from the entry's", row.entry)

    def _report(self, code: str, number: int, what: str, digest: bytes) -> None:
        self._found.add(code, f"row {number}: {what}", object=hash_of(digest))


def _check_blobs(entry: Entry, survey: Survey, found: Findings) -> None:
    """Note the blobs an entry names as needed, and those not held as missing, which is legal."""
    for blob in sidecar_blobs(entry.content):
        survey.need(Space.MEDIA, digest_of(blob))
        if not survey.holds(Space.MEDIA, digest_of(blob)):
            found.add("missing_blob", f"{entry.id} names it", object=blob)


# --- the path to a base ----------------------------------------------------------------------------------------------


def check_path(base: str, survey: Survey, found: Findings) -> bool:
    """Check the path to a fork's base in the objects alone, whoever else holds it; whether its envelopes all read.

    What is known good from another fork is not read again.
    """
    walked: list[bytes] = []
    entry_id, whole = base, True
    while entry_id and digest_of(entry_id) not in survey.paths:
        digest = digest_of(entry_id)
        survey.need(Space.ENTRIES, digest)
        envelope = _path_envelope(entry_id, entry_id == base, survey, found)
        if envelope is None:
            survey.complete = False
            return False
        survey.need(Space.CONTENTS, digest_of(envelope.content))
        whole = _check_path_entry(entry_id, envelope, survey, found) and whole
        walked.append(digest)
        entry_id = envelope.parent
    if whole:
        survey.paths.update(walked)
        if _is_leaf_label(base, survey):
            found.add("base_rule", "the base is a leaf label", object=base)
    return True


def _path_envelope(entry_id: str, is_base: bool, survey: Survey, found: Findings) -> Envelope | None:
    data, why = survey.get(Space.ENTRIES, digest_of(entry_id))
    if why:
        where = "the base" if is_base else "on the path to the base"
        found.add("missing_base" if is_base else "missing_entry", f"{where}: {why}", object=entry_id)
        return None
    try:
        return _envelope_of(data)
    except Corrupt as error:
        found.add("bad_entry", f"on the path to the base: {error.what}", object=entry_id)
        return None


def _check_path_entry(entry_id: str, envelope: Envelope, survey: Survey, found: Findings) -> bool:
    digest = digest_of(envelope.content)
    if survey.fast:
        content, why = b"", "" if survey.holds(Space.CONTENTS, digest) else _NOT_HELD
    else:
        content, why = survey.get(Space.CONTENTS, digest)
    if why:
        found.add("missing_content", f"the body of {entry_id}, on the path to the base: {why}", object=envelope.content)
        return False
    if survey.fast:
        return True
    try:
        entry = _entry_of(entry_id, envelope, content)
    except AgentSessionError as error:
        found.add("bad_entry", f"on the path to the base: {error}", object=entry_id)
        return False
    _check_blobs(entry, survey, found)
    return True


def _is_leaf_label(entry_id: str, survey: Survey) -> bool:
    """Whether a base is what none may be (format.md §3); loads a body for labels alone. What does not read was told."""
    try:
        envelope = read_envelope(survey.objects.get(Space.ENTRIES, digest_of(entry_id)))
        if code_of(envelope.type) is not Code.LABEL:
            return False
        content = survey.objects.get(Space.CONTENTS, digest_of(envelope.content))
        return is_leaf_label(_entry_of(entry_id, envelope, content).facts)
    except AgentSessionError:
        return False
