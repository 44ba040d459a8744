"""What an ``env`` entry says of the world, looked up: the commit checked out, the hashes of files, what replaced what.

Owns how git keeps a commit in its files (no git is run: a harness asks before every step, and may have none) and the
substitution rule over a path. Reads the file system through the host alone, writes nothing, appends nothing.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.facts import Code
from agentsession_cas.core.identity import HASH_PREFIX
from agentsession_cas.core.source import path_positions, walk_back
from agentsession_cas.core.tree import Session
from agentsession_cas.core.types.env import EnvView, same_workspace, workspace
from agentsession_cas.effects.host import Fs, real_host
from agentsession_cas.errors import NotGit, NotRegular

__all__ = [
    "Substitution",
    "git_revision",
    "hash_file",
    "hash_files",
    "same_workspace",
    "substitutions",
    "workspace",
    "workspace_at",
]

_PIECE: Final = 1 << 20
_LINKS_MAX: Final = 5
"""Symbolic refs that name symbolic refs: as many as git follows."""
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF: Final = re.compile(r"refs/(?!.*(?:^|/)\.)[^\x00-\x20\x7f~^:?*\[\\]+")


class Substitution(NamedTuple):
    """An ``env`` entry that puts another workspace in force; either may be None, where an entry names none."""

    entry: Entry
    before: dict[str, Any] | None
    after: dict[str, Any] | None


# --- git -------------------------------------------------------------------------------------------------------------


def git_revision(directory: str | Path, *, fs: Fs | None = None) -> str:
    """The commit checked out in the checkout that holds ``directory``, as git's hex; git itself is not run.

    Reads HEAD through symbolic refs, loose and packed, in a worktree and in a submodule too, whose ``.git`` is a file.
    Raises NotGit when there is no checkout, when nothing has been committed in it, and for refs kept in a reftable.
    """
    fs = fs or real_host().fs
    start = Path(directory).resolve()
    for place in (start, *start.parents):
        git = _git_directory(fs, place / ".git")
        if git is not None:
            return _commit(fs, git, str(start))
    raise NotGit("the directory is in no git checkout", where=str(start))


def _git_directory(fs: Fs, marker: Path) -> Path | None:
    """The directory a ``.git`` stands for; None where there is none, or none that git would take for one."""
    found = fs.stat(str(marker))
    if found is None:
        return None
    if found.is_dir:
        return marker if _text(fs, marker / "HEAD") is not None else None
    named = (_text(fs, marker) or "").removeprefix("gitdir:").strip()
    git = marker.parent / named
    if not named or _text(fs, git / "HEAD") is None:
        raise NotGit("the .git file names no git directory", where=str(marker))
    return git


def _commit(fs: Fs, git: Path, where: str) -> str:
    """The commit that HEAD of a git directory comes to. A worktree has its own HEAD, and shares all branches."""
    common = git / (_text(fs, git / "commondir") or ".").strip()
    if fs.stat(str(common / "reftable")) is not None:
        raise NotGit("the checkout keeps its refs in a table of their own, which is not read here", where=where)
    name = "HEAD"
    for _ in range(_LINKS_MAX + 1):
        value = _ref(fs, git, common, name)
        if value is None:
            raise NotGit(f"nothing is committed yet: {name} names no commit", where=where)
        if _COMMIT.fullmatch(value):
            return value
        name = value.removeprefix("ref:").strip()
        if name == value or not _REF.fullmatch(name):
            raise NotGit(f"HEAD comes to {value!r:.60}, which is no ref", where=where)
    raise NotGit(f"HEAD is a symbolic ref through more than {_LINKS_MAX} others", where=where)


def _ref(fs: Fs, git: Path, common: Path, name: str) -> str | None:
    """What a ref holds: a worktree's own first, then what all worktrees share, loose before packed."""
    for directory in dict.fromkeys((git, common)):
        value = _text(fs, directory / name)
        if value is not None:
            return value.strip()
    for line in (_text(fs, common / "packed-refs") or "").splitlines():
        commit, _, packed = line.partition(" ")
        if packed.strip() == name:
            return commit
    return None


def _text(fs: Fs, path: Path) -> str | None:
    """A file's text, None where there is no file."""
    try:
        data = fs.read(str(path))
    except NotRegular:
        return None
    return None if data is None else data.decode(errors="surrogateescape")


# --- files -----------------------------------------------------------------------------------------------------------


def hash_file(path: str | Path, *, fs: Fs | None = None) -> str:
    """The hash of a file's bytes, as ``env`` names files: ``sha256:`` and hex. Raises NoFile, NotRegular, DiskError."""
    file = (fs or real_host().fs).open(str(path))
    digest = hashlib.sha256()
    offset = 0
    try:
        while piece := file.pread(_PIECE, offset):
            digest.update(piece)
            offset += len(piece)
    finally:
        file.close()
    return HASH_PREFIX + digest.hexdigest()


def hash_files(directory: str | Path, *paths: str, fs: Fs | None = None) -> dict[str, str]:
    """The hash of each file, by the path it was given as; a relative one is below ``directory``.

    What ``entry.env`` takes as ``read`` and ``written``. Raises what :func:`hash_file` does, NoFile among it.
    """
    return {path: hash_file(Path(directory) / path, fs=fs) for path in paths}


# --- workspaces ------------------------------------------------------------------------------------------------------


def workspace_at(session: Session, leaf: str | None = None) -> dict[str, Any] | None:
    """The workspace in force at a leaf (None: the session's own): that of the last ``env`` on the path.

    None when that names none, or there is no ``env``. Raises NoEntry.
    """
    source = session.source
    for position in walk_back(source, session.position(session.leaf if leaf is None else leaf)):
        if source.facts(position).code == Code.ENV:
            return EnvView(source.entry(position)).workspace
    return None


def substitutions(session: Session, leaf: str | None = None) -> list[Substitution]:
    """The ``env`` entries of a path whose workspace is not the one in force before them (format.md §5), in path order.

    The first ``env`` of a path replaces nothing. One without a workspace puts none in force, which differs from any.
    ``leaf`` None is the session's own. Raises NoEntry.
    """
    source = session.source
    found: list[Substitution] = []
    before: EnvView | None = None
    for position in path_positions(source, session.position(session.leaf if leaf is None else leaf)):
        if source.facts(position).code != Code.ENV:
            continue
        view = EnvView(source.entry(position))
        if before is not None and not same_workspace(before.workspace, view.workspace):
            found.append(Substitution(view.entry, before.workspace, view.workspace))
        before = view
    return found
