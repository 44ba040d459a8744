"""What the command costs, from its start to its end: ``--help``, and ``list``. ``python -m benchmarks commands``.

``list`` prints every session of a store, beside ``git for-each-ref`` of a repository with as many refs, packed; and how
long it takes within a process, where sessions are short and where they are long: as they are after appending, when a
listing reads their journals, and checkpointed, when the rows are in their logs. The command runs from bytecode, as one
that was installed does, whatever the environment says.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from agentsession_cas import Store, entry
from benchmarks.harness import OURS, Comparison, Options, Target, Turn, compare, fixed, fresh, part, workplace

__all__ = ["measure"]

GIT: Final = "git"
HELP_LIMIT: Final = "150 ms"
LIST_LIMIT: Final = "1 s"
SHORT: Final = "sessions of 2 entries"
_FEW: Final = 100
_LONG: Final = 300
_FLAT: Final = 1.3


@part(rounds=7, entries=10_000, quick=(3, 300))
def measure(used: Options) -> list[Comparison]:
    """Starting the command, and listing sessions; entries are the sessions there are."""
    with workplace(used.directory) as place:
        flat = [_flat(place, used, checkpointed=each) for each in (False, True)]
        return [_help(place, used), _list(place, used), *flat]


def _help(place: Path, used: Options) -> Comparison:
    turns: dict[str, Turn] = {OURS: _turn(*_ours("--help"), times=5, bytecode=place), HELP_LIMIT: fixed(0.15)}
    if shutil.which("git"):
        turns[GIT] = _turn("git", "--help", times=5)
    return compare("--help", turns, used.rounds, [Target(HELP_LIMIT, 1)])


def _list(place: Path, used: Options) -> Comparison:
    _fill(place / "store", used.entries, 1)
    ours = _turn(*_ours("--store", str(place / "store"), "list"), bytecode=place)
    turns: dict[str, Turn] = {OURS: ours, LIST_LIMIT: fixed(1.0)}
    if shutil.which("git"):
        _refs(place / "git", used.entries)
        turns[GIT] = _turn("git", "-C", str(place / "git"), "for-each-ref")
    return compare(f"list of {used.entries:,} sessions", turns, used.rounds, [Target(LIST_LIMIT, 1)])


def _flat(place: Path, used: Options, *, checkpointed: bool) -> Comparison:
    turns: dict[str, Turn] = {}
    state = "checkpointed" if checkpointed else "as appended"
    for name, length in ((OURS, _LONG), (SHORT, 2)):
        path = place / f"{length} {state}"
        _fill(path, min(_FEW, used.entries), length, checkpointed=checkpointed)
        turns[name] = fresh(lambda held, path=path: held.enter_context(Store.open(path)).list(), 3)  # type: ignore[misc]
    return compare(f"list, sessions of {_LONG} entries, {state}", turns, used.rounds, [Target(SHORT, _FLAT)])


def _ours(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "agentsession_cas", *arguments)


def _turn(*command: str, times: int = 1, bytecode: Path | None = None) -> Turn:
    """Run a command to its end; a Python one keeps its modules compiled in ``bytecode``."""
    environment = dict(os.environ)
    if bytecode is not None:
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        environment["PYTHONPYCACHEPREFIX"] = str(bytecode / "bytecode")
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)

    def run(held: ExitStack) -> None:  # noqa: ARG001
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)

    return fresh(run, times)


def _fill(path: Path, sessions: int, entries: int, *, checkpointed: bool = False) -> None:
    said = [entry.user(f"question {number}") for number in range(entries)]
    with Store.open(path, create=True) as store:
        for number in range(sessions):
            with store.create(id=f"session-{number:06}", cwd=f"/src/project-{number % 40}") as session:
                session.append_batch(said, durable=False)
                if checkpointed:
                    session.checkpoint()


def _refs(path: Path, count: int) -> None:
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    name = _git(path, "hash-object", "-w", "--stdin", given="hello").strip()
    made = "".join(f"create refs/sessions/{number:06} {name}\n" for number in range(count))
    _git(path, "update-ref", "--stdin", given=made)
    _git(path, "pack-refs", "--all")


def _git(path: Path, *arguments: str, given: str = "") -> str:
    done = subprocess.run(["git", "-C", str(path), *arguments], input=given, check=True, capture_output=True, text=True)
    return done.stdout
