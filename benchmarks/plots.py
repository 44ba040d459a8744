"""Cost against size, drawn: ``python -m benchmarks NAME --plots DIR``.

One picture for each of append, open, resume, fork, push and fsck: what an operation costs in a
session ten times as long as the one before, ours beside a peer. Without matplotlib (the extra ``benchmarks``) the same
figures are told as text.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import orjson

from agentsession_cas import Store, entry
from benchmarks.checking import check, hashing, pieces
from benchmarks.harness import OURS, fresh, optional
from benchmarks.resume import resume
from benchmarks.sessions import Place, Sessions

__all__ = ["LENGTHS", "QUICK", "plot"]

_ROUNDS: Final = 5
_APPENDS: Final = 200
QUICK: Final = (100, 1_000, 3_000)
LENGTHS: Final = (100, 1_000, 10_000, 100_000)

Curve = list[tuple[int, float]]
"""Entries, and seconds."""
Cost = Callable[[Place], float]


def plot(directory: Path, sessions: Sessions, lengths: Sequence[int]) -> str:
    """Measure at those lengths of a session, and draw; what to tell of it."""
    found = {
        work: {name: [(length, cost(sessions.of(length))) for length in lengths] for name, cost in costs.items()}
        for work, costs in _costs(sessions).items()
    }
    pyplot = optional("matplotlib.pyplot")
    if pyplot is None:
        return "\n".join([*_lines(found), "no pictures: matplotlib is not installed (the extra: benchmarks)"])
    directory.mkdir(parents=True, exist_ok=True)
    for work, curves in found.items():
        _draw(pyplot, directory / f"{work}.png", work, curves)
    return f"{len(found)} pictures in {directory}"


def _lines(found: dict[str, dict[str, Curve]]) -> Iterator[str]:
    for work, curves in found.items():
        for name, curve in curves.items():
            points = ", ".join(f"{length:,}: {seconds * 1e3:.3g} ms" for length, seconds in curve)
            yield f"{work}, {name}: {points}"


def _draw(pyplot: Any, path: Path, work: str, curves: dict[str, Curve]) -> None:
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for name, curve in curves.items():
        axes.loglog([length for length, _ in curve], [seconds * 1e3 for _, seconds in curve], marker="o", label=name)
    axes.set(title=work, xlabel="entries of the session", ylabel="ms")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


# --- what is measured ------------------------------------------------------------------------------------------------


def _costs(sessions: Sessions) -> dict[str, dict[str, Cost]]:
    changing = partial(_on_a_copy, sessions)
    return {
        "append": {OURS: changing(_append)},
        "open": {OURS: _typical(_open), "JSONL": _typical(_load)},
        "resume": {OURS: changing(_typical(resume)), "JSONL": _typical(_load)},
        "fork": {OURS: changing(_fork), "file copy": _typical(_copy)},
        "push": {OURS: changing(_push), "file copy": _typical(_copy)},
        "fsck": {OURS: _typical(check), "sha256, all cores": _hash},
    }


def _typical(work: Callable[[Place, ExitStack], object]) -> Cost:
    return lambda place: median(fresh(partial(work, place), _ROUNDS)(0))


def _on_a_copy(sessions: Sessions, cost: Cost) -> Cost:
    def copied(place: Place) -> float:
        return cost(sessions.copy(place.entries, "plotted"))

    return copied


def _append(place: Place) -> float:
    """One append, lazily, to a session held for writing."""
    with Store.open(place.store) as store, store.open_session(place.session) as session:
        said = entry.user("and now?")
        return median(fresh(lambda held: session.append(said, durable=False), _APPENDS)(0))  # noqa: ARG005


def _open(place: Place, held: ExitStack) -> None:
    held.enter_context(Store.open(place.store, read_only=True)).read(place.session)


def _fork(place: Place) -> float:
    with Store.open(place.store) as store:
        head = store.read(place.session).leaf
        return median(fresh(lambda held: held.enter_context(store.fork(place.session, head)), _ROUNDS)(0))


def _push(place: Place) -> float:
    """One entry more, brought to a mirror of the rest."""
    target = place.store.with_name(f"{place.store.name}-mirror")
    with Store.open(place.store) as store:
        Store.open(target, create=True).close()
        store.push(target, place.session)
        taken = []
        for number in range(_ROUNDS):
            with store.open_session(place.session) as session:
                session.append(entry.user(f"and now? {number}"), durable=True)
            taken += fresh(lambda held: store.push(target, place.session))(0)  # noqa: ARG005
        return median(taken)


def _load(place: Place, held: ExitStack) -> None:  # noqa: ARG001
    with place.lines.open("rb") as file:
        for line in file:
            orjson.loads(line)


def _copy(place: Place, held: ExitStack) -> None:  # noqa: ARG001
    shutil.copyfile(place.lines, place.lines.with_suffix(".copy"))


def _hash(place: Place) -> float:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return median(fresh(partial(hashing, pool, list(pieces(place))), _ROUNDS)(0))
