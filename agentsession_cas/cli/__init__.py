"""The command line ``agentsession-cas`` (cli.md): the only part that prints, reads the environment, sets exit codes.

Everything of it loads inside ``run``, so that an interrupt while it loads ends as every other one does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

__all__ = ["EXIT_INTERRUPTED", "main", "run"]

EXIT_INTERRUPTED: Final = 130


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (``sys.argv`` by default); returns its exit code, prints its error."""
    try:
        from agentsession_cas.cli import app

        return app.run(arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def main() -> None:
    """The console script."""
    sys.exit(run())
