"""Sessions grown at random as a correct harness writes them, and what their author knows of them by the format alone.

Every entry goes through an append of a store. The author keeps a model of each path of its own, taken from format.md §9
and context.md §2 and from nothing of the package: which calls there are and what happened to them, which run is open
and what it took up. It writes nothing that breaks a rule, so ``verify`` has to find nothing.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from agentsession_cas import ALL_RECORDS, Store, entry
from agentsession_cas.core.entry import Draft
from agentsession_cas.core.runs import end_run
from agentsession_cas.effects.host import Host
from agentsession_cas.effects.memory import memory_host
from agentsession_cas.errors import BadInput
from agentsession_cas.sessions.handle import SessionWriter
from tests.helpers.author import Author
from tests.helpers.layers import Layers
from tests.helpers.pathmodel import RunModel

__all__ = ["Harness", "forked", "grown", "ticking_store"]

Json = dict[str, Any]

OTHER_SESSION: Final = "01995b2a-0000-7000-8000-00000000aaaa"


class _Ticks:
    """A clock that counts: the same steps give the same entries."""

    def __init__(self) -> None:
        self._now = 1_700_000_000_000_000_000

    def now_ns(self) -> int:
        self._now += 1_000
        return self._now

    def monotonic(self) -> float:
        return self._now / 1e9

    def sleep(self, seconds: float) -> None:
        self._now += int(seconds * 1e9)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.sleep(seconds)
        return event.is_set()


def ticking_store() -> Store:
    """A store in memory whose times are a count."""
    host: Host = replace(memory_host(), clock=_Ticks())
    return Store.open("/store", create=True, host=host, background=False)


class Harness(Author):
    """An author that acts as an agent's harness does."""

    def __init__(self, session: SessionWriter, above: Author | None = None) -> None:
        super().__init__(session, above)
        self.layers = Layers()

    def step(self, rng: random.Random) -> None:
        """Do something a harness might do now, and what that obliges it to."""
        rng.choices(_ACTS, _WEIGHTS)[0](self, rng)
        self.settle(rng)

    def say(self, rng: random.Random) -> None:
        parts: list[Any] = [self.fresh("words") + rng.choice(["", " \ud800", " \u2028", " é", " \x00"])]
        if rng.random() < 0.3:
            parts.append({"type": "input_image", "image_url": "data:image/png;base64,AA=="})
        draft = entry.user(parts, source=entry.trigger("human", ref="t") if rng.random() < 0.2 else None)
        peers = [name for name, (rel, _) in self.here.callees.items() if rel == "peer"]
        if peers and rng.random() < 0.5:
            draft = Draft("item", {**draft.body, "from_link": rng.choice(peers)})
        self.append(draft)

    def say_aside(self, rng: random.Random) -> None:
        """A message on another branch, the head staying where it is."""
        runs = {name: self.models[name].run for name in self._places()}
        places = [name for name, run in runs.items() if run is None or run.source == "input" or run.first]
        if places:
            self.append(entry.user("aside").at(parent=rng.choice(places)))

    def call_model(self, rng: random.Random) -> None:
        request: Json = self.session.context().request()
        if rng.random() < 0.3:
            request["stream"] = True
        response_id = self.fresh("resp")
        output: list[Json] = []
        if rng.random() < 0.5:
            output.append({"type": "reasoning", "id": self.fresh("rs"), "summary": []})
        if rng.random() < 0.6:
            words = self.fresh("answer") + rng.choice(["", " \udfff"])
            text = {"type": "output_text", "text": words, "annotations": [], "acme:n": 2**53 + 1}
            output.append({"type": "message", "role": "assistant", "content": [text], "status": "completed"})
        for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
            call = {"type": "function_call", "call_id": self.fresh("call"), "name": "tool", "arguments": '{"n": 1}'}
            output.append(call)
        ending = rng.random()
        more: Json = {}
        if ending < 0.1:
            more["error"] = {"code": "server_error", "message": "no"}
        elif ending < 0.2:
            more["incomplete_details"] = {"reason": "max_output_tokens"}
        if rng.random() < 0.2:
            self._record_by_hand(request, response_id, output)
            return
        if rng.random() < 0.1:
            request["previous_response_id"] = "resp-elsewhere"
        named = {"id": response_id} if rng.random() < 0.9 else {"id": None}
        self._record(request, {**named, "model": "m-dated", "status": "completed", "output": output, **more})

    def _record(self, request: Json, response: Json) -> None:
        parent = self.session.leaf
        for result in self.session.record_response(request, response, latency_ms=7):
            parent = self._follow(result.id, parent)
        hashed = not request.get("previous_response_id") and (response["id"] or not response["output"])
        (self.hashed if hashed else self.unhashed).append(parent)

    def _record_by_hand(self, request: Json, response_id: str, output: list[Json]) -> None:
        """A response recorded as its items stream in, other entries between them."""
        hash_ = self.session.context().request_hash()
        for item in output:
            self.append(entry.item(item, response=response_id))
            self.append(entry.custom("acme:progress", {"of": response_id}))
        self.hashed.append(self.append(entry.response(response_id=response_id, request_hash=hash_)))

    def begin_anew(self, rng: random.Random) -> None:
        """A conversation from the universal root: the request comes first, entries are made of it."""
        if self.session.header.base:
            return
        self.session.reset_leaf()
        words = self.fresh("question") + rng.choice(["", " \ud83d"])
        request = {"model": "m-1", "input": words, "store": True, "seed": 2**53 + 1, "stream": False}
        self.append(entry.config_from_request(request))
        self.append(entry.user(words))
        self._record(request, {"id": self.fresh("resp"), "output": []})

    def configure(self, rng: random.Random) -> None:
        body: Json = {}
        kind = rng.choice([0, 0, 0, 1, 2, 3, 4, 5])
        if kind == 0:
            body["model"] = rng.choice(["m-1", "m-2"])
        elif kind == 1:
            tool = {"type": "function", "name": rng.choice("tuv"), "description": "", "parameters": None}
            body["tools_added"] = [tool]
            body["tools_removed"] = [rng.choice("tuv")]
        elif kind == 2:
            body["extra"] = {rng.choice(["temperature", "acme:x"]): rng.choice([None, 0.5, 2**53 + 1, {}, []])}
            body["reasoning"] = {"effort": rng.choice(["low", "high"]), "summary": None}
        elif kind == 3:
            self._compose(rng)
            return
        elif kind == 4:
            self._leave_out(rng)
            return
        else:
            self._replace_settings(rng)
            return
        if body:
            self.append(Draft("config", body))

    def hand_over(self, rng: random.Random) -> None:
        """Layers change from call to call, and come back."""
        for _ in range(5):
            (self._compose if rng.random() < 0.5 else self._leave_out)(rng)
            if rng.random() < 0.3:
                self.call_model(rng)

    def _compose(self, rng: random.Random) -> None:
        """Put other instruction parts in force, by the smallest change."""
        settings = self.session.settings()
        want = self.layers.parts(list(settings.instructions_parts), rng)
        delta = settings.instructions_delta(want)
        if delta is not None:
            self.append(Draft("config", delta))
        assert list(self.session.settings().instructions_parts) == want

    def _leave_out(self, rng: random.Random) -> None:
        """Put another list of omitted parts in force, by the smallest change."""
        settings = self.session.settings()
        want = self.layers.omitted(list(settings.instructions_omitted), rng)
        delta = settings.omitted_delta(want)
        if delta is not None:
            self.append(Draft("config", {"instructions_omitted": delta}))
        assert list(self.session.settings().instructions_omitted) == want

    def _replace_settings(self, rng: random.Random) -> None:
        parts = [_part(id_, rng) for id_ in "ab"]
        request = {
            "model": rng.choice(["m-1", "m-2"]),
            "instructions": "\n\n".join(part["text"] for part in parts),
            "tools": [{"type": "function", "name": "t", "parameters": {"seed": 2**53 + 1}}],
            "temperature": 1.0,
            "stream": True,
        }
        self.append(entry.config_from_request(request, parts=parts if rng.random() < 0.5 else ()))

    def omit(self, rng: random.Random) -> None:
        items = [name for name in self.here.entries if self.session.entry(name).type == "item"]
        some = rng.sample(items, min(len(items), 2))
        outputs = [name for name in items if self.session.entry(name).call_id and name not in self.here.calls][-2:]
        want: Json = rng.choice(
            [
                {},
                {"reasoning": "other_models"},
                {"reasoning": "other_models"},
                {"items": some},
                {"outputs": {"text": "(left out)", "items": outputs or some}},
                {"images": {"keep": rng.randrange(3), "placeholder": "[image]"}},
                {"images": {"before": some[0] if some else "x", "placeholder": "[image]"}},
            ]
        )
        merged = {**self.session.settings().omit, **want} if want else {}
        try:
            delta = self.session.settings().omit_delta(merged)
        except BadInput:
            delta = {}
        if delta is not None:
            self.append(entry.config(omit=delta))

    def compact(self, rng: random.Random) -> None:
        path = self.here.entries
        if not path:
            return
        summary = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": self.fresh("sum")}]}
        pinned = [summary] if rng.random() < 0.3 else []
        kept = path[rng.randrange(max(0, len(path) - 12), len(path))]
        self.append(self.session.compact(kept, summary, pinned=pinned, tokens_before=9))

    def decide(self, rng: random.Random) -> None:
        run = self.here.run
        able = [call for call in self.here.calls.values() if run is None or run.would_take(call.entry)]
        able = [call for call in able if self.legal_events(call)]
        if able:
            self.touch_somehow(rng.choice(able[-6:]), rng)

    def hand_off_and_withdraw(self, rng: random.Random) -> None:
        able = [call for call in self.here.calls.values() if "dispatch" in self.legal_events(call)]
        if able:
            call = rng.choice(able)
            self.touch(call, "dispatch")
            self.touch(self.here.calls[call.entry], "withdraw")

    def answer_all(self, rng: random.Random) -> None:
        """Take the calls that may run to their outputs."""
        for name in list(self.here.calls):
            call, run = self.here.calls[name], self.here.run
            if not call.pending or (run is not None and not run.would_take(name)):
                continue
            if not call.closed:
                self.touch(call, "dispatch")
            self.touch(self.here.calls[name], "output")

    def repeat_output(self, rng: random.Random) -> None:
        """An output that belongs to no call: a call has its first, and nobody made the other."""
        run = self.here.run
        if run is None or run.first:
            done = [call.call_id for call in self.here.calls.values() if not call.pending]
            made = self.append(entry.function_call_output(rng.choice([*done, "nobody's"]), "again"))
            if run is not None:
                run = replace(run, shaped=True, touches=(*run.touches, ("", "output")))
                self.models[made] = replace(self.models[made], run=run)

    def start_run(self, rng: random.Random) -> None:
        pending = frozenset(name for name, call in self.here.calls.items() if call.pending)
        source = "resume" if pending and rng.random() < 0.5 else "input"
        self._start(source, pending)

    def _start(self, source: str, pending: frozenset[str]) -> None:
        done = self.append(entry.run_start(self.fresh("run"), source=source, ref="r"))
        self.models[done] = replace(self.models[done], run=RunModel(done, source, pending))

    def resume_nothing(self, rng: random.Random) -> None:
        """A run that finds nothing to resume and ends: record entries alone."""
        self._start("resume", frozenset())
        self.append(entry.env("/src"))
        self._end("interrupted")

    def end_run(self, rng: random.Random) -> None:
        run = self.session.open_run()
        if run is not None:
            self._end(rng.choice([*[run.computed_reason] * 6, "error", "interrupted"]))

    def _end(self, reason: str) -> None:
        done = self.append(end_run(self.session.source, self.session.leaf_position, reason))
        self.models[done] = replace(self.models[done], run=None, queued=())

    def whole_run(self, rng: random.Random) -> None:
        """A run as it goes most of the time: asked, answered, its calls run, or one held, and an end that says so."""
        self._start("input", frozenset(name for name, call in self.here.calls.items() if call.pending))
        self.say(rng)
        before = set(self.here.calls)
        self.call_model(rng)
        for name in [name for name in self.here.calls if name not in before]:
            call = self.here.calls[name]
            if rng.random() < 0.3:
                self.touch(call, "hold")
            else:
                self.touch(call, "dispatch")
                self.touch(self.here.calls[name], "output")
        self.end_run(rng)

    def queue(self, rng: random.Random) -> None:
        owed = self.here.queued
        if owed and rng.random() < 0.6:
            waiting = rng.choice(owed)
            done = self.append(entry.drain(self.session.entry(waiting)))
            left = tuple(each for each in self.models[done].queued if each != waiting)
            self.models[done] = replace(self.models[done], queued=left)
        else:
            item = {"type": "message", "role": "user", "content": self.fresh("later")}
            self.append(entry.queued(item, mode=rng.choice(["steer", "followup"]), ref="q"))

    def link(self, rng: random.Random) -> None:
        pending = [call.call_id for call in self.here.calls.values()]
        kind = rng.randrange(6)
        if kind < 2 and self.here.callees:
            self.append(entry.cancel_sent(self.session.entry(rng.choice(list(self.here.callees)))))
        elif kind == 2 and self.here.entries:
            self.append(entry.judged_by("judge", target=rng.choice(self.here.entries)))
        elif pending:
            call_id = rng.choice(pending)
            drafts = [
                entry.subsession(self.fresh("child"), call_id),
                entry.peer(call_id, session=self.fresh("peer")),
                entry.peer(call_id, url="https://x.test", task="t"),
                entry.remote_subsession(call_id, url="https://x.test"),
            ]
            self.append(rng.choice(drafts))

    def note(self, rng: random.Random) -> None:
        where = [*self.here.entries] or [OTHER_SESSION]
        drafts = [
            entry.info(self.fresh("name")),
            entry.env("/src", vcs={"system": "git", "revision": "0" * 40}, workspace=entry.workspace("local")),
            entry.custom("acme:note", {"n": 2**53 + 1}),
            entry.extension("acme:thing", {"a": [1, {"b": None}]}),
        ]
        if self.here.entries:
            drafts += [
                entry.label(rng.choice(where), self.fresh("label")),
                entry.outcome("eval", rng.choice(where), score=0.5),
            ]
        draft = rng.choice(drafts)
        if rng.random() < 0.3:
            references: list[Json] = [{"session": OTHER_SESSION, "entry": "sha256:" + "a" * 64}]
            if len(where) > 2:
                references.append({"entry": where[0]})
            draft = draft.at(parents=references)
        self.append(draft)

    def branch(self, rng: random.Random) -> None:
        left = self.session.leaf
        places = self._places()
        if not places:
            return
        to = rng.choice(places[-15:])
        self.session.branch(to)
        if left and rng.random() < 0.4:
            summary = {"type": "message", "role": "user", "content": self.fresh("branch")}
            self.append(self.session.summarize_branch(left, summary))
            self.settle(rng)
        if self.session.leaf and rng.random() < 0.3:
            self.labels.add(self.append(self.session.mark_leaf()))

    def _places(self) -> list[str]:
        """Where a branch may begin: the base or below, and no leaf label."""
        return [name for name, model in self.models.items() if model.open_ended and name not in self.labels]


