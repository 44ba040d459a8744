"""``env``: where the tools ran and what they saw (format.md §5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentsession_cas.core.canonical import canonical
from agentsession_cas.core.entry import Draft
from agentsession_cas.core.reading import members, text
from agentsession_cas.core.required import WORKSPACE_KINDS
from agentsession_cas.core.types.members import Json, View, composed, one_of, own

__all__ = ["EnvView", "env", "same_workspace", "workspace"]


class EnvView(View):
    """An ``env`` entry, in force until the next one on the path."""

    __slots__ = ()

    @property
    def cwd(self) -> str:
        """The working directory, or ""."""
        return text(self.body, "cwd")

    @property
    def vcs(self) -> Json | None:
        """``system``, ``revision``, ``dirty`` and whatever else."""
        return members(self.body, "vcs")

    @property
    def files_read(self) -> dict[str, str]:
        """The hash of each file read, by path."""
        return _strings(members(self.body, "files"), "read")

    @property
    def files_written(self) -> dict[str, str]:
        """The hash of each file written, by path."""
        return _strings(members(self.body, "files"), "written")

    @property
    def tools(self) -> dict[str, str]:
        """The version of each tool, by name."""
        return _strings(self.body, "tools")

    @property
    def workspace(self) -> Json | None:
        """Which file system ``cwd`` is a path in."""
        return members(self.body, "workspace")


def env(
    cwd: str = "",
    *,
    vcs: Mapping[str, Any] | None = None,
    read: Mapping[str, str] | None = None,
    written: Mapping[str, str] | None = None,
    tools: Mapping[str, str] | None = None,
    workspace: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Draft:
    """A snapshot of the environment. ``read`` and ``written`` map paths to hashes, ``tools`` names to versions."""
    files = composed({}, read=own("read", read) or None, written=own("written", written) or None)
    body = composed(
        {},
        extra,
        cwd=cwd,
        vcs=own("vcs", vcs),
        files=files or None,
        tools=own("tools", tools) or None,
        workspace=own("workspace", workspace),
    )
    return Draft("env", body)


def workspace(
    kind: str, *, ref: str = "", host: str = "", instance: str = "", extra: Mapping[str, Any] | None = None
) -> Json:
    """A ``workspace`` member: what tells one file system from another, since only it is compared for a substitution."""
    one_of("kind", kind, WORKSPACE_KINDS)
    return composed({"kind": kind}, extra, ref=ref, host=host, instance=instance)


def same_workspace(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Whether two workspaces are the same: every member alike, an empty ``kind`` or ``ref`` being absent."""
    if one is None or other is None:
        return one is other
    return canonical(_compared(one)) == canonical(_compared(other))


def _compared(workspace: Mapping[str, Any]) -> Json:
    return {name: value for name, value in workspace.items() if value or name not in ("kind", "ref")}


def _strings(body: Mapping[str, Any] | None, name: str) -> dict[str, str]:
    value = members(body or {}, name) or {}
    return {key: each for key, each in value.items() if isinstance(each, str)}
