"""Commits, file hashes and workspaces: against git itself where git keeps the state, on a real disk."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from agentsession_cas import Store, entry
from agentsession_cas.environment import (
    git_revision,
    hash_file,
    hash_files,
    same_workspace,
    substitutions,
    workspace_at,
)
from agentsession_cas.errors import NoEntry, NoFile, NotGit, NotRegular

LOCAL = entry.workspace("local")
CONTAINER = entry.workspace("container", ref="sha256:1", instance="c1")


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Runs git, with no configuration but what a command says."""
    for name in [each for each in os.environ if each.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    return Git(tmp_path)


class Git:
    """A repository ``repo`` with two commits, and git to run in any directory below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.repo = root / "repo"
        self.repo.mkdir()
        self("init", "-q", "-b", "main")
        self.commit("one")
        self.commit("two")

    def __call__(self, *arguments: str, at: Path | None = None) -> str:
        settings = ("user.name=t", "user.email=t@t.test", "protocol.file.allow=always", "commit.gpgsign=false")
        options = [part for each in settings for part in ("-c", each)]
        command = ["git", *options, *arguments]
        done = subprocess.run(command, cwd=at or self.repo, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, words: str, at: Path | None = None) -> None:
        self("commit", "-q", "--allow-empty", "-m", words, at=at)

    def agrees(self, at: Path) -> bool:
        return git_revision(at) == self("rev-parse", "HEAD", at=at)


def test_a_loose_branch_from_anywhere_in_the_checkout(git: Git) -> None:
    below = git.repo / "a" / "b"
    below.mkdir(parents=True)
    assert git.agrees(git.repo)
    assert git.agrees(below)
    link = git.root / "link"
    link.symlink_to(below)
    assert git.agrees(link)


def test_a_relative_directory(git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(git.repo)
    assert git_revision(".") == git("rev-parse", "HEAD")


def test_packed_refs_and_a_loose_one_over_them(git: Git) -> None:
    git("tag", "-a", "v1", "-m", "a tag, whose line in packed-refs is followed by what it peels to")
    git("branch", "main2")
    git("pack-refs", "--all")
    assert not (git.repo / ".git" / "refs" / "heads" / "main").exists()
    assert git.agrees(git.repo)
    git.commit("three")
    assert git.agrees(git.repo)


def test_a_detached_head(git: Git) -> None:
    git("checkout", "-q", "--detach", "HEAD~1")
    assert git.agrees(git.repo)


def test_a_branch_that_is_a_symbolic_ref(git: Git) -> None:
    git("symbolic-ref", "refs/heads/alias", "refs/heads/main")
    git("symbolic-ref", "HEAD", "refs/heads/alias")
    assert git.agrees(git.repo)


def test_a_branch_with_slashes(git: Git) -> None:
    git("checkout", "-q", "-b", "feature/deep/er")
    git.commit("three")
    assert git.agrees(git.repo)
    git("pack-refs", "--all")
    assert git.agrees(git.repo)


def test_worktrees_have_a_head_of_their_own(git: Git) -> None:
    tree, loose = git.root / "tree", git.root / "loose"
    git("worktree", "add", "-q", "-b", "side", str(tree), "HEAD~1")
    git("worktree", "add", "-q", "--detach", str(loose), "HEAD~1")
    assert (tree / ".git").is_file()
    assert git_revision(tree) != git_revision(git.repo)
    git.commit("three", at=tree)
    assert git.agrees(tree)
    assert git.agrees(loose)
    git("pack-refs", "--all")
    assert git.agrees(tree)


def test_submodules(git: Git) -> None:
    other = git.root / "other"
    other.mkdir()
    git("init", "-q", "-b", "trunk", at=other)
    git.commit("of the submodule", at=other)
    git("submodule", "--quiet", "add", str(other), "sub")
    module = git.repo / "sub"
    assert (module / ".git").is_file()
    assert git.agrees(module)
    assert git_revision(module) == git_revision(other) != git_revision(git.repo)


def test_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(NotGit) as caught:
        git_revision(tmp_path)
    assert caught.value.code == "not_git"
    assert str(tmp_path) in caught.value.where


def test_a_git_directory_that_is_none_is_passed_over(git: Git) -> None:
    below = git.repo / "below"
    (below / ".git").mkdir(parents=True)
    assert git_revision(below) == git_revision(git.repo)


def test_nothing_committed_yet(git: Git) -> None:
    git("checkout", "-q", "--orphan", "empty")
    with pytest.raises(NotGit, match="committed"):
        git_revision(git.repo)


@pytest.mark.parametrize(
    "head",
    ["ref: refs/../../../secret", "ref: ../secret", "ref: refs/heads/.hidden", "nonsense", "", "ref: refs/heads/a b"],
)
def test_a_head_that_names_no_ref(git: Git, head: str) -> None:
    (git.root / "secret").write_text("0" * 40)
    (git.repo / ".git" / "HEAD").write_text(head)
    with pytest.raises(NotGit):
        git_revision(git.repo)


def test_symbolic_refs_in_a_circle(git: Git) -> None:
    heads = git.repo / ".git" / "refs" / "heads"
    (heads / "main").write_text("ref: refs/heads/again\n")
    (heads / "again").write_text("ref: refs/heads/main\n")
    with pytest.raises(NotGit, match="symbolic"):
        git_revision(git.repo)


@pytest.mark.parametrize("text", ["gitdir: nowhere\n", "gitdir:\n", "nonsense"])
def test_a_git_file_that_leads_nowhere(tmp_path: Path, text: str) -> None:
    (tmp_path / ".git").write_text(text)
    with pytest.raises(NotGit, match="names no git directory"):
        git_revision(tmp_path)


def test_a_reftable_is_said_not_to_be_read(git: Git) -> None:
    (git.repo / ".git" / "HEAD").write_text("ref: refs/heads/.invalid\n")
    (git.repo / ".git" / "reftable").mkdir()
    with pytest.raises(NotGit, match="a table of their own"):
        git_revision(git.repo)


def test_files_are_hashed_whole(tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    (tmp_path / "large").write_bytes(data)
    (tmp_path / "empty").write_bytes(b"")
    assert hash_file(tmp_path / "large") == "sha256:" + hashlib.sha256(data).hexdigest()
    assert hash_file(str(tmp_path / "empty")) == "sha256:" + hashlib.sha256(b"").hexdigest()
    with pytest.raises(NoFile):
        hash_file(tmp_path / "absent")
    with pytest.raises(NotRegular):
        hash_file(tmp_path)


def test_files_are_keyed_as_they_are_given(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_bytes(b"a")
    whole = str(tmp_path / "sub" / "a")
    hashed = "sha256:" + hashlib.sha256(b"a").hexdigest()
    given = ("sub/a", "sub/../sub/a", whole)
    assert hash_files(tmp_path, *given) == dict.fromkeys(given, hashed)
    assert hash_files(tmp_path) == {}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (None, None, True),
        (LOCAL, None, False),
        (None, {}, False),
        ({"kind": "local", "ref": ""}, LOCAL, True),
        ({"kind": ""}, {}, True),
        ({"kind": "local", "host": ""}, LOCAL, False),
        ({"kind": "local", "acme:zone": 1}, {"acme:zone": 1.0, "kind": "local"}, True),
        ({"kind": "local", "acme:zone": 1}, {"kind": "local", "acme:zone": 2}, False),
        (CONTAINER, {**CONTAINER, "instance": "c2"}, False),
    ],
)
def test_same_workspace(one: dict[str, object] | None, other: dict[str, object] | None, same: bool) -> None:
    assert same_workspace(one, other) is same
    assert same_workspace(other, one) is same


def test_a_substitution_is_another_workspace_than_the_one_in_force() -> None:
    with Store.memory() as store, store.create() as session:
        assert workspace_at(session) is None
        root = session.append(entry.env("/src", workspace=LOCAL)).id
        assert workspace_at(session) == LOCAL
        session.append(entry.env("/other", workspace=LOCAL, tools={"python": "3.11"}))
        moved = session.append(entry.env("/src", workspace=CONTAINER)).id
        session.append(entry.user("hi"))
        dropped = session.append(entry.env("/src")).id
        session.append({"type": "env", "cwd": "/src2"})
        told = [(each.entry.id, each.before, each.after) for each in substitutions(session)]
        assert told == [(moved, LOCAL, CONTAINER), (dropped, CONTAINER, None)]
        assert workspace_at(session) is None
        assert [each.entry.id for each in substitutions(session, moved)] == [moved]
        assert workspace_at(session, moved) == CONTAINER
        session.branch(root)
        assert substitutions(session) == []
        assert substitutions(session, "") == []
        with pytest.raises(NoEntry):
            substitutions(session, "sha256:" + "0" * 64)


def test_a_workspace_in_another_form_reads_as_absent() -> None:
    with Store.memory() as store, store.create() as session:
        session.append({"type": "env", "workspace": "the laptop"})
        session.append({"type": "env", "workspace": ["x"]})
        assert substitutions(session) == []
        session.append(entry.env(workspace=LOCAL))
        assert [each.before for each in substitutions(session)] == [None]
