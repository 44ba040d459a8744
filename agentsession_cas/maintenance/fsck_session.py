"""One session's part of fsck: its header and files, its rows and entries, and what the entries say.

Owns the order of these looks, and the rule that a session which changes while it is read is read again before it is
called damaged: only what two looks in a row find is believed. Takes no lock and writes nothing. Damage ends the look at
one session and at no other.
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
from agentsession_cas.maintenance.fsck_rows import check_rows
from agentsession_cas.maintenance.survey import Survey
from agentsession_cas.sessions.chain import ChainSource
from agentsession_cas.sessions.headerfile import HEADER_NAME
from agentsession_cas.sessions.opening import read_header
from agentsession_cas.sessions.prefix import Prefix

__all__ = ["check_session"]

_LOOKS_MAX: Final = 6
_IGNORED: Final = frozenset({"nothing_to_verify"})
"""Problems of a file that are none of a session in a store: one may be empty."""


def check_session(layout: Layout, name: str, survey: Survey) -> tuple[int, list[Finding]] | None:
    """Check the session in directory ``name``: how many own entries, and what is wrong; None when it is not there.

    What it needs is noted in ``survey``.
    """
    directory = f"{layout.sessions}/{name}"
    look = _Look(layout.host, directory, name, survey)
    found = believed = look.take()
    for _ in range(_LOOKS_MAX):
        if not believed:
            break
        again = look.take()
        before = set(found)
        believed = [each for each in again if each in before]
        if len(believed) == len(again):
            break
        found = again
    if layout.host.fs.stat(directory) is None:
        return None
    survey.complete = survey.complete and look.complete
    return look.entries, believed


class _Look:
    """Looks at one session, each from the start."""

    def __init__(self, host: Host, directory: str, name: str, survey: Survey) -> None:
        self._host = host
        self._directory = directory
        self._name = name
        self._survey = survey
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
        check.check_all()
        good = not found.has_errors(told)
        self.complete = good and not files.lost
        if survey.fast:
            return
        if not good:
            found.add("unchecked", CODES["unchecked"].says)
            return
        _check_said(source, header, survey, found)


def _check_said(source: CheckedSource, header: Header, survey: Survey, found: Findings) -> None:
    """What entries say of calls, runs, requests and sessions; a prefix's is its own session's, when that is held."""
    report = verify(Session(header, source))
    theirs = source.base_count if _held(header.parent_session, survey) else 0
    for problem in report["problems"]:
        entry = problem.get("entry", "")
        if problem["code"] not in _IGNORED and not 0 <= source.find(entry) < theirs:
            found.add(problem["code"], problem["detail"], object=entry)
    for link in link_problems(source, header, survey.resolve):
        if isinstance(link.error, LinkMismatch):
            found.add(link.error.code, link.error.what, object=link.entry)


def _held(session: str, survey: Survey) -> bool:
    try:
        return bool(session) and survey.resolve(session) is not None
    except (Damaged, NoSession):
        return False
