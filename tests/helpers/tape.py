"""Sessions written entry by entry with no rule tested, so that a test can hold whatever a stored file may hold."""

from __future__ import annotations

from typing import Any

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.header import Header, new_header
from agentsession_cas.core.memory import MemorySource
from agentsession_cas.core.runs import Run, runs

__all__ = ["PROMISED", "Tape", "last_run"]

SESSION = "01995b2a-0000-7000-8000-0000000000ff"
PROMISED = ("run", "dispatch", "decision")


class Tape:
    """A growing session. Each method adds an entry below ``at`` (the entry added last) and gives its position."""

    def __init__(self, *, records: tuple[str, ...] = PROMISED, session: str = SESSION) -> None:
        self.header: Header = new_header(id=session, created_at="2026-11-01T00:00:00Z", records=records)
        self.source = MemorySource()
        self.at = -1

    def add(self, type_: str, body: dict[str, Any], parents: tuple[dict[str, Any], ...] = ()) -> int:
        """Any entry at all."""
        parent = self.source.entry_id(self.at) if self.at >= 0 else ""
        ts = f"2026-11-01T00:00:00.{len(self.source) + 1:09d}".rstrip("0") + "Z"
        self.at = self.source.add(Entry.seal(type_, body, parent, ts, parents), self.at)
        return self.at

    def id(self, position: int) -> str:
        """The id at a position."""
        return self.source.entry_id(position)

    def branch(self, position: int) -> None:
        """Hang the next entry from ``position``."""
        self.at = position

    def base(self) -> None:
        """Make everything so far the prefix of a fork."""
        self.source.base_count = len(self.source)

    def user(self, text: str = "hi") -> int:
        """A message of the user."""
        content = [{"type": "input_text", "text": text}]
        return self.add("item", {"item": {"type": "message", "role": "user", "content": content}})

    def call(self, call_id: str = "c1", response: str = "r1", arguments: str = "{}", name: str = "tool") -> int:
        """A function call made by a response."""
        item = {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        return self.add("item", {"item": item, **({"response": response} if response else {})})

    def output(self, call_id: str = "c1", output: str = "ok", **more: Any) -> int:
        """A function call output."""
        item = {"type": "function_call_output", "call_id": call_id, "output": output}
        return self.add("item", {"item": item, **more})

    def dispatch(self, call: int, call_id: str = "c1", **more: Any) -> int:
        """A hand-off of the call at a position."""
        return self.add("dispatch", {"call_id": call_id, "target": self.id(call), **more})

    def decide(self, call: int, verdict: str, call_id: str = "c1", **more: Any) -> int:
        """A decision on the call at a position."""
        reason = {"reason": "because"} if verdict == "reject" else {}
        return self.add("decision", {"call_id": call_id, "target": self.id(call), "verdict": verdict, **reason, **more})

    def withdraw(self, call: int, call_id: str = "c1") -> int:
        """A reject that withdraws a dispatch, if it stands directly after one."""
        return self.decide(call, "reject", call_id, withdrawn=True)

    def play(self, events: str, call: int) -> None:
        """What happens to the call ``c1`` at a position, in words: dispatch, withdraw, output, or a verdict."""
        for event in events.split():
            if event == "dispatch":
                self.dispatch(call)
            elif event == "withdraw":
                self.withdraw(call)
            elif event == "output":
                self.output()
            else:
                self.decide(call, event)

    def response(self, response_id: str = "r1", **more: Any) -> int:
        """The envelope of a model call."""
        return self.add("response", {"response_id": response_id, "status": "completed", **more})

    def start(self, run_id: str = "run-1", source: str = "input") -> int:
        """A run's start."""
        return self.add("run", {"run_id": run_id, "phase": "start", "source": source})

    def end(self, reason: str, pending: tuple[str, ...] = (), run_id: str = "run-1") -> int:
        """A run's end."""
        return self.add("run", {"run_id": run_id, "phase": "end", "reason": reason, "pending": list(pending)})

    def link(self, rel: str, session: str = "", **more: Any) -> int:
        """A link to another session, or a cancel notice."""
        return self.add("link", {"rel": rel, "session": session, **more})


def last_run(tape: Tape) -> Run:
    """The last run on the path."""
    return runs(tape.source, tape.at)[-1]
