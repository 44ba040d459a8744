"""An entry as a log row has it: what a walk seldom asks for is made when somebody does.

A walk over a hundred thousand entries asks each for its id, its type and its parent. The time and the content hash of
such an entry are spelled, and its body is loaded, on first use; whatever was asked for once is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from agentsession_cas.core.entry import Entry
from agentsession_cas.core.identity import HASH_PREFIX
from agentsession_cas.core.timestamps import ts_from_ns

__all__ = ["RowEntry"]


class RowEntry(Entry):
    """An entry without ``parents`` whose envelope a row holds whole. Make one with :meth:`of_row`."""

    __slots__ = ("_digest", "_fetch", "_ts_ns")

    _digest: bytes
    _fetch: Callable[[bytes], bytes]
    _ts_ns: int

    @classmethod
    def of_row(
        cls, id_: str, type_: str, parent: str, ts_ns: int, digest: bytes, fetch: Callable[[bytes], bytes]
    ) -> RowEntry:
        """``digest`` is the raw content hash; ``fetch`` gives the verified content of that hash."""
        entry = _new(cls)
        entry.id = id_
        entry.type = type_
        entry.parent = parent
        entry._ts_ns = ts_ns
        entry._digest = digest
        entry._fetch = fetch
        return entry

    def __getattr__(self, name: str) -> Any:
        """Make a member that was not asked for yet: Python asks here for a slot that is empty."""
        value: Any = None
        if name == "ts":
            value = ts_from_ns(self._ts_ns)
        elif name == "content_hash":
            value = HASH_PREFIX + self._digest.hex()
        elif name == "parents":
            value = []
        elif name == "_load":
            value = partial(self._fetch, self._digest)
        elif name not in ("_content", "_body", "_facts"):
            raise AttributeError(f"an entry has no {name}")
        setattr(self, name, value)
        return value


_new: Callable[[type[RowEntry]], RowEntry] = object.__new__
