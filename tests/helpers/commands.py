"""The command line run in this process, as a user would run it: arguments, stdin, two streams and an exit code."""

from __future__ import annotations

import io
import json
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agentsession_cas.cli import run

__all__ = ["Commands", "Ran", "heed_interrupts"]


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """What it printed."""
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        """The lines it printed."""
        return self.text.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The JSON it printed, an object a line, each without its ``schema``."""
        objects = [json.loads(line) for line in self.out.splitlines()]
        assert all(each.pop("schema") == 1 for each in objects)
        return objects

    @property
    def object(self) -> dict[str, Any]:
        """The one object it printed."""
        (only,) = self.objects
        return only

    @property
    def error_code(self) -> str:
        """The code of the one error it ended with."""
        (line,) = self.err.splitlines()
        word, code, rest = line.split(": ", 2)
        assert word == "error"
        assert rest
        return code


class Commands:
    """Runs commands in a directory of their own, with a store at ``.agentsession``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self._patch = monkeypatch
        self.directory = directory
        self.store = directory / ".agentsession"
        monkeypatch.chdir(directory)
        for name in ("AGENTSESSION_STORE", "NO_COLOR", "FORCE_COLOR", "PAGER"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("XDG_DATA_HOME", str(directory / "data"))
        monkeypatch.setenv("HOME", str(directory / "home"))

    def __call__(self, *arguments: str | Path, stdin: bytes = b"") -> Ran:
        """Run one command."""
        out, err = io.BytesIO(), io.BytesIO()
        with self._patch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            patch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="utf-8"))
            patch.setattr(sys, "stderr", io.TextIOWrapper(err, encoding="utf-8"))
            code = run([str(each) for each in arguments])
            sys.stdout.flush()
            sys.stderr.flush()
            return Ran(code, out.getvalue(), err.getvalue().decode())

    def ok(self, *arguments: str | Path, stdin: bytes = b"") -> Ran:
        """Run one command that has to succeed."""
        ran = self(*arguments, stdin=stdin)
        assert ran.code == 0, ran.err
        return ran


def heed_interrupts() -> None:
    """Run in a new process: a shell's background job ignores SIGINT, and what it starts does too unless told."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
