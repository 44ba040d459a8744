"""What the store costs beside what a harness would use instead: ``python -m benchmarks [NAME]``.

Peers do the same work on the same bytes, interleaved in one run, on a real directory: trust the ratios, not the times.
Every target stands in the code beside what it is a target for, and is missed or met in every run. A part of the suite
is a module here whose ``measure`` is made by :func:`benchmarks.harness.part`.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PARTS"]

PARTS: Final = (
    "append",
    "stall",
    "agents",
    "long",
    "aio",
    "open",
    "resume",
    "whole",
    "canonical",
    "forks",
    "bodies",
    "importing",
    "exchange",
    "checking",
    "verify",
    "memory",
    "commands",
    "size",
    "scale",
)
