"""What the explorer plays: short programs that each bring one part of the engine about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from agentsession_cas.effects.durable import remove_tree
from tests.helpers.engine import Player

__all__ = ["SCENARIOS", "Scenario", "die", "goes_on", "init"]

Scenario = Callable[[Player], None]


def die(player: Player, scenario: Scenario) -> None:
    """The same happened on this disk before, and is gone: its bytes may show up in space never written."""
    scenario(player)
    player.interrupts.clear()
    for session_id in list(player.world.sessions):
        player.delete(session_id)
    fs, trash = player.host.fs, player.store.layout.trash
    for name in fs.listdir(trash):
        remove_tree(fs, f"{trash}/{name}")


def init(player: Player) -> None:
    """A store and a session from nothing."""
    player.create("s")
    player.append("s", 300, durable=True)


def durable(player: Player) -> None:
    """Each append is acknowledged; frames below, at and over the size of a block."""
    player.create("s")
    for size in (90, 700, 3000, 60, 5000, 100):
        player.append("s", size, durable=True)


def lazy(player: Player) -> None:
    """Appends of which few are acknowledged."""
    player.create("s")
    for size, sync in ((200, 0), (900, 0), (60, 1), (3000, 0), (2500, 0), (120, 0), (300, 1), (5000, 0), (80, 0)):
        player.append("s", size, durable=bool(sync))
    player.commit("s")
    player.append("s", 80)


def batch(player: Player) -> None:
    """Several entries at once, over several blocks too."""
    player.create("s")
    player.append("s", 100, 600, 300, durable=True)
    player.append("s", 200)
    player.append("s", 3000, 80)
    player.append("s", 90, 90, 6000, durable=True)
    player.append("s", 50, 50)


def checkpoint(player: Player) -> None:
    """Objects and rows go out, appends go on behind."""
    player.create("s")
    player.append("s", 300, durable=True)
    player.append("s", 100)
    player.checkpoint("s")
    player.append("s", 400)
    player.append("s", 200, durable=True)
    player.append("s", 90, 800, 70, durable=True)
    player.checkpoint("s")
    player.append("s", 100, durable=True)


def rows(player: Player) -> None:
    """Enough rows for whole blocks of the log, and a pack instead of loose objects."""
    player.create("s")
    player.append("s", *[20] * 34, durable=True)
    player.checkpoint("s")
    player.append("s", *[30] * 40)
    player.append("s", 20, durable=True)
    player.checkpoint("s")
    player.append("s", 100, durable=True)
    player.append("s", *[25] * 33)
    player.checkpoint("s")
    player.append("s", 100)


def busy(player: Player) -> None:
    """Appends while a checkpoint is at the objects, at the rows, and before the rename."""
    player.create("s")
    player.append("s", 300, durable=True)
    player.append("s", 200)
    player.on("sync", "/log-0", lambda: player.append("s", 400, durable=True))
    player.checkpoint("s")
    player.append("s", 90)
    player.on("create", "/tmp/", lambda: player.append("s", 700))
    player.on("sync_dir", "/sessions/s", lambda: player.append("s", 60, 60))
    player.checkpoint("s")
    player.append("s", 90, durable=True)
    player.on("write", "/log-0", lambda: player.append("s", 60, durable=True))
    player.on("sync", "/log-0", lambda: player.append("s", 80))
    player.checkpoint("s")
    player.append("s", 90, durable=True)


def during(player: Player) -> None:
    """Other threads append while a sync runs."""
    player.create("s")
    player.append("s", 300, durable=True)
    for size, other in ((200, 90), (300, 3000), (5000, 60)):
        player.on("sync", "/journal", lambda size=other: player.append("s", size))  # type: ignore[misc]
        player.append("s", size, durable=True)
        player.append("s", 700)
    player.append("s", 60, durable=True)


def reopen(player: Player) -> None:
    """Writers come and go."""
    player.create("s")
    player.append("s", 250, durable=True)
    player.append("s", 700)
    player.append("s", 300)
    player.reopen("s")
    player.append("s", 120)
    player.append("s", 640, durable=True)
    player.checkpoint("s")
    player.append("s", 90)
    player.reopen("s")
    player.append("s", 100, durable=True)


def left(player: Player) -> None:
    """Writers go without a word: what they left is taken over by the next."""
    player.create("s")
    player.append("s", 250, durable=True)
    player.append("s", 700)
    player.append("s", 3000)
    for size in (120, 640):
        player.abandon("s")
        player.open("s")
        player.append("s", size)
        player.append("s", size, durable=True)
        player.append("s", size)
    player.checkpoint("s")
    player.append("s", 60)
    player.abandon("s")
    player.open("s")
    player.append("s", 90, durable=True)


def grow(player: Player) -> None:
    """The journal grows past its first space, also by a frame longer than a step."""
    player.create("s")
    player.append("s", 7000, durable=True)
    player.append("s", 7000)
    player.append("s", 9000)
    player.append("s", 60, durable=True)
    player.append("s", 40_000, durable=True)
    player.append("s", 60, durable=True)


def head(player: Player) -> None:
    """Head moves and branches."""
    player.create("s")
    player.append("s", 100, durable=True)
    player.append("s", 100, 100)
    player.set_head("s", 0)
    player.append("s", 200)
    player.set_head("s", 2, durable=True)
    player.append("s", 90, under=1, durable=True)
    player.checkpoint("s")
    player.set_head("s", -1)
    player.append("s", 60, 60, durable=True)
    player.set_head("s", 3)
    player.checkpoint("s")
    player.set_head("s", 1, durable=True)


def held(player: Player) -> None:
    """An entry appended again, durably this time."""
    player.create("s")
    player.append("s", 300)
    player.append("s", 90)
    player.again("s", 0, durable=False)
    player.again("s", 0, durable=True)
    player.append("s", 100)
    player.again("s", 2, durable=True)
    player.append("s", 100)


def fork(player: Player) -> None:
    """Forks of what lies in a journal and of what does not, a fork of a fork; the origins go."""
    player.create("s")
    player.append("s", 300, durable=True)
    player.checkpoint("s")
    player.append("s", 200)
    player.append("s", 100)
    player.fork("s", 1, "f")
    player.append("f", 400, durable=True)
    player.append("f", 90)
    player.append("s", 60, durable=True)
    player.fork("f", 1, "g")
    player.append("g", 80, durable=True)
    player.delete("s")
    player.append("f", 70, durable=True)
    player.checkpoint("f")
    player.delete("f")
    player.append("g", 60, durable=True)


def delete(player: Player) -> None:
    """A session goes, and another comes by its name."""
    player.create("s")
    player.append("s", 300, durable=True)
    player.append("s", 300, durable=True)
    player.create("t")
    player.append("t", 300, durable=True)
    player.delete("s")
    player.append("t", 90, durable=True)
    player.create("s")
    player.append("s", 300)
    player.append("s", 90, durable=True)
    player.delete("t")


def raised(player: Player) -> None:
    """A file of an earlier format comes in; the first append raises the header."""
    player.take("s", [100, 90, 80])
    player.open("s")
    player.append("s", 90, durable=True)
    player.append("s", 90)
    player.take("m", [30] * 40, as_record=False)
    player.checkpoint("s")


def twins(player: Player) -> None:
    """Two sessions with the same bodies: what one published, the other finds."""
    player.create("s")
    player.append("s", 300, 100, 90)
    player.create("t")
    player.copy("t", "s", 0)
    player.checkpoint("s")
    player.copy("t", "s", 1, durable=True)
    player.checkpoint("t")
    player.delete("s")
    player.append("t", 60)


def blobs(player: Player) -> None:
    """Blobs beside a session."""
    player.put_blob(b"1" * 700)
    player.create("s")
    player.append("s", 90, durable=True)
    player.put_blob(b"2" * 9000)
    player.put_blob(b"1" * 700)


def goes_on(player: Player) -> None:
    """What a second process does with whatever a first one left of session ``s``."""
    player.create("s")
    if "s" not in player.writers:
        player.open("s")
    player.append("s", 150, durable=True)
    player.append("s", 700)
    player.checkpoint("s")
    player.append("s", 90)
    player.append("s", 600, durable=True)


SCENARIOS: Final[dict[str, Scenario]] = {
    "durable": durable,
    "lazy": lazy,
    "batch": batch,
    "checkpoint": checkpoint,
    "rows": rows,
    "busy": busy,
    "during": during,
    "reopen": reopen,
    "left": left,
    "grow": grow,
    "head": head,
    "held": held,
    "fork": fork,
    "delete": delete,
    "raised": raised,
    "twins": twins,
    "blobs": blobs,
}
