"""Which view reads which type of entry."""

from __future__ import annotations

from typing import Final

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.given import require
from agentsession_cas.core.types.config import ConfigView
from agentsession_cas.core.types.decisions import DecisionView, DispatchView
from agentsession_cas.core.types.env import EnvView
from agentsession_cas.core.types.folds import BranchSummaryView, CompactionView
from agentsession_cas.core.types.items import ItemView
from agentsession_cas.core.types.links import LinkView
from agentsession_cas.core.types.members import View
from agentsession_cas.core.types.notes import CustomView, InfoView, LabelView, OutcomeView
from agentsession_cas.core.types.responses import ResponseView
from agentsession_cas.core.types.runs import QueuedView, RunView

__all__ = ["ExtensionView", "view"]


class ExtensionView(View):
    """An entry of a type this package does not define: its body, and nothing read into it."""

    __slots__ = ()


AnyView = (
    ItemView
    | ResponseView
    | ConfigView
    | CompactionView
    | BranchSummaryView
    | RunView
    | DispatchView
    | DecisionView
    | QueuedView
    | LabelView
    | InfoView
    | EnvView
    | OutcomeView
    | LinkView
    | CustomView
    | ExtensionView
)

_VIEWS: Final[dict[str, type[AnyView]]] = {
    "item": ItemView,
    "response": ResponseView,
    "config": ConfigView,
    "compaction": CompactionView,
    "branch_summary": BranchSummaryView,
    "run": RunView,
    "dispatch": DispatchView,
    "decision": DecisionView,
    "queued": QueuedView,
    "label": LabelView,
    "info": InfoView,
    "env": EnvView,
    "outcome": OutcomeView,
    "link": LinkView,
    "custom": CustomView,
}


def view(entry: Entry) -> AnyView:
    """The entry read as one of its type."""
    return _VIEWS.get(require(entry, Entry, "what is viewed").type, ExtensionView)(entry)
