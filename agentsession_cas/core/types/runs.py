"""``run`` and ``queued``: the harness loop, and the inputs it owes the conversation (format.md §5, §9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.core.given import as_list, require
from agentsession_cas.core.reading import members, text, texts
from agentsession_cas.core.required import MODES, RUN_REASONS, RUN_SOURCES
from agentsession_cas.core.types.items import checked_item, item
from agentsession_cas.core.types.members import Json, View, composed, need, one_of, own
from agentsession_cas.errors import BadEntry

__all__ = ["QueuedView", "RunView", "drain", "queued", "run_end", "run_start"]


class RunView(View):
    """A ``run`` entry: the start or the end of one pass of the loop."""

    __slots__ = ()

    @property
    def run_id(self) -> str:
        """What start and end share."""
        return text(self.body, "run_id")

    @property
    def phase(self) -> str:
        """``start`` or ``end``."""
        return text(self.body, "phase")

    @property
    def source(self) -> str:
        """On a start: ``input`` or ``resume``."""
        return text(self.body, "source")

    @property
    def reason(self) -> str:
        """On an end: why the run ended."""
        return text(self.body, "reason")

    @property
    def pending(self) -> list[str]:
        """On an end: the ids of the calls left without an output."""
        return texts(self.body, "pending")

    @property
    def ref(self) -> str:
        """What started or ended the run, in the harness's own terms, or ""."""
        return text(self.body, "ref")

    @property
    def trigger(self) -> Json | None:
        """On a start: how its input arrived."""
        return members(self.body, "trigger")


class QueuedView(View):
    """A ``queued`` entry: an input accepted before it could be appended."""

    __slots__ = ()

    @property
    def item(self) -> Json:
        """The input as it will be appended."""
        return members(self.body, "item") or {}

    @property
    def mode(self) -> str:
        """``steer`` joins the run in flight, ``followup`` waits for its end."""
        return text(self.body, "mode")

    @property
    def trigger(self) -> Json | None:
        """How the input arrived."""
        return members(self.body, "trigger")

    @property
    def ref(self) -> str:
        """The input in the harness's own terms, or ""."""
        return text(self.body, "ref")


def run_start(run_id: str, *, source: str = "input", ref: str = "", trigger: Mapping[str, Any] | None = None) -> Draft:
    """The start of a run: of an ``input``, or ``resume`` to take up a pending call."""
    one_of("source", source, RUN_SOURCES)
    return Draft(
        "run",
        composed(
            {"run_id": need("run_id", run_id), "phase": "start", "source": source},
            ref=ref,
            trigger=own("trigger", trigger),
        ),
    )


def run_end(run_id: str, *, reason: str, pending: Iterable[str], ref: str = "") -> Draft:
    """The end of a run; ``pending`` are the ids of the calls without an output, written even when there are none."""
    one_of("reason", reason, RUN_REASONS)
    if isinstance(pending, str):
        raise BadEntry("pending is a list of call ids", where="/pending")
    calls = as_list(pending, "pending")
    body = {"run_id": need("run_id", run_id), "phase": "end", "reason": reason, "pending": calls}
    return Draft("run", composed(body, ref=ref))


def queued(item: Mapping[str, Any], *, mode: str, trigger: Mapping[str, Any] | None = None, ref: str = "") -> Draft:
    """An input accepted while it cannot be appended yet, to be recorded before it is acted on."""
    one_of("mode", mode, MODES)
    return Draft(
        "queued",
        composed(
            {"item": checked_item("item", item), "mode": mode},
            trigger=own("trigger", trigger),
            ref=ref,
        ),
    )


def drain(entry: Entry) -> Draft:
    """The item entry that appends a queued input: its item, its trigger as source, and where it waited."""
    if require(entry, Entry, "what is drained").type != "queued":
        raise BadEntry(f"{entry.id} is no queued entry", next_step="take one of session.pending_queued()")
    view = QueuedView(entry)
    return item(view.item, source=view.trigger, queued_from=entry.id)
