"""What a real process does with refs: told by its arguments, it waits for a line, does it, and says what came of it.

Run as ``python -m tests.helpers.refs_child MODE STORE NAME NUMBER``.
"""

from __future__ import annotations

import sys

from agentsession_cas import RefTarget, Store, entry
from agentsession_cas.errors import RefMoved

__all__ = ["TIMES"]

TIMES = 6
"""How often the mode ``count`` moves the ref."""


def say(*words: object) -> None:
    """One line to whoever listens, at once."""
    print(*words, flush=True)


def session_for(store: Store, name: str, number: str) -> None:
    """Ask for the session of a name and add to it, waiting for whoever has it."""
    with store.session_for(name, timeout_s=60) as held:
        held.append(entry.user(f"I am {number}"))
        say(held.id)


def count(store: Store, name: str, number: str) -> None:
    """Move a name some times to the session whose number is one higher, whoever else does so too."""
    for _ in range(TIMES):
        while True:
            before = store.resolve_ref(name)
            after = RefTarget(f"n{int(before.session[1:]) + 1}")
            try:
                store.update_ref(name, before, after, number)
            except RefMoved:
                continue
            break
    say("done")


if __name__ == "__main__":
    mode, root, name, number = sys.argv[1:]
    with Store.open(root) as opened:
        say("ready")
        sys.stdin.readline()
        {"session_for": session_for, "count": count}[mode](opened, name, number)
