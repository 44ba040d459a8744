"""A store of a machine, opened for a test, and all that its sessions say."""

from __future__ import annotations

from typing import Final

from agentsession_cas.effects.host import Host
from agentsession_cas.store import Store

__all__ = ["ROOT", "Lines", "lines_of", "opened"]

ROOT: Final = "/store"
Lines = dict[str, list[bytes]]


def opened(host: Host, *, create: bool = False) -> Store:
    """The store of a machine, with nothing done behind anybody's back."""
    return Store.open(ROOT, create=create, host=host, background=False)


def lines_of(store: Store) -> Lines:
    """Every session as its lines, every body read."""
    return {name: [each.line for each in store.read(name)] for name in store.session_ids()}
