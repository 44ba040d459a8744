"""What looking at a whole session costs as it grows: verify, calls, runs, context. ``python -m benchmarks verify``.

The same session at three lengths, a tenth and three tenths of ``--entries`` and all of it: runs, responses, calls,
decisions, dispatches and outputs (:mod:`benchmarks.agent`), no compaction anywhere, so that nothing cuts a path short.
Work that is linear in the session takes 10× and 3.3× as long in the whole; a target allows half as much again, since
memory is slower the more of it is in use. Every operation begins with ``Store.read`` of a checkpointed session in a
store on disk; files lie in the page cache.

* *verify*: all the command does: ids, requests against their hashes, record rules on every branch, links.
* *calls*, *runs*, *context*: at the head; of the context the request's hash too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

from agentsession_cas import Session, Store
from agentsession_cas.maintenance.verify import verify_stored
from benchmarks.agent import SESSION, written
from benchmarks.harness import OURS, Comparison, Options, Target, Turn, compare, part, workplace

__all__ = ["measure"]

_SLACK: Final = 1.5
"""How much more an entry may cost in the longest session."""
_SHARES: Final = {OURS: 1.0, "3/10 as long": 0.3, "1/10 as long": 0.1}


@part(rounds=5, entries=100_000, quick=(1, 5_000))
def measure(used: Options) -> list[Comparison]:
    """Compare a session with shorter ones; entries are those of the longest."""
    with workplace(used.directory) as place:
        stores = {name: _build(place / str(at), share, used) for at, (name, share) in enumerate(_SHARES.items())}
        return [_compare(name, work, stores, used) for name, work in _WORK.items()]


def _build(path: Path, share: float, used: Options) -> Path:
    with Store.open(path, create=True) as store:
        store.import_file(written(max(10, int(share * used.entries))), as_record=True)
        if not _verify(store):
            raise AssertionError("the session does not verify")
    return path


def _compare(name: str, work: Callable[[Store], object], stores: dict[str, Path], used: Options) -> Comparison:
    turns: dict[str, Turn] = {peer: partial(_turn, path, work) for peer, path in stores.items()}
    targets = [Target(peer, round(_SLACK / share, 2)) for peer, share in _SHARES.items() if peer != OURS]
    return compare(name, turns, used.rounds, targets)


def _turn(path: Path, work: Callable[[Store], object], number: int) -> list[float]:  # noqa: ARG001
    with Store.open(path, read_only=True) as store:
        start = perf_counter()
        work(store)
        return [perf_counter() - start]


def _verify(store: Store) -> bool:
    verified = verify_stored(lambda: store.read(SESSION), store.header_of)
    return bool(verified["ok"])


def _at_head(ask: Callable[[Session], object], store: Store) -> object:
    return ask(store.read(SESSION))


_WORK: Final[dict[str, Callable[[Store], object]]] = {
    "verify": _verify,
    "calls": partial(_at_head, lambda session: [call.to_json(session.header) for call in session.calls()]),
    "runs": partial(_at_head, lambda session: [run.to_json(session.source) for run in session.runs()]),
    "context": partial(_at_head, lambda session: session.context().request_hash()),
}
