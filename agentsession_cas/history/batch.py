"""An append as one immutable thing, and the proof that it was accepted (history.md H1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from agentsession_cas.core.given import as_list, as_object
from agentsession_cas.errors import BadInput, InvalidBatch, InvalidReceipt
from agentsession_cas.history.encoding import decode, encode
from agentsession_cas.history.ids import AppendId, ConversationId

__all__ = ["Batch", "Message", "Receipt"]

Message = dict[str, Any]
"""An Open Responses item: a ``message``, a ``function_call``, a ``function_call_output``, a ``reasoning`` item…"""

_MEMBERS: Final = ("conversation", "append_id", "messages")


class Batch:
    """Messages that are appended whole or not at all, under a name that a retry uses again.

    ``messages`` are at least one item, each a JSON object with a ``type``, or a ``role`` and a ``content`` (a message
    whose type is left out). Made once and never changed. Raises InvalidBatch, InvalidConversationId, InvalidAppendId.
    """

    __slots__ = ("append_id", "conversation", "digest", "encoded")

    def __init__(self, conversation: str, append_id: str, messages: Iterable[Mapping[str, Any]]) -> None:
        self.conversation = ConversationId(conversation)
        self.append_id = AppendId(append_id)
        try:
            items = [_message(each, at) for at, each in enumerate(as_list(messages, "messages"))]
            self.encoded = encode(items)
            """The messages' canonical encoding: JSON, a number in the spelling it came in."""
        except InvalidBatch:
            raise
        except BadInput as error:
            raise InvalidBatch(str(error), where=f"batch {self.append_id}") from error
        if not items:
            raise InvalidBatch("a batch has at least one message", where=f"batch {self.append_id}")
        self.digest = "sha256:" + hashlib.sha256(self.encoded).hexdigest()
        """The hash of the encoding."""

    @property
    def messages(self) -> list[Message]:
        """The messages; a copy."""
        items: list[Message] = json.loads(self.encoded)
        return items

    def __len__(self) -> int:
        return len(self.messages)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"Batch({self.conversation!r}, {self.append_id!r}, {self.digest})"

    @property
    def _identity(self) -> tuple[str, str, str]:
        return self.conversation, self.append_id, self.digest

    def to_json(self) -> str:
        """The batch as JSON text, from which :meth:`from_json` makes it again, digest and all."""
        named = encode({"conversation": str(self.conversation), "append_id": str(self.append_id)})
        return (named[:-1] + b',"messages":' + self.encoded + b"}").decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The batch of a JSON text. Raises InvalidBatch for anything but a batch."""
        try:
            members = as_object(decode(text), "a batch")
            if sorted(members) != sorted(_MEMBERS):
                raise InvalidBatch(f"a batch has the members {', '.join(_MEMBERS)}, not {', '.join(members)[:80]}")
            return cls(*(members[name] for name in _MEMBERS))
        except InvalidBatch:
            raise
        except (BadInput, TypeError, AttributeError) as error:
            raise InvalidBatch(str(error)) from error


def _message(value: object, at: int) -> Mapping[str, Any]:
    message = as_object(value, "a message")
    if isinstance(message.get("type"), str) and message["type"]:
        return message
    if "type" not in message and isinstance(message.get("role"), str) and "content" in message:
        return {"type": "message", **message}
    raise InvalidBatch(
        "a message is an item: an object with a type", where=f"/messages/{at}", next_step='say "type": "message"'
    )


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a store gives once the whole batch of that name and digest is accepted, for good."""

    conversation: str
    append_id: str
    digest: str

    @classmethod
    def of(cls, batch: Batch) -> Self:
        """The receipt of a batch; for a store to give."""
        return cls(batch.conversation, batch.append_id, batch.digest)

    def validate_for(self, batch: Batch) -> None:
        """Raise InvalidReceipt unless this is the receipt of that batch."""
        if (self.conversation, self.append_id, self.digest) != batch._identity:
            raise InvalidReceipt(
                "the receipt is of another batch", where=f"batch {batch.append_id}", next_step="submit the batch again"
            )
