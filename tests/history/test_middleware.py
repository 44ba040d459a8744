"""A model that remembers: sync, async, streaming; what is wrong, what fails, what is left half done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from agentsession_cas.errors import BadInput, CommitError, ConversationClosed
from agentsession_cas.history import Batch, MemoryStore, Message, Middleware, Receipt, WindowReader

SYSTEM = {"type": "message", "role": "system", "content": "Be brief."}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "4"}


def user(text: str) -> Message:
    return {"type": "message", "role": "user", "content": text}


def said(text: str) -> Message:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "role": "assistant", "content": [part]}


class Model:
    """Answers with what it was asked last, and remembers every request."""

    def __init__(self, *answers: Any) -> None:
        self.requests: list[Any] = []
        self.answers = list(answers)

    def answer(self, request: Any) -> Any:
        self.requests.append(request)
        return self.answers.pop(0) if self.answers else {"output": [said(f"answer {len(self.requests)}")]}

    async def answer_async(self, request: Any) -> Any:
        return self.answer(request)

    def stream(self, request: Any) -> Iterator[Any]:
        response = self.answer(request)
        yield {"type": "response.created"}
        yield {"type": "response.completed", "response": response}

    async def stream_async(self, request: Any) -> AsyncIterator[Any]:
        for event in self.stream(request):
            yield event


class AsyncStore:
    """A store with coroutines."""

    def __init__(self) -> None:
        self.store = MemoryStore()

    async def read(self, conversation: str) -> list[Message]:
        return self.store.read(conversation)

    async def append(self, batch: Batch) -> Receipt:
        return self.store.append(batch)


class Watched(MemoryStore):
    """Counts what is asked of it, and fails when told."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = self.appends = 0
        self.fails: list[Exception] = []
        self.after = False

    def read(self, conversation: str) -> list[Message]:
        self.reads += 1
        return super().read(conversation)

    def append(self, batch: Batch) -> Receipt:
        self.appends += 1
        if self.fails and not self.after:
            raise self.fails.pop()
        receipt = super().append(batch)
        if self.fails:
            raise self.fails.pop()
        return receipt


def _ask(middleware: Middleware, model: Model, way: str, request: Any) -> Any:
    """Ask in one of the four ways; the response, or the events."""
    if way == "call":
        return middleware.call(model.answer)(request)
    if way == "stream":
        return list(middleware.stream(model.stream)(request))[-1]["response"]
    if way == "call_async":

        async def answered() -> Any:
            return await middleware.call_async(model.answer_async)(request)

        return asyncio.run(answered())

    async def collected() -> list[Any]:
        return [event async for event in middleware.stream_async(model.stream_async)(request)]

    return asyncio.run(collected())[-1]["response"]


WAYS = ["call", "stream", "call_async", "stream_async"]


@pytest.mark.parametrize("way", WAYS)
def test_stored_turns_go_before_the_request(way: str) -> None:
    store, model = MemoryStore(), Model()
    middleware = Middleware(store, store, "c")
    for number in (1, 2, 3):
        response = _ask(middleware, model, way, {"model": "m", "input": [SYSTEM, user(f"question {number}")]})
        assert response == {"output": [said(f"answer {number}")]}
    turns = [each for number in (1, 2, 3) for each in (user(f"question {number}"), said(f"answer {number}"))]
    assert store.read("c") == turns
    assert model.requests[2] == {"model": "m", "input": [SYSTEM, *turns[:5]]}


@pytest.mark.parametrize("way", WAYS)
def test_a_tool_exchange_stays_open_until_the_answer(way: str) -> None:
    store, model = MemoryStore(), Model({"output": [CALL]}, {"output": [said("it is 4")]})
    middleware = Middleware(store, store, "c")
    assert _ask(middleware, model, way, [user("2+2?")]) == {"output": [CALL]}
    assert store.read("c") == []
    _ask(middleware, model, way, [user("2+2?"), CALL, OUTPUT])
    assert store.read("c") == [user("2+2?"), CALL, OUTPUT, said("it is 4")]


@pytest.mark.parametrize("way", ["call_async", "stream_async"])
def test_an_asynchronous_store(way: str) -> None:
    store, model = AsyncStore(), Model()
    middleware: Any = Middleware(store, store, "c")  # type: ignore[arg-type]
    _ask(middleware, model, way, [user("hi")])
    assert store.store.read("c") == [user("hi"), said("answer 1")]


def test_shapes_of_requests_and_responses() -> None:
    """A text as input, a list of items, one item; an object that dumps itself is handed back as it is."""

    class Response:
        def model_dump(self, mode: str) -> dict[str, Any]:
            return {"output": [said(mode)]}

    answer = Response()
    store, model = MemoryStore(), Model(said("one"), [said("two")], answer)
    ask = Middleware(store, store, "c").call(model.answer)
    assert ask({"input": "a"}) == said("one")
    assert ask([user("b")]) == [said("two")]
    assert ask((user("c"),)) is answer
    assert store.read("c") == [user("a"), said("one"), user("b"), said("two"), user("c"), said("json")]
    assert model.requests[1] == [user("a"), said("one"), user("b")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "request_",
    [None, 5, {}, [], {"input": None}, [SYSTEM], [said("x")], [user("a"), user("b")], [user("a"), said("b")],
     [user("a"), CALL], [user("a"), OUTPUT], [user("a"), OUTPUT, CALL], [user("a"), SYSTEM], [user("a"), 5],
     [user("a"), {"content": "x"}], [{"type": "message", "role": "user", "content": float("nan")}]],
)  # fmt: skip
def test_a_wrong_request_asks_nobody(way: str, request_: Any) -> None:
    """Neither the store nor the model, and at once, also where a stream is only made."""
    store, model = Watched(), Model()
    middleware = Middleware(store, store, "c")
    ask: Any = {
        "stream": middleware.stream(model.stream),
        "stream_async": middleware.stream_async(model.stream_async),
    }.get(way, lambda request: _ask(middleware, model, way, request))
    with pytest.raises(BadInput):
        ask(request_)
    assert (store.reads, store.appends, model.requests) == (0, 0, [])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("after", [False, True])
