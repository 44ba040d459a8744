"""The one door to the outside: file system, clock and randomness.

Owns the protocols every other part is written against (``host``), the in-memory file system (``memory``) and the orders
of writes all parts share (``durable``). Nothing here knows what a store, a session or an entry is.
"""

from __future__ import annotations

__all__: list[str] = []
