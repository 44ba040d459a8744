"""The README as what it promises: its scripts, its commands with their output, its snippets of Python.

A ``python`` block that begins with ``# NAME.py`` is a file the reader saves; any other runs as it stands. A ``console``
block holds commands behind ``$ `` (going on behind ``> ``) and what each prints. Blocks of other kinds are not run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Block", "Command", "Place", "blocks", "commands", "normal"]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\w+\.py)\b")
_CHANGING = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<hash>"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its kind, its text, the line of the README it begins at."""

    kind: str
    text: str
    line: int

    @property
    def file(self) -> str:
        """The name of the file a ``python`` block is to be saved as, or ""."""
        found = _FILE.match(self.text)
        return found[1] if found and self.kind == "python" else ""


@dataclass(frozen=True)
class Command:
    """A command of a ``console`` block and the output shown under it."""

    text: str
    output: str


def blocks(readme: str) -> Iterator[Block]:
    """The fenced blocks of a README, in order."""
    for found in _FENCE.finditer(readme):
        yield Block(found[1], found[2], readme.count("\n", 0, found.start()) + 1)


def commands(block: Block) -> list[Command]:
    """The commands of a ``console`` block, in order."""
    found: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif line.startswith("> ") and not found[-1][1]:
            found[-1][0].append(line[2:])
        else:
            found[-1][1].append(line)
    return [Command("\n".join(words), "\n".join(output)) for words, output in found]


def normal(output: str) -> str:
    """Output with what differs from run to run, ids made anew and times, in one spelling."""
    for pattern, name in _CHANGING:
        output = pattern.sub(name, output)
    return output.rstrip()


class Place:
    """Where a reader is after the set-up command: beside ``fixtures``, with the package's commands on the path."""

    def __init__(self, directory: Path, root: Path) -> None:
        self.directory = directory
        (directory / "fixtures").symlink_to(root / "fixtures")
        bin_ = directory / ".bin"
        bin_.mkdir()
        for name, module in (("python", ""), ("agentsession-cas", " -m agentsession_cas")):
            script = bin_ / name
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}"{module} "$@"\n')
            script.chmod(0o700)
        cleared = ("AGENTSESSION_STORE", "FORCE_COLOR", "PYTHONPATH")
        kept = {name: value for name, value in os.environ.items() if name not in cleared}
        self._environment = {
            **kept,
            "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(root),
            "HOME": str(directory),
            "XDG_DATA_HOME": str(directory / ".data"),
        }

    def run(self, command: str) -> str:
        """Run a command as the reader's shell would; what it prints, errors included."""
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            check=False,
            text=True,
        ).stdout

    def save(self, block: Block) -> None:
        """Save a block as the file it says it is."""
        (self.directory / block.file).write_text(block.text)
