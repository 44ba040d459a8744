"""Identities of conversations and of appends (history.md H1): texts checked once, and trusted from there on."""

from __future__ import annotations

import re
from typing import Final, Self

from agentsession_cas.errors import AgentSessionError, InvalidAppendId, InvalidConversationId

__all__ = ["ID_BYTES_MAX", "AppendId", "ConversationId"]

ID_BYTES_MAX: Final = 512
_REFUSED: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class ConversationId(str):
    """The name of a conversation: text of at most 512 bytes, without control characters.

    Raises InvalidConversationId for anything else; for one that is none, nothing is read or written.
    """

    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        """Check a value; one that was checked is itself."""
        return value if isinstance(value, cls) else super().__new__(cls, _checked(value, InvalidConversationId))


class AppendId(str):
    """The name of one append within its conversation, which a retry uses again. Raises InvalidAppendId."""

    __slots__ = ()

    def __new__(cls, value: str) -> Self:
        """Check a value; one that was checked is itself."""
        return value if isinstance(value, cls) else super().__new__(cls, _checked(value, InvalidAppendId))


def _checked(value: object, error: type[AgentSessionError]) -> str:
    if not isinstance(value, str) or not value:
        raise error("an id is a text that is not empty", where=f"{value!r:.80}")
    found = _REFUSED.search(value)
    if found is not None:
        raise error(f"an id holds no {found[0]!r}", where=f"{value!r:.80}")
    if len(value.encode()) > ID_BYTES_MAX:
        raise error(f"an id is at most {ID_BYTES_MAX} bytes", where=f"{value!r:.80}")
    return value
