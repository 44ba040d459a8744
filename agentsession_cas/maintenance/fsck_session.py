"""One session's part of fsck: its header and files, its rows and entries, and what the entries say.

Owns the order of these looks, and the rule that a session which changes while it is read is read again before it is
called damaged: only what two looks in a row find is believed, or what the last finds of several, none
of which finds nothing. Takes no lock and writes nothing. Damage ends the look at one session and at no other.
"""

from __future__ import annotations

from typing import Final

from agentsession_cas.core.header import Header
from agentsession_cas.core.links import link_problems
from agentsession_cas.core.tree import Session
from agentsession_cas.core.verify import verify
from agentsession_cas.effects.collector import held_off
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import AgentSessionError, Damaged, LinkMismatch, NoSession
from agentsession_cas.layout import Layout, directory_name, session_id_of
from agentsession_cas.maintenance.checked_source import CheckedSource
from agentsession_cas.maintenance.findings import CODES, Finding, Findings
from agentsession_cas.maintenance.fsck_entries import EntryCheck, check_held, check_path
from agentsession_cas.maintenance.fsck_files import SessionFiles, check_names, read_files
from agentsession_cas.maintenance.fsck_ranges import Share, alone, look_at_range, ranges_of
from agentsession_cas.maintenance.fsck_rows import check_rows
from agentsession_cas.maintenance.survey import Survey
from agentsession_cas.sessions.chain import ChainSource
from agentsession_cas.sessions.headerfile import HEADER_NAME
from agentsession_cas.sessions.opening import read_header
from agentsession_cas.sessions.prefix import Prefix

__all__ = ["check_session"]

_OF_UNCHECKED: Final = (AgentSessionError, LookupError, TypeError, ValueError, AttributeError, AssertionError)
"""What a walk over entries may raise that turn out not to be sound."""

_LOOKS_MAX: Final = 6
_IGNORED: Final = frozenset({"nothing_to_verify"})
"""Problems of a file that are none of a session in a store: one may be empty."""


def check_session(
    layout: Layout, name: str, survey: Survey, share: Share = alone
) -> tuple[int, list[Finding]] | None:
    """Check the session in directory ``name``: how many own entries, and what is wrong; None when it is not there.

    What it needs is noted in ``survey``. ``share`` is how others help with a long one.
    """
    directory = f"{layout.sessions}/{name}"
    look = _Look(layout.host, directory, name, survey, share)
    found = believed = look.take()
    for _ in range(_LOOKS_MAX):
        if not found:
            break
        again = look.take()
        before = set(found)
        believed = [each for each in again if each in before]
        if len(believed) == len(again):
            break
        found = again
    else:
        believed = believed or found  # it reads in no look, if for another reason each time
    if layout.host.fs.stat(directory) is None:
        return None
    survey.complete = survey.complete and look.complete
    return look.entries, believed


class _Look:
    """Looks at one session, each from the start."""

    def __init__(self, host: Host, directory: str, name: str, survey: Survey, share: Share) -> None:
        self._host = host
        self._directory = directory
        self._name = name
        self._survey = survey
        self._share = share
        self.entries = 0
        self.complete = False
        """Whether all that the session needs was noted."""

    def take(self) -> list[Finding]:
        """Look once. What is made of a session has no cycles while it is looked at."""
        with held_off():
            return self._take()

    def _take(self) -> list[Finding]:
        found = Findings(session_id_of(self._name), self._directory)
        self.entries, self.complete = 0, False
        files: SessionFiles | None = None
        try:
            header = self._header(found)
            files = read_files(self._host.fs, self._directory, found)
            check_names(self._host, files, self._directory, found)
            if files is not None:
                self._check_rows(header, files, found)
        except AgentSessionError as error:
            found.add("unreadable_file", str(error))
        finally:
            if files is not None:
                files.close()
        return found.all

    def _header(self, found: Findings) -> Header | None:
        path = f"{self._directory}/{HEADER_NAME}"
        try:
            header = read_header(self._host.fs, self._directory)
        except Damaged as error:
            found.add("bad_header", error.what, path=path)
            return None
        found.session = header.id
        if directory_name(header.id) != self._name:
            found.add("misnamed_session", f"session {header.id} belongs in {directory_name(header.id)}")
        return header

    def _check_rows(self, header: Header | None, files: SessionFiles, found: Findings) -> None:
        survey = self._survey
        based = bool(header.base) if header is not None else None
        self.entries, sound = check_rows(files, based, survey, found)
        if header is None or not sound:
            check_held(files, survey, found)
            return
        told = len(found.all)
        prefix, deep = None, not survey.fast
        if header.base:
            readable = check_path(header.base, survey, found)
            deep = deep and readable
            if deep:
                chain = ChainSource(survey.objects, header.base)
                prefix = Prefix(chain, len(chain) - 1)
        source = CheckedSource(files.table(), survey.objects, header.base, prefix)
        check = EntryCheck(source, header, files.scan.generation.base_context, survey, found, deep=deep)
        if prefix is not None and not found.has_errors(told):
            check.check_base_context()
        said = _Said(source, header, survey, found)
        start = 0
        left: list[int] = []
        if deep and survey.sound and not found.has_errors(told):
            start, left = self._check_ranges(files, source, check, said)
        check.check_all(start, left)
        good = not found.has_errors(told)
        self.complete = good and not files.lost
        if survey.fast:
            return
        if not good:
            found.add("unchecked", CODES["unchecked"].says)
            return
        found.all += said.findings()

    def _check_ranges(
        self, files: SessionFiles, source: CheckedSource, check: EntryCheck, said: _Said
    ) -> tuple[int, list[int]]:
        """Have others look at the rows of a long session: where those end, and which of these entries did not pass."""
        ranges = ranges_of(self._name, files.scan.generation)
        plain = check.plain
        if not ranges or plain is None:
            return 0, []
        left = self._share(ranges, lambda each: look_at_range(source, plain, each.first, each.end), said.try_early)
        return (0, []) if left is None else (ranges[-1].end, left)


class _Said:
    """What entries say of calls, runs, requests and sessions; a prefix's is its own session's, when that is held."""

    def __init__(self, source: CheckedSource, header: Header, survey: Survey, found: Findings) -> None:
        """``found`` says where; nothing is added to it."""
        self._source = source
        self._header = header
        self._survey = survey
        self._found = found
        self._early: list[Finding] | None = None

    def try_early(self) -> None:
        """Find it before the entries were checked: it counts when all of them turn out to be sound."""
        try:
            self._early = self._look()
        except _OF_UNCHECKED:
            self._early = None

    def findings(self) -> list[Finding]:
        """What is wrong with what they say, now that all are known to be sound."""
        return self._look() if self._early is None else self._early

    def _look(self) -> list[Finding]:
        source, header, survey = self._source, self._header, self._survey
        found = Findings(self._found.session, self._found.path)
        report = verify(Session(header, source))
        theirs = source.base_count if _held(header.parent_session, survey) else 0
        for problem in report["problems"]:
            entry = problem.get("entry", "")
            if problem["code"] not in _IGNORED and not 0 <= source.find(entry) < theirs:
                found.add(problem["code"], problem["detail"], object=entry)
        for link in link_problems(source, header, survey.resolve):
            if isinstance(link.error, LinkMismatch):
                found.add(link.error.code, link.error.what, object=link.entry)
        return found.all


def _held(session: str, survey: Survey) -> bool:
    try:
        return bool(session) and survey.resolve(session) is not None
    except (Damaged, NoSession):
        return False
