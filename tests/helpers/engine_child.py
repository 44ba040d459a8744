"""What a real process does to a real store, told by its arguments; what it was acknowledged it prints, line by line.

Run as ``python -m tests.helpers.engine_child MODE STORE SESSION …``; it ends when it is done, killed, or when its input
ends.
"""

from __future__ import annotations

import os
import sys

from agentsession_cas.core.entry import Draft
from agentsession_cas.errors import Closed
from agentsession_cas.store import Store
from tests.helpers.engine import message

__all__ = ["BATCH", "text_of"]

BATCH = 3
"""Entries that the modes ``append`` and ``write`` append at once."""


def text_of(number: int) -> str:
    """The words of an entry: its number, and a size that wanders."""
    return f"{number}:".ljust(20 + number * 37 % 900, "x")


def say(*words: object) -> None:
    """One line to whoever listens, at once."""
    print(*words, flush=True)


def _batch(first: int) -> list[Draft]:
    return [Draft("item", message(text_of(number))) for number in range(first, first + BATCH)]


def append(store: Store, session: str, every: str) -> None:
    """Append batches for ever: durable ones, which are told, and others between; checkpoint every so many."""
    with store.open_session(session) as writer:
        first = len(writer)
        say("open", first)
        for turn in range(1_000_000):
            told = writer.append_batch(_batch(first), durable=turn % 3 != 2)
            first += BATCH
            if told[0].durable:
                say(*(each.id for each in told))
            if turn % int(every) == int(every) - 1:
                writer.checkpoint()


def hold(store: Store, session: str) -> None:
    """Hold a session until the input says to let go."""
    with store.open_session(session):
        say("open")
        sys.stdin.readline()
    say("closed")


def write(store: Store, session: str, count: str) -> None:
    """Append so many entries, some durable, with checkpoints between."""
    with store.open_session(session) as writer:
        say("open")
        for first in range(0, int(count), BATCH):
            writer.append_batch(_batch(first), durable=first % 7 == 0)
            if first % 401 == 0:
                writer.checkpoint()
    say("closed")


def churn(store: Store, session: str, rounds: str) -> None:
    """Make one session after the other, each saying what the others say, and delete the one before."""
    say("open")
    for turn in range(int(rounds)):
        with store.create(id=f"{session}-{turn}") as writer:
            for first in range(0, 36 if turn % 2 else 6, BATCH):
                writer.append_batch(_batch(first), durable=first % 7 == 0)
            writer.checkpoint()
        if turn:
            store.delete(f"{session}-{turn - 1}")
    say("closed")


def fork(store: Store, session: str) -> None:
    """Fork while a session is held: the child's handle is dead, the parent's is not."""
    writer = store.open_session(session)
    writer.append_batch(_batch(0), durable=True)
    child = os.fork()
    if not child:
        try:
            writer.append_batch(_batch(BATCH), durable=True)
        except Closed:
            writer.close()
            os._exit(7)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    say("child", os.waitstatus_to_exitcode(status))
    sys.stdin.readline()
    writer.append_batch(_batch(BATCH), durable=True)
    writer.close()
    say("closed")


def main(mode: str, root: str, *arguments: str) -> None:
    """Do what the arguments say."""
    modes = {"append": append, "hold": hold, "write": write, "churn": churn, "fork": fork}
    with Store.open(root) as store:
        modes[mode](store, *arguments)  # type: ignore[operator]


if __name__ == "__main__":
    main(*sys.argv[1:])
