"""The public namespace for entries: ``entry.user("hi")`` and its like make drafts, ``entry.view(e)`` reads one typed.

Re-exports and nothing else; each name is documented where it is defined, in ``agentsession_cas.core.types``.
"""

from __future__ import annotations

from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.types.config import ConfigView, config, config_from_request
from agentsession_cas.core.types.decisions import (
    DecisionView,
    DispatchView,
    answer,
    decision,
    dispatch,
    hold,
    proceed,
    reject,
    withdrawal,
)
from agentsession_cas.core.types.env import EnvView, env, same_workspace, workspace
from agentsession_cas.core.types.folds import BranchSummaryView, CompactionView, branch_summary, compaction
from agentsession_cas.core.types.items import (
    ItemView,
    assistant,
    developer,
    function_call,
    function_call_output,
    item,
    system,
    trigger,
    user,
)
from agentsession_cas.core.types.links import (
    LinkView,
    cancel_sent,
    continued_in,
    fork_of,
    judged_by,
    peer,
    remote_subsession,
    subsession,
)
from agentsession_cas.core.types.notes import (
    CustomView,
    InfoView,
    LabelView,
    OutcomeView,
    clear_label,
    custom,
    extension,
    info,
    label,
    leaf_label,
    outcome,
)
from agentsession_cas.core.types.responses import ResponseView, response
from agentsession_cas.core.types.runs import QueuedView, RunView, drain, queued, run_end, run_start
from agentsession_cas.core.types.views import ExtensionView, view

__all__ = [
    "BranchSummaryView",
    "CompactionView",
    "ConfigView",
    "CustomView",
    "DecisionView",
    "DispatchView",
    "Draft",
    "Entry",
    "EnvView",
    "ExtensionView",
    "InfoView",
    "ItemView",
    "LabelView",
    "LinkView",
    "OutcomeView",
    "QueuedView",
    "ResponseView",
    "RunView",
    "answer",
    "assistant",
    "branch_summary",
    "cancel_sent",
    "clear_label",
    "compaction",
    "config",
    "config_from_request",
    "continued_in",
    "custom",
    "decision",
    "developer",
    "dispatch",
    "drain",
    "env",
    "extension",
    "fork_of",
    "function_call",
    "function_call_output",
    "hold",
    "info",
    "item",
    "judged_by",
    "label",
    "leaf_label",
    "outcome",
    "peer",
    "proceed",
    "queued",
    "reject",
    "remote_subsession",
    "response",
    "run_end",
    "run_start",
    "same_workspace",
    "subsession",
    "system",
    "trigger",
    "user",
    "view",
    "withdrawal",
    "workspace",
]
