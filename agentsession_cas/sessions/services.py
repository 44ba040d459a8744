"""What a session's writer is handed by its store, and the few words both use."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Final, NamedTuple, Protocol

from agentsession_cas.core.accept import Elsewhere
from agentsession_cas.core.facts import Code, Kind
from agentsession_cas.effects.host import Host
from agentsession_cas.objects.database import ObjectDatabase

__all__ = ["HeldElsewhere", "Mark", "Merge", "Services", "SyncPolicy", "wants_sync"]

_BLOB_WAIT_S: Final = 60.0


class Mark:
    """Kinds of mark rows (store.md A2): which copy of a session is the one that grows."""

    RECORD: Final = 1
    MIRROR: Final = 2


class SyncPolicy:
    """Which appends are durable when the caller does not say (store.md A5)."""

    RECORDS: Final = "records"
    ALWAYS: Final = "always"
    NEVER: Final = "never"


def wants_sync(policy: str, promised: frozenset[str], type_: str, code: Code, kind: Kind) -> bool:
    """Whether an append is durable when its caller does not say, by its entry's type; promised types always are."""
    if policy == SyncPolicy.ALWAYS or type_ in promised:
        return True
    if policy == SyncPolicy.NEVER:
        return False
    return code is Code.RESPONSE or kind in (Kind.FUNCTION_CALL_OUTPUT, Kind.END)


class Merge(Protocol):
    """What merges packs after a checkpoint."""

    def __call__(self, go_on: Callable[[], bool], *, thorough: bool) -> None: ...


def _merge_nothing(go_on: Callable[[], bool], *, thorough: bool) -> None:
    """Leave packs as they are."""


class Services(NamedTuple):
    """What a writer needs of its store. ``shared`` holds the store lock shared (its argument: seconds to wait).

    ``tmp`` is where files are staged, ``background`` whether long journals are checkpointed in a thread,
    ``redacted_only`` whether an entry has to be redacted (format.md §10). ``merge`` merges packs if they have become
    many: quickly or (``thorough``) all that is due, asking in between whether it may go on.
    """

    host: Host
    tmp: str
    objects: ObjectDatabase
    shared: Callable[[float], AbstractContextManager[None]]
    elsewhere: Elsewhere
    sync: str = SyncPolicy.RECORDS
    background: bool = True
    redacted_only: bool = False
    merge: Merge = _merge_nothing


class HeldElsewhere:
    """What lies outside a session, for one append at a time: a blob looked up stays until its frame is written.

    The store lock is taken, shared, when the first blob is looked up; from then on, until :meth:`let_go`, ``locked``.
    """

    __slots__ = ("_held", "_services", "locked")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._held = ExitStack()
        self.locked = False

    def has_blob(self, blob: str) -> bool:
        """Whether the store holds the blob."""
        if not self.locked:
            self._held.enter_context(self._services.shared(_BLOB_WAIT_S))
            self.locked = True
        return self._services.elsewhere.has_blob(blob)

    def has_entry(self, session: str, entry_id: str) -> bool:
        """Whether another session holds the entry."""
        return self._services.elsewhere.has_entry(session, entry_id)

    def let_go(self) -> None:
        """Let the store lock go: the frame is written, or refused."""
        self.locked = False
        self._held.close()
