"""What a store remembers of its remotes: where a session stood, here and there, when the two last agreed.

Small files below ``logs/remotes/``, one for each session and remote, one for each ref that was pushed. Derived and
never trusted: a file that does not read is none, and what one says holds only as long as both stores show that they are
the same still (birth, and the entry at that place of the log). Never synced: what is not remembered is asked.
"""

from __future__ import annotations

import hashlib
import zlib
from contextlib import suppress
from typing import Any, Final, NamedTuple

import orjson

from agentsession_cas.core.refnames import ref_file
from agentsession_cas.effects.durable import ensure_dir
from agentsession_cas.errors import AgentSessionError, DiskError
from agentsession_cas.exchange.endpoint import Position
from agentsession_cas.layout import Layout, directory_name
from agentsession_cas.sessions.reffile import RefTarget

__all__ = ["Place", "Remembered", "Seen"]

_CRC: Final = 8
_AGREED: Final = "=agreed"
"""No session's directory has such a name, and no ref's file."""


class Place(NamedTuple):
    """A place in the log of a session: whose it is, how many rows, and the newest entry among them ("" for none)."""

    birth: str
    rows: int
    entry: str

    @classmethod
    def of(cls, position: Position) -> Place:
        """Where a session stands."""
        return cls(position.birth.hex(), position.rows, position.last)

    def holds(self, position: Position | None) -> bool:
        """Whether a session that was asked about so many rows is the one remembered, and has them."""
        return position is not None and (position.birth.hex(), position.proof) == (self.birth, self.entry)


class Seen(NamedTuple):
    """A session as both stores had it. All rows ``here`` are there too; the first ``fetched`` rows ``there`` are here.

    ``head`` is the head there then, ``mark`` the one here.
    """

    here: Place
    there: Place
    fetched: int
    head: str
    mark: int


class Remembered:
    """What a store remembers of the remote at an address."""

    def __init__(self, layout: Layout, address: str) -> None:
        self._host = layout.host
        self._tmp = layout.tmp
        self._top = f"{layout.root}/logs/remotes"
        self._directory = f"{self._top}/{hashlib.sha256(address.encode(errors='surrogatepass')).hexdigest()[:32]}"

    def session(self, session: str) -> Seen | None:
        """What is remembered of a session; None for nothing that reads."""
        with suppress(TypeError, ValueError, KeyError):
            here, there, fetched, head, mark = self._read(directory_name(session))
            seen = Seen(Place(*here), Place(*there), int(fetched), str(head), int(mark))
            return seen if isinstance(seen.here.rows, int) and isinstance(seen.there.rows, int) else None
        return None

    def see(self, session: str, seen: Seen) -> None:
        """Remember a session."""
        self._write(directory_name(session), seen)

    def agreed(self) -> dict[str, list[str]]:
        """The stamps that sessions had here and there when nothing was to be pushed, by their directories' names."""
        with suppress(TypeError, ValueError):
            return dict(self._read(_AGREED))
        return {}

    def see_agreed(self, stamps: dict[str, list[str]]) -> None:
        """Remember those, and none beside them."""
        self._write(_AGREED, stamps)

    def ref(self, name: str) -> RefTarget | None:
        """What a ref there held when it was last moved from here; None for nothing that reads."""
        with suppress(TypeError, ValueError):
            session, entry = self._read(f"@{ref_file(name)}")
            return RefTarget(str(session), str(entry))
        return None

    def see_ref(self, name: str, target: RefTarget) -> None:
        """Remember a ref."""
        self._write(f"@{ref_file(name)}", target)

    def _read(self, name: str) -> Any:
        """What a file says; raises ValueError for one that does not read."""
        try:
            data = self._host.fs.read(f"{self._directory}/{name}") or b""
        except AgentSessionError:
            data = b""
        if zlib.crc32(data[_CRC:]) != int(data[:_CRC] or b"x", 16):
            raise ValueError(name)
        return orjson.loads(data[_CRC:])

    def _write(self, name: str, value: object) -> None:
        """Best effort: what is not remembered is asked."""
        text = orjson.dumps(value, default=tuple)
        staged = f"{self._tmp}/{self._host.entropy.take(10).hex()}"
        fs = self._host.fs
        with suppress(DiskError):
            if fs.stat(self._directory) is None:
                ensure_dir(fs, self._top)
                ensure_dir(fs, self._directory)
            file = fs.create(staged)
            try:
                file.pwrite(b"%08x" % zlib.crc32(text) + text, 0)
            finally:
                file.close()
            fs.rename(staged, f"{self._directory}/{name}")
