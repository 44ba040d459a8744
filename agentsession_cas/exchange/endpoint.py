"""One side of an exchange, as the other sees it (store.md A11): a store on this disk, or one behind a wire.

Owns what is said between two stores. Each method is one question or one delivery, with values that a wire can carry and
nothing kept open in between; lists may be long, and are told in pieces where the docstring says so. Whoever answers
trusts nothing: objects are hashed again when they arrive, and what a caller remembers is compared with what is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from agentsession_cas.core.header import Header
from agentsession_cas.core.packformat import Space
from agentsession_cas.errors import AgentSessionError
from agentsession_cas.sessions.reffile import Ref, RefTarget

__all__ = ["Delivery", "Endpoint", "Item", "Manifest", "Name", "Object", "Position", "Receipt", "State"]

Name = tuple[Space, bytes]
"""An object: its space and its raw digest."""
Object = tuple[Space, bytes, bytes]
"""An object and its bytes."""


class State(NamedTuple):
    """What changes whenever a session does: its birth, how many rows its log has, its head (raw digest)."""

    session: str
    birth: bytes
    rows: int
    head: bytes


class Position(NamedTuple):
    """Where a session stands: its header, birth (16 bytes), rows of the log, head ("" the universal root) and mark.

    ``last`` is the id of the newest own entry, ``proof`` that of the newest among the first rows asked about, "" for
    none: whoever remembers having seen so many rows compares it with what he saw. None when there are not so many.
    """

    header: Header
    birth: bytes
    rows: int
    head: str
    mark: int
    last: str
    proof: str | None = None


class Item(NamedTuple):
    """An entry to be carried: its id, its content hash, the blobs its body names, and its place with the holder."""

    entry: str
    content: str
    blobs: tuple[str, ...]
    place: int


class Manifest(NamedTuple):
    """What a holder has of a session: where it stands, the prefix, own entries in order.

    The prefix is there when it was asked for. All of it is committed.
    """

    position: Position
    prefix: list[Item]
    own: list[Item]


class Delivery(NamedTuple):
    """A session's closure, whose objects went before: what the receiver is to make of them.

    ``birth`` is that of the session the receiver was found to hold, b"" for none. ``prefix`` and ``own`` are entry ids
    in the sender's order, the prefix only for a session not held. The head goes to ``head``: from ``expected``, None
    for whatever nobody has seen; by ``force`` from anything; or, when it is fetched (``follow``), by the rule of a
    fetch. ``known`` are entries the receiver holds of calls that the sender has twice too.
    """

    header: Header
    birth: bytes
    prefix: Sequence[str]
    own: Sequence[str]
    head: str
    expected: str | None
    force: bool
    follow: bool
    known: frozenset[str] = frozenset()


class Receipt(NamedTuple):
    """What came of a delivery: entries admitted, the head's fate, and where the session stands now.

    ``why`` says why the head is not where the delivery wanted it, "" when it is.
    """

    created: bool
    admitted: int
    moved: bool
    forced: bool
    why: str
    position: Position


class Endpoint(Protocol):
    """A store that sessions are exchanged with. Every method raises what the disk, or the wire, has to say."""

    @property
    def address(self) -> str:
        """What tells this store from others."""

    def stamps(self) -> dict[str, str]:
        """A stamp of every session by its directory's name, in one answer: another whenever the session changed.

        "" for a session that changed just now, of which no stamp would tell. Opens no session.
        """

    def states(self, names: Iterable[str]) -> Iterable[State]:
        """The state of those sessions that read, by their directories' names, in one answer."""

    def position(self, session: str, at: int) -> Position | None:
        """Where a session stands, with the proof of its first ``at`` rows; None when it is not held."""

    def manifest(self, session: str, after: int, *, prefix: bool) -> Manifest:
        """Commit a session, and tell its entries from row ``after`` on. Raises NoSession."""

    def load(self, session: str, items: Sequence[Item], wanted: set[Name]) -> Iterator[Object]:
        """The wanted objects of some of a manifest's entries, envelopes and bodies before what comes after them.

        Raises NoBlob, and Changed when the session is another now.
        """

    def lacking(self, session: str, entries: Sequence[str]) -> list[str]:
        """Those that are no entries of the session, in order; all of them when it is not held."""

    def is_above(self, session: str, entry: str, leaf: str) -> bool:
        """Whether an entry, "" the universal root, is on the path to another; never for one that is not held."""

    def missing(self, session: str, names: Sequence[Name]) -> list[Name]:
        """Those that are neither held nor arrived for this session."""

    def take(self, session: str, objects: Sequence[Object]) -> None:
        """Keep objects aside for a delivery. Those that do not hash to their names are dropped with it."""

    def receive(self, delivery: Delivery) -> Receipt:
        """Make a session, or merge into the one held, durably.

        Raises Changed when the question has to be asked again; CallIDRepeated (``where`` is the call held), which may
        be answered with ``known``; HeaderDiffers, NoRaise, NotRedacted, SessionLocked, and what a line that may not be
        there does. What was kept aside is dropped, but for the first two.
        """

    def receive_new(self, deliveries: Sequence[Delivery]) -> list[Receipt | AgentSessionError]:
        """Make sessions that were not held and have no base, durably; of each its receipt, or what it raises alone.

        Each is made in one step; they share what it costs to make them last. Raises what concerns them all.
        """

    def drop(self, session: str) -> None:
        """Let go of what was kept aside for a session."""

    def make_record(self, session: str) -> None:
        """Mark a session the record, durably. Raises NoSession."""

    def ref(self, name: str) -> RefTarget | None:
        """What a ref holds, dangling or not; None for no ref."""

    def refs(self) -> list[Ref]:
        """Every ref that reads and leads to a session that is there, in the order of names."""

    def move_ref(self, name: str, expected: RefTarget | None, to: RefTarget) -> bool:
        """Move a ref by compare-and-swap, durably; whether that changed anything. Raises as ``Store.update_ref``."""
