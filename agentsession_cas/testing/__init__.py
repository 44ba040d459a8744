"""What tests need to put the package under stress: a simulated host that crashes, fails and rewinds.

Owns nothing that production uses, and production never imports it.
"""

from __future__ import annotations

__all__: list[str] = []
