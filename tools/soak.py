"""Many processes at one store for minutes: ``python -m tools.soak DIR --seconds 300``.

Writers make sessions, append to them, fork, reopen, checkpoint and delete them; readers read whole sessions of others;
one process repacks without end and one sweeps, with no grace at all. Now and then a writer is killed and another takes
over from what it was acknowledged. Every append acknowledged as durable is noted in a file of its writer before the
next one. In the end nothing may have failed, everything noted must be there in its order, and fsck must find nothing.

Exits 0 when all of that holds, 1 and says what did not.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from agentsession_cas import Store, entry
from agentsession_cas.errors import NoEntry, NoSession, StoreLocked
from agentsession_cas.sessions.source import RowSource

__all__ = ["main"]

WRITERS: Final = 10
READERS: Final = 2
_PIECE: Final = "one long line that many outputs have in common, so that they are kept once. " * 90

Counts = dict[str, int]


# --- what each process does ------------------------------------------------------------------------------------------


class Writer:
    """One writer: its sessions, by what its notes say, and what it does next."""

    def __init__(self, root: Path, number: int, seed: int) -> None:
        self._store = Store.open(root)
        self._chance = random.Random(seed)
        self._number = number
        self._notes = notes_of(root, number).open("a", encoding="utf-8")
        self._sessions = [name for name, ids in noted(notes_of(root, number)).items() if ids]
        self.counts: Counts = {"appends": 0, "sessions": 0, "deleted": 0}

    def step(self) -> None:
        """Something a harness does."""
        what = self._chance.random()
        if len(self._sessions) > 2 and what < 0.15:
            self._delete(self._sessions.pop(self._chance.randrange(len(self._sessions))))
        elif self._sessions and what < 0.5:
            name = self._chance.choice(self._sessions)
            with self._store.open_session(name, timeout_s=30.0) as session:
                self._append(name, session)
        else:
            self._create(self._chance.choice(self._sessions) if self._sessions and what < 0.7 else "")

    def _create(self, origin: str) -> None:
        name = f"w{self._number}-{self._chance.getrandbits(60):x}"
        if origin:
            base = self._chance.choice(list(self._store.read(origin))).id
            made = self._store.fork(origin, base, id=name)
        else:
            made = self._store.create(id=name)
        with made as session:
            self._append(name, session)
        self._sessions.append(name)
        self.counts["sessions"] += 1

    def _append(self, name: str, session: Any) -> None:
        for _ in range(self._chance.randint(1, 12)):
            words = f"{self._chance.getrandbits(200):x} " * self._chance.randint(1, 60)
            text = _PIECE + words if self._chance.random() < 0.1 else words
            given = [entry.user(f"{text}{at}") for at in range(self._chance.choice((1, 1, 1, 8, 40)))]
            done = session.append_batch(given, durable=self._chance.random() < 0.7)
            if done[-1].durable:
                self._note(name, *(each.id for each in done))
            self.counts["appends"] += len(done)
        if self._chance.random() < 0.3:
            session.checkpoint()

    def _delete(self, name: str) -> None:
        self._note(name)  # before: who is killed in between may have deleted it
        self._store.delete(name, timeout_s=30.0)
        self.counts["deleted"] += 1

    def _note(self, name: str, *ids: str) -> None:
        self._notes.write(" ".join([name, *ids]) + "\n")
        self._notes.flush()


class Reader:
    """Reads whole sessions, whoever's."""

    def __init__(self, root: Path, number: int, seed: int) -> None:  # noqa: ARG002
        self._store = Store.open(root, read_only=True)
        self._chance = random.Random(seed)
        self.counts: Counts = {"read": 0}

    def step(self) -> None:
        """Read one; that it was deleted meanwhile is no error."""
        names = self._store.session_ids()
        if not names:
            time.sleep(0.01)
            return
        with suppress(NoSession):
            session = self._store.read(self._chance.choice(names))
            assert isinstance(session.source, RowSource)
            for each in session:
                assert each.body
            session.source.close()
            self.counts["read"] += 1


class Repacker:
    """Repacks; now and then everything."""

    def __init__(self, root: Path, number: int, seed: int) -> None:  # noqa: ARG002
        self._store = Store.open(root)
        self._chance = random.Random(seed)
        self.counts: Counts = {"repacks": 0, "settled": 0}

    def step(self) -> None:
        """One repack; a sweep may be under way."""
        with suppress(StoreLocked):
            self.counts["settled"] += self._store.repack(self._chance.random() < 0.3, timeout_s=60.0).settled
            self.counts["repacks"] += 1
        time.sleep(0.6)