def test_an_answer_that_could_not_be_stored_is_not_lost(way: str, after: bool) -> None:
    """The retry stores it, once, and asks no model."""
    store, model = Watched(), Model()
    store.fails, store.after = [OSError("no space")], after
    middleware = Middleware(store, store, "c")
    with pytest.raises(CommitError, match="no space") as caught:
        _ask(middleware, model, way, [user("hi")])
    error = caught.value
    assert error.response == {"output": [said("answer 1")]}
    assert isinstance(error.batch, Batch)
    for _ in range(2):
        store.append(error.batch).validate_for(error.batch)
    assert store.read("c") == [user("hi"), said("answer 1")]
    assert len(model.requests) == 1


def test_a_receipt_of_another_batch_is_told_and_kept() -> None:
    class Confused(MemoryStore):
        def append(self, batch: Batch) -> Receipt:
            super().append(batch)
            return Receipt(batch.conversation, "other", batch.digest)

    store = Confused()
    with pytest.raises(CommitError) as caught:
        Middleware(store, store, "c").call(Model().answer)([user("hi")])
    assert isinstance(caught.value.receipt, Receipt)


def test_a_closed_conversation_is_told_with_the_answer() -> None:
    store = MemoryStore()
    store.clear("c")
    with pytest.raises(CommitError) as caught:
        Middleware(store, store, "c").call(Model().answer)([user("hi")])
    assert isinstance(caught.value.__cause__, ConversationClosed)


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_fails_stores_nothing(way: str) -> None:
    class Broken(Model):
        def answer(self, request: Any) -> Any:
            raise ConnectionError("gone")

    store = MemoryStore()
    with pytest.raises(ConnectionError):
        _ask(Middleware(store, store, "c"), Broken(), way, [user("hi")])
    assert store.read("c") == []


@pytest.mark.parametrize("answer", [[], (), {"output": []}])
def test_an_answer_without_output_stores_nothing(answer: Any) -> None:
    store = MemoryStore()
    with pytest.raises(BadInput, match="no output"):
        Middleware(store, store, "c").call(Model(answer).answer)([user("hi")])
    assert store.read("c") == []


def test_nothing_is_read_before_a_stream_is_iterated() -> None:
    store, model = Watched(), Model()
    events = Middleware(store, store, "c").stream(model.stream)([user("hi")])
    assert (store.reads, model.requests) == (0, [])
    next(events)
    assert store.reads == 1


def test_a_half_consumed_stream_stores_nothing() -> None:
    store = MemoryStore()
    events: Any = Middleware(store, store, "c").stream(Model().stream)([user("hi")])
    next(events)
    events.close()
    assert store.read("c") == []


def test_a_cancelled_stream_stores_nothing() -> None:
    """Cancelled while it waits for the model."""
    store = MemoryStore()

    async def scenario() -> None:
        waiting = asyncio.Event()

        async def endless(request: Any) -> AsyncIterator[Any]:
            yield "hello "
            waiting.set()
            await asyncio.Event().wait()

        async def consume() -> None:
            async for _ in Middleware(store, store, "c").stream_async(endless)([user("hi")]):
                pass

        task = asyncio.create_task(consume())
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert store.read("c") == []


def test_a_stream_of_text_and_one_collected_by_the_caller() -> None:
    store = MemoryStore()
    middleware = Middleware(store, store, "c")
    assert list(middleware.stream(lambda _: iter(["it ", "is"]))([user("a")])) == ["it ", "is"]
    collected = middleware.stream(lambda _: iter([1, 2]), collect=lambda events: said(f"{sum(events)}"))
    assert list(collected([user("b")])) == [1, 2]
    assert store.read("c") == [user("a"), said("it is"), user("b"), said("3")]
    with pytest.raises(BadInput):
        list(middleware.stream(lambda _: iter([1, 2]))([user("c")]))


def test_a_window_reads_and_the_store_writes() -> None:
    store, model = MemoryStore(), Model()
    ask = Middleware(WindowReader(store, 2), store, "c").call(model.answer)
    for number in (1, 2, 3):
        ask([user(f"{number}")])
    assert len(store.read("c")) == 6
    assert model.requests[2] == [user("2"), said("answer 2"), user("3")]


def test_wrong_parts_are_refused_when_it_is_made() -> None:
    store = MemoryStore()
    for wrong in ((None, store, "c"), (store, None, "c"), (WindowReader(store, 5), WindowReader(store, 5), "c"),
                  (store, store, "")):  # fmt: skip
        with pytest.raises(BadInput):
            Middleware(*wrong)
