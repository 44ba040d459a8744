"""How many tokens a message takes (history.md H2): an estimate, or a tokenizer's count.

A message counts as its text wherever it stands, arguments and outputs of calls included, and a little for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, Protocol

from agentsession_cas.errors import Usage
from agentsession_cas.history.batch import Message

__all__ = ["EstimateCounter", "TiktokenCounter", "TokenCounter", "text_of"]

MESSAGE_TOKENS: Final = 4
"""What a message takes beside its text."""

_CJK: Final = ((0x2E80, 0x9FFF), (0xAC00, 0xD7AF), (0xF900, 0xFAFF), (0xFF00, 0xFFEF), (0x20000, 0x3FFFF))
_TEXTS: Final = ("text", "refusal", "summary", "content", "name", "arguments", "output", "input")


class TokenCounter(Protocol):
    """Counts tokens."""

    def count(self, text: str) -> int:
        """Those of a text."""

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Those of messages."""


class EstimateCounter:
    """4 ASCII characters a token, 1.5 CJK characters a token, 2 of others."""

    def count(self, text: str) -> int:
        """Those of a text, rounded up."""
        wide = [] if text.isascii() else [ord(each) for each in text if each >= "\x80"]
        ascii_ = len(text) - len(wide)
        cjk = sum(1 for each in wide if any(low <= each <= high for low, high in _CJK))
        twelfths = 3 * ascii_ + 8 * cjk + 6 * (len(text) - ascii_ - cjk)
        return -(-twelfths // 12)

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Those of messages."""
        return sum(MESSAGE_TOKENS + self.count(text_of(message)) for message in messages)


class TiktokenCounter:
    """Counts with ``tiktoken``, which the extra ``tiktoken`` installs.

    ``model`` is a model's name, or an encoding's; cl100k_base for one that is not known. Raises Usage without tiktoken.
    """

    def __init__(self, model: str = "cl100k_base") -> None:
        try:
            tiktoken = import_module("tiktoken")
        except ImportError as error:
            raise Usage("tiktoken is not installed", next_step="install agentsession-cas[tiktoken]") from error
        try:
            self._encoding = tiktoken.encoding_for_model(model)
        except KeyError:
            known = model in tiktoken.list_encoding_names()
            self._encoding = tiktoken.get_encoding(model if known else "cl100k_base")

    def count(self, text: str) -> int:
        """Those of a text."""
        return len(self._encoding.encode(text, disallowed_special=()))

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Those of messages."""
        return sum(MESSAGE_TOKENS + self.count(text_of(message)) for message in messages)


def text_of(value: Any) -> str:
    """The text in a message, or in a part of one."""
    pending, found = [value], []
    while pending:
        each = pending.pop()
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, list):
            pending += reversed(each)
        elif isinstance(each, dict):
            pending += [each[name] for name in reversed(_TEXTS) if name in each]
    return "\n".join(found)
