"""The object database: canonical bytes under their SHA-256 (store.md A1 and Part B).

Owns ``objects/`` of a store. ``ObjectDatabase`` is what other parts use; nothing here knows of sessions or entries.
"""

from __future__ import annotations

from agentsession_cas.core.packformat import Space
from agentsession_cas.objects.check import Finding
from agentsession_cas.objects.database import Location, ObjectDatabase, ObjectStats
from agentsession_cas.objects.publish import Published

__all__ = ["Finding", "Location", "ObjectDatabase", "ObjectStats", "Published", "Space"]
