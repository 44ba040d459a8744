"""Stores that exchange sessions on one simulated disk, and what there is to say of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from agentsession_cas import Store, entry
from agentsession_cas.core.jsonl import projection_lines
from agentsession_cas.effects.host import Host
from agentsession_cas.errors import AgentSessionError
from agentsession_cas.exchange.sharing import Fetched, Pushed
from agentsession_cas.sessions.source import RowSource

__all__ = [
    "ROOTS",
    "A",
    "B",
    "C",
    "Three",
    "fetched",
    "grow",
    "lines",
    "mark",
    "opened",
    "own",
    "pushed",
    "refusals",
    "stores",
]

A: Final = "/a"
B: Final = "/b"
C: Final = "/c"
ROOTS: Final = (A, B, C)
Three = tuple[Store, Store, Store]


def opened(host: Host, root: str) -> Store:
    """The store at a root, made when there is none; nothing of it works in the background."""
    return Store.open(root, create=True, host=host, background=False)


@contextmanager
def stores(host: Host, *roots: str) -> Iterator[tuple[Store, ...]]:
    """Stores on one host, closed behind the block."""
    made = tuple(opened(host, root) for root in roots)
    try:
        yield made
    finally:
        for store in made:
            store.close()


def grow(store: Store, session: str, *texts: str, at: str | None = None) -> list[str]:
    """Append texts below an entry, or the head; makes the session when there is none. Their ids."""
    held = store.open_session(session) if store.holds(session) else store.create(id=session)
    ids: list[str] = []
    with held:
        for text in texts:
            draft = entry.user(text)
            ids.append(held.append(draft if at is None else draft.at(parent=at)).id)
            at = None if at is None else ids[-1]
    return ids


def lines(store: Store, session: str) -> list[bytes]:
    """The lines a session is projected as."""
    found = store.read(session)
    try:
        return list(projection_lines(found))
    finally:
        assert isinstance(found.source, RowSource)
        found.source.close()


def own(store: Store, session: str) -> list[str]:
    """The ids of a session's own entries, in log order."""
    found = store.read(session)
    return [found.source.entry_id(at) for at in range(found.source.base_count, len(found))]


def mark(store: Store, session: str) -> str:
    """Whether a session is a record or a mirror."""
    return next(each.mark for each in store.list() if each.id == session)


def pushed(store: Store, remote: Store | str, session: str, **options: object) -> Pushed:
    """Push one session."""
    where = remote if isinstance(remote, str) else remote.root
    (done,) = store.push(where, session, **options)  # type: ignore[arg-type]
    return done


def fetched(store: Store, remote: Store, session: str) -> Fetched:
    """Fetch one session."""
    (done,) = store.fetch(remote.root, session)
    return done


class refusals(list[tuple[str, str]]):  # noqa: N801 - used as a function
    """Hears of what is refused: pairs of a session and a code."""

    def __call__(self, session: str, error: AgentSessionError) -> None:
        self.append((session, error.code))
