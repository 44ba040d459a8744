"""The refs' part of fsck: each ref's file, where it leads, what it pins, and its log (store.md A6, A12).

Takes no lock: a ref is read before its log, which never has less than the ref says. What a pin needs is noted in the
survey, so that it is never called dangling; where a ref does not read, nobody knows what it pins. Must not: repair.
"""

from __future__ import annotations

from agentsession_cas.core.refnames import check_beside, ref_of_file
from agentsession_cas.errors import Damaged, DiskError, NoFile, NoSession, RefName
from agentsession_cas.layout import Layout
from agentsession_cas.maintenance.findings import Finding, Findings
from agentsession_cas.maintenance.fsck_entries import check_path
from agentsession_cas.maintenance.survey import Survey
from agentsession_cas.sessions.reffile import Held
from agentsession_cas.sessions.refs import RefDatabase, birth_of

__all__ = ["check_refs"]


def check_refs(layout: Layout, survey: Survey) -> list[Finding]:
    """Check every ref of a store and every ref log; what pins need is noted in ``survey``."""
    check = _RefCheck(layout, survey)
    check.refs()
    check.logs()
    return check.found


class _RefCheck:
    """One check of the refs."""

    def __init__(self, layout: Layout, survey: Survey) -> None:
        self._layout = layout
        self._fs = layout.host.fs
        self._survey = survey
        self._refs = RefDatabase(layout.host, layout.root, layout.tmp)
        self._held: dict[str, Held] = {}
        self.found: list[Finding] = []

    def _add(self, code: str, detail: str, path: str, session: str = "", object: str = "") -> None:
        self.found.append(Finding(code, detail, session, object, path))

    def _files(self, directory: str) -> list[str]:
        """The names of refs that have a file in a directory; what else lies there is told."""
        names = []
        try:
            files = self._fs.listdir(directory)
        except NoFile:
            return []
        except DiskError as error:
            self._add("unreadable_file", error.what, directory)
            self._survey.complete = False
            return []
        for file in files:
            name = ref_of_file(file)
            if name:
                names.append(name)
            else:
                self._add("stray_file", "no ref", f"{directory}/{file}")
        return sorted(names)

    def refs(self) -> None:
        """Each ref, in the order of names."""
        names = self._files(self._refs.directory)
        for number, name in enumerate(names):
            path = self._refs.path_of(name)
            try:
                held = self._refs.read(name)
                check_beside(name, names[:number])
                if held is not None:
                    self._held[name] = held
                    self._check_target(held, path)
            except Damaged as error:
                self._add("ref_bad", error.what, path)
                self._survey.complete = False
            except RefName as error:
                self._add("ref_clash", error.what, path)
            except DiskError as error:
                self._add("unreadable_file", error.what, path)
                self._survey.complete = False

    def _check_target(self, held: Held, path: str) -> None:
        session, entry = held.target
        try:
            if birth_of(self._fs, self._layout.session_dir(session)) != held.birth:
                self._add("ref_dangling", "its session is gone, and another has the id", path, session)
        except NoSession:
            self._add("ref_dangling", "its session is gone", path, session)
        except Damaged:
            pass  # which is told of the session
        if entry:
            found = Findings(session, path)
            check_path(entry, self._survey, found)
            wrong = [each for each in found.all if each.code != "base_rule" and each.severity == "error"]
            if wrong:  # a leaf label may be pinned
                detail = f"{wrong[0].detail.replace('the base', 'the pin')} ({wrong[0].object})"
                self._add("ref_pin_missing", detail, path, session, entry)

    def logs(self) -> None:
        """Each log, those of deleted refs too."""
        listed = self._files(self._refs.logs.directory)
        for name in listed:
            path = self._refs.logs.directory_of(name)
            try:
                for file in self._fs.listdir(path):
                    if not self._refs.logs.is_segment(file):
                        self._add("stray_file", "no part of a ref log", f"{path}/{file}")
                self._check_log(name, path)
            except DiskError as error:
                self._add("unreadable_file", error.what, path)
        self._missing()
        for name in self._held.keys() - set(listed):
            self._add("ref_log_gap", "there is no log", self._refs.logs.directory_of(name))

    def _missing(self) -> None:
        """Refs that their logs know and that are not there."""
        try:
            is_gone, missing = self._fs.stat(self._refs.directory) is None, self._refs.missing()
        except DiskError as error:
            self._add("unreadable_file", error.what, error.where)
            self._survey.complete = False
            return
        for name, record in missing.items():
            target, path = record.update.new, self._refs.path_of(name)
            if target is None:
                continue
            if is_gone or record.update.old is not None:
                self._add("ref_lost", f"its log has it at {target}, update {record.number}", path, target.session)
            else:
                self._add("ref_unmade", f"its log has it at {target}", path, target.session)
            if target.entry:
                check_path(target.entry, self._survey, Findings(target.session, path))

    def _check_log(self, name: str, path: str) -> None:
        segments = self._refs.logs.segments(name)
        numbers: list[int] = []
        for at, first in enumerate(segments):
            segment = self._refs.logs.read_segment(name, first)
            if segment.damaged:
                self._add("ref_log_bad", "records that do not read", segment.path)
                return
            numbers += [each.number for each in segment.records if each.number < (*segments, each.number + 1)[at + 1]]
        held = self._held.get(name)
        oldest, newest = (segments[0], numbers[-1]) if numbers else (1, 0)  # what was before the oldest has expired
        missing = len(range(oldest, newest + 1)) - len(numbers)
        if missing:
            self._add("ref_log_gap", f"{missing} updates from {oldest} to {newest} are missing", path)
        elif held is not None and newest < held.number:
            self._add("ref_log_gap", f"the ref is at update {held.number}, the log at {newest}", path)
