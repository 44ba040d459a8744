"""Whoever writes a session entry by entry and knows, by the format alone, what may come next on any of its paths."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from agentsession_cas import entry
from agentsession_cas.core.entry import Draft, Entry
from agentsession_cas.sessions.handle import SessionWriter
from tests.helpers.pathmodel import CallModel, PathModel

__all__ = ["Author"]

Json = dict[str, Any]


class Author:
    """Grows one session.

    ``models`` has the path of every entry, ``hashed`` and ``unhashed`` the responses recorded with a request hash and
    without, ``dispatched`` each call's dispatches on any branch, ``labels`` the leaf labels.
    """

    def __init__(self, session: SessionWriter, above: Author | None = None) -> None:
        self.session = session
        self.promised = "dispatch" in session.header.records
        self.models: dict[str, PathModel] = {}
        self.hashed: list[str] = []
        self.unhashed: list[str] = []
        self.dispatched: dict[str, list[str]] = {}
        self.labels: set[str] = set()
        self.numbers: int = 0
        if above is None:
            self.models[""] = PathModel()
        else:
            self._inherit(above, session.header.base)

    def _inherit(self, above: Author, base: str) -> None:
        model = above.models[base]
        self.numbers = above.numbers
        self.models[base] = replace(model, calls={name: replace(c, own=False) for name, c in model.calls.items()})
        self.hashed = [name for name in above.hashed if name in model.entries]
        self.unhashed = [name for name in above.unhashed if name in model.entries]
        for each in map(self.session.entry, model.entries):
            if each.type == "dispatch":
                self.dispatched.setdefault(each.body["target"], []).append(each.id)

    @property
    def here(self) -> PathModel:
        """The path to the head."""
        return self.models[self.session.leaf]

    def fresh(self, prefix: str) -> str:
        """A name no entry has used."""
        self.numbers += 1
        return f"{prefix}-{self.numbers}"

    def settle(self, rng: random.Random) -> None:
        """Take up a pending call when an open run says it resumes one, or take a dispatch back when it does not."""
        run = self.here.run
        if run is None or run.sound:
            return
        if run.first:
            self.touch(self.here.calls[run.touches[0][0]], "withdraw")
        else:
            taken = [self.here.calls[name] for name in self.here.calls if name in run.pending]
            self.touch_somehow(rng.choice(taken), rng)

    def state(self, call: CallModel, leaf: str) -> str:
        """The state of a call on the path to a leaf."""
        path = self.models[leaf].entries
        elsewhere = any(name not in path for name in self.dispatched.get(call.entry, ()))
        return call.state(promised=self.promised, elsewhere=elsewhere)

    # --- appending -------------------------------------------------------------------------------------------------

    def append(self, draft: Draft) -> str:
        """Append one entry and follow its path."""
        before = self.session.leaf
        result = self.session.append(draft)
        return self._follow(result.id, before if not draft.parent else draft.parent)

    def _follow(self, entry_id: str, parent: str) -> str:
        held = self.session.entry(entry_id)
        self.models[entry_id] = self._next(self.models[parent], held)
        return entry_id

    def _next(self, model: PathModel, held: Entry) -> PathModel:
        model = replace(model, entries=(*model.entries, held.id))
        run = model.run
        if run is not None and held.type in ("item", "response", "config", "compaction", "branch_summary"):
            model = replace(model, run=replace(run, shaped=True))
        if held.type == "item" and held.body["item"]["type"] == "function_call":
            call = CallModel(held.call_id, held.id, own=True)
            return replace(model, calls={**model.calls, held.id: call})
        if held.type == "link" and held.body["rel"] in ("subsession", "peer") and "cancel" not in held.body:
            known = {**model.callees, held.id: (held.body["rel"], held.call_id)}
            return replace(model, callees=known)
        if held.type == "queued":
            return replace(model, queued=(*model.queued, held.id))
        return model

    def touch(self, call: CallModel, event: str, **more: Any) -> str:
        """A decision, a dispatch, a withdrawal or an output of a call."""
        named = (call.call_id, call.entry)
        if event == "dispatch":
            draft = entry.dispatch(*named, **more)
        elif event == "withdraw":
            draft = entry.withdrawal(*named, reason="never handed over")
        elif event == "output":
            draft = entry.function_call_output(call.call_id, f"output of {call.call_id}", **more)
        else:
            draft = entry.decision(*named, verdict=event, reason="because", **more)
        done = self.append(draft)
        model = self.models[done]
        run = model.run
        if run is not None:
            touches = [*run.touches]
            if event != "withdraw":
                touches.append((call.entry, event))
            elif (call.entry, "dispatch") in touches:
                touches.reverse()
                touches.remove((call.entry, "dispatch"))
                touches.reverse()
            run = replace(run, touches=tuple(touches))
        after = replace(call, events=(*call.events, event), entries=(*call.entries, done))
        self.models[done] = replace(model, run=run, calls={**model.calls, call.entry: after})
        if event == "dispatch":
            self.dispatched.setdefault(call.entry, []).append(done)
        return done

    def legal_events(self, call: CallModel) -> list[str]:
        """What may happen to a call now."""
        events = []
        read = call.read
        if not call.closed:
            events += ["proceed", "hold"]
            if call.pending:
                events.append("dispatch")
                if not call.dispatched:
                    events.append("reject")
                if call.entry in self.dispatched or not (self.promised and call.own):
                    events.append("answer")
        if call.events[-1:] == ("dispatch",) and not call.closed:
            events.append("withdraw")
        if call.pending and (not self.promised or call.dispatched or "reject" in read or "answer" in read):
            events.append("output")
        return events

    def touch_somehow(self, call: CallModel, rng: random.Random) -> None:
        """Whatever may happen to a call, short of taking back what happened."""
        event = rng.choice([each for each in self.legal_events(call) if each != "withdraw"])
        more: Json = {}
        if event == "proceed" and rng.random() < 0.3:
            more["args"] = {"path": rng.choice(["/a", "/b"])}
        elif event == "dispatch" and rng.random() < 0.5:
            more["idempotency_key"] = f"key-{rng.randrange(3)}"
        elif event == "output" and rng.random() < 0.3:
            more["failed"] = True
        self.touch(call, event, **more)