class Sweeper:
    """Sweeps all that nothing needs, however young."""

    def __init__(self, root: Path, number: int, seed: int) -> None:  # noqa: ARG002
        self._store = Store.open(root)
        self.counts: Counts = {"sweeps": 0, "swept": 0}

    def step(self) -> None:
        """One sweep; a repack may be under way."""
        with suppress(StoreLocked):
            self.counts["swept"] += self._store.sweep(grace_s=0).objects
            self.counts["sweeps"] += 1
        time.sleep(1.0)  # repacks, which a sweep holds off, have their turn


ROLES: Final[dict[str, Callable[[Path, int, int], Any]]] = {
    "writer": Writer,
    "reader": Reader,
    "repacker": Repacker,
    "sweeper": Sweeper,
}


# --- what was acknowledged -------------------------------------------------------------------------------------------


def notes_of(root: Path, number: int) -> Path:
    """The file of a writer's notes, beside the store."""
    return root.parent / f"writer-{number}.notes"


def noted(path: Path) -> dict[str, list[str]]:
    """Of each session the ids acknowledged, in order; none of one that was deleted, or was about to be."""
    found: dict[str, list[str]] = {}
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else [""]
    for line in lines[:-1]:  # what its writer was killed in the midst of does not count
        name, *ids = line.split(" ")
        found[name] = [*found.get(name, ()), *ids] if ids else []
    return found


def lost(store: Store, root: Path, writers: int) -> list[str]:
    """What was acknowledged and is not there."""
    missing: list[str] = []
    for number in range(writers):
        for name, ids in noted(notes_of(root, number)).items():
            if not ids:
                continue
            try:
                session = store.read(name)
                positions = [session.position(each) for each in ids]
            except (NoSession, NoEntry) as error:
                missing.append(f"{name}: {error}")
                continue
            if positions != sorted(positions):
                missing.append(f"{name}: what was acknowledged lies in another order")
    return missing


# --- all of them -----------------------------------------------------------------------------------------------------

Child = subprocess.Popen[str]


def _start(root: Path, role: str, number: int, seed: int) -> Child:
    command = [sys.executable, "-m", "tools.soak", str(root), "--role", role, "--number", str(number)]
    return subprocess.Popen(
        [*command, "--seed", str(seed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _act(root: Path, role: str, number: int, seed: int) -> None:
    """Be one of them until it is time to stop."""
    actor = ROLES[role](root, number, seed)
    stop = root.parent / "stop"
    actor.step()
    (root.parent / f"ready-{role}-{number}").touch()
    while not stop.exists():
        actor.step()
    print(json.dumps(actor.counts))


def _run(root: Path, seconds: float, writers: int, seed: int) -> tuple[Counts, list[str]]:
    chance = random.Random(seed)
    wanted = [("writer", n) for n in range(writers)] + [("reader", n) for n in range(READERS)]
    wanted += [("repacker", 0), ("sweeper", 0)]
    children = {each: _start(root, *each, chance.getrandbits(32)) for each in wanted}
    counts: Counts = {"killed": 0}
    failed: list[str] = []
    while not all((root.parent / f"ready-{role}-{number}").exists() for role, number in wanted):
        if any(each.poll() for each in children.values()):
            break
        time.sleep(0.05)
    end = time.monotonic() + seconds
    while time.monotonic() < end and not any(each.poll() for each in children.values()):
        time.sleep(min(2.0, max(0.0, end - time.monotonic())))
        victim = ("writer", chance.randrange(writers))
        if time.monotonic() < end:
            children[victim].kill()
            children[victim].communicate()
            counts["killed"] += 1
            children[victim] = _start(root, *victim, chance.getrandbits(32))
    (root.parent / "stop").touch()
    for (role, number), child in children.items():
        told, errors = child.communicate(timeout=600)
        if child.returncode:
            failed.append(f"{role} {number}: {errors.strip() or child.returncode}")
        else:
            for what, count in json.loads(told).items():
                counts[what] = counts.get(what, 0) + count
    return counts, failed


@click.command("soak")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--seconds", default=300.0, help="How long (300).")
@click.option("--writers", default=WRITERS, type=click.IntRange(1), help=f"Processes that write ({WRITERS}).")
@click.option("--seed", default=1, help="Another seed, other sessions (1).")
@click.option("--role", type=click.Choice(list(ROLES)), hidden=True)
@click.option("--number", default=0, hidden=True)
def main(directory: Path, seconds: float, writers: int, seed: int, role: str | None, number: int) -> None:
    """Let many processes work at a new store in DIRECTORY, then see that nothing failed and nothing is lost."""
    if role is not None:
        _act(directory, role, number, seed)
        return
    root = directory / "store"
    directory.mkdir(exist_ok=True)
    Store.open(root, create=True).close()
    counts, failed = _run(root, seconds, writers, seed)
    with Store.open(root) as store:
        failed += lost(store, root, writers)
        report = store.fsck()
        failed += [str(each) for each in report.findings if each.severity != "note"]
        counts["entries"] = report.entries
    print(json.dumps({"seconds": seconds, "writers": writers, **counts, "failed": failed}, indent=2))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
