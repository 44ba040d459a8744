"""The ``verify`` report: everything a session, or a file, can be checked for by itself (cli.md, format.md §6, §9).

Owns the report's shape and what counts as an error, a warning or a note. Ids, parents and the base rule were checked by
whoever read the session; a file that could not be read is reported here as what stopped the reading. Links into other
sessions need a store, and are none of this module's. Costs what the entries cost, however many branches they are on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from agentsession_cas.core.facts import Code, Facts
from agentsession_cas.core.header import Header
from agentsession_cas.core.jsonl import Scan, read_session
from agentsession_cas.core.outputs import Verdict
from agentsession_cas.core.recordwalk import RecordTree
from agentsession_cas.core.requestwalk import RequestWalk, SavedWalk
from agentsession_cas.core.required import is_extension
from agentsession_cas.core.settings import Unresolved
from agentsession_cas.core.source import EntrySource
from agentsession_cas.core.tree import Session
from agentsession_cas.core.undo import walk_tree
from agentsession_cas.errors import AgentSessionError, FirstKept, HashMismatch

__all__ = ["exit_status", "unreadable", "verify", "verify_file"]

Json = dict[str, Any]

_NOTHING: Final = "nothing_to_verify"
_MARK: Final = re.compile(rb"sha256:[0-9a-f]{64}|\n")
_BLANK: Final = b"\xef\xbb\xbf \t\r\n"
_COUNTED: Final = {
    Verdict.VERIFIED: "verified",
    Verdict.NO_HASH: "no_hash",
    Verdict.OTHER_FORM: "other_form",
    Verdict.MISMATCH: "mismatched",
    Verdict.OMIT_DIVERGENCE: "mismatched",
}


class _Report:
    """A report as it is made."""

    def __init__(self) -> None:
        self.responses = {"verified": 0, "no_hash": 0, "mismatched": 0, "other_form": 0}
        self.problems: list[Json] = []

    def add(self, code: str, severity: str, detail: str, *, entry: str = "", line: int = 0) -> None:
        """Report one problem; ``entry`` "" and ``line`` 0 mean none."""
        problem: Json = {"code": code, "severity": severity}
        if line:
            problem["line"] = line
        if entry:
            problem["entry"] = entry
        self.problems.append({**problem, "detail": detail})

    def members(self, *, format: str, session: str, entries: int, leaf: str) -> Json:
        """The report, but for what reading a file met."""
        return {
            "ok": all(problem["severity"] != "error" for problem in self.problems),
            "format": format,
            "session": session,
            "entries": entries,
            "leaf": leaf or None,
            "responses": self.responses,
            "truncated": None,
            "repeated": [],
            "problems": self.problems,
        }


def verify(session: Session) -> Json:
    """Check a session that reads: requests, records, compactions and types, on every branch (cli.md, ``verify``)."""
    report = _Report()
    truncated = session.truncated
    if truncated is not None:
        report.add("truncated", "error", f"the last line was cut short: {truncated.error.what}", line=truncated.line)
    elif not len(session):
        report.add(_NOTHING, "error", "a header and no entries: there was nothing to check")
    if session.migrated:
        lost = f"; {len(session.unresolved)} entries could not be rewritten" if session.unresolved else ""
        report.add("migrated", "note", f"read from {session.declared_format}: ids were made, not checked{lost}")
    _check_entries(session.source, session.header, report)
    members = report.members(
        format=session.declared_format, session=session.id, entries=len(session), leaf=session.leaf
    )
    if truncated is not None:
        members["truncated"] = {"line": truncated.line, "error": str(truncated.error)}
    members["repeated"] = list(session.repeated)
    return members


def verify_file(data: bytes) -> tuple[Json, int]:
    """The report on a file's bytes, and the exit status of the command: a file that cannot be read is a report too."""
    try:
        session = read_session(data)
    except AgentSessionError as error:
        report = unreadable(error, data)
        return report, exit_status(report)
    members = verify(session)
    _add_lines(members["problems"], data)
    return members, exit_status(members)


def exit_status(report: Json) -> int:
    """What the command exits with (cli.md): 0 ok, 1 nothing to verify, 3 an integrity problem."""
    if report["ok"]:
        return 0
    return 1 if all(problem["code"] == _NOTHING for problem in report["problems"]) else 3


