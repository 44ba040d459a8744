"""fsck with the workers that a test gives it, and where nobody can help."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from agentsession_cas.effects.host import real_host
from agentsession_cas.effects.workers import StartWorkers
from agentsession_cas.layout import Layout
from agentsession_cas.maintenance.findings import FsckReport
from agentsession_cas.maintenance.fsck import fsck
from agentsession_cas.objects.database import ObjectDatabase

__all__ = ["checked", "without_threads"]


def checked(root: Path, workers: StartWorkers) -> FsckReport:
    """The store checked with such workers; none of them is given a whole session."""
    host = replace(real_host(), workers=workers)
    with ObjectDatabase(host, str(root)) as objects:
        return fsck(Layout(host, str(root)), objects, patience_s=1e9)


def without_threads(patch: pytest.MonkeyPatch) -> list[str]:
    """No thread can be started any more; the names of those that were refused."""
    refused: list[str] = []

    def start(self: Thread) -> None:
        refused.append(self.name)
        raise RuntimeError("can't start new thread")

    patch.setattr(Thread, "start", start)
    return refused
