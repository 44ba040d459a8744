"""``compaction`` and ``branch_summary``: summaries that enter the context (format.md §5, §6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentsession_cas.core.entry import Draft
from agentsession_cas.core.given import as_list
from agentsession_cas.core.reading import integer, members, objects, text
from agentsession_cas.core.types.items import checked_item
from agentsession_cas.core.types.members import Json, View, composed, need, own
from agentsession_cas.errors import BadEntry

__all__ = ["BranchSummaryView", "CompactionView", "branch_summary", "compaction"]


class CompactionView(View):
    """A ``compaction`` entry."""

    __slots__ = ()

    @property
    def first_kept(self) -> str:
        """The earliest entry of the path that stays in context."""
        return text(self.body, "first_kept")

    @property
    def summary(self) -> Json:
        """The item that replaces what came before."""
        return members(self.body, "summary") or {}

    @property
    def pinned(self) -> list[Json]:
        """Items kept verbatim from before ``first_kept``, in order."""
        return objects(self.body, "pinned")

    @property
    def config(self) -> Json | None:
        """The settings checkpoint; {} is one, None is none."""
        return members(self.body, "config")

    @property
    def tokens_before(self) -> int | None:
        """How large the context was."""
        return integer(self.body, "tokens_before")

    @property
    def usage(self) -> Json | None:
        """What making the summary used."""
        return members(self.body, "usage")


class BranchSummaryView(View):
    """A ``branch_summary`` entry."""

    __slots__ = ()

    @property
    def left(self) -> str:
        """The leaf that was left: the ``from`` member."""
        return text(self.body, "from")

    @property
    def summary(self) -> Json:
        """The item that carries the branch across."""
        return members(self.body, "summary") or {}

    @property
    def usage(self) -> Json | None:
        """What making the summary used."""
        return members(self.body, "usage")


def compaction(
    first_kept: str,
    summary: Mapping[str, Any],
    *,
    config: Mapping[str, Any],
    pinned: Iterable[Mapping[str, Any]] = (),
    tokens_before: int | None = None,
    usage: Mapping[str, Any] | None = None,
) -> Draft:
    """A fold of everything before ``first_kept`` into ``summary``, and ``config``, the settings in force, whole.

    The checkpoint is always written, an empty one too: without it a reader goes back to the configs before.
    """
    checkpoint = own("config", config) or {}
    for tool in as_list(checkpoint.get("tools") or (), "tools"):
        if not isinstance(tool, Mapping):
            raise BadEntry("a checkpoint holds each tool whole", where="/config/tools")
    if None in (own("extra", checkpoint.get("extra")) or {}).values():
        raise BadEntry("a checkpoint holds no null in extra", where="/config/extra")
    return Draft(
        "compaction",
        composed(
            {
                "first_kept": need("first_kept", first_kept),
                "summary": checked_item("summary", summary),
                "config": checkpoint,
            },
            pinned=[checked_item(f"pinned/{at}", each) for at, each in enumerate(as_list(pinned, "pinned"))] or None,
            tokens_before=tokens_before,
            usage=own("usage", usage),
        ),
    )


def branch_summary(left: str, summary: Mapping[str, Any], *, usage: Mapping[str, Any] | None = None) -> Draft:
    """What carries the branch that ended at ``left`` over to the one its parent continues."""
    return Draft(
        "branch_summary",
        composed(
            {"from": need("from", left), "summary": checked_item("summary", summary)},
            usage=own("usage", usage),
        ),
    )
