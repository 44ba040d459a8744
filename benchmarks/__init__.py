"""What the store costs beside what a harness would use instead: ``python -m benchmarks.append``, ``benchmarks.open``.

Peers do the same work on the same bytes, interleaved in one run, on a real directory: trust the ratios, not the times.
"""

from __future__ import annotations

__all__: list[str] = []