Act = Callable[[Harness, random.Random], None]
_WEIGHTED: Final[dict[Act, int]] = {
    Harness.say: 3,
    Harness.say_aside: 1,
    Harness.call_model: 6,
    Harness.begin_anew: 1,
    Harness.configure: 3,
    Harness.hand_over: 2,
    Harness.omit: 3,
    Harness.compact: 1,
    Harness.decide: 7,
    Harness.hand_off_and_withdraw: 2,
    Harness.answer_all: 2,
    Harness.repeat_output: 1,
    Harness.start_run: 3,
    Harness.resume_nothing: 1,
    Harness.end_run: 3,
    Harness.whole_run: 2,
    Harness.queue: 2,
    Harness.link: 2,
    Harness.note: 2,
    Harness.branch: 2,
}
_ACTS: Final = list(_WEIGHTED)
_WEIGHTS: Final = list(_WEIGHTED.values())


def grown(store: Store, seeds: Iterable[int], *, promised: bool = True) -> Harness:
    """A session of a message and a step for each seed; still held for writing."""
    author = Harness(store.create(records=ALL_RECORDS if promised else ()))
    author.append(entry.user("hi"))
    for seed in seeds:
        author.step(random.Random(seed))
    return author


def forked(store: Store, above: Harness, base: str, seeds: Iterable[int], *, promised: bool = True) -> Harness:
    """A fork of ``above`` at an entry, a step for each seed; still held for writing."""
    author = Harness(store.fork(above.session.id, base, records=ALL_RECORDS if promised else ()), above)
    for seed in seeds:
        author.step(random.Random(seed))
    return author


def _part(id_: str, rng: random.Random) -> Json:
    return {"id": id_, "text": f"part {id_} {rng.randrange(2)}", **({"source": "file"} if rng.random() < 0.5 else {})}
