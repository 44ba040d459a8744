"""The asyncio twin of the library: the same names, awaited, and the event loop never blocked (cli.md, The library).

Each twin stands over a handle of the library and sends its calls to a few threads. Of one session they run one after
another, in the order they were asked; durable appends that wait together share one sync. A twin is of one event loop.
"""

from __future__ import annotations

from agentsession_cas.aio.follow import Follower
from agentsession_cas.aio.session import Session, SessionWriter
from agentsession_cas.aio.store import Store
from agentsession_cas.aio.turns import Cancelled

__all__ = ["Cancelled", "Follower", "Session", "SessionWriter", "Store"]