def unreadable(error: AgentSessionError, data: bytes = b"") -> Json:
    """The report on what could not be read, because of ``error``; ``data`` is the file as far as it was."""
    report = _Report()
    if error.line:  # a member of the problem already
        error.where = error.where.removeprefix(f"line {error.line}").removeprefix(", ")
    report.add(error.code, "error", str(error), line=error.line)
    try:
        header = Scan(data).header
    except AgentSessionError:
        return report.members(format="", session="", entries=0, leaf="")
    return report.members(format=header.format, session=header.id, entries=0, leaf="")


def _check_entries(source: EntrySource, header: Header, report: _Report) -> None:
    """Go down every branch once, for requests and records alike: an entry is at hand for both, and read once."""
    requests = _Requests(source)
    records = RecordTree(source, header)
    others: list[int] = []
    for position, depth, children in walk_tree(source):
        facts = source.facts(position)
        if facts.code == Code.OTHER:
            others.append(position)
        requests.read(position, depth, children, facts)
        records.read(position, depth, children)
    _check_types(source, sorted(others), report)
    report.responses = requests.report.responses
    report.problems += requests.report.problems
    for problem in records.problems():
        report.add(problem.error.code, "error", problem.detail, entry=source.entry_id(problem.position))


def _check_types(source: EntrySource, others: Iterable[int], report: _Report) -> None:
    for position in others:
        entry = source.entry(position)
        if not is_extension(entry.type):
            report.add("unknown_type", "error", f"the type {entry.type!r} is in no namespace", entry=entry.id)


class _Requests:
    """Replays every branch: hashes, what a compaction keeps, what a config names. ``report`` is of these alone."""

    def __init__(self, source: EntrySource) -> None:
        self.report = _Report()
        self._source = source
        self._walk = RequestWalk(source)
        self._turns: dict[int, SavedWalk] = {-1: self._walk.save()}
        self._last = -1

    def read(self, position: int, depth: int, children: int, facts: Facts) -> None:
        """Read the next entry of :func:`walk_tree`."""
        source, walk, report = self._source, self._walk, self.report
        if depth <= self._last:
            walk.restore(self._turns[depth - 1])
        self._last = depth
        if facts.code == Code.RESPONSE:
            _check_response(source, walk, position, report)
        else:
            _report_unresolved(walk.read(position, facts), source, position, report)
            if facts.code == Code.COMPACTION and walk.broken:
                named = source.entry(position).body["first_kept"]
                detail = f"first_kept names no entry of the path before the compaction: {named}"
                report.add(FirstKept.code, "error", detail, entry=source.entry_id(position))
        if children > 1:
            self._turns[depth] = walk.save()


def _check_response(source: EntrySource, walk: RequestWalk, position: int, report: _Report) -> None:
    entry = source.entry_id(position)
    try:
        found = walk.verify(position)
        report.responses[_COUNTED[found.verdict]] += 1
        if found.verdict is Verdict.OTHER_FORM and found.form is not None:
            report.add("other_form", "note", f"the request matches in its {found.form.value} form", entry=entry)
        if not found.ok and found.verdict is not Verdict.NO_HASH:
            found.require()
    except HashMismatch as error:
        report.add(error.code, "error", error.what, entry=entry)
    except AgentSessionError as error:
        report.responses["mismatched"] += 1
        report.add(HashMismatch.code, "error", f"its request cannot be rebuilt: {error.what}", entry=entry)


def _report_unresolved(unresolved: Unresolved, source: EntrySource, position: int, report: _Report) -> None:
    if unresolved is Unresolved.NONE:  # nearly always: a look into a set of flags costs more than all else here
        return
    entry = source.entry_id(position)
    if Unresolved.OF in unresolved:
        report.add("unresolved_of", "warning", "a keep whose of names no omitted list of its path", entry=entry)
    if Unresolved.PART in unresolved:
        report.add("unresolved_part", "warning", "an instruction part its path cannot resolve", entry=entry)


def _add_lines(problems: Iterable[Json], data: bytes) -> None:
    """Give problems the line of their entry: below the header, the first to hold its id, which only later ones name."""
    wanted: dict[bytes, list[Json]] = {}
    for problem in problems:
        if "entry" in problem:
            wanted.setdefault(problem["entry"].encode(), []).append(problem)
    header_end = data.find(b"\n", len(data) - len(data.lstrip(_BLANK)))
    if not wanted or header_end < 0:
        return
    line = data.count(b"\n", 0, header_end) + 1
    for match in _MARK.finditer(data, header_end):
        if match[0] == b"\n":
            line += 1
        else:
            for problem in wanted.pop(match[0], ()):
                problem["line"] = line
