"""The command line ``agentsession-cas`` (cli.md): the only part that prints, reads the environment, sets exit codes."""

from __future__ import annotations

from agentsession_cas.cli.app import main, run

__all__ = ["main", "run"]
