"""fsck: walk everything a store holds and say what is wrong with it (store.md A12).

Owns the order of the walk: settings, objects, each session by itself, refs, what lies about, and at last what nothing
needs.
Read-only and without a lock, beside live writers. Damage in one place hides none in another. Objects are listed before
the sessions are read, so that what a writer publishes meanwhile is never called dangling; an import under way may have
its objects so called until its session is there. Memory: 32 bytes and a set's slot for each object, a few MB of bodies;
a process that helps (``fsck_crew``) has what one session needs, and a cache of its own.
Must not: repair, or decide what is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from agentsession_cas.core.packformat import Space
from agentsession_cas.errors import AgentSessionError, DiskError, NoFile
from agentsession_cas.layout import Layout, session_id_of
from agentsession_cas.maintenance.findings import Finding, FsckReport
from agentsession_cas.maintenance.fsck_crew import PATIENCE_S, Crew, Look
from agentsession_cas.maintenance.fsck_files import is_stale
from agentsession_cas.maintenance.fsck_packs import PackReaders
from agentsession_cas.maintenance.fsck_ranges import Share, alone
from agentsession_cas.maintenance.fsck_refs import check_refs
from agentsession_cas.maintenance.fsck_session import check_session
from agentsession_cas.maintenance.survey import Survey, header_of
from agentsession_cas.objects.database import ObjectDatabase
from agentsession_cas.sessions.headerfile import HEADER_NAME
from agentsession_cas.sessions.source import hash_of

__all__ = ["Progress", "fsck"]

Progress = Callable[[int, int], None]
"""Called with how many steps are done and how many there are: the objects are one, each session is one."""


def fsck(
    layout: Layout,
    objects: ObjectDatabase,
    *,
    fast: bool = False,
    progress: Progress | None = None,
    patience_s: float = PATIENCE_S,
) -> FsckReport:
    """Check the whole store (codes in :mod:`~agentsession_cas.maintenance.findings`).

    ``fast`` skips bodies: files, rows, envelopes and the presence of bodies are checked; of objects only envelopes are
    read, and nothing is said of records, requests, links, blobs and dangling objects. The other cores help with a large
    pack and a long session, and once the sessions have taken ``patience_s`` seconds; what is found, and its order, is
    the same with them and without.
    """
    check = _Check(layout, objects, fast, progress or _silent)
    check.settings()
    check.objects()
    check.sessions(patience_s)
    check.findings += check_refs(layout, check.survey)
    check.leftovers()
    if not fast:
        check.bodies()
        check.dangling()
    return FsckReport(check.session_count, check.entry_count, check.survey.count, check.findings)


def _silent(done: int, total: int) -> None:
    """Tell nobody."""


class _Check:
    """One check under way."""

    def __init__(self, layout: Layout, objects: ObjectDatabase, fast: bool, progress: Progress) -> None:
        self._layout = layout
        self._fs = layout.host.fs
        self._progress = progress
        self.survey = Survey(objects, partial(header_of, layout), fast=fast)
        self.findings: list[Finding] = []
        self._of_bodies: list[tuple[bytes, Finding]] = []
        self._share: Share = alone
        self.session_count = 0
        self.entry_count = 0

    def _names(self, directory: str) -> list[str]:
        try:
            return self._fs.listdir(directory)
        except DiskError as error:
            self._add("unreadable_file", error.what, directory)
            self.survey.complete = False
            return []

    def _add(self, code: str, detail: str, path: str) -> None:
        self.findings.append(Finding(code, detail, path=path))

    def settings(self) -> None:
        """The one file that makes a directory a store."""
        try:
            Layout.open(self._layout.host, self._layout.root)
        except AgentSessionError as error:
            self._add("bad_settings", error.what, f"{self._layout.root}/store.json")

    def objects(self) -> None:
        """List the objects; unless the check is a fast one, by reading them all."""
        if self.survey.fast:
            error = self.survey.list_objects()
            if error is not None:
                code = "unreadable_file" if isinstance(error, DiskError) else "corrupt_pack"
                self._add(code, error.what, error.where)
            return
        with PackReaders(self._layout) as readers:
            self._check_objects(readers)

    def _check_objects(self, readers: PackReaders) -> None:
        sound = True
        try:
            for each in self.survey.objects.check(self.survey.note, readers.gather):
                sound = sound and each.severity == "note"
                if each.code == "bare_idx" and not is_stale(self._layout.host, each.path):
                    continue  # a writer puts the idx first: its pack is on the way
                named = "" if each.digest is None else hash_of(each.digest)
                finding = Finding(each.code, each.detail, object=named, path=each.path)
                if each.body is None:
                    self.findings.append(finding)
                else:
                    self._of_bodies.append((each.body, finding))
            self.survey.sound = sound
        except DiskError as failed:
            self._add("unreadable_file", failed.what, failed.where)

    # --- sessions ---

    def sessions(self, patience_s: float) -> None:
        """Check each session; those that come meanwhile too."""
        total, done = 1, 0
        seen: set[str] = set()
        with Crew(self._layout, self.survey, self._look, patience_s) as crew:
            self._share = crew.look_at_ranges
            while new := [name for name in self._names(self._layout.sessions) if name not in seen]:
                seen.update(new)
                total = 1 + len(seen)
                if not done:
                    self._progress(1, total)
                looks: dict[str, Look] = {}
                for name, look in crew.look_at(new):
                    looks[name] = look
                    done += 1
                    self._progress(1 + done, total)
                for name in new:
                    self._take(looks[name])
        if not done:
            self._progress(1, total)

    def _take(self, look: Look) -> None:
        self.session_count += look.sessions
        self.entry_count += look.entries
        self.findings += look.findings

    def _look(self, name: str) -> Look:
        """Look at what has a name among the sessions."""
        path = f"{self._layout.sessions}/{name}"
        try:
            found = self._fs.stat(path)
            if found is None:
                return Look()
            if not found.is_dir or self._is_stray(name, path):
                return Look(findings=[Finding("stray_file", "no session", path=path)])
            checked = check_session(self._layout, name, self.survey, self._share)
        except DiskError as error:
            self.survey.complete = False
            return Look(findings=[Finding("unreadable_file", error.what, path=path)])
        return Look() if checked is None else Look(1, *checked)

    def _is_stray(self, name: str, path: str) -> bool:
        """Whether a directory is no session's: by its name, and it has no header."""
        known = session_id_of(name) or "%%" in name
        return not known and self._fs.stat(f"{path}/{HEADER_NAME}") is None

    # --- the rest ---

    def leftovers(self) -> None:
        """What dead processes left in tmp, which may be absent: whoever opens the store to write makes it anew."""
        try:
            names = self._fs.listdir(self._layout.tmp)
        except NoFile:
            return
        except DiskError as error:
            self._add("unreadable_file", error.what, self._layout.tmp)
            return
        for name in names:
            path = f"{self._layout.tmp}/{name}"
            try:
                if is_stale(self._layout.host, path):
                    self._add("stale_tmp", "untouched for more than an hour", path)
            except DiskError as error:
                self._add("unreadable_file", error.what, path)

    def bodies(self) -> None:
        """What is wrong with bodies of several parts; of one that no session needs, a sweep may take a part first."""
        needed = self.survey.needed[Space.CONTENTS]
        self.findings += [each for body, each in self._of_bodies if body in needed or not self.survey.complete]

    def dangling(self) -> None:
        """Objects that no session needs, if that can be told."""
        if not self.survey.complete:
            self._add("dangling_unknown", "a session or a ref does not read whole", self._layout.sessions)
            return
        error = self.survey.need_pieces()
        if error is not None:
            self._add("dangling_unknown", f"of the pieces: {error.what}", error.where or self._layout.root)
        for place in self.survey.dangling():
            detail = f"no session needs this of the {place.space.name.lower()}"
            self.findings.append(Finding("dangling_object", detail, object=hash_of(place.digest), path=place.path))
