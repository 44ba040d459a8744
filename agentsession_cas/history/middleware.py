"""A model that remembers: stored turns go before each request, and a finished turn is stored (history.md H1).

Owns what a request has to look like, when a turn is finished, and that nothing is read or asked for a request that is
wrong. A request is the list of its items, or an object with ``input``: a system prefix, then one turn that a user began
and that is open. A response is an object with ``output``, a list of items, or one item. While the response calls
tools, the turn stays open and nothing is stored: the caller sends it again, whole, with the outputs.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from agentsession_cas.core.given import as_list, as_object
from agentsession_cas.effects.host import real_host
from agentsession_cas.errors import AgentSessionError, BadInput, CommitError
from agentsession_cas.history.batch import Batch, Message, Receipt
from agentsession_cas.history.ids import ConversationId
from agentsession_cas.history.protocols import Reader, Writer
from agentsession_cas.history.turns import is_system, is_user

__all__ = ["Middleware", "streamed_response"]

_CALL: Final = "function_call"
_OUTPUT: Final = "function_call_output"


class _Request(NamedTuple):
    """A request taken apart: the system prefix and the open turn, which go around what is stored."""

    whole: Any
    system: list[Message]
    turn: list[Message]

    def with_history(self, stored: Sequence[Message]) -> Any:
        """What the model gets, in the form the request came in."""
        items = [*self.system, *stored, *self.turn]
        return {**self.whole, "input": items} if isinstance(self.whole, Mapping) else items


class Middleware:
    """Binds one conversation to something that reads it and something that appends to it.

    ``reader`` and ``writer`` may be one store; either may be asynchronous where the wrapped model is. It does not keep
    two turns of one conversation from running at once: that is the host's to order.
    """

    def __init__(self, reader: Reader, writer: Writer, conversation: str) -> None:
        if not callable(getattr(reader, "read", None)):
            raise BadInput("the reader has no read()", next_step="give a store, or a WindowReader")
        if not callable(getattr(writer, "append", None)):
            raise BadInput("the writer has no append()", next_step="give a store")
        self._reader = reader
        self._writer = writer
        self._conversation = ConversationId(conversation)

    def call(self, model: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wrap a function from a request to a response."""

        def remembering(request: Any) -> Any:
            asked = _taken_apart(request)
            response = model(asked.with_history(self._reader.read(self._conversation)))
            self._commit(asked, response)
            return response

        return remembering

    def call_async(self, model: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        """Wrap a coroutine function from a request to a response."""

        async def remembering(request: Any) -> Any:
            asked = _taken_apart(request)
            response = await model(asked.with_history(await _done(self._reader.read, self._conversation)))
            await self._commit_async(asked, response)
            return response

        return remembering

    def stream(
        self, model: Callable[[Any], Iterator[Any]], collect: Callable[[list[Any]], Any] | None = None
    ) -> Callable[[Any], Iterator[Any]]:
        """Wrap a function from a request to an iterator of events, which are handed on as they come.

        Nothing is read before the first is asked for; the turn is stored when the iterator comes to its end by itself,
        and never when it is closed, dropped or fails before. ``collect`` makes the response of the events;
        :func:`streamed_response` unless another is given.
        """

        def remembering(request: Any) -> Iterator[Any]:
            asked = _taken_apart(request)
            return self._streamed(asked, model, collect or streamed_response)

        return remembering

    def _streamed(
        self, asked: _Request, model: Callable[[Any], Iterator[Any]], collect: Callable[[list[Any]], Any]
    ) -> Iterator[Any]:
        events = []
        for event in model(asked.with_history(self._reader.read(self._conversation))):
            events.append(event)
            yield event
        self._commit(asked, collect(events))

    def stream_async(
        self, model: Callable[[Any], AsyncIterator[Any]], collect: Callable[[list[Any]], Any] | None = None
    ) -> Callable[[Any], AsyncIterator[Any]]:
        """Wrap a function from a request to an asynchronous iterator of events, as :meth:`stream` does."""

        def remembering(request: Any) -> AsyncIterator[Any]:
            asked = _taken_apart(request)
            return self._streamed_async(asked, model, collect or streamed_response)

        return remembering

    async def _streamed_async(
        self, asked: _Request, model: Callable[[Any], AsyncIterator[Any]], collect: Callable[[list[Any]], Any]
    ) -> AsyncIterator[Any]:
        events = []
        stored = await _done(self._reader.read, self._conversation)
        async for event in model(asked.with_history(stored)):
            events.append(event)
            yield event
        await self._commit_async(asked, collect(events))

    # --- storing ---

    def _commit(self, asked: _Request, response: Any) -> None:
        batch = self._batch(asked, response)
        if batch is not None:
            receipt: Receipt | None = None
            try:
                receipt = self._writer.append(batch)
                receipt.validate_for(batch)
            except Exception as error:
                raise _not_kept(batch, response, receipt, error) from error

    async def _commit_async(self, asked: _Request, response: Any) -> None:
        batch = self._batch(asked, response)
        if batch is not None:
            receipt: Receipt | None = None
            try:
                receipt = await _done(self._writer.append, batch)
                receipt.validate_for(batch)
            except Exception as error:
                raise _not_kept(batch, response, receipt, error) from error

    def _batch(self, asked: _Request, response: Any) -> Batch | None:
        """What to store of a finished turn; None while tools are called."""
        output = _output_of(response)
        called = {each.get("call_id") for each in output if each.get("type") == _CALL}
        if called - {each.get("call_id") for each in output if each.get("type") == _OUTPUT}:
            return None
        return Batch(self._conversation, real_host().entropy.take(16).hex(), [*asked.turn, *output])


def streamed_response(events: list[Any]) -> Any:
    """The response of a stream: that of its last ``response.completed`` event, else the text of its text chunks.

    Raises BadInput when the events have neither.
    """
    for event in reversed(events):
        members = event if isinstance(event, Mapping) else getattr(event, "__dict__", {})
        if members.get("type") == "response.completed":
            return members["response"]
    if events and all(isinstance(event, str) for event in events):
        part = {"type": "output_text", "text": "".join(events), "annotations": []}
        return {"output": [{"type": "message", "role": "assistant", "content": [part]}]}
    raise BadInput("the stream ended without a response", next_step="give collect=, which makes one of its events")


def _taken_apart(request: Any) -> _Request:
    """Check a request. Raises BadInput."""
    bare = isinstance(request, (list, tuple))
    whole: Any = list(request) if bare else as_object(request, "a request")
    given = whole if bare else whole.get("input")
    if isinstance(given, str):
        given = [{"type": "message", "role": "user", "content": given}]
    items = [dict(as_object(each, "an item")) for each in as_list(given, "the input of a request")]
    begin = next((at for at, item in enumerate(items) if not is_system(item)), len(items))
    turn = items[begin:]
    if not turn or not is_user(turn[0]):
        raise _wrong("a request is a system prefix, then one turn that begins with a user message")
    if any(is_user(item) or is_system(item) for item in turn[1:]):
        raise _wrong("a request has one turn: what was said before is stored, and goes before it by itself")
    waiting = _unanswered(turn)
    if waiting:
        raise _wrong(f"the call {waiting!r:.60} has no output, or the output comes before its call")
    if len(turn) > 1 and turn[-1].get("type") != _OUTPUT:
        raise _wrong("the turn is finished: its last item is neither the user's message nor the output of a call")
    Batch("request", "request", turn)  # what could not be stored is not asked
    return _Request(whole, items[:begin], turn)


def _unanswered(turn: Sequence[Message]) -> str:
    """A call without an output, or an output without a call before it; "" when there is none."""
    called: set[str] = set()
    for item in turn:
        call_id = str(item.get("call_id", ""))
        if item.get("type") == _CALL:
            called.add(call_id)
        elif item.get("type") == _OUTPUT:
            if call_id not in called:
                return call_id
            called.discard(call_id)
    return next(iter(sorted(called)), "")


def _output_of(response: Any) -> list[Message]:
    """The items of a response. Raises BadInput for none."""
    if isinstance(response, (list, tuple)):
        items: Any = response
    else:
        members = as_object(response, "a response")
        items = members.get("output", [members])
    output = [dict(as_object(each, "an item")) for each in as_list(items, "the output of a response")]
    if not output:
        raise BadInput("the response has no output", where="/output")
    return output


def _wrong(what: str) -> BadInput:
    return BadInput(what, where="/input", next_step="use the undecorated model for whole transcripts")


def _not_kept(batch: Batch, response: Any, receipt: Receipt | None, error: Exception) -> CommitError:
    told = str(error) if isinstance(error, AgentSessionError) else f"{type(error).__name__}: {error}"
    return CommitError(
        f"the model answered, and the turn could not be stored: {told}",
        batch=batch,
        response=response,
        receipt=receipt,
        where=f"conversation {batch.conversation}, append {batch.append_id}",
        next_step="append error.batch again, without asking the model again",
    )


async def _done(ability: Callable[..., Any], *arguments: Any) -> Any:
    """Call what may be asynchronous; what is not, off the event loop."""
    if inspect.iscoroutinefunction(ability):
        return await ability(*arguments)
    return await asyncio.to_thread(ability, *arguments)
