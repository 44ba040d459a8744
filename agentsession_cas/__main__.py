"""``python -m agentsession_cas``: the command line."""

from __future__ import annotations

from agentsession_cas.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
