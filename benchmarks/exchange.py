"""What it costs to bring sessions to another store on the same disk. ``python -m benchmarks exchange``.

Ours: ``Store.push`` to a store by its path, which is opened for it, acknowledged when it would survive a power cut
there. The peers bring the same lines, as files, to a directory beside: ``git push`` to a bare repository, the commit
not counted, and ``rsync``, where they are installed; each is a process of its own. What is new is made before the clock
starts. The last comparison finds that of a tenth as many sessions none is new.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path
from time import perf_counter
from typing import Final

from agentsession_cas import Store, entry
from benchmarks.corpus import stream
from benchmarks.harness import OURS, Comparison, Options, Target, Turn, compare, part
from benchmarks.sessions import Place

__all__ = ["measure"]

GIT, RSYNC = "git push", "rsync"
EVEN: Final = Target(GIT, 1)
_BATCH = 100


@part(rounds=5, entries=100_000, quick=(2, 200))
def measure(used: Options) -> list[Comparison]:
    """Pushing sessions beside git and rsync; entries are the session's, and ten times the sessions of the last."""
    place = used.sessions.copy(used.entries, "pushed")
    directory = used.directory / "exchange"
    directory.mkdir()
    compared = [compare(f"first push of {used.entries:,} entries", _first(place, directory), used.rounds, [EVEN])]
    for new in (1, _BATCH):
        title = f"push of {new} new to {used.entries:,} entries"
        compared.append(compare(title, _growing(place, directory / f"new-{new}", new), used.rounds, [EVEN]))
    sessions = max(1, used.entries // 10)
    still = _still(directory / "still", sessions)
    compared.append(compare(f"push of {sessions:,} sessions, none new", still, used.rounds))
    return compared


def _timed(prepare: Callable[[int], object], work: Callable[[int], object]) -> Turn:
    """A turn that makes something ready, and then does what is measured."""

    def turn(number: int) -> list[float]:
        prepare(number)
        begun = perf_counter()
        work(number)
        return [perf_counter() - begun]

    return turn


def _run(*command: str | Path, where: Path | None = None) -> None:
    subprocess.run(list(map(str, command)), cwd=where, check=True, capture_output=True)


class _Files:
    """Files beside each other as a work tree, with ways to bring them elsewhere."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        tree.mkdir(parents=True)
        if shutil.which("git"):
            _run("git", "init", "-q", where=tree)

    def commit(self) -> None:
        """Note what is there, for git."""
        who = ("-c", "user.name=b", "-c", "user.email=b@localhost", "-c", "gc.auto=0")
        if shutil.which("git"):
            _run("git", "add", "-A", where=self.tree)
            _run("git", *who, "commit", "-q", "--allow-empty", "-m", "more", where=self.tree)

    def turns(self, target: Path, prepare: Callable[[int], object], *, anew: bool) -> dict[str, Turn]:
        """A turn for each peer there is; to the same place each time, or to a new one."""
        numbers = count()
        bare, copied = target / "bare", target / "copied"

        def ready(number: int) -> None:
            nonlocal bare
            prepare(number)
            self.commit()
            if anew or not bare.exists():
                bare = target / f"bare-{next(numbers)}"
                _run("git", "init", "-q", "--bare", bare)

        def push(number: int) -> None:  # noqa: ARG001
            _run("git", "push", "-q", bare, "HEAD:refs/heads/main", where=self.tree)

        def copy(number: int) -> None:
            _run("rsync", "-a", "--exclude", ".git", f"{self.tree}/", copied / (str(number) if anew else "one"))

        copied.mkdir(parents=True)
        found: dict[str, Turn] = {}
        if shutil.which("git"):
            found[GIT] = _timed(ready, push)
        if shutil.which("rsync"):
            found[RSYNC] = _timed(prepare, copy)
        return found


def _first(place: Place, directory: Path) -> dict[str, Turn]:
    files = _Files(directory / "first" / "tree")
    _project(place, files)
    store = Store.open(place.store)

    def target(number: int) -> Path:
        return directory / "first" / f"store-{number}"

    ours = _timed(
        lambda number: Store.open(target(number), create=True).close(),
        lambda number: store.push(target(number), place.session),
    )
    return {OURS: ours, **files.turns(directory / "first", lambda _: None, anew=True)}


def _project(place: Place, files: _Files) -> None:
    with Store.open(place.store) as store:
        store.project(place.session, files.tree / "session.jsonl")


def _growing(place: Place, directory: Path, new: int) -> dict[str, Turn]:
    files = _Files(directory / "tree")
    _project(place, files)
    target = directory / "store"
    Store.open(target, create=True).close()
    store = Store.open(place.store)
    store.push(target, place.session)

    def grow(number: int) -> None:
        drafts = [entry.user(f"{number} {at} {'x' * 380}") for at in range(new)]
        with store.open_session(place.session) as session:
            session.append_batch(drafts, durable=True)

    def grow_file(number: int) -> None:
        line = b'{"number":%d,"text":"' % number + b"x" * 400 + b'"}\n'
        with (files.tree / "session.jsonl").open("ab") as file:
            file.write(line * new)

    return {
        OURS: _timed(grow, lambda _: store.push(target, place.session)),
        **_seen(files.turns(directory, grow_file, anew=False)),
    }


def _seen(turns: dict[str, Turn]) -> dict[str, Turn]:
    """The turns, once each was taken: what is measured is not the first time."""
    for turn in turns.values():
        turn(0)
    return turns


def _still(directory: Path, sessions: int) -> dict[str, Turn]:
    files = _Files(directory / "tree")
    target = directory / "store"
    Store.open(target, create=True).close()
    store = Store.open(directory / "from", create=True)
    given = stream()
    for number in range(sessions):
        with store.create(id=f"session-{number}") as session:
            session.append_batch(list(islice(given, 3)), durable=False)
        store.project(session.id, files.tree / f"{session.id}.jsonl")
    store.push(target, all=True)

    def nothing(number: int) -> None:
        """All is as it was."""

    return {
        OURS: _timed(nothing, lambda _: store.push(target, all=True)),
        **_seen(files.turns(directory, nothing, anew=False)),
    }
