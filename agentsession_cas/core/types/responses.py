"""``response``: the envelope of one model call, written after its output items (format.md §5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentsession_cas.core.entry import Draft
from agentsession_cas.core.given import require
from agentsession_cas.core.identity import is_hash
from agentsession_cas.core.reading import integer, members, text
from agentsession_cas.core.types.members import Json, View, composed, own
from agentsession_cas.errors import BadEntry

__all__ = ["ResponseView", "response"]


class ResponseView(View):
    """A ``response`` entry."""

    __slots__ = ()

    @property
    def response_id(self) -> str:
        """The provider's id of the response, or ""."""
        return text(self.body, "response_id")

    @property
    def model(self) -> str:
        """The model the provider says answered, or ""."""
        return text(self.body, "model")

    @property
    def status(self) -> str:
        """The provider's status, or ""."""
        return text(self.body, "status")

    @property
    def usage(self) -> Json | None:
        """Tokens used, in the payload's shape."""
        return members(self.body, "usage")

    @property
    def incomplete(self) -> Json | None:
        """Why the response stopped short."""
        return members(self.body, "incomplete")

    @property
    def error(self) -> Json | None:
        """The provider's error."""
        return members(self.body, "error")

    @property
    def request_hash(self) -> str:
        """The hash of the request as sent, or "" when none was recorded."""
        value = text(self.body, "request_hash")
        return value if is_hash(value) else ""

    @property
    def latency_ms(self) -> int | None:
        """How long the call took, in milliseconds."""
        return integer(self.body, "latency_ms")

    @property
    def attempts(self) -> int:
        """How many calls of the model the response took, at least 1."""
        attempts = integer(self.body, "attempts")
        return attempts if attempts is not None and attempts > 0 else 1


def response(
    *,
    response_id: str = "",
    model: str = "",
    status: str = "",
    usage: Mapping[str, Any] | None = None,
    incomplete: Mapping[str, Any] | None = None,
    error: Mapping[str, Any] | None = None,
    request_hash: str = "",
    latency_ms: int | None = None,
    attempts: int = 1,
) -> Draft:
    """The envelope of one model call. ``latency_ms`` is milliseconds; ``attempts`` counts the calls it took."""
    if request_hash and not is_hash(request_hash):
        raise BadEntry("a request hash is sha256: and 64 lowercase hex digits", where="/request_hash")
    if require(attempts, int, "attempts") < 1 or require(latency_ms or 0, int, "latency_ms") < 0:
        raise BadEntry("attempts is at least 1, and latency_ms is not negative")
    return Draft(
        "response",
        composed(
            {},
            response_id=response_id,
            model=model,
            status=status,
            usage=own("usage", usage),
            incomplete=own("incomplete", incomplete),
            error=own("error", error),
            request_hash=request_hash,
            latency_ms=latency_ms,
            attempts=None if attempts == 1 else attempts,
        ),
    )
